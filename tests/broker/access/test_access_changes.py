"""A change of the access rules while requests wait: a request is decided when it arrives, as in Kafka, and
the next one by the rules of the moment.
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.find_coordinator import FindCoordinatorResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from sparklog_server.metadata.acls import Operation, PatternType, ResourceType
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.access.test_access import Access
from tests.broker.groups import find
from tests.broker.world import (
    FETCH_BY_NAME,
    PRODUCE_BY_NAME,
    fetch,
    fetched,
    latest,
    listed,
    produce,
    produced,
)
from tests.compatibility.access_client import ADMINISTRATOR, ANONYMOUS, CLIENT, rule
from tests.compatibility.access_coordinators import Asked

TOPIC, GROUP = "seen", "g"
LONG_MS = 30_000


@pytest.fixture
def access() -> Access:
    return Access()


def removal(kind: ResourceType, name: str, host: str = CLIENT) -> DeleteAclsRequest:
    return DeleteAclsRequest(
        [DeleteAclsFilter(kind, name, PatternType.LITERAL, ANONYMOUS, host, Operation.ANY, 1)]
    )


def revoke(access: Access, kind: ResourceType, name: str) -> None:
    told = access.ask(Asked(removal(kind, name), DeleteAclsResponse), access.admin)
    assert isinstance(told, DeleteAclsResponse)
    assert len(told.filter_results[0].matching_acls) == 1


def test_a_fetch_that_waits_is_answered_after_its_right_was_revoked_and_the_next_one_is_refused(
    access: Access,
) -> None:
    access.add([rule(ResourceType.TOPIC, Operation.READ, TOPIC)])
    access.client.send(fetch(TOPIC, 0, max_wait_ms=LONG_MS), FETCH_BY_NAME, FetchResponse)
    access.world.settle()
    assert access.client.replies == []
    revoke(access, ResourceType.TOPIC, TOPIC)
    assert access.client.replies == []
    written = access.world.ask(
        access.admin, produce(TOPIC, access.world.batch(b"v")), PRODUCE_BY_NAME, ProduceResponse
    )
    assert produced(written) == (0, 0)
    assert fetched(access.client.replies[0]) == (ErrorCode.NONE, [b"v"])
    refused = access.world.ask(access.client, fetch(TOPIC, 0), FETCH_BY_NAME, FetchResponse)
    assert fetched(refused) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


def test_a_fetch_that_waits_at_its_time_out_is_answered_as_it_arrived(access: Access) -> None:
    access.add([rule(ResourceType.TOPIC, Operation.READ, TOPIC)])
    access.client.send(fetch(TOPIC, 0, max_wait_ms=LONG_MS), FETCH_BY_NAME, FetchResponse)
    revoke(access, ResourceType.TOPIC, TOPIC)
    access.world.settle(LONG_MS)
    assert fetched(access.client.replies[0]) == (ErrorCode.NONE, [])


def test_a_right_that_is_granted_while_a_connection_is_open_counts_for_its_next_request(
    access: Access,
) -> None:
    refused = access.world.ask(access.client, latest(TOPIC), 5, ListOffsetsResponse)
    assert listed(refused)[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    access.add([rule(ResourceType.TOPIC, Operation.DESCRIBE, TOPIC)])
    assert listed(access.world.ask(access.client, latest(TOPIC), 5, ListOffsetsResponse)) == (0, 0)


def test_a_join_that_waits_ends_and_the_next_request_of_the_member_is_refused(access: Access) -> None:
    access.add([rule(ResourceType.GROUP, Operation.READ, GROUP)])
    first = joined(access, access.client)
    second = access.world.node.connect(host=CLIENT)
    second.send(joining(), 3, JoinGroupResponse)  # waits until the first member joins again
    access.world.settle()
    assert second.replies == []
    revoke(access, ResourceType.GROUP, GROUP)
    rejoin = access.world.ask(access.client, joining(first.member_id), 3, JoinGroupResponse)
    assert isinstance(rejoin, JoinGroupResponse)
    assert rejoin.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    access.world.settle(LONG_MS)
    (told,) = second.replies
    assert isinstance(told, JoinGroupResponse)
    assert told.error_code == ErrorCode.NONE
    request = SyncGroupRequest(GROUP, told.generation_id, told.member_id)
    synced = access.world.ask(second, request, 3, SyncGroupResponse)
    assert isinstance(synced, SyncGroupResponse)
    assert synced.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def joining(member: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        GROUP, 10_000, 10_000, member, None, "consumer", [JoinGroupRequestProtocol("range", b"")]
    )


def joined(access: Access, client: SimulatedConnection) -> JoinGroupResponse:
    """A group of one member, whose coordinator is ready."""
    access.world.ask(access.admin, find(GROUP), 4, FindCoordinatorResponse)
    told = access.world.ask(client, joining(), 3, JoinGroupResponse)
    assert isinstance(told, JoinGroupResponse)
    assert told.error_code == ErrorCode.NONE
    request = SyncGroupRequest(GROUP, told.generation_id, told.member_id)
    synced = access.world.ask(client, request, 3, SyncGroupResponse)
    assert isinstance(synced, SyncGroupResponse)
    assert synced.error_code == ErrorCode.NONE
    return told


def test_the_request_behind_a_removal_is_refused_in_the_turn_that_publishes_it(access: Access) -> None:
    """The administrator takes its own right away: its next request waits on the same connection, and is
    decided in the turn in which the image changes.
    """
    access.add([rule(ResourceType.TOPIC, Operation.READ, TOPIC)])  # a topic without a rule is open to all
    turns: list[int] = []
    admin = access.admin
    admin.heard = lambda: turns.append(access.world.clock.now.mono_us)
    admin.send(removal(ResourceType.TOPIC, "*", ADMINISTRATOR), 3, DeleteAclsResponse)
    admin.send(latest(TOPIC), 5, ListOffsetsResponse)
    access.world.settle()
    removed, refused = admin.replies[-2:]
    assert isinstance(removed, DeleteAclsResponse)
    assert len(removed.filter_results[0].matching_acls) == 1
    assert listed(refused)[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert turns[-1] == turns[-2]
