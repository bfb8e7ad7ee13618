"""A disk in memory that can lose power, fill up and fail, behind the same interface as the real one.

    names:    live ── sync, rename, remove, make_directory ──► durable
              A crash keeps the durable names and, by the seed, some others.
    content:  durable bytes │ unsynced bytes
              A crash keeps the durable bytes and, by the seed, part of the rest: a prefix, a prefix
              with holes of zeros, all or nothing.

    sync:     begin_sync ── time passes ──► finish_sync makes durable what was there at its beginning

It is stricter than any real disk: syncing one file makes no other file durable, and every new name may vanish
on its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple, TypeVar

from sparklog_server.disk.door import Buffer, DirectoryInUse, DiskFile, StorageError

SECTOR_BYTES = 512
ASIDE_SUFFIX = ".tmp"
_Named = TypeVar("_Named")
Fault = Callable[[str, str], str | None]
"""Called before each call with (call, path): returns the reason why the call fails, or None."""
NO_SPACE = "No space left on device"
READ_ONLY = "Read-only file system"
_CHANGING = frozenset(("append", "truncate", "replace", "rename", "remove", "mkdir", "create", "lock"))
"""The calls that a read-only file system refuses."""


class _Content:
    """The bytes of one file. `[0, durable)` survives a crash; `cut_off` holds the durable bytes that an
    unsynced truncation removed.
    """

    __slots__ = ("cut_off", "durable", "live", "syncs")

    def __init__(self, live: bytes = b"") -> None:
        self.live = bytearray(live)
        self.durable = len(live)
        self.cut_off = b""
        self.syncs: list[_ContentSync] = []

    def truncate(self, size: int) -> None:
        for sync in self.syncs:
            sync.is_before_truncation = True
            sync.size = min(sync.size, size)
        if size < self.durable:
            self.cut_off = bytes(self.live[size : self.durable]) + self.cut_off
            self.durable = size
        del self.live[size:]

    def sync(self) -> None:
        self.durable = len(self.live)
        self.cut_off = b""

    def begin_sync(self) -> "_ContentSync":
        sync = _ContentSync(self)
        self.syncs.append(sync)
        return sync

    def crash(self, random: Random) -> None:
        if self.cut_off and random.random() < 0.5:
            self.live[self.durable :] = self.cut_off  # the truncation was lost, and later writes with it
        else:
            self._tear(random)
        self.sync()

    def _tear(self, random: Random) -> None:
        unsynced = len(self.live) - self.durable
        fate = random.random()
        if unsynced == 0 or fate < 0.2:
            return
        kept = 0 if fate < 0.4 else random.randrange(unsynced + 1)
        del self.live[self.durable + kept :]
        if fate < 0.8:
            return
        for sector in range(self.durable // SECTOR_BYTES, len(self.live) // SECTOR_BYTES + 1):
            if random.random() < 0.3:
                begin, end = (
                    max(sector * SECTOR_BYTES, self.durable),
                    min((sector + 1) * SECTOR_BYTES, len(self.live)),
                )
                self.live[begin:end] = bytes(max(end - begin, 0))


class _ContentSync:
    """A sync of one content: `size` bytes, which were there when it began and were not truncated since."""

    __slots__ = ("content", "is_before_truncation", "size")

    def __init__(self, content: _Content) -> None:
        self.content = content
        self.size = len(content.live)
        self.is_before_truncation = False

    def finish(self) -> None:
        content = self.content
        content.syncs.remove(self)
        if not self.is_before_truncation:
            content.cut_off = b""
        content.durable = max(content.durable, self.size)


class PendingSync(NamedTuple):
    """A sync that has begun. A crash forgets it."""

    files: Sequence["SimulatedFile"]
    contents: list[_ContentSync]


class DiskImage(NamedTuple):
    """A copy of a whole disk."""

    directories: dict[str, None]
    files: dict[str, bytes]


class SimulatedFile:
    """An open file of a `SimulatedDisk`. It dies with the process that a crash ends."""

    __slots__ = ("_boot", "_disk", "_is_closed", "_retained", "content", "path", "place", "size")

    def __init__(
        self, disk: "SimulatedDisk", path: str, content: _Content, *, place: str | None = None
    ) -> None:
        self.path = path
        self.content = content
        self.place = place
        self.size = len(content.live)
        self._disk = disk
        self._boot = disk.boot
        self._is_closed = False
        self._retained = 0

    def append(self, data: Buffer) -> int:
        """Write `data` at the end, whole, and return the position where it begins; nothing is written on
        failure.
        """
        self.check("append")
        self._disk.take_space(self.path, len(data))
        position = self.size
        self.content.live += data
        self.size = position + len(data)
        return position

    def pread(self, position: int, length: int) -> bytes:
        """The bytes `[position, position + length)`, fewer at the end of the file."""
        self.check("read")
        return bytes(self.content.live[position : min(position + max(length, 0), self.size)])

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, which must not exceed its size."""
        self.check("truncate")
        assert size <= self.size, self.path
        self._disk.take_space(self.path, size - self.size)
        self.content.truncate(size)
        self.size = size

    def pin(self) -> None:
        """Ignored: the content does not depend on the name."""

    def retain(self) -> None:
        """Keep the file readable after `close`, until the `release` that belongs to this call."""
        self._retained += 1

    def release(self) -> None:
        """The reader that called `retain` is done; the last one closes a file that its owner has closed."""
        self._retained -= 1
        assert self._retained >= 0, self.path

    def close(self) -> None:
        """The owner closes the file: it closes at once, or with the last `release`."""
        self._is_closed = True

    def check(self, call: str) -> None:
        """Raise StorageError if the disk's fault fails this call."""
        if self._is_closed and not self._retained and call != "sync":
            raise StorageError(self.path, call, "the file was closed meanwhile")
        assert self._boot == self._disk.boot, f"{self.path}: {call} through a handle from before the crash"
        self._disk.check(call, self.path)


_UNBOUNDED_BYTES = 1 << 40


class _Names(dict[str, _Named]):
    """What is at each path. `inside` has the names in each directory, as listing all paths takes long."""

    def __init__(self, names: Mapping[str, _Named]) -> None:
        super().__init__()
        self.inside: dict[str, set[str]] = {}
        for path, named in names.items():
            self[path] = named

    def __setitem__(self, path: str, named: _Named) -> None:
        directory, slash, name = path.rpartition("/")
        if slash and path not in self:
            self.inside.setdefault(directory, set()).add(name)
        super().__setitem__(path, named)

    def take(self, path: str) -> _Named | None:
        """Remove a path and return what was there."""
        directory, slash, name = path.rpartition("/")
        if slash and path in self:
            self.inside[directory].remove(name)
        return self.pop(path, None)


class SimulatedDisk:
    """Files in memory.

    `capacity_bytes` bounds the sum of file sizes; `fault` may fail any call; while `is_read_only` every
    change is refused. All may be set at any time. Invariant: after a crash, each name in `_durable` has the
    file it maps to, of which only synced bytes are certain.
    """

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.fault: Fault | None = None
        self.is_read_only = False
        self.boot = 0
        self._power_cuts = 0
        self.used_bytes = 0
        self._directories = _Names[None]({})
        self._live = _Names[_Content]({})
        self._durable = _Names[_Content]({})
        self._unlasting: list[tuple[str, str]] = []  # renames that a crash may undo
        self._unlasting_removals: dict[str, _Content] = {}
        self._locked: dict[str, None] = {}
        self._replaced_count = 0

    # -- crashes and faults

    @property
    def boot_id(self) -> str:
        """The boot of the machine: it changes when unsynced bytes may be lost."""
        return f"boot-{self._power_cuts}"

    def crash(self, random: Random) -> None:
        """Cut the power: everything synced stays, and part of the rest, as `random` decides."""
        self.restart()
        self._power_cuts += 1
        for old, new in reversed(self._unlasting):
            if random.random() < 0.5:
                self._move(self._live, new, old)
                self._move(self._durable, new, old)
                self._move(self._directories, new, old)
        self._unlasting.clear()
        for path, content in self._unlasting_removals.items():
            if random.random() < 0.5:
                self._durable[path] = content
                self._directories[_parent(path)] = None
        self._unlasting_removals.clear()
        survivors = dict(self._durable)
        for path in sorted(self._live):
            if path not in survivors and random.random() < 0.5:
                survivors[path] = self._live[path]
        for path in sorted(survivors):
            survivors[path].crash(random)
        self._live = _Names(survivors)
        self._durable = _Names(survivors)
        self.used_bytes = sum(len(content.live) for content in survivors.values())

    def restart(self) -> None:
        """Kill only the process: every written byte stays, all handles and locks are released."""
        self.boot += 1
        self._locked.clear()
        for content in self._live.values():
            content.syncs.clear()

    def image(self) -> DiskImage:
        """A copy of the disk, which `restore` brings back later."""
        return DiskImage(
            dict(self._directories), {path: bytes(content.live) for path, content in self._live.items()}
        )

    def durable(self, path: str) -> bytes | None:
        """The bytes of a file that any crash keeps; None if a crash may lose the file."""
        content = self._durable.get(path)
        return None if content is None else bytes(content.live[: content.durable])

    def restore(self, image: DiskImage) -> None:
        """Kill the process and go back to an older state of the disk; all of it is durable."""
        self.restart()
        self._power_cuts += 1
        self._unlasting.clear()
        self._unlasting_removals.clear()
        self._directories = _Names(image.directories)
        self._live = _Names({path: _Content(content) for path, content in image.files.items()})
        self._durable = _Names(self._live)
        self.used_bytes = sum(map(len, image.files.values()))

    def wipe(self) -> None:
        """Kill the process and replace the disk with an empty one."""
        self.restore(DiskImage({}, {}))

    def take_space(self, path: str, size: int) -> None:
        """Count `size` more bytes as used. Raises StorageError if the disk is full."""
        if size > 0 and self.capacity_bytes is not None and self.used_bytes + size > self.capacity_bytes:
            raise StorageError(path, "append", NO_SPACE, is_full=True)
        self.used_bytes += size

    def check(self, call: str, path: str) -> None:
        """Raise StorageError if `fault` fails this call."""
        if self.is_read_only and call in _CHANGING:
            raise StorageError(path, call, READ_ONLY)
        if self.fault is not None:
            reason = self.fault(call, path)
            if reason is not None:
                raise StorageError(path, call, reason, is_full=reason == NO_SPACE and call != "sync")

    # -- the interface

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        """Open for appending and reading; with `create`, a missing file is made empty."""
        self.check("open", path)
        content = self._live.get(path)
        if content is None:
            if not create:
                raise StorageError(path, "open", "No such file or directory")
            content = self._make(path)
        return SimulatedFile(self, path, content)

    def _make(self, path: str) -> _Content:
        self.check("create", path)
        if _parent(path) not in self._directories:
            raise StorageError(path, "open", "No such file or directory")
        content = self._live[path] = _Content()
        return content

    def read(self, path: str) -> bytes | None:
        """The content of a small file; None if it does not exist."""
        self.check("read", path)
        content = self._live.get(path)
        return None if content is None else bytes(content.live)

    def replace(self, path: str, content: bytes) -> SimulatedFile:
        """Write a small file aside; the `sync` that gets the returned file makes it durable and puts it in
        place of `path`.
        """
        self._replaced_count += 1
        aside = f"{path}.{self._replaced_count}{ASIDE_SUFFIX}"
        self.check("replace", aside)
        file = SimulatedFile(self, aside, self._make(aside), place=path)
        try:
            file.append(content)
        except StorageError:
            self._drop(aside)
            raise
        return file

    def write(self, path: str, content: bytes) -> None:
        """`replace` and `sync` at once; on a full disk no file is left behind."""
        self.sync([self.replace(path, content)])

    def rename(self, old: str, new: str, *, is_lasting: bool = True) -> None:
        """Rename a file or directory; a later durable rename in the directory makes this one durable too."""
        self.check("rename", old)
        if old not in self._live and old not in self._directories:
            raise StorageError(old, "rename", "No such file or directory")
        self._move(self._live, old, new)
        self._move(self._durable, old, new)
        self._move(self._directories, old, new)
        if not is_lasting:
            self._unlasting.append((old, new))
        else:
            self._sync_directory(_parent(new))
            if new in self._live:
                self._durable[new] = self._live[new]

    def _sync_directory(self, directory: str) -> None:
        self._unlasting = [(was, now) for was, now in self._unlasting if _parent(now) != directory]

    @staticmethod
    def _move(names: _Names[_Named], old: str, new: str) -> None:
        for path in _within(names, old) if old != new else ():
            named = names[path]
            names.take(path)
            names[new + path[len(old) :]] = named

    def rename_all(self, moves: Sequence[tuple[str, str]]) -> None:
        """Rename (from, to) in this order; a crash before the last may undo any of them."""
        for old, new in moves:
            self.rename(old, new, is_lasting=False)
        for parent in dict.fromkeys(_parent(new) for _, new in moves):
            self.check("sync", parent)
            self._sync_directory(parent)
        for _, new in moves:
            if new in self._live:
                self._durable[new] = self._live[new]

    def size(self, path: str) -> int:
        """The size of a file in bytes; 0 if it does not exist."""
        self.check("stat", path)
        content = self._live.get(path)
        return 0 if content is None else len(content.live)

    def remove(self, *paths: str) -> None:
        """Remove files, or directories with their content, durably; missing ones are ignored.

        A crash before the end may restore any of the files.
        """
        self._unlasting_removals.clear()
        for path in paths:
            try:
                self.check("remove", path)
            except StorageError:
                self._unlasting_removals.clear()
                raise
            for file in _within(self._live, path):
                if file in self._durable:
                    self._unlasting_removals[file] = self._durable[file]
                self._drop(file)
            for directory in _within(self._directories, path):
                self._directories.take(directory)
        self._unlasting_removals.clear()

    def _drop(self, path: str) -> None:
        content = self._live.take(path)
        self._durable.take(path)
        if content is not None:
            self.used_bytes -= len(content.live)

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty if it is missing, or none."""
        self.check("list", directory)
        return sorted(
            name for names in (self._live, self._directories) for name in names.inside.get(directory, ())
        )

    def room(self, directory: str) -> tuple[int, int]:
        """(total, usable) bytes: all directories lie in one file system."""
        self.check("statvfs", directory)
        total = _UNBOUNDED_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return total, max(total - self.used_bytes, 0)

    def make_directory(self, *paths: str) -> None:
        """Make directories and their parents, and make their entries durable."""
        for path in paths:
            self.check("mkdir", path)
            at = path
            while at and at not in self._directories:
                self._directories[at] = None
                at = _parent(at)
            self._directories[""] = None

    def sync(self, files: Sequence[DiskFile]) -> None:
        """Make content, names and places of these files durable."""
        self.finish_sync(self.begin_sync(files))

    def begin_sync(self, files: Sequence[DiskFile]) -> PendingSync:
        """Begin a sync, which covers the bytes written so far."""
        ours = []
        for file in files:
            assert isinstance(file, SimulatedFile), "a file of another disk"
            ours.append(file)
        return PendingSync(ours, [file.content.begin_sync() for file in ours])

    def finish_sync(self, pending: PendingSync) -> None:
        """Make durable what the sync covers. Raises StorageError."""
        for file, content in zip(pending.files, pending.contents, strict=True):
            file.check("sync")
            content.finish()
            if file.place is not None and self._live.get(file.path) is file.content:
                self._drop(file.place)
                self._live.take(file.path)
                self._live[file.place] = file.content
                self._durable.take(file.path)
                file.path, file.place = file.place, None
            if self._live.get(file.path) is file.content:
                self._durable[file.path] = file.content

    def lock(self, directory: str) -> None:
        """Hold the directory until `unlock` or a crash. Raises DirectoryInUse."""
        self.check("lock", directory)
        if directory in self._locked:
            raise DirectoryInUse(directory)
        self._locked[directory] = None

    def unlock(self, directory: str) -> None:
        """Release the directory; ignored if it is not held."""
        self._locked.pop(directory, None)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _within(names: Iterable[str], path: str) -> list[str]:
    """The names at or below `path`."""
    return [name for name in names if name == path or name.startswith(f"{path}/")]
