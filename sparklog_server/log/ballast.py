"""A file that only takes room, so that a broker can start and metadata can change on a disk that others have filled to the last byte.

    kept ── no room at a start, or for the metadata log ──► given up ── there is room again ──► kept

Without it a full disk would keep the broker from writing down its vote, without which it serves nothing, and an operator from deleting a
topic. A file system that compresses zeros away has nothing to give back.
"""

from collections.abc import Sequence

from sparklog_server.disk.door import Disk, StorageError

FILE_NAME = ".sparklog-ballast"
BALLAST_BYTES = 256 << 10
_ROOM_BYTES_MIN = 64 * BALLAST_BYTES
"""Less room than this is worth more than the ballast."""


def keep(disk: Disk, directory: str) -> None:
    """Have the ballast there, unless the disk has little room. It need not survive a crash."""
    path = f"{directory}/{FILE_NAME}"
    try:
        if disk.size(path) != BALLAST_BYTES and disk.room(directory)[1] >= _ROOM_BYTES_MIN:
            file = disk.open(path, create=True)
            file.truncate(0)
            file.append(bytes(BALLAST_BYTES))
            file.close()
    except StorageError:
        pass  # a disk that fails is met by the next write that counts


def give_up(disk: Disk, directory: str) -> bool:
    """Remove the ballast; whether there was any. Blocks. Raises StorageError."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.size(path):
        return False
    disk.remove(path)
    return True


def give_up_if_full(disk: Disk, directory: str) -> None:
    """Remove the ballast where there is less room than it takes. Blocks. Raises StorageError."""
    if disk.room(directory)[1] < BALLAST_BYTES:
        give_up(disk, directory)


def rename_all(disk: Disk, directory: str, moves: Sequence[tuple[str, str]]) -> None:
    """Rename what is about to be removed, at the price of the ballast of `directory` if a full disk has no room for the names.

    Blocks. Raises StorageError.
    """
    try:
        disk.rename_all(moves)
    except StorageError as error:
        if not error.is_full or not give_up(disk, directory):
            raise
    else:
        return
    names = {parent: frozenset(disk.list(parent)) for parent in dict.fromkeys(old.rpartition("/")[0] for old, _ in moves)}
    left = [(old, new) for old, new in moves if old.rpartition("/")[2] in names[old.rpartition("/")[0]]]
    disk.rename_all([*left, *((new, new) for _, new in moves[-1:])])  # the last makes those before it lasting, also where none is left
