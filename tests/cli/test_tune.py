"""`sparklog tune`: what it says of a machine whose /proc and /sys are files of the test."""

from pathlib import Path

import pytest

from sparklog_server.cli.tune import Machine, Mount, Row, checked
from tests.cli.conftest import Tell

GOOD = {
    "proc/sys/vm/swappiness": "1",
    "proc/swaps": "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n",
    "proc/sys/vm/dirty_background_ratio": "5",
    "proc/sys/vm/dirty_background_bytes": "0",
    "proc/sys/vm/dirty_ratio": "60",
    "proc/sys/vm/dirty_bytes": "0",
    "proc/sys/vm/max_map_count": "262144",
    "proc/sys/net/core/somaxconn": "4096",
    "proc/sys/fs/file-max": "9223372036854775807",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "sys/dev/block/8:1/queue/read_ahead_kb": "256",
    "proc/self/mountinfo": (
        "1 0 8:0 / / rw,relatime - ext4 /dev/sda rw\n"
        "2 1 8:1 / {point} rw,noatime shared:1 - xfs /dev/sdb1 rw,attr2\n"
    ),
}


class Made:
    """A machine of files, in a directory that is its data directory too."""

    def __init__(self, directory: Path) -> None:
        self.root = directory
        for path, text in GOOD.items():
            self.write(path, text.replace("{point}", str(directory).replace(" ", "\\040")))

    def write(self, path: str, text: str) -> None:
        at = self.root / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text + "\n")

    def rows(self, files_max: int | None = 100_000) -> dict[str, Row]:
        machine = Machine(str(self.root), files_max=files_max)
        return {row.setting: row for row in checked(machine, str(self.root))}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    directory = tmp_path / "a disk"
    directory.mkdir()
    return Made(directory)


def test_a_machine_as_the_page_advises_has_no_warning(made: Made) -> None:
    rows = made.rows()
    assert {row.state for row in rows.values()} == {"OK"}
    assert rows["file system"].value == "xfs"
    assert rows["read_ahead_kb"].value == "256"
    assert all(row.advice and row.why for row in rows.values())


@pytest.mark.parametrize(
    ("path", "text", "setting"),
    [
        ("proc/sys/vm/swappiness", "60", "vm.swappiness"),
        ("proc/sys/vm/dirty_background_ratio", "20", "vm.dirty_background_ratio"),
        ("proc/sys/vm/dirty_background_bytes", str(2 << 30), "vm.dirty_background_bytes"),
        ("proc/sys/vm/dirty_ratio", "10", "vm.dirty_ratio"),
        ("proc/sys/vm/max_map_count", "1000", "vm.max_map_count"),
        ("proc/sys/net/core/somaxconn", "128", "net.core.somaxconn"),
        ("proc/sys/fs/file-max", "4096", "fs.file-max"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never", "transparent_hugepage"),
        ("sys/dev/block/8:1/queue/read_ahead_kb", "16", "read_ahead_kb"),
    ],
)
def test_a_value_that_costs_the_broker_is_a_warning(made: Made, path: str, text: str, setting: str) -> None:
    made.write(path, text)
    assert [name for name, row in made.rows().items() if row.state == "WARN"] == [setting]


@pytest.mark.parametrize(
    ("mounted", "setting"),
    [
        ("rw - tmpfs tmpfs rw,noatime", "file system"),
        ("rw,noatime - nfs4 server:/ rw", "file system"),
        ("rw,noatime - fuse.sshfs server:/ rw", "file system"),
        ("rw - xfs /dev/sdb1 rw", "access times"),
        ("rw,noatime - ext4 /dev/sdb1 rw,discard", "discard"),
        ("rw,noatime - btrfs /dev/sdb1 rw,discard=async", "discard"),
    ],
)
def test_the_mount_of_the_directory_is_judged(made: Made, mounted: str, setting: str) -> None:
    point = str(made.root).replace(" ", "\\040")
    made.write("proc/self/mountinfo", f"1 0 8:0 / / rw,noatime - ext4 a rw\n2 1 8:1 / {point} {mounted}")
    assert [name for name, row in made.rows().items() if row.state == "WARN"] == [setting]


def test_relatime_is_no_warning_and_swappiness_without_swap_neither(made: Made) -> None:
    made.write("proc/self/mountinfo", "1 0 8:1 / / rw,relatime - ext4 /dev/sda rw")
    made.write("proc/swaps", "Filename Type Size Used Priority")
    made.write("proc/sys/vm/swappiness", "60")
    rows = made.rows()
    assert {row.state for row in rows.values()} == {"OK"}
    assert rows["access times"].value == "relatime"
    assert "no effect" in rows["vm.swappiness"].why


def test_the_last_of_mounts_over_each_other_counts_and_its_partition_has_the_queue_of_its_disk(
    made: Made,
) -> None:
    made.write("sys/dev/block/8:3/partition", "3")
    made.write("sys/dev/block/queue/read_ahead_kb", "512")
    made.write(
        "proc/self/mountinfo",
        "1 0 8:0 / / rw - ext4 a rw\n2 1 8:0 / / rw,noatime - tmpfs b rw\n3 1 8:3 / / rw,noatime - xfs c rw\n"
        "4 1 8:0 / /elsewhere rw - tmpfs d rw",
    )
    found = Machine(str(made.root), files_max=None).mount_of(str(made.root))
    assert found == Mount("/", "8:3", "xfs", frozenset(("rw", "noatime")))
    assert made.rows()["read_ahead_kb"].value == "512"


def test_what_a_machine_does_not_have_is_absent_and_no_warning(tmp_path: Path) -> None:
    rows = checked(Machine(str(tmp_path), files_max=None), str(tmp_path))
    assert {row.state for row in rows if row.setting != "hard limit of open files"} == {"ABSENT"}
    assert [row.value for row in rows if row.state == "OK"] == ["unlimited"]


def test_nonsense_in_a_file_is_absent(made: Made) -> None:
    for path in GOOD:
        made.write(path, "-1 \u202e" + "9" * 50)
    states = {name: row.state for name, row in made.rows().items()}
    assert states.pop("hard limit of open files") == "OK"
    assert set(states.values()) == {"ABSENT"}


def test_a_low_limit_of_files_is_a_warning(made: Made) -> None:
    assert made.rows(files_max=1_024)["hard limit of open files"].state == "WARN"


def test_the_command_prints_every_setting_and_its_exit_code_is_that_of_the_worst(
    tell: Tell, tmp_path: Path
) -> None:
    told = tell("tune", "--directory", str(tmp_path), "--json")
    rows = told.json
    assert {"vm.swappiness", "net.core.somaxconn", "discard", "read_ahead_kb"} <= {
        row["setting"] for row in rows
    }
    assert told.code == (1 if any(row["state"] == "WARN" for row in rows) else 0)
    lines = tell("tune", "--directory", str(tmp_path)).rows
    assert [line[1] for line in lines] == [row["setting"] for row in rows]
    missing = tell("tune", "--directory", str(tmp_path / "missing"))
    assert missing.code == 2
    assert "does not exist" in missing.err
