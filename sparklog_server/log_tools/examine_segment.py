"""Checks one segment during a walk over its batches: consecutive offsets, epochs, plausible counts, and
indexes that agree with them.

The CRC of a batch does not cover its base offset and leader epoch: they are compared with the neighbouring
batches and with the leader epoch checkpoint.
"""

from collections.abc import Callable
from itertools import pairwise
from struct import pack
from typing import NamedTuple

from sparklog.errors import DecodeError
from sparklog.model import Offset
from sparklog.record.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Record,
    decode_records,
)
from sparklog.record.compression import DECOMPRESSED_BYTES_MAX
from sparklog_server.disk.door import Disk, DiskFile
from sparklog_server.log.segment.leader_epoch_cache import LeaderEpochCache
from sparklog_server.log.segment.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    TIME_INDEX_SUFFIX,
    file_name,
)
from sparklog_server.log.segment.sound_batches import (
    CODEC_MAX,
    EPOCH_FIELD,
    Batch,
    Unsound,
    header_flaw,
    sound_batches,
)
from sparklog_server.log.segment.txn_index import TXN_INDEX_SUFFIX

from .examine_indexes import NEVER, OffsetIndexCheck, TimeIndexCheck, TxnIndexCheck, altered_at
from .finding import Finding

FINDINGS_MAX = 100
FILE_BYTES_MAX = 64 << 20
RESTORE = (
    "restore the file from a copy or a replica, or run `sparklog log repair`, which lists what it would take "
    "out and what is lost with it"
)
EPOCHS_REBUILT = "the broker takes the epochs above the recovery point from the batches at its next start"
_CODEC_BITS = 0x07
_OF_TRANSACTION = TRANSACTIONAL_BIT | CONTROL_BIT


class Tail(NamedTuple):
    """A stretch above the recovery point without a sound batch; `offset` was due there."""

    path: str
    unsound: Unsound
    offset: int


class SegmentCheck:
    """The state of the check of one segment after the batches read so far.

    Everything below `promised` was durable; None if that is not known, or if the stop was clean, which makes
    all of it durable. `tail` is the first stretch above `promised` without a sound batch, where the next
    start truncates the log; `behind` counts the sound batches of this segment after it.
    """

    def __init__(
        self,
        path: str,
        base_offset: int,
        *,
        epochs: LeaderEpochCache | None = None,
        promised: int | None = None,
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self.batches = self.records = self.absent = self.unread_bytes = self.more = 0
        self.first_offset = -1
        self.end_offset = base_offset
        self.greatest = NO_TIMESTAMP
        self.findings: list[Finding] = []
        self.index: OffsetIndexCheck | None = None
        self.times: TimeIndexCheck | None = None
        self.txns: TxnIndexCheck | None = None
        self.size = 0
        self.tail: Tail | None = None
        self.behind = 0
        self._unsound: tuple[Unsound, int] | None = (
            None  # the stretch before the next batch, and the offset that was due there
        )
        self._promised = promised
        self._epochs = epochs.entries if epochs is not None else []
        self._epoch = -1
        self._epoch_due = self._epochs[0][1] if self._epochs else NEVER
        self._raised: tuple[int, int, int] | None = (
            None  # the batch with which the epoch last increased: position, epoch, previous epoch
        )
        self._gap: tuple[int, int, int, int] | None = (
            None  # the batch after the last gap: position, base offset, offsets, offset due
        )

    def found(self, position: int, what: str, *, remedy: str = RESTORE, is_damage: bool = True) -> None:
        """Record a finding in the log; findings beyond FINDINGS_MAX are only counted."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(self.path, position, what, remedy, is_damage))
        else:
            self.more += 1

    # -- the walk

    def saw(self, batches: list[Batch]) -> None:
        """Take the next sound batches."""
        if self._unsound is not None:
            self._judge_stretch(batches[0][1].base_offset)
        if self.tail is not None:
            self.behind += len(batches)
        due_position = self.index.due if self.index is not None else NEVER
        due_time = self.times.due if self.times is not None else NEVER
        offset, greatest, records = self.end_offset, self.greatest, self.records
        for position, header in batches:
            base, delta, epoch = header.base_offset, header.last_offset_delta, header.leader_epoch
            attributes, timestamp, count = header.attributes, header.max_timestamp, header.record_count
            if base != offset:
                offset = self._jumped(position, base, delta + 1, offset)
            if epoch != self._epoch or base >= self._epoch_due:
                self._epoch_changed(position, base, epoch)
            if not 0 <= count <= delta + 1 or attributes & _CODEC_BITS > CODEC_MAX or epoch < -1:
                self._flawed(position, header)
            last = offset + delta
            offset = last + 1
            records += count
            if position >= due_position:
                assert self.index is not None
                due_position = self.index.met(position, last)
            if last >= due_time:
                assert self.times is not None
                due_time = self.times.met(header, greatest)
            if timestamp > greatest:
                greatest = timestamp
            if attributes & _OF_TRANSACTION and self.txns is not None:
                self.txns.met(position, header)
        if self.first_offset < 0 and batches:
            self.first_offset = batches[0][1].base_offset
        self.end_offset, self.greatest, self.records = offset, greatest, records
        self.batches += len(batches)
        if offset - 1 - self.base_offset > RELATIVE_OFFSET_MAX:
            self.found(
                batches[-1][0],
                f"offset {offset - 1} is too far from the segment's base offset {self.base_offset}",
            )

    def _flawed(self, position: int, header: BatchHeader) -> None:
        flaw = header_flaw(header)
        if flaw is not None:
            self.found(position + flaw[0], f"in the batch at {position}, {flaw[1]}")

    def _jumped(self, position: int, base: int, offsets: int, due: int) -> int:
        """Check a batch that does not begin at the offset that is due; returns the offset at which it is
        assumed to begin.
        """
        if base > due:
            self._gap = position, base, offsets, due
            self.absent += base - due
            return base
        gap, self._gap = self._gap, None
        if gap is not None and gap[1] + gap[2] == due and base >= gap[3] + gap[2]:
            # The previous batch is the exception, not this one.
            self._misplaced(gap, base - gap[2])
            return base
        at = altered_at(position, pack(">q", base), pack(">q", due))
        self.found(
            at, f"the batch at {position} says base offset {base}, but the log has come to {due} by there"
        )
        return due

    def _misplaced(self, gap: tuple[int, int, int, int], base: int) -> None:
        position, stored, _, due = gap
        self.absent -= stored - due
        if self.index is not None:
            self.index.forgive(position)
        if self.times is not None:
            self.times.passed_over()
        at = altered_at(position, pack(">q", stored), pack(">q", base))
        self.found(
            at,
            f"the batch at {position} says base offset {stored}, but {due} was due and what follows goes on "
            f"behind {base}",
        )

    def _epoch_changed(self, position: int, base: int, epoch: int) -> None:
        if self._epochs:
            at = sum(start <= base for _, start in self._epochs)
            due = int(self._epochs[at - 1][0]) if at else -1
            self._epoch_due = self._epochs[at][1] if at < len(self._epochs) else Offset(NEVER)
            self._epoch = due
            if self._gap is not None and self._gap[0] == position and epoch == self._epoch_at(self._gap[3]):
                return  # the base offset of this batch may be wrong
            if epoch != due:
                where = altered_at(position + EPOCH_FIELD, pack(">i", epoch), pack(">i", due))
                what = (
                    f"the batch at {position} says leader epoch {epoch}, but leader-epoch-checkpoint says "
                    f"{due}"
                )
                is_damage = self._promised is None or base < self._promised
                self.found(where, what, remedy=RESTORE if is_damage else EPOCHS_REBUILT, is_damage=is_damage)
            return
        if epoch >= self._epoch:
            self._raised = position, epoch, self._epoch
            self._epoch = epoch
            return
        if self._raised is not None and epoch >= self._raised[2]:
            position, stored, before = self._raised
            where = altered_at(position + EPOCH_FIELD, pack(">i", stored), pack(">i", max(before, epoch)))
            self.found(
                where, f"leader epoch {stored} from the batch at {position} on, and then {epoch} again"
            )
            self._epoch = epoch
        else:
            self.found(
                position + EPOCH_FIELD,
                f"the batch at {position} says leader epoch {epoch}, behind {self._epoch}",
            )
        self._raised = None

    def _epoch_at(self, offset: int) -> int:
        return max((int(epoch) for epoch, start in self._epochs if start <= offset), default=-1)

    def missed(self, unsound: Unsound) -> None:
        """Take a stretch without a sound batch."""
        self._judge_stretch(None)
        self._unsound = unsound, self.end_offset
        self.unread_bytes += unsound.limit - unsound.start
        if self.index is not None:
            self.index.passed_over(unsound.start, unsound.limit)
        if self.times is not None:
            self.times.passed_over()

    def _judge_stretch(self, following: int | None) -> None:
        """Report the last stretch; the sound batch after it begins with offset `following`."""
        if self._unsound is None:
            return
        (unsound, due), self._unsound = self._unsound, None
        if self._promised is not None and due >= self._promised:
            if self.tail is None:
                self.tail = Tail(self.path, unsound, due)
            return
        lost = f"; offsets [{due}, {following}) are lost" if following is not None and following > due else ""
        size = unsound.limit - unsound.start
        self.found(
            unsound.position,
            f"{unsound.what} ({size} bytes cannot be read, up to byte {unsound.limit}){lost}",
        )

    def finish(self, log: DiskFile, *, limit: int | None = None, is_sealed: bool = False) -> None:
        """End the walk; `limit` is the base offset of the next segment, if there is one. Raises
        StorageError.
        """
        self._judge_stretch(limit)
        self.size = log.size
        if limit is not None and self.end_offset > limit:
            gap = self._gap
            if gap is not None and gap[1] + gap[2] == self.end_offset:
                self._misplaced(gap, limit - gap[2])
                self.end_offset = limit
            else:
                self.found(
                    log.size,
                    f"the log comes to offset {self.end_offset}, but the next segment begins with {limit}",
                )
        if self.index is not None:
            self.index.finish(log)
        if self.times is not None:
            self.times.finish(log, self.greatest, is_complete=is_sealed and not self.unread_bytes)
        if self.txns is not None and not self.unread_bytes:
            self.txns.finish(log, self.end_offset)

    @property
    def all_findings(self) -> list[Finding]:
        """The findings in the log and in its indexes."""
        checks = (self.index, self.times, self.txns)
        return self.findings + [
            finding for check in checks if check is not None for finding in check.findings
        ]


def with_indexes(
    check: SegmentCheck, disk: Disk, directory: str, names: frozenset[str], begun: dict[int, None]
) -> SegmentCheck:
    """Let `check` compare the index files of the segment as well. `begun` has the producers with an open
    transaction from earlier segments, and is updated. Raises StorageError.
    """
    base_offset = check.base_offset
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
        name = file_name(Offset(base_offset), suffix)
        if name not in names and suffix != TXN_INDEX_SUFFIX:
            continue
        path = f"{directory}/{name}"
        content = read_bounded(disk, path) if name in names else b""
        if suffix == INDEX_SUFFIX:
            check.index = OffsetIndexCheck(path, content, base_offset)
        elif suffix == TIME_INDEX_SUFFIX:
            check.times = TimeIndexCheck(path, content, base_offset)
        else:
            check.txns = TxnIndexCheck(path, content, base_offset, begun)
    return check


def check_segment(
    check: SegmentCheck,
    log: DiskFile,
    *,
    limit: int | None = None,
    is_sealed: bool = False,
    is_deep: bool = False,
    progressed: Callable[[int], None] | None = None,
) -> SegmentCheck:
    """Walk the whole log with `check`; `is_deep` also walks the records of each batch. Raises
    StorageError.
    """
    for found in sound_batches(log, progressed):
        if isinstance(found, Unsound):
            check.missed(found)
            continue
        check.saw(found)
        for position, header in found if is_deep else ():
            flaw = records_flaw(log, position, header)
            if flaw is not None:
                check.found(*flaw)
    check.finish(log, limit=limit, is_sealed=is_sealed)
    return check


def read_bounded(disk: Disk, path: str) -> bytes:
    """The first 64 MiB of a file that should be small. Raises StorageError."""
    return disk.open(path).pread(0, FILE_BYTES_MAX)


# -- records


def records_in(log: DiskFile, position: int, header: BatchHeader) -> list[Record]:
    """The records of the batch at `position`, control records too. Raises StorageError and DecodeError."""
    size = header.size
    if size > DECOMPRESSED_BYTES_MAX:
        raise DecodeError(
            f"a batch of {size} bytes is more than the {DECOMPRESSED_BYTES_MAX} that are looked into", 0
        )
    return decode_records(log.pread(position, size), include_control=True, verify_crc=False)


def records_flaw(log: DiskFile, position: int, header: BatchHeader) -> tuple[int, str] | None:
    """The byte and the description of a fault in the records of a batch whose CRC matches; None if there is
    none. Raises StorageError.
    """
    try:
        records = records_in(log, position, header)
    except DecodeError as error:
        inside = 0 if header.attributes & _CODEC_BITS else error.position or 0
        return (
            position + HEADER_SIZE + inside,
            f"the records of the batch at {position} cannot be read: {error}",
        )
    offsets = [record.offset for record in records]
    if any(left >= right for left, right in pairwise(offsets)) or (
        offsets and not header.base_offset <= offsets[-1] <= header.last_offset
    ):
        return (
            position + HEADER_SIZE,
            f"the records of the batch at {position} have offsets that its header does not allow",
        )
    return None


def log_path(directory: str, base_offset: int) -> str:
    """The path of a segment's log."""
    return f"{directory}/{file_name(Offset(base_offset), LOG_SUFFIX)}"
