"""Administrative requests to a cluster of one: Kafka's answers, also where there is nothing to do."""

from random import Random

import pytest

from sparklog.effects import Run
from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID
from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from sparklog.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from sparklog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from sparklog.wire.messages.describe_producers import TopicRequest as ProducersOf
from sparklog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from sparklog.wire.messages.describe_topic_partitions import (
    Cursor,
)
from sparklog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from sparklog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from sparklog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.broker.session import Encoded
from sparklog_server.log.producers.producer_state import MANY
from tests.broker.administering import HOSTILE_NAMES, NODE, UNKNOWN_NODE, Admin, features_set, sized
from tests.broker.world import ACKS_ALL, PRODUCE_BY_NAME, World, produce, produced

NOTHING_NEEDED = "Leader election not needed for topic partition."


@pytest.fixture
def admin(world: World) -> Admin:
    return Admin(world)


# -- describing


def test_partitions_are_described_page_by_page_in_the_order_of_names(admin: Admin) -> None:
    admin.create(sized("b", 3), sized("a", 2), sized("c", 1))
    seen: list[tuple[str | None, int]] = []
    pages, cursor = 0, None
    while pages == 0 or cursor is not None:
        page = admin.describe(limit=2, cursor=cursor)
        seen += [(topic.name, part.partition_index) for topic in page.topics for part in topic.partitions]
        pages, cursor = pages + 1, page.next_cursor
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
    assert pages == 3
    (topic,) = admin.describe("a").topics
    part = topic.partitions[0]
    assert (part.leader_id, part.replica_nodes, part.isr_nodes, part.offline_replicas) == (
        NODE,
        [NODE],
        [NODE],
        [],
    )
    assert (part.eligible_leader_replicas, part.last_known_elr) == ([], [])
    assert topic.topic_authorized_operations == sum(1 << one for one in (3, 4, 5, 6, 7, 8, 10, 11))


def test_a_page_ends_where_the_next_topic_begins_also_if_that_does_not_exist(admin: Admin) -> None:
    admin.create(sized("a", 2))
    page = admin.describe("a", "missing", limit=2)
    assert page.next_cursor == Cursor("missing", 0)
    rest = admin.describe("a", "missing", limit=2, cursor=page.next_cursor)
    assert [(one.name, one.error_code) for one in rest.topics] == [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ]
    assert rest.next_cursor is None


def test_a_limit_below_one_still_brings_a_partition_and_a_huge_one_no_more_than_the_broker_allows(
    world: World,
) -> None:
    admin = Admin(world)
    admin.create(sized("a", 3))
    for limit, count in ((0, 1), (-5, 1), (2**31 - 1, 3)):
        assert len(admin.describe("a", limit=limit).topics[0].partitions) == count


@pytest.mark.parametrize("cursor", [Cursor("a", -1), Cursor("b", 0)])
def test_a_cursor_that_points_nowhere_is_an_invalid_request(admin: Admin, cursor: Cursor) -> None:
    admin.create(sized("a"), sized("b"))
    assert [(one.name, one.error_code) for one in admin.describe("a", cursor=cursor).topics] == [
        ("a", ErrorCode.INVALID_REQUEST)
    ]


def test_a_cursor_behind_the_last_partition_finds_none(admin: Admin) -> None:
    admin.create(sized("a"))
    page = admin.describe(cursor=Cursor("a", 2**31 - 1))
    assert ([topic.partitions for topic in page.topics], page.next_cursor) == ([[]], None)


def test_hostile_names_are_described_as_what_they_are(admin: Admin) -> None:
    told = admin.describe(*HOSTILE_NAMES, "missing")
    codes = {one.name: one.error_code for one in told.topics}
    expected = dict.fromkeys(HOSTILE_NAMES, ErrorCode.INVALID_TOPIC_EXCEPTION) | {
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert codes == expected


def test_the_cluster_tells_what_the_caller_may_do_only_if_it_is_asked(admin: Admin) -> None:
    told = admin.ask(
        DescribeClusterRequest(include_cluster_authorized_operations=True), 2, DescribeClusterResponse
    )
    assert told.cluster_authorized_operations == sum(1 << one for one in (5, 7, 8, 9, 10, 11, 12))
    assert (told.controller_id, told.endpoint_type) == (NODE, 1)
    assert admin.ask(DescribeClusterRequest(), 2, DescribeClusterResponse).cluster_authorized_operations == -(
        2**31
    )


def test_metadata_tells_what_the_caller_may_do_only_if_it_is_asked(admin: Admin) -> None:
    admin.create(sized("t"))
    topics = [MetadataRequestTopic(name="t")]
    request = MetadataRequest(
        topics=topics, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
    )
    told = admin.ask(request, 10, MetadataResponse)
    assert told.cluster_authorized_operations == sum(1 << one for one in (5, 7, 8, 9, 10, 11, 12))
    assert told.topics[0].topic_authorized_operations == sum(1 << one for one in (3, 4, 5, 6, 7, 8, 10, 11))
    silent = admin.ask(MetadataRequest(topics=topics), 10, MetadataResponse)
    assert (silent.cluster_authorized_operations, silent.topics[0].topic_authorized_operations) == (
        -(2**31),
        -(2**31),
    )


def test_nobody_can_log_in_by_a_password_that_was_never_given(admin: Admin) -> None:
    request = DescribeUserScramCredentialsRequest([UserName("u"), UserName("twice"), UserName("twice")])
    told = admin.ask(request, 0, DescribeUserScramCredentialsResponse)
    assert [(one.user, one.error_code) for one in told.results] == [
        ("u", ErrorCode.RESOURCE_NOT_FOUND),
        ("twice", ErrorCode.DUPLICATE_RESOURCE),
    ]
    assert (
        admin.ask(DescribeUserScramCredentialsRequest(None), 0, DescribeUserScramCredentialsResponse).results
        == []
    )


@pytest.mark.parametrize(
    ("kind", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_a_broker_does_not_answer_for_controllers(admin: Admin, kind: int, code: ErrorCode) -> None:
    assert (
        admin.ask(DescribeClusterRequest(endpoint_type=kind), 1, DescribeClusterResponse).error_code == code
    )


def quorum_of(topic: str, partition: int = 0) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        [DescribeQuorumRequestTopicData(topic, [DescribeQuorumRequestPartitionData(partition)])]
    )


def test_the_quorum_of_one_leads_itself_and_has_everything(admin: Admin) -> None:
    told = admin.ask(quorum_of("__cluster_metadata"), 2, DescribeQuorumResponse)
    part = told.topics[0].partitions[0]
    (voter,) = part.current_voters
    assert (part.leader_id, voter.replica_id, part.observers) == (NODE, NODE, [])
    assert part.high_watermark == voter.log_end_offset > 0
    assert voter.replica_directory_id != ZERO_UUID
    assert [(node.node_id, node.listeners[0].port) for node in told.nodes] == [(NODE, 9092)]


@pytest.mark.parametrize(("topic", "partition"), [("t", 0), ("__cluster_metadata", 1)])
def test_no_other_partition_has_a_quorum(admin: Admin, topic: str, partition: int) -> None:
    part = admin.ask(quorum_of(topic, partition), 2, DescribeQuorumResponse).topics[0].partitions[0]
    assert (part.partition_index, part.error_code) == (partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_producers_are_told_with_their_last_sequence(admin: Admin) -> None:
    world = admin.world
    admin.create(sized("t"))
    for sequence in (0, 1):
        batch = world.batch(b"x", producer_id=5, producer_epoch=3, base_sequence=sequence)
        world.ask(admin.connection, produce("t", batch, acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    request = DescribeProducersRequest(
        [ProducersOf("t", [0, 1, 0]), ProducersOf("missing", [0]), ProducersOf("a/b", [0])]
    )
    first, missing, bad = admin.ask(request, 0, DescribeProducersResponse).topics
    (state,) = first.partitions[0].active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence, state.current_txn_start_offset) == (
        5,
        3,
        1,
        -1,
    )
    assert state.last_timestamp > 0
    assert [one.error_code for one in first.partitions] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert missing.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bad.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_very_many_producers_are_told_by_id_and_freed_by_the_job_that_tells_them(admin: Admin) -> None:
    world, client = admin.world, admin.connection
    admin.create(sized("t"))
    ids = list(range(MANY + 1))
    Random(1).shuffle(ids)
    for producer_id in ids:
        client.send(
            produce("t", world.batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0)),
            PRODUCE_BY_NAME,
            ProduceResponse,
        )
    world.settle()
    request = DescribeProducersRequest([ProducersOf("t", [0])])
    told = admin.ask(request, 0, DescribeProducersResponse).topics[0].partitions[0].active_producers
    assert [one.producer_id for one in told] == sorted(ids)

    broker = world.node.running
    frame = b"".join(bytes(chunk) for chunk in encode_request(request, 0, 1, "test"))
    broker.buffer(client.session_id)[: len(frame)] = frame
    (run,) = broker.receive(client.session_id, len(frame), world.clock.now)
    assert isinstance(run, Run)
    encoded = run.work()
    assert isinstance(encoded, Encoded)
    _, answer = decode_reply(
        DescribeProducersResponse, 0, b"".join(bytes(chunk) for chunk in encoded.chunks)[4:]
    )
    assert answer.topics[0].partitions[0].active_producers == told
    assert encoded.message == DescribeProducersResponse(topics=[TopicResponse("t", [PartitionResponse(0)])])


# -- log directories


def test_log_directories_tell_sizes_and_room() -> None:
    world = World(1, **{"log.dirs": "/a,/b"})
    world.node.start()
    world.settle()
    admin = Admin(world)
    admin.create(sized("t", 2), sized("u"))
    batch = world.batch(b"x" * 100)
    assert produced(
        world.ask(admin.connection, produce("t", batch, acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    ) == (0, 0)
    told = admin.ask(DescribeLogDirsRequest(topics=None), 5, DescribeLogDirsResponse)
    assert [(one.log_dir, one.error_code) for one in told.results] == [("/a", 0), ("/b", 0)]
    sizes = {
        (topic.name, part.partition_index): part
        for one in told.results
        for topic in one.topics
        for part in topic.partitions
    }
    assert {key: part.partition_size for key, part in sizes.items()} == {
        ("t", 0): len(batch),
        ("t", 1): 0,
        ("u", 0): 0,
    }
    assert {(part.offset_lag, part.is_future_key) for part in sizes.values()} == {(0, False)}
    for one in told.results:
        assert one.total_bytes > one.usable_bytes > 0
    only = [DescribableLogDirTopic("t", [1, 9]), DescribableLogDirTopic("missing", [0])]
    told = admin.ask(DescribeLogDirsRequest(topics=only), 5, DescribeLogDirsResponse)
    assert [
        (topic.name, part.partition_index)
        for one in told.results
        for topic in one.topics
        for part in topic.partitions
    ] == [("t", 1)]
    assert all(
        not one.topics
        for one in admin.ask(DescribeLogDirsRequest(topics=[]), 5, DescribeLogDirsResponse).results
    )


@pytest.mark.parametrize("call", ["statvfs", "append"])
def test_a_log_directory_that_failed_is_told_as_such(call: str) -> None:
    world = World(1, **{"log.dirs": "/a,/b"})
    world.node.start()
    world.settle()
    admin = Admin(world)
    admin.create(sized("t", 2))
    world.disk.fault = lambda asked, path: "EIO" if asked == call and path.startswith("/b") else None
    for partition in (0, 1):
        world.ask(
            admin.connection,
            produce("t", world.batch(b"x"), partition=partition),
            PRODUCE_BY_NAME,
            ProduceResponse,
        )
    first, second = admin.ask(DescribeLogDirsRequest(topics=None), 5, DescribeLogDirsResponse).results
    assert (first.error_code, len(first.topics)) == (0, 1)
    assert (second.error_code, second.topics, second.total_bytes) == (ErrorCode.KAFKA_STORAGE_ERROR, [], -1)


# -- elections and reassignments


def elected(
    admin: Admin, kind: int, topics: list[TopicPartitions] | None
) -> tuple[int, dict[tuple[str, int], tuple[int, str | None]]]:
    told = admin.ask(
        ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=1000),
        2,
        ElectLeadersResponse,
    )
    return told.error_code, {
        (topic.topic, part.partition_id): (part.error_code, part.error_message)
        for topic in told.replica_election_results
        for part in topic.partition_result
    }


@pytest.mark.parametrize("kind", [0, 1])
def test_a_leader_that_leads_is_not_elected_again(admin: Admin, kind: int) -> None:
    admin.create(sized("t"))
    asked = [TopicPartitions("t", [0, 1]), TopicPartitions("missing", [0])]
    assert elected(admin, kind, asked) == (
        0,
        {
            ("t", 0): (ErrorCode.ELECTION_NOT_NEEDED, NOTHING_NEEDED),
            ("t", 1): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-1"),
            ("missing", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as missing"),
        },
    )
    assert elected(admin, kind, None) == (0, {})


def test_an_unknown_kind_of_election_is_an_invalid_request(admin: Admin) -> None:
    code, told = elected(admin, 5, [TopicPartitions("t", [0])])
    assert (code, told) == (
        ErrorCode.INVALID_REQUEST,
        {("t", 0): (ErrorCode.INVALID_REQUEST, "Unknown election type 5")},
    )


def test_a_million_partitions_in_one_request_end_the_session(admin: Admin) -> None:
    admin.connection.send(
        ElectLeadersRequest(topic_partitions=[TopicPartitions("t", [0] * 1_000_000)]), 2, ElectLeadersResponse
    )
    admin.world.settle()
    assert admin.connection.is_closed
    assert Admin(admin.world).create(sized("t"))[0].error_code == 0


def reassigned(
    admin: Admin, replicas: list[int] | None, *, topic: str = "t", partition: int = 0, may_shrink: bool = True
) -> tuple[int, str | None]:
    asked = [ReassignableTopic(topic, [ReassignablePartition(partition, replicas)])]
    request = AlterPartitionReassignmentsRequest(topics=asked, allow_replication_factor_change=may_shrink)
    told = admin.ask(request, 1, AlterPartitionReassignmentsResponse)
    assert told.error_code == 0
    part = told.responses[0].partitions[0]
    return part.error_code, part.error_message


def test_in_a_cluster_of_one_replicas_can_only_stay_where_they_are(admin: Admin) -> None:
    admin.create(sized("t"))
    assert reassigned(admin, [NODE]) == (0, None)
    assert reassigned(admin, None) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassigned(admin, []) == (bad, "The manual partition assignment includes an empty replica list.")
    assert reassigned(admin, [UNKNOWN_NODE])[0] == bad
    assert reassigned(admin, [NODE, NODE]) == (
        bad,
        "The manual partition assignment includes the broker 1 more than once.",
    )
    assert reassigned(admin, [NODE, UNKNOWN_NODE], may_shrink=False)[0] == bad  # the nodes are checked first
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassigned(admin, [NODE], partition=5) == (unknown, "Unable to find partition t:5.")
    assert reassigned(admin, [NODE], topic="missing") == (unknown, "Unable to find a topic named missing.")
    for topics in (
        None,
        [ListPartitionReassignmentsTopics("t", [0, 1]), ListPartitionReassignmentsTopics("missing", [0])],
    ):
        told = admin.ask(
            ListPartitionReassignmentsRequest(topics=topics), 0, ListPartitionReassignmentsResponse
        )
        assert (told.error_code, told.topics) == (0, [])


def test_a_node_without_a_listener_of_controllers_takes_no_other_voter(admin: Admin) -> None:
    request = AddRaftVoterRequest("", 1_000, 2, b"d" * 16, [Listener("CONTROLLER", "b", 9093)])
    request.cluster_id = None
    told = admin.ask(request, 1, AddRaftVoterResponse)
    assert told.error_code == ErrorCode.INVALID_REQUEST
    assert "didn't include the endpoint for the default listener none" in (told.error_message or "")


# -- rights


def test_who_may_not_administer_is_told_so_and_changes_nothing() -> None:
    world = World(
        1,
        allow=lambda _, operation, resource, __: (
            resource is not Resource.CLUSTER or operation is Operation.CREATE
        ),
    )
    world.node.start()
    world.settle()
    admin = Admin(world)
    admin.create(sized("t"))
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert elected(admin, 0, None) == (denied, {})
    asked = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic("t", [ReassignablePartition(0, [NODE])])]
    )
    assert admin.ask(asked, 1, AlterPartitionReassignmentsResponse).error_code == denied
    assert (
        admin.ask(ListPartitionReassignmentsRequest(), 0, ListPartitionReassignmentsResponse).error_code
        == denied
    )
    assert features_set(admin, "metadata.version", 30)[0] == denied
    assert admin.ask(UnregisterBrokerRequest(NODE), 0, UnregisterBrokerResponse).error_code == denied
    assert admin.ask(quorum_of("__cluster_metadata"), 2, DescribeQuorumResponse).error_code == denied
    assert admin.ask(AddRaftVoterRequest(), 1, AddRaftVoterResponse).error_code == denied
    assert admin.ask(RemoveRaftVoterRequest(), 0, RemoveRaftVoterResponse).error_code == denied
    assert admin.ask(DescribeLogDirsRequest(topics=None), 5, DescribeLogDirsResponse).error_code == denied
    told = admin.ask(
        DescribeClusterRequest(include_cluster_authorized_operations=True), 2, DescribeClusterResponse
    )
    assert (told.error_code, told.cluster_authorized_operations) == (0, 0)
