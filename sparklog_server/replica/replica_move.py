"""The move of one replica to another log directory: the progress of its copy, and the next bytes to copy.

    COPYING ── caught up, and the controller knows ──► swap, in a turn: SYNCING ──► CHECKPOINTING ──► NAMING
       │                                                        REMOVING ◄── FOLLOWING ◄────────────────┘
       └── cancelled, or the log was deleted: the copy is removed

Until the swap the log is in the old directory, and the copy has no effect. After the swap the log is in the
new directory; in the stages SYNCING to NAMING a crash may restore the old one, so the high watermark does not
move.
"""

from enum import Enum, auto

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Offset, TopicPartition, Uuid
from sparklog_server.log.directory.future_log import Copying, Piece
from sparklog_server.replica.directory import ReplicaDirectory
from sparklog_server.replica.partition import Partition

CATCH_UP_BYTES = 256 << 10
"""The most bytes that the turn of the swap copies."""


class Stage(Enum):
    """The stage of a move."""

    COPYING = auto()
    SYNCING = auto()
    CHECKPOINTING = auto()
    NAMING = auto()
    FOLLOWING = auto()
    REMOVING = auto()


class Left(msgspec.Struct, frozen=True):
    """The copy that an earlier, interrupted run of a move left: its path and its segments."""

    path: str
    segments: tuple[Offset, ...]


class ReplicaMove:
    """The progress of one move. Invariants: `copied` has the bytes of each segment's log that the copy is
    known to contain, `whole` the segments with all their files, and `found` those left by an earlier process;
    at most one job is in progress; the copy is durable up to `end_offset`.
    """

    __slots__ = (
        "copied",
        "cuts",
        "doomed",
        "end_offset",
        "found",
        "home",
        "is_asked",
        "is_assigned",
        "is_cancelled",
        "is_due",
        "is_running",
        "leftovers",
        "partition",
        "path",
        "planned",
        "source",
        "stage",
        "target",
        "waits_for",
        "whole",
    )

    def __init__(
        self,
        partition: Partition,
        home: ReplicaDirectory,
        target: ReplicaDirectory,
        leftovers: tuple[str, ...],
        left: Left | None,
    ) -> None:
        self.partition = partition
        self.home = home
        self.target = target
        self.stage = Stage.COPYING
        self.is_running = False  # a job is in progress
        self.is_due = True  # a job should begin
        self.is_asked = False
        self.is_assigned = False
        self.is_cancelled = False
        self.doomed: tuple[str, str] = ("", "")
        self.waits_for = 0  # an offset, then the number of a checkpoint
        self.begin(leftovers, left)

    def begin(self, leftovers: tuple[str, ...], left: Left | None = None) -> None:
        """Begin the copy, after removing the `leftovers` of an earlier one; or continue with the part that
        is `left`.
        """
        log = self.partition.log
        self.path = self.target.log_dir.future_path(self.topic_partition) if left is None else left.path
        self.found = () if left is None else left.segments
        self.source = log.directory
        self.leftovers: tuple[str, ...] | None = leftovers  # None once the copy has begun
        self.cuts = log.segments.cuts
        self.copied: dict[Offset, int] = {}
        self.whole: dict[Offset, None] = {}
        self.end_offset = Offset(0)
        self.planned = Offset(0)  # the end offset of the job in progress
        self.is_due = True

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the replica."""
        return self.partition.topic_partition

    @property
    def key(self) -> tuple[Uuid, int]:
        """The topic id and partition, as in the controller."""
        return self.partition.log.topic_id, self.topic_partition.partition

    @property
    def is_unreadable(self) -> bool:
        """Whether a file of the partition could not be read: its log is then closed, and its files in other
        directories stay.
        """
        return self.partition.log.is_closed and self.partition.error is ErrorCode.KAFKA_STORAGE_ERROR

    @property
    def wants_job(self) -> bool:
        """Whether a job should copy more, or retry the rename of the old log."""
        return self.is_due and not self.is_running and self.stage in (Stage.COPYING, Stage.REMOVING)

    @property
    def size(self) -> int:
        """The bytes of records in the copy."""
        return sum(self.copied.values())

    @property
    def behind_bytes(self) -> int:
        """The bytes of the active segment that the copy lacks, if it has all other segments; else more than
        any swap copies.
        """
        active = self.partition.log.segments.active
        copied = self.copied.get(active.base_offset)
        is_all = copied is not None and self.end_offset > active.base_offset - 1 and self.leftovers is None
        return active.file.size - copied if is_all and copied is not None else CATCH_UP_BYTES + 1

    @property
    def gone(self) -> tuple[Offset, ...]:
        """The segments in the copy that the log has removed."""
        log = self.partition.log
        there = frozenset(segment.base_offset for segment in log.segments.settled)
        bases = dict.fromkeys((*self.found, *self.copied))
        return tuple(
            base for base in bases if base not in there and base < log.segments.first_unsettled_offset
        )

    def plan(self, bytes_max: int) -> Copying | None:
        """The work of the next job; None if a sync must come first."""
        log = self.partition.log
        pieces: list[Piece] = []
        room = bytes_max
        reached = Offset(log.segments.active.base_offset)
        for segment in log.segments.settled:
            if segment.base_offset in self.whole:
                continue
            if room <= 0:
                reached = segment.base_offset
                break
            copied = self.copied.get(segment.base_offset, 0)
            end = min(segment.file.size, copied + room)
            pieces.append(
                Piece(segment.base_offset, copied, end, segment.file.size, end == segment.file.size)
            )
            room -= end - copied
            if end < segment.file.size:
                reached = segment.base_offset
                break
        else:
            if not log.segments.is_all_settled:
                reached = log.segments.first_unsettled_offset
            elif room > 0:
                active = log.segments.active
                copied = self.copied.get(active.base_offset, 0)
                end = min(active.file.size, copied + room)
                pieces.append(Piece(active.base_offset, copied, end, active.file.size, False))
                reached = log.log_end_offset if end == active.file.size else active.base_offset
        if not pieces and not self.gone:
            return None
        self.planned = reached
        snapshots = (log.snapshot_offset,) if log.snapshot_offset >= 0 else ()
        return Copying(
            self.source, self.path, tuple(pieces), self.gone, snapshots, log.topic_id, self.leftovers
        )

    def copied_to(self, done: Copying) -> None:
        """Record the work that a job has done."""
        self.leftovers = None
        self.found = tuple(base_offset for base_offset in self.found if base_offset not in done.gone)
        for base_offset in done.gone:
            self.copied.pop(base_offset, None)
            self.whole.pop(base_offset, None)
        for piece in done.pieces:
            self.copied[piece.base_offset] = piece.end
            if piece.is_sealed:
                self.whole[piece.base_offset] = None
        self.end_offset = self.planned
