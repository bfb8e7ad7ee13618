"""What one Produce with acks=all costs the three nodes that hold its topic: processor time and calls of
functions, by step.

The nodes run on one thread of one process. Their sockets are real, but no node waits: each takes its turn
when bytes have come for it, always in the same order. So the figures do not depend on the scheduler, and
little on the other programs of the machine. System calls are included, wake-ups are not:
`benchmarks.replication` has those.

    python -m benchmarks.replica_turn
"""

import gc
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import harness, raw
from sparklog.effects import FileSlice
from sparklog.wire.header import encode_request
from sparklog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.broker import Broker
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.daemon.admission import Admission
from sparklog_server.daemon.local_cluster import open_cluster
from sparklog_server.daemon.pump import Pump, read_clock
from sparklog_server.daemon.reactor import Reactor
from sparklog_server.daemon.server import prepare_process
from sparklog_server.disk.os_disk import OsDisk

REQUESTS = 5_000
WARM_UP = 1_000
TOPIC = "turn"
VALUE_BYTES = 100
LEADER, FOLLOWERS = 0, (1, 2)
STEPS = (
    "leader: append, answer both fetches",
    "follower: append, fetch",
    "leader: fetch",
    "leader: fetch, respond",
)
_PATIENCE_S = 60.0


class Node:
    """One node without a thread of its own: `turn` does what its sockets have for it, without a wait."""

    def __init__(self, settings: BrokerSettings) -> None:
        disk = OsDisk()
        self.reactor = Reactor()
        self.broker = Broker.open(
            settings, disk, entropy=os.urandom, trace=lambda *_, **__: None, now=read_clock()
        )
        self.pump = Pump(
            self.broker,
            disk,
            self.reactor,
            lambda *_, **__: None,
            unsent_bytes_max=settings.connections.sparklog_session_unsent_max_bytes,
        )
        self.address = next((one.host, one.port) for one in settings.listeners if one.name == "PLAINTEXT")
        sockets = [(one, socket.create_server((one.host, one.port))) for one in settings.listeners]
        for _, bound in sockets:
            bound.setblocking(False)
        self._admission = Admission(
            sockets,
            settings,
            self.broker,
            self.pump,
            self.reactor,
            connections_max=100,
            after=lambda *_: None,
            trace=lambda *_, **__: None,
        )
        self._admission.begin(sockets)
        self.pump.start()

    def turn(self) -> None:
        """One turn of the daemon's loop."""
        self._admission.turned()
        self.pump.tick()
        self.reactor.turn(0)


class Nodes:
    """Three nodes, and one client that is connected to the leader of the topic."""

    def __init__(self, directory: Path) -> None:
        cluster = open_cluster(
            OsDisk(),
            str(directory),
            count=3,
            base_port=0,
            assignments=[],
            reserve=lambda port: port or harness.free_port(),
        )
        self.nodes = [Node(loaded.settings) for loaded in cluster.nodes]
        self._until(lambda: all(node.broker.is_ready for node in self.nodes))
        self.client = socket.create_connection(self.nodes[LEADER].address)
        self.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client.setblocking(False)

    def _until(self, is_so: Callable[[], Any]) -> None:
        until_s = time.monotonic() + _PATIENCE_S
        while not is_so():
            assert time.monotonic() < until_s, "the cluster does not come up"
            for node in self.nodes:
                node.turn()

    def ask(self, frame: bytes) -> bytes:
        """The response to a request; all nodes take turns until it is there."""
        self.client.send(frame)
        replies: list[bytes] = []
        self._until(lambda: replies or self._received(replies))
        return replies[0]

    def _received(self, replies: list[bytes]) -> bool:
        try:
            replies.append(self.client.recv(1 << 16))
        except BlockingIOError:
            return False
        return True

    def create_topic(self) -> None:
        """The topic, with all replicas in sync."""
        replicas = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])]
        topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=replicas)
        self.ask(_frame_of(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7))
        produce = raw.produce_request(TOPIC, value_bytes=VALUE_BYTES, acks=-1)
        self._until(lambda: not raw.produce_error(self.ask(produce), TOPIC))

    def produce(self, frame: bytes, did: Callable[[int], None]) -> None:
        """One Produce; `did` is told the step that has just been done."""
        self.client.send(frame)
        did(-1)
        self.nodes[LEADER].turn()
        did(0)
        for last, follower in enumerate(FOLLOWERS):
            self.nodes[follower].turn()
            did(1)
            self.nodes[LEADER].turn()
            did(2 + last)
        try:
            reply = self.client.recv(1 << 16)
        except BlockingIOError:  # another event, such as a fetch of the metadata log, took one of the turns
            replies: list[bytes] = []
            self._until(lambda: replies or self._received(replies))
            did(-2)
            (reply,) = replies
        assert not raw.produce_error(reply, TOPIC)


def _frame_of(request: Message, version: int) -> bytes:
    chunks = encode_request(request, version, 7, "turn")
    return b"".join(chunk.read() if isinstance(chunk, FileSlice) else bytes(chunk) for chunk in chunks)


def drive(directory: Path, *, profiled: bool = False) -> tuple[list[float], list[float]]:
    """(microseconds, calls) per Produce, by step."""
    nodes = Nodes(directory)
    nodes.create_topic()
    frame = raw.produce_request(TOPIC, value_bytes=VALUE_BYTES, acks=-1)
    for _ in range(WARM_UP):
        nodes.produce(frame, lambda _: None)
    gc.collect()
    gc.freeze()
    used_ns: list[list[int]] = []
    mark_ns = 0

    def timed(step: int) -> None:
        nonlocal mark_ns
        now_ns = time.thread_time_ns()
        if step == -2:
            used_ns.pop()  # a Produce that shared its turns
            used_ns.append([])
        elif step == -1:
            used_ns.append([0] * len(STEPS))
        elif used_ns[-1]:
            used_ns[-1][step] += now_ns - mark_ns
        mark_ns = time.thread_time_ns()

    for _ in range(REQUESTS):
        nodes.produce(frame, timed)
    whole = sorted((one for one in used_ns if one), key=sum)[: len(used_ns) // 2]
    microseconds = [sum(one[step] for one in whole) / len(whole) / 1e3 for step in range(len(STEPS))]
    return microseconds, _calls(nodes, frame)


def _calls(nodes: Nodes, frame: bytes) -> list[float]:
    """The fewest calls of Python functions in a Produce, by step: others share theirs with rarer work."""
    counted: list[list[int]] = []
    calls = 0

    def called(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    def did(step: int) -> None:
        nonlocal calls
        if step == -1:
            counted.append([0] * len(STEPS))
        elif step >= 0:
            counted[-1][step] += calls - 1
        calls = 0

    for _ in range(200):
        sys.setprofile(called)
        nodes.produce(frame, did)
        sys.setprofile(None)
    return [float(one) for one in min(counted, key=sum)]


def measured() -> tuple[list[float], list[float]]:
    """`drive` in a process of its own."""
    done = subprocess.run(
        (sys.executable, "-m", "benchmarks.replica_turn", "--drive"),
        check=True,
        capture_output=True,
        text=True,
        env={**harness.ENVIRONMENT, "PYTHONHASHSEED": "0"},
    )
    microseconds, calls = ([float(word) for word in line.split()] for line in done.stdout.splitlines())
    return microseconds, calls


def main() -> None:
    """Measure, and print the table."""
    options = harness.options(__doc__)
    figures = harness.Figures("replica turn")
    for _ in range(options.repeats):
        microseconds, calls = measured()
        for unit, values in (("µs", microseconds), ("calls", calls)):
            for step, value in zip(STEPS, values, strict=True):
                figures.add(step, unit, "sparklog", value)
            figures.add("all", unit, "sparklog", sum(values))
    figures.note("processor time, the faster half of the requests; data in memory; both followers together")
    figures.report(options)


def _drive() -> None:
    memory = Path("/dev/shm")
    prepare_process()
    with tempfile.TemporaryDirectory(
        prefix="sparklog-turn-", dir=memory if memory.is_dir() else None
    ) as directory:
        for values in drive(Path(directory)):
            print(*values)
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--drive"]:
        _drive()
    else:
        main()
