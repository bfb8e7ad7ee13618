"""The `.timeindex` of a segment: a sparse map from timestamps to offsets.

    0  timestamp  int64     8  relative offset  int32     12  next entry …

An entry says that no record up to this offset has a greater timestamp. Timestamps grow strictly from entry to
entry. The index of the active segment is in memory; that of a sealed one is read completely from its file
when a lookup by timestamp needs it.
"""

from array import array
from bisect import bisect_right
from struct import Struct

from sparklog.record.batch import NO_TIMESTAMP

ENTRY_SIZE = 12
_ENTRY = Struct(">qi")


class TimeIndex:
    """The time index of the active segment, or one that was read or rebuilt. Invariants: timestamps grow
    strictly, offsets grow; `saved_count` as in `OffsetIndex`.
    """

    __slots__ = ("offsets", "saved_count", "timestamps")

    def __init__(self, content: bytes | None = None) -> None:
        entries = (
            []
            if content is None
            else list(_ENTRY.iter_unpack(content[: len(content) - len(content) % ENTRY_SIZE]))
        )
        self.timestamps = array("q", [timestamp for timestamp, _ in entries])
        self.offsets = array("i", [offset for _, offset in entries])
        self.saved_count = -1 if content is None else len(entries)

    def __len__(self) -> int:
        return len(self.timestamps)

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Add the greatest timestamp up to the offset; no effect if it is not greater than that of the last
        entry.
        """
        timestamps = self.timestamps
        if timestamp > (timestamps[-1] if timestamps else NO_TIMESTAMP):
            timestamps.append(timestamp)
            self.offsets.append(relative_offset)

    @property
    def last(self) -> tuple[int, int]:
        """The timestamp and relative offset of the last entry; (-1, 0) if there is none."""
        return (self.timestamps[-1], self.offsets[-1]) if self.timestamps else (NO_TIMESTAMP, 0)

    def entry_below(self, timestamp: int) -> tuple[int, int]:
        """The timestamp and relative offset of the last entry older than `timestamp`; (-1, 0) if there is
        none.

        Every record before that offset is older than `timestamp`.
        """
        # A record with exactly the timestamp of an entry may be before the entry's offset.
        found = bisect_right(self.timestamps, timestamp - 1)
        return (self.timestamps[found - 1], self.offsets[found - 1]) if found else (NO_TIMESTAMP, 0)

    def truncate(self, relative_offset: int) -> None:
        """Drop the entries at `relative_offset` or beyond."""
        keep = bisect_right(self.offsets, relative_offset - 1)
        del self.timestamps[keep:]
        del self.offsets[keep:]
        self.saved_count = -1

    @property
    def is_plausible(self) -> bool:
        """Whether the entries have the order of an index that was written completely."""
        timestamps, offsets = self.timestamps, self.offsets
        steps = range(len(timestamps) - 1)
        return all(
            timestamps[at] < timestamps[at + 1] and offsets[at] <= offsets[at + 1] for at in steps
        ) and (not offsets or offsets[0] >= 0)

    def render(self) -> bytes:
        """The content of the file."""
        return b"".join(map(_ENTRY.pack, self.timestamps, self.offsets))
