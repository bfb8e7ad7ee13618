"""What the operating system raises, as the door tells it."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from .door import OutOfDescriptors, StorageError

OUT_OF_DESCRIPTORS = frozenset((errno.EMFILE, errno.ENFILE))


class Storage:
    """Turns what the operating system raises into a StorageError; a class, since a generator takes longer than many of the calls."""

    __slots__ = ("_call", "_path")

    def __init__(self, path: str, call: str) -> None:
        self._path = path
        self._call = call

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, OSError):
            raise storage_error(self._path, self._call, error) from error


def storage_error(path: str, call: str, error: OSError) -> StorageError:
    """What the operating system said, as the door tells it."""
    if error.errno in OUT_OF_DESCRIPTORS:
        return OutOfDescriptors(path, call, error.strerror or str(error))
    return StorageError(path, call, error.strerror or str(error), is_full=error.errno in (errno.ENOSPC, errno.EDQUOT))


@contextlib.contextmanager
def unless_gone(path: str) -> Iterator[None]:
    """Let a missing path pass: what was removed while its sync was under way (a deleted topic, a truncated segment) needs none."""
    try:
        yield
    except StorageError as error:
        if not isinstance(error.__cause__, FileNotFoundError) or Path(path).exists():
            raise
