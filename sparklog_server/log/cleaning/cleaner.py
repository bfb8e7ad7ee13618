"""One round of compaction over one log: the work of a job, a bounded piece at a time.

    map       the keys of dirty records, from the first dirty offset until the table is full
              ──► the offset at which the round ends
    rewrite   each group of segments below that offset, into one new segment ──► Cleaned, one by one

A round is built from values and paths and touches no state of the broker; one job at a time works on it. New
files are named `.cleaned` and are durable when a job returns them; `swap` puts them in place. Only the
`clean` kernel reads records, without the GIL.
"""

from array import array
from collections.abc import Generator
from operator import attrgetter
from struct import pack_into, unpack_from

import msgspec

from sparklog.errors import DecodeError
from sparklog.kernels import clean, scan
from sparklog.model import Offset
from sparklog.record.batch import CODEC_BITS, HEADER_SIZE, LENGTH_OVERHEAD, NO_TIMESTAMP
from sparklog.record.compression import Codec, TooLarge, compress
from sparklog.record.pieces import decompress_pieces
from sparklog_server.disk.door import Buffer, Disk, DiskFile, StorageError
from sparklog_server.log.segment.offset_index import ENTRY_SIZE as INDEX_ENTRY_SIZE
from sparklog_server.log.segment.offset_index import OffsetIndex
from sparklog_server.log.segment.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    header_at,
    walk,
)
from sparklog_server.log.segment.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from sparklog_server.log.segment.time_index import TimeIndex
from sparklog_server.log.segment.txn_index import TXN_INDEX_SUFFIX, AbortedTxn, render

from .swap import CLEANED_SUFFIX, Cleaned, discard

CHUNK_BYTES = 1 << 20
_CHUNK_BYTES_MIN = 64 << 10
UNSYNCED_BYTES_MAX = 2 << 20
"""A sync of a producer's records waits behind a larger one on the same disk: its p99 was 44 ms beside one
sync per 32 MiB, 19 ms beside one per 2 MiB."""
CRC_POSITION, CRC_START = 17, 21
POSITION_MAX = (1 << 31) - 1
"""Index entries hold positions as int32."""


class UncleanableLog(Exception):
    """A batch below the high watermark cannot be read: the log is left as it is."""


_ANY_RATIO = 1 << 31
"""The batches of a log were accepted under an earlier limit of the ratio, so none applies."""


class Source(msgspec.Struct, frozen=True):
    """A sealed segment as it was when the round began: `[base_offset, next_offset)`."""

    base_offset: Offset
    next_offset: Offset
    path: str
    size: int


class RoundPlan(msgspec.Struct, frozen=True):
    """The input of a round. `groups` contain the sources that may be cleaned, in order; keys are mapped in
    `[dirty, end)`.
    """

    directory: str
    sources: tuple[Source, ...]
    first_dirty_offset: Offset
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    decompressed_bytes_max: int
    producers: tuple[tuple[int, int, int], ...]
    aborted: tuple[AbortedTxn, ...]
    now_ms: int
    delete_horizon_ms: int
    slots: int
    keys_max: int
    seed: bytes


class Progress(msgspec.Struct, frozen=True):
    """The result of one call of `Round.work`: bytes read and written, the finished segment if there is one,
    and whether the round is done.
    """

    io_bytes: int
    cleaned: Cleaned | None
    is_done: bool


class Round:
    """One round in progress.

    Invariants: one job at a time calls `work`; `end_offset` is None until the keys are mapped, and then
    the first offset that stays dirty.
    """

    def __init__(self, disk: Disk, plan: RoundPlan) -> None:
        self.plan = plan
        self.end_offset: Offset | None = None
        self.records_read = 0
        self.records_kept = 0
        self._disk = disk
        self._keys = clean.KeyOffsets(plan.slots, plan.keys_max, plan.seed)
        self._rules = clean.Rules(
            plan.producers, [one[:3] for one in plan.aborted], plan.now_ms, plan.delete_horizon_ms
        )
        self._target = bytearray(CHUNK_BYTES)
        self._chunk_bytes = CHUNK_BYTES
        self._steps = self._run()

    def work(self, io_bytes_max: int) -> Progress:
        """Continue until about this many bytes are read and written, or a segment is finished. Blocks.

        Raises StorageError, and UncleanableLog for a batch that cannot be decoded.
        """
        io_bytes = 0
        self._chunk_bytes = max(min(io_bytes_max // 2, CHUNK_BYTES), _CHUNK_BYTES_MIN)
        try:
            while io_bytes < io_bytes_max:
                step = next(self._steps, None)
                if step is None:
                    return Progress(io_bytes, None, True)
                if isinstance(step, Cleaned):
                    return Progress(io_bytes, step, False)
                io_bytes += step
        except (ValueError, DecodeError, MemoryError) as error:
            raise UncleanableLog(f"{self.plan.directory}: {error or 'out of memory'}") from None
        return Progress(io_bytes, None, False)

    def _run(self) -> Generator["int | Cleaned", None, None]:
        yield from self._map()
        end_offset = self.end_offset = Offset(max(self._keys.latest_offset + 1, self.plan.first_dirty_offset))
        sources = [source for source in self.plan.sources if source.base_offset < end_offset]
        for group in grouped(sources, self.plan.segment_bytes):
            yield from self._rewrite(group)

    # -- map

    def _map(self) -> Generator[int, None, None]:
        start = self.plan.first_dirty_offset
        for source in self.plan.sources:
            if source.next_offset <= start:
                continue
            for content in _Reader(self._disk, source, self._chunk_bytes):
                yield len(content.view)
                content.used, is_full = self._map_chunk(content.view)
                if is_full:
                    return
            self._keys.reached(source.next_offset - 1)

    def _map_chunk(self, view: memoryview) -> tuple[int, bool]:
        """Map the keys of one chunk. Returns the bytes of the whole batches mapped, and whether the table is
        full.
        """
        start, at = self.plan.first_dirty_offset, 0
        while True:
            status, at = clean.map_keys(view, at, self._keys, self._rules, start)
            if status != clean.COMPRESSED:
                return at, status == clean.FULL
            size = _size_at(view, at)
            status, _ = clean.map_keys(self._plain(view[at : at + size]), 0, self._keys, self._rules, start)
            if status == clean.FULL:
                return at, True
            at += size

    # -- rewrite

    def _rewrite(self, group: list[Source]) -> Generator["int | Cleaned", None, None]:
        # The last batch stays, if need be without records: since cleaning leaves no hole between segments, a
        # hole means lost records.
        keep_end = _next_offset(self._disk, group[-1])
        room = POSITION_MAX - sum(source.size for source in group)
        output = _Output(self._disk, self.plan, group[0].base_offset)
        try:
            for source in group:
                for content in _Reader(self._disk, source, self._chunk_bytes):
                    before = output.size
                    content.used = self._filter_chunk(content.view, output, keep_end, room)
                    room += content.used - (output.size - before)
                    yield len(content.view) + output.size - before
            cleaned = output.finish(group, [self.plan.aborted[index] for index in self._rules.seen_aborted()])
        except StorageError as error:
            if error.is_full:
                output.give_up()
            raise
        yield cleaned

    def _filter_chunk(self, view: memoryview, output: "_Output", keep_end: int, room: int) -> int:
        """Write the retained records of the whole batches in `view`; returns the size of these batches."""
        at = filled = 0
        while True:
            begin, written = at, filled
            status, at, filled, needed, read, kept, _ = clean.filter_batches(
                view, at, self._target, filled, self._keys, self._rules, keep_end, room
            )
            room += (at - begin) - (filled - written)
            self.records_read += read
            self.records_kept += kept
            if status == clean.END or filled:
                output.write(memoryview(self._target)[:filled])
                filled = 0
            if status == clean.END:
                return at
            if status == clean.ROOM and needed > len(self._target):
                self._target = bytearray(needed)
            if status == clean.COMPRESSED:
                size = _size_at(view, at)
                piece = self._filter_compressed(view[at : at + size], keep_end, room)
                output.write(piece)
                at += size
                room += size - len(piece)

    def _filter_compressed(self, batch: memoryview, keep_end: int, room: int) -> Buffer:
        """The retained records of one compressed batch, in its own codec."""
        (crc,) = unpack_from(">I", batch, CRC_POSITION)
        if scan.crc(batch[CRC_START:]) != crc:
            raise DecodeError("CRC-32C does not match")
        plain = self._plain(batch)
        while True:
            status, _, filled, needed, read, kept, is_copy = clean.filter_batches(
                plain, 0, self._target, 0, self._keys, self._rules, keep_end, room, True
            )
            if status != clean.ROOM:
                break
            self._target = bytearray(needed)
        self.records_read += read
        self.records_kept += kept
        if is_copy:
            return batch
        if kept == 0:
            return bytes(memoryview(self._target)[:filled])
        del plain  # at most two forms of the batch are in memory
        (attributes,) = unpack_from(">h", batch, CRC_START)
        records = compress(Codec(attributes & CODEC_BITS), memoryview(self._target)[HEADER_SIZE:filled])
        whole = bytearray(HEADER_SIZE + len(records))
        whole[:HEADER_SIZE] = memoryview(self._target)[:HEADER_SIZE]
        whole[HEADER_SIZE:] = records
        if len(whole) > len(batch) + room:
            return batch
        (attributes_now,) = unpack_from(">h", whole, CRC_START)
        pack_into(">i", whole, 8, len(whole) - LENGTH_OVERHEAD)
        pack_into(">h", whole, CRC_START, attributes_now | attributes & CODEC_BITS)
        pack_into(">I", whole, CRC_POSITION, scan.crc(memoryview(whole)[CRC_START:]))
        return whole

    def _plain(self, batch: memoryview) -> bytearray:
        """The batch with its records uncompressed; its CRC is not updated."""
        (attributes,) = unpack_from(">h", batch, CRC_START)
        plain = bytearray(batch[:HEADER_SIZE])
        codec, bytes_max = Codec(attributes & CODEC_BITS), self.plan.decompressed_bytes_max
        try:
            for piece in decompress_pieces(codec, batch[HEADER_SIZE:], bytes_max, _ANY_RATIO):
                plain += piece
        except TooLarge as error:
            raise DecodeError(
                f"{error} for compaction: raise sparklog.decompress.memory.max and "
                f"sparklog.decompress.max.bytes"
            ) from None
        pack_into(">i", plain, 8, len(plain) - LENGTH_OVERHEAD)
        pack_into(">h", plain, CRC_START, attributes & ~CODEC_BITS)
        return plain


def grouped(sources: list[Source], segment_bytes: int) -> list[list[Source]]:
    """Groups of adjacent segments whose total size and offset range fit into one segment, however few records
    are retained.
    """
    groups: list[list[Source]] = []
    size = 0
    for source in sources:
        fits = (
            groups
            and size + source.size <= segment_bytes
            and source.next_offset - 1 - groups[-1][0].base_offset <= POSITION_MAX
        )
        if fits:
            groups[-1].append(source)
            size += source.size
        else:
            groups.append([source])
            size = source.size
    return groups


class _Chunk:
    """Some bytes of a segment; the consumer sets `used` to the size of the whole batches among them."""

    __slots__ = ("used", "view")

    def __init__(self, content: bytes) -> None:
        self.view = memoryview(content)
        self.used = 0


class _Reader:
    """The chunks of a segment, each beginning with a batch. It opens the file for itself, because the log may
    close its own handle.
    """

    def __init__(self, disk: Disk, source: Source, chunk_bytes: int) -> None:
        self._disk = disk
        self._source = source
        self._chunk_bytes = chunk_bytes

    def __iter__(self) -> Generator[_Chunk, None, None]:
        position, length = 0, self._chunk_bytes
        file = self._disk.open(self._source.path)
        try:
            while position < self._source.size:
                chunk = _Chunk(file.pread(position, min(length, self._source.size - position)))
                yield chunk
                position += chunk.used
                length = self._chunk_bytes
                if not chunk.used:
                    header = header_at(file, position)
                    if header is None or header.size <= len(chunk.view):
                        raise DecodeError(f"{self._source.path}: no batch at {position}")
                    length = header.size
        finally:
            file.close()


class _Output:
    """The files of one new segment while they are written."""

    def __init__(self, disk: Disk, plan: RoundPlan, base_offset: Offset) -> None:
        self._disk = disk
        self._plan = plan
        self._base_offset = base_offset
        self._index = OffsetIndex()
        self._time_index = TimeIndex()
        self._file = self._new_file(LOG_SUFFIX)
        self._synced_size = 0
        self._state = memoryview(array("q", [0, NO_TIMESTAMP, base_offset]))

    @property
    def size(self) -> int:
        return self._file.size

    def _new_file(self, suffix: str) -> DiskFile:
        file = self._disk.open(
            f"{self._plan.directory}/{file_name(self._base_offset, suffix)}{CLEANED_SUFFIX}", create=True
        )
        file.truncate(0)  # an interrupted round may have left the file
        return file

    def give_up(self) -> None:
        """Free the disk space at once: the file may stay open for a while."""
        self._file.truncate(0)
        self._file.close()
        discard(self._disk, self._plan.directory, self._base_offset)

    def write(self, batches: Buffer) -> None:
        if not batches:
            return
        position = self._file.append(batches)
        entries = clean.index_entries(
            batches, len(batches), position, self._base_offset, self._state, self._plan.index_interval_bytes
        )
        entries_max = min(
            self._plan.segment_index_bytes // INDEX_ENTRY_SIZE,
            self._plan.segment_index_bytes // TIME_ENTRY_SIZE - 1,
        )
        for relative_offset, at, timestamp, timestamp_offset in entries:
            if len(self._index) < entries_max:
                self._index.append(relative_offset, at)
                self._time_index.append(timestamp, timestamp_offset)
        if self._file.size - self._synced_size >= UNSYNCED_BYTES_MAX:
            self._disk.sync([self._file])
            self._synced_size = self._file.size

    def finish(self, group: list[Source], aborted: list[AbortedTxn]) -> Cleaned:
        """Make all files durable under their `.cleaned` names."""
        max_timestamp, max_timestamp_offset = self._state[1], self._state[2]
        self._time_index.append(max_timestamp, max_timestamp_offset - self._base_offset)
        contents = {INDEX_SUFFIX: self._index.render(), TIME_INDEX_SUFFIX: self._time_index.render()}
        base_offset, next_offset = group[0].base_offset, group[-1].next_offset
        still_needed = sorted(
            (one for one in aborted if base_offset <= one.last_offset < next_offset),
            key=attrgetter("last_offset"),
        )
        if still_needed:
            contents[TXN_INDEX_SUFFIX] = render(still_needed)
        files = [self._file]
        for suffix, content in contents.items():
            file = self._new_file(suffix)
            file.append(content)
            files.append(file)
        self._disk.sync(files)
        for file in files:
            file.close()
        self._index.saved_count, self._time_index.saved_count = len(self._index), len(self._time_index)
        return Cleaned(
            self._plan.directory,
            base_offset,
            tuple((source.base_offset, source.size) for source in group),
            self._index,
            self._time_index,
            max_timestamp,
            max_timestamp_offset,
            tuple(still_needed),
        )


def _size_at(view: memoryview, position: int) -> int:
    return int(unpack_from(">i", view, position + 8)[0]) + LENGTH_OVERHEAD


def _next_offset(disk: Disk, source: Source) -> int:
    """The offset after the last batch of a segment, found from its last index entry."""
    index = OffsetIndex(disk.read(source.path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX))
    file = disk.open(source.path)
    try:
        begin = index.positions[-1] if len(index) and index.is_plausible else 0
        if header_at(file, begin) is None:
            begin = 0
        next_offset: int = source.base_offset
        for _, header in walk(file, begin):
            next_offset = header.next_offset
        return next_offset
    finally:
        file.close()
