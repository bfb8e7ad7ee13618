"""Three combined nodes of one kind, ours or a real Kafka, with three replicas of each topic. Each node is a
process that only this module starts: a node that is killed stays away until `start`.
"""

import argparse
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks import harness
from sparklog import Admin
from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from sparklog_server.log.directory.identity import encode_uuid, new_uuid

COUNT: Final = 3
REPLICATION: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
}
PATIENCE_S: Final = 120.0
_METADATA_VERSION: Final = 12


class Place(NamedTuple):
    """Where a node listens, and the command that runs another one in its network."""

    host: str
    port: int
    controller_port: int
    prefix: tuple[str, ...] = ()


@dataclass
class Node:
    """A node: its place, the command that starts it, its directory with `data` and `log`, its process."""

    number: int
    place: Place
    command: list[str]
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: psutil.Popen | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the process; it does not accept clients yet."""
        with (self.directory / "log").open("ab") as log:
            self.process = psutil.Popen(
                [*self.place.prefix, *self.command],
                stdout=log,
                stderr=log,
                env={**harness.ENVIRONMENT, **self.environment},
            )

    def wait(self) -> None:
        """Wait until the node accepts clients."""
        assert self.process is not None
        harness.wait_for_metadata(self.place.host, self.place.port, self.process)

    def kill(self) -> None:
        """End the process by SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """Shut the node down in its own order, at most for a minute."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(harness.STOP_TIMEOUT_S)
        except psutil.TimeoutExpired:
            self.kill()

    def suspend(self) -> None:
        assert self.process is not None
        self.process.suspend()

    def resume(self) -> None:
        assert self.process is not None
        self.process.resume()

    def described(self, topic: str) -> MetadataResponseTopic:
        """The topic in the image of this node."""
        request = MetadataRequest([MetadataRequestTopic(name=topic)], False)
        frame = b"".join(bytes(chunk) for chunk in encode_request(request, _METADATA_VERSION, 1, "trio"))
        with socket.create_connection((self.place.host, self.place.port), timeout=5) as connection:
            connection.sendall(frame)
            reply = connection.makefile("rb")
            (size,) = struct.unpack(">i", reply.read(4))
            answer = decode_reply(MetadataResponse, _METADATA_VERSION, reply.read(size))[1]
        return answer.topics[0]


@dataclass
class Trio:
    """Running nodes, by number from 1."""

    name: str
    nodes: dict[int, Node]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{node.place.host}:{node.place.port}" for node in self.nodes.values())

    def controller(self) -> int:
        """The leader of the quorum."""
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            return admin.describe_quorum().leader

    def create(self, topic: str, assignment: Sequence[Sequence[int]]) -> None:
        """A topic with these replicas by partition, the preferred leader first; wait for its whole ISR."""
        replicas = [list(each) for each in assignment]
        new = NewTopic(topic, len(replicas), replica_assignment=replicas)
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        admin.create_topics([new])[topic].result(PATIENCE_S)
        self.wait_in_sync(topic)

    def wait_in_sync(self, topic: str) -> None:
        """Wait until every node shows the whole ISR of every partition of the topic."""
        for node in self.nodes.values():
            wait_until(lambda node=node: _is_in_sync(node.described(topic)))

    def restore(self, topic: str) -> None:
        """Start the nodes that have ended, and wait until the topic is in sync ."""
        for node in self.nodes.values():
            if not node.is_running:
                node.start()
        for node in self.nodes.values():
            node.wait()
        self.wait_in_sync(topic)

    def cpu_s(self) -> float:
        """Processor seconds used so far, user and system, by all nodes."""
        times = [process.cpu_times() for process in self._processes()]
        return sum(one.user + one.system for one in times)

    def resident_bytes(self) -> int:
        return sum(process.memory_info().rss for process in self._processes())

    def _processes(self) -> list[psutil.Process]:
        running = [node.process for node in self.nodes.values() if node.process is not None]
        return [one for process in running for one in (process, *process.children(recursive=True))]


def _is_in_sync(topic: MetadataResponseTopic) -> bool:
    return bool(topic.partitions) and all(
        part.leader_id >= 0 and len(part.isr_nodes) == len(part.replica_nodes) for part in topic.partitions
    )


def wait_until(is_so: Callable[[], bool], *, patience_s: float = PATIENCE_S, every_s: float = 0.002) -> None:
    """Ask again and again, for a bounded time."""
    until_s = time.monotonic() + patience_s
    while True:
        try:
            if is_so():
                return
        except (OSError, KafkaException, struct.error):
            pass  # a node that is away, or stops while it answers
        if time.monotonic() > until_s:
            raise RuntimeError(f"it did not happen within {patience_s} s")
        time.sleep(every_s)


def ordered(leader: int) -> list[int]:
    """The numbers of the nodes in a ring that begins with this one: replicas with a preferred leader."""
    return [(leader - 1 + step) % COUNT + 1 for step in range(COUNT)]


def loopback() -> dict[int, Place]:
    """Free ports of this machine."""
    return {
        number: Place("127.0.0.1", harness.free_port(), harness.free_port()) for number in range(1, COUNT + 1)
    }


@contextmanager
def running(name: str, nodes: dict[int, Node]) -> Iterator[Trio]:
    """Start the nodes; stop those that run at the end."""
    try:
        for node in nodes.values():
            node.start()
        for node in nodes.values():
            node.wait()
        yield Trio(name, nodes)
    finally:
        for node in nodes.values():
            if node.is_running:
                node.resume()
                node.kill()


def own_nodes(
    root: Path, places: Mapping[int, Place], settings: Mapping[str, str] | None = None
) -> dict[int, Node]:
    """Formatted nodes of ours."""
    cluster_id, nodes = encode_uuid(new_uuid(os.urandom)), {}
    for number, place in places.items():
        directory = root / f"node-{number}"
        directory.mkdir(parents=True, exist_ok=True)
        properties = _properties(number, places, directory) | dict(settings or {})
        given = [word for key, value in properties.items() for word in ("--set", f"{key}={value}")]
        sparklog = harness.sparklog_command()
        subprocess.run(
            [*sparklog, "format", "--cluster-id", cluster_id, *given],
            check=True,
            stdout=subprocess.DEVNULL,
            env=harness.ENVIRONMENT,
        )
        command = [*sparklog, "start", "--insecure", *given]
        nodes[number] = Node(number, place, command, directory)
    return nodes


def kafka_nodes(
    root: Path, places: Mapping[int, Place], settings: Mapping[str, str] | None = None
) -> dict[int, Node]:
    """Formatted nodes of a real Kafka."""
    nodes = {}
    for number, place in places.items():
        directory = root / f"node-{number}"
        directory.mkdir(parents=True, exist_ok=True)
        properties = _properties(number, places, directory) | dict(settings or {})
        nodes[number] = Node(number, place, harness.formatted_kafka(directory, properties), directory)
    return nodes


def _properties(number: int, places: Mapping[int, Place], directory: Path) -> dict[str, str]:
    own = places[number]
    voters = ",".join(f"{node}@{place.host}:{place.controller_port}" for node, place in places.items())
    return {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{own.host}:{own.port},CONTROLLER://{own.host}:{own.controller_port}",
        "log.dirs": str(directory / "data"),
        **REPLICATION,
    }


@contextmanager
def sparklog() -> Iterator[Trio]:
    """Three nodes of ours on the loopback interface, in a temporary directory."""
    with (
        TemporaryDirectory(prefix="sparklog-bench-", ignore_cleanup_errors=True) as root,
        running("sparklog", own_nodes(Path(root), loopback())) as trio,
    ):
        yield trio


@contextmanager
def kafka() -> Iterator[Trio]:
    """Three nodes of a real Kafka on the loopback interface, in a temporary directory."""
    with (
        TemporaryDirectory(prefix="kafka-bench-", ignore_cleanup_errors=True) as root,
        running("kafka", kafka_nodes(Path(root), loopback())) as trio,
    ):
        yield trio


def starts(options: argparse.Namespace) -> list[Callable[[], AbstractContextManager[Trio]]]:
    """The clusters to measure: ours, then a real Kafka with `--against kafka`, or that alone."""
    ours = [] if options.only == "kafka" else [sparklog]
    return [*ours, kafka] if "kafka" in (options.against, options.only) else ours
