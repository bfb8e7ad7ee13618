"""Requests about groups in one line, and their replies as text."""

from sparklog.errors import ErrorCode, code_of
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from sparklog.wire.schema import Message
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.world import World

FIND, COMMIT, FETCH, JOIN, SYNC = 4, 8, 8, 5, 3
SETTINGS = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}


def find(*groups: str) -> FindCoordinatorRequest:
    """Find the coordinators of these groups."""
    return FindCoordinatorRequest(key_type=0, coordinator_keys=list(groups))


def found(answer: Message) -> list[ErrorCode]:
    """The reply for each group's coordinator."""
    assert isinstance(answer, FindCoordinatorResponse)
    return [code_of(one.error_code) for one in answer.coordinators]


def commit(
    group: str, *offsets: int, topic: str = "t", generation: int = -1, member_id: str = "", metadata: str = ""
) -> OffsetCommitRequest:
    """Commit for partitions 0, 1, …"""
    parts = [
        OffsetCommitRequestPartition(index, offset, committed_metadata=metadata)
        for index, offset in enumerate(offsets)
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=parts)],
    )


def committed(answer: Message) -> ErrorCode:
    """The reply for the first partition."""
    assert isinstance(answer, OffsetCommitResponse)
    return code_of(answer.topics[0].partitions[0].error_code)


def fetch_offsets(*groups: str, topic: str = "t", partitions: int = 1) -> OffsetFetchRequest:
    """Fetch the offsets of these groups."""
    asked = [OffsetFetchRequestTopics(name=topic, partition_indexes=list(range(partitions)))]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=asked) for group in groups])


def offsets(answer: Message) -> list[list[int]]:
    """Of each group, the offsets by partition. A refusal is not expected."""
    assert isinstance(answer, OffsetFetchResponse)
    assert [code_of(group.error_code) for group in answer.groups] == [ErrorCode.NONE] * len(answer.groups)
    return [[part.committed_offset for part in group.topics[0].partitions] for group in answer.groups]


def join(
    group: str, member_id: str = "", *, metadata: bytes = b"subscribed", rebalance_timeout_ms: int = 60_000
) -> JoinGroupRequest:
    """Join as a consumer that knows one protocol."""
    protocols = [JoinGroupRequestProtocol("range", metadata)]
    return JoinGroupRequest(group, 10_000, rebalance_timeout_ms, member_id, None, "consumer", protocols)


def join_alone(world: World, client: SimulatedConnection, group: str) -> tuple[str, int]:
    """Join until one is the group's only member, and its leader; (member id, generation)."""
    asked = world.ask(client, join(group), JOIN, JoinGroupResponse)
    assert isinstance(asked, JoinGroupResponse)
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED, code_of(asked.error_code)
    joined = world.ask(client, join(group, asked.member_id), JOIN, JoinGroupResponse)
    assert isinstance(joined, JoinGroupResponse)
    assert joined.error_code == 0, code_of(joined.error_code)
    shares = [SyncGroupRequestAssignment(joined.member_id, b"everything")]
    synced = world.ask(
        client,
        SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=shares),
        SYNC,
        SyncGroupResponse,
    )
    assert isinstance(synced, SyncGroupResponse)
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"everything")
    return joined.member_id, joined.generation_id


def delete_topic(world: World, client: SimulatedConnection, topic: str) -> None:
    """Delete a topic."""
    answer = world.ask(
        client, DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 4, DeleteTopicsResponse
    )
    assert isinstance(answer, DeleteTopicsResponse)
    assert answer.responses[0].error_code == 0


def started(seed: int = 1, **more: str) -> World:
    """A node with the topic `t` of three partitions, and few partitions for groups."""
    world = World(seed, **(SETTINGS | more))
    world.node.start()
    world.settle()
    world.create(world.node.connect(), "t", partitions=3)
    return world


def begin(client: SimulatedConnection, *requests: tuple[Message, int, type[Message]]) -> None:
    """Send these at once and wait for nothing."""
    for request, version, reply in requests:
        client.send(request, version, reply)


def ask_commit(
    world: World, client: SimulatedConnection, group: str, *committed_offsets: int, topic: str = "t"
) -> ErrorCode:
    """Commit, and return the reply."""
    return committed(
        world.ask(client, commit(group, *committed_offsets, topic=topic), COMMIT, OffsetCommitResponse)
    )


def ask_offsets(
    world: World, client: SimulatedConnection, group: str, *, topic: str = "t", partitions: int = 1
) -> list[int]:
    """A group's committed offsets."""
    return offsets(
        world.ask(
            client, fetch_offsets(group, topic=topic, partitions=partitions), FETCH, OffsetFetchResponse
        )
    )[0]


def ask_coordinator(world: World, client: SimulatedConnection, group: str) -> ErrorCode:
    """Look for a coordinator, and return the reply."""
    return found(world.ask(client, find(group), FIND, FindCoordinatorResponse))[0]
