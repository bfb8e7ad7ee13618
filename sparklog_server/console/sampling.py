"""Rates and lag over time, from offsets and sizes between samples.

A task takes the samples: that of the console's own identity from its start on, that of a login while its
pages ask. So no page waits for one, and a broker that hangs leaves a gap in a history instead of ending it.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Mapping
from contextlib import suppress
from heapq import nlargest
from time import monotonic, time
from typing import Final, NamedTuple

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.topics import Topic
from sparklog.errors import SparklogError
from sparklog.model import TopicPartition
from sparklog_server.console.clusters import Cluster
from sparklog_server.operations.rates import GAP_S, Rates, log_ends_of

EVERY_S: Final = 4.0
PAUSE_TIMES: Final = 10
"""The pause after a sample is so many times that of the sample: a large cluster is asked less often."""
SAMPLES_MAX: Final = 360
SERIES_MAX: Final = 100
"""Topics, and groups, that have a history at the same time."""
BUSIEST: Final = 8
LAGS_MAX: Final = 50
"""Partitions of a group in one sample: those with the most lag."""


class Point(NamedTuple):
    """A time in seconds, and rates per second; None where a sample is missing, or sizes are unknown."""

    at_s: float
    records: float | None
    bytes: float | None


class Samples:
    """The histories that one identity sees."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._asked_s = 0.0
        self._total: deque[Point] = deque(maxlen=SAMPLES_MAX)
        self._of_topics: OrderedDict[str, deque[Point]] = OrderedDict()
        self._lags: OrderedDict[str, deque[tuple[float, int | None, dict[str, int]]]] = OrderedDict()
        self._rates, self._growth = Rates(), Rates()
        self.is_partial = False

    def follow(self, cluster: Cluster, *, is_endless: bool = False) -> None:
        """Take samples from now on, until none was asked for in `GAP_S` unless it is endless."""
        self._asked_s = time()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._sampled(cluster, is_endless))

    def total(self, cluster: Cluster) -> list[Point]:
        """The rates of the whole cluster."""
        self.follow(cluster)
        return list(self._total)

    def of_topic(self, cluster: Cluster, topic: str) -> list[Point]:
        """The rates of one topic. In a cluster of many its history begins with the first call."""
        self.follow(cluster)
        if topic not in self._of_topics:
            while len(self._of_topics) >= SERIES_MAX:
                self._of_topics.popitem(last=False)
            self._of_topics[topic] = deque(maxlen=SAMPLES_MAX)
        self._of_topics.move_to_end(topic)
        return list(self._of_topics[topic])

    @property
    def rates(self) -> dict[str, float]:
        """Records per second of each topic; none if the last sample is too old."""
        return self._rates.of_topics(time())

    def busiest(self) -> list[tuple[str, float]]:
        """The topics with the highest rates, in records per second."""
        found = sorted(self.rates.items(), key=lambda pair: (-pair[1], pair[0]))[:BUSIEST]
        return [(topic, rate) for topic, rate in found if rate > 0]

    def lag(
        self, group: str, lags: Mapping[TopicPartition, int | None]
    ) -> list[tuple[float, int | None, dict[str, int]]]:
        """Remember the lag of a group now; its history: the time in seconds, the sum, and the partitions with
        the most, at most `LAGS_MAX`. A long pause is a sample without a sum.
        """
        if group not in self._lags:
            while len(self._lags) >= SERIES_MAX:
                self._lags.popitem(last=False)
            self._lags[group] = deque(maxlen=SAMPLES_MAX)
        self._lags.move_to_end(group)
        history, now_s = self._lags[group], time()
        if not history or now_s >= history[-1][0] + EVERY_S:
            if history and now_s > history[-1][0] + GAP_S:
                history.append((history[-1][0] + EVERY_S, None, {}))
            known = {str(at): lag for at, lag in lags.items() if lag is not None}
            most = dict(nlargest(LAGS_MAX, known.items(), key=lambda one: one[1]))
            history.append((now_s, sum(known.values()), most))
        return list(history)

    async def _sampled(self, cluster: Cluster, is_endless: bool) -> None:
        while not cluster.is_closed and (is_endless or time() < self._asked_s + GAP_S):
            begun_s, pause_s = monotonic(), EVERY_S
            with suppress(SparklogError):  # the history has a gap then
                ends, sizes, self.is_partial = await cluster.run(cluster.with_admin, _figures, waits=False)
                self._took(ends, sizes, time())
                pause_s = min(max(EVERY_S, PAUSE_TIMES * (monotonic() - begun_s)), GAP_S / 2)
            await asyncio.sleep(pause_s)

    def _took(
        self, ends: dict[TopicPartition, int], sizes: dict[TopicPartition, int] | None, now_s: float
    ) -> None:
        rates = self._rates.sampled(ends, now_s)
        growth = None if sizes is None else self._growth.sampled(sizes, now_s)
        if rates is None:
            if self._total:  # after a long pause
                for history in (self._total, *self._of_topics.values()):
                    history.append(Point(now_s, None, None))
            return
        self._total.append(
            Point(now_s, sum(rates.values()), None if growth is None else sum(growth.values()))
        )
        for topic, rate in rates.items():
            if topic not in self._of_topics and len(self._of_topics) < SERIES_MAX:
                self._of_topics[topic] = deque(maxlen=SAMPLES_MAX)
            if topic in self._of_topics:
                point = Point(now_s, rate, None if growth is None else growth.get(topic, 0.0))
                self._of_topics[topic].append(point)


def _figures(admin: Admin) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int] | None, bool]:
    """The ends of all logs, the sizes of their leaders' replicas, and whether some were left out."""
    topics = admin.list_topics()
    ends, is_partial = log_ends_of(admin, topics)
    return ends, None if is_partial else _sizes(admin, topics), is_partial


def _sizes(admin: Admin, topics: Mapping[str, Topic]) -> dict[TopicPartition, int] | None:
    """None where the user may not ask for them, or a broker does not answer."""
    leaders = {
        TopicPartition(topic.name, one.partition): one.leader
        for topic in topics.values()
        for one in topic.partitions
    }
    try:
        dirs = admin.describe_log_dirs()
    except SparklogError:
        return None
    return {
        at: replica.size_bytes
        for node, own in dirs.items()
        for one in own
        for at, replica in one.replicas.items()
        if leaders.get(at) == node and not replica.is_future
    }
