"""Copies of the bytes that recovery truncates, kept beside the log for the operator, within a bound.

    <base offset>.log.cut-<wall clock, ms>-<position>   the bytes of that log from `position` to its end

The broker never reads them. The bound holds for a whole log directory. Copies from earlier starts are removed
first, the oldest before the others. If a cut exceeds the bound by itself, or the disk has no space, there is
no copy, and the event says so.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from sparklog.model import Millis, Offset
from sparklog_server.disk.door import Disk, DiskFile, StorageError

BYTES_MAX: Final = 256 << 20
CUT_NAME: Final = r"(?a)(\d{20})\.log\.cut-(\d{1,19})-(\d{1,19})"
_WINDOW_BYTES: Final = 1 << 20


class CutName(msgspec.Struct, frozen=True):
    """The fields of the name of a copy."""

    base_offset: Offset
    wall_ms: Millis
    position: int


class Cut(msgspec.Struct, frozen=True):
    """A truncation by recovery: `size` bytes from `position` on of the log at `path`, where the record with
    `offset` was due.

    `is_followed` tells whether the bytes, or a later segment, contain a sound batch. `copy` is the path of
    the copy; None if there is none, and `reason` then has the cause.
    """

    path: str
    position: int
    offset: Offset
    size: int
    is_followed: bool
    copy: str | None
    reason: str

    @property
    def fields(self) -> dict[str, object]:
        """The fields of the event `log-cut`."""
        return {
            "path": self.path,
            "position": self.position,
            "offset": self.offset,
            "bytes": self.size,
            "sound_batches_follow": "true" if self.is_followed else "false",
            "copy": self.copy or "none",
            "reason": self.reason,
        }


def parse_cut_name(name: str) -> CutName | None:
    """The fields of a file name, if the file is such a copy."""
    found = re.fullmatch(CUT_NAME, name)
    return None if found is None else CutName(Offset(int(found[1])), Millis(int(found[2])), int(found[3]))


class Cuts:
    """The cuts that one start makes, and their copies. `made` has them in order."""

    def __init__(
        self, disk: Disk, directories: Callable[[], list[str]], now_ms: Millis, *, bytes_max: int = BYTES_MAX
    ) -> None:
        """`directories` returns the directories that share the bound; it is called at the first cut."""
        self.made: list[Cut] = []
        self._disk = disk
        self._directories = directories
        self._now_ms = now_ms
        self._bytes_max = bytes_max
        self._used_bytes = 0
        self._earlier: list[tuple[Millis, str, int]] | None = None  # the newest first

    def cut(self, file: DiskFile, position: int, offset: Offset, *, is_followed: bool, reason: str) -> None:
        """Copy the bytes from `position` on durably, and truncate the log there. Raises StorageError."""
        size = file.size - position
        copy = self._copy(file, position) if self._has_room(size) else None
        file.truncate(position)
        self._note(file.path, position, offset, size, copy, is_followed=is_followed, reason=reason)

    def remove(self, file: DiskFile, offset: Offset, *, is_followed: bool, reason: str) -> None:
        """Remove a whole log file; it is renamed to a copy if the bound allows. Raises StorageError."""
        size = file.size
        copy = self._renamed(file.path) if size and self._has_room(size) else None
        if copy is None:
            self._disk.remove(file.path)
        else:
            self._used_bytes += size
        if size:
            self._note(file.path, 0, offset, size, copy, is_followed=is_followed, reason=reason)

    def _note(
        self,
        path: str,
        position: int,
        offset: Offset,
        size: int,
        copy: str | None,
        *,
        is_followed: bool,
        reason: str,
    ) -> None:
        if copy is None:
            reason = f"{reason}; no room for a copy"
        self.made.append(Cut(path, position, offset, size, is_followed, copy, reason))

    def _has_room(self, size: int) -> bool:
        """Whether a copy of `size` bytes fits once copies from earlier starts are removed."""
        if size > self._bytes_max:
            return False
        if self._earlier is None:
            self._earlier = sorted(self._found(), reverse=True)
            self._used_bytes = sum(size for _, _, size in self._earlier)
        while self._used_bytes + size > self._bytes_max and self._earlier:
            _, path, freed = self._earlier.pop()
            self._disk.remove(path)
            self._used_bytes -= freed
        return self._used_bytes + size <= self._bytes_max

    def _found(self) -> Iterator[tuple[Millis, str, int]]:
        for directory in self._directories():
            for name in self._disk.list(directory):
                parsed = parse_cut_name(name)
                if parsed is not None:
                    yield parsed.wall_ms, f"{directory}/{name}", self._disk.size(f"{directory}/{name}")

    def _renamed(self, path: str) -> str | None:
        copy = self._new_path(path, 0)
        try:
            self._disk.rename(path, copy)
        except StorageError as error:
            if not error.is_full:
                raise
            return None
        return copy

    def _copy(self, file: DiskFile, position: int) -> str | None:
        path = self._new_path(file.path, position)
        copy = self._disk.open(path, create=True)
        try:
            for at in range(position, file.size, _WINDOW_BYTES):
                copy.append(file.pread(at, _WINDOW_BYTES))
            self._disk.sync([copy])
        except StorageError as error:
            copy.close()
            if not error.is_full:
                raise
            self._disk.remove(path)
            return None
        copy.close()
        self._used_bytes += copy.size
        return path

    def _new_path(self, log_path: str, position: int) -> str:
        """A name that no copy has yet: the wall clock may have been set back."""
        directory, _, name = log_path.rpartition("/")
        names = frozenset(self._disk.list(directory))
        at_ms: int = self._now_ms
        while f"{name}.cut-{at_ms}-{position}" in names:
            at_ms += 1
        return f"{log_path}.cut-{at_ms}-{position}"
