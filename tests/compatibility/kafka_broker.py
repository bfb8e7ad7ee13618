"""A real Kafka, started from the jars, stopped or killed at will."""

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.compatibility.class_archive import ClassArchive
from tests.compatibility.kafka_tools import kafka_tool, write_properties
from tests.tools import KAFKA_JARS, PROJECT, require_kafka_tools

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
NODE_ID = 1
START_S_MAX = 40


class KafkaNode:
    """A node with these properties. Its directory outlives each process: `process` may be entered again and
    again.
    """

    def __init__(
        self,
        root: Path,
        properties: Mapping[str, object],
        *,
        features: Mapping[str, int] | None = None,
        quorum: Sequence[str] = (),
    ) -> None:
        """`features` are finalized at these levels in place of those that a new cluster has. `quorum` are the
        options of the format that name the first voters, for voters that are not static.
        """
        require_kafka_tools()
        self._root = root
        self._conf = write_properties(root / "server.properties", properties)
        levels = [
            word for name, level in (features or {}).items() for word in ("--feature", f"{name}={level}")
        ]
        kafka_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self._conf, *quorum, *levels)

    @contextmanager
    def process(self, *, is_killed: bool = False) -> Iterator["subprocess.Popen[bytes]"]:
        """Start it; at the end stop it cleanly, or kill it."""
        log4j = PROJECT / "conf" / "kafka-tools-log4j2.properties"
        archive = ClassArchive("broker")
        command = [
            "java",
            *archive.options,
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={log4j}",
        ]
        command += [
            f"-Dkafka.logs.dir={self._root}",
            "-cp",
            f"{KAFKA_JARS}/*",
            "kafka.Kafka",
            str(self._conf),
        ]
        with (self._root / "kafka.log").open("ab") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield process
        finally:
            if is_killed:
                process.kill()
            else:
                process.terminate()
            process.wait(30)
            archive.ended(is_whole=not is_killed)

    def log(self) -> str:
        """The output of its processes."""
        return (self._root / "kafka.log").read_text()


class RealKafka(KafkaNode):
    """One node as broker and controller, on loopback ports of its own."""

    def __init__(
        self,
        root: Path,
        more: Mapping[str, object] | None = None,
        *,
        features: Mapping[str, int] | None = None,
    ) -> None:
        self.data_dir = root / "kafka-data"
        self._ports = free_ports(2)
        broker, controller = self._ports
        self.bootstrap_servers = f"127.0.0.1:{broker}"
        properties = {
            "process.roles": "broker,controller",
            "node.id": NODE_ID,
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.data_dir,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **(more or {}),
        }
        super().__init__(root, properties, features=features)

    @contextmanager
    def running(self, *, is_killed: bool = False) -> Iterator[AdminClient]:
        """Start it and wait until it answers; at the end stop it cleanly, or kill it."""
        with self.process(is_killed=is_killed) as process:
            yield self._wait(process)

    def _wait(self, process: "subprocess.Popen[bytes]") -> AdminClient:
        deadline = time.monotonic() + START_S_MAX
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        while True:
            assert process.poll() is None, self.log()
            try:
                if admin.list_topics(timeout=1).brokers:
                    return admin
            except KafkaException:
                assert time.monotonic() < deadline, self.log()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback without a listener."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
