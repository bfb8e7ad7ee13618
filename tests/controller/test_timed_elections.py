"""The controller's elections by time: when they are due, and how many it holds at once."""

import pytest

from sparklog.model import Instant, Micros, Millis
from sparklog_server.config.election_settings import ElectionSettings
from sparklog_server.config.topic_settings import TopicSettings
from sparklog_server.controller import timed_elections
from sparklog_server.controller.timed_elections import TimedElections
from sparklog_server.metadata.records import PartitionChangeRecord
from tests.controller.world import World

UNCLEAN = TopicSettings(min_insync_replicas=1, unclean_leader_election_enable=True)


def at(ms: int) -> Instant:
    return Instant(Micros(ms * 1000), Millis(ms))


def leaderless(partitions: int) -> World:
    """Three brokers of which broker 3 was the only one in sync for every partition, and is gone."""
    world = World()
    for node in (1, 2, 3):
        world.run(f"register {node} life={node}")
        world.run(f"heartbeat {node}")
    world.run(f"create t assign={';'.join(['3,1'] * partitions)} config.min.insync.replicas=1")
    for index in range(partitions):
        world.run(f"alter-isr 3 t-{index}=3")
    world.run("heartbeat 3 want-fence")
    return world


def elected(elections: TimedElections, world: World, ms: int) -> dict[int, int]:
    """The leaders that are elected by this time, by partition; the records are applied."""
    records = elections.due(world.controller.pending, lambda _: UNCLEAN, at(ms))
    world.append(records)
    assert all(isinstance(one, PartitionChangeRecord) for one in records)
    return {one.partition_id: one.leader for one in records if isinstance(one, PartitionChangeRecord)}


def test_partitions_without_a_leader_are_looked_at_in_each_interval() -> None:
    world, elections = leaderless(1), TimedElections(ElectionSettings(unclean_interval_ms=60_000))
    elections.activate(at(1_000))
    assert elections.deadline() == 61_000_000
    assert elected(elections, world, 60_999) == {}
    assert elected(elections, world, 61_000) == {0: 1}
    assert elections.deadline() == 121_000_000
    assert elected(elections, world, 121_000) == {}
    assert elections.deadline() == 181_000_000


def test_more_elections_than_one_step_holds_follow_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_elections, "ELECTIONS_MAX", 2)
    world, elections = leaderless(5), TimedElections(ElectionSettings(unclean_interval_ms=1))
    elections.activate(at(0))
    assert elected(elections, world, 1) == {0: 1, 1: 1}
    assert elections.deadline() == 1_000
    assert elected(elections, world, 2) == {2: 1, 3: 1}
    assert elected(elections, world, 3) == {4: 1}
    assert elections.deadline() == 4_000
