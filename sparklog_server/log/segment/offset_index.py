"""The `.index` of a segment: a sparse map from offsets to file positions, sorted by both.

    0  relative offset  int32     4  position  int32     8  next entry …

An entry has the last offset of a batch, relative to the base offset of the segment, and the position of the
batch. The index of the active segment is two arrays in memory; that of a sealed and synced segment is a file,
of which a lookup reads a few blocks. The index has no checksum: a position from it is only the place where a
search begins.
"""

import sys
from array import array
from bisect import bisect_right
from struct import Struct

from sparklog_server.disk.door import DiskFile

ENTRY_SIZE = 8
_ENTRY = Struct(">ii")
_BLOCK_ENTRIES = 512


class OffsetIndex:
    """The entries in memory: those of the active segment, or of an index that is being rebuilt.

    Invariants: both columns grow strictly; the file holds the first `saved_count` entries and no other, -1 if
    it has other content.
    """

    __slots__ = ("offsets", "positions", "saved_count")

    def __init__(self, content: bytes | None = None) -> None:
        columns = array("i")
        if content is not None:
            columns.frombytes(content[: len(content) - len(content) % ENTRY_SIZE])
        if sys.byteorder == "little":
            columns.byteswap()
        self.offsets = columns[0::2]
        self.positions = columns[1::2]
        self.saved_count = -1 if content is None else len(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        """Add an entry after all others."""
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def lookup(self, relative_offset: int) -> int:
        """The greatest indexed position at or before the batch that holds the offset."""
        found = bisect_right(self.offsets, relative_offset)
        return self.positions[found - 1] if found else 0

    def boundary(self, position: int) -> int:
        """The greatest indexed start of a batch at or before `position`."""
        found = bisect_right(self.positions, position)
        return self.positions[found - 1] if found else 0

    def truncate(self, position: int) -> None:
        """Drop the entries of batches that begin at `position` or later."""
        keep = bisect_right(self.positions, position - 1)
        del self.offsets[keep:]
        del self.positions[keep:]
        self.saved_count = -1

    @property
    def is_plausible(self) -> bool:
        """Whether both columns grow, as in every index that was written completely."""
        return (
            _grows(self.offsets)
            and _grows(self.positions)
            and (not self.positions or self.positions[0] >= 0 <= self.offsets[0])
        )

    def render(self) -> bytes:
        """The content of the file."""
        columns = array("i", bytes(ENTRY_SIZE * len(self.offsets)))
        columns[0::2] = self.offsets
        columns[1::2] = self.positions
        if sys.byteorder == "little":
            columns.byteswap()
        return columns.tobytes()


class StoredOffsetIndex:
    """The index of a sealed segment, read from its file."""

    __slots__ = ("_file",)

    def __init__(self, file: DiskFile) -> None:
        self._file = file

    def lookup(self, relative_offset: int) -> int:
        """The greatest indexed position at or before the batch that holds the offset."""
        return self._search(relative_offset, column=0)

    def boundary(self, position: int) -> int:
        """The greatest indexed start of a batch at or before `position`."""
        return self._search(position, column=1)

    def _search(self, target: int, *, column: int) -> int:
        low, high = 0, self._file.size // ENTRY_SIZE
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if _ENTRY.unpack(self._file.pread(middle * ENTRY_SIZE, ENTRY_SIZE))[column] <= target:
                low = middle
            else:
                high = middle
        block = OffsetIndex(self._file.pread(low * ENTRY_SIZE, (high - low) * ENTRY_SIZE))
        return block.lookup(target) if column == 0 else block.boundary(target)


def _grows(column: "array[int]") -> bool:
    return all(column[at] < column[at + 1] for at in range(len(column) - 1))
