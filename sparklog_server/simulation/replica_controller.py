"""The controller of a world of replicas: the decisions are those of the real one, and all that a quorum does
around them is drawn: how late requests and metadata are, what is lost or comes twice, who is taken for dead,
and when a leadership moves for no reason.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from sparklog.effects import Effect
from sparklog.errors import ErrorCode, code_of
from sparklog.model import Instant, NodeId, Offset, Uuid
from sparklog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest
from sparklog.wire.schema import Message
from sparklog_server.config.layers import REASSIGNMENT_RATE
from sparklog_server.config.topic_settings import TopicSettings
from sparklog_server.controller.alter_partition import alter_partition
from sparklog_server.controller.brokers import Brokers, fencing
from sparklog_server.controller.reassignments import alter_partition_reassignments
from sparklog_server.controller.sessions import Sessions
from sparklog_server.metadata.entries import BrokerImage, PartitionImage
from sparklog_server.metadata.features import ELR_VERSION, INITIAL
from sparklog_server.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from sparklog_server.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from sparklog_server.simulation.world import Machine, Violation, World

TOPIC = "t"
TOPIC_ID = Uuid(bytes(15) + b"\x07")
_REPLICAS = 3
_SESSION_US = 1_000_000
_CHECK_US = 50_000
_AGAIN_US = 50_000
_PROBED_US = (5_000, 300_000)
_CANCELLED = 0.25
"""The part of the reassignments that are cancels."""


class Habits(NamedTuple):
    """What a seed draws for its controller: probabilities of each event, and delays in microseconds."""

    delay_us: int
    slow: float  # metadata or a reply takes a hundred times as long
    lost: float  # a request or its reply is lost: the sender is told that it timed out
    twice: float  # a request is decided again later
    move_us: int  # the mean time between leaderships that move for no reason; 0 for never
    suspect: float  # at a check, a broker that runs is fenced
    hasty: float  # a replica that just joined, or that the leader proposed to remove, is elected at once
    has_elr: bool
    reassign_us: int  # the mean time between reassignments, and cancels of them; 0 for never
    throttles: tuple[ConfigRecord, ...] = ()  # of replication
    is_throttle_kept: bool = False  # until the end, else until nothing fails any more

    @classmethod
    def drawn(cls, random: Random) -> "Habits":
        """Some runs have many events of one kind."""
        return cls(
            delay_us=random.choice((500, 2_000, 20_000)),
            slow=random.choice((0, 0, 0.02, 0.2)),
            lost=random.choice((0, 0.05, 0.3)),
            twice=random.choice((0, 0.05, 0.3)),
            move_us=random.choice((0, 300_000, 2_000_000)),
            suspect=random.choice((0, 0, 0.01)),
            hasty=random.choice((0, 0.1, 0.5)),
            has_elr=random.random() < 0.8,
            reassign_us=random.choice((0, 0, 300_000, 1_000_000)),
        )

    def throttled(self, random: Random) -> "Habits":
        """Some runs throttle the replicas outside the ISR, or those that the topic lists, on either side."""
        if random.random() < 0.6:
            return self
        rate = random.choice((0, 30_000, 200_000))
        if random.random() < 0.5:
            least = str(max(rate, 1_000))
            return self._replace(
                throttles=(_setting(BROKER_RESOURCE, "", REASSIGNMENT_RATE, least),),
                is_throttle_kept=rate > 0 and random.random() < 0.5,
            )
        sides = random.choice((("leader",), ("follower",), ("leader", "follower")))
        listed = random.choice(("*", "0:1,0:2,1:3,2:4"))
        records = [
            record
            for side in sides
            for record in (
                _setting(BROKER_RESOURCE, "", f"{side}.replication.throttled.rate", str(rate)),
                _setting(TOPIC_RESOURCE, TOPIC, f"{side}.replication.throttled.replicas", listed),
            )
        ]
        return self._replace(throttles=tuple(records), is_throttle_kept=rate > 0 and random.random() < 0.5)


def _setting(resource_type: int, name: str, key: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)


class Replicas(Protocol):
    """A process that has replicas, as the controller sees it."""

    def published(self, image: MetadataImage, now: Instant) -> list[Effect]:
        """Newer metadata have come."""

    def decided(self, then: Callable[[Any, Instant], None], reply: Message, now: Instant) -> list[Effect]:
        """The controller has answered."""


class ModelController:
    """`image` is what is committed, `reached` counts its interesting states. Calls come from the turns of
    processes; answers go by their machines.
    """

    def __init__(
        self,
        random: Random,
        moves: Random,
        habits: Habits,
        settings: TopicSettings,
        cluster_id: str,
        partitions: int,
    ) -> None:
        """`moves` draws the reassignments."""
        self.image = MetadataImage()
        self.reached = Counter[str]()
        self._random = random
        self._moves = moves
        self._habits = habits
        self._settings = settings
        self._partitions = partitions
        self._brokers = Brokers(NodeId(0), cluster_id, Sessions(NodeId(0), "", 1))
        self._heard_us: dict[NodeId, int] = {}
        self._world: World
        self._is_calm = False
        self.joined: Callable[[int, NodeId], None] = lambda *_: None
        """Told of each replica that joins an ISR, as soon as that is committed."""

    def attach(self, world: World, nodes: Sequence[NodeId]) -> None:
        """Begin: the topic is created when all nodes are in service."""
        self._world = world
        self._nodes = nodes
        levels = INITIAL if self._habits.has_elr else {**INITIAL, ELR_VERSION: 0}
        self._commit([FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()])
        self._commit(self._habits.throttles)
        self.reached["throttled"] += bool(self._habits.throttles)
        world.clock.after(_CHECK_US, self._check)

    def calm_down(self) -> None:
        """From now on nothing is lost, late or moved."""
        self._is_calm = True
        if not self._habits.is_throttle_kept:
            self._commit([msgspec.structs.replace(one, value=None) for one in self._habits.throttles])

    # -- requests

    def register(
        self, machine: Machine, request: BrokerRegistrationRequest, then: Callable[[Any, Instant], None]
    ) -> None:
        """A process registers; it gets the metadata with the answer, sooner or later."""
        self._world.clock.after(
            self._delay_us(), partial(self._register, machine, machine.life, request, then)
        )

    def _register(
        self,
        machine: Machine,
        life: int,
        request: BrokerRegistrationRequest,
        then: Callable[[Any, Instant], None],
    ) -> None:
        if machine.life != life:
            return
        outcome = self._brokers.register(self.image, request, self._next, self._now(), self._settings_for)
        self._commit(outcome.records)
        if outcome.reply.error_code:
            self._world.clock.after(_AGAIN_US, partial(self._register, machine, life, request, then))
            return
        self._heard_us[machine.node] = self._world.clock.us
        self._reply(machine, life, then, outcome.reply)

    def beat(self, machine: Machine, broker_epoch: int, offset: Offset) -> None:
        """A heartbeat."""
        if not self._happens(self._habits.lost):
            self._world.clock.after(self._delay_us(), partial(self._beat, machine.node, broker_epoch, offset))

    def _beat(self, node: NodeId, broker_epoch: int, offset: Offset) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=node, broker_epoch=broker_epoch, current_metadata_offset=offset
        )
        outcome = self._brokers.heartbeat(self.image, request, self._next, self._now(), self._settings_for)
        if not outcome.reply.error_code:
            self._heard_us[node] = self._world.clock.us
            self._commit(outcome.records)

    def alter(
        self, machine: Machine, request: AlterPartitionRequest, then: Callable[[Any, Instant], None]
    ) -> None:
        """A leader proposes ISRs."""
        if self._happens(self._habits.twice):
            again = partial(self._alter, machine, machine.life, request, None)
            self._world.clock.after(self._delay_us() + self._delay_us(), again)
        self._world.clock.after(self._delay_us(), partial(self._alter, machine, machine.life, request, then))

    def _alter(
        self,
        machine: Machine,
        life: int,
        request: AlterPartitionRequest,
        then: Callable[[Any, Instant], None] | None,
    ) -> None:
        broker = self.image.brokers.get(NodeId(request.broker_id))
        reply = AlterPartitionResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
        if broker is None or broker.epoch != request.broker_epoch:
            reply = AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        elif not self._happens(self._habits.lost) and not self._elects_removed(request):
            outcome = alter_partition(self.image, request, self._settings_for)
            before = self.image
            self._commit(outcome.records)
            self._elect_joined(before)
            if not self._happens(self._habits.lost):
                reply = outcome.reply
        if then is not None:
            self._reply(machine, life, then, reply)

    def _elects_removed(self, request: AlterPartitionRequest) -> bool:
        """Instead of the first shrink, elect the replica that was to leave."""
        for topic in request.topics:
            for asked in topic.partitions:
                partition = self.image.topics_by_id[TOPIC_ID].partitions[asked.partition_index]
                proposed = [state.broker_id for state in asked.new_isr_with_epochs]
                leaving = [node for node in partition.isr if node not in proposed]
                if self._elect(asked.partition_index, leaving):
                    return True
        return False

    def _elect_joined(self, before: MetadataImage) -> None:
        old = before.topics_by_id[TOPIC_ID].partitions
        for index, partition in enumerate(self.image.topics_by_id[TOPIC_ID].partitions):
            joined = [node for node in partition.isr if node not in old[index].isr]
            for node in joined:
                self.joined(index, node)
            self._elect(index, joined)

    def _elect(self, index: int, nodes: Sequence[NodeId]) -> bool:
        """Be hasty, perhaps."""
        able = [node for node in nodes if self.image.brokers[node].is_active]
        if not able or not self._happens(self._habits.hasty):
            return False
        leader = self._random.choice(able)
        self._commit([PartitionChangeRecord(partition_id=index, topic_id=TOPIC_ID, leader=leader)])
        self.reached["elected-in-haste"] += 1
        return True

    def _reply(
        self, machine: Machine, life: int, then: Callable[[Any, Instant], None], reply: Message
    ) -> None:
        self._world.clock.after(self._delay_us(), partial(self._give, machine, life, then, reply))

    def _give(
        self, machine: Machine, life: int, then: Callable[[Any, Instant], None], reply: Message
    ) -> None:
        if machine.life != life:
            return
        if machine.is_paused:
            self._world.clock.after(_AGAIN_US, partial(self._give, machine, life, then, reply))
            return
        machine.call(lambda process, now: cast("Replicas", process).decided(then, reply, now))
        self._publish(machine)

    # -- metadata

    @property
    def _next(self) -> Offset:
        return Offset(self.image.offset + 1)

    def _settings_for(self, topic: str) -> TopicSettings:
        return self._settings

    def _commit(self, records: Sequence[Message]) -> None:
        if not records:
            return
        first, before = self._next, self.image
        self.image, _ = self.image.apply(
            (Offset(first + number), record) for number, record in enumerate(records)
        )
        for topic in self.image.topics_by_id.values():
            self.reached["leaderless"] += any(one.leader < 0 for one in topic.partitions)
            self.reached["alone-in-sync"] += any(len(one.isr) == 1 for one in topic.partitions)
            self.reached["eligible"] += any(one.eligible_leader_replicas for one in topic.partitions)
            for number, one in enumerate(topic.partitions):
                if not set(one.isr) <= set(one.replicas) or set(one.isr) & set(one.eligible_leader_replicas):
                    raise Violation("isr", f"partition {number}: {one}")
                if one.leader >= 0 and (
                    one.leader not in one.isr or not self.image.brokers[one.leader].is_active
                ):
                    raise Violation("leader", f"partition {number}: {one}")
                if one.leader >= 0 and any(self.image.brokers[node].is_fenced for node in one.isr):
                    raise Violation("fenced-in-sync", f"partition {number}: {one}")
            for number, one in enumerate(topic.partitions):
                self._check_held_up(number, one)
            if (known := before.topics_by_id.get(topic.topic_id)) is not None:
                for number, (was, now) in enumerate(zip(known.partitions, topic.partitions, strict=True)):
                    self._check_reassignment(number, was, now)
        for machine in self._world.machines.values():
            if machine.node in self._nodes:
                self._publish(machine)

    def _check_held_up(self, number: int, one: PartitionImage) -> None:
        """A reassignment has ended once all new replicas are in sync, and all live ones of the target; one
        that lowers the replication factor waits for dead ones too. Raises Violation.
        """
        if not one.adding_replicas and not one.removing_replicas:
            return
        target = [node for node in one.replicas if node not in one.removing_replicas]
        alive = [node for node in target if self.image.brokers[node].is_active]
        awaited = target if len(one.adding_replicas) < len(one.removing_replicas) else one.adding_replicas
        if set(one.isr).intersection(target) and {*alive, *awaited} <= set(one.isr):
            raise Violation("held-up", f"partition {number}: {one}")

    def _check_reassignment(self, number: int, before: PartitionImage, now: PartitionImage) -> None:
        """No replica is given up before every new one is in sync, and a completed reassignment leaves at
        least as many in sync as are needed and can be. Raises Violation.
        """
        left = set(before.replicas) - set(now.replicas)
        if not left or left <= set(before.adding_replicas):
            return
        self.reached["reassigned"] += 1
        alive = [node for node in now.replicas if self.image.brokers[node].is_active]
        needed = min(self._settings.min_insync_replicas, len(alive), len(before.isr))
        added = set(before.adding_replicas) & set(now.replicas)
        if not added <= set(now.isr) or len(now.isr) < needed:
            raise Violation("given-up", f"partition {number}: from {before} to {now}")

    def _publish(self, machine: Machine) -> None:
        self._world.clock.after(self._delay_us(), partial(self._deliver, machine, machine.life, self.image))

    def _deliver(self, machine: Machine, life: int, image: MetadataImage) -> None:
        if machine.life != life:
            return
        if machine.is_paused:
            self._world.clock.after(_AGAIN_US, partial(self._deliver, machine, life, image))
            return
        machine.call(lambda process, now: cast("Replicas", process).published(image, now))

    # -- what happens by itself

    def _check(self) -> None:
        clock = self._world.clock
        clock.after(_CHECK_US, self._check)
        if TOPIC_ID not in self.image.topics_by_id:
            brokers = [self.image.brokers.get(node) for node in self._nodes]
            known = [broker for broker in brokers if broker is not None and not broker.is_fenced]
            if len(known) == len(self._nodes):
                self._create(known)
            return
        for node, broker in self.image.brokers.items():
            if not broker.is_fenced and (
                clock.us - self._heard_us.get(node, 0) > _SESSION_US or self._happens(self._habits.suspect)
            ):
                self._commit(fencing(self.image, broker, self._settings_for))
        if self._habits.move_us and self._happens(_CHECK_US / self._habits.move_us):
            self._move()
        is_reassigning = self._habits.reassign_us and not self._is_calm
        if is_reassigning and self._moves.random() < _CHECK_US / self._habits.reassign_us:
            self._reassign()

    def ended(self, node: NodeId) -> None:
        """A process has ended: the end of its connection may tell."""
        if self._random.random() < 0.7:
            broker = self.image.brokers.get(node)
            if broker is not None:
                delay_us = self._random.randint(*_PROBED_US)
                self._world.clock.after(delay_us, partial(self._fence, node, broker.epoch))

    def _fence(self, node: NodeId, epoch: int) -> None:
        broker = self.image.brokers.get(node)
        if broker is not None and broker.epoch == epoch and not broker.is_fenced:
            self._commit(fencing(self.image, broker, self._settings_for))

    def _move(self) -> None:
        """Another leader from the ISR, or the same one in a new epoch."""
        index = self._random.randrange(self._partitions)
        partition = self.image.topics_by_id[TOPIC_ID].partitions[index]
        able = [node for node in partition.isr if self.image.brokers[node].is_active]
        if partition.leader >= 0 and able:
            leader = self._random.choice(able)
            self._commit([PartitionChangeRecord(partition_id=index, topic_id=TOPIC_ID, leader=leader)])

    def _reassign(self) -> None:
        """Ask for other replicas of a partition, or for its original ones."""
        index, nodes = self._moves.randrange(self._partitions), [*map(int, self._nodes)]
        target = self._moves.sample(nodes, self._moves.randint(_REPLICAS - 1, min(_REPLICAS + 1, len(nodes))))
        asked = None if self._moves.random() < _CANCELLED else target
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(TOPIC, [ReassignablePartition(index, asked)])]
        )
        outcome = alter_partition_reassignments(self.image, request, self._settings_for)
        self._commit(outcome.records)
        code = code_of(outcome.reply.responses[0].partitions[0].error_code)
        self.reached[f"{'cancel' if asked is None else 'reassign'}-{code.name}"] += 1

    def _create(self, brokers: Sequence[BrokerImage]) -> None:
        records: list[Message] = [TopicRecord(name=TOPIC, topic_id=TOPIC_ID)]
        for index in range(self._partitions):
            chosen = self._random.sample(brokers, _REPLICAS)
            nodes = [int(broker.node_id) for broker in chosen]
            records.append(
                PartitionRecord(
                    partition_id=index,
                    topic_id=TOPIC_ID,
                    replicas=nodes,
                    isr=nodes,
                    leader=nodes[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[broker.directories[0] for broker in chosen],
                )
            )
        self._commit(records)

    # -- chance

    def _happens(self, probability: float) -> bool:
        return probability > 0 and not self._is_calm and self._random.random() < probability

    def _delay_us(self) -> int:
        delay_us = self._random.randint(100, self._habits.delay_us)
        return 100 * delay_us if self._happens(self._habits.slow) else delay_us

    def _now(self) -> Instant:
        return self._world.clock.now
