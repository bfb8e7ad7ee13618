"""Rates and lag over time, from offsets between samples. A sample is taken when a page asks for one and the
last is older than `EVERY_S`, so a console that no browser looks at asks the cluster nothing.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from heapq import nlargest
from time import time
from typing import Final

import anyio

from sparklog.model import TopicPartition
from sparklog_server.console.clusters import Cluster
from sparklog_server.console.rates import GAP_S, Rates, log_ends_of

EVERY_S: Final = 4.0
SAMPLES_MAX: Final = 360
SERIES_MAX: Final = 50
"""Topics, and groups, that have a history at the same time."""
BUSIEST: Final = 8
LAGS_MAX: Final = 50
"""Partitions of a group in one sample: those with the most lag."""


class Samples:
    """The histories that one identity sees."""

    def __init__(self) -> None:
        self._lock = anyio.Lock()
        self._sampled_s = 0.0
        self._total: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)
        self._of_topics: OrderedDict[str, deque[tuple[float, float]]] = OrderedDict()
        self._lags: OrderedDict[str, deque[tuple[float, int, dict[str, int]]]] = OrderedDict()
        self._rates = Rates()
        self.is_partial = False

    async def total(self, cluster: Cluster) -> list[tuple[float, float]]:
        """Records per second of the whole cluster, by time in seconds."""
        await self._sample(cluster)
        return list(self._total)

    async def of_topic(self, cluster: Cluster, topic: str) -> list[tuple[float, float]]:
        """Records per second of one topic; its history begins with the first call."""
        if topic not in self._of_topics:
            while len(self._of_topics) >= SERIES_MAX:
                self._of_topics.popitem(last=False)
            self._of_topics[topic] = deque(maxlen=SAMPLES_MAX)
        self._of_topics.move_to_end(topic)
        await self._sample(cluster)
        return list(self._of_topics.get(topic, ()))

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
    ) -> list[tuple[float, int, dict[str, int]]]:
        """Remember the lag of a group now; its history: the time in seconds, the sum, and the partitions with
        the most, at most `LAGS_MAX`.
        """
        if group not in self._lags:
            while len(self._lags) >= SERIES_MAX:
                self._lags.popitem(last=False)
            self._lags[group] = deque(maxlen=SAMPLES_MAX)
        self._lags.move_to_end(group)
        history, now_s = self._lags[group], time()
        if not history or now_s >= history[-1][0] + EVERY_S:
            if history and now_s > history[-1][0] + GAP_S:
                history.clear()
            known = {str(at): lag for at, lag in lags.items() if lag is not None}
            most = dict(nlargest(LAGS_MAX, known.items(), key=lambda one: one[1]))
            history.append((now_s, sum(known.values()), most))
        return list(history)

    async def _sample(self, cluster: Cluster) -> None:
        async with self._lock:
            if time() < self._sampled_s + EVERY_S:
                return
            topics = await cluster.topics()
            ends, self.is_partial = await cluster.admin(lambda admin: log_ends_of(admin, topics))
            now_s = time()
            rates = self._rates.sampled(ends, now_s)
            if rates is not None:
                self._total.append((now_s, sum(rates.values())))
                for topic, history in self._of_topics.items():
                    if topic in rates:
                        history.append((now_s, rates[topic]))
            else:
                self._total.clear()
                self._of_topics = OrderedDict((topic, deque(maxlen=SAMPLES_MAX)) for topic in self._of_topics)
            self._sampled_s = now_s
