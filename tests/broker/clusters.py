"""Several whole brokers in one process, joined by simulated links."""

from collections.abc import Callable
from random import Random

from sparklog.model import NodeId, Offset
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog_server.broker.quorum import Quorum
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.snapshot import digest
from sparklog_server.simulation.clock import VirtualClock
from sparklog_server.simulation.cluster import SimulatedNode
from sparklog_server.simulation.disk import SimulatedDisk

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAw"


class Cluster:
    """Nodes 1 to `count`, of which the first `voters` are controllers too, or nothing else if the cluster
    `is_split`. Checks, whenever time passes, that images at one offset are equal.
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
                **{key.replace("_", "."): value for key, value in given.items()},
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

    def create(self, node: SimulatedNode, name: str, partitions: int = 1) -> int:
        """Create a topic by a client of `node`; returns the error code."""
        client = node.connect()
        topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
        client.send(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7, CreateTopicsResponse)
        self.run_until(lambda: bool(client.replies))
        answer = client.replies[0]
        assert isinstance(answer, CreateTopicsResponse)
        return answer.topics[0].error_code

    def others(self, node: SimulatedNode) -> list[SimulatedNode]:
        return [other for other in self.nodes.values() if other is not node]
