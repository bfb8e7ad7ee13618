"""Whole clusters in a world: brokers and controllers, and clients that reach them over the same network.

chaos ──────► the core is healed ──────────► all is healed ───────────► end ──────► checked
clients write, create topics and commit offsets                         all nodes agree
              clients reach the core alone;
              it serves what it has

The core is a majority of the voters. While the rest stays broken for as long as one waits, it serves each
partition of which it has two replicas, one of them in sync or eligible.
"""

from collections import Counter
from collections.abc import Callable, Set
from functools import partial
from typing import NamedTuple

from sparklog.effects import Sync
from sparklog.model import NodeId, Offset, Ticket, TopicPartition
from sparklog_server.broker.broker import Broker
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.snapshot import digest
from sparklog_server.simulation import nemesis
from sparklog_server.simulation.broker_process import BrokerProcess
from sparklog_server.simulation.client_process import ClientProcess, Steps
from sparklog_server.simulation.clock import START_US, VirtualClock
from sparklog_server.simulation.cluster_clients import PARTITIONS, TOPIC, TRANSACTION_TOPIC, Clients, Notes
from sparklog_server.simulation.cluster_transactions import IDS, TransactionClients
from sparklog_server.simulation.history import Outcome as Transacted
from sparklog_server.simulation.nemesis import Nemesis, Phases
from sparklog_server.simulation.randomness import random_for
from sparklog_server.simulation.replica_ledger import ReplicaLedger
from sparklog_server.simulation.scenario import Kind, Scenario
from sparklog_server.simulation.world import Machine, Process, Violation, World

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAw"
_CHECK_MS = 60_000
"""Within so long after the end everything is in order."""
_STEP_MS = 1_000
_STAYS_MS = 10_000
"""What is in order stays so for as long: longer than the sessions of brokers last."""
_FENCED_WITHIN_MS = 1_000
_REPLICAS = 3
_SERVING = 2
"""The core serves a partition of which it has so many replicas."""
_VOTERS_APART = 3
_SHAPES = ((3, 3),) * 6 + ((5, 5), (5, 3)) * 2 + ((7, 7), (7, 3))
"""Nodes, and how many of them are voters."""
_DIGESTS_OF = 4
"""Images are compared where their offset is a multiple of this."""
PHASES = Phases(chaos_ms=10_000, core_ms=16_000, healed_ms=8_000)
_SERVED_MS = 5_000
"""Before the end of its phase, the core serves for so long."""
_IMPATIENT = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "2000",
    "sparklog.log.dir.stall.ms": "1000",
}
WATCHED = (TOPIC, TRANSACTION_TOPIC, "__consumer_offsets", "__transaction_state")
_LONE, _IN_RACKS = 0.2, 0.3
_IMPATIENT_RUNS = 0.7
_OPERATED = 0.5
"""The part of the runs with three replicas in which replicas move, and brokers are drained."""
_RUNS_US = 3_000_000
"""A broker that has run for so long is in service, where nodes are only killed."""


class Outcome(NamedTuple):
    """The result of a run. `reached` counts what the clients were told, and the interesting states."""

    failure: Violation | None
    events: int
    digest: int
    reached: dict[str, int]


def drawn(seed: int, count: int | None = None) -> Scenario:
    """The scenario of a seed: three, five or seven nodes with both roles, or three of them controllers and
    the others brokers; `count` sets how many, from 3 to 7. The voters are static, so only a broker may lose
    its disk.
    """
    shapes = _SHAPES if count is None else ((count, count), (count, _VOTERS_APART))
    count, voter_count = random_for(seed, "shape").choice(shapes)
    nodes = [NodeId(node + 1) for node in range(count)]
    voters, kinds = nodes[:voter_count], (*nemesis.USUAL, Kind.LOSE)
    scenario = nemesis.drawn("cluster", seed, nodes, voters, kinds=kinds, phases=PHASES)
    faults = [one for one in scenario.faults if one.kind is not Kind.LOSE or one.nodes[0] not in voters]
    return scenario._replace(faults=tuple(faults))


class Replication(NamedTuple):
    """How all topics of a run are replicated, and whether the brokers stand in two racks."""

    factor: int
    min_in_sync: int
    flush: str
    has_racks: bool


def replication_of(scenario: Scenario) -> Replication:
    """The replication of a scenario, by its seed.

    Where disks are lost there is one replica, and where the power fails records are synced: what only the
    page cache of a machine has is lost with it.
    """
    random = random_for(scenario.seed, "replicas")
    kinds = {fault.kind for fault in scenario.faults}
    brokers = len(scenario.nodes) - len(scenario.voters) or len(scenario.nodes)
    min_in_sync, has_racks = random.choice((1, 2, 2)), random.random() < _IN_RACKS
    if brokers < _REPLICAS or Kind.LOSE in kinds or random.random() < _LONE:
        return Replication(1, min_in_sync, "auto", has_racks)
    flush = "always" if Kind.POWER in kinds else random.choice(("auto", "never", "always"))
    return Replication(_REPLICAS, min_in_sync, flush, has_racks)


def run(
    scenario: Scenario,
    *,
    broker_class: type[Broker] = Broker,
    trace: Callable[[str], None] | None = None,
) -> Outcome:
    """Run a scenario to its end, or to the first violation."""
    run = _Run(scenario, broker_class)
    run.world.trace = trace
    failure = None
    try:
        run.to_end()
    except Violation as violation:
        failure = violation
    except AssertionError as error:
        failure = Violation("assertion", str(error))
    return Outcome(failure, run.world.events, run.world.digest, dict(run.reached()))


class _Run:
    def __init__(self, scenario: Scenario, broker_class: type[Broker]) -> None:
        self._scenario = scenario
        self.notes = Notes()
        voters = scenario.voters
        brokers = [node for node in scenario.nodes if node not in voters]
        self._roles: dict[NodeId, tuple[str, ...]] = {
            **dict.fromkeys(brokers, ("broker",)),
            **dict.fromkeys(voters, ("controller",) if brokers else ("broker", "controller")),
        }
        self._replication = replication_of(scenario)
        self._is_impatient = random_for(scenario.seed, "patience").random() < _IMPATIENT_RUNS
        self._brokers = brokers or voters
        clients = Clients(self._brokers, self.notes, self._replication.factor)
        steps: list[Callable[..., Steps]] = [clients.administrator, clients.committer, clients.checker]
        steps += [partial(clients.writer, partition=partition) for partition in range(PARTITIONS)]
        clock = VirtualClock()
        producers = TransactionClients(clients, self.notes, clock)
        self.history = producers.history
        steps_us = [START_US + one.at_ms * 1000 for one in scenario.faults if one.kind is Kind.STEP]
        self.history.stepped_us = min(steps_us, default=None)
        steps += [producers.reader, *(partial(producers.transactor, number=number) for number in range(IDS))]
        self._operated = Counter({"moved": 0, "moves-refused": 0, "states-asked": 0})
        if (
            self._replication.factor == _REPLICAS
            and random_for(scenario.seed, "operator").random() < _OPERATED
        ):
            moved = [(name, one) for name in WATCHED for one in range(PARTITIONS)]
            steps.append(partial(clients.operator, moved=moved, counts=self._operated))
        self._steps = {NodeId(101 + number): one for number, one in enumerate(steps)}
        self._broker_class = broker_class
        self._is_calm = all(fault.kind is Kind.KILL for fault in scenario.faults)
        watched = [TopicPartition(name, one) for name in WATCHED for one in range(PARTITIONS)]
        self.replicas = ReplicaLedger(tuple(watched))
        self.watch = _Watch(self.notes, self.replicas, is_calm=self._is_calm)
        self.world = World(scenario.seed, (*scenario.nodes, *self._steps), self._process, self.watch, clock)
        Nemesis(self.world, scenario.faults)

    def _process(self, machine: Machine) -> Process:
        steps = self._steps.get(machine.node)
        if steps is not None:
            random = random_for(self._scenario.seed, f"client {machine.node}")
            return ClientProcess(machine, partial(steps, random))
        host, roles = f"n{machine.node}", self._roles[machine.node]
        addresses = {"broker": f"PLAINTEXT://{host}:9092", "controller": f"CONTROLLER://{host}:9093"}
        settings = {
            "node.id": str(machine.node),
            "process.roles": ",".join(roles),
            "listeners": ",".join(addresses[role] for role in roles),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{one}@n{one}:9093" for one in self._scenario.voters),
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.num.partitions": "3",
            "default.replication.factor": str(self._replication.factor),
            "offsets.topic.replication.factor": str(self._replication.factor),
            "transaction.state.log.replication.factor": str(self._replication.factor),
            "transaction.state.log.min.isr": str(self._replication.min_in_sync),
            "min.insync.replicas": str(self._replication.min_in_sync),
            "sparklog.ack.flush": self._replication.flush,
            "log.message.timestamp.after.max.ms": str(1 << 60),  # wall clocks step
            **({"broker.rack": f"rack-{machine.node % 2}"} if self._replication.has_racks else {}),
            **(_IMPATIENT if self._is_impatient else {}),
        }
        return BrokerProcess(machine, settings, cluster_id=CLUSTER_ID, broker_class=self._broker_class)

    def to_end(self) -> None:
        """Run all phases. Raises Violation."""
        scenario = self._scenario
        for fault in scenario.faults if self._is_calm else ():
            if fault.for_ms > _FENCED_WITHIN_MS:
                at_us = START_US + (fault.at_ms + _FENCED_WITHIN_MS) * 1000
                self.world.clock.at(at_us, partial(self._check_fenced, fault.nodes))
        self.world.start()
        self._run_until(scenario.core_ms)
        self.notes.is_operated = False
        self._serve_in_core()
        self._run_until(scenario.end_ms)
        self.notes.is_over = True
        reached = self.watch.reached
        for ms in range(scenario.end_ms, scenario.end_ms + _CHECK_MS, _STEP_MS):
            self._run_until(ms + _STEP_MS)
            if self._unsettled(reached) is None:
                self._run_until(ms + _STEP_MS + _STAYS_MS)
                break
        if (violation := self._unsettled(reached)) is not None:
            raise violation

    def _unsettled(self, reached: Offset) -> Violation | None:
        """What the end still lacks; what holds at last has to stay so."""
        try:
            self._check_nodes(reached)
            if not self.notes.lost:
                self._check_replicas()
        except Violation as violation:
            return violation
        if not (self.notes.is_checked and self.notes.is_concluded):
            return Violation("not-readable", "the records cannot be read after the end")
        return None

    def _serve_in_core(self) -> None:
        """The core is healed. Where brokers soon count as dead, it serves them. Raises Violation."""
        scenario = self._scenario
        core = set(scenario.core) & set(self._brokers)
        if not self._is_impatient or self._replication.factor < _REPLICAS or len(core) < _SERVING:
            return
        self.notes.reachable = sorted(core)
        self._run_until(scenario.healed_ms - _SERVED_MS)
        before = {partition: len(values) for partition, values in self.notes.acknowledged.items()}
        self._run_until(scenario.healed_ms - 1)
        self.notes.reachable = []
        processes = (self.world.machines[node].process for node in scenario.core)
        brokers = [one.broker for one in processes if isinstance(one, BrokerProcess)]
        if not any(broker._quorum.is_leader for broker in brokers):
            # A controller outside keeps its majority, and fences the nodes of the core that do not reach it.
            self.watch.counts["controlled-from-outside"] += 1
            return
        image = max((broker._quorum.image for broker in brokers), key=lambda one: one.offset)
        for partition, count in before.items():
            at = TopicPartition(TOPIC, partition)
            is_due = _is_served(image.partition(at), core)
            self.watch.counts["served-by-core" if is_due else "not-of-core"] += 1
            if is_due and len(self.notes.acknowledged[partition]) == count:
                raise Violation("core-stuck", f"{at} took nothing in {_SERVED_MS} ms: {image.partition(at)}")

    def reached(self) -> Counter[str]:
        """How often each interesting state was there."""
        notes, counts = self.notes, Counter[str]()
        counts["acknowledged"] = sum(map(len, notes.acknowledged.values()))
        counts["created"] = len(notes.created)
        counts["committed"] = notes.committed + 1
        counts["leaderships"] = self.replicas.led
        counts["truncations"] = self.replicas.cuts
        transactions = self.history.transactions
        counts["transactions"] = sum(txn.outcome is Transacted.COMMITTED for txn in transactions)
        counts.update(self.watch.counts)
        counts.update(self._operated)
        return counts

    def _run_until(self, ms: int) -> None:
        self.world.run(until_us=START_US + ms * 1000)

    def _check_fenced(self, killed: tuple[NodeId, ...]) -> None:
        for node in self._scenario.nodes:
            process = self.world.machines[node].process
            if isinstance(process, BrokerProcess):
                brokers = process.broker._quorum.image.brokers
                if late := [one for one in killed if one in brokers and not brokers[one].is_fenced]:
                    raise Violation("fenced-late", f"node {node} sees {late} in service")

    def _check_nodes(self, reached: Offset) -> None:
        for node in self._scenario.nodes:
            machine = self.world.machines[node]
            process = machine.process
            if not isinstance(process, BrokerProcess) or not process.broker.is_ready:
                raise Violation("node-down", f"node {node} is not in service: {machine.halts}")
            image = process.broker._quorum.image
            if image.offset < reached:
                raise Violation("node-behind", f"node {node} is at {image.offset}, others reached {reached}")
            if missing := self.notes.created - set(image.topics_by_name):
                raise Violation("topic-lost", f"node {node} lacks {sorted(missing)}")

    def _check_replicas(self) -> None:
        """All is healed: each replica of the watched partitions is in sync, and all end at one offset."""
        brokers = {
            node: process.broker
            for node in self._scenario.nodes
            if isinstance(process := self.world.machines[node].process, BrokerProcess)
        }
        image = max((broker._quorum.image for broker in brokers.values()), key=lambda one: one.offset)
        for at in self.replicas.watched:
            partition = image.partition(at)
            if partition is None:
                continue
            if partition.adding_replicas or partition.removing_replicas:
                raise Violation("move-stuck", f"{at}: {partition}")
            if set(partition.isr) != set(partition.replicas):
                raise Violation("not-in-sync", f"{at} has the ISR {partition.isr} of {partition.replicas}")
            found = {node: brokers[node]._partitions.find(at.topic, at.partition) for node in partition.isr}
            ends = {node: one and one.log.log_end_offset for node, one in found.items()}
            if len(set(ends.values())) > 1:
                raise Violation("logs-differ", f"{at} ends at {ends}")


def _is_served(partition: PartitionImage | None, core: Set[NodeId]) -> bool:
    """Whether the core can serve the partition: two of its replicas, one of which may lead."""
    if partition is None:
        return False
    may_lead = core & {*partition.isr, *partition.eligible_leader_replicas}
    return bool(may_lead) and len(core & set(partition.replicas)) >= _SERVING


class _Watch:
    """Checks that images at one offset are equal and, where nodes are only killed, that no broker that runs
    is fenced.
    """

    def __init__(self, notes: Notes, replicas: ReplicaLedger, *, is_calm: bool) -> None:
        self._notes = notes
        self._replicas = replicas
        self.counts = Counter[str]()
        self.reached = Offset(0)
        """The offset of the latest image of any node."""
        self._digests: dict[Offset, bytes] = {}
        self._is_calm = is_calm
        self._seen: dict[NodeId, MetadataImage] = {}
        self._started_us: dict[NodeId, int] = {}

    def check(self, machine: Machine) -> None:
        """A turn of the machine has ended."""
        process = machine.process
        if not isinstance(process, BrokerProcess):
            return
        if not self._notes.lost:
            self._replicas.check(machine.node, process.broker._partitions)
        image = process.broker._quorum.image
        before = self._seen.get(machine.node)
        if image is before:
            return
        self._seen[machine.node] = image
        self._started_us.setdefault(machine.node, machine.world.clock.us)
        if image.offset > self.reached:
            self.reached = image.offset
            self._count(image)
        if image.offset % _DIGESTS_OF == 0:
            own = digest(image)
            if self._digests.setdefault(image.offset, own) != own:
                raise Violation("images-differ", f"node {machine.node} at {image.offset}")
        if self._is_calm and before is not None:
            self._check_fenced(machine, before, image)

    def _count(self, image: MetadataImage) -> None:
        self.counts["fenced"] += any(one.is_fenced for one in image.brokers.values())
        for at in self._replicas.watched:
            partition = image.partition(at)
            if partition is not None:
                self.counts["leaderless"] += partition.leader < 0
                self.counts["alone-in-sync"] += len(partition.isr) == 1 < len(partition.replicas)
                self.counts["eligible"] += bool(partition.eligible_leader_replicas)

    def _check_fenced(self, machine: Machine, before: MetadataImage, image: MetadataImage) -> None:
        now_us = machine.world.clock.us
        for node, broker in image.brokers.items():
            was = before.brokers.get(node)
            if was is not None and not was.is_fenced and broker.is_fenced and was.epoch == broker.epoch:
                started_us = self._started_us.get(node)
                if started_us is not None and started_us + _RUNS_US < now_us:
                    raise Violation("fenced-alive", f"node {machine.node} sees that {node} is fenced")

    def ended(self, machine: Machine) -> None:
        """The process of the machine has ended."""
        self._seen.pop(machine.node, None)
        self._started_us.pop(machine.node, None)
        self._replicas.ended(machine.node)

    def disk_replaced(self, machine: Machine) -> None:
        """What was on the disk had one replica."""
        self._notes.lost.add(machine.node)

    def sync_begins(self, machine: Machine, sync: Sync) -> None:
        """Nothing depends on a sync."""

    def sync_ended(self, machine: Machine, ticket: Ticket) -> None:
        """Nothing depends on a sync."""
