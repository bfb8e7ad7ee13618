"""Consumer groups over three brokers: each member finds the coordinator by a broker of its own, and the
coordinator's node dies and comes back.
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from sparklog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupResponse
from sparklog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from sparklog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from sparklog.wire.messages.offset_commit import OffsetCommitResponse
from sparklog.wire.messages.offset_fetch import OffsetFetchResponse
from sparklog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.simulation.cluster import SimulatedNode
from tests.broker import groups
from tests.broker.clusters import Cluster
from tests.broker.coordinators.test_coordinators_of_nodes import Client, formed

GROUP = "g"
_PARTITIONS = 6
NONE = ErrorCode.NONE


def ask_together(
    cluster: Cluster, asked: list[tuple[SimulatedNode, Message]], version: int, reply: type[Message]
) -> list[Message]:
    """Send each request by a connection of its own, and wait for all responses."""
    connections = []
    for node, request in asked:
        connections.append(connection := node.connect())
        connection.send(request, version, reply)
    cluster.run_until(lambda: all(connection.replies for connection in connections), 60_000)
    return [connection.replies[0] for connection in connections]


def coordinators(client: Client) -> list[SimulatedNode]:
    """The coordinator of the group, as each running node names it."""
    running = [node for node in client.cluster.nodes.values() if node.broker is not None]
    return [client.coordinator(GROUP, 0, node) for node in running]


def restart(client: Client, coordinator: SimulatedNode, *, is_power_cut: bool) -> None:
    """Kill the coordinator's node, and start it once the other nodes know that it is down."""
    cluster = client.cluster
    coordinator.kill(is_power_cut=is_power_cut)
    cluster.run(2_000)
    for other in cluster.others(coordinator):
        answer = client.ask(
            other, FindCoordinatorRequest(coordinator_keys=[GROUP]), 4, FindCoordinatorResponse
        )
        assert isinstance(answer, FindCoordinatorResponse)
        assert answer.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.start()
    cluster.run_until(lambda: cluster.is_ready)
    assert coordinators(client) == [coordinator] * 3


def joined(client: Client, members: list[str]) -> tuple[int, list[str]]:
    """Let all members join, each by its broker, and sync; returns the generation and the assignments."""
    by = coordinators(client)
    answers = ask_together(
        client.cluster,
        [(node, groups.join(GROUP, member)) for node, member in zip(by, members, strict=True)],
        groups.JOIN,
        JoinGroupResponse,
    )
    generations = set()
    shares: list[SyncGroupRequestAssignment] = []
    leader = ""
    for answer in answers:
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == NONE
        generations.add(answer.generation_id)
        leader = answer.leader
    for member in members:
        shares.append(SyncGroupRequestAssignment(member, f"part of {member}".encode()))
    [generation] = generations
    requests = [
        SyncGroupRequest(GROUP, generation, member, assignments=shares if member == leader else [])
        for member in members
    ]
    synced = ask_together(
        client.cluster, list(zip(by, requests, strict=True)), groups.SYNC, SyncGroupResponse
    )
    assigned = []
    for reply in synced:
        assert isinstance(reply, SyncGroupResponse)
        assert reply.error_code == NONE
        assigned.append(bytes(reply.assignment).decode())
    return generation, assigned


def commit(client: Client, offset: int, *, generation: int, member: str, version: int) -> ErrorCode:
    """Commit an offset of partition 0; version 9 has member epochs."""
    answer = client.ask(
        coordinators(client)[0],
        groups.commit(GROUP, offset, generation=generation, member_id=member),
        version,
        OffsetCommitResponse,
    )
    return groups.committed(answer)


def committed(client: Client) -> list[list[int]]:
    answer = client.ask(
        coordinators(client)[0], groups.fetch_offsets(GROUP), groups.FETCH, OffsetFetchResponse
    )
    return groups.offsets(answer)


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_classic_group_goes_on_where_its_coordinator_was_killed(*, is_power_cut: bool) -> None:
    _, client = formed()
    members = []
    for node in coordinators(client):
        answer = client.ask(node, groups.join(GROUP), groups.JOIN, JoinGroupResponse)
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        members.append(answer.member_id)
    generation, assigned = joined(client, members)
    assert assigned == [f"part of {member}" for member in members]
    assert commit(client, 7, generation=generation, member=members[0], version=8) is NONE

    restart(client, coordinators(client)[0], is_power_cut=is_power_cut)

    assert committed(client) == [[7]]
    for member, node in zip(members, coordinators(client), strict=True):
        beat = client.ask(node, HeartbeatRequest(GROUP, generation, member), 4, HeartbeatResponse)
        assert isinstance(beat, HeartbeatResponse)
        assert beat.error_code == NONE
    assert commit(client, 8, generation=generation, member=members[1], version=8) is NONE
    assert (
        commit(client, 9, generation=generation - 1, member=members[1], version=8)
        is ErrorCode.ILLEGAL_GENERATION
    )
    again, assigned = joined(client, members)
    assert again == generation + 1
    assert assigned == [f"part of {member}" for member in members]
    assert committed(client) == [[8]]


class Member:
    """A member of a group of the new protocol, which holds the partitions that it is assigned."""

    def __init__(self, number: int) -> None:
        self.id = f"modern{number}".ljust(22, "A")
        self.epoch = 0
        self.partitions: list[TopicPartitions] = []

    def beat(self, client: Client, node: SimulatedNode) -> ErrorCode:
        """Heartbeat whole, as a member does that has no answer to the last one."""
        request = ConsumerGroupHeartbeatRequest(
            GROUP,
            self.id,
            self.epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            server_assignor="uniform",
            topic_partitions=self.partitions,
        )
        answer = client.ask(node, request, 1, ConsumerGroupHeartbeatResponse)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        if answer.error_code == NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.partitions = answer.assignment.topic_partitions
        return ErrorCode(answer.error_code)

    @property
    def held(self) -> list[int]:
        return [index for topic in self.partitions for index in topic.partitions]


def beat_all(client: Client, members: list[Member]) -> None:
    """Each member heartbeats to the coordinator that its broker names."""
    for member, node in zip(members, coordinators(client), strict=True):
        assert member.beat(client, node) is NONE


def settled(members: list[Member]) -> bool:
    """Whether all members are at one epoch, and the partitions are spread over them, each held once."""
    held = sorted(index for member in members for index in member.held)
    return (
        len({member.epoch for member in members}) == 1
        and {len(member.held) for member in members} == {_PARTITIONS // len(members)}
        and held == list(range(_PARTITIONS))
    )


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_group_of_the_new_protocol_keeps_its_assignment_where_its_coordinator_was_killed(
    *, is_power_cut: bool
) -> None:
    cluster, client = formed()
    members = [Member(number) for number in range(3)]
    for _ in range(10):
        beat_all(client, members)
        cluster.run(500)
    assert settled(members)
    before = [(member.epoch, member.held) for member in members]
    assert commit(client, 7, generation=members[0].epoch, member=members[0].id, version=9) is NONE

    restart(client, coordinators(client)[0], is_power_cut=is_power_cut)

    for _ in range(3):
        beat_all(client, members)
    assert [(member.epoch, member.held) for member in members] == before
    assert committed(client) == [[7]]
    assert commit(client, 8, generation=members[1].epoch, member=members[1].id, version=9) is NONE
    assert committed(client) == [[8]]


def test_a_node_that_leads_no_partition_of_the_internal_topics_lists_nothing() -> None:
    cluster, client = formed(offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1")
    for key_type, api, listing, listed in (
        (0, 5, ListGroupsRequest, ListGroupsResponse),
        (1, 2, ListTransactionsRequest, ListTransactionsResponse),
    ):
        coordinator = client.coordinator(GROUP, key_type, cluster.nodes[NodeId(1)])
        for node in cluster.others(coordinator):
            assert client.ask(node, listing(), api, listed) == listed()
