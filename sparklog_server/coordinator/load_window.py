"""The job that reads one window of a shard's log and drops overwritten records.

A partition of commits has many records of each key until the cleaner compacts it. Of a window, only the
last record of each key is replayed; the `clean` kernel finds it without the GIL. A window with
transactions is replayed whole, because an overwritten record is valid again if the newer one is aborted.
`Undecided` has the producer of a transactional record, and `Decided` the marker in its place.

Each batch is checked against its CRC-32C. A batch that does not match, or whose frame is broken, is skipped
and reported as `Lost`. Reading resumes at the next sound batch of the file, by position, because an offset
cannot be looked up across a broken frame. Kafka checks no CRC here: it replays altered bytes, and a broken
frame fails the whole partition.
"""

from collections.abc import Iterator
from typing import NamedTuple, cast

import msgspec

from sparklog.effects import FileSlice
from sparklog.kernels import clean, scan
from sparklog.model import Offset
from sparklog.record.batch import (
    CODEC_BITS,
    LENGTH_OVERHEAD,
    TRANSACTIONAL_BIT,
    Record,
    decode_records,
    read_header,
)
from sparklog.record.control import ControlType, Marker, parse_control
from sparklog_server.disk.door import DiskFile
from sparklog_server.log.examine import Unsound, judge

WINDOW_BYTES = 8 << 20
_PIECE_BYTES = 128 << 10  # allocating a whole window at once holds the GIL for milliseconds
_KEYS_MAX = 1 << 17
_SLOTS = 3 * _KEYS_MAX // 2  # 4.7 MB
_HORIZON_NEVER = (1 << 62) - 1


class Undecided(NamedTuple):
    """A record that counts once the transaction of its producer is committed."""

    producer_id: int
    record: Record


class Decided(NamedTuple):
    """The marker that ends the transaction of a producer."""

    producer_id: int
    is_commit: bool
    offset: Offset


class Lost(NamedTuple):
    """No batch of `path` can be read in `[start, limit)`; `position` is the first byte known to be wrong,
    `offset` the offset due there.

    `next_offset` is that of the batch at `limit`; None if the file ends there.
    """

    path: str
    start: int
    limit: int
    position: int
    offset: Offset | None
    next_offset: Offset | None
    reason: str


Step = Record | Undecided | Decided | Lost


class Window(msgspec.Struct, frozen=True):
    """The pieces of a window to replay: whole batches, and the damage between them.

    The next window begins at `next_offset`. After damage the rest of the file is read by position: `rest` is
    its next part. With `is_file_end` the file is read to its end by position, and the next window begins with
    the next segment.
    """

    pieces: tuple[bytes | memoryview | Lost, ...]
    next_offset: Offset
    rest: FileSlice | None = None
    is_file_end: bool = False

    def steps(self) -> Iterator[Step]:
        """The steps to replay, decoded batch by batch. Raises DecodeError."""
        for piece in self.pieces:
            if isinstance(piece, Lost):
                yield piece
                continue
            view, position = memoryview(piece), 0
            while position < len(view):
                header = read_header(view, position)
                batch = view[position : position + header.size]
                if header.is_control:
                    for record in decode_records(batch, include_control=True):
                        said = parse_control(record)
                        if isinstance(said, Marker):
                            yield Decided(
                                header.producer_id, said.type is ControlType.COMMIT, Offset(record.offset)
                            )
                elif header.is_transactional and header.has_producer:
                    for record in decode_records(batch):
                        yield Undecided(header.producer_id, record)
                else:
                    yield from decode_records(batch)
                position += header.size


class _Stretch(NamedTuple):
    """Consecutive sound batches: their end in the content, the offset after the last, and their attributes
    or-ed.
    """

    limit: int
    next_offset: int
    attributes: int


def read_window(window: FileSlice, seed: bytes, *, is_rest: bool = False) -> Window:
    """The job: read batches and drop overwritten records. `seed` (16 bytes) protects against keys made to
    collide.

    With `is_rest` the window is a part of a file after damage and may end within a batch. Raises
    StorageError.
    """
    content = window.read()
    stretch = _sound(content, 0)
    if stretch.limit == window.length and not is_rest:
        return Window(_replayed(content, stretch.attributes, seed), Offset(stretch.next_offset))
    return _read_around(window, content, stretch, seed)


def _read_around(window: FileSlice, content: bytes, stretch: _Stretch, seed: bytes) -> Window:
    """Read a window that has damage, or follows it."""
    file = cast(DiskFile, window.file)
    view = memoryview(content)
    pieces: list[bytes | memoryview | Lost] = []
    begin, next_offset = 0, -1
    while True:
        if stretch.limit > begin:
            pieces += _replayed(bytes(view[begin : stretch.limit]), stretch.attributes, seed)
            next_offset = stretch.next_offset
        at = window.position + stretch.limit
        if at < file.size:
            judged = judge(file, at)
            if isinstance(judged, Unsound):
                due = None if next_offset < 0 else Offset(next_offset)
                following = judge(file, judged.limit) if judged.limit < file.size else None
                resumed = (
                    None
                    if following is None or isinstance(following, Unsound)
                    else Offset(following.base_offset)
                )
                pieces.append(
                    Lost(file.path, judged.start, judged.limit, judged.position, due, resumed, judged.what)
                )
                at = judged.limit
                next_offset = next_offset if resumed is None else resumed
            elif at - window.position == begin or at + judged.size > window.position + len(content):
                # The batch ends after this window: the next window has room for it.
                length = max(WINDOW_BYTES, judged.size)
                return _around(pieces, next_offset, FileSlice(file, at, min(length, file.size - at)))
        begin = at - window.position
        if begin >= len(content):
            rest = FileSlice(file, at, min(WINDOW_BYTES, file.size - at)) if at < file.size else None
            return _around(pieces, next_offset, rest)
        stretch = _sound(content, begin)


def _around(pieces: list[bytes | memoryview | Lost], next_offset: int, rest: FileSlice | None) -> Window:
    return Window(tuple(pieces), Offset(max(next_offset, 0)), rest, is_file_end=rest is None)


def _sound(content: bytes, position: int) -> _Stretch:
    """The sound batches from `position` up to the first damaged or incomplete one. Works in pieces, so that
    the GIL is released between them.
    """
    view = memoryview(content)
    next_offset, attributes, size = -1, 0, _PIECE_BYTES
    while position < len(view):
        piece = view[position : position + size]
        is_broken = False
        try:
            found = scan.headers(piece, True)
        except ValueError as error:
            # The error is less than a header after the start of its batch: the batches before it are sound.
            is_broken = True
            found = scan.headers(piece[: error.args[1]], False)
        for _, header in found:
            attributes |= header.attributes & 0xFFFF
        if found:
            last, header = found[-1]
            next_offset = header.base_offset + header.last_offset_delta + 1
            position += last + header.length + LENGTH_OVERHEAD
        if is_broken or (not found and position + size >= len(view)):
            break
        size = _PIECE_BYTES if found else 2 * size
    return _Stretch(position, next_offset, attributes)


def _replayed(content: bytes, attributes: int, seed: bytes) -> tuple[bytes | memoryview, ...]:
    return (content,) if attributes & (CODEC_BITS | TRANSACTIONAL_BIT) else _thinned(content, seed)


def _thinned(content: bytes, seed: bytes) -> tuple[bytes | memoryview, ...]:
    keys = clean.KeyOffsets(_SLOTS, _KEYS_MAX, seed)
    rules = clean.Rules((), (), 0, _HORIZON_NEVER)
    status, _ = clean.map_keys(content, 0, keys, rules, 0)
    if status != clean.END:
        return (content,)
    pieces: list[bytes | memoryview] = []
    position, needed = 0, 0
    while True:
        target = bytearray(max(_PIECE_BYTES, needed))
        status, position, filled, needed, *_ = clean.filter_batches(
            content, position, target, 0, keys, rules, -1, 0
        )
        pieces.append(memoryview(target)[:filled])
        if status == clean.END and position == len(content):
            return tuple(pieces)
        if status != clean.ROOM:
            return (content,)
