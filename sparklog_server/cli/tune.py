"""`sparklog tune`: the settings of this machine that a broker depends on.

Each check reads files of /proc and /sys below a root, and judges what they say; a file that is absent or
unreadable makes the state ABSENT.
"""

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple

import click

from sparklog_server.cli.printing import as_json, print_json, print_table

TuneState = Literal["OK", "WARN", "ABSENT"]

FILE_CHARACTERS_MAX: Final = 4 << 20
SWAPPINESS_MAX: Final = 10
DIRTY_BACKGROUND_PERCENT_MAX: Final = 10
DIRTY_PERCENT_MIN: Final = 20
DIRTY_BYTES_MAX: Final = 1 << 30
SOMAXCONN_MIN: Final = 1_024
"""The default of socket.listen.backlog.size."""
MAPS_MIN: Final = 65_530
"""Linux's default: the broker maps only code and heap."""
FILES_MIN: Final = 16_384
"""max.connections (10 000) + sparklog.open.files.max (4 096) + the reserve (256), rounded up."""
READ_AHEAD_KB_MIN: Final = 128
_NETWORK_FILE_SYSTEMS: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "ceph", "glusterfs")
_MEMORY_FILE_SYSTEMS: Final = ("tmpfs", "ramfs")
EXIT_WARN = 1


@click.command()
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="Check the file system and the disk of this directory. [default: ./sparklog-data, or .]",
)
@as_json
def tune(directory: str | None, is_json: bool) -> int:
    """Compare settings of this machine with what a broker needs: value, advice and reason.

    Reads only; nothing is changed. Limits of processes are those of this shell. Exits with 1 if a setting
    should be changed. A setting that this machine does not have is shown as absent.
    """
    if directory is None:
        directory = "sparklog-data" if Path("sparklog-data").is_dir() else "."
    rows = checked(Machine.this(), directory)
    if is_json:
        print_json([one._asdict() for one in rows])
    else:
        print_table(
            ["state", "setting", "value", "advice", "why"],
            rows,
            emphasis={number: "yellow" for number, one in enumerate(rows) if one.state == "WARN"},
        )
    return EXIT_WARN if any(one.state == "WARN" for one in rows) else 0


class Row(NamedTuple):
    """One setting: its value as the system writes it, None where it is absent."""

    state: TuneState
    setting: str
    value: str | None
    advice: str
    why: str


class Mount(NamedTuple):
    """The mount that holds a directory."""

    point: str
    device: str
    type: str
    options: frozenset[str]


class Machine:
    """What the system says, below `root`. `files_max` is the hard limit of descriptors, None for none."""

    def __init__(self, root: str, *, files_max: int | None) -> None:
        self._root = Path(root)
        self.files_max = files_max

    @classmethod
    def this(cls) -> "Machine":
        """The machine that this process runs on."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        return cls("/", files_max=None if hard == resource.RLIM_INFINITY else hard)

    def text(self, path: str) -> str | None:
        """The content of a file, without the line end; None if there is none that can be read."""
        try:
            with (self._root / path).open(encoding="utf-8", errors="replace") as file:
                return file.read(FILE_CHARACTERS_MAX).strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """A file that has one number; None for any other."""
        text = self.text(path)
        return int(text) if text is not None and text.isdecimal() and len(text) < 20 else None

    def mount_of(self, directory: str) -> Mount | None:
        """The mount of a directory: that with the longest path; of mounts over each other, the last."""
        at, found = os.path.realpath(directory), None
        for line in (self.text("proc/self/mountinfo") or "").splitlines():
            mount = _mount(line)
            if mount is None or not _lies_in(at, mount.point):
                continue
            if found is None or len(mount.point) >= len(found.point):
                found = mount
        return found

    def queue(self, device: str, name: str) -> int | None:
        """A number of the queue of a block device, or of the disk of a partition."""
        for path in (f"sys/dev/block/{device}/queue/{name}", f"sys/dev/block/{device}/../queue/{name}"):
            found = self.number(path)
            if found is not None:
                return found
        return None


def checked(machine: Machine, directory: str) -> list[Row]:
    """Every check, in the order of the page."""
    mount = machine.mount_of(directory)
    return [
        _swappiness(machine),
        _dirty_background(machine),
        _dirty(machine),
        _at_least(
            "vm.max_map_count",
            machine.number("proc/sys/vm/max_map_count"),
            MAPS_MIN,
            "the broker maps no files; a node of Kafka on this machine maps two for each segment (262144)",
        ),
        _huge_pages(machine),
        _at_least(
            "net.core.somaxconn",
            machine.number("proc/sys/net/core/somaxconn"),
            SOMAXCONN_MIN,
            "it bounds socket.listen.backlog.size: clients that reconnect at once wait in this queue",
        ),
        _files(machine),
        _at_least(
            "fs.file-max",
            machine.number("proc/sys/fs/file-max"),
            FILES_MIN,
            "connections and open segments of all processes share it",
        ),
        _file_system(mount),
        _access_times(mount),
        _discard(mount),
        _read_ahead(machine, mount),
    ]


def _judged(setting: str, value: object, advice: str, why: str, is_ok: Callable[[], bool]) -> Row:
    if value is None:
        return Row("ABSENT", setting, None, advice, why)
    return Row("OK" if is_ok() else "WARN", setting, str(value), advice, why)


def _at_least(setting: str, value: int | None, least: int, why: str) -> Row:
    return _judged(setting, value, f"at least {least}", why, lambda: value is not None and value >= least)


def _swappiness(machine: Machine) -> Row:
    value = machine.number("proc/sys/vm/swappiness")
    swaps = machine.text("proc/swaps")
    has_swap = swaps is None or len(swaps.splitlines()) > 1
    why = "memory of the broker that is swapped out stalls its loop; page cache can be read again"
    if not has_swap:
        why = "no swap is active, so the value has no effect"
    return _judged(
        "vm.swappiness",
        value,
        "1",
        why,
        lambda: not has_swap or (value is not None and value <= SWAPPINESS_MAX),
    )


def _dirty_background(machine: Machine) -> Row:
    size, percent = _dirty_limit(machine, "dirty_background")
    return _judged(
        f"vm.dirty_background_{'bytes' if size else 'ratio'}",
        size or percent,
        "a ratio of 5",
        "below it nothing is written back: a later sync, or the limit of dirty pages, finds more to write",
        lambda: size <= DIRTY_BYTES_MAX if size else (percent or 0) <= DIRTY_BACKGROUND_PERCENT_MAX,
    )


def _dirty(machine: Machine) -> Row:
    size, percent = _dirty_limit(machine, "dirty")
    return _judged(
        f"vm.dirty_{'bytes' if size else 'ratio'}",
        size or percent,
        "a ratio of 60; at least 20",
        "above it each write waits for the disk, and with it the loop: bursts need room",
        lambda: bool(size) or (percent or 0) >= DIRTY_PERCENT_MIN,
    )


def _dirty_limit(machine: Machine, name: str) -> tuple[int, int | None]:
    """Bytes, 0 if the ratio counts instead; and the ratio."""
    return machine.number(f"proc/sys/vm/{name}_bytes") or 0, machine.number(f"proc/sys/vm/{name}_ratio")


def _huge_pages(machine: Machine) -> Row:
    text = machine.text("sys/kernel/mm/transparent_hugepage/enabled")
    chosen = None if text is None else text.partition("[")[2].partition("]")[0] or None
    return _judged(
        "transparent_hugepage",
        chosen,
        "madvise or never",
        "with always, small objects take 2 MiB pages, and the kernel stalls the process to make them",
        lambda: chosen in ("madvise", "never"),
    )


def _files(machine: Machine) -> Row:
    why = (
        "the broker raises its limit to the hard one: max.connections and sparklog.open.files.max share it "
        "(LimitNOFILE= of systemd, nofile of limits.conf)"
    )
    if machine.files_max is None:
        return Row("OK", "hard limit of open files", "unlimited", f"at least {FILES_MIN}", why)
    return _at_least("hard limit of open files", machine.files_max, FILES_MIN, why)


def _file_system(mount: Mount | None) -> Row:
    kind = None if mount is None else mount.type
    why = "Kafka's files need an fsync that reaches the disk, and appends that do not wait for a network"
    if kind in _MEMORY_FILE_SYSTEMS:
        why = "it is memory: every record is lost with the power"
    return _judged(
        "file system",
        kind,
        "xfs or ext4 on a local disk",
        why,
        lambda: kind not in _MEMORY_FILE_SYSTEMS and str(kind).partition(".")[0] not in _NETWORK_FILE_SYSTEMS,
    )


def _access_times(mount: Mount | None) -> Row:
    options = None if mount is None else mount.options
    value = None
    if options is not None:
        value = next((one for one in ("noatime", "relatime") if one in options), "strictatime")
    why = "each read of a segment would write its access time"
    if value == "relatime":
        why = "a segment that is read has its access time written once a day; noatime spares that"
    return _judged("access times", value, "noatime", why, lambda: value != "strictatime")


def _discard(mount: Mount | None) -> Row:
    value = None
    if mount is not None:
        value = "discard" if any(one.partition("=")[0] == "discard" for one in mount.options) else "nodiscard"
    return _judged(
        "discard",
        value,
        "nodiscard, and fstrim.timer",
        "with discard, the removal of a segment sends its blocks to the disk at once, ahead of syncs",
        lambda: value == "nodiscard",
    )


def _read_ahead(machine: Machine, mount: Mount | None) -> Row:
    value = None if mount is None else machine.queue(mount.device, "read_ahead_kb")
    return _judged(
        "read_ahead_kb",
        value,
        f"at least {READ_AHEAD_KB_MIN}",
        "readers of old segments read in sequence: with less, each waits for the disk more often",
        lambda: value is not None and value >= READ_AHEAD_KB_MIN,
    )


def _mount(line: str) -> Mount | None:
    """A line of mountinfo: `id parent major:minor root point options … - type source super-options`."""
    before, _, after = line.partition(" - ")
    fields, behind = before.split(" "), after.split(" ")
    if len(fields) < 6 or len(behind) < 3:
        return None
    options = frozenset((*fields[5].split(","), *behind[2].split(",")))
    return Mount(_unescaped(fields[4]), fields[2], behind[0], options)


def _unescaped(path: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path


def _lies_in(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")
