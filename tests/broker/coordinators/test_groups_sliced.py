"""Requests about very many groups: answered in full, and other sessions are answered in between."""

from sparklog.errors import ErrorCode
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from sparklog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from sparklog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from sparklog.wire.messages.offset_commit import OffsetCommitResponse
from sparklog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from sparklog.wire.messages.offset_fetch import OffsetFetchResponse
from sparklog.wire.schema import Message
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.groups import (
    COMMIT,
    FETCH,
    ask_commit,
    ask_coordinator,
    ask_offsets,
    commit,
    fetch_offsets,
    offsets,
    started,
)
from tests.broker.world import World

COUNT = 3_000
NAMES = [f"group-{number}" for number in range(COUNT)]
API_VERSIONS, LIST, DESCRIBE, DELETE = 3, 4, 5, 2


def ready() -> tuple[World, SimulatedConnection]:
    """So many groups, each with an offset."""
    world = started()
    client = world.node.connect()
    assert ask_coordinator(world, client, "g") is ErrorCode.NONE
    for begin in range(0, COUNT, 100):
        for name in NAMES[begin : begin + 100]:
            client.send(commit(name, 1), COMMIT, OffsetCommitResponse)
        world.settle(50)
    world.settle()
    return world, client


def answered_in_between(
    world: World, client: SimulatedConnection, request: Message, version: int, reply: type[Message]
) -> Message:
    """The answer to `request`, during which a second client asked and was answered."""
    other = world.node.connect()
    before = len(client.replies)
    client.send(request, version, reply)
    other.send(ApiVersionsRequest(), API_VERSIONS, ApiVersionsResponse)
    assert len(other.replies) == 1
    assert len(client.replies) == before, "the loop was held until the whole answer was there"
    assert world.node.running.request_bytes > 0, "all was asked for in one turn"
    world.settle(10_000)
    assert len(client.replies) == before + 1
    return client.replies[-1]


def test_a_listing_of_many_groups_lets_others_be_answered() -> None:
    world, client = ready()
    listed = answered_in_between(world, client, ListGroupsRequest(), LIST, ListGroupsResponse)
    assert isinstance(listed, ListGroupsResponse)
    assert listed.error_code == 0
    assert sorted(group.group_id for group in listed.groups) == sorted(NAMES)
    nothing = world.ask(client, ListGroupsRequest(states_filter=["Dead"]), LIST, ListGroupsResponse)
    assert isinstance(nothing, ListGroupsResponse)
    assert nothing.groups == []


def test_a_description_of_many_groups_lets_others_be_answered() -> None:
    world, client = ready()
    asked = DescribeGroupsRequest(groups=[*NAMES, "group-0", "nobody"])
    described = answered_in_between(world, client, asked, DESCRIBE, DescribeGroupsResponse)
    assert isinstance(described, DescribeGroupsResponse)
    assert [(group.group_id, group.group_state) for group in described.groups] == [
        *((name, "Empty") for name in NAMES),
        ("nobody", "Dead"),
    ]


def test_many_groups_are_deleted_while_others_are_answered() -> None:
    world, client = ready()
    asked = DeleteGroupsRequest(groups_names=[*NAMES[1:], "nobody"])
    deleted = answered_in_between(world, client, asked, DELETE, DeleteGroupsResponse)
    assert isinstance(deleted, DeleteGroupsResponse)
    assert {result.group_id: result.error_code for result in deleted.results} == {
        **dict.fromkeys(NAMES[1:], 0),
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert ask_offsets(world, client, NAMES[0]) == [1]
    assert ask_offsets(world, client, NAMES[1]) == [-1]


def test_offsets_of_many_groups_are_told_while_others_are_answered() -> None:
    world, client = ready()
    told = answered_in_between(world, client, fetch_offsets(*NAMES), FETCH, OffsetFetchResponse)
    assert offsets(told) == [[1]] * COUNT


def test_many_offsets_of_a_group_are_deleted_while_others_are_answered() -> None:
    world = started()
    client = world.node.connect()
    assert world.create(client, "wide", partitions=400) == 0
    assert ask_coordinator(world, client, "g") is ErrorCode.NONE
    assert ask_commit(world, client, "g", *range(400), topic="wide") is ErrorCode.NONE
    assert ask_commit(world, client, "g", 7) is ErrorCode.NONE
    wide = OffsetDeleteRequestTopic("wide", [OffsetDeleteRequestPartition(index) for index in range(1, 401)])
    one = OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(1)])
    deleted = answered_in_between(
        world, client, OffsetDeleteRequest("g", [wide, one]), 0, OffsetDeleteResponse
    )
    assert isinstance(deleted, OffsetDeleteResponse)
    assert deleted.error_code == 0
    assert [topic.name for topic in deleted.topics] == ["wide", "t"]
    told = {part.partition_index: part.error_code for part in deleted.topics[0].partitions}
    assert told == {**dict.fromkeys(range(1, 400), 0), 400: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert ask_offsets(world, client, "g", topic="wide", partitions=3) == [0, -1, -1]
    assert ask_offsets(world, client, "g") == [7]


def test_offsets_may_be_deleted_that_a_group_does_not_have() -> None:
    world = started()
    client = world.node.connect()
    assert world.create(client, "wide", partitions=400) == 0
    assert ask_coordinator(world, client, "g") is ErrorCode.NONE
    assert ask_commit(world, client, "g", 1, topic="wide") is ErrorCode.NONE
    wide = OffsetDeleteRequestTopic("wide", [OffsetDeleteRequestPartition(index) for index in range(400)])
    deleted = answered_in_between(world, client, OffsetDeleteRequest("g", [wide]), 0, OffsetDeleteResponse)
    assert isinstance(deleted, OffsetDeleteResponse)
    assert deleted.error_code == 0
    assert [part.error_code for part in deleted.topics[0].partitions] == [0] * 400
    refused = answered_in_between(
        world, client, OffsetDeleteRequest("nobody", [wide]), 0, OffsetDeleteResponse
    )
    assert isinstance(refused, OffsetDeleteResponse)
    assert (refused.error_code, refused.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_a_client_that_goes_away_in_the_middle_leaves_the_rest_undone() -> None:
    world, client = ready()
    client.send(DeleteGroupsRequest(groups_names=NAMES), DELETE, DeleteGroupsResponse)
    held = world.node.running.request_bytes
    world.node.disconnect(client)
    world.settle(10_000)
    assert held > 0
    assert world.node.running.request_bytes == 0
    assert ask_offsets(world, world.node.connect(), NAMES[-1]) == [1]
