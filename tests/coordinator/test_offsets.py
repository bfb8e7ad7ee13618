"""Committed offsets of groups: commits, reads, expiry and deletion."""

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, Millis
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparklog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from sparklog.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from sparklog.wire.schema import Uuid
from sparklog_server.coordinator.group.offsets import Offsets
from sparklog_server.coordinator.group.records import OffsetCommitKey, OffsetCommitValue, decode_record
from sparklog_server.coordinator.placement import partition_for
from sparklog_server.coordinator.shard import CoordinatorRecord

DAY_MS = 86_400_000
ONE_ID, OTHER_ID = Uuid(bytes(range(16))), Uuid(bytes(range(1, 17)))


def at(wall_ms: int) -> Instant:
    return Instant(Micros(wall_ms * 1000), Millis(wall_ms))


def commit_of(
    group: str,
    topic: str,
    *parts: tuple[int, int],
    metadata: str = "",
    retention_ms: int = -1,
    topic_id: Uuid | None = None,
) -> OffsetCommitRequest:
    named = OffsetCommitRequestTopic(
        name=topic,
        partitions=[
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=metadata
            )
            for index, offset in parts
        ],
    )
    if topic_id is not None:
        named.topic_id = topic_id
    return OffsetCommitRequest(group_id=group, retention_time_ms=retention_ms, topics=[named])


def replay(offsets: Offsets, records: tuple[CoordinatorRecord, ...]) -> None:
    for record in records:
        decoded = decode_record(record.key, record.value)
        assert decoded is not None
        key, value = decoded
        assert isinstance(key, OffsetCommitKey)
        assert value is None or isinstance(value, OffsetCommitValue)
        offsets.replay(key, value)


def commit(offsets: Offsets, request: OffsetCommitRequest, wall_ms: int = 1_000) -> list[int]:
    records, response = offsets.commit(request, None, at(wall_ms))
    replay(offsets, records)
    return [part.error_code for topic in response.topics for part in topic.partitions]


def fetched(
    offsets: Offsets, group: str, topic: str | None, *indexes: int, topic_id: Uuid | None = None
) -> dict[tuple[str, int], int]:
    topics = None
    if topic is not None:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=list(indexes))]
        if topic_id is not None:
            topics[0].topic_id = topic_id
    response = offsets.fetch(OffsetFetchRequestGroup(group_id=group, topics=topics), is_stable=False)
    return {
        (one.name, part.partition_index): part.committed_offset
        for one in response.topics
        for part in one.partitions
    }


def expired(
    offsets: Offsets,
    group: str,
    wall_ms: int,
    *,
    unused_since: int | None = 0,
    subscribed: tuple[str, ...] = (),
) -> bool:
    def since(_: Millis) -> Millis | None:
        return None if unused_since is None else Millis(unused_since)

    records, is_all = offsets.expired(
        group, since, lambda topic: topic in subscribed, retention_ms=DAY_MS, now=at(wall_ms)
    )
    replay(offsets, records)
    return is_all


def test_what_was_committed_is_read_back_and_minus_one_where_nothing_was() -> None:
    offsets = Offsets(100)
    assert commit(offsets, commit_of("g", "t", (0, 5), (1, 7))) == [0, 0]
    assert commit(offsets, commit_of("g", "t", (1, 8))) == [0]
    assert fetched(offsets, "g", "t", 0, 1, 2) == {("t", 0): 5, ("t", 1): 8, ("t", 2): -1}
    assert fetched(offsets, "g", None) == {("t", 0): 5, ("t", 1): 8}
    assert fetched(offsets, "other", "t", 0) == {("t", 0): -1}


def test_a_commit_changes_nothing_before_its_records_are_replayed() -> None:
    offsets = Offsets(100)
    offsets.commit(commit_of("g", "t", (0, 5)), None, at(1))
    assert fetched(offsets, "g", "t", 0) == {("t", 0): -1}


def test_metadata_beyond_the_limit_is_refused_for_its_partition() -> None:
    assert commit(Offsets(3), commit_of("g", "t", (0, 5), metadata="four")) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]


def test_a_member_may_be_refused_partition_by_partition() -> None:
    offsets = Offsets(100)

    def only_even(topic: str, topic_id: bytes, partition: int) -> ErrorCode:
        return ErrorCode.STALE_MEMBER_EPOCH if partition % 2 else ErrorCode.NONE

    records, response = offsets.commit(commit_of("g", "t", (0, 5), (1, 5)), only_even, at(1))
    assert [part.error_code for part in response.topics[0].partitions] == [0, ErrorCode.STALE_MEMBER_EPOCH]
    assert len(records) == 1


def test_a_topic_made_anew_under_the_old_name_has_nothing_committed() -> None:
    offsets = Offsets(100)
    commit(offsets, commit_of("g", "t", (0, 5), topic_id=ONE_ID))
    assert fetched(offsets, "g", "t", 0, topic_id=OTHER_ID) == {("t", 0): -1}
    assert fetched(offsets, "g", "t", 0, topic_id=ONE_ID) == {("t", 0): 5}
    assert fetched(offsets, "g", "t", 0) == {("t", 0): 5}


def test_offsets_expire_when_the_group_was_unused_for_the_retention_time() -> None:
    offsets = Offsets(100)
    commit(offsets, commit_of("g", "t", (0, 5)))
    assert not expired(offsets, "g", DAY_MS - 1)
    assert fetched(offsets, "g", "t", 0) == {("t", 0): 5}
    assert expired(offsets, "g", DAY_MS)
    assert "g" not in offsets


def test_what_is_subscribed_does_not_expire() -> None:
    offsets = Offsets(100)
    commit(offsets, commit_of("g", "t", (0, 5)))
    commit(offsets, commit_of("g", "u", (0, 5)))
    assert not expired(offsets, "g", 5 * DAY_MS, subscribed=("t",))
    assert fetched(offsets, "g", None) == {("t", 0): 5}


def test_nothing_expires_while_the_group_may_need_it() -> None:
    offsets = Offsets(100)
    commit(offsets, commit_of("g", "t", (0, 5)))
    assert not expired(offsets, "g", 5 * DAY_MS, unused_since=None)
    assert fetched(offsets, "g", "t", 0) == {("t", 0): 5}


def test_a_retention_time_of_its_own_counts_from_the_commit() -> None:
    offsets = Offsets(100)
    commit(offsets, commit_of("g", "t", (0, 5), retention_ms=10), wall_ms=1_000)
    assert not expired(offsets, "g", 1_009)
    assert expired(offsets, "g", 1_010)


def delete_of(topic: str, *indexes: int) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=one) for one in indexes]
            )
        ],
    )


def test_deleting_forgets_what_is_there_and_does_not_mind_what_is_not() -> None:
    offsets = Offsets(100)
    commit(offsets, commit_of("g", "t", (0, 5), (1, 6)))
    records, response = offsets.delete(delete_of("t", 0, 9), lambda _: False)
    assert [part.error_code for part in response.topics[0].partitions] == [0, 0]
    assert len(records) == 1
    replay(offsets, records)
    assert fetched(offsets, "g", None) == {("t", 1): 6}


def test_a_topic_that_the_group_reads_is_not_forgotten() -> None:
    offsets = Offsets(100)
    commit(offsets, commit_of("g", "t", (0, 5)))
    records, response = offsets.delete(delete_of("t", 0), lambda topic: topic == "t")
    assert records == ()
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_a_deleted_topic_or_group_takes_its_offsets_with_it() -> None:
    offsets = Offsets(100)
    for group in ("g", "h"):
        commit(offsets, commit_of(group, "t", (0, 5)))
        commit(offsets, commit_of(group, "u", (0, 5)))
    replay(offsets, offsets.of_deleted_topics(frozenset({"t"})))
    assert fetched(offsets, "g", None) == {("u", 0): 5}
    replay(offsets, offsets.delete_all("g"))
    assert "g" not in offsets
    assert fetched(offsets, "h", None) == {("u", 0): 5}


def test_groups_are_placed_as_java_hashes_their_ids() -> None:
    assert partition_for("", 50) == 0
    assert partition_for("a", 50) == 97 % 50
    assert partition_for("polygenelubricants", 50) == 0, (
        "its hash is the smallest int, whose absolute value Kafka takes to be 0"
    )
    assert partition_for("\N{GRINNING FACE}", 1 << 30) == (31 * 0xD83D + 0xDE00) % (1 << 30)
