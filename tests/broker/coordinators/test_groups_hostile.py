"""Hostile requests to a coordinator: each has Kafka's error code or a closed connection, and the
next client notices nothing.
"""

import pytest

from sparklog.errors import ErrorCode, code_of
from sparklog.kernels.codec_reference import REQUEST_ELEMENTS_MAX
from sparklog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from sparklog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from sparklog.wire.messages.find_coordinator import FindCoordinatorResponse
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupResponse
from sparklog.wire.messages.offset_commit import OffsetCommitResponse
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.configuring import TOPIC, set_to
from tests.broker.groups import (
    COMMIT,
    FETCH,
    FIND,
    JOIN,
    SYNC,
    ask_commit,
    ask_coordinator,
    ask_offsets,
    commit,
    committed,
    find,
    found,
    join,
    join_alone,
    started,
)
from tests.broker.world import World

MEGABYTE = 1 << 20
ODD_NAMES = ["g" * 250, "g" * 32_000, "a\0b", "..", ".", "/", "\n", "ä" * 249, "__consumer_offsets", " "]


def ready() -> tuple[World, SimulatedConnection]:
    world = started()
    client = world.node.connect()
    assert ask_coordinator(world, client, "g") is ErrorCode.NONE
    return world, client


def test_ten_megabytes_of_metadata_are_not_even_received_and_disturb_nobody() -> None:
    world, client = ready()
    enemy = world.node.connect()
    enemy.send(join("g", metadata=b"x" * (10 * MEGABYTE)), JOIN, JoinGroupResponse)
    world.settle()
    assert enemy.is_closed
    assert ask_commit(world, client, "g", 5) is ErrorCode.NONE


def test_an_assignment_that_no_record_can_hold_is_refused_and_the_group_goes_on() -> None:
    world, client = ready()
    asked = world.ask(client, join("g", metadata=b"x" * 1000), JOIN, JoinGroupResponse)
    joined = world.ask(client, join("g", asked.member_id, metadata=b"x" * 1000), JOIN, JoinGroupResponse)
    shares = [SyncGroupRequestAssignment(joined.member_id, b"x" * (4 * MEGABYTE))]
    synced = world.ask(
        client,
        SyncGroupRequest("g", joined.generation_id, joined.member_id, assignments=shares),
        SYNC,
        SyncGroupResponse,
    )
    assert synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR  # Kafka's for a record that is too large
    assert ask_commit(world, client, "h", 5) is ErrorCode.NONE
    assert world.node.halted is None


@pytest.mark.parametrize("generation", [-2, 0, 2, 2**31 - 1, -(2**31)])
def test_a_stale_generation_commits_nothing(generation: int) -> None:
    world, client = ready()
    member_id, current = join_alone(world, client, "g")
    assert current == 1
    refused = world.ask(
        client, commit("g", 9, generation=generation, member_id=member_id), COMMIT, OffsetCommitResponse
    )
    assert committed(refused) is ErrorCode.ILLEGAL_GENERATION
    strange = world.ask(
        client, commit("g", 9, generation=current, member_id="somebody"), COMMIT, OffsetCommitResponse
    )
    assert committed(strange) is ErrorCode.UNKNOWN_MEMBER_ID
    assert ask_offsets(world, client, "g") == [-1]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_text_is_the_name_of_a_group_and_of_none_else(name: str) -> None:
    world, client = ready()
    assert ask_coordinator(world, client, name) is ErrorCode.NONE
    assert ask_commit(world, client, name, 5) is ErrorCode.NONE
    member_id, generation = join_alone(world, client, name)
    heartbeat = world.ask(client, HeartbeatRequest(name, generation, member_id), 4, HeartbeatResponse)
    assert heartbeat.error_code == 0
    world.node.kill()
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert ask_coordinator(world, client, name) is ErrorCode.NONE
    assert ask_offsets(world, client, name) == [5]
    assert ask_offsets(world, client, name[:-1] or "x") == [-1]


@pytest.mark.parametrize("topic", ["t" * 250, "a\0b", "..", "", "none"])
def test_topics_that_cannot_be_are_committed_by_nobody(topic: str) -> None:
    world, client = ready()
    assert ask_commit(world, client, "g", 5, topic=topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask_commit(world, client, "g", 5) is ErrorCode.NONE


def test_metadata_of_a_commit_beyond_the_limit_is_refused() -> None:
    world, client = ready()
    refused = world.ask(client, commit("g", 5, metadata="x" * 4097), COMMIT, OffsetCommitResponse)
    assert committed(refused) is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_a_storm_of_heartbeats_and_joins_is_answered_one_by_one_and_grows_nothing() -> None:
    world, client = ready()
    member_id, generation = join_alone(world, client, "g")
    storm = world.node.connect()
    for number in range(3_000):
        if number % 3:
            storm.send(HeartbeatRequest("g", generation, member_id), 4, HeartbeatResponse)
        else:
            storm.send(
                join("h"), JOIN, JoinGroupResponse
            )  # each is given a member id, and never comes back with it
    world.settle()
    assert len(storm.replies) == 3_000
    assert {code_of(reply.error_code) for reply in storm.replies} == {
        ErrorCode.NONE,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
    world.settle(60_000)
    described = world.ask(client, DescribeGroupsRequest(groups=["h"]), 5, DescribeGroupsResponse)
    assert described.groups[0].members == []


def test_as_many_groups_as_a_request_may_name_are_each_answered() -> None:
    world, client = ready()
    names = [f"group-{number}" for number in range(REQUEST_ELEMENTS_MAX)]
    described = world.ask(client, DescribeGroupsRequest(groups=names), 5, DescribeGroupsResponse)
    assert [group.group_id for group in described.groups] == names
    assert {group.group_state for group in described.groups} == {"Dead"}


def test_ten_thousand_groups_in_other_questions_are_each_answered() -> None:
    world, client = ready()
    names = [f"group-{number}" for number in range(10_000)]
    fetched = world.ask(
        client,
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name) for name in names]),
        FETCH,
        OffsetFetchResponse,
    )
    assert [group.group_id for group in fetched.groups] == names
    deleted = world.ask(client, DeleteGroupsRequest(groups_names=names), 2, DeleteGroupsResponse)
    assert {code_of(result.error_code) for result in deleted.results} == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert set(found(world.ask(client, find(*names), FIND, FindCoordinatorResponse))) == {ErrorCode.NONE}


def test_a_group_whose_record_a_smaller_max_message_bytes_does_not_take_is_refused_and_the_others_go_on() -> (
    None
):
    world, client = ready()
    assert set_to(world, client, TOPIC, "__consumer_offsets", max_message_bytes="2000") == (
        ErrorCode.NONE,
        None,
    )
    asked = world.ask(client, join("g", metadata=b"x" * 1000), JOIN, JoinGroupResponse)
    joined = world.ask(client, join("g", asked.member_id, metadata=b"x" * 1000), JOIN, JoinGroupResponse)
    for size, code in ((1000, ErrorCode.UNKNOWN_SERVER_ERROR), (100, ErrorCode.NONE)):
        shares = [SyncGroupRequestAssignment(joined.member_id, b"x" * size)]
        sync = SyncGroupRequest("g", joined.generation_id, joined.member_id, assignments=shares)
        assert world.ask(client, sync, SYNC, SyncGroupResponse).error_code == code
        joined = world.ask(client, join("g", asked.member_id, metadata=b"x" * 1000), JOIN, JoinGroupResponse)
    assert not [line for line in world.node.trace if "coordinator-append-refused" in line]


def test_a_commit_whose_record_a_tiny_max_message_bytes_does_not_take_is_refused_as_kafka_does_and_nobody_else_notices() -> (  # noqa: E501
    None
):
    world, client = ready()
    assert ask_commit(world, client, "g", 1) is ErrorCode.NONE
    assert set_to(world, client, TOPIC, "__consumer_offsets", max_message_bytes="300") == (
        ErrorCode.NONE,
        None,
    )
    long_name = "g" * 250
    for _ in range(2):
        assert ask_commit(world, client, long_name, 5) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert ask_commit(world, client, "g", 2, 3, 4) is ErrorCode.NONE
    assert ask_offsets(world, client, "g", partitions=3) == [2, 3, 4]
    assert ask_offsets(world, client, long_name) == [-1]
    assert not [line for line in world.node.trace if "coordinator-append-refused" in line]
