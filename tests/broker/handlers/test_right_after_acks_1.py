"""Requests of a client right after acks=1: as in Kafka, the answer knows the records, though they are
not synced yet.
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from sparklog.wire.messages.fetch import FetchResponse, ReplicaState
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from sparklog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.schema import Message
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.administering import Admin, sized
from tests.broker.world import (
    ACKS_ALL,
    FETCH_BY_NAME,
    PRODUCE_BY_NAME,
    World,
    fetch,
    listed,
    produce,
    produced,
)

ROUNDS = 10


@pytest.fixture
def client(world: World) -> SimulatedConnection:
    connection = world.node.connect()
    world.create(connection, "t")
    return connection


def after_acks_1(
    world: World, client: SimulatedConnection, request: Message, version: int, reply: type[Message]
) -> Message:
    """The answer to a request that is on its way before three new records of `t` are synced."""
    client.replies.clear()
    client.send(produce("t", world.batch(b"a", b"b", b"c")), PRODUCE_BY_NAME, ProduceResponse)
    assert produced(client.replies[0])[0] == ErrorCode.NONE
    client.send(request, version, reply)
    world.settle(ms=100)
    (_, answer) = client.replies
    return answer


def deletion(offset: int, timeout_ms: int = 1000) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic("t", [DeleteRecordsPartition(0, offset)])], timeout_ms=timeout_ms
    )


def deleted(answer: Message) -> tuple[int, int]:
    """(error code, low watermark) of the one partition."""
    assert isinstance(answer, DeleteRecordsResponse)
    part = answer.topics[0].partitions[0]
    return part.error_code, part.low_watermark


@pytest.mark.parametrize("timeout_ms", [1000, 0, -1])
@pytest.mark.parametrize("before_the_end", [0, 1, None])
def test_the_records_can_be_deleted(
    world: World, client: SimulatedConnection, timeout_ms: int, before_the_end: int | None
) -> None:
    for end in range(3, 3 * ROUNDS + 1, 3):
        offset = -1 if before_the_end is None else end - before_the_end
        answer = after_acks_1(world, client, deletion(offset, timeout_ms), 2, DeleteRecordsResponse)
        assert deleted(answer) == (ErrorCode.NONE, end - (before_the_end or 0))


def test_what_is_beyond_the_records_cannot_be_deleted(world: World, client: SimulatedConnection) -> None:
    assert deleted(after_acks_1(world, client, deletion(4), 2, DeleteRecordsResponse)) == (
        ErrorCode.OFFSET_OUT_OF_RANGE,
        -1,
    )


def test_a_deletion_that_waits_for_the_disk_learns_that_it_failed(
    world: World, client: SimulatedConnection
) -> None:
    client.replies.clear()
    client.send(produce("t", world.batch(b"a")), PRODUCE_BY_NAME, ProduceResponse)
    client.send(deletion(1), 2, DeleteRecordsResponse)
    world.disk.fault = lambda call, _: "injected" if call == "sync" else None
    world.settle(ms=100)
    assert deleted(client.replies[1]) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    world.disk.fault = None


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize(("timestamp", "before_the_end"), [(-1, 0), (-3, 3), (1, None)])
def test_the_records_are_found_by_offset_and_by_time(
    world: World,
    client: SimulatedConnection,
    timestamp: int,
    before_the_end: int | None,
    isolation_level: int,
) -> None:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(name="t", partitions=[part])]
    )
    for end in range(3, 3 * ROUNDS + 1, 3):
        found = listed(after_acks_1(world, client, request, 7, ListOffsetsResponse))
        assert found == (ErrorCode.NONE, 0 if before_the_end is None else end - before_the_end)


def test_one_request_finds_offsets_by_time_in_a_partition_that_is_synced_and_in_one_that_is_not(
    world: World,
) -> None:
    client = world.node.connect()
    for name in ("t", "u"):
        world.create(client, name)
    world.ask(client, produce("u", world.batch(b"x")), PRODUCE_BY_NAME, ProduceResponse)
    topics = [
        ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-3)])
        for name in ("u", "t")
    ]
    answer = after_acks_1(
        world, client, ListOffsetsRequest(replica_id=-1, topics=topics), 7, ListOffsetsResponse
    )
    assert isinstance(answer, ListOffsetsResponse)
    assert [(part.error_code, part.offset) for topic in answer.topics for part in topic.partitions] == [
        (0, 0),
        (0, 0),
    ]


def test_the_epoch_ends_behind_the_records(world: World, client: SimulatedConnection) -> None:
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic("t", [asked])])
    answer = after_acks_1(world, client, request, 4, OffsetForLeaderEpochResponse)
    assert isinstance(answer, OffsetForLeaderEpochResponse)
    part = answer.topics[0].partitions[0]
    assert (part.error_code, part.end_offset, part.leader_epoch) == (ErrorCode.NONE, 3, 0)


@pytest.mark.parametrize(("version", "epoch"), [(12, -1), (12, 0), (16, -1), (16, 0)])
@pytest.mark.parametrize("replica_id", [1, 7])
def test_a_broker_that_is_no_replica_fetches_nothing(
    world: World, client: SimulatedConnection, replica_id: int, version: int, epoch: int
) -> None:
    request = fetch("t", 0, max_wait_ms=0)
    (topic,) = request.topics
    topic.partitions[0].current_leader_epoch = epoch
    if version == FETCH_BY_NAME:
        request.replica_id = replica_id
    else:
        request.replica_state = ReplicaState(replica_id)
        topic.topic_id = Admin(world).describe("t").topics[0].topic_id
    answer = after_acks_1(world, client, request, version, FetchResponse)
    assert isinstance(answer, FetchResponse)
    part = answer.responses[0].partitions[0]
    assert part.error_code == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER if epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH
    )
    assert (part.high_watermark, bytes(part.records or b"")) == (-1, b"")


@pytest.mark.parametrize("timeout_ms", [0, -1, 1])
def test_a_produce_waits_for_the_disk_of_the_only_replica_whatever_its_timeout(
    world: World, client: SimulatedConnection, timeout_ms: int
) -> None:
    for base_offset in range(ROUNDS):
        request = produce("t", world.batch(b"a"), acks=ACKS_ALL, timeout_ms=timeout_ms)
        assert produced(world.ask(client, request, PRODUCE_BY_NAME, ProduceResponse)) == (
            ErrorCode.NONE,
            base_offset,
        )


# -- commands for the controller that arrive after their timeout


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_command_without_time_is_refused_and_changes_nothing(world: World, timeout_ms: int) -> None:
    admin = Admin(world)
    late = ErrorCode.REQUEST_TIMED_OUT
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    created = admin.ask(CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms), 7, CreateTopicsResponse)
    assert [(one.error_code, one.error_message) for one in created.topics] == [(late, None)]
    assert admin.partitions_of("new") == []
    admin.create(sized("t"))
    grown = admin.ask(
        CreatePartitionsRequest(topics=[CreatePartitionsTopic("t", 3, None)], timeout_ms=timeout_ms),
        3,
        CreatePartitionsResponse,
    )
    assert [(one.error_code, one.error_message) for one in grown.results] == [(late, None)]
    assert admin.partitions_of("t") == [0]
    asked = [ReassignableTopic("t", [ReassignablePartition(0, [1])])]
    moved = admin.ask(
        AlterPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=asked),
        1,
        AlterPartitionReassignmentsResponse,
    )
    assert (moved.error_code, [part.error_code for one in moved.responses for part in one.partitions]) == (
        late,
        [late],
    )
    elected = admin.ask(
        ElectLeadersRequest(0, [TopicPartitions("t", [0])], timeout_ms), 2, ElectLeadersResponse
    )
    assert (elected.error_code, elected.replica_election_results[0].partition_result[0].error_code) == (
        late,
        late,
    )
    everywhere = admin.ask(ElectLeadersRequest(0, None, timeout_ms), 2, ElectLeadersResponse)
    assert (everywhere.error_code, everywhere.replica_election_results) == (late, [])
    gone = admin.ask(
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=timeout_ms),
        6,
        DeleteTopicsResponse,
    )
    assert [(one.name, one.error_code) for one in gone.responses] == [("t", late)]
    assert admin.partitions_of("t") == [0]
