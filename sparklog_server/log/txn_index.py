"""The `.txnindex` of a segment: the transactions that were aborted by a marker in it, for readers of committed records alone.

    0  version = 0  int16     2  producer id  int64     10  first offset  int64     18  last offset  int64     26  last stable offset  int64

34 bytes an entry, appended when the marker is, in the order of their last offsets. A segment without aborts has no such file.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from sparklog_server.disk.door import Disk, DiskFile

TXN_INDEX_SUFFIX = ".txnindex"
ENTRY_SIZE = 34
_VERSION = 0
_ENTRY = Struct(">hqqqq")


class TxnIndexCorrupt(Exception):
    """The file does not hold whole entries in the order of their offsets."""


class AbortedTxn(NamedTuple):
    """One aborted transaction: its records lie in `[first_offset, last_offset]`, closed, and the last is the marker's.

    `last_stable_offset` is what it was once this transaction was over: everything below is decided.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """The entries of one segment's file. The file is made with the first entry.

    Invariant: last offsets grow strictly from entry to entry.
    """

    __slots__ = ("_base_offset", "_disk", "_entries", "_file", "_path")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        """The index at `path`, read whole if there is one. Raises StorageError, TxnIndexCorrupt."""
        self._disk = disk
        self._path = path
        self._base_offset = base_offset
        self._file: DiskFile | None = None
        content = disk.read(path)
        self._entries = [] if content is None else list(parse(content, base_offset))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[AbortedTxn, ...]:
        """All of them, in order."""
        return tuple(self._entries)

    def append(self, aborted: AbortedTxn) -> DiskFile:
        """Add an entry, and give the file for the next sync. Raises StorageError, and then nothing has changed."""
        assert not self._entries or aborted.last_offset > self._entries[-1].last_offset, aborted
        assert self._base_offset <= aborted.last_offset
        file = self._file or self._disk.open(self._path, create=True)
        file.append(_ENTRY.pack(_VERSION, *aborted))
        self._file = file
        self._entries.append(aborted)
        return file

    def aborted_in(self, start: int, limit: int) -> tuple[list[AbortedTxn], bool]:
        """The aborted transactions with records in `[start, limit)`, and whether later segments cannot hold another one.

        They cannot once an entry's last stable offset reaches `limit`: no transaction was open below it then.
        """
        found = []
        for aborted in self._entries:
            if aborted.last_offset >= start and aborted.first_offset < limit:
                found.append(aborted)
            if aborted.last_stable_offset >= limit:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop the entries whose marker lies at `offset` or beyond. Raises StorageError."""
        keep = sum(aborted.last_offset < offset for aborted in self._entries)
        if keep == len(self._entries):
            return
        file = self._file or self._disk.open(self._path)
        file.truncate(keep * ENTRY_SIZE)
        self._file = file
        del self._entries[keep:]


def parse(content: bytes, base_offset: int) -> Iterator[AbortedTxn]:
    """The entries of a file. Raises TxnIndexCorrupt at the first that cannot be."""
    if len(content) % ENTRY_SIZE:
        raise TxnIndexCorrupt(f"{len(content)} bytes are no whole entries of {ENTRY_SIZE}")
    last_offset = base_offset - 1
    for version, *fields in _ENTRY.iter_unpack(content):
        aborted = AbortedTxn(*fields)
        if version > _VERSION or aborted.last_offset <= last_offset or aborted.first_offset > aborted.last_offset:
            raise TxnIndexCorrupt(f"{aborted} of version {version} behind offset {last_offset}")
        last_offset = aborted.last_offset
        yield aborted
