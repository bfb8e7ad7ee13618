"""Random faults on quorums: nothing committed is lost or changed, and after healing the quorum commits."""

from random import Random

import pytest

from sparklog.model import ZERO_UUID, Offset
from sparklog_server.raft.voters import VoterSet
from tests.raft.quorum_world import MS, Machine, QuorumWorld


def chaos(seed: int, *, steps: int = 60, verbose: bool = False) -> QuorumWorld:
    """Which faults occur, and how slow disks and network are, is drawn for each seed."""
    random = Random(f"chaos {seed}")
    voters = random.choice([3, 3, 3, 5])
    world = QuorumWorld(seed, count=voters + random.choice([0, 0, 1]), voters=voters, verbose=verbose)
    world.start()
    world.delay_us_max = random.choice([1 * MS, 5 * MS, 60 * MS])
    world.sync_us_max = random.choice([2 * MS, 20 * MS, 150 * MS])
    pauses = random.choice([(1, 5, 20, 50), (5, 50, 300), (50, 300, 1500)])
    power_cut_share = random.choice([0.0, 0.5, 1.0])
    cuts_one_way = random.random() < 0.5
    kinds = [kind for kind in FAULTS if random.random() < 0.6] or ["kill"]
    for step in range(steps):
        for _ in range(random.randrange(6)):
            random.choice([world.leader or world.any, world.any]).append(
                b"%d" % step * random.randrange(1, 60)
            )
            world.run(random.randrange(20))
        fault(world, random, random.choice(kinds), cuts_one_way, random.random() < power_cut_share)
        for machine in world.machines.values():
            if machine.node is None and random.random() < 0.5:
                machine.disk.fault = None
                machine.start()
        world.run(random.choice(pauses))
    world.settle()
    return world


FAULTS = (
    "kill",
    "kill leader",
    "kill all",
    "link",
    "groups",
    "heal",
    "snapshot",
    "pause",
    "stick",
    "full",
    "lost disk",
)


def fault(world: QuorumWorld, random: Random, kind: str, cuts_one_way: bool, power: bool) -> None:
    """Let one fault happen."""
    machines = list(world.machines.values())
    machine = random.choice(machines)
    if kind == "kill leader":
        machine = world.leader or machine
    if kind.startswith("kill"):
        for killed in machines if kind == "kill all" else [machine]:
            if killed.node is not None and random.random() < 0.8:
                killed.stop(power=power)
    elif kind == "link":
        other = random.choice([other for other in machines if other is not machine])
        world.cut([machine.id], [other.id], one_way=cuts_one_way)
        if not cuts_one_way:
            world.break_links(machine.id, other.id)
    elif kind == "groups":
        group = [other.id for other in machines if random.random() < 0.5]
        world.cut(group, [other.id for other in machines if other.id not in group])
    elif kind == "heal":
        world.heal()
    elif kind == "snapshot":
        machine.snapshot()
    elif kind == "pause":
        if machine.is_paused:
            machine.resume()
        else:
            machine.is_paused = True
    elif kind == "full":
        if machine.disk.fault is not None:
            machine.disk.fault = None
        elif machine.node is not None:
            machine.fill()
    elif kind == "lost disk":
        if all(machine.directory_id == world.voters.directories[machine.id] for machine in voters_of(world)):
            machine.lose_disk()
    elif machine.is_stuck:
        machine.release()
    else:
        machine.is_stuck = True


def voters_of(world: QuorumWorld) -> list[Machine]:
    """The machines that vote, unless one of them has lost its disk."""
    return [machine for machine in world.machines.values() if machine.id in world.voters]


@pytest.mark.parametrize("seed", range(60))
def test_committed_records_survive_any_faults(seed: int) -> None:
    chaos(seed)


@pytest.mark.parametrize("seed", range(40))
def test_an_upgrade_of_kraft_version_survives_any_faults(seed: int) -> None:
    """Voters of the settings, whose directories are not known, until a leader appends them."""
    random = Random(f"upgrade {seed}")
    world = QuorumWorld(seed, count=3 + random.choice([0, 1]), voters=3)
    world.voters = VoterSet(dict.fromkeys(world.voters.directories, ZERO_UUID))
    world.start()
    committed: dict[Offset, int] = {}
    for _ in range(30):
        for machine in world.machines.values():
            upgrade(machine)
            if machine.node is None:
                machine.disk.fault = None
                machine.start()
            if end_offset := machine.high_watermark:
                level = machine.node.membership(end_offset).kraft_version
                assert committed.setdefault(end_offset, level) == level
        world.run(random.choice([1, 5, 50, 300]))
        fault(world, random, random.choice(FAULTS[:-1]), random.random() < 0.5, random.random() < 0.5)
    levels = [level for _, level in sorted(committed.items())]
    assert levels == sorted(levels)
    world.settle()
    leader = world.leader
    assert leader is not None
    upgrade(leader)
    world.settle()
    directories = {node: world.machines[node].directory_id for node in world.voters.directories}
    for machine in world.machines.values():
        membership = machine.node.membership(machine.high_watermark)
        assert (membership.kraft_version, membership.voters.directories) == (1, directories)


def upgrade(machine: Machine) -> None:
    """Let a leader that has heard every voter append kraft.version 1."""
    if machine.node is None or machine.is_paused or not machine.node.is_leader or machine.node.kraft_version:
        return
    machine.node.upgrade_kraft_version(1, is_only_validated=False, now=machine.world.instant)
    machine.after()
