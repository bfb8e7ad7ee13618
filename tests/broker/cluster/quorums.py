"""Several nodes with a metadata quorum each, over the network of `QuorumWorld`: images, commands, replies."""

from collections.abc import Callable

from sparklog.effects import Loss
from sparklog.errors import ErrorCode
from sparklog.model import Instant, Offset
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from sparklog.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.quorum import Quorum, QuorumSetup
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.metadata.features import SUPPORTED
from sparklog_server.metadata.image import MetadataDelta, MetadataImage
from sparklog_server.metadata.snapshot import digest
from sparklog_server.raft.node import RaftNode
from sparklog_server.raft.quorum_config import QuorumConfig
from sparklog_server.raft.quorum_state import ENDED
from tests.raft.quorum_world import CLUSTER, Machine, QuorumWorld


def creation(name: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
    )


def deletion(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])


class Node(Machine):
    """A machine whose process has a whole quorum: `replies` are those of the commands that it was given."""

    world: "Quorums"
    quorum: Quorum

    def start(self) -> None:
        world = self.world
        self.life += 1
        self.is_paused = False
        self.continuations = Continuations()
        self.tick_at = None
        self.applied = Offset(0)
        self.digest = b""
        self.high_watermark = Offset(0)
        self.deltas: list[MetadataDelta] = []
        self.replies: list[Message] = []
        self.quorum = Quorum.open(
            self.disk,
            BrokerSettings.of({"log.dirs": "/data", "node.id": str(self.id), **world.given}),
            self.directory_id,
            CLUSTER,
            self.continuations,
            entropy=world.random_of(f"node {self.id}").randbytes,
            trace=self._trace,
            now=world.instant,
            setup=QuorumSetup(world.voters, (), world.bootstrap, self, QuorumConfig()),
        )
        self.node = self.quorum.raft
        self.after()

    def after(self) -> None:
        node, world = self.node, self.world
        if node is None:
            return
        self.quorum.turned(world.instant)
        self.take()
        self.carry_out()
        world.check(self)
        due = self.quorum.deadline_us
        if node.role in ENDED or due is None:
            return
        if self.tick_at is None or due < self.tick_at or self.tick_at <= world.now:
            self.tick_at = due
            self.later(max(due - world.now, 0), self._ticked)

    def take(self) -> None:
        """What the broker of this node would be told."""
        quorum = self.quorum
        self.deltas += quorum.take_deltas()
        for then, reply in quorum.take_committed():
            then(reply, self.world.instant)
        self.world.check_image(self, quorum.image)

    def _ticked(self) -> None:
        self.tick_at = None
        self.tick()

    def tick(self) -> None:
        due = self.quorum.deadline_us
        if due is not None and due <= self.world.now:
            self.quorum.tick(self.world.instant)

    def propose(self, command: Message, then: Callable[[Message], None] | None = None) -> None:
        def decided(reply: Message, now: Instant) -> None:
            self.replies.append(reply)
            if then is not None:
                then(reply)

        self.run(lambda: self.quorum.propose(command, decided, "User:test", self.world.instant))

    @property
    def image(self) -> MetadataImage:
        return self.quorum.image

    @property
    def is_ready(self) -> bool:
        """Whether its broker is registered in this life and not fenced."""
        broker = self.image.brokers.get(self.id)
        return broker is not None and broker.incarnation_id[0] == self.life and not broker.is_fenced

    def probe(
        self, address: tuple[str, int], then: Callable[[Loss | None, Instant], None], now: Instant
    ) -> None:
        """No broker of these nodes has an address."""

    def serve(self, quorum: Quorum) -> None:
        """The node has its quorum."""

    def join(self) -> None:
        """Register the broker of this node, which leads, and unfence it."""
        registration = BrokerRegistrationRequest(
            broker_id=self.id,
            cluster_id=CLUSTER,
            incarnation_id=bytes([self.life]) * 16,
            features=[Feature(name, *levels) for name, levels in SUPPORTED.items()],
            log_dirs=[self.directory_id],
        )
        self.propose(registration, self._registered)

    def _registered(self, reply: Message) -> None:
        assert isinstance(reply, BrokerRegistrationResponse)
        if reply.error_code == ErrorCode.NONE:
            self.propose(
                BrokerHeartbeatRequest(
                    broker_id=self.id, broker_epoch=reply.broker_epoch, current_metadata_offset=1 << 40
                )
            )


class Quorums(QuorumWorld):
    """Nodes 1 to `count`. Checks after each turn that images at one offset are equal on all nodes."""

    def __init__(self, seed: int = 0, *, count: int = 3, voters: int | None = None, **given: str) -> None:
        super().__init__(seed, count=count, voters=voters)
        self.given = {key.replace("_", "."): value for key, value in given.items()}
        self.nodes = {number: Node(self, number) for number in self.machines}
        self.machines = dict(self.nodes)
        self.image_digests: dict[Offset, bytes] = {}

    def _apply(self, machine: Machine, node: RaftNode) -> None:
        """Images are compared instead, and the snapshots are theirs."""

    def check_image(self, node: Node, image: MetadataImage) -> None:
        mine = digest(image)
        known = self.image_digests.setdefault(image.offset, mine)
        assert known == mine, f"seed {self.seed}: n{node.id} has another image at {image.offset}"

    @property
    def led_by(self) -> Node | None:
        leader = self.leader
        return None if leader is None else self.nodes[leader.id]
