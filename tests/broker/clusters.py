"""Several whole brokers in one process, joined by simulated links."""

from collections.abc import Callable
from random import Random

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, Offset, TopicPartition
from sparklog.record.batch import build_batch
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog_server.broker.cluster.quorum import Quorum
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.snapshot import digest
from sparklog_server.replica.partition import Partition
from sparklog_server.simulation.clock import VirtualClock
from sparklog_server.simulation.cluster import SimulatedConnection, SimulatedNode
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import records_of

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAw"


class Cluster:
    """Nodes 1 to `count`, of which the first `voters` are controllers too, or nothing else if the cluster
    `is_split`; `{node}` in a given setting is the number. Checks, whenever time passes, that images at one
    offset are equal.
    """

    def __init__(
        self, seed: int = 0, *, count: int = 3, voters: int = 3, is_split: bool = False, **given: str
    ) -> None:
        self.clock = VirtualClock()
        self.network: list[SimulatedNode] = []
        self.nodes: dict[NodeId, SimulatedNode] = {}
        self.digests: dict[Offset, bytes] = {}
        self.checked: dict[NodeId, MetadataImage] = {}
        for number in range(1, count + 1):
            settings = {
                "node.id": str(number),
                "log.dirs": "/data",
                "listeners": f"PLAINTEXT://127.0.0.{number}:9092",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": ",".join(
                    f"{one}@127.0.0.{one}:9093" for one in range(1, voters + 1)
                ),
                "process.roles": "broker",
                **{key.replace("_", "."): value.format(node=number) for key, value in given.items()},
            }
            if number <= voters:
                settings["process.roles"] = "controller" if is_split else "broker,controller"
                own = "" if is_split else settings["listeners"] + ","
                settings["listeners"] = f"{own}CONTROLLER://127.0.0.{number}:9093"
            disk = SimulatedDisk()
            disk.make_directory("/data")
            disk.write(
                "/data/meta.properties", f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={number}\n".encode()
            )
            self.nodes[NodeId(number)] = SimulatedNode(
                self.clock,
                Random(f"{seed} {number}"),
                disk,
                BrokerSettings.of(settings),
                network=self.network,
            )

    def start(self) -> "Cluster":
        for node in self.nodes.values():
            node.start()
        return self

    def run(self, ms: int) -> None:
        for _ in range(ms):
            self.clock.run(until_us=self.clock.now.mono_us + 1000)
            for number, node in self.nodes.items():
                if node.broker is None or (image := node.broker._quorum.image) is self.checked.get(number):
                    continue
                self.checked[number] = image
                mine = digest(image)
                assert self.digests.setdefault(image.offset, mine) == mine

    def run_until(self, claim: Callable[[], bool], ms: int = 20_000) -> int:
        """Run until a claim holds; returns the ms that it took."""
        for passed in range(ms):
            if claim():
                return passed
            self.run(1)
        raise AssertionError(f"not within {ms} ms: {self.describe()}")

    def describe(self) -> list[str]:
        return [
            f"{number} down"
            if node.broker is None
            else f"{number} {quorum.raft.role.value} e{quorum.epoch} leader={quorum.raft.leader_id} "
            f"hw={quorum.high_watermark} end={quorum.log_end_offset} ready={node.broker.is_ready} "
            f"brokers={[(one.node_id, one.is_fenced) for one in quorum.image.brokers.values()]}"
            for number, node in self.nodes.items()
            for quorum in ([] if node.broker is None else [node.broker._quorum])
        ] + [f"{number} halted: {node.halted}" for number, node in self.nodes.items() if node.halted]

    @property
    def quorums(self) -> list[Quorum]:
        return [node.broker._quorum for node in self.nodes.values() if node.broker is not None]

    @property
    def leader(self) -> SimulatedNode | None:
        """The running node that leads the latest epoch."""
        leading = [n for n in self.nodes.values() if n.broker is not None and n.broker._quorum.is_leader]
        return max(leading, key=lambda node: node.running._quorum.epoch, default=None)

    @property
    def is_ready(self) -> bool:
        return all(node.broker is None or node.broker.is_ready for node in self.nodes.values())

    def create(self, node: SimulatedNode, name: str, partitions: int = 1, replicas: int = 1) -> int:
        """Create a topic by a client of `node`; returns the error code."""
        client = node.connect()
        topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)]
        client.send(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7, CreateTopicsResponse)
        self.run_until(lambda: bool(client.replies))
        answer = client.replies[0]
        assert isinstance(answer, CreateTopicsResponse)
        return answer.topics[0].error_code

    def others(self, node: SimulatedNode) -> list[SimulatedNode]:
        return [other for other in self.nodes.values() if other is not node]

    # -- replicas

    def replica(self, node: int, topic: str = "t", partition: int = 0) -> Partition | None:
        """The replica of a partition on a running node."""
        broker = self.nodes[NodeId(node)].broker
        return None if broker is None else broker._partitions.find(topic, partition)

    def replicas(self, topic: str = "t", partition: int = 0) -> dict[int, Partition]:
        """Every replica of a partition on a running node."""
        found = {int(node): self.replica(node, topic, partition) for node in self.nodes}
        return {node: replica for node, replica in found.items() if replica is not None}

    def leading(self, topic: str = "t", partition: int = 0) -> int | None:
        """The running node that leads a partition in its latest epoch."""
        epochs = {
            node: replica.leader.leader_epoch
            for node, replica in self.replicas(topic, partition).items()
            if replica.leader is not None
        }
        return max(epochs, key=lambda node: epochs[node], default=None)

    def isr(self, topic: str = "t", partition: int = 0) -> set[int]:
        """The in-sync replicas by the newest image."""
        image = max((one.image for one in self.quorums), key=lambda one: one.offset)
        found = image.partition(TopicPartition(topic, partition))
        return set() if found is None else {int(node) for node in found.isr}

    def send(
        self,
        node: int,
        *values: bytes | None,
        key: bytes | None = None,
        topic: str = "t",
        partition: int = 0,
        acks: int = -1,
    ) -> SimulatedConnection:
        """Send records to a node, whose turn this is."""
        client = self.nodes[NodeId(node)].connect()
        batch = bytes(build_batch([(key, value, (), self.clock.now.wall_ms) for value in values]))
        data = [PartitionProduceData(index=partition, records=batch)]
        request = ProduceRequest(
            acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
        )
        client.send(request, 12, ProduceResponse)
        return client

    def write(
        self,
        *values: bytes | None,
        key: bytes | None = None,
        topic: str = "t",
        partition: int = 0,
        acks: int = -1,
    ) -> int:
        """Produce to the leader of a partition, again while it has just changed; returns the error code, or
        -1 if there is no response within 10 s.
        """
        code = -1
        until_us = self.clock.now.mono_us + 10_000_000
        while self.clock.now.mono_us < until_us:
            leader = self.leading(topic, partition)
            if leader is None:
                self.run(10)
                continue
            client = self.send(leader, *values, key=key, topic=topic, partition=partition, acks=acks)
            while not client.replies and not client.is_closed and self.clock.now.mono_us < until_us:
                self.run(1)
            if not client.replies:
                continue
            answer = client.replies[0]
            assert isinstance(answer, ProduceResponse)
            code = answer.responses[0].partition_responses[0].error_code
            if code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                break
        return code

    def forget_fetches(self, node: int) -> None:
        """Let a leader forget the fetches of its followers: it answers none before their time is over."""
        sessions = self.nodes[NodeId(node)].running._context.replica_sessions
        for session_id in list(sessions._by_id):
            sessions.end(session_id)

    def values(
        self, node: int, topic: str = "t", partition: int = 0, limit: int | None = None
    ) -> list[bytes]:
        """The values in the log of a replica below `limit`, or below its high watermark."""
        replica = self.replica(node, topic, partition)
        assert replica is not None
        end = replica.high_watermark if limit is None else limit
        return [record.value or b"" for record in records_of(replica.log) if record.offset < end]
