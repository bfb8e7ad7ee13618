"""The follower's side of one partition: from where it fetches next, and whether it may.

    FETCHING ── diverging epoch, offset out of range ──► CUTTING ── the job is done ──► FETCHING
       │  ▲
       └──┴── error, full disk ──► RESTING, until its time has come or the image places the partition anew

A fetch offset tells the leader that every record below it is here: with `sparklog.ack.flush` = always, that
they are synced. So such a partition waits for its sync before it fetches on.
"""

from enum import Enum
from typing import Final

import msgspec

from sparklog.model import LeaderEpoch, Micros, Offset, OffsetAndEpoch, Uuid
from sparklog.record.batch import HEADER_SIZE, read_header
from sparklog.wire.schema import INT64_MAX
from sparklog_server.replica.partition import Partition


class Phase(Enum):
    FETCHING = "fetching"
    CUTTING = "cutting"
    RESTING = "resting"


NOT_READ: Final = Offset(INT64_MAX)
"""The high watermark in the fetch of a partition that no consumer reads here: its leader need not tell a
newer one at once.
"""


class Position(msgspec.Struct, frozen=True, gc=False):
    """What a fetch says about one partition."""

    fetch_offset: Offset
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset
    leader_epoch: LeaderEpoch
    high_watermark: Offset = NOT_READ

    def is_at(self, other: "Position") -> bool:
        """Whether the leader would send the same records."""
        return (
            self.fetch_offset == other.fetch_offset
            and self.last_fetched_epoch == other.last_fetched_epoch
            and self.log_start_offset == other.log_start_offset
            and self.leader_epoch == other.leader_epoch
        )


class Follower:
    """One followed partition in one leader epoch. `again_us` is set exactly while RESTING; `is_compared`: the
    leader has compared its log with this one; `is_read`: consumers wait, or waited lately, for the high
    watermark; `is_behind`: the leader has not told a high watermark yet that this log reaches.
    """

    __slots__ = (
        "again_us",
        "awaited",
        "is_behind",
        "is_compared",
        "is_read",
        "leader_epoch",
        "partition",
        "phase",
        "topic_id",
    )

    def __init__(self, partition: Partition, topic_id: Uuid, leader_epoch: LeaderEpoch) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.phase = Phase.CUTTING if partition.log.is_truncating else Phase.FETCHING
        self.again_us: Micros | None = None
        self.is_compared = False
        self.is_read = False
        self.is_behind = True
        self.awaited: bytes | None = None  # appended when the log begins anew

    @property
    def key(self) -> "FollowedKey":
        """Names the partition within fetches."""
        return self.topic_id, self.partition.topic_partition.partition

    @property
    def is_fetchable(self) -> bool:
        """Whether to fetch the partition now."""
        durability = self.partition.durability
        return self.phase is Phase.FETCHING and not (durability.waits_for_sync and durability.is_sync_awaited)

    def position(self) -> Position:
        """The position of the next fetch."""
        log, readable = self.partition.log, self.partition.high_watermark if self.is_read else NOT_READ
        return Position(
            log.log_end_offset, log.epochs.latest, log.log_start_offset, self.leader_epoch, readable
        )

    def rest_until(self, again_us: Micros) -> None:
        """Fetch the partition no more before `again_us`."""
        self.phase, self.again_us = Phase.RESTING, again_us

    def fetch_again(self) -> None:
        """Fetch the partition: its rest is over, or its truncation is done."""
        self.phase, self.again_us = Phase.FETCHING, None

    def base_below(self, records: bytes | bytearray | memoryview, leaders_log_start: Offset) -> Offset | None:
        """The base offset of the first of these batches if the end of this log is inside it, and this log has
        no record that the leader still has: records were deleted at the leader up to the middle of a batch.
        """
        log = self.partition.log
        is_bare = log.log_end_offset in (log.log_start_offset, leaders_log_start)
        if not is_bare or len(records) < HEADER_SIZE:
            return None
        header = read_header(records)
        spans = header.base_offset < log.log_end_offset < header.next_offset
        return Offset(header.base_offset) if spans else None

    def may_disagree(self, leaders_log_start: Offset) -> bool:
        """Whether the records above the high watermark may be those of another leader although this one has
        accepted the fetch: it has deleted every record, and every epoch, that it could have compared. Their
        producers would refuse, or take for repeated, what this leader has not.
        """
        log_end = self.partition.log.log_end_offset
        return not self.is_compared and leaders_log_start == log_end > self.partition.high_watermark

    def truncation_offset(self, diverging: OffsetAndEpoch) -> Offset:
        """The offset at which to truncate this log, given the end of the leader's greatest epoch that is not
        above the last one here (KIP-101, KIP-279). Where this log does not have that epoch, it keeps its
        records of lower ones, and the next fetch tells whether these agree.
        """
        log = self.partition.log
        if diverging.epoch < 0:
            return self.partition.high_watermark
        own = log.end_offset_for_epoch(diverging.epoch)
        if own.epoch < 0:
            return min(diverging.offset, log.log_end_offset)
        return min(own.offset, diverging.offset, log.log_end_offset)


FollowedKey = tuple[Uuid, int]
"""(topic id, partition)."""
