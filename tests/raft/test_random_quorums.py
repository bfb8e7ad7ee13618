"""Random faults on quorums: nothing committed is lost or changed, and after healing the quorum commits."""

from random import Random

import pytest

from tests.raft.quorum_world import MS, QuorumWorld


def chaos(seed: int, *, steps: int = 40, verbose: bool = False) -> QuorumWorld:
    random = Random(f"chaos {seed}")
    voters = random.choice([3, 3, 3, 5])
    world = QuorumWorld(seed, count=voters + random.choice([0, 0, 1]), voters=voters, verbose=verbose)
    world.start()
    world.delay_us_max = random.choice([1 * MS, 5 * MS, 60 * MS])
    machines = list(world.machines.values())
    loses_power, cuts_one_way, sticks = (random.random() < 0.5 for _ in range(3))
    for step in range(steps):
        for _ in range(random.randrange(6)):
            machine = random.choice(machines)
            machine.append(f"{step}".encode() * random.randrange(1, 60))
            world.run(random.randrange(20))
        machine = random.choice(machines)
        fault = random.randrange(12)
        if fault < 3 and machine.node is not None:
            machine.stop(power=loses_power)
        elif fault < 6:
            for other in machines:
                if other.node is None and random.random() < 0.7:
                    other.start()
        elif fault == 6:
            one, two = random.sample(machines, 2)
            world.cut([one.id], [two.id], one_way=cuts_one_way)
            if not cuts_one_way:
                world.break_links(one.id, two.id)
        elif fault == 7:
            group = [other.id for other in machines if random.random() < 0.5]
            world.cut(group, [other.id for other in machines if other.id not in group])
        elif fault == 8:
            world.heal()
        elif fault == 9:
            machine.snapshot()
        elif fault == 10:
            machine.is_paused = not machine.is_paused
            if not machine.is_paused:
                machine.resume()
        elif sticks:
            if machine.is_stuck:
                machine.release()
            else:
                machine.is_stuck = True
        world.run(random.choice([5, 50, 300, 1500]))
    world.settle()
    return world


@pytest.mark.parametrize("seed", range(60))
def test_committed_records_survive_any_faults(seed: int) -> None:
    chaos(seed)
