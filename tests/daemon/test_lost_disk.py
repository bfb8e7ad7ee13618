"""A node of `sparklog cluster start` lost its disk, before the start or while it ran: the command that its
refusal names is run.
"""

import os
import re
import select
import shlex
import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sparklog import Admin, NewTopic
from sparklog_server.cli.main import main
from sparklog_server.daemon.local_cluster import open_cluster
from sparklog_server.daemon.supervisor import Ports
from sparklog_server.disk.os_disk import OsDisk
from tests.daemon.broker_process import PATIENCE_S, BrokerProcess, wait_until


def local(directory: Path, count: int) -> list[str]:
    """Format a cluster without files of settings; the options that start it."""
    with closing(Ports()) as ports:
        open_cluster(
            OsDisk(), str(directory), count=count, base_port=0, assignments=(), reserve=ports.reserve
        )
    return ["--data-dir", str(directory), "--nodes", str(count), "--base-port", "0"]


def secure(directory: Path, count: int) -> list[str]:
    assert main(["init", "--secure", str(directory), "--nodes", str(count), "--base-port", "0"]) == 0
    return ["--config-dir", str(directory)]


def started(options: list[str]) -> BrokerProcess:
    return BrokerProcess(*options, verb=("cluster", "start"))


@pytest.mark.parametrize(
    ("formatted", "count", "lost"),
    [
        pytest.param(local, 3, 1, id="three nodes"),
        pytest.param(local, 2, 2, id="two nodes", marks=pytest.mark.long),
        pytest.param(secure, 3, 1, id="with files", marks=pytest.mark.long),
    ],
)
def test_a_node_that_lost_its_disk_names_the_command_that_brings_it_back(
    formatted: Callable[[Path, int], list[str]], count: int, lost: int, tmp_path: Path
) -> None:
    options = formatted(tmp_path / "c", count)
    shutil.rmtree(tmp_path / "c" / f"node-{lost}")
    with started(options) as cluster:
        code, out, err = cluster.end()
    assert (code, out) == (1, "")
    found = re.search(rf"^node-{lost} .* refused .*run `sparklog (format [^`]*)`", err, re.MULTILINE)
    assert found is not None, err
    assert main(shlex.split(found[1])) == 0
    with started(options) as cluster:
        readable, _, _ = select.select([cluster.stdout], [], [], PATIENCE_S)
        line = cluster.stdout.readline() if readable else ""
        _, _, err = cluster.end(signal.SIGTERM)
    assert re.match(rf"ready cluster=\S+ nodes={count} ", line), err


def test_a_supervised_node_that_lost_its_disk_says_so_once_and_comes_back_after_the_command(
    tmp_path: Path,
) -> None:
    lost = tmp_path / "c" / "node-2"
    with started(local(tmp_path / "c", 3)) as cluster:
        readable, _, _ = select.select([cluster.stdout], [], [], PATIENCE_S)
        ready = re.search(r"listen=(\S+) pids=\d+,(\d+),", cluster.stdout.readline() if readable else "")
        assert ready is not None
        with Admin(bootstrap_servers=ready[1]) as admin:
            admin.create_topics([NewTopic("t", 3, 3)])
            shutil.rmtree(lost)
            os.kill(int(ready[2]), signal.SIGKILL)
            refused = next(line for line in cluster.stderr if " refused " in line)
            found = re.search(r"the directory is not formatted.*run `sparklog (format [^`]*)`", refused)
            assert found is not None, refused
            assert main(shlex.split(found[1])) == 0
            for line in cluster.stderr:
                assert " refused " not in line
                if line.startswith("node-2 ") and " ready " in line:
                    break
            wait_until(
                lambda: [len(one.isr) for one in admin.describe_topics(["t"])["t"].partitions] == [3] * 3
            )
        assert cluster.end(signal.SIGTERM)[0] == 0
