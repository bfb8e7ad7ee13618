"""One partition that a consumer reads."""

from collections import deque
from dataclasses import dataclass, field

from sparklog.client.chunk import Chunk, whole_batches
from sparklog.client.failures import CorruptRecords
from sparklog.errors import SparklogError
from sparklog.model import ZERO_UUID, Micros, TopicPartition, Uuid
from sparklog.wire.messages.fetch import PartitionData

_AT_ONCE = Micros(0)


@dataclass(slots=True, eq=False)
class Reading:
    """The state of one partition that a consumer reads. Invariants: without a position, `position` is None;
    each chunk begins where the one before it ends, and the last ends at `fetch_offset`.
    """

    topic_partition: TopicPartition
    generation: int
    position: int | None = None
    topic_id: Uuid = ZERO_UUID  # of the topic that the position belongs to; zeros: not known yet
    fetch_offset: int = 0
    chunks: deque[Chunk] = field(default_factory=deque)
    error: SparklogError | None = None  # raised after earlier fetched records are handed out
    reset_to: int | None = None  # a timestamp for ListOffsets
    last_epoch: int = -1  # of the last batch fetched
    consumed_epoch: int = -1  # of the last batch handed out
    valid_epoch: int = -1  # the leader epoch for which the position has been validated
    is_asked: bool = False
    is_held: bool = False  # the group's committed offset is being looked up
    is_paused: bool = False
    not_before: Micros = _AT_ONCE

    def took(self, told: PartitionData, *, check_crcs: bool) -> None:
        """Add the records of a response; an error of theirs is raised after them."""
        records = told.records
        if not isinstance(records, memoryview) or not len(records):
            return
        headers, wrong = whole_batches(records, check_crcs=check_crcs)
        kept = [(at, header) for at, header in headers if header.next_offset > self.fetch_offset]
        if kept:
            last_at, last = kept[-1]
            chunk = Chunk(
                self.topic_partition,
                records[: last_at + last.size],
                kept,
                start=self.fetch_offset,
                high_watermark=told.high_watermark,
                aborted=told.aborted_transactions or [],
            )
            self.chunks.append(chunk)
            self.fetch_offset, self.last_epoch = chunk.next_offset, chunk.last_epoch
        if wrong is not None or not kept:
            reason = wrong or f"{len(records)} bytes hold no whole batch"
            self.error = CorruptRecords(self.topic_partition, self.fetch_offset, reason)
