"""The load of one shard, window by window: a job reads a window of its log and drops overwritten records.

A partition of commits has many records of each key until the cleaner compacts it. Of a window, only the
last record of each key is replayed; the `clean` kernel finds it without the GIL. A window with
transactions is replayed whole, because an overwritten record is valid again if the newer one is aborted.
`Undecided` has the producer of a transactional record, and `Decided` the marker in its place.

Each batch is checked against its CRC-32C. A batch that does not match, or whose frame is broken, fails the
load: a replay skips nothing, because without a record the state is another one (a group without its offset
would begin at the end of the log). Only an operator may give up the batch, with `sparklog log repair`. Kafka
checks no CRC here and replays altered bytes; a broken frame fails the partition there too.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import msgspec

from sparklog.effects import FileSlice
from sparklog.kernels import clean, scan
from sparklog.model import Instant, Offset
from sparklog.record.batch import (
    CODEC_BITS,
    LENGTH_OVERHEAD,
    TRANSACTIONAL_BIT,
    Record,
    decode_records,
    read_header,
)
from sparklog.record.control import ControlType, Marker, parse_control
from sparklog_server.disk.door import DiskFile, StorageError
from sparklog_server.log.segment.damage import log_dir_of, repair_remedy
from sparklog_server.log.segment.sound_batches import Unsound, judge
from sparklog_server.metadata.entries import TopicImage

from .partition_writer import ShardPartition
from .shard import Shard

WINDOW_BYTES = 8 << 20
_PIECE_BYTES = 128 << 10  # allocating a whole window at once holds the GIL for milliseconds
_KEYS_MAX = 1 << 17
_SLOTS = 3 * _KEYS_MAX // 2  # 4.7 MB
_HORIZON_NEVER = (1 << 62) - 1


class Undecided(msgspec.Struct, frozen=True):
    """A record that counts once the transaction of its producer is committed."""

    producer_id: int
    record: Record


class Decided(msgspec.Struct, frozen=True):
    """The marker that ends the transaction of a producer."""

    producer_id: int
    is_commit: bool
    offset: Offset


Step = Record | Undecided | Decided


class Window(msgspec.Struct, frozen=True):
    """The pieces of a window to replay, of whole batches. The next window begins at `next_offset`."""

    pieces: tuple[bytes | memoryview, ...]
    next_offset: Offset

    def steps(self) -> Iterator[Step]:
        """The steps to replay, decoded batch by batch. Raises DecodeError."""
        for piece in self.pieces:
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


class ReplayDamaged(StorageError):
    """The log of a shard has no sound batch at `position` of a file, though one is due there."""

    def __init__(self, path: str, position: int, what: str) -> None:
        log_dir = log_dir_of(log_dir_of(path))
        super().__init__(path, "read", f"at byte {position}: {what}", remedy=repair_remedy(log_dir))


class _Stretch(msgspec.Struct, frozen=True):
    """Consecutive sound batches: their end in the content, the offset after the last, and their attributes
    or-ed.
    """

    limit: int
    next_offset: int
    attributes: int


def read_window(window: FileSlice, seed: bytes) -> Window:
    """The job: read batches and drop overwritten records. `seed` (16 bytes) protects against keys made to
    collide.

    Raises StorageError, of which ReplayDamaged is one.
    """
    content = window.read()
    stretch = _sound(content)
    if stretch.limit < window.length:
        file = cast(DiskFile, window.file)
        judged = judge(file, window.position + stretch.limit)
        raise (
            ReplayDamaged(file.path, judged.position, judged.what)
            if isinstance(judged, Unsound)
            else ReplayDamaged(file.path, window.position + stretch.limit, "a whole batch is due here")
        )
    return Window(_replayed(content, stretch.attributes, seed), Offset(stretch.next_offset))


def _sound(content: bytes) -> _Stretch:
    """The sound batches up to the first damaged or incomplete one. Works in pieces, so that
    the GIL is released between them.
    """
    view = memoryview(content)
    position, next_offset, attributes, size = 0, -1, 0, _PIECE_BYTES
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


class CoordinatorLoader:
    """The load of one shard, from `offset` to `end_offset`, the log end offset when the load began.

    `steps` are the steps of the window that is being replayed.
    """

    __slots__ = ("begun", "deleted", "end_offset", "offset", "steps")

    def __init__(self, offset: Offset, end_offset: Offset, begun: Instant) -> None:
        self.offset = offset
        self.end_offset = end_offset
        self.begun = begun
        self.steps: Iterator[Step] | None = None
        self.deleted: list[TopicImage] = []  # during the load: replayed records may name them

    def next_window(self, partition: ShardPartition) -> FileSlice | None:
        """The next window to read; None after the last. Raises Refused and StorageError."""
        return partition.read(self.offset, self.end_offset, WINDOW_BYTES)

    def took(self, window: Window) -> None:
        """Take a window that was read: `steps` are to be replayed next."""
        self.steps, self.offset = window.steps(), window.next_offset

    def reading(self, window: FileSlice, seed: bytes) -> Callable[[], Window]:
        """The job that reads a window, which raises StorageError; `seed` is that of `read_window`."""
        return partial(read_window, window, seed)

    def replay(self, shard: Shard, steps_max: int) -> bool:
        """Replay at most so many steps of the window; whether some may be left. Raises DecodeError."""
        steps = self.steps
        assert steps is not None
        for _ in range(steps_max):
            step = next(steps, None)
            if step is None:
                self.steps = None
                return False
            if isinstance(step, Record):
                if step.key is not None:
                    shard.replay(step.key, step.value, Offset(step.offset))
            elif isinstance(step, Decided):
                shard.replay_marker(step.producer_id, step.is_commit, step.offset)
            elif (record := step.record).key is not None:
                shard.replay_undecided(step.producer_id, record.key, record.value, Offset(record.offset))
        return True
