"""Records per second of topics, from the ends of their logs at two times."""

from collections.abc import Collection, Mapping
from typing import Final

from sparklog.client.admin.admin import LATEST, Admin
from sparklog.client.admin.topics import Topic
from sparklog.model import NodeId, TopicPartition

PARTITIONS_MAX: Final = 20_000
"""Partitions in one sample; a cluster with more is sampled in part, and the reader is told so."""
GAP_S: Final = 60.0
"""After a pause of this length a history begins anew: a rate over it would hide its course."""


class Rates:
    """The rates between the last two samples. Times are in seconds of one clock."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}
        self._sampled_s: float | None = None
        self._rates: dict[str, float] = {}

    def sampled(self, ends: dict[TopicPartition, int], now_s: float) -> dict[str, float] | None:
        """Take a sample of log end offsets; the rates since the one before, None if that is too old."""
        elapsed_s = 0.0 if self._sampled_s is None else now_s - self._sampled_s
        is_begun = 0 < elapsed_s <= GAP_S
        rates: dict[str, float] = {}
        if is_begun:
            for at, end in ends.items():
                if at in self._ends:
                    rates[at.topic] = rates.get(at.topic, 0.0) + max(0, end - self._ends[at]) / elapsed_s
        self._rates, self._ends, self._sampled_s = rates, ends, now_s
        return rates if is_begun else None

    def of_topics(self, now_s: float) -> dict[str, float]:
        """The rates of the last sample; none if that is too old."""
        return self._rates if self._sampled_s is not None and now_s <= self._sampled_s + GAP_S else {}


def log_ends_of(
    admin: Admin, topics: Mapping[str, Topic], silent: Collection[NodeId] = ()
) -> tuple[dict[TopicPartition, int], bool]:
    """The end offsets of the partitions with a leader that is not `silent`, and whether more partitions than
    PARTITIONS_MAX have one.
    """
    led = [
        TopicPartition(topic.name, one.partition)
        for topic in topics.values()
        if not topic.is_internal
        for one in topic.partitions
        if one.leader >= 0 and one.leader not in silent
    ]
    told = admin.list_offsets(dict.fromkeys(led[:PARTITIONS_MAX], LATEST))
    return {at: one.offset for at, one in told.items()}, len(led) > PARTITIONS_MAX
