"""The `.txnindex` of a segment: the transactions that a marker in it aborted, for read_committed readers.

     0  version = 0         int16
     2  producer id         int64
    10  first offset        int64
    18  last offset         int64
    26  last stable offset  int64

An entry has 34 bytes and is appended with its marker, so entries are in the order of their last offsets. A
segment without aborts has no such file.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from sparklog_server.disk.door import Disk, DiskFile

TXN_INDEX_SUFFIX = ".txnindex"
ENTRY_SIZE = 34
_VERSION = 0
_ENTRY = Struct(">hqqqq")
_last_offset_of = attrgetter("last_offset")


class TxnIndexCorrupt(Exception):
    """The file has an incomplete entry, or entries out of order."""


class AbortedTxn(NamedTuple):
    """One aborted transaction: its records lie in `[first_offset, last_offset]`, closed; the last offset is
    that of the marker.

    `last_stable_offset` is the last stable offset once this transaction had ended: every transaction with
    records below it has ended.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """The entries of one segment's file. The file is created with the first entry.

    Invariant: last offsets grow strictly from entry to entry.
    """

    __slots__ = ("_base_offset", "_disk", "_entries", "_file", "_path")

    def __init__(self, disk: Disk, path: str, base_offset: int, entries: Iterable[AbortedTxn] = ()) -> None:
        """The index at `path` with these entries."""
        self._disk = disk
        self._path = path
        self._base_offset = base_offset
        self._file: DiskFile | None = None
        self._entries = list(entries)

    @classmethod
    def load(cls, disk: Disk, path: str, base_offset: int) -> "TxnIndex":
        """The index at `path`, read completely if the file exists. Raises StorageError and
        TxnIndexCorrupt.
        """
        content = disk.read(path)
        return cls(disk, path, base_offset, () if content is None else parse(content, base_offset))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[AbortedTxn, ...]:
        """All entries, in order."""
        return tuple(self._entries)

    def append(self, aborted: Sequence[AbortedTxn]) -> DiskFile:
        """Add entries, in order, and return the file for the next sync. Raises StorageError, and then nothing
        has changed.
        """
        last_offsets = [
            self._entries[-1].last_offset if self._entries else self._base_offset - 1,
            *map(_last_offset_of, aborted),
        ]
        assert all(one < other for one, other in pairwise(last_offsets)), last_offsets
        file = self._file or self._disk.open(self._path, create=True)
        file.append(render(aborted))
        self._file = file
        self._entries += aborted
        return file

    def aborted_in(self, start: int, limit: int) -> tuple[list[AbortedTxn], bool]:
        """The aborted transactions with records in `[start, limit)`, and whether later segments cannot have
        another one.

        They cannot if the last stable offset of an entry reaches `limit`: no transaction was open below it
        then.
        """
        found = []
        for aborted in self._entries[bisect_left(self._entries, start, key=_last_offset_of) :]:
            if aborted.first_offset < limit:
                found.append(aborted)
            if aborted.last_stable_offset >= limit:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> DiskFile | None:
        """Drop the entries whose marker is at `offset` or above; returns the file to sync, if any. Raises
        StorageError.
        """
        if not self._entries:
            return self._file
        keep = bisect_left(self._entries, offset, key=_last_offset_of)
        file = self._file or self._disk.open(self._path)
        if keep < len(self._entries):
            file.truncate(keep * ENTRY_SIZE)
            del self._entries[keep:]
        self._file = file
        return file

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def render(entries: Iterable[AbortedTxn]) -> bytes:
    """The content of a file."""
    return b"".join(_ENTRY.pack(_VERSION, *aborted) for aborted in entries)


def parse(content: bytes, base_offset: int) -> Iterator[AbortedTxn]:
    """The entries of a file. Raises TxnIndexCorrupt at the first invalid one."""
    if len(content) % ENTRY_SIZE:
        raise TxnIndexCorrupt(f"{len(content)} bytes are no whole entries of {ENTRY_SIZE}")
    last_offset = base_offset - 1
    for version, *fields in _ENTRY.iter_unpack(content):
        aborted = AbortedTxn(*fields)
        if version > _VERSION or aborted.last_offset <= last_offset or not _can_be(aborted):
            raise TxnIndexCorrupt(f"{aborted} of version {version} behind offset {last_offset}")
        last_offset = aborted.last_offset
        yield aborted


def _can_be(aborted: AbortedTxn) -> bool:
    return (
        aborted.producer_id >= 0
        and 0 <= aborted.first_offset < aborted.last_offset
        and 0 <= aborted.last_stable_offset <= aborted.last_offset + 1
        and aborted.last_stable_offset != aborted.first_offset
    )
