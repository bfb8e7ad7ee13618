"""The replies for single topics and partitions of a commit, a fetch and a deletion, in old and new
versions.
"""

import pytest

from sparklog.errors import ErrorCode, code_of
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from sparklog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.groups import (
    COMMIT,
    FETCH,
    ask_commit,
    ask_coordinator,
    ask_offsets,
    commit,
    committed,
    started,
)
from tests.broker.world import World

INT64_MAX = 2**63 - 1
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def ready() -> tuple[World, SimulatedConnection]:
    world = started()
    client = world.node.connect()
    assert ask_coordinator(world, client, "g") is ErrorCode.NONE
    return world, client


def said(answer: Message) -> list[tuple[str, list[tuple[int, ErrorCode]]]]:
    assert isinstance(answer, OffsetCommitResponse | OffsetDeleteResponse)
    return [
        (topic.name, [(part.partition_index, code_of(part.error_code)) for part in topic.partitions])
        for topic in answer.topics
    ]


def test_partitions_that_a_topic_does_not_have_are_committed_by_nobody_and_the_others_are() -> None:
    world, client = ready()
    parts = [OffsetCommitRequestPartition(index, 7) for index in (3, 0, -1, 2, 2**31 - 1)]
    topics = [
        OffsetCommitRequestTopic("none", partitions=parts[:1]),
        OffsetCommitRequestTopic("t", partitions=parts),
    ]
    topics.append(OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(9, 7)]))
    answer = world.ask(client, OffsetCommitRequest("g", topics=topics), COMMIT, OffsetCommitResponse)
    unknown = [(3, UNKNOWN), (-1, UNKNOWN), (2**31 - 1, UNKNOWN)]
    assert said(answer) == [
        ("none", unknown[:1]),
        ("t", [*unknown, (0, NONE), (2, NONE)]),
        ("t", [(9, UNKNOWN)]),
    ]
    assert ask_offsets(world, client, "g", partitions=4) == [7, -1, 7, -1]


def test_partitions_that_a_topic_does_not_have_are_unknown_to_a_deletion() -> None:
    world, client = ready()
    assert ask_commit(world, client, "g", 5, 6) is ErrorCode.NONE
    parts = [OffsetDeleteRequestPartition(index) for index in (4, 1)]
    topics = [OffsetDeleteRequestTopic("none", parts[:1]), OffsetDeleteRequestTopic("t", parts)]
    answer = world.ask(client, OffsetDeleteRequest("g", topics), 0, OffsetDeleteResponse)
    assert said(answer) == [("none", [(4, UNKNOWN)]), ("t", [(4, UNKNOWN), (1, NONE)])]
    assert ask_offsets(world, client, "g", partitions=2) == [5, -1]


def test_a_commit_that_is_to_live_for_ever_does() -> None:
    world, client = ready()
    request = commit("g", 5)
    request.retention_time_ms = INT64_MAX
    assert committed(world.ask(client, request, 4, OffsetCommitResponse)) is ErrorCode.NONE
    assert ask_offsets(world, client, "g") == [5]


def test_version_1_of_a_fetch_tells_an_error_of_the_group_by_each_partition() -> None:
    world = started()
    client = world.node.connect()  # no client has looked for a coordinator: there is none yet
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0, 2])])
    answer = world.ask(client, request, 1, OffsetFetchResponse)
    assert isinstance(answer, OffsetFetchResponse)
    told = [
        (part.partition_index, part.committed_offset, code_of(part.error_code))
        for part in answer.topics[0].partitions
    ]
    assert told == [
        (0, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]


@pytest.mark.parametrize("topic_id", [bytes(16), b"\x01" * 16])
def test_a_topic_id_that_no_topic_has_is_answered_in_its_place(topic_id: bytes) -> None:
    world, client = ready()
    topics = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0, 2])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)])
    answer = world.ask(client, request, 10, OffsetFetchResponse)
    assert isinstance(answer, OffsetFetchResponse)
    told = [
        (topic.topic_id, [(part.partition_index, code_of(part.error_code)) for part in topic.partitions])
        for topic in answer.groups[0].topics
    ]
    assert told == [(topic_id, [(0, ErrorCode.UNKNOWN_TOPIC_ID), (2, ErrorCode.UNKNOWN_TOPIC_ID)])]


def test_all_of_a_group_is_told_once_however_often_a_request_asks_for_it() -> None:
    world, client = ready()
    assert ask_commit(world, client, "g", 5) is ErrorCode.NONE
    groups = [OffsetFetchRequestGroup("g", topics=None) for _ in range(3)]
    answer = world.ask(client, OffsetFetchRequest(groups=groups), FETCH, OffsetFetchResponse)
    assert isinstance(answer, OffsetFetchResponse)
    assert [(code_of(group.error_code), len(group.topics)) for group in answer.groups] == [
        (NONE, 1),
        (ErrorCode.INVALID_REQUEST, 0),
        (ErrorCode.INVALID_REQUEST, 0),
    ]
