"""Where the replicas of new partitions are placed."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from sparklog_server.controller.placement import Placer
from sparklog_server.outcome import Refused
from tests.controller.world import World
from tests.entropy import CountingEntropy


def world_of(*racks: str, fenced: Sequence[int] = ()) -> World:
    """Brokers 1, 2, ... in these racks."""
    world = World()
    for node, rack in enumerate(racks, start=1):
        world.run(f"register {node} life=a rack={rack}")
        if node not in fenced:
            world.run(f"heartbeat {node}")
    return world


def placed(world: World, partitions: int, replicas: int) -> list[tuple[NodeId, ...]]:
    placer = Placer(world.controller.pending, CountingEntropy())
    return [placer.place(replicas) for _ in range(partitions)]


def leaders(partitions: Sequence[tuple[NodeId, ...]]) -> dict[int, int]:
    return dict(sorted(Counter(int(nodes[0]) for nodes in partitions).items()))


def test_leaders_are_spread_evenly_over_brokers_and_racks() -> None:
    partitions = placed(world_of("", "x", "x", "y"), 24, 2)
    # Three racks (one broker has none) take turns: the rack of two gives each of its brokers every other
    # turn.
    assert leaders(partitions) == {1: 8, 2: 4, 3: 4, 4: 8}
    assert all(len(set(nodes)) == 2 and not set(nodes) <= {2, 3} for nodes in partitions)


@pytest.mark.parametrize("racks", [("", "", "", ""), ("x", "x", "y", "y"), ("x", "y", "x", "y")])
@pytest.mark.parametrize("replicas", [2, 3])
def test_every_other_broker_takes_over_from_one_that_fails(racks: tuple[str, ...], replicas: int) -> None:
    partitions = placed(world_of(*racks), 48, replicas)
    assert leaders(partitions) == dict.fromkeys((1, 2, 3, 4), 12)
    for failed in (1, 2, 3, 4):
        heirs = Counter(nodes[1] for nodes in partitions if nodes[0] == failed)
        away = [node for node in (1, 2, 3, 4) if racks[node - 1] != racks[failed - 1] or len(set(racks)) == 1]
        others = {NodeId(node) for node in away} - {failed}
        assert set(heirs) == others
        assert max(heirs.values()) == min(heirs.values())


@pytest.mark.parametrize("seed", range(60))
def test_racks_alternate_and_all_others_take_over_wherever_the_placement_begins(seed: int) -> None:
    random = Random(seed)
    racks, size = random.randint(1, 4), random.randint(1, 3)
    count = racks * size
    replicas = random.randint(2, max(count, 2))
    if replicas > count:
        return
    world = world_of(*(f"r{number % racks}" for number in range(count)))
    placer = Placer(world.controller.pending, random.randbytes)
    partitions = [placer.place(replicas) for _ in range(racks * size * size * max(racks - 1, 1) * 6)]
    rack_of = {node: (node - 1) % racks for node in range(1, count + 1)}
    for nodes in partitions:
        assert len(set(nodes)) == replicas
        assert len({rack_of[node] for node in nodes}) == min(replicas, racks)
    led = Counter(nodes[0] for nodes in partitions)
    assert max(led.values()) - min(led[NodeId(node)] for node in rack_of) <= 1
    for failed in rack_of:
        heirs = Counter(nodes[1] for nodes in partitions if nodes[0] == failed)
        assert set(heirs) == {node for node in rack_of if racks == 1 or rack_of[node] != rack_of[failed]} - {
            failed
        }
        assert max(heirs.values()) <= 2 * min(heirs.values())


def test_a_single_replica_goes_to_each_unfenced_broker_in_turn() -> None:
    partitions = placed(world_of("", "", "", fenced=[2]), 10, 1)
    assert leaders(partitions) == {1: 5, 3: 5}


def test_topics_of_one_partition_begin_at_a_random_broker() -> None:
    world = world_of("", "", "")
    for number in range(30):
        world.run(f"create t{number} partitions=1")
    topics = world.controller.pending.topics_by_name.values()
    assert Counter(int(topic.partitions[0].leader) for topic in topics) == {1: 10, 2: 10, 3: 10}


def test_more_replicas_than_brokers_are_refused() -> None:
    (told,) = world_of("", "", "").run("create t replicas=4")
    assert told.startswith(f"-> t {ErrorCode.INVALID_REPLICATION_FACTOR.name}: ")
    assert "cannot be reached because only 3 broker(s) are registered" in told


def test_new_partitions_have_the_default_or_the_present_replication_factor() -> None:
    world = World(**{"default.replication.factor": "2"})
    for node in (1, 2, 3):
        world.run(f"register {node} life=a")
        world.run(f"heartbeat {node}")
    world.run("create t partitions=1")
    world.run("grow t count=2")
    partitions = world.controller.pending.topics_by_name["t"].partitions
    assert [len(partition.replicas) for partition in partitions] == [2, 2]
    assert all(partition.isr == partition.replicas for partition in partitions)


def test_a_new_partition_has_its_unfenced_replicas_in_sync() -> None:
    world = world_of("", "", "", fenced=[2])
    world.run("create t assign=2,1,3")
    (partition,) = world.controller.pending.topics_by_name["t"].partitions
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 1, 3), (1, 3), 1)


def test_a_broker_alone_cannot_have_more_replicas_than_brokers() -> None:
    placer = Placer(world_of("").controller.pending, CountingEntropy())
    with pytest.raises(Refused) as refused:
        placer.place(2)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
