"""A segment: one `.log` file of batches and the two indexes that find them.

    active ── sealed (roll) ──► indexes rendered, not yet synced ── settled ──► indexes on disk only

Positions are bytes in the `.log` file. An index gives only the position where a search begins: batch headers
decide.
"""

from collections.abc import Iterator, Sequence
from typing import overload

from sparklog.kernels import scan
from sparklog.model import Offset
from sparklog.record.batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    unpack_header,
)
from sparklog_server.disk.door import Buffer, Disk, DiskFile, StorageError, replace_all

from .offset_index import OffsetIndex, StoredOffsetIndex
from .time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from .time_index import TimeIndex
from .txn_index import TXN_INDEX_SUFFIX, TxnIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SNAPSHOT_SUFFIX = ".snapshot"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES, SNAPSHOT_SUFFIX)
"""The suffixes of a segment's files, the log first."""
RELATIVE_OFFSET_MAX = (1 << 31) - 1
NAME_DIGITS = 20
OFFSET_MAX = (1 << 63) - 1
_WALK_BYTES = 1 << 20
_SEEK_BYTES = 8192


def file_name(offset: int, suffix: str) -> str:
    """The name of a file: the offset in twenty digits, and the suffix."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str, suffix: str) -> Offset | None:
    """The offset in a file's name; None if the name has another form, or the number exceeds 64 bits."""
    if name[NAME_DIGITS:] != suffix:
        return None
    digits = name[:NAME_DIGITS]
    if not (digits.isascii() and digits.isdecimal()) or (offset := int(digits)) > OFFSET_MAX:
        return None
    return Offset(offset)


def base_offset_of(segment: "Segment") -> Offset:
    """The key that segments are sorted by."""
    return segment.base_offset


class Segment:
    """The records from `base_offset` to the next segment.

    Invariants: the file holds whole batches only; `max_timestamp` is their greatest timestamp, and
    `max_timestamp_offset` the last offset of the first batch that has it. The `max_timestamp` of a sealed
    segment is None until the first call that needs it.

    One class, as Kafka's LogSegment is: the file and its three indexes grow, are sealed, truncated, moved and
    removed together. The format and the search of each index are in its own module.
    """

    __slots__ = (
        "_disk",
        "_first_timestamp",
        "_stored",
        "base_offset",
        "created_ms",
        "directory",
        "file",
        "has_aborted",
        "has_markers",
        "index",
        "max_timestamp",
        "max_timestamp_offset",
        "time_index",
        "txn_index",
        "unindexed_bytes",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: Offset, file: DiskFile) -> None:
        self._disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.index: OffsetIndex | None = OffsetIndex()
        self.time_index: TimeIndex | None = TimeIndex()
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset: int = base_offset
        self.unindexed_bytes = 0
        self.created_ms = 0  # the wall clock at the roll; 0 if an earlier process rolled the segment
        self.has_aborted = False  # whether there is a `.txnindex`
        self.has_markers = False  # whether recovery saw a transaction end here
        self.txn_index: TxnIndex | None = None  # None: not read
        self._first_timestamp: int | None = None
        self._stored: StoredOffsetIndex | None = None

    @classmethod
    def open(cls, disk: Disk, directory: str, base_offset: Offset, *, create: bool = False) -> "Segment":
        """Open the files of the segment at `base_offset` without reading its indexes."""
        return cls(
            disk,
            directory,
            base_offset,
            disk.open(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}", create=create),
        )

    def path(self, suffix: str) -> str:
        """The path of one of its files."""
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    # -- append

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int, index_interval_bytes: int) -> int:
        """Append one whole batch and return its position. Raises StorageError, and then nothing has
        changed.
        """
        position = self.file.append(batch)
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.unindexed_bytes > index_interval_bytes:
            self.add_entry(last_offset, position)
        self.unindexed_bytes += len(batch)
        return position

    def add_entry(self, last_offset: int, position: int) -> None:
        """Add an index entry for the batch at `position`."""
        assert self.index is not None
        assert self.time_index is not None
        self.index.append(last_offset - self.base_offset, position)
        self.time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.unindexed_bytes = 0

    @property
    def first_timestamp(self) -> int:
        """The greatest timestamp of the first batch, from which the age of the segment is counted; -1 if it
        has none. Raises StorageError.
        """
        if self._first_timestamp is None:
            first = header_at(self.file, 0)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.max_timestamp
        return self._first_timestamp

    def has_full_index(self, index_bytes_max: int) -> bool:
        """Whether Kafka would find one of the indexes full, and roll."""
        assert self.index is not None
        assert self.time_index is not None
        return len(self.index) >= index_bytes_max // 8 or len(self.time_index) >= index_bytes_max // 12 - 1

    # -- indexes and their files

    def save_indexes(self) -> list[DiskFile]:
        """Write both index files under temporary names, and return them for the next sync, which renames
        them. Returns nothing if they exist already.

        Raises StorageError, and then there is no temporary file.
        """
        index, time_index = self.index, self.time_index
        if index is None or time_index is None:
            return []
        time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        contents = []
        if index.saved_count != len(index):
            contents.append((self.path(INDEX_SUFFIX), index.render()))
        if time_index.saved_count != len(time_index):
            contents.append((self.path(TIME_INDEX_SUFFIX), time_index.render()))
        return replace_all(self._disk, contents)

    def save_or_drop_indexes(self) -> list[DiskFile]:
        """`save_indexes`; if the disk is full, both files are removed, and the next lookup rebuilds them from
        the log. Raises StorageError.
        """
        try:
            return self.save_indexes()
        except StorageError as error:
            if not error.is_full:
                raise
        self._disk.remove(self.path(INDEX_SUFFIX), self.path(TIME_INDEX_SUFFIX))
        return []

    def settle(self) -> None:
        """The index files of this sealed segment are durable: drop the arrays."""
        self.index = None
        self.time_index = None
        self.txn_index = None

    def load_indexes(self) -> bool:
        """Read the index files into memory, and the greatest timestamp from them. False if they are missing
        or implausible.
        """
        index = self._disk.read(self.path(INDEX_SUFFIX))
        times = self._disk.read(self.path(TIME_INDEX_SUFFIX))
        if index is None or times is None:
            return False
        self.index = OffsetIndex(index)
        self.time_index = TimeIndex(times)
        timestamp, offset = self.time_index.last
        self.max_timestamp, self.max_timestamp_offset = timestamp, self.base_offset + offset
        positions = self.index.positions
        return (
            self.index.is_plausible
            and self.time_index.is_plausible
            and (not positions or positions[-1] < self.file.size)
            and len(index) % 8 == 0 == len(times) % 12
            and (not len(self.time_index) or self._says(timestamp, offset))
        )

    @property
    def knows_max_timestamp(self) -> bool:
        """Whether `read_max_timestamp` returns without reading."""
        return self.time_index is not None or self.max_timestamp != NO_TIMESTAMP

    def twin(self) -> "Segment":
        """A segment with the same files and its own handles, for a job. Raises StorageError."""
        twin = Segment.open(self._disk, self.directory, self.base_offset)
        twin.settle()
        return twin

    def read_max_timestamp(self) -> tuple[int, int]:
        """The greatest timestamp, and the last offset of the batch that has it; -1 and the base offset if no
        record has one.
        """
        if self.time_index is None and self.max_timestamp == NO_TIMESTAMP:
            timestamp, offset = self._times().last
            if (
                self.time_index is None
            ):  # otherwise it was rebuilt, and the batches gave the greatest timestamp
                self.max_timestamp, self.max_timestamp_offset = timestamp, self.base_offset + offset
        return self.max_timestamp, self.max_timestamp_offset

    def _times(self) -> TimeIndex:
        if self.time_index is not None:
            return self.time_index
        content = self._disk.read(self.path(TIME_INDEX_SUFFIX))
        stored = TimeIndex(content)
        if (
            content
            and len(content) == len(stored) * TIME_ENTRY_SIZE
            and stored.is_plausible
            and self._says(*stored.last)
        ):
            return stored
        self.rebuild_index()
        assert self.time_index is not None
        return self.time_index

    def _says(self, timestamp: int, relative_offset: int) -> bool:
        """Whether the log confirms an entry of the time index, which has no checksum: the batch at its offset
        has its timestamp.
        """
        found = self.find(self.base_offset + relative_offset)
        return found is not None and found[1].max_timestamp == timestamp

    def _index(self) -> OffsetIndex | StoredOffsetIndex:
        if self.index is not None:
            return self.index
        if self._stored is None:
            try:
                self._stored = StoredOffsetIndex(self._disk.open(self.path(INDEX_SUFFIX)))
            except StorageError:
                if not self._is_missing(INDEX_SUFFIX):
                    raise
                self.rebuild_index()
                assert self.index is not None
                return self.index
        return self._stored

    def _is_missing(self, suffix: str) -> bool:
        return file_name(self.base_offset, suffix) not in self._disk.list(self.directory)

    def rebuild_index(self) -> None:
        """Rebuild both indexes in memory by a walk over the whole file."""
        self.index, self.time_index, self._stored = OffsetIndex(), TimeIndex(), None
        self.max_timestamp, self.max_timestamp_offset, self.unindexed_bytes = (
            NO_TIMESTAMP,
            self.base_offset,
            0,
        )
        limit = self.base_offset + RELATIVE_OFFSET_MAX
        for position, header in walk(self.file, 0):
            # No CRC covers the base offset: a batch with an impossible one gets no index entry.
            if self.base_offset <= header.base_offset <= limit - header.last_offset_delta:
                self.index_batch(position, header)

    def index_batch(self, position: int, header: BatchHeader, index_interval_bytes: int = 4096) -> None:
        """Count the batch at `position`, which the file has already, as `append` does."""
        last_offset = header.base_offset + header.last_offset_delta
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, last_offset
        if self.unindexed_bytes > index_interval_bytes:
            self.add_entry(last_offset, position)
        self.unindexed_bytes += header.length + LENGTH_OVERHEAD

    # -- find

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The position and header of the first batch whose last offset is `offset` or more; None if there is
        none.
        """
        for position, header in self.walk_from(self.last_indexed(offset)):
            if header.base_offset + header.last_offset_delta >= offset:
                return position, header
        return None

    def last_indexed(self, offset: int) -> int:
        """The position at which `find` begins its search for `offset`. Raises StorageError."""
        begin = self._index().lookup(offset - self.base_offset)
        header = header_at(self.file, begin) if begin else None
        is_sound = header is not None and self.base_offset <= header.base_offset <= offset
        return begin if is_sound else 0  # otherwise the index is wrong

    def boundary(self, position: int, *, at_least: int) -> tuple[int, int]:
        """The greatest indexed batch start in `[at_least, position]` and its base offset; if none is indexed,
        the greatest that a walk finds.

        `at_least` must be a batch start.
        """
        indexed = self._index().boundary(position)
        if at_least < indexed <= position:
            header = header_at(self.file, indexed)
            if header is not None:
                return indexed, header.base_offset
        found: tuple[int, int] = (at_least, self.base_offset)
        for at, header in self.walk_from(at_least):
            if at > position:
                break
            found = at, header.base_offset
        return found

    def walk_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the batches from `position` on, which must be a batch start; few bytes are
        read at once.
        """
        return walk(self.file, position, chunk_bytes=_SEEK_BYTES)

    def find_timestamp(self, timestamp: int, start_offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """The position and header of each batch, in order, that may hold a record at or after `timestamp` and
        `start_offset`.
        """
        below, relative = self._times().entry_below(timestamp)
        if below != NO_TIMESTAMP and not self._says(below, relative):
            self.rebuild_index()
            relative = self._times().entry_below(timestamp)[1]
        found = self.find(max(self.base_offset + relative, start_offset))
        if found is None:
            return
        for position, header in self.walk_from(found[0]):
            if header.max_timestamp >= timestamp:
                yield position, header

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """The whole batch."""
        return self.file.pread(position, header.length + LENGTH_OVERHEAD)

    # -- truncate

    def truncate(self, position: int) -> None:
        """Truncate at a batch start: the segment becomes the active one again."""
        if self.index is None or self.time_index is None:
            self._stored = None
            if not self.load_indexes():
                self.rebuild_index()
        assert self.index is not None
        assert self.time_index is not None
        header = header_at(self.file, position)
        self.file.truncate(position)
        limit = self.base_offset + RELATIVE_OFFSET_MAX + 1
        self.truncate_indexes(position, limit if header is None else header.base_offset)
        self.count_tail()

    def truncate_indexes(self, position: int, offset: int) -> None:
        """Drop the index entries of batches from `position` and `offset` on, once the file is truncated
        there.
        """
        assert self.index is not None
        assert self.time_index is not None
        if position == 0:
            self._first_timestamp = None
        self.index.truncate(position)
        self.time_index.truncate(offset - self.base_offset)
        timestamp, relative_offset = self.time_index.last
        self.max_timestamp, self.max_timestamp_offset = timestamp, self.base_offset + relative_offset

    def take_indexes(self, twin: "Segment") -> None:
        """Take over indexes that a job has read and truncated."""
        self.index, self.time_index = twin.index, twin.time_index
        self.max_timestamp, self.max_timestamp_offset = twin.max_timestamp, twin.max_timestamp_offset
        self._stored = None
        self._first_timestamp = None

    def count_tail(self) -> BatchHeader | None:
        """Walk the batches after the last index entry, as after a clean stop; returns the header of the last
        batch.
        """
        assert self.index is not None
        begin = self.index.positions[-1] if len(self.index) else 0
        last: BatchHeader | None = None
        self.unindexed_bytes = 0
        for position, header in self.walk_from(begin):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = (
                    header.max_timestamp,
                    header.base_offset + header.last_offset_delta,
                )
            self.unindexed_bytes = position + header.length + LENGTH_OVERHEAD - begin
            last = header
        return last

    # -- move and close

    def move(self, directory: str) -> None:
        """Use the copy in another directory from now on, which has the same bytes. Raises StorageError."""
        file = self._disk.open(f"{directory}/{file_name(self.base_offset, LOG_SUFFIX)}")
        if file.size != self.file.size:
            raise StorageError(file.path, "move", f"{file.size} bytes, where {self.file.size} were copied")
        self.close()
        self.directory, self.file = directory, file
        if self.index is not None and self.time_index is not None:
            self.index.saved_count = self.time_index.saved_count = -1  # its files were not copied

    def close(self) -> None:
        """Close the files; retained slices of them stay readable."""
        self.file.close()
        self._stored = None
        if self.txn_index is not None:
            self.txn_index.close()
            self.txn_index = None


def header_at(file: DiskFile, position: int) -> BatchHeader | None:
    """The header at `position`; None if it is not that of a batch of format v2."""
    content = file.pread(position, HEADER_SIZE)
    if len(content) < HEADER_SIZE:
        return None
    header = unpack_header(content)
    is_possible = HEADER_SIZE <= header.size <= file.size - position and header.last_offset_delta >= 0
    return header if header.magic == MAGIC and is_possible else None


def walk(
    file: DiskFile, position: int, *, verify_crc: bool = False, chunk_bytes: int = _WALK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """The position and header of every whole batch from `position` on, up to the first invalid one; with a
    check of the CRC if asked.
    """
    while position < file.size:
        content = file.pread(position, chunk_bytes)
        is_broken = False
        try:
            found: list[tuple[int, BatchHeader]] = scan.headers(content, verify_crc)
        except ValueError as error:
            # The error is less than a header after the start of its batch: the batches before it are sound.
            is_broken = True
            found = scan.headers(memoryview(content)[: error.args[1]], verify_crc)
        for at, header in found:
            yield position + at, header
        if is_broken:
            return
        if found:
            position += found[-1][0] + found[-1][1].size
            continue
        larger = header_at(file, position)
        if larger is None or larger.size <= len(content):
            return
        chunk_bytes = larger.size


Part = tuple[Segment, DiskFile, int]
"""A segment of the loop, its file and the size of that, as of the turn that begins the job."""


def parts_of(segments: Sequence[Segment]) -> list[Part]:
    """The parts of the segments that `Twins` needs, copied in the turn that starts the job."""
    return [(segment, segment.file, segment.file.size) for segment in segments]


class Twins(Sequence[Segment]):
    """Segments of a log for a job: each is opened at the first access, through a handle of its own, and read
    up to its size in the turn that began the job.
    """

    def __init__(self, disk: Disk, parts: Sequence[Part]) -> None:
        self._disk = disk
        self._parts = parts
        self._twins: dict[int, Segment] = {}

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> "Twins": ...
    def __getitem__(self, index: int | slice) -> "Segment | Twins":
        if isinstance(index, slice):
            return Twins(self._disk, self._parts[index])
        if index < 0:
            index += len(self._parts)
        twin = self._twins.get(index)
        if twin is None:
            segment, _, size = self._parts[index]
            twin = Segment.open(self._disk, segment.directory, segment.base_offset)
            twin.file.pin()
            twin.file.size = min(twin.file.size, size)
            twin.has_aborted = segment.has_aborted
            twin.settle()
            self._twins[index] = twin
        return twin
