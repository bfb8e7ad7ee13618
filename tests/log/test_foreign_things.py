"""Something else has the name of a file in a data directory: the partition that it belongs to is offline by
name, and every other is served.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from sparklog.model import NodeId, TopicPartition
from sparklog_server.cli.inspect import other_readers
from sparklog_server.cli.log_repair import planned
from sparklog_server.disk.door import StorageError
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.directory.log_dir import LogDir
from sparklog_server.log_tools.examine_directory import Looking, verify
from tests.log.logs import EPOCH, NOW, SMALL, TOPIC_ID, batch

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
LOG = f"a-0/{0:020d}.log"
OWN_FILES = (
    "a-0",
    LOG,
    LOG.replace(".log", ".index"),
    LOG.replace(".log", ".timeindex"),
    "a-0/partition.metadata",
    "a-0/leader-epoch-checkpoint",
)
ROOT_FILES = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
    ".sparklog-boot",
)


def opened(root: Path) -> LogDir:
    return LogDir.open(
        OsDisk(),
        str(root),
        node_id=NodeId(1),
        cluster_id=None,
        entropy=Random(1).randbytes,
        defaults=SMALL,
        now=NOW,
    )


def written(root: Path) -> None:
    log_dir = opened(root)
    for one in (A, B):
        log = log_dir.create(one, TOPIC_ID, SMALL, NOW)
        for number in range(3):
            log.append(memoryview(batch(value=b"%d" % number)), EPOCH, NOW)
    log_dir.close({}, NOW)


def a_file(path: Path) -> None:
    path.write_bytes(b"not ours")


def a_directory(path: Path) -> None:
    path.mkdir()


def a_loop(path: Path) -> None:
    path.symlink_to(path.name)


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def replaced(root: Path, name: str, put: Callable[[Path], None]) -> str:
    """Have something else under a name of the broker's; returns its path."""
    path = root / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    put(path)
    return str(path)


@pytest.mark.parametrize("put", [a_file, a_directory, a_loop, a_pipe])
@pytest.mark.parametrize("name", OWN_FILES)
def test_something_else_in_a_partition_takes_at_most_that_partition_offline(
    tmp_path: Path, name: str, put: Callable[[Path], None]
) -> None:
    written(tmp_path)
    path = replaced(tmp_path, name, put)
    looked_at = OsDisk(is_read_only=True)
    reports = list(verify(looked_at, str(tmp_path), Looking(also=other_readers())))
    assert "b-0" in [report.name for report in reports if not report.is_damaged]
    planned(looked_at, str(tmp_path))
    log_dir = opened(tmp_path)
    assert log_dir.logs[B].log_end_offset == 3
    if put is a_file and name not in ("a-0", LOG):
        assert A in log_dir.logs  # rebuilt, as any damaged file of its kind
        return
    error = log_dir.damaged[A].error
    assert error.path.startswith(path)
    assert error.remedy
    assert "a-0" in [report.name for report in reports if report.is_damaged]


@pytest.mark.parametrize("put", [a_directory, a_loop, a_pipe])
@pytest.mark.parametrize("name", ROOT_FILES)
def test_something_else_under_a_name_of_the_directory_is_refused_with_its_path_and_a_remedy(
    tmp_path: Path, name: str, put: Callable[[Path], None]
) -> None:
    written(tmp_path)
    path = replaced(tmp_path, name, put)
    with pytest.raises(StorageError) as refused:
        opened(tmp_path)
    assert refused.value.path.startswith(path)
    assert "move it out" in refused.value.remedy


def test_what_is_not_named_like_a_file_of_the_broker_is_left_alone(tmp_path: Path) -> None:
    written(tmp_path)
    for name, put in (("lost+found", a_directory), ("notes", a_file), ("pipe", a_pipe), ("loop", a_loop)):
        put(tmp_path / name)
        put(tmp_path / "a-0" / name)
    log_dir = opened(tmp_path)
    assert (sorted(log_dir.logs), log_dir.damaged) == ([A, B], {})
