"""A file that one connection reads in order from the disk, and how far jobs read ahead of it.

    first cold slice ─► a job reads it, and the connection waits
          │
          └── the next slice begins at its end ─► jobs read `AHEAD_BYTES` beyond each slice: the connection
                    │                             does not wait, and no turn begins a read of the kernel's
                    └── a job has reached the end of the file ─► the run is over

A reader at the end of a log finds the pages that were just written, so it has no run.
"""

from typing import Final, Protocol

JOB_BYTES: Final = 1 << 20
AHEAD_BYTES: Final = 4 << 20
"""More than two slices of a follower: the header of a batch, which ends a slice, is read within a turn."""


class Growing(Protocol):
    """A file; `size` is its length in bytes."""

    @property
    def size(self) -> int: ...


class ColdRun:
    """Invariants: the pages from the first slice up to `limit` were in the page cache at some time, so each
    slice is probed before it is sent; one job at a time reads on, up to `goal` at most; `slice_limit` is the
    end of the last slice.
    """

    __slots__ = ("_file", "goal", "is_reading", "limit", "slice_limit")

    def __init__(self, file: Growing, position: int, slice_limit: int) -> None:
        self._file = file
        self.is_reading = False
        self.limit = position
        self.slice_limit = self.goal = slice_limit

    def continues_with(self, position: int, slice_limit: int) -> bool:
        """Whether the rest `[position, slice_limit)` of a slice belongs to the run, as the rest of its last
        slice, or as the next one.
        """
        if slice_limit == self.slice_limit:
            return position <= self.limit
        if position != self.slice_limit:
            return False
        self.slice_limit = slice_limit
        self.goal = slice_limit + AHEAD_BYTES
        return True

    def found(self, limit: int) -> None:
        """The pages below `limit` are in the page cache: a job has read them, or the kernel has."""
        self.limit = max(self.limit, limit)

    @property
    def is_over(self) -> bool:
        """Whether jobs have read the file up to its end."""
        return self.limit >= self._end

    def next_limit(self) -> int | None:
        """The end of the range from `limit` on that a job should read now; None if there is none."""
        limit = min(self.limit + JOB_BYTES, self.goal, self._end)
        return limit if limit > self.limit and not self.is_reading else None

    @property
    def _end(self) -> int:
        """A slice may exceed its file, if that was damaged: this is found when it is sent."""
        return max(self._file.size, self.slice_limit)
