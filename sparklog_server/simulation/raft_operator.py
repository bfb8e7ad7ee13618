"""The operator of a simulated quorum, who brings its voters to the nodes that the scenario wants, over the
requests of KIP-853.

    a voter whose disk was lost is removed ──► a wanted node is added ──► another one is removed

The operator asks each node that claims to lead for one change, and again until the answer comes or is late.
"""

from functools import partial

from sparklog.effects import Effect
from sparklog.errors import ErrorCode
from sparklog.model import Instant, NodeId, Uuid
from sparklog_server.simulation.invariants import RaftWatch
from sparklog_server.simulation.raft_process import RaftProcess
from sparklog_server.simulation.randomness import random_for
from sparklog_server.simulation.scenario import Fault, Kind, Scenario
from sparklog_server.simulation.world import Machine, Process, World

_PAUSE_US = (50_000, 250_000)
_LATE_US = 6_000_000


class RaftOperator:
    """Invariant: one request of a node's process at most has no answer yet, late ones aside."""

    def __init__(self, world: World, watch: RaftWatch, scenario: Scenario, *, is_idle: bool = False) -> None:
        self.wanted = dict.fromkeys(scenario.voters)
        """The nodes that are to be voters when all is healed."""
        self._world = world
        self._watch = watch
        self._random = random_for(scenario.seed, "operator")
        self._asked: dict[tuple[NodeId, int], int] = {}  # when, by node and life
        self._is_idle = is_idle  # nodes join by themselves
        if not is_idle:
            world.clock.after(self._random.randint(*_PAUSE_US), self._act)

    def wished(self, fault: Fault) -> None:
        """The scenario wants other voters."""
        for node in () if self._is_idle else fault.nodes:
            if fault.kind is Kind.ADD:
                self.wanted[node] = None
            else:
                self.wanted.pop(node, None)

    def is_done(self, process: RaftProcess) -> bool:
        """Whether the log of a node has the voters that are wanted, with the disks that they have."""
        voters = process.raft.state.voters.directories
        return dict(voters) == {node: self._watch.directories[node] for node in self.wanted}

    def _act(self) -> None:
        self._world.clock.after(self._random.randint(*_PAUSE_US), self._act)
        for machine in self._world.machines.values():
            process, key = machine.process, (machine.node, machine.life)
            if not isinstance(process, RaftProcess) or not process.raft.is_leader or machine.is_paused:
                continue
            if self._asked.get(key, -_LATE_US) + _LATE_US <= self._world.clock.us:
                change = self._next_change(process)
                if change is not None:
                    self._asked[key] = self._world.clock.us
                    machine.call(partial(self._ask, machine, *change))

    def _next_change(self, process: RaftProcess) -> tuple[NodeId, Uuid, bool] | None:
        """A node, its directory, and whether it is to be added."""
        voters, disks = process.raft.state.voters.directories, self._watch.directories
        lost = [node for node, directory in voters.items() if disks[node] != directory]
        missing = [node for node in self.wanted if node not in voters]
        others = [node for node in voters if node not in self.wanted]
        if lost:
            return lost[0], voters[lost[0]], False
        if missing:
            node = self._random.choice(missing)
            return node, disks[node], True
        return (others[0], voters[others[0]], False) if others else None

    def _ask(
        self, machine: Machine, node: NodeId, directory: Uuid, is_addition: bool, _: Process, now: Instant
    ) -> list[Effect]:
        process = machine.process
        assert isinstance(process, RaftProcess)
        answered = partial(self._answered, (machine.node, machine.life), is_addition)
        change = process.add_voter if is_addition else process.remove_voter
        return change(node, directory, answered, now)

    def _answered(self, key: tuple[NodeId, int], is_addition: bool, code: ErrorCode) -> None:
        self._asked.pop(key, None)
        self._watch.reach(f"{'add' if is_addition else 'remove'}-{code.name.lower()}")
