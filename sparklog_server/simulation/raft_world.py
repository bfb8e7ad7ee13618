"""Raft nodes without brokers in a world: a client proposes records, faults happen, and the invariants are
checked.

chaos ──────► the core is healed ──────────► all is healed ───────────► end
safety only   a leader, and records are      its epoch stays,
              committed, at the end of it    all nodes are caught up
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sparklog.effects import Effect
from sparklog.model import Instant, LeaderEpoch, NodeId, Uuid
from sparklog_server.raft.node import RaftNode
from sparklog_server.simulation import nemesis
from sparklog_server.simulation.clock import START_US
from sparklog_server.simulation.invariants import RaftWatch
from sparklog_server.simulation.nemesis import Nemesis
from sparklog_server.simulation.raft_operator import RaftOperator
from sparklog_server.simulation.raft_process import RaftProcess
from sparklog_server.simulation.randomness import random_for
from sparklog_server.simulation.scenario import Kind, Scenario
from sparklog_server.simulation.world import Machine, Process, Violation, World

_SETTLED_MS = 2_000  # before the end of a phase, during which nothing may change any more
_SNAPSHOT_OFFSETS = (6, 20, 1_000_000)  # committed records between two snapshots
_QUIET_MS = 4_000  # without proposals, at the end: a slow follower may need a snapshot and another fetch
_STALE_US = 5_000_000
_PROPOSALS_US = (10_000, 300_000)
_CHANGING = 0.25
_JOINING = 0.3  # of the runs that change voters and lose a disk: nodes join by themselves (KIP-1186)


class Outcome(NamedTuple):
    """The result of a run. `reached` counts states by name."""

    failure: Violation | None
    events: int
    digest: int
    reached: dict[str, int]
    leaderless_ms_max: int


def drawn(seed: int) -> Scenario:
    """The scenario of a seed: three voters or five, and at times an observer; in a quarter of the seeds, one
    observer or two, and changes of the voters.
    """
    random = random_for(seed, "shape")
    voter_count = 3 if random.random() < 0.7 else 5
    nodes = [NodeId(node + 1) for node in range(voter_count + int(random.random() < 0.25))]
    kinds = nemesis.USUAL if random.random() < 0.7 else nemesis.FAULTS
    if random.random() >= _CHANGING:
        return nemesis.drawn("raft", seed, nodes, nodes[:voter_count], kinds=kinds)
    nodes = [NodeId(node + 1) for node in range(voter_count + random.randint(1, 2))]
    scenario = nemesis.drawn("raft", seed, nodes, nodes[:voter_count])
    return nemesis.with_changes(scenario, is_losing=random.random() < 0.5)


def run(
    scenario: Scenario,
    *,
    raft_class: type[RaftNode] = RaftNode,
    trace: Callable[[str], None] | None = None,
) -> Outcome:
    """Run a scenario to its end, or to the first violation."""
    run = _Run(scenario, raft_class)
    run.world.trace = trace
    failure = None
    try:
        run.to_end()
    except Violation as violation:
        failure = violation
    except AssertionError as error:
        failure = Violation("assertion", str(error))
    watch, world = run.watch, run.world
    return Outcome(failure, world.events, world.digest, watch.reached, watch.leaderless_us_max // 1000)


class _Run:
    def __init__(self, scenario: Scenario, raft_class: type[RaftNode]) -> None:
        self._scenario = scenario
        voters = {node: Uuid(bytes([node]) * 16) for node in scenario.voters}
        self.watch = RaftWatch(voters)
        snapshot_offsets = random_for(scenario.seed, "snapshots").choice(_SNAPSHOT_OFFSETS)
        # Voters of the settings are known by their ids alone (kraft.version 0): one that has lost its disk
        # would still count as a voter with its records, which no protocol tolerates.
        is_losing = any(fault.kind is Kind.LOSE for fault in scenario.faults)
        is_changing = any(fault.kind in nemesis.CHANGES for fault in scenario.faults)
        random = random_for(scenario.seed, "voters")
        is_dynamic = random.random() < 0.5 or is_losing or is_changing
        is_joining = is_changing and is_losing and random.random() < _JOINING

        def process(machine: Machine) -> Process:
            return RaftProcess(
                machine,
                voters,
                self.watch,
                snapshot_offsets=snapshot_offsets,
                is_dynamic=is_dynamic,
                is_joining=is_joining,
                bootstrap=scenario.nodes if is_changing else scenario.voters,
                raft_class=raft_class,
            )

        self.world = World(scenario.seed, scenario.nodes, process, self.watch)
        self._random = random_for(scenario.seed, "client")
        self._proposed = 0
        self._is_proposing = True
        self._operator: RaftOperator | None = None
        if is_joining:
            everyone = scenario._replace(voters=scenario.nodes)
            self._operator = RaftOperator(self.world, self.watch, everyone, is_idle=True)
        elif is_changing:
            self._operator = RaftOperator(self.world, self.watch, scenario)
        Nemesis(self.world, scenario.faults, None if self._operator is None else self._operator.wished)
        self.world.clock.after(self._random.randint(*_PROPOSALS_US), self._propose)

    def to_end(self) -> None:
        """Run all phases. Raises Violation."""
        scenario, world = self._scenario, self.world
        world.start()
        self._run_until(scenario.healed_ms - _SETTLED_MS)
        epoch, committed = self._core_epoch(), self.watch.ledger.end
        self._run_until(scenario.healed_ms - 1)
        self._check_stale_leaders()
        self._check_voters()
        if self.watch.ledger.end == committed:
            raise Violation("core-stuck", f"nothing was committed since {committed}: {self._roles()}")
        self._run_until(scenario.end_ms - _QUIET_MS)
        self._is_proposing = False
        self._run_until(scenario.end_ms)
        self._check_end()
        if epoch is not None and max(self.watch.leaders) != epoch:
            raise Violation("leader-deposed", f"epoch {epoch} had a leader in the core: {self._roles()}")

    def _check_stale_leaders(self) -> None:
        """Check that a leader from which no majority fetches resigns, even if no message reaches it."""
        watch, now_us = self.watch, self.world.clock.us
        settled = [epoch for epoch, at_us in watch.elected_us.items() if now_us - at_us > _STALE_US]
        for machine in self.world.machines.values():
            process = machine.process
            if not isinstance(process, RaftProcess) or not process.raft.is_leader or machine.is_paused:
                continue
            if process.raft.epoch < max(settled, default=0):
                raise Violation("stale-leader", f"node {machine.node}: {self._roles()}")

    def _check_voters(self) -> None:
        """Check that the changes of the voters have come to their end."""
        operator = self._operator
        if operator is None:
            return
        for machine in self.world.machines.values():
            process = machine.process
            if isinstance(process, RaftProcess) and process.raft.is_leader and not operator.is_done(process):
                voters = sorted(process.raft.state.voters.directories)
                wanted = sorted(operator.wanted)
                raise Violation("voters-missing", f"{wanted} wanted, {voters} are voters: {self._roles()}")

    def _run_until(self, ms: int) -> None:
        self.world.run(until_us=START_US + ms * 1000)

    def _propose(self) -> None:
        """Propose a record to each node that claims to lead."""
        if not self._is_proposing:
            return
        self.world.clock.after(self._random.randint(*_PROPOSALS_US), self._propose)
        self._proposed += 1
        for machine in self.world.machines.values():
            process = machine.process
            if isinstance(process, RaftProcess) and process.raft.is_leader:
                machine.call(partial(self._propose_to, process))

    def _propose_to(self, process: RaftProcess, _: Process, now: Instant) -> list[Effect]:
        return process.propose(b"%d" % self._proposed, now)

    @staticmethod
    def _is_leader(machine: Machine) -> bool:
        return isinstance(machine.process, RaftProcess) and machine.process.raft.is_leader

    def _core_epoch(self) -> LeaderEpoch | None:
        """The newest epoch, if its leader is in the core and no node has a later epoch waiting for a hung
        disk. Such a node won a pre-vote before the core was healed, and its epoch becomes visible when the
        disk returns.
        """
        if not self.watch.leaders:
            return None
        epoch = max(self.watch.leaders)
        for machine in self.world.machines.values():
            process = machine.process
            if isinstance(process, RaftProcess) and not process.raft.state.election.is_durable:
                return None
        return epoch if self.watch.leaders[epoch][0] in self._scenario.core else None

    def _check_end(self) -> None:
        end = self.watch.ledger.end
        for machine in self.world.machines.values():
            process = machine.process
            if not isinstance(process, RaftProcess):
                raise Violation("node-down", f"node {machine.node}: {machine.halts}")
            if process.raft.high_watermark != end:
                raise Violation(
                    "node-behind",
                    f"node {machine.node} has not reached {end}: {self._roles()}",
                )
        leaders = [machine.node for machine in self.world.machines.values() if self._is_leader(machine)]
        if len(leaders) != 1:
            raise Violation("leaders-at-end", f"{leaders}: {self._roles()}")

    def _roles(self) -> str:
        return ", ".join(_told(machine) for machine in self.world.machines.values())


def _told(machine: Machine) -> str:
    process = machine.process
    if not isinstance(process, RaftProcess):
        return f"n{machine.node} down {machine.halts}"
    raft = process.raft
    place = f"hw={raft.high_watermark} leo={raft.log_end_offset}"
    return f"n{machine.node} {raft.role.value} e{raft.epoch} {place}"
