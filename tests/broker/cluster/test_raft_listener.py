"""Requests of raft on a listener of controllers, and what other listeners and strangers get."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import LeaderEpoch, NodeId, Offset, OffsetAndEpoch, Uuid
from sparklog.record.batch import decode_records
from sparklog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from sparklog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from sparklog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from sparklog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from sparklog.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from sparklog.wire.messages.vote import VoteRequest, VoteResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Operation
from sparklog_server.raft import requests
from sparklog_server.raft.durable_log import METADATA_TOPIC_ID
from sparklog_server.raft.requests import Myself
from tests.broker.cluster.test_controller_listener import LISTENERS
from tests.broker.world import World

FETCH = 18
REQUESTS: list[tuple[Message, int, type[Message]]] = [
    (VoteRequest(), 2, VoteResponse),
    (BeginQuorumEpochRequest(), 1, BeginQuorumEpochResponse),
    (EndQuorumEpochRequest(), 1, EndQuorumEpochResponse),
    (FetchRequest(), FETCH, FetchResponse),
    (FetchSnapshotRequest(), 1, FetchSnapshotResponse),
]


def started(*, is_trusted: bool = True) -> World:
    world = World(
        1, allow=lambda _, operation, *__: is_trusted or operation != Operation.CLUSTER_ACTION, **LISTENERS
    )
    world.node.start()
    world.settle()
    return world


def asked(world: World, request: Message, version: int, reply: type[Message]) -> Message:
    return world.ask(world.node.connect(listener="CONTROLLER"), request, version, reply)


def replica(world: World, cluster: str | None = None) -> Myself:
    return Myself(cluster or world.node.running._context.cluster_id, NodeId(9), Uuid(b"9" * 16))


def fetching(world: World, offset: int, epoch: int, cluster: str | None = None) -> FetchRequest:
    return requests.fetch_request(
        replica(world, cluster),
        LeaderEpoch(1),
        OffsetAndEpoch(Offset(offset), LeaderEpoch(epoch)),
        Offset(0),
        1 << 20,
    )


def told(response: Message) -> tuple[int, int, int]:
    """The error, the high watermark and the number of records of a Fetch."""
    assert isinstance(response, FetchResponse)
    if not response.responses:
        return response.error_code, -1, 0
    part = response.responses[0].partitions[0]
    records = decode_records(bytes(part.records or b""), include_control=True)
    return part.error_code, part.high_watermark, len(records)


def test_a_replica_fetches_the_metadata_log_and_waits_at_its_end() -> None:
    world = started()
    quorum = world.node.running._context.quorum
    end = quorum.log_end_offset
    assert told(asked(world, fetching(world, 0, 0), FETCH, FetchResponse)) == (0, end, end)
    client = world.node.connect(listener="CONTROLLER")
    request = fetching(world, end, 1)
    request.topics[0].partitions[0].high_watermark = end
    client.send(request, FETCH, FetchResponse)
    world.settle(100)
    assert client.replies == []
    assert world.create(world.node.connect(), "t") == ErrorCode.NONE
    assert told(client.replies[0])[2] > 0
    assert quorum.image.topics_by_name.keys() == {"t"}


def test_a_fetch_at_the_end_is_answered_when_its_time_is_over() -> None:
    world = started()
    end = world.node.running._context.quorum.log_end_offset
    request = fetching(world, end, 1)
    request.topics[0].partitions[0].high_watermark = end
    client = world.node.connect(listener="CONTROLLER")
    client.send(request, FETCH, FetchResponse)
    world.settle(490)
    assert client.replies == []
    world.settle(20)
    assert told(client.replies[0]) == (0, end, 0)


def test_a_request_behind_a_parked_fetch_is_not_held_up_but_answered_behind_it() -> None:
    world = started()
    end = world.node.running._context.quorum.log_end_offset
    request = fetching(world, end, 1)
    request.topics[0].partitions[0].high_watermark = end
    client = world.node.connect(listener="CONTROLLER")
    client.send(request, FETCH, FetchResponse)
    client.send(VoteRequest(cluster_id="another"), 2, VoteResponse)
    world.settle()
    assert [type(reply) for reply in client.replies] == [FetchResponse, VoteResponse]


def test_a_node_of_another_cluster_is_refused() -> None:
    world = started()
    code = ErrorCode.INCONSISTENT_CLUSTER_ID
    assert asked(world, VoteRequest(cluster_id="another"), 2, VoteResponse).error_code == code
    response = asked(world, fetching(world, 0, 0, "another"), FETCH, FetchResponse)
    assert response.error_code == code


def test_a_fetch_of_another_topic_is_refused_on_a_listener_of_controllers() -> None:
    world = started()
    assert world.create(world.node.connect(), "t") == ErrorCode.NONE
    topic = world.node.running._context.image.topics_by_name["t"]
    request = FetchRequest(topics=[FetchTopic(topic_id=topic.topic_id, partitions=[FetchPartition()])])
    assert asked(world, request, FETCH, FetchResponse).error_code == ErrorCode.INVALID_REQUEST


def test_the_metadata_log_is_no_topic_for_clients() -> None:
    world = started()
    request = FetchRequest(topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[FetchPartition()])])
    response = world.ask(world.node.connect(), request, FETCH, FetchResponse)
    assert told(response)[0] == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("request_", "version", "reply"), REQUESTS)
def test_a_principal_without_cluster_action_is_refused(
    request_: Message, version: int, reply: type[Message]
) -> None:
    world = started(is_trusted=False)
    response = asked(world, request_, version, reply)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert world.create(world.node.connect(), "t") == ErrorCode.NONE


@pytest.mark.parametrize(("request_", "version", "reply"), REQUESTS)
def test_an_empty_request_is_invalid_and_the_node_lives(
    request_: Message, version: int, reply: type[Message]
) -> None:
    world = started()
    assert asked(world, request_, version, reply).error_code == ErrorCode.INVALID_REQUEST
    assert world.create(world.node.connect(), "t") == ErrorCode.NONE


def test_a_candidate_of_a_later_epoch_deposes_the_only_voter_which_leads_again() -> None:
    world = started()
    quorum = world.node.running._context.quorum
    before = quorum.epoch
    own = (NodeId(1), quorum.directory_id)
    request = requests.vote_request(
        replica(world),
        *own,
        LeaderEpoch(before + 3),
        OffsetAndEpoch(Offset(0), LeaderEpoch(0)),
        is_pre_vote=False,
    )
    asked(world, request, 2, VoteResponse)
    world.settle(3000)
    assert quorum.is_leader
    assert quorum.epoch > before + 3
    assert world.create(world.node.connect(), "t") == ErrorCode.NONE


def test_an_observer_is_described() -> None:
    world = started()
    quorum = world.node.running._context.quorum
    asked(world, fetching(world, 0, 0), FETCH, FetchResponse)
    topics = [DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])]
    response = asked(world, DescribeQuorumRequest(topics=topics), 2, DescribeQuorumResponse)
    assert isinstance(response, DescribeQuorumResponse)
    part = response.topics[0].partitions[0]
    assert [voter.log_end_offset for voter in part.current_voters] == [quorum.log_end_offset]
    assert [(one.replica_id, one.replica_directory_id, one.log_end_offset) for one in part.observers] == [
        (9, b"9" * 16, 0)
    ]


def test_a_listener_of_controllers_describes_controllers_alone() -> None:
    world = started()
    brokers = asked(world, DescribeClusterRequest(), 2, DescribeClusterResponse)
    assert isinstance(brokers, DescribeClusterResponse)
    assert brokers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert brokers.error_message == (
        "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
    )
    told = asked(world, DescribeClusterRequest(endpoint_type=2), 2, DescribeClusterResponse)
    assert isinstance(told, DescribeClusterResponse)
    own = world.node.running.settings.node_id
    assert [(node.broker_id, node.port) for node in told.brokers] == [(own, 9093)]
    assert (told.controller_id, told.endpoint_type) == (own, 2)


def test_controllers_are_described_to_those_who_may_alter_the_cluster() -> None:
    world = World(1, allow=lambda _, operation, *__: operation != Operation.ALTER, **LISTENERS)
    world.node.start()
    world.settle()
    told = asked(world, DescribeClusterRequest(endpoint_type=2), 2, DescribeClusterResponse)
    assert isinstance(told, DescribeClusterResponse)
    assert told.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert told.brokers == []
