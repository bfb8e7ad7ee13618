"""The repair of `.log` files: every sound batch is kept under its offset, and an empty batch takes the
place of what cannot be read.

    sound  sound  ▒▒▒▒▒▒▒▒  sound          the bytes of the stretch are copied aside
    0..4   5..9   (10..14)  15..19   ──►   sound  sound  empty 10..14  sound

An empty batch is the same that compaction leaves (record count 0, last offset delta kept): no offset is used
twice, and readers skip it. The checksum of a batch does not cover its base offset and leader epoch: where the
neighbouring batches allow only one value, it is corrected in place.
"""

from collections.abc import Iterator
from struct import pack
from typing import NamedTuple

from sparklog.kernels import scan
from sparklog.model import LeaderEpoch, Offset
from sparklog.record.batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader
from sparklog_server.disk.door import Disk, DiskFile
from sparklog_server.log.segment.leader_epoch_cache import LeaderEpochCache
from sparklog_server.log.segment.segment import RELATIVE_OFFSET_MAX
from sparklog_server.log.segment.sound_batches import (
    EPOCH_FIELD,
    WINDOW_BYTES,
    Batch,
    Unsound,
    header_flaw,
    sound_batches,
)

from .examine_segment import records_flaw

ASIDE_SUFFIX = ".repair.tmp"
FILLED_OFFSETS_MAX = 1_000_000_000
_NO_TIME = -1


class Kept(NamedTuple):
    """Bytes of the file that do not change."""

    start: int
    limit: int


class Corrected(NamedTuple):
    """A batch whose base offset or leader epoch is corrected."""

    start: int
    limit: int
    base_offset: int
    epoch: int


class Emptied(NamedTuple):
    """Offsets `[base_offset, next_offset)` for which there are no records any more."""

    base_offset: int
    next_offset: int
    epoch: int


Piece = Kept | Corrected | Emptied


class Taken(NamedTuple):
    """Bytes `[start, limit)` that are removed, the offsets `[base_offset, next_offset)` that they held, and
    the reason.
    """

    start: int
    limit: int
    base_offset: int
    next_offset: int
    what: str


class SegmentRepair:
    """The new content of one segment. `end_offset` follows its last batch; `epochs` are those of its
    batches.
    """

    def __init__(self, file: DiskFile, base_offset: int, due: int, epoch: int) -> None:
        self.file = file
        self.base_offset = base_offset
        self.end_offset = max(due, base_offset)
        self.epoch = epoch
        self.pieces: list[Piece] = []
        self.taken: list[Taken] = []
        self.corrected: list[tuple[int, str]] = []  # the corrected byte, and its correction
        self.filled: list[Emptied] = []

    @property
    def is_changed(self) -> bool:
        return bool(self.taken or self.corrected or self.filled)

    def keep(self, position: int, header: BatchHeader, *, base_offset: int, epoch: int) -> None:
        """Keep the next batch."""
        limit = position + header.size
        if (base_offset, epoch) != (header.base_offset, header.leader_epoch):
            self.pieces.append(Corrected(position, limit, base_offset, epoch))
            if base_offset != header.base_offset:
                self.corrected.append((position, f"base offset {header.base_offset} becomes {base_offset}"))
            if epoch != header.leader_epoch:
                self.corrected.append(
                    (position + EPOCH_FIELD, f"leader epoch {header.leader_epoch} becomes {epoch}")
                )
        elif self.pieces and isinstance(self.pieces[-1], Kept) and self.pieces[-1].limit == position:
            self.pieces[-1] = Kept(self.pieces[-1].start, limit)
        else:
            self.pieces.append(Kept(position, limit))
        self.end_offset = base_offset + header.last_offset_delta + 1
        self.epoch = epoch

    def fill(self, next_offset: int) -> bool:
        """Add an empty batch up to `next_offset`; False if that is implausibly far."""
        due = self.end_offset
        if next_offset <= due:
            return True
        if next_offset - due > FILLED_OFFSETS_MAX or next_offset - 1 - self.base_offset > RELATIVE_OFFSET_MAX:
            return False
        piece = Emptied(due, next_offset, self.epoch)
        self.pieces.append(piece)
        self.filled.append(piece)
        self.end_offset = next_offset
        return True


def plan_segment(
    repair: SegmentRepair,
    epochs: LeaderEpochCache | None,
    *,
    limit: int | None,
    is_last: bool,
    promised: int,
    is_deep: bool = False,
) -> SegmentRepair:
    """Scan the file and plan its repair. `limit` is the base offset of the next segment; the last segment
    must reach `promised`.

    Raises StorageError.
    """
    stretch: list[Unsound] = []
    batches = _batches(repair.file)
    current = next(batches, None)
    while current is not None:
        following = next(batches, None)
        if isinstance(current, Unsound):
            stretch.append(current)
        else:
            next_base = (
                following[1].base_offset
                if following is not None and not isinstance(following, Unsound)
                else limit
                if following is None
                else None
            )
            flaw = _place(repair, epochs, stretch, current, next_base=next_base, is_deep=is_deep)
            if flaw is not None:
                position, header = current
                stretch.append(Unsound(position, position + header.size, *flaw))
            else:
                stretch = []
        current = following
    reached = limit if limit is not None and stretch else promised if is_last else repair.end_offset
    _take(repair, stretch, max(reached, repair.end_offset))
    if not stretch and reached > repair.end_offset:
        repair.fill(reached)
    return repair


def _batches(file: DiskFile) -> Iterator[Batch | Unsound]:
    for found in sound_batches(file):
        if isinstance(found, Unsound):
            yield found
        else:
            yield from found


def _place(
    repair: SegmentRepair,
    epochs: LeaderEpochCache | None,
    stretch: list[Unsound],
    batch: Batch,
    *,
    next_base: int | None,
    is_deep: bool,
) -> tuple[int, str] | None:
    """Keep a sound batch at its offset; returns the byte and the reason if its offset is impossible."""
    position, header = batch
    flaw = header_flaw(header)
    if flaw is not None:
        return position + flaw[0], flaw[1]
    if is_deep and (unreadable := records_flaw(repair.file, position, header)) is not None:
        return unreadable
    due, offsets = repair.end_offset, header.last_offset_delta + 1
    base = header.base_offset
    is_too_far = base + offsets - 1 - repair.base_offset > RELATIVE_OFFSET_MAX or (
        next_base is not None and due <= next_base < base + offsets
    )
    if base < due or (base > due and is_too_far):
        base = due if next_base is None or base < due else next_base - offsets
        if base < due or (next_base is not None and due <= next_base < base + offsets):
            return position, f"base offset {header.base_offset} cannot be where {due} is due"
    _take(repair, stretch, base)
    repair.keep(position, header, base_offset=base, epoch=_epoch(repair, epochs, header, base))
    return None


def _epoch(repair: SegmentRepair, epochs: LeaderEpochCache | None, header: BatchHeader, base: int) -> int:
    """The leader epoch of a batch: its own if that is possible, else that of the checkpoint, else that of the
    batch before.
    """
    stored = header.leader_epoch
    known = epochs.epoch_at(Offset(base)) if epochs is not None else LeaderEpoch(-1)
    if stored == known or (known < 0 and stored >= repair.epoch):
        return stored
    return known if known >= repair.epoch else repair.epoch


def _take(repair: SegmentRepair, stretch: list[Unsound], next_offset: int) -> None:
    """Remove a stretch; the batch after it begins with `next_offset`."""
    if stretch:
        repair.taken.append(
            Taken(stretch[0].start, stretch[-1].limit, repair.end_offset, next_offset, stretch[0].what)
        )
        repair.fill(next_offset)


def empty_batch(piece: Emptied) -> bytes:
    """A batch without records over these offsets."""
    fields = (0, piece.next_offset - piece.base_offset - 1, _NO_TIME, _NO_TIME, -1, -1, -1, 0)
    body = pack(">hiqqqhii", *fields)
    return (
        pack(">qiibI", piece.base_offset, HEADER_SIZE - LENGTH_OVERHEAD, piece.epoch, MAGIC, scan.crc(body))
        + body
    )


def copy_aside(disk: Disk, file: DiskFile, start: int, limit: int, wall_ms: int) -> str:
    """Copy bytes of a log to a file beside it, durably; returns its path. Raises StorageError."""
    path = f"{file.path}.cut-{wall_ms}-{start}"
    disk.remove(path)
    copy = disk.open(path, create=True)
    for at in range(start, limit, WINDOW_BYTES):
        copy.append(file.pread(at, min(WINDOW_BYTES, limit - at)))
    disk.sync([copy])
    copy.close()
    return path


def rewrite(disk: Disk, repair: SegmentRepair) -> None:
    """Replace the file by its new content, durably and atomically. Raises StorageError."""
    file = repair.file
    aside = file.path + ASIDE_SUFFIX
    disk.remove(aside)
    made = disk.open(aside, create=True)
    for piece in repair.pieces:
        if isinstance(piece, Emptied):
            made.append(empty_batch(piece))
            continue
        begin = piece.start
        if isinstance(piece, Corrected):
            made.append(pack(">q", piece.base_offset) + file.pread(begin + 8, 4) + pack(">i", piece.epoch))
            begin += EPOCH_FIELD + 4
        for at in range(begin, piece.limit, WINDOW_BYTES):
            made.append(file.pread(at, min(WINDOW_BYTES, piece.limit - at)))
    disk.sync([made])
    made.close()
    disk.rename(aside, file.path)
