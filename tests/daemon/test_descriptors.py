"""Descriptors: those of removed files go at once, and a broker with few of them goes on serving."""

import select
import socket
import time
from collections.abc import Callable
from pathlib import Path

from sparklog import Admin, Producer
from sparklog.wire.header import encode_request
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.daemon.broker_process import PATIENCE_S, BrokerProcess, broker

FETCHED_VERSION = 12


def wait_until(is_so: Callable[[], bool]) -> None:
    """Return when the claim holds; fails after the usual patience."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        select.select([], [], [], 0.01)


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
                slow.sendall(fetch_all("slow"))
                select.select([slow], [], [])
                admin.delete_topics(["idle", "slow"])
                wait_until(
                    lambda: not [name for name in tmp_path.glob("data/*") if "delete" in name.name or name.name in ("idle-0", "slow-0")]
                )
                wait_until(lambda: len(removed_files(process)) == 1)
            wait_until(lambda: not removed_files(process))


def fetch_all(topic: str) -> bytes:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 30, topics=[FetchTopic(topic=topic, partitions=[wanted])])
    (frame,) = encode_request(request, FETCHED_VERSION, 1, "t")
    assert isinstance(frame, bytes)
    return frame
