"""Requests about many topics: each is answered by itself, and one request can hold up the broker only so
long.
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.broker.requests import topic_count
from sparklog_server.coordinator.placement import INTERNAL_TOPICS
from tests.broker.world import World


def creation(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000)


def created(world: World, request: CreateTopicsRequest) -> list[tuple[str, int]]:
    answer = world.ask(world.node.connect(), request, 7, CreateTopicsResponse)
    assert isinstance(answer, CreateTopicsResponse)
    return sorted((topic.name, topic.error_code) for topic in answer.topics)


def may_not_touch_secrets(principal: str, operation: Operation, resource: Resource, name: str) -> bool:
    """An authorizer: no topic by name of secret, and no blank permission for all."""
    return resource is Resource.TOPIC and "secret" not in name


def test_of_the_topics_of_one_request_each_is_answered_and_the_good_ones_are_made(world: World) -> None:
    bad = ["", ".", "..", "a" * 250, "no\0good", "no/good", "no good"]
    codes = dict(created(world, creation("good", "a.b", "x" * 249, "twice", "twice", *bad)))
    assert codes == {
        "good": 0,
        "a.b": 0,
        "x" * 249: 0,
        "twice": ErrorCode.INVALID_REQUEST,
        **dict.fromkeys(bad, ErrorCode.INVALID_TOPIC_EXCEPTION),
    }
    assert created(world, creation("a_b", "good", "other")) == [
        ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("good", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("other", 0),
    ]


def test_topics_that_the_caller_may_not_touch_do_not_hold_back_the_others() -> None:
    world = World(1, allow=may_not_touch_secrets)
    world.node.start()
    world.settle()
    client = world.node.connect()
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert created(world, creation("mine", "secret", "twice", "twice")) == [
        ("mine", 0),
        ("secret", denied),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    grow = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in ("mine", "secret")]
    grown = world.ask(
        client, CreatePartitionsRequest(topics=grow, timeout_ms=1000), 3, CreatePartitionsResponse
    )
    assert isinstance(grown, CreatePartitionsResponse)
    assert [(result.name, result.error_code) for result in grown.results] == [("mine", 0), ("secret", denied)]
    deleted = world.ask(
        client,
        DeleteTopicsRequest(topic_names=["secret", "mine", "missing"], timeout_ms=1000),
        5,
        DeleteTopicsResponse,
    )
    assert isinstance(deleted, DeleteTopicsResponse)
    assert sorted((result.name, result.error_code) for result in deleted.responses) == [
        ("mine", 0),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("secret", denied),
    ]
    assert created(world, creation("secret")) == [("secret", denied)]


def test_where_deletion_is_disabled_each_topic_is_told_so_by_what_it_was_named_by() -> None:
    world = World(1, **{"delete.topic.enable": "false"})
    world.node.start()
    world.settle()
    client = world.node.connect()
    topic_id = bytes(range(16))
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="a"), DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=1000
    )
    answer = world.ask(client, request, 6, DeleteTopicsResponse)
    assert isinstance(answer, DeleteTopicsResponse)
    code = ErrorCode.TOPIC_DELETION_DISABLED
    assert [(one.name, one.topic_id, one.error_code) for one in answer.responses] == [
        ("a", bytes(16), code),
        (None, topic_id, code),
    ]


def test_a_million_partitions_in_one_request_are_refused_with_the_limit_named(world: World) -> None:
    answer = world.ask(world.node.connect(), creation("t", partitions=1_000_000), 7, CreateTopicsResponse)
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.POLICY_VIOLATION
    assert "10000" in answer.topics[0].error_message


@pytest.mark.parametrize(
    ("request_of", "old", "new", "reply"),
    [
        (
            lambda names: MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]),
            1,
            12,
            MetadataResponse,
        ),
        (lambda names: creation(*names), 4, 7, CreateTopicsResponse),
        (lambda names: DeleteTopicsRequest(topic_names=names, timeout_ms=1), 1, 5, DeleteTopicsResponse),
    ],
    ids=["metadata", "create", "delete"],
)
def test_who_names_more_topics_than_the_cluster_can_have_is_disconnected_with_the_limit_named(
    request_of: object, old: int, new: int, reply: type[Message]
) -> None:
    world = World(1, **{"sparklog.partitions.max": "300"})
    world.node.start()
    world.settle()
    for version in (old, new):
        assert callable(request_of)
        world.ask(world.node.connect(), request_of([f"t{index}" for index in range(300)]), version, reply)
        client = world.node.connect()
        client.send(request_of([f"t{index}" for index in range(301)]), version, reply)
        assert client.is_closed
        assert "names 301 topics, where sparklog.partitions.max is 300" in world.node.trace[-1]


def test_a_request_creates_only_so_many_topics_by_naming_them_and_the_next_one_the_rest(world: World) -> None:
    client = world.node.connect()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{index}") for index in range(150)])
    counts = []
    for _ in range(3):
        answer = world.ask(client, request, 12, MetadataResponse)
        assert isinstance(answer, MetadataResponse)
        counts.append(sum(topic.error_code == 0 for topic in answer.topics))
    assert counts == [0, 100, 150]


@pytest.mark.parametrize("version", [0, 7, 9, 12, 13])
@pytest.mark.parametrize("is_named", [True, False], ids=["named", "all"])
def test_metadata_of_many_topics_is_told_whole_while_others_are_answered(
    world: World, version: int, is_named: bool
) -> None:
    client, other = world.node.connect(), world.node.connect()
    created(world, creation(*(f"t{index}" for index in range(300))))
    names = [*(f"t{index}" for index in range(300)), "no/good", "missing"]
    wanted = [MetadataRequestTopic(name=name) for name in names] if is_named else [] if version == 0 else None
    before = len(client.replies)
    client.send(MetadataRequest(topics=wanted), version, MetadataResponse)
    other.send(ApiVersionsRequest(), 3, ApiVersionsResponse)
    assert len(other.replies) == 1
    assert len(client.replies) == before, "the loop was held until the whole answer was there"
    world.settle(10_000)
    answer = client.replies[-1]
    assert isinstance(answer, MetadataResponse)
    assert [broker.node_id for broker in answer.brokers] == [1]
    codes = {topic.name: topic.error_code for topic in answer.topics if topic.name not in INTERNAL_TOPICS}
    amiss = {"no/good": ErrorCode.INVALID_TOPIC_EXCEPTION, "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes == dict.fromkeys(names[:300], 0) | (amiss if is_named else {})
    assert {
        len(topic.partitions) for topic in answer.topics if topic.error_code == 0 and topic.name in names
    } == {1}
    assert world.node.running.request_bytes == 0
    assert (
        "missing"
        in {
            topic.name
            for topic in world.ask(client, MetadataRequest(topics=None), 12, MetadataResponse).topics
        }
    ) == is_named


@pytest.mark.parametrize(
    ("version", "body", "count"),
    [
        (1, b"", 0),
        (1, b"\0\0\0", 0),
        (1, b"\xff" * 4, 0),
        (1, b"\0\0\1\0", 256),
        (12, b"", 0),
        (12, b"\0", 0),
        (12, b"\1", 0),
        (12, b"\x81\x02", 256),
        (12, b"\xff" * 9, 0),
        (12, b"\xff", 0),
    ],
)
def test_the_number_of_topics_is_read_from_any_bytes(version: int, body: bytes, count: int) -> None:
    assert topic_count(3, version, memoryview(body)) == count
