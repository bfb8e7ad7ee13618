"""What a partition has to say to a follower that fetches it in a session."""

from sparklog.model import NodeId
from sparklog.wire.messages.fetch import FetchPartition, PartitionData
from sparklog_server.replica.progress import FollowerProgress
from sparklog_server.replica.sessions import ReplicaSession, StandingPart
from tests.log.logs import NOW
from tests.replica.test_cutting import World
from tests.replica.test_leading import leading


def standing(world: World, *, fetch_offset: int) -> StandingPart:
    """The partition in a session of a follower that has asked for its offset `fetch_offset`."""
    session = ReplicaSession(1, NodeId(2), uses_topic_ids=True)
    asked = FetchPartition(partition=0, fetch_offset=fetch_offset, partition_max_bytes=1)
    part = session.ask(("t", 0), asked)
    part.stand(world.partition, FollowerProgress(NOW.mono_us))
    return part


def said(world: World, *, records: bytes) -> PartitionData:
    partition = world.partition
    return PartitionData(
        partition_index=0,
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log.log_start_offset,
        records=records,
    )


def test_records_for_which_a_response_has_no_room_are_news_for_the_next_one() -> None:
    world = leading(waits_for_sync=False)
    part = standing(world, fetch_offset=0)
    world.append(1, b"x")
    assert part.tell(said(world, records=b""))  # of the high watermark
    assert part in part.session.marked
    assert part.has_news


def test_records_are_sent_once_until_the_follower_asks_for_the_next_ones() -> None:
    world = leading(waits_for_sync=False)
    part = standing(world, fetch_offset=0)
    world.append(1, b"x")
    assert part.tell(said(world, records=b"a batch"))
    world.append(1, b"y")
    assert not part.has_news
    assert part.session.ask(("t", 0), part.asked).has_news


def test_a_follower_that_has_heard_everything_is_told_nothing() -> None:
    world = leading(waits_for_sync=False)
    world.append(1, b"x")
    part = standing(world, fetch_offset=1)
    assert part.tell(said(world, records=b""))
    assert not part.tell(said(world, records=b""))
    assert part.session.marked == {}
    assert not part.has_news


def test_an_error_is_told_until_the_follower_asks_otherwise() -> None:
    world = leading(waits_for_sync=False)
    part = standing(world, fetch_offset=0)
    part.session.marked[part] = None
    broken = PartitionData(partition_index=0, error_code=56, high_watermark=-1)
    assert part.tell(broken)
    assert part.tell(broken)
    assert part in part.session.marked


def test_a_log_start_is_told_again_to_a_follower_that_dropped_the_response() -> None:
    world = leading(waits_for_sync=False)
    part = standing(world, fetch_offset=0)
    moved = said(world, records=b"")
    moved.log_start_offset = 5
    assert part.tell(moved)
    for known, is_told in ((5, False), (0, True)):
        part.session.ask(
            ("t", 0),
            FetchPartition(partition=0, fetch_offset=5, log_start_offset=known, partition_max_bytes=1),
        )
        assert part.tell(moved) == is_told


def test_a_follower_is_told_both_ends_again_by_the_next_leadership() -> None:
    world = leading(waits_for_sync=False)
    part = standing(world, fetch_offset=0)
    assert part.tell(said(world, records=b""))
    part.role_ended()
    part.stand(world.partition, FollowerProgress(NOW.mono_us))
    assert part.tell(said(world, records=b""))
