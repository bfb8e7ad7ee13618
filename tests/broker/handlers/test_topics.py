"""Topics come, grow and go; metadata tells of them as the asked listener sees them."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from sparklog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.produce import ProduceResponse
from tests.broker.world import PRODUCE_BY_NAME, World, produce, produced


def ask_metadata(world: World, client: object, *names: str) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names] if names else None)
    answer = world.ask(client, request, 12, MetadataResponse)
    assert isinstance(answer, MetadataResponse)
    return answer


def test_metadata_names_this_broker_and_every_topic_with_its_leader(world: World) -> None:
    client = world.node.connect()
    assert world.create(client, "b", partitions=3) == 0
    assert world.create(client, "a") == 0
    answer = ask_metadata(world, client)
    assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [
        (1, "127.0.0.1", 9092)
    ]
    assert answer.controller_id == 1
    topics = {topic.name: topic for topic in answer.topics}
    assert sorted(topics) == ["a", "b"]
    assert [
        (one.partition_index, one.leader_id, one.replica_nodes, one.isr_nodes)
        for one in topics["b"].partitions
    ] == [(index, 1, [1], [1]) for index in range(3)]


def test_a_topic_that_a_client_names_is_unknown_at_first_and_created_for_the_next_time(world: World) -> None:
    client = world.node.connect()
    assert ask_metadata(world, client, "wanted").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = ask_metadata(world, client, "wanted").topics[0]
    assert (answer.error_code, len(answer.partitions)) == (0, 1)


def test_a_topic_that_a_request_names_twice_is_answered_once(world: World) -> None:
    client = world.node.connect()
    assert world.create(client, "t") == 0
    topic_id = ask_metadata(world, client, "t").topics[0].topic_id
    answer = ask_metadata(world, client, "t", "no such", "t", "no such")
    assert [topic.name for topic in answer.topics] == ["t", "no such"]
    by_id = [MetadataRequestTopic(topic_id=topic_id, name=None) for _ in range(3)]
    answer = world.ask(client, MetadataRequest(topics=by_id), 12, MetadataResponse)
    assert [topic.name for topic in answer.topics] == ["t"]


def test_no_topic_is_created_for_an_illegal_name_or_against_the_clients_wish(world: World) -> None:
    client = world.node.connect()
    assert ask_metadata(world, client, "no/good").topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    request = MetadataRequest(topics=[MetadataRequestTopic(name="unwanted")], allow_auto_topic_creation=False)
    for _ in range(2):
        answer = world.ask(client, request, 12, MetadataResponse)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [1, 12])
def test_no_topic_is_created_where_the_broker_is_told_to_create_none(version: int) -> None:
    world = World(1, **{"auto.create.topics.enable": "false"})
    world.node.start()
    world.settle()
    client = world.node.connect()
    for _ in range(2):
        answer = world.ask(
            client, MetadataRequest(topics=[MetadataRequestTopic(name="unwanted")]), version, MetadataResponse
        )
        assert isinstance(answer, MetadataResponse)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_coordinators_topic_that_a_client_names_is_created_as_the_coordinator_needs_it(
    world: World,
) -> None:
    client = world.node.connect()
    for name in ("__consumer_offsets", "__transaction_state"):
        told = ask_metadata(world, client, name).topics[0]
        assert (told.error_code, told.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)
        told = ask_metadata(world, client, name).topics[0]
        assert (told.error_code, told.is_internal, len(told.partitions)) == (ErrorCode.NONE, True, 50)


def test_an_internal_topic_that_this_broker_has_no_coordinator_for_is_not_created(world: World) -> None:
    client = world.node.connect()
    for _ in range(2):
        assert (
            ask_metadata(world, client, "__share_group_state").topics[0].error_code
            == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )


def test_a_topic_is_created_once(world: World) -> None:
    client = world.node.connect()
    assert world.create(client, "t") == 0
    assert world.create(client, "t") == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_deleted_topic_is_gone_and_its_name_starts_anew_with_another_id(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    world.ask(client, produce("t", world.batch(b"old")), PRODUCE_BY_NAME, ProduceResponse)
    old_id = ask_metadata(world, client, "t").topics[0].topic_id
    answer = world.ask(
        client, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5, DeleteTopicsResponse
    )
    assert answer.responses[0].error_code == 0
    code, _ = produced(world.ask(client, produce("t", world.batch(b"x")), PRODUCE_BY_NAME, ProduceResponse))
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.create(client, "t") == 0
    assert ask_metadata(world, client, "t").topics[0].topic_id != old_id
    assert produced(
        world.ask(client, produce("t", world.batch(b"new")), PRODUCE_BY_NAME, ProduceResponse)
    ) == (0, 0)


def test_partitions_are_added_and_written_to_and_never_taken_away(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=1000
    )
    assert world.ask(client, grow, 3, CreatePartitionsResponse).results[0].error_code == 0
    assert produced(
        world.ask(client, produce("t", world.batch(b"x"), partition=2), PRODUCE_BY_NAME, ProduceResponse)
    ) == (0, 0)
    shrink = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=1, assignments=None)], timeout_ms=1000
    )
    assert (
        world.ask(client, shrink, 3, CreatePartitionsResponse).results[0].error_code
        == ErrorCode.INVALID_PARTITIONS
    )


def test_the_cluster_describes_itself(world: World) -> None:
    answer = world.ask(
        world.node.connect(), DescribeClusterRequest(endpoint_type=1), 1, DescribeClusterResponse
    )
    assert [(broker.broker_id, broker.host, broker.port) for broker in answer.brokers] == [
        (1, "127.0.0.1", 9092)
    ]
    assert len(answer.cluster_id) == 22


def test_the_settings_of_a_topic_tell_value_and_source(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name="t")], include_synonyms=True
    )
    answer = world.ask(client, request, 4, DescribeConfigsResponse)
    rows = {row.name: row for row in answer.results[0].configs}
    assert rows["retention.ms"].value == "604800000"
    assert rows["retention.ms"].config_source == 5
    missing = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name="missing")]
    )
    assert (
        world.ask(client, missing, 4, DescribeConfigsResponse).results[0].error_code
        == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


def test_a_request_for_configs_cannot_be_made_to_answer_the_same_thing_over_and_over(world: World) -> None:
    client = world.node.connect()
    twice = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=4, resource_name="1")] * 2
    )
    first, second = world.ask(client, twice, 4, DescribeConfigsResponse).results
    assert (first.error_code, second.error_code, second.configs) == (0, ErrorCode.INVALID_REQUEST, [])
    assert first.configs


def test_the_empty_broker_name_asks_only_for_what_was_set_for_the_whole_cluster(world: World) -> None:
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=4, resource_name="")])
    (answer,) = world.ask(world.node.connect(), request, 4, DescribeConfigsResponse).results
    assert answer.error_code == 0
    # It is set with the feature of eligible leader replicas.
    assert [(row.name, row.value) for row in answer.configs] == [("min.insync.replicas", "1")]


def test_configs_of_an_illegal_topic_name_are_refused_as_such(world: World) -> None:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name="no/good")]
    )
    (answer,) = world.ask(world.node.connect(), request, 4, DescribeConfigsResponse).results
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_metadata_takes_no_topic_ids_before_version_12(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    topic_id = ask_metadata(world, client, "t").topics[0].topic_id
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=topic_id)])
    assert [topic.error_code for topic in world.ask(client, request, 11, MetadataResponse).topics] == [
        ErrorCode.INVALID_REQUEST
    ]
    assert [topic.error_code for topic in world.ask(client, request, 12, MetadataResponse).topics] == [0]
