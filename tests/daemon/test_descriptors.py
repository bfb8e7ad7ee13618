"""Descriptors: those of removed files go at once, and a broker with few of them goes on serving."""

import contextlib
import resource
import select
import signal
import socket
from pathlib import Path

import pytest

from sparklog import Admin, Producer
from sparklog_server.daemon.node import shared
from tests.daemon.broker_process import (
    API_VERSIONS,
    BrokerProcess,
    broker,
    fetch_frame,
    is_answered,
    is_served,
    wait_until,
)


@pytest.mark.parametrize("limit", [64, 256, 1024, 20_000, 1 << 20])
def test_files_and_connections_leave_a_reserve(limit: int) -> None:
    shares = shared(limit, 4096)
    files, connections = shares.files, shares.connections
    assert files <= 4096
    assert limit - files - connections >= min(limit // 4, 256)
    assert min(files, connections) >= limit // 4 or files == 4096


def test_idle_connections_beyond_the_limit_of_descriptors_neither_stop_the_files_nor_lock_newcomers_out(
    tmp_path: Path,
) -> None:
    with contextlib.ExitStack() as connected:
        process = connected.enter_context(broker(tmp_path / "data", descriptors=128))
        address = process.address()
        for _ in range(4):
            idle = [connected.enter_context(socket.create_connection(address)) for _ in range(40)]
            assert is_served(idle[-1])
            assert sum(1 for _ in Path(f"/proc/{process.child.pid}/fd").iterdir()) < 120
        names = [f"t{index}" for index in range(60)]
        servers = "{}:{}".format(*address)
        with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
            admin.create_topics(dict.fromkeys(names, 1))
            for name in names:
                producer.send(name, b"x")
            producer.flush()
        code, _, err = process.end(signal.SIGTERM)
    assert (code, "offline" in err) == (0, False)
    assert "descriptor-limit-low limit=128" in err


def test_a_broker_without_any_descriptor_left_refuses_what_needs_one_and_serves_it_once_there_are(
    tmp_path: Path,
) -> None:
    with broker(tmp_path / "data") as process, contextlib.ExitStack() as clients:
        servers = "{}:{}".format(*process.address())
        admin = clients.enter_context(Admin(bootstrap_servers=servers))
        producer = clients.enter_context(Producer(bootstrap_servers=servers, delivery_timeout_ms=60_000))
        admin.create_topics({"t": 1})
        producer.send("t", b"before")
        producer.flush()
        before = resource.prlimit(
            process.child.pid, resource.RLIMIT_NOFILE, (4, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
        sent = producer.send("t", b"meanwhile")
        with socket.create_connection(process_address(servers)) as waiting:
            waiting.sendall(API_VERSIONS)
            assert not select.select([waiting], [], [], 0.5)[0]
            resource.prlimit(process.child.pid, resource.RLIMIT_NOFILE, before)
            assert is_answered(waiting)
        assert sent.result(30).offset == 1
        admin.create_topics({"u": 1})
        code, _, err = process.end(signal.SIGTERM)
    assert (code, "offline" in err) == (0, False)


def process_address(servers: str) -> tuple[str, int]:
    host, _, port = servers.rpartition(":")
    return host, int(port)


def removed_files(process: BrokerProcess) -> list[str]:
    """The removed files of which the broker holds a descriptor."""
    names = []
    for one in Path(f"/proc/{process.child.pid}/fd").iterdir():
        try:
            names.append(str(one.readlink()))
        except FileNotFoundError:
            continue
    return [name for name in names if name.endswith(".log (deleted)")]


def test_deleted_topics_give_their_descriptors_back_to_an_idle_and_from_a_slow_reader(tmp_path: Path) -> None:
    with broker(tmp_path / "data", "--set", "log.segment.delete.delay.ms=0") as process:
        address = process.address()
        servers = f"{address[0]}:{address[1]}"
        with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
            admin.create_topics({"idle": 1, "slow": 1})
            for topic in ("idle", "slow"):
                for _ in range(24):
                    producer.send(topic, bytes(1 << 19))
            producer.flush()
            with socket.create_connection(address) as slow:
                slow.sendall(fetch_frame("slow"))
                select.select([slow], [], [])
                admin.delete_topics(["idle", "slow"])
                wait_until(
                    lambda: (
                        not [
                            name
                            for name in tmp_path.glob("data/*")
                            if "delete" in name.name or name.name in ("idle-0", "slow-0")
                        ]
                    )
                )
                wait_until(lambda: len(removed_files(process)) == 1)
            wait_until(lambda: not removed_files(process))
