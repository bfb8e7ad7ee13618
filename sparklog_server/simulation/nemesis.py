"""The faults of a run: a list drawn from the seed before the run, and their execution.

    chaos ──── core_ms ────── healed_ms ────── end_ms
    faults on   │ the core is  │ no fault is
    any node    │ healed, the  │ on any more
                │ rest is not  │

The seed also selects which kinds of faults occur, so some runs have many faults of one kind.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from sparklog.model import NodeId
from sparklog_server.simulation.clock import START_US
from sparklog_server.simulation.disk import DiskImage
from sparklog_server.simulation.randomness import random_for
from sparklog_server.simulation.scenario import Fault, Kind, Scenario
from sparklog_server.simulation.world import Machine, World

_BEGIN_MS = 200
_FOR_MS = (20, 5_000)
_FAULTS_MAX = 16
_STOP_US_MAX = 300_000  # from the request of a clean stop to its end
_BETWEEN = frozenset((Kind.CUT, Kind.SPLIT, Kind.REFUSE, Kind.SLOW))
_LASTING = (Kind.KILL, Kind.PAUSE, Kind.CUT, Kind.SPLIT, Kind.SLOW, Kind.REFUSE, Kind.HANG)
CHANGES = (Kind.ADD, Kind.REMOVE)
"""The wishes of an operator, whom a world may have."""
FAULTS = tuple(kind for kind in Kind if kind not in CHANGES)
USUAL = tuple(kind for kind in FAULTS if kind not in (Kind.LOSE, Kind.OLDER))
"""The kinds from which a quorum recovers whole, however many nodes they hit."""
_CHANGES_MAX = 8
_SPLIT_MS = (500, 5_000)


class Phases(NamedTuple):
    """How long each phase of a run lasts, in milliseconds."""

    chaos_ms: int = 10_000
    core_ms: int = 10_000
    healed_ms: int = 8_000


def drawn(
    world: str,
    seed: int,
    nodes: Sequence[NodeId],
    voters: Sequence[NodeId],
    *,
    kinds: Sequence[Kind] = USUAL,
    faults_max: int = _FAULTS_MAX,
    phases: Phases = Phases(),  # noqa: B008 - immutable
) -> Scenario:
    """The scenario of a seed; `kinds` are those that may happen.

    LOSE never hits a voter of the core: a voter without its disk cannot vote. OLDER never hits a voter: one
    that forgets its votes and records breaks the assumptions of a quorum.
    """
    random = random_for(seed, "faults")
    core = tuple(sorted(random.sample(voters, len(voters) // 2 + 1)))
    rest = [node for node in nodes if node not in core]
    observers = [node for node in nodes if node not in voters]
    chaos_ms = phases.chaos_ms
    healed_ms = chaos_ms + phases.core_ms
    happening = [kind for kind in kinds if random.random() < 0.4] or [random.choice(kinds)]
    faults = []
    for _ in range(random.randint(1, faults_max)):
        kind = random.choice(happening)
        at_ms = random.randint(_BEGIN_MS, chaos_ms - _FOR_MS[0])
        low, high = _FOR_MS
        for_ms = min(int(low * (high / low) ** random.random()), chaos_ms - at_ms)
        among = {Kind.LOSE: rest, Kind.OLDER: observers}.get(kind, nodes)
        fault = _fault(random, kind, at_ms, for_ms, among, nodes)
        if fault is not None:
            faults.append(fault)
    for node in rest:
        lasting = random.choice((None, *_LASTING))
        if lasting is not None:
            at_ms = random.randint(_BEGIN_MS, chaos_ms)
            others = [node, *(random.sample(core, random.randint(1, len(core))))]
            fault = _fault(random, lasting, at_ms, healed_ms - at_ms, [node], others)
            if fault is not None:
                faults.append(fault)
    return Scenario(
        world,
        seed,
        tuple(nodes),
        tuple(voters),
        core,
        chaos_ms,
        healed_ms,
        healed_ms + phases.healed_ms,
        tuple(sorted(faults, key=lambda fault: (fault.at_ms, fault.kind.value))),
    )


def with_changes(scenario: Scenario, *, is_losing: bool) -> Scenario:
    """The scenario with changes of the voters, and if `is_losing` with the loss of one node's disk. All nodes
    are healed when the chaos ends, because any of them may be a voter then.

    A quorum loses no more than one voter's disk: two of three could not commit the replacement of either.
    """
    random = random_for(scenario.seed, "changes")
    wanted = list(scenario.voters)
    least = len(wanted) if is_losing else 1
    faults = [fault for fault in scenario.faults if fault.at_ms + fault.for_ms <= scenario.core_ms]
    faults = [fault for fault in faults if fault.kind not in (Kind.LOSE, Kind.OLDER)]
    times = sorted(
        random.randint(_BEGIN_MS, scenario.core_ms) for _ in range(random.randint(1, _CHANGES_MAX))
    )
    for at_ms in times:
        others = [node for node in scenario.nodes if node not in wanted]
        if others and (len(wanted) <= least or random.random() < 0.5):
            node = random.choice(others)
            wanted.append(node)
            faults.append(Fault(at_ms, 0, Kind.ADD, (node,)))
        elif len(wanted) > least:
            node = random.choice(wanted)
            wanted.remove(node)
            faults.append(Fault(at_ms, 0, Kind.REMOVE, (node,)))
    for at_ms in times:
        if random.random() < 0.7:
            # A leader that is cut off just before has appended voters which the others do not learn of.
            begin_ms = max(at_ms - random.randint(-100, 100), _BEGIN_MS)
            for_ms = min(random.randint(*_SPLIT_MS), scenario.core_ms - begin_ms)
            hit = tuple(sorted(random.sample(scenario.nodes, random.randint(1, len(scenario.nodes) // 2))))
            rest = tuple(node for node in scenario.nodes if node not in hit)
            if for_ms > 0:
                faults.append(Fault(begin_ms, for_ms, Kind.SPLIT, hit, rest))
    if is_losing:
        at_ms = random.randint(_BEGIN_MS, scenario.core_ms - _FOR_MS[0])
        for_ms = random.randint(_FOR_MS[0], scenario.core_ms - at_ms)
        faults.append(Fault(at_ms, for_ms, Kind.LOSE, (random.choice(scenario.nodes),)))
    ordered = sorted(faults, key=lambda fault: (fault.at_ms, fault.kind.value))
    return scenario._replace(core=scenario.nodes, faults=tuple(ordered))


def _fault(
    random: Random, kind: Kind, at_ms: int, for_ms: int, among: Sequence[NodeId], nodes: Sequence[NodeId]
) -> Fault | None:
    if not among:
        return None
    if kind in _BETWEEN:
        hit = tuple(sorted(random.sample(among, 1 if random.random() < 0.6 else (len(among) + 1) // 2)))
        others = [node for node in nodes if node not in hit]
        if not others:
            return None
        count = len(others) if kind is Kind.SPLIT else random.randint(1, len(others))
        to = tuple(sorted(random.sample(others, count)))
        if random.random() < 0.5:
            hit, to = to, hit
        return Fault(at_ms, for_ms, kind, hit, to, random.randint(5, 900) if kind is Kind.SLOW else 0)
    hit = (random.choice(among),)
    match kind:
        case Kind.STEP:
            return Fault(at_ms, 0, kind, hit, amount=random.choice((-1, 1)) * random.randint(1, 7_200_000))
        case Kind.DRIFT:
            return Fault(at_ms, for_ms, kind, hit, amount=random.choice((-1, 1)) * random.randint(1, 5_000))
        case Kind.KILL | Kind.POWER if random.random() < 0.3:
            # Several nodes at once: a rack, or all of them.
            return Fault(
                at_ms, for_ms, kind, tuple(sorted(random.sample(among, random.randint(1, len(among)))))
            )
    return Fault(at_ms, for_ms, kind, hit)


class Nemesis:
    """Executes the faults of a scenario in a world; `wished` takes those of `CHANGES`."""

    def __init__(
        self, world: World, faults: Sequence[Fault], wished: Callable[[Fault], None] | None = None
    ) -> None:
        self._world = world
        self._wished = wished
        self._images: dict[tuple[int, NodeId], DiskImage] = {}
        for number, fault in enumerate(faults):
            world.clock.at(START_US + fault.at_ms * 1000, partial(self._begin, number, fault))
            world.clock.at(
                START_US + (fault.at_ms + fault.for_ms) * 1000, partial(self._finish, number, fault)
            )

    def _begin(self, number: int, fault: Fault) -> None:
        if fault.kind in _BETWEEN:
            self._change_paths(fault, 1)
            return
        if fault.kind in CHANGES:
            assert self._wished is not None
            self._wished(fault)
            return
        for node in fault.nodes:
            machine = self._world.machines[node]
            match fault.kind:
                case Kind.KILL:
                    machine.hold_down(is_power_cut=False)
                case Kind.STOP:
                    machine.begin_stop()
                    self._world.clock.after(min(fault.for_ms * 500, _STOP_US_MAX), machine.stop)
                case Kind.POWER | Kind.LOSE:
                    machine.hold_down(is_power_cut=True)
                case Kind.OLDER:
                    self._images[number, node] = machine.disk.image()
                case Kind.PAUSE:
                    machine.pause()
                case Kind.DRIFT:
                    machine.clock.run_at(fault.amount)
                case Kind.STEP:
                    machine.clock.step_wall(fault.amount)
                case Kind.FILL:
                    machine.disk.capacity_bytes = machine.disk.used_bytes
                case Kind.HANG:
                    machine.hang_syncs()

    def _finish(self, number: int, fault: Fault) -> None:
        if fault.kind in _BETWEEN:
            self._change_paths(fault, -1)
            return
        for node in fault.nodes:
            machine = self._world.machines[node]
            match fault.kind:
                case Kind.KILL | Kind.STOP | Kind.POWER:
                    machine.let_up()
                case Kind.LOSE:
                    self._replace_disk(machine, None)
                    machine.let_up()
                case Kind.OLDER:
                    machine.hold_down(is_power_cut=False)
                    self._replace_disk(machine, self._images.pop((number, node)))
                    machine.let_up()
                case Kind.PAUSE:
                    machine.resume()
                case Kind.DRIFT:
                    machine.clock.run_at(0)
                case Kind.FILL:
                    machine.disk.capacity_bytes = None
                case Kind.HANG:
                    machine.release_syncs()

    def _replace_disk(self, machine: Machine, image: DiskImage | None) -> None:
        machine.replace_disk(image)
        self._world.disk_replaced(machine)

    def _change_paths(self, fault: Fault, by: int) -> None:
        for node in fault.nodes:
            for other in fault.to:
                path = self._world.network.paths[node, other]
                if fault.kind is Kind.CUT:
                    path.cuts += by
                elif fault.kind is Kind.SPLIT:
                    path.cuts += by
                    path.back.cuts += by
                elif fault.kind is Kind.REFUSE:
                    path.refusals += by
                else:
                    path.extra_delay_us += by * fault.amount * 1000
