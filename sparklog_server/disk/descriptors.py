"""Files of the operating system with a limit on open descriptors: positioned reads and writes; descriptors
are opened on demand and taken from idle files.

The lock of this module guards the table of open descriptors, which the loop shares with other threads: no
descriptor is closed between its lookup and its duplication.
"""

import contextlib
import os
import time
import weakref
from collections import deque
from collections.abc import Callable
from threading import Lock, get_ident
from typing import TypeVar

from .door import Buffer, OutOfDescriptors, StorageError
from .failures import OUT_OF_DESCRIPTORS, Storage, storage_error
from .syscalls import FILE_MODE

_WAIT_FOR_DESCRIPTOR_S = 0.02
_CLOSED = -1
_Made = TypeVar("_Made")


class OsFile:
    """A file of the operating system, whose descriptor is opened on demand.

    Invariants: only `[0, size)` counts, even if a failed write left bytes after it; a pinned file keeps its
    descriptor regardless of the limit on open files; the descriptor of a closed file is closed with the last
    `release`, or for another file, and never opened again. Threads other than the loop may read the file;
    each closes the descriptors that it opened.
    """

    __slots__ = (
        "__weakref__",
        "_descriptors",
        "_fd",
        "_is_of_job",
        "_retained",
        "_seen_size",
        "_was_read",
        "has_new_name",
        "is_closed",
        "is_pinned",
        "path",
        "place",
        "size",
    )

    def __init__(
        self,
        descriptors: "Descriptors",
        path: str,
        size: int,
        *,
        has_new_name: bool = False,
        place: str | None = None,
    ) -> None:
        self.path = path
        self.size = size
        self.is_closed = False
        self.is_pinned = False
        self._descriptors = descriptors
        self._fd = _CLOSED
        self.has_new_name = has_new_name
        self._is_of_job = not descriptors.is_loop
        self.place = place
        self._retained = 0
        self._seen_size = size
        self._was_read = False

    def append(self, data: Buffer) -> int:
        """Write all of `data` at the end, and return its position; on failure the file is truncated to its
        former size.
        """
        position = self.size
        fd = self._fd
        try:
            written = os.pwrite(fd if fd >= 0 else self.fileno(), data, position)
            if written != len(data):
                self._write_rest(data, written)
        except OSError as error:
            raise storage_error(self.path, "append", error, is_undone=self._is_cut_back()) from error
        self.size = position + len(data)
        return position

    def _is_cut_back(self) -> bool:
        """Truncate the bytes of a failed write; returns whether that worked."""
        try:
            os.ftruncate(self.fileno(), self.size)
        except (OSError, StorageError):
            return False
        return True

    def _write_rest(self, data: Buffer, written: int) -> None:
        """Linux writes at most 2 GiB - 4 KiB at once, and less if the disk becomes full: the next call then
        has the reason.
        """
        rest = memoryview(data)
        while written < len(rest):
            written += os.pwrite(self.fileno(), rest[written:], self.size + written)

    def pread(self, position: int, length: int) -> bytes:
        """The bytes `[position, position + length)`, fewer at the end of the file."""
        length = min(length, self.size - position)
        if length <= 0:
            return b""
        try:
            if self._is_of_job or self._descriptors.is_loop:
                return os.pread(self.fileno(), length, position)
            fd = self._descriptors.borrow(self)
            try:
                return os.pread(fd, length, position)
            finally:
                os.close(fd)
        except OSError as error:
            raise storage_error(self.path, "read", error) from error

    def fileno(self) -> int:
        """The open descriptor, valid until control returns to the loop; opened again if it was taken."""
        self._was_read = True
        return self._fd if self._fd >= 0 else self._descriptors.open(self)

    def borrow(self) -> int:
        """A descriptor for one call of another thread, which closes it. Raises StorageError."""
        return self._descriptors.borrow(self)

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes, which must not exceed its size."""
        assert size <= self.size, self.path
        with Storage(self.path, "truncate"):
            os.ftruncate(self.fileno(), size)
        self.size = size

    def pin(self) -> None:
        """Open the file now and keep it open until `close`, because its name is about to change. Raises
        StorageError.
        """
        self.fileno()
        self.is_pinned = True

    def retain(self) -> None:
        """Keep the file readable after `close`, until the matching `release`."""
        self._retained += 1

    def release(self) -> None:
        """End one `retain`; the last one closes a file that its owner has closed."""
        self._retained -= 1
        assert self._retained >= 0, self.path
        if self.is_closed and not self._retained:
            self._descriptors.take(self)

    def close(self) -> None:
        """The owner closes the file: at once, or with the last `release`."""
        if self._retained and self._fd < 0 and not self.is_closed:
            # Another file may soon have its name. A slice of a file that cannot be opened now fails when it
            # is sent.
            with contextlib.suppress(StorageError):
                self.fileno()
        self.is_closed = True
        if not self._retained:
            self._descriptors.take(self)
        elif self._fd >= 0:
            self._descriptors.leave(self)

    def __del__(self) -> None:
        fd, self._fd = self._fd, _CLOSED
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


class Descriptors:
    """The open descriptors of one disk's files, at most `open_files_max`, up to half of them of closed files
    that are still being read.

    Only the loop's thread opens descriptors under this limit and takes them from files: a descriptor that a
    job of another thread uses could be closed between its lookup and its use, and its number be reused.
    Invariant: `_open` has one entry per file that holds a descriptor of the loop's, in the order of a clock
    hand: files used since the hand last passed stay.
    """

    def __init__(self, open_files_max: int, *, is_read_only: bool) -> None:
        assert open_files_max > 0
        self._is_read_only = is_read_only
        self._open_files_max = open_files_max
        self._open: deque[Callable[[], OsFile | None]] = deque()
        self._lingering: dict[OsFile, None] = {}  # closed and still being read, in the order of closing
        self._guard = Lock()
        self._loop_thread = get_ident()

    @property
    def is_loop(self) -> bool:
        """Whether this is the loop's thread."""
        return get_ident() == self._loop_thread

    def open(self, file: OsFile, flags: int | None = None) -> int:
        """Open a descriptor for `file`, and take one from a file that was not used lately if there are too
        many.
        """
        fd = self.retried(lambda: self._opened(file, flags))
        if not self.is_loop:
            file._fd = fd
            return fd
        with self._guard:
            file._fd = fd
            self._open.append(weakref.ref(file))
            self._take_away(max(1, self._open_files_max - len(self._lingering)))
        return fd

    def borrow(self, file: OsFile) -> int:
        """A descriptor of a file of the loop's for one call of another thread, which closes it."""

        def borrowed() -> int:
            with self._guard:
                return os.dup(file._fd) if file._fd >= 0 else self._opened(file)

        return self.retried(borrowed)

    def duplicate_for_sync(self, file: OsFile) -> int:
        """A descriptor of a file for one sync, also of a closed file; the caller closes it."""

        def duplicated() -> int:
            with self._guard:
                return os.dup(file._fd) if file._fd >= 0 else os.open(file.path, os.O_RDWR | os.O_CLOEXEC)

        return self.retried(duplicated)

    def leave(self, file: OsFile) -> None:
        """Keep a closed file open for its readers; if there are too many, the one closed first loses its
        descriptor, and its readers their connections.
        """
        self._lingering[file] = None
        if len(self._lingering) > max(1, self._open_files_max // 2):
            self.take(next(iter(self._lingering)))

    def take(self, file: OsFile) -> None:
        """Close the descriptor of a file without readers; no other thread is duplicating it meanwhile."""
        with self._guard:
            self._lingering.pop(file, None)
            fd, file._fd = file._fd, _CLOSED
        if fd >= 0:
            os.close(fd)

    def retried(self, call: Callable[[], _Made]) -> _Made:
        """Make a call that needs a descriptor. If there is none, the loop takes one from idle files, and
        another thread waits for one.

        Raises the errors of the call; on the loop also OutOfDescriptors or OSError if no file is idle.
        """
        while True:
            try:
                return call()
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                refusal: OSError | OutOfDescriptors = error
            except OutOfDescriptors as error:
                refusal = error
            if self.is_loop:
                if not self._give_back_idle():
                    raise refusal
            else:
                time.sleep(_WAIT_FOR_DESCRIPTOR_S)

    def _give_back_idle(self) -> bool:
        """Close half of the descriptors of files, those not used lately first; returns whether there were
        any.
        """
        with self._guard:
            count = len(self._open)
            self._take_away(count // 2)
            return len(self._open) < count

    def _opened(self, file: OsFile, flags: int | None = None) -> int:
        if file.is_closed:
            # Another file may have its path by now: a topic was deleted, and another created with its name.
            raise StorageError(file.path, "open", "the file was closed meanwhile")
        if flags is None:
            flags = os.O_RDONLY if self._is_read_only else os.O_RDWR
        with Storage(file.path, "open"):
            return os.open(file.path, flags | os.O_CLOEXEC, FILE_MODE)

    def _take_away(self, count_max: int) -> None:
        for _ in range(2 * len(self._open)):
            if len(self._open) <= count_max:
                return
            reference = self._open.popleft()
            file = reference()
            if file is None or file.is_closed or file.is_pinned or file._fd < 0:
                continue
            if file._was_read or file.size != file._seen_size:
                file._was_read = False
                file._seen_size = file.size
                self._open.append(reference)
                continue
            fd, file._fd = file._fd, _CLOSED
            os.close(fd)
