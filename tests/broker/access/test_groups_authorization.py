"""What the coordinator tells those who may not know everything: of groups, of their topics, and of what
they may do.
"""

import pytest

from sparklog.errors import ErrorCode, code_of
from sparklog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from sparklog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from sparklog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.groups import SETTINGS, ask_coordinator
from tests.broker.world import World

UNKNOWN_OPERATIONS = -(2**31)


class Rights:
    """Every operation is allowed except those denied by resource and name."""

    def __init__(self) -> None:
        self.denied: set[tuple[Resource, str]] = set()

    def allow(self, principal: str, operation: Operation, resource: Resource, name: str) -> bool:
        return (resource, name) not in self.denied


@pytest.fixture
def rights() -> Rights:
    return Rights()


@pytest.fixture
def world(rights: Rights) -> World:
    world = World(1, allow=rights.allow, **SETTINGS)
    world.node.start()
    world.settle()
    world.create(world.node.connect(), "t", partitions=3)
    return world


@pytest.fixture
def client(world: World) -> SimulatedConnection:
    client = world.node.connect()
    assert ask_coordinator(world, client, "g") is ErrorCode.NONE
    return client


def beat(world: World, client: SimulatedConnection, group: str = "g") -> ErrorCode:
    request = ConsumerGroupHeartbeatRequest(
        group,
        "m",
        0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        server_assignor="uniform",
        topic_partitions=[],
    )
    answer = world.ask(client, request, 1, ConsumerGroupHeartbeatResponse)
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return code_of(answer.error_code)


def test_who_may_neither_use_the_group_nor_see_the_topic_is_told_of_the_group(
    rights: Rights, world: World, client: SimulatedConnection
) -> None:
    rights.denied = {(Resource.TOPIC, "t")}
    assert beat(world, client) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rights.denied |= {(Resource.GROUP, "g")}
    assert beat(world, client) is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_group_without_a_name_is_an_invalid_request_to_join_and_an_invalid_group_to_describe(
    world: World, client: SimulatedConnection
) -> None:
    assert beat(world, client, "") is ErrorCode.INVALID_REQUEST
    told = world.ask(client, ConsumerGroupDescribeRequest(group_ids=[""]), 1, ConsumerGroupDescribeResponse)
    assert isinstance(told, ConsumerGroupDescribeResponse)
    assert [code_of(group.error_code) for group in told.groups] == [ErrorCode.INVALID_GROUP_ID]


def test_a_description_names_no_topic_that_the_caller_may_not_know_of(
    rights: Rights, world: World, client: SimulatedConnection
) -> None:
    assert beat(world, client) is ErrorCode.NONE
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
    told = world.ask(client, request, 1, ConsumerGroupDescribeResponse)
    assert isinstance(told, ConsumerGroupDescribeResponse)
    assert (told.groups[0].error_code, len(told.groups[0].members)) == (0, 1)
    rights.denied = {(Resource.TOPIC, "t")}
    told = world.ask(client, request, 1, ConsumerGroupDescribeResponse)
    assert isinstance(told, ConsumerGroupDescribeResponse)
    assert (code_of(told.groups[0].error_code), told.groups[0].members) == (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        [],
    )
    assert told.groups[0].authorized_operations == UNKNOWN_OPERATIONS


def test_operations_are_told_of_groups_that_are_there_alone(
    world: World, client: SimulatedConnection
) -> None:
    assert beat(world, client) is ErrorCode.NONE
    request = ConsumerGroupDescribeRequest(group_ids=["g", "none"], include_authorized_operations=True)
    told = world.ask(client, request, 1, ConsumerGroupDescribeResponse)
    assert isinstance(told, ConsumerGroupDescribeResponse)
    operations = sum(
        1 << one for one in (3, 6, 8, 10, 11)
    )  # READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
    assert [group.authorized_operations for group in told.groups] == [operations, UNKNOWN_OPERATIONS]
    classic = world.ask(
        client,
        DescribeGroupsRequest(groups=["none"], include_authorized_operations=True),
        6,
        DescribeGroupsResponse,
    )
    assert isinstance(classic, DescribeGroupsResponse)
    assert classic.groups[0].authorized_operations == UNKNOWN_OPERATIONS
