"""Members come, go, fall silent and die, and the broker with them, in any order: no two members share a
partition, and in the end all are held.
"""

from random import Random

import pytest

from sparklog.model import TopicPartition
from tests.client.membership.group_world import GroupWorld

MEMBERS_MAX = 5
PARTITIONS = [TopicPartition("t", number) for number in range(7)]
WAYS = {
    "eager": [""],
    "cooperative": ["strategy=cooperative-sticky"],
    "sticky": ["strategy=sticky"],
    "consumer": ["protocol=consumer"],
    "mixed": ["strategy=cooperative-sticky", "protocol=consumer"],
}


def tell(seed: int, way: str, steps: int) -> None:
    random, world = Random(seed), GroupWorld(seed)
    world.run("topic t 7")
    world.run(f"join m0 to=t {random.choice(WAYS[way])}")
    for number in range(1, steps + 1):
        users = world.users
        verb = random.choice(("join", "join", "leave", "kill", "silence", "wake", "restart", "run", "run"))
        if verb == "join" and len(users) < MEMBERS_MAX:
            world.run(f"join m{number} to=t interval=30000 {random.choice(WAYS[way])}")
        elif verb in ("leave", "kill", "silence", "wake") and users:
            world.run(f"{verb} {random.choice(users)}")
        elif verb == "restart":
            world.run("restart")
        else:
            world.run(f"run {random.choice((0.05, 0.5, 4, 12))}")
    for user in world.users:
        world.run(f"wake {user}")
    if not world.users:
        world.run(f"join last to=t {WAYS[way][0]}")
    world.run("run 60")
    assert world.held() == PARTITIONS


@pytest.mark.parametrize("way", WAYS)
def test_whatever_happens_every_partition_ends_with_one_member(way: str) -> None:
    tell(1, way, 8)


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(2, 32))
def test_whatever_happens_every_partition_ends_with_one_member_for_many_seeds(seed: int, way: str) -> None:
    tell(seed, way, 30)
