"""The ends of partitions of which this node has no replica, for the lag of groups: asked of the leaders in
the background, and kept.

    a report wants an end ─┬─► known: used, and forgotten when no report wants it
                           └─► not known, or older than 5 s: asked after the report, for the next one

One request is in flight for each leader, of at most 1000 partitions; the rest waits for the next report.
"""

from functools import partial
from typing import Final

from sparklog.effects import Loss
from sparklog.model import Instant, Micros, NodeId, Offset, TopicPartition
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.context import Context

LAG: Final = "lag"
"""The purpose of the links: a ListOffsets may wait for a high watermark, and holds up nothing else."""
ASKED_AT_ONCE_MAX: Final = 1_000
KNOWN_MAX: Final = 100_000
FRESH_US: Final = 5_000_000
_TIMEOUT_US: Final = 10_000_000
_LATEST: Final = -1


class RemoteEnds:
    """Invariant: `_asked` has the leaders that owe a response."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[TopicPartition, tuple[Offset, Micros]] = {}
        self._wanted: dict[TopicPartition, None] = {}
        self._asked: dict[NodeId, None] = {}

    def end_of(self, topic: str, index: int) -> Offset | None:
        """The high watermark of a partition as far as this node knows it; None if it must ask first."""
        partition = self._context.partitions.find(topic, index)
        if partition is not None:
            return partition.high_watermark
        topic_partition = TopicPartition(topic, index)
        if len(self._wanted) < KNOWN_MAX:
            self._wanted[topic_partition] = None
        known = self._known.get(topic_partition)
        return None if known is None else known[0]

    def ask(self, now: Instant) -> None:
        """After a report: ask the leaders of the partitions that it wanted, and forget the others."""
        wanted, self._wanted = self._wanted, {}
        self._known = {one: known for one, known in self._known.items() if one in wanted}
        by_leader: dict[NodeId, dict[str, list[int]]] = {}
        counts: dict[NodeId, int] = {}
        image = self._context.image
        for one in wanted:
            known = self._known.get(one)
            placement = image.partition(one)
            if placement is None or (known is not None and known[1] + FRESH_US > now.mono_us):
                continue
            leader = placement.leader
            if leader in self._asked or counts.get(leader, 0) >= ASKED_AT_ONCE_MAX:
                continue
            counts[leader] = counts.get(leader, 0) + 1
            by_leader.setdefault(leader, {}).setdefault(one.topic, []).append(one.partition)
        for leader, topics in by_leader.items():
            self._ask(leader, topics, now)

    def _ask(self, leader: NodeId, topics: dict[str, list[int]], now: Instant) -> None:
        address = self._context.address_of(leader)
        if address is None:
            return
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=one, timestamp=_LATEST) for one in indexes
                    ],
                )
                for name, indexes in topics.items()
            ],
        )
        self._asked[leader] = None
        self._context.links.ask(
            address, LAG, request, partial(self._replied, leader), now, timeout_us=_TIMEOUT_US
        )

    def _replied(self, leader: NodeId, answer: Message | Loss, now: Instant) -> None:
        del self._asked[leader]
        if not isinstance(answer, ListOffsetsResponse):
            return  # what is known counts on
        for topic in answer.topics:
            for part in topic.partitions:
                if not part.error_code and len(self._known) < KNOWN_MAX:
                    key = TopicPartition(topic.name, part.partition_index)
                    self._known[key] = Offset(part.offset), now.mono_us
