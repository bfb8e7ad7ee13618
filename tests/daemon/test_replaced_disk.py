"""A broker of three with two log directories loses one: its replicas come back in the other one by a command,
and a new disk in its place is used again.
"""

import re
import shutil
import signal
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.model import NodeId, TopicPartition
from sparklog_server.cli.main import main
from tests.cli.conftest import Told
from tests.daemon.broker_process import BrokerProcess, wait_until

PARTITIONS = 6


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def first(directory: Path) -> BrokerProcess:
    listeners = f"PLAINTEXT://127.0.0.1:{free_port()},CONTROLLER://127.0.0.1:{free_port()}"
    settings = (f"log.dirs={directory}", f"listeners={listeners}", "controller.listener.names=CONTROLLER")
    return BrokerProcess(*(word for one in settings for word in ("--set", one)))


def joined(node: int, to: str, *directories: Path) -> BrokerProcess:
    """A broker with these directories, the first for the metadata log."""
    paths = ",".join(map(str, directories))
    given = ("--join", to, "--node-id", str(node), "--listen", "127.0.0.1:0", "--set", f"log.dirs={paths}")
    return BrokerProcess(*given)


def write(servers: str, value: str) -> None:
    """A record with this value in each partition, on all replicas in sync."""
    with Producer(bootstrap_servers=servers, acks="all") as producer:
        for partition in range(PARTITIONS):
            producer.send("t", value.encode(), partition=partition)


def partitions_of(names: Iterable[str]) -> list[TopicPartition]:
    return [TopicPartition("t", int(name.rpartition("-")[2])) for name in names]


def test_a_lost_disk_is_done_without_and_then_replaced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept, lost = tmp_path / "kept", tmp_path / "lost"

    def tell(*arguments: str) -> Told:
        capfd.readouterr()
        code = main([*arguments, "-b", servers])
        sys.stdout.flush()
        return Told(code, *capfd.readouterr())

    def replicas_in(directory: Path) -> set[str]:
        return {one.name for one in directory.glob("t-*") if re.fullmatch(r"t-\d+", one.name)}

    with first(tmp_path / "one") as one:
        servers = one.bootstrap_servers()
        with joined(2, servers, tmp_path / "two") as two, Admin(bootstrap_servers=servers) as admin:
            two.address()

            def is_whole() -> bool:
                partitions = admin.describe_topics(["t"])["t"].partitions
                return all(len(each.isr) == 3 and not each.offline_replicas for each in partitions)

            with joined(3, servers, kept, lost) as three:
                three.address()
                admin.create_topics([NewTopic("t", PARTITIONS, 3, configs={"min.insync.replicas": "2"})])
                write(servers, "before")
                wait_until(is_whole)
                lying = replicas_in(lost)
                assert lying
                three.end(signal.SIGKILL)
            shutil.rmtree(lost)
            lost.write_text("no directory")  # as a disk that cannot be mounted

            with joined(3, servers, kept, lost) as three:
                three.address()
                write(servers, "meanwhile")
                described = tell("log-dirs", "describe", "--broker", "3")
                assert (described.code, f"{lost}\tKAFKA_STORAGE_ERROR" in described.out) == (1, True)
                (found,) = [row for row in tell("health").rows if row[:2] == ["CRITICAL", "log directories"]]
                command = re.search(r"`sparklog (log-dirs move --offline [^`]*)`", found[3])
                assert command is not None, found
                assert not is_whole()
                assert tell(*command[1].split()).code == 0
                wait_until(is_whole)
                assert lying <= replicas_in(kept)
                three.end(signal.SIGKILL)
            lost.unlink()

            with joined(3, servers, kept, lost) as three:
                three.address()
                write(servers, "after")
                wait_until(is_whole)
                admin.alter_replica_log_dirs(NodeId(3), {at: str(lost) for at in partitions_of(lying)})
                wait_until(lambda: replicas_in(lost) == lying and is_whole())
