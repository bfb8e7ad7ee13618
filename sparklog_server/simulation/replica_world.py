"""Replication alone in a world: brokers reduced to their replicas under a model of the controller, with
producers, over the same machines, network and faults as whole clusters, and an order of magnitude faster.

chaos ──────────────────────► all is healed ──► nothing is written ──► end ──► checked
producers write all the time                    replicas catch up               all are in sync and equal

A replica behind a slow connection joins an ISR only when there is nothing new, as in Kafka. Each of its
fetches gets the records of one segment, so many small segments take it longer than the time until the end:
then the run goes on until all are in sync, for `_CATCH_UP_MS` at most.
"""

from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

from sparklog.effects import Sync
from sparklog.model import NodeId, Offset, Ticket, TopicPartition
from sparklog.record.batch import iterate_headers
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.replica.partition import Partition
from sparklog_server.simulation import nemesis
from sparklog_server.simulation.clock import START_US, VirtualClock
from sparklog_server.simulation.nemesis import Nemesis, Phases
from sparklog_server.simulation.post import Post
from sparklog_server.simulation.randomness import random_for
from sparklog_server.simulation.replica_controller import TOPIC, Habits, ModelController
from sparklog_server.simulation.replica_ledger import ReplicaLedger
from sparklog_server.simulation.replica_process import LOG_DIR, PORT, ReplicaProcess
from sparklog_server.simulation.replica_producer import Acked, ReplicaProducer
from sparklog_server.simulation.scenario import Fault, Kind, Scenario
from sparklog_server.simulation.world import Machine, Process, Violation, World

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAw"
PHASES = Phases(chaos_ms=4_000, core_ms=0, healed_ms=6_000)
_PARTITIONS_MAX = 3
_READ_BYTES = 1 << 20
_QUIET_MS = 3_000
_CATCH_UP_MS, _CATCH_UP_STEP_MS = 20_000, 500
_KINDS = tuple(kind for kind in nemesis.USUAL if kind is not Kind.STEP)


class Outcome(NamedTuple):
    """The result of a run. `reached` counts the interesting states that it has seen."""

    failure: Violation | None
    events: int
    digest: int
    reached: dict[str, int]


def drawn(seed: int) -> Scenario:
    """The scenario of a seed: three to five nodes. Many runs have one power cut, of one node."""
    random = random_for(seed, "shape")
    nodes = [NodeId(node + 1) for node in range(random.choice((3, 3, 4, 5)))]
    scenario = nemesis.drawn("replica", seed, nodes, nodes, kinds=_KINDS, phases=PHASES)
    powers = [fault for fault in scenario.faults if fault.kind is Kind.POWER]
    if not powers and random.random() < 0.5:
        at_ms, for_ms = random.randint(200, 3_000), random.randint(1, 400)
        power = Fault(at_ms, for_ms, Kind.POWER, (random.choice(nodes),))
        return scenario._replace(faults=_in_order([*scenario.faults, power]))
    if not powers or random.random() < 0.5:
        return scenario
    only = powers[0]._replace(nodes=powers[0].nodes[:1])
    others = [
        fault._replace(kind=Kind.KILL) if fault.kind is Kind.POWER else fault
        for fault in scenario.faults
        if fault is not powers[0]
    ]
    return scenario._replace(faults=_in_order([only, *others]))


def _in_order(faults: list[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: (fault.at_ms, fault.kind.value)))


def durability_of(scenario: Scenario) -> tuple[str, bool]:
    """`sparklog.ack.flush`, and whether eligible leader replicas must be enabled.

    What only the page cache of a machine has is lost with its power. One machine may lose it: an unsynced
    record is on two, and the one that has lost it leads only after it has caught up (KIP-966).
    """
    powers = [fault for fault in scenario.faults if fault.kind is Kind.POWER]
    if len(powers) > 1 or any(len(fault.nodes) > 1 for fault in powers):
        return "always", False
    return random_for(scenario.seed, "flush").choice(("auto", "never", "always")), bool(powers)


def run(scenario: Scenario, *, trace: Callable[[str], None] | None = None) -> Outcome:
    """Run a scenario to its end, or to the first violation."""
    run = _Run(scenario)
    run.world.trace = trace
    failure = None
    try:
        run.to_end()
    except Violation as violation:
        failure = violation
    except AssertionError as error:
        failure = Violation("assertion", str(error))
    return Outcome(failure, run.world.events, run.world.digest, dict(run.reached()))


def min_in_sync_of(scenario: Scenario) -> int:
    """`min.insync.replicas`: two, where a power cut may take what is not synced, else one or two."""
    flush, loses_power = durability_of(scenario)
    if loses_power and flush != "always":
        return 2
    return random_for(scenario.seed, "in sync").choice((1, 2, 2))


@lru_cache(maxsize=64)
def _settings(node: int, flush: str, lag_ms: int, min_in_sync: int) -> BrokerSettings:
    given = {
        "node.id": str(node),
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://n{node}:{PORT}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "100@n100:9093",
        "log.dirs": LOG_DIR,
        "log.roll.ms": "1000",
        "log.message.timestamp.after.max.ms": str(1 << 60),  # clocks drift
        "min.insync.replicas": str(min_in_sync),
        "replica.fetch.wait.max.ms": "200",
        "replica.lag.time.max.ms": str(lag_ms),
        "replica.socket.timeout.ms": "2000",
        "sparklog.ack.flush": flush,
    }
    return BrokerSettings.of(given, is_insecure_allowed=True)


class _Run:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        random = random_for(scenario.seed, "replicas")
        flush, needs_elr = durability_of(scenario)
        count = random.randint(1, _PARTITIONS_MAX)
        lag_ms, min_in_sync = random.choice((300, 600, 1_500)), min_in_sync_of(scenario)
        self._settings = partial(_settings, flush=flush, lag_ms=lag_ms, min_in_sync=min_in_sync)
        self._partitions = [TopicPartition(TOPIC, index) for index in range(count)]
        self.post = Post()
        habits = Habits.drawn(random)
        habits = habits._replace(has_elr=habits.has_elr or needs_elr)
        habits = habits.throttled(random_for(scenario.seed, "throttles"))
        self.controller = ModelController(
            random_for(scenario.seed, "controller"),
            random_for(scenario.seed, "moves"),
            habits,
            self._settings(1).topics,
            CLUSTER_ID,
            count,
        )
        self._acked: dict[int, list[Acked]] = {}
        self._healed: Counter[int] = Counter()
        self._producers = {
            NodeId(101 + 2 * index + number): (index, acks)
            for index in range(count)
            for number, acks in enumerate((-1, 1))
        }
        self.ledger = ReplicaLedger(tuple(self._partitions))
        nodes = (*scenario.nodes, *self._producers)
        self.world = World(scenario.seed, nodes, self._process, _Watch(self), VirtualClock())
        self.controller.attach(self.world, scenario.nodes)
        self.controller.joined = self._joined
        Nemesis(self.world, scenario.faults)

    def _process(self, machine: Machine) -> Process:
        known = self._producers.get(machine.node)
        nodes = self._scenario.nodes
        if known is None:
            settings = self._settings(machine.node)
            return ReplicaProcess(machine, settings, CLUSTER_ID, self.post, self.controller)
        partition, acks = known
        random = random_for(self._scenario.seed, f"producer {machine.node}")
        acked, leads = partial(self._acknowledged, partition), partial(self._leads, partition)
        until_us = START_US + (self._scenario.end_ms - _QUIET_MS) * 1000
        return ReplicaProducer(
            machine,
            random,
            self.post,
            nodes,
            partition,
            acks=acks,
            acked=acked,
            leads=leads,
            until_us=until_us,
        )

    def _leads(self, partition: int, node: NodeId) -> bool:
        image = self.controller.image.partition(self._partitions[partition])
        return image is not None and image.leader == node

    def _acknowledged(self, partition: int, batch: Acked) -> None:
        """Everything that is acknowledged has been committed before, if it was not deleted: as in Kafka, the
        state of a producer may have a batch of a former leader below a log start. Raises Violation.
        """
        at = self._partitions[partition]
        known = self.ledger.of(at).batches.get(batch.base)
        if (known is None or known.crc != batch.crc) and batch.base >= self._log_start(at):
            raise Violation("acknowledged", f"{at}: {batch}, committed is {known}")
        self._acked.setdefault(partition, []).append(batch)
        if self.world.clock.us > START_US + self._scenario.healed_ms * 1000:
            self._healed[partition] += 1

    def _joined(self, partition: int, node: NodeId) -> None:
        """A replica that joins the ISR has every committed record. Raises Violation.

        Where its process has ended since, or is not registered again, the controller will learn that.
        """
        at, process = self._partitions[partition], self.world.machines[node].process
        if not isinstance(process, ReplicaProcess):
            return
        replica, known = process.partitions.find(*at), self.controller.image.brokers[node]
        if replica is None or process.context.broker_epoch.value != known.epoch:
            return
        if replica.log.log_end_offset < self.ledger.of(at).end:
            end = replica.log.log_end_offset
            raise Violation("joined-behind", f"{at}: node {node} ends at {end} of {self.ledger.of(at).end}")

    def _log_start(self, at: TopicPartition) -> Offset:
        """The greatest log start of the replicas that run."""
        processes = (machine.process for machine in self.world.machines.values())
        running = [one for one in processes if isinstance(one, ReplicaProcess)]
        found = [one.partitions.find(*at) for one in running]
        return max((one.log.log_start_offset for one in found if one is not None), default=Offset(0))

    def to_end(self) -> None:
        """Run all phases. Raises Violation."""
        scenario = self._scenario
        self.world.start()
        self._run_until(scenario.healed_ms)
        self.controller.calm_down()
        for ms in range(scenario.end_ms, scenario.end_ms + _CATCH_UP_MS, _CATCH_UP_STEP_MS):
            self._run_until(ms)
            if all(map(self._is_in_sync, self._partitions)):
                break
        for index, at in enumerate(self._partitions):
            if not self._healed[index]:
                raise Violation("not-writable", f"{at} took no record after the end of all faults")
            self._check_replicas(at)

    def _run_until(self, ms: int) -> None:
        self.world.run(until_us=START_US + ms * 1000)

    def _is_in_sync(self, at: TopicPartition) -> bool:
        image = self.controller.image.partition(at)
        is_moving = image is not None and (image.adding_replicas or image.removing_replicas)
        return image is not None and not is_moving and set(image.isr) == set(image.replicas)

    def _check_replicas(self, at: TopicPartition) -> None:
        """All replicas are in sync, and have one log below the lowest end."""
        image = self.controller.image.partition(at)
        if image is None or not self._is_in_sync(at):
            raise Violation("not-in-sync", f"{at}: {image}")
        replicas = {node: self._replica(node, at) for node in image.replicas}
        end = min(one.log.log_end_offset for one in replicas.values())
        start = max(one.log.log_start_offset for one in replicas.values())
        logs = {node: _batches(one, start, end) for node, one in replicas.items()}
        committed = self.ledger.of(at)
        if committed.end > end:
            raise Violation(
                "follower-behind", f"{at} is committed to {committed.end}, a replica ends at {end}"
            )
        for node, log in logs.items():
            if log != logs[image.leader]:
                raise Violation("logs-differ", f"{at}: nodes {node} and {image.leader}")

    def _replica(self, node: NodeId, at: TopicPartition) -> Partition:
        process = self.world.machines[node].process
        found = process.partitions.find(*at) if isinstance(process, ReplicaProcess) else None
        if found is None:
            raise Violation("node-down", f"node {node} has no {at}: {self.world.machines[node].halts}")
        return found

    def reached(self) -> Counter[str]:
        """How often each interesting state was there."""
        counts = Counter(self.controller.reached)
        counts["acknowledged"] = sum(map(len, self._acked.values()))
        counts["leaderships"] = self.ledger.led
        counts["truncations"] = self.ledger.cuts
        return counts


def _batches(partition: Partition, start: Offset, end: Offset) -> list[tuple[int, int, int]]:
    """Base offset, leader epoch and checksum of every batch in `[start, end)`."""
    found = []
    while start < end:
        part = partition.log.read(start, end, _READ_BYTES, at_least_one=True)
        assert part is not None
        for _, header in iterate_headers(part.read()):
            found.append((header.base_offset, header.leader_epoch, header.crc))
            start = Offset(header.next_offset)
    return found


class _Watch:
    """Checks the replicas of a node after each of its turns."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    def check(self, machine: Machine) -> None:
        """A turn of the machine has ended."""
        if isinstance(machine.process, ReplicaProcess):
            self._run.ledger.check(machine.node, machine.process.partitions)

    def ended(self, machine: Machine) -> None:
        """The process of the machine has ended."""
        self._run.ledger.ended(machine.node)
        self._run.controller.ended(machine.node)

    def disk_replaced(self, machine: Machine) -> None:
        """No disk is replaced here."""

    def sync_begins(self, machine: Machine, sync: Sync) -> None:
        """Nothing depends on a sync."""

    def sync_ended(self, machine: Machine, ticket: Ticket) -> None:
        """Nothing depends on a sync."""
