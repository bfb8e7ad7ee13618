"""Lookup by timestamp over all segments of a log: the first record at or after a time, and the record with
the greatest timestamp.

Segments and time indexes narrow the search to a batch, which is then read to find the record. The search
reads data, also data that is not in the page cache, and so runs in a job: a `TimeSearch` holds the parts of
the log that it needs, and `run` opens the files itself.

    TimeSearch(log) ─► run, in a job ─► is_current? ─► learn: keep the index entries; else search again
"""

from collections.abc import Iterator, Sequence

import msgspec

from sparklog.effects import Steps, take_all
from sparklog.errors import DecodeError, ErrorCode, without_frames
from sparklog.kernels import scan
from sparklog.kernels import walk as walk_kernel
from sparklog.record.batch import CODEC_BITS, HEADER_SIZE, NO_TIMESTAMP, TIMESTAMP_TYPE_BIT, BatchHeader
from sparklog.record.compression import DECOMPRESSED_BYTES_MAX, Codec
from sparklog.record.pieces import decompress_pieces
from sparklog_server.disk.door import Disk, DiskFile, StorageError
from sparklog_server.log.producers.validate import RecordsRefused
from sparklog_server.log.segment.segment import LOG_SUFFIX, Segment, header_at, walk

SEARCH_BYTES = 8 << 20
"""The most memory of a search, with lz4 blocks of 4 MiB; other searches take a tenth of it, except with large
zstd windows.
"""
_INT64_MIN = -(1 << 63)
_SEEK_BYTES = 8192
_ANY_RATIO = 1 << 31
"""Stored batches were accepted under an earlier limit of the ratio, so none applies."""

Found = tuple[int, int, int]
"""(timestamp, offset, leader epoch) of a record."""


class _Part(msgspec.Struct, frozen=True):
    """A segment as it was when the search began. `begin` is the position to search from, or None if the index
    files must be read; the second part is the time index entry that gave it: (timestamp, relative offset).
    """

    segment: Segment
    file: DiskFile
    size: int
    known: tuple[int, int]
    begin: int | None
    entry: tuple[int, int]


class TimeSearch:
    """A search for the first record in `[start, limit)` at or after `timestamp`; with None, for the greatest
    timestamp.

    Invariant: `run` reads nothing that the loop changes, and may run in any thread, once.
    """

    __slots__ = ("_disk", "_limit", "_parts", "_segments", "_start", "_timestamp", "_twins")

    def __init__(
        self, disk: Disk, segments: list[Segment], timestamp: int | None, *, start: int, limit: int
    ) -> None:
        self._disk = disk
        self._segments = segments
        self._timestamp = timestamp
        self._start = start
        self._limit = limit
        self._parts = [
            _part(segment, timestamp)
            for segment in segments
            if segment.base_offset < limit or timestamp is None
        ]
        self._twins: dict[int, Segment] = {}  # by the index of the part: opened by the job for itself

    # -- on the loop

    @property
    def is_current(self) -> bool:
        """Whether the log still has the files that were searched; if not, the result is void."""
        there = {segment.base_offset: segment for segment in self._segments}
        return all(
            there.get(part.segment.base_offset) is part.segment
            and part.segment.file is part.file
            # Until a cleaned segment has its final name, that name belongs to another file or to none.
            and part.file.path == part.segment.path(LOG_SUFFIX)
            for part in self._parts
        )

    def learn(self) -> None:
        """Store the index entries that the job has read in the segments; to be called only while
        `is_current`.
        """
        for index, twin in self._twins.items():
            segment = self._parts[index].segment
            if segment.time_index is None:
                segment.max_timestamp, segment.max_timestamp_offset = (
                    twin.max_timestamp,
                    twin.max_timestamp_offset,
                )
                if twin.time_index is not None:  # rebuilt, because the files are invalid
                    segment.index, segment.time_index = twin.index, twin.time_index

    # -- in the job

    def run(self) -> Found | None:
        """The result of the search; None if no record matches. Raises StorageError, and RecordsRefused
        (CORRUPT_MESSAGE) for an invalid batch.
        """
        return take_all(self._steps())

    def outcome(self) -> Steps[Found | RecordsRefused | StorageError | None]:
        """`run` in steps, with its errors as values."""
        try:
            return (yield from self._steps())
        except (RecordsRefused, StorageError) as error:
            return without_frames(error)

    def _steps(self) -> Steps[Found | None]:
        yield
        return (yield from self._latest() if self._timestamp is None else self._first(self._timestamp))

    def _first(self, timestamp: int) -> Steps[Found | None]:
        for index, part in enumerate(self._parts):
            if self._max_timestamp(index, part)[0] < timestamp:
                continue
            for position, header in self._batches(index, part, timestamp):
                if header.base_offset >= self._limit:
                    return None
                if header.max_timestamp < timestamp:
                    continue
                found = yield from self._record(index, part, position, header, timestamp, self._start)
                if found is not None:
                    return found if found[1] < self._limit else None
        return None

    def _latest(self) -> Steps[Found | None]:
        index = max(
            range(len(self._parts)), key=lambda index: self._max_timestamp(index, self._parts[index])[0]
        )
        part = self._parts[index]
        timestamp, last_offset = self._max_timestamp(index, part)
        if timestamp == NO_TIMESTAMP:
            return None
        for position, header in self._batches(index, part, timestamp):
            if header.last_offset >= last_offset:
                found = yield from self._record(index, part, position, header, timestamp, 0)
                return (
                    found if found is not None and found[0] == timestamp and found[1] < self._limit else None
                )
        return None

    def _max_timestamp(self, index: int, part: _Part) -> tuple[int, int]:
        """The greatest timestamp, and the last offset of the first batch that has it."""
        return (
            part.known
            if part.begin is not None or part.known[0] != NO_TIMESTAMP
            else self._twin(index, part).read_max_timestamp()
        )

    def _batches(self, index: int, part: _Part, timestamp: int) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from the first one on that may have a record at or after `timestamp`."""
        twin = self._twin(index, part)
        if part.begin is None:
            return twin.find_timestamp(timestamp, self._start)
        return walk(twin.file, part.begin if _bears_out(twin, part) else 0, chunk_bytes=_SEEK_BYTES)

    def _twin(self, index: int, part: _Part) -> Segment:
        twin = self._twins.get(index)
        if twin is None:
            twin = Segment.open(self._disk, part.segment.directory, part.segment.base_offset)
            twin.file.pin()
            twin.file.size = min(twin.file.size, part.size)
            twin.settle()
            twin.max_timestamp, twin.max_timestamp_offset = part.known
            self._twins[index] = twin
        return twin

    def _record(
        self, index: int, part: _Part, position: int, header: BatchHeader, timestamp: int, start: int
    ) -> Steps[Found | None]:
        """The first record of a batch at or after `timestamp`, and at or after `start`."""
        twin = self._twin(index, part)
        body = memoryview(twin.read_batch(position, header))[HEADER_SIZE:]
        append_timestamp = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None
        try:
            if header.attributes & CODEC_BITS:
                found = yield from _find_in_pieces(body, header, append_timestamp, timestamp, start)
            else:
                found = scan.find_timestamp(
                    body,
                    0,
                    header.record_count,
                    header.base_offset,
                    header.base_timestamp,
                    append_timestamp,
                    timestamp,
                    start,
                )
        except (DecodeError, ValueError) as error:
            reason = error.args[2] if len(error.args) == 3 else error
            raise RecordsRefused(
                ErrorCode.CORRUPT_MESSAGE, f"{twin.file.path} at {position}: {reason}"
            ) from None
        return None if found is None else (found[0], found[1], header.leader_epoch)


def _find_in_pieces(
    body: memoryview, header: BatchHeader, append_timestamp: int | None, timestamp: int, start: int
) -> Steps[tuple[int, int] | None]:
    """The timestamp and offset that `scan.find_timestamp` returns, of a compressed batch. Raises DecodeError
    and ValueError.
    """
    if append_timestamp is None:
        low, high = _INT64_MIN, max(timestamp - 1, _INT64_MIN)
    elif append_timestamp >= timestamp:
        low, high = 1, 0  # every record
    else:
        return None
    one = walk_kernel.RecordWalk(
        header.record_count,
        header.base_timestamp,
        is_strict=False,
        low=low,
        high=high,
        from_delta=start - header.base_offset,
    )
    for piece in decompress_pieces(
        Codec(header.attributes & CODEC_BITS), body, DECOMPRESSED_BYTES_MAX, _ANY_RATIO
    ):
        yield
        one.feed(piece)
        if one.is_hit:
            hit_timestamp = one.hit_timestamp if append_timestamp is None else append_timestamp
            return hit_timestamp, header.base_offset + one.hit_delta
    one.finish()
    return None


def run_all(searches: Sequence[TimeSearch]) -> Steps[list[Found | RecordsRefused | StorageError | None]]:
    """The job: the outcome of each search."""
    outcomes = []
    for search in searches:
        outcomes.append((yield from search.outcome()))
    return outcomes


def _bears_out(twin: Segment, part: _Part) -> bool:
    """Whether the log confirms the index entries in memory, which came from files without checksums."""
    assert part.begin is not None
    timestamp, relative = part.entry
    if timestamp == NO_TIMESTAMP:
        return part.begin == 0
    offset = twin.base_offset + relative
    first = header_at(twin.file, part.begin)
    if first is None or not twin.base_offset <= first.base_offset <= offset:
        return False
    for _, header in walk(twin.file, part.begin, chunk_bytes=_SEEK_BYTES):
        if header.last_offset >= offset:
            return header.max_timestamp == timestamp
    return False


def _part(segment: Segment, timestamp: int | None) -> _Part:
    known = segment.max_timestamp, segment.max_timestamp_offset
    begin, entry = None, (NO_TIMESTAMP, 0)
    if segment.index is not None and segment.time_index is not None:
        # The index in memory grows with the log: its entries of now bound the search, and are only places to
        # begin at.
        entry = segment.time_index.entry_below(known[0] if timestamp is None else timestamp)
        begin = segment.index.lookup(entry[1]) if entry[0] != NO_TIMESTAMP else 0
    return _Part(segment, segment.file, segment.file.size, known, begin, entry)
