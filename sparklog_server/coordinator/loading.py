"""What a shard replays when it is loaded, a window of its log at a time: read, and thinned out, beside the loop.

A partition of commits says the same keys over and over until the cleaner comes by. Within a window only the last record of each key is
replayed; the `clean` kernel finds it without the GIL. Where there are transactions nothing is left out: what a later record overwrites may
be all that remains when it is aborted. Their records come with the producer whose marker decides on them, and the markers in their place.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from sparklog.effects import FileSlice
from sparklog.kernels import clean, scan
from sparklog.model import Offset
from sparklog.record.batch import CODEC_BITS, TRANSACTIONAL_BIT, Record, decode_error, decode_records, read_header
from sparklog.record.control import ControlType, Marker, parse_control

WINDOW_BYTES = 8 << 20
_PIECE_BYTES = 128 << 10  # to make room for a whole window at once would hold the GIL for milliseconds
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


Step = Record | Undecided | Decided


class Window(msgspec.Struct, frozen=True):
    """What is left to replay of a window, as pieces of whole batches, and the offset at which the next window begins."""

    pieces: tuple[bytes | memoryview, ...]
    next_offset: Offset

    def steps(self) -> Iterator[Step]:
        """What to replay, decoded batch by batch. Raises DecodeError."""
        for piece in self.pieces:
            view, position = memoryview(piece), 0
            while position < len(view):
                header = read_header(view, position)
                batch = view[position : position + header.size]
                if header.is_control:
                    for record in decode_records(batch, include_control=True):
                        said = parse_control(record)
                        if isinstance(said, Marker):
                            yield Decided(header.producer_id, said.type is ControlType.COMMIT, Offset(record.offset))
                elif header.is_transactional and header.has_producer:
                    for record in decode_records(batch):
                        yield Undecided(header.producer_id, record)
                else:
                    yield from decode_records(batch)
                position += header.size


class Unreadable(msgspec.Struct, frozen=True):
    """Why a window cannot be replayed."""

    reason: str


def read_window(window: FileSlice, seed: bytes) -> Window | Unreadable:
    """The job: read whole batches and leave out what is overwritten within them. `seed` of 16 bytes keeps made-up keys from colliding.

    Raises StorageError.
    """
    content = window.read()
    try:
        size, attributes, next_offset = scan.span(content)
        if size < window.length:
            return Unreadable("the log ends within a batch")
        if attributes & (CODEC_BITS | TRANSACTIONAL_BIT):
            return Window((content,), Offset(next_offset))
        return Window(_thinned(content, seed), Offset(next_offset))
    except ValueError as refused:
        return Unreadable(str(decode_error(refused)))


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
        status, position, filled, needed, *_ = clean.filter_batches(content, position, target, 0, keys, rules, -1, 0)
        pieces.append(memoryview(target)[:filled])
        if status == clean.END and position == len(content):
            return tuple(pieces)
        if status != clean.ROOM:
            return (content,)
