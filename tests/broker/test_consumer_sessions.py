"""Which fetch sessions of consumers there is room for, and which give way."""

from itertools import count

from sparklog.model import Instant
from sparklog.wire.messages.fetch import FetchableTopicResponse, FetchPartition, PartitionData
from sparklog_server.broker.consumer_sessions import PARTS_MAX, ConsumerSession, ConsumerSessions, SessionPart
from sparklog_server.replica.fetch_sessions import PartKey


def at(seconds: int) -> Instant:
    return Instant(mono_us=seconds * 1_000_000, wall_ms=seconds * 1000)


def sessions_of(slots: int) -> ConsumerSessions:
    ids = count(1)
    return ConsumerSessions(slots, lambda size: next(ids).to_bytes(size, "big"))


def parts_of(size: int) -> dict[PartKey, SessionPart]:
    return {("t", index): SessionPart(FetchPartition(partition=index)) for index in range(size)}


def begin(sessions: ConsumerSessions, size: int, now: Instant) -> ConsumerSession | None:
    """A session of `size` partitions; None without room."""
    if not sessions.make_room(size, now):
        return None
    return sessions.begin(parts_of(size), now, uses_topic_ids=False)


def begun(sessions: ConsumerSessions, size: int, now: Instant) -> ConsumerSession:
    session = begin(sessions, size, now)
    assert session is not None
    return session


def test_a_session_that_is_unused_for_two_minutes_gives_way() -> None:
    sessions = sessions_of(2)
    unused, used = begun(sessions, 9, at(0)), begun(sessions, 9, at(0))
    assert sessions.resumed(used, at(100))
    assert begin(sessions, 1, at(120)) is None
    assert begin(sessions, 1, at(121)) is not None
    assert sessions.find(unused.id) is None
    assert sessions.find(used.id) is used


def test_a_smaller_session_gives_way_once_it_is_two_minutes_old() -> None:
    sessions = sessions_of(2)
    small, large = begun(sessions, 2, at(0)), begun(sessions, 8, at(0))
    assert begin(sessions, 5, at(60)) is None
    assert sessions.resumed(small, at(100))
    assert sessions.resumed(large, at(100))
    assert begin(sessions, 2, at(130)) is None
    assert begin(sessions, 5, at(130)) is not None
    assert sessions.find(small.id) is None
    assert sessions.find(large.id) is large


def test_all_sessions_together_have_a_bound_of_partitions() -> None:
    sessions = sessions_of(10)
    assert begin(sessions, PARTS_MAX + 1, at(0)) is None
    first = begun(sessions, PARTS_MAX - 1, at(0))
    assert begin(sessions, 2, at(1)) is None
    second = begun(sessions, 1, at(1))
    second.ask(("t", 1), FetchPartition(partition=1))
    assert not sessions.resumed(second, at(2))
    assert sessions.find(second.id) is None
    assert sessions.part_count == PARTS_MAX - 1
    sessions.end(first.id)
    assert (sessions.part_count, len(sessions)) == (0, 0)


def test_without_slots_there_are_no_sessions() -> None:
    assert begin(sessions_of(0), 1, at(0)) is None


def test_an_id_is_positive_and_not_that_of_another_session() -> None:
    drawn = iter((1 << 31, 7, 7, (1 << 31) + 8))
    sessions = ConsumerSessions(10, lambda size: next(drawn).to_bytes(size, "big"))
    assert [begun(sessions, 1, at(0)).id for _ in range(2)] == [7, 8]


def test_a_consumer_is_told_what_is_new() -> None:
    part = SessionPart(FetchPartition())
    same = {"high_watermark": 5, "last_stable_offset": 4, "log_start_offset": 1}
    assert part.tell(PartitionData(**same))
    assert not part.tell(PartitionData(**same))
    assert part.tell(PartitionData(**same, records=b"records"))
    assert part.tell(PartitionData(**same, preferred_read_replica=2))
    for offset in same:
        assert part.tell(PartitionData(**{**same, offset: 6}))
        assert part.tell(PartitionData(**same))
    assert part.tell(PartitionData(**same, error_code=56))
    assert part.tell(PartitionData(**same, error_code=56))
    assert part.tell(PartitionData(**same))
    assert not part.tell(PartitionData(**same))


def test_a_response_says_what_is_new_and_partitions_that_gave_records_are_read_last() -> None:
    session = begun(sessions_of(1), 3, at(0))
    read = [
        FetchableTopicResponse(
            topic="t",
            partitions=[
                PartitionData(partition_index=0, records=b"records"),
                PartitionData(partition_index=1),
            ],
        ),
        FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=2)]),
    ]
    session.tell(read)
    assert [part.partition for topic in session.topics() for part in topic.partitions] == [1, 2, 0]
    again = [
        FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=index)])
        for index in (1, 2)
    ]
    again.append(
        FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=0, records=b"records")])
    )
    assert session.tell(again) == again[2:]
