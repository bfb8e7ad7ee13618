"""Positions of many partitions: the next fetch, and the reaction when an offset is gone or a leader
changed.
"""

import pytest

from sparklog.client.cluster import Cluster
from sparklog.client.consumer.fetch import EARLIEST, Errand, Fetcher
from sparklog.client.consumer.fetch_session import FetchSession, Wanted
from sparklog.client.failures import CorruptRecords, LogTruncated, NoOffset, OffsetOutOfRange
from sparklog.errors import ConnectionFailed, ErrorCode
from sparklog.model import Micros, Millis, NodeId, TopicPartition
from sparklog.record.batch import Record, build_batch
from sparklog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from sparklog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.client.wire import START, TOPIC_ID, metadata, ms, no_chance, settings

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def everyone(_: NodeId) -> bool:
    return True


def fetcher(*partitions: TopicPartition, **given: object) -> tuple[Fetcher, Cluster]:
    chosen = settings(**given)
    cluster = Cluster(chosen, no_chance)
    machine = Fetcher(chosen, cluster, no_chance)
    machine.assign(partitions or (T0,))
    learn(cluster, ms(0))
    return machine, cluster


def learn(cluster: Cluster, now: Micros, leader: int = 1, epoch: int = 0) -> None:
    cluster.refresh_soon()
    cluster.request(Micros(now + 10_000_000))
    cluster.replied(metadata({"t": [leader, leader]}, nodes=[(1, 9092), (2, 9093)], epoch=epoch), now)


def batches(base_offset: int, count: int = 3, epoch: int = 0) -> bytes:
    records = [(None, b"%d" % (base_offset + index), (), 0) for index in range(count)]
    return bytes(build_batch(records, base_offset=base_offset, leader_epoch=epoch))


def fetched(
    errand: Errand, records: bytes = b"", code: int = 0, partition: int = 0, session_id: int = 0
) -> FetchResponse:
    told = PartitionData(
        partition_index=partition, error_code=code, high_watermark=100, records=memoryview(records)
    )
    return FetchResponse(
        session_id=session_id, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[told])]
    )


def only(machine: Fetcher, now: Micros = START) -> Errand:
    (errand,) = machine.errands(now, everyone)
    return errand


def asked_offset(errand: Errand) -> int:
    assert isinstance(errand.request, FetchRequest)
    return errand.request.topics[0].partitions[0].fetch_offset


def test_metadata_of_a_subscribed_topic_is_requested_though_none_of_its_partitions_is_assigned() -> None:
    cluster = Cluster(settings(), no_chance)
    machine = Fetcher(settings(), cluster, no_chance)
    cluster.want_only(["named"])  # as the consumer subscribes
    machine.assign((), subscribed=("named",))  # as the first rebalance ends, before any request
    request = cluster.request(START)
    assert request is not None
    assert [topic.name for topic in request.topics or ()] == ["named"]


def test_without_position_the_reset_policy_is_looked_up_at_the_leader() -> None:
    machine, _ = fetcher(auto_offset_reset="earliest")
    errand = only(machine)
    assert isinstance(errand.request, ListOffsetsRequest)
    assert errand.request.topics[0].partitions[0].timestamp == EARLIEST
    told = ListOffsetsPartitionResponse(partition_index=0, offset=17)
    machine.replied(
        errand, ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[told])]), ms(1)
    )
    assert machine.position(T0) == 17
    assert asked_offset(only(machine, ms(1))) == 17


def test_without_policy_a_missing_position_is_the_callers_to_set() -> None:
    machine, _ = fetcher(auto_offset_reset="none")
    assert machine.errands(ms(0), everyone) == []
    with pytest.raises(NoOffset):
        machine.next_chunk()


def test_the_next_fetch_leaves_while_the_first_is_handed_out() -> None:
    machine, _ = fetcher()
    machine.seek(T0, 0)
    errand = only(machine)
    machine.replied(errand, fetched(errand, batches(0)), ms(1))
    ahead = only(machine, ms(1))
    assert asked_offset(ahead) == 3
    chunk = machine.next_chunk()
    assert chunk is not None
    assert [record.value for record in chunk.next_batch(Record)] == [b"0", b"1", b"2"]
    machine.advanced(chunk)
    assert machine.position(T0) == 3


def test_only_so_much_is_fetched_ahead() -> None:
    machine, _ = fetcher()
    machine.seek(T0, 0)
    for base in (0, 3):
        errand = only(machine)
        machine.replied(errand, fetched(errand, batches(base)), ms(1))
    assert machine.errands(ms(1), everyone) == []


def test_a_reply_to_a_fetch_from_before_a_seek_does_not_count() -> None:
    machine, _ = fetcher()
    machine.seek(T0, 0)
    errand = only(machine)
    machine.seek(T0, 50)
    machine.replied(errand, fetched(errand, batches(0)), ms(1))
    assert machine.next_chunk() is None
    assert asked_offset(only(machine, ms(1))) == 50


def test_records_before_the_position_inside_the_first_batch_are_left_out() -> None:
    machine, _ = fetcher()
    machine.seek(T0, 2)
    errand = only(machine)
    machine.replied(errand, fetched(errand, batches(0)), ms(1))
    chunk = machine.next_chunk()
    assert chunk is not None
    assert [record.offset for record in chunk.next_batch(Record)] == [2]


def test_a_batch_cut_off_at_the_end_is_fetched_again() -> None:
    machine, _ = fetcher()
    machine.seek(T0, 0)
    errand = only(machine)
    machine.replied(errand, fetched(errand, batches(0) + batches(3)[:-1]), ms(1))
    assert asked_offset(only(machine, ms(1))) == 3


def test_a_corrupt_batch_is_told_with_its_offset_after_what_came_before_it() -> None:
    machine, _ = fetcher()
    machine.seek(T0, 0)
    errand = only(machine)
    damaged = bytearray(batches(3))
    damaged[-1] ^= 1
    machine.replied(errand, fetched(errand, batches(0) + damaged), ms(1))
    chunk = machine.next_chunk()
    assert chunk is not None
    assert chunk.next_offset == 3
    machine.taken(chunk)
    for _ in range(2):
        with pytest.raises(CorruptRecords) as caught:
            machine.next_chunk()
        assert (caught.value.topic_partition, caught.value.offset) == (T0, 3)
    assert machine.errands(ms(1), everyone) == []
    machine.seek(T0, 6)
    assert asked_offset(only(machine, ms(1))) == 6


def test_crcs_are_not_checked_if_nobody_wants_it() -> None:
    machine, _ = fetcher(check_crcs="false")
    machine.seek(T0, 0)
    errand = only(machine)
    damaged = bytearray(batches(0))
    damaged[17] ^= 1
    machine.replied(errand, fetched(errand, bytes(damaged)), ms(1))
    assert machine.next_chunk() is not None


def test_an_offset_out_of_range_follows_the_policy() -> None:
    machine, _ = fetcher(auto_offset_reset="earliest")
    machine.seek(T0, 5)
    errand = only(machine)
    machine.replied(errand, fetched(errand, code=ErrorCode.OFFSET_OUT_OF_RANGE), ms(1))
    assert isinstance(only(machine, ms(1)).request, ListOffsetsRequest)


def test_an_offset_out_of_range_is_raised_without_policy() -> None:
    machine, _ = fetcher(auto_offset_reset="none")
    machine.seek(T0, 5)
    errand = only(machine)
    machine.replied(errand, fetched(errand, code=ErrorCode.OFFSET_OUT_OF_RANGE), ms(1))
    with pytest.raises(OffsetOutOfRange, match="offset 5"):
        machine.next_chunk()


def test_after_a_leader_change_reading_goes_on_at_the_new_leader() -> None:
    machine, cluster = fetcher()
    machine.seek(T0, 5)
    errand = only(machine)
    machine.replied(errand, fetched(errand, code=ErrorCode.NOT_LEADER_OR_FOLLOWER), ms(1))
    assert machine.errands(ms(2), everyone) == [], "the back-off has not passed"
    learn(cluster, ms(200), leader=2, epoch=1)
    again = only(machine, ms(200))
    assert (again.node, asked_offset(again)) == (2, 5)


def test_a_new_leader_named_in_the_reply_is_read_at_once_without_a_metadata_request() -> None:
    machine, cluster = fetcher()
    machine.seek(T0, 5)
    due = cluster.deadline()
    errand = only(machine)
    refused = fetched(errand, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    refused.responses[0].partitions[0].current_leader = LeaderIdAndEpoch(9, 1)
    refused.node_endpoints = [NodeEndpoint(9, "127.0.0.1", 9099)]
    machine.replied(errand, refused, ms(1))
    again = only(machine, ms(1))
    assert (again.node, asked_offset(again)) == (9, 5)
    assert cluster.brokers[NodeId(9)].port == 9099
    assert cluster.deadline() == due


def test_a_lost_connection_is_tried_again_after_a_while() -> None:
    machine, _ = fetcher()
    machine.seek(T0, 5)
    machine.failed(only(machine), ConnectionFailed("gone"), ms(0))
    assert machine.errands(ms(50), everyone) == []
    assert asked_offset(only(machine, ms(200))) == 5


def read_one_batch(machine: Fetcher) -> None:
    machine.seek(T0, 0)
    errand = only(machine)
    machine.replied(errand, fetched(errand, batches(0)), ms(1))
    chunk = machine.next_chunk()
    assert chunk is not None
    machine.taken(chunk)


def epoch_end(end_offset: int) -> OffsetForLeaderEpochResponse:
    told = EpochEndOffset(partition=0, leader_epoch=0, end_offset=end_offset)
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[told])])


@pytest.mark.parametrize(("end_offset", "goes_on_at"), [(3, 3), (10, 3), (2, 2)])
def test_under_a_new_leader_the_position_is_checked_against_its_log(end_offset: int, goes_on_at: int) -> None:
    machine, cluster = fetcher()
    read_one_batch(machine)
    learn(cluster, ms(200), epoch=1)
    check = only(machine, ms(200))
    assert isinstance(check.request, OffsetForLeaderEpochRequest)
    machine.replied(check, epoch_end(end_offset), ms(201))
    assert asked_offset(only(machine, ms(201))) == goes_on_at


def test_a_truncation_skips_no_fetched_record_that_the_caller_has_not_taken() -> None:
    machine, cluster = fetcher()
    machine.seek(T0, 0)
    errand = only(machine)
    machine.replied(errand, fetched(errand, batches(0)), ms(1))
    learn(cluster, ms(200), epoch=1)
    machine.replied(only(machine, ms(200)), epoch_end(2), ms(201))
    assert machine.next_chunk() is None
    assert (machine.position(T0), asked_offset(only(machine, ms(201)))) == (0, 0)


def test_a_truncated_log_is_raised_without_policy() -> None:
    machine, cluster = fetcher(auto_offset_reset="none")
    read_one_batch(machine)
    learn(cluster, ms(200), epoch=1)
    machine.replied(only(machine, ms(200)), epoch_end(1), ms(201))
    with pytest.raises(LogTruncated, match="cut at 1"):
        machine.next_chunk()


def test_a_paused_partition_is_neither_fetched_nor_handed_out() -> None:
    machine, _ = fetcher(T0, T1)
    machine.seek(T0, 0)
    machine.seek(T1, 0)
    machine.pause(T0, is_paused=True)
    errand = only(machine)
    assert list(errand.generations) == [T1]
    machine.replied(errand, fetched(errand, batches(0), partition=1), ms(1))
    machine.pause(T1, is_paused=True)
    assert machine.next_chunk() is None
    machine.pause(T1, is_paused=False)
    assert machine.next_chunk() is not None


def want(offset: int) -> Wanted:
    return Wanted(TOPIC_ID, offset, 0, 1 << 20)


def test_a_session_sends_only_what_changed() -> None:
    session, request = FetchSession(), FetchRequest()
    session.fill(request, {T0: want(0), T1: want(0)})
    assert (request.session_id, request.session_epoch, len(request.topics[0].partitions)) == (0, 0, 2)
    session.replied(99)
    session.fill(request, {T0: want(5), T1: want(0)})
    assert (request.session_id, request.session_epoch) == (99, 1)
    assert [partition.fetch_offset for partition in request.topics[0].partitions] == [5]
    session.replied(99)
    session.fill(request, {T0: want(5)})
    assert request.topics == []
    assert [forgotten.partitions for forgotten in request.forgotten_topics_data] == [[1]]


def test_a_broker_without_sessions_gets_whole_requests() -> None:
    session, request = FetchSession(), FetchRequest()
    for _ in range(2):
        session.fill(request, {T0: want(0)})
        assert (request.session_id, request.session_epoch, len(request.topics)) == (0, 0, 1)
        session.replied(0)


def test_a_topic_made_anew_begins_a_new_session() -> None:
    session, request = FetchSession(), FetchRequest()
    session.fill(request, {T0: want(0)})
    session.replied(99)
    session.fill(request, {T0: want(0)._replace(topic_id=bytes(15) + b"\1")})
    assert (request.session_id, len(request.topics)) == (0, 1)


def test_a_position_told_with_its_epoch_is_held_against_the_log_once_the_leader_is_newer() -> None:
    machine, cluster = fetcher()
    learn(cluster, ms(200), epoch=2)
    machine.seek(T0, 5, leader_epoch=1)
    asked = only(machine, ms(200)).request
    assert isinstance(asked, OffsetForLeaderEpochRequest)
    assert (
        asked.topics[0].partitions[0].leader_epoch,
        asked.topics[0].partitions[0].current_leader_epoch,
    ) == (1, 2)


def test_a_partition_held_back_asks_nothing_until_it_is_sought_or_reset() -> None:
    machine, _ = fetcher(auto_offset_reset="earliest")
    machine.hold(T0)
    assert machine.errands(START, everyone) == []
    assert machine.awaiting_committed() == (T0,)
    machine.reset(T0)
    assert isinstance(only(machine).request, ListOffsetsRequest)


def test_a_partition_with_a_position_is_not_held_back() -> None:
    machine, _ = fetcher()
    machine.seek(T0, 5)
    machine.hold(T0)
    assert machine.awaiting_committed() == ()
    assert isinstance(only(machine).request, FetchRequest)


def test_a_reset_by_duration_asks_for_that_time_and_takes_the_end_where_nothing_is_as_young() -> None:
    machine, _ = fetcher(auto_offset_reset="by_duration:PT2S")
    machine.wall_ms = Millis(10_000)
    errand = only(machine)
    assert isinstance(errand.request, ListOffsetsRequest)
    assert errand.request.topics[0].partitions[0].timestamp == 8_000
    told = ListOffsetsPartitionResponse(partition_index=0, offset=-1)
    machine.replied(
        errand, ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[told])]), START
    )
    asked = only(machine).request
    assert isinstance(asked, ListOffsetsRequest)
    assert asked.topics[0].partitions[0].timestamp == -1


def near(errand: Errand, node: int) -> FetchResponse:
    """The leader names a replica."""
    told = PartitionData(partition_index=0, preferred_read_replica=node, records=memoryview(b""))
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[told])])


def from_near(**given: object) -> tuple[Fetcher, Cluster]:
    """A consumer that was told to read T0 from node 2."""
    machine, cluster = fetcher(client_rack="r2", **given)
    machine.seek(T0, 5)
    first = only(machine)
    assert isinstance(first.request, FetchRequest)
    assert (first.node, first.request.rack_id) == (1, "r2")
    machine.replied(first, near(first, 2), START)
    return machine, cluster


def test_a_partition_is_read_from_the_replica_that_its_leader_names() -> None:
    machine, _ = from_near()
    second = only(machine)
    assert (second.node, asked_offset(second)) == (2, 5)
    machine.replied(second, fetched(second, batches(5)), START)
    third = only(machine)
    assert (third.node, asked_offset(third)) == (2, 8)


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_after_an_error_of_that_replica_the_leader_decides(code: ErrorCode) -> None:
    machine, _ = from_near()
    second = only(machine)
    machine.replied(second, fetched(second, code=code), START)
    third = only(machine)
    assert (third.node, asked_offset(third)) == (1, 5)


def test_a_named_replica_is_asked_for_again_after_the_age_of_metadata() -> None:
    machine, _ = from_near(metadata_max_age_ms=1_000)
    second = only(machine, Micros(START + 999_000))
    assert second.node == 2
    machine.replied(second, fetched(second), START)
    assert only(machine, Micros(START + 1_000_000)).node == 1


def test_a_named_replica_that_cannot_be_reached_is_not_named_again_for_a_while() -> None:
    machine, cluster = from_near(reconnect_backoff_ms=100)
    cluster.connect_failed(NodeId(2), START)
    second = only(machine)
    assert isinstance(second.request, FetchRequest)
    assert (second.node, second.request.rack_id) == (1, "")
