"""The controller's elections by time: when they are due, and how many it holds at once."""

import pytest

from sparklog.model import Instant, Micros, Millis
from sparklog.wire.schema import Message
from sparklog_server.config.replica_settings import ElectionSettings
from sparklog_server.config.topic_settings import TopicSettings
from sparklog_server.controller import timed_elections
from sparklog_server.controller.timed_elections import TimedElections
from sparklog_server.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord
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
    world = leaderless(1)
    elections = TimedElections(ElectionSettings(is_balanced=False, unclean_interval_ms=60_000), at(1_000))
    assert elections.deadline() == 61_000_000
    assert elected(elections, world, 60_999) == {}
    assert elected(elections, world, 61_000) == {0: 1}
    assert elections.deadline() == 121_000_000
    assert elected(elections, world, 121_000) == {}
    assert elections.deadline() == 181_000_000


def test_leaderships_go_back_to_the_preferred_replicas_that_are_in_sync() -> None:
    world = World()
    for node in (1, 2, 3):
        world.run(f"register {node} life={node}")
        world.run(f"heartbeat {node}")
    world.run("create t assign=1,2,3;1,3,2;2,1,3 config.min.insync.replicas=1")
    world.run("heartbeat 1 want-fence")
    world.run("heartbeat 1")
    world.run("alter-isr 2 t-0=1,2,3")  # the preferred replica of partition 1 is not in sync
    elections = TimedElections(ElectionSettings(balance_interval_s=10), at(0))
    assert elections.deadline() == 5_000_000
    assert elected(elections, world, 4_999) == {}
    assert elected(elections, world, 5_000) == {0: 1}
    assert elections.deadline() == 15_000_000
    assert elected(elections, world, 15_000) == {}
    world.run("alter-isr 3 t-1=1,2,3")
    assert elected(elections, world, 25_000) == {1: 1}


@pytest.mark.parametrize(
    "record",
    [PartitionChangeRecord(isr=[1, 2]), BrokerRegistrationChangeRecord(broker_id=1, fenced=-1)],
    ids=["a replica in sync", "a broker in service"],
)
def test_leaderships_go_back_within_seconds_of_what_lets_a_replica_lead(record: Message) -> None:
    elections = TimedElections(ElectionSettings(unclean_interval_ms=1_000_000), at(0))
    assert elected(elections, World(), 5_000) == {}
    assert elections.deadline() == 305_000_000
    elections.decided([PartitionChangeRecord(leader=2), record], at(60_000))
    elections.decided([record], at(62_000))  # the others of that broker do not put it off
    assert elections.deadline() == 65_000_000
    assert elected(elections, World(), 65_000) == {}
    assert elections.deadline() == 365_000_000


def test_a_shorter_interval_is_not_lengthened() -> None:
    elections = TimedElections(ElectionSettings(balance_interval_s=1), at(0))
    assert elections.deadline() == 1_000_000


def test_leaderships_stay_where_the_balance_is_off() -> None:
    elections = TimedElections(ElectionSettings(is_balanced=False, balance_interval_s=1), at(0))
    assert elections.deadline() == 300_000_000


def test_more_elections_than_one_step_holds_follow_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_elections, "ELECTIONS_MAX", 2)
    world = leaderless(5)
    elections = TimedElections(ElectionSettings(is_balanced=False, unclean_interval_ms=1), at(0))
    assert elected(elections, world, 1) == {0: 1, 1: 1}
    assert elections.deadline() == 1_000
    assert elected(elections, world, 2) == {2: 1, 3: 1}
    assert elected(elections, world, 3) == {4: 1}
    assert elections.deadline() == 4_000
