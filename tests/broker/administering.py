"""An administrator's connection, which asks and gets typed answers."""

from typing import TypeVar

from sparklog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from sparklog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.world import World

M = TypeVar("M", bound=Message)
NODE = 1
UNKNOWN_NODE = 7
HOSTILE_NAMES = ("n" * 250, "..", ".", "", "a\0b", "a/b", "ü")


class Admin:
    """A connection that asks and gets typed answers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connection: SimulatedConnection = world.node.connect()

    def ask(self, request: Message, version: int, reply: type[M]) -> M:
        answer = self.world.ask(self.connection, request, version, reply)
        assert isinstance(answer, reply)
        return answer

    def create(self, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatableTopicResult]:
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
        return self.ask(request, 7, CreateTopicsResponse).topics

    def partitions_of(self, topic: str) -> list[int]:
        """The numbers of its partitions; empty if there is none of that name."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        return [part.partition_index for part in self.ask(request, 12, MetadataResponse).topics[0].partitions]

    def grow(
        self,
        topic: str,
        count: int,
        assignments: list[list[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> tuple[int, str | None]:
        given = None if assignments is None else [CreatePartitionsAssignment(one) for one in assignments]
        asked = [CreatePartitionsTopic(name=topic, count=count, assignments=given)]
        request = CreatePartitionsRequest(topics=asked, timeout_ms=1000, validate_only=validate_only)
        result = self.ask(request, 3, CreatePartitionsResponse).results[0]
        return result.error_code, result.error_message

    def describe(
        self, *names: str, limit: int = 2000, cursor: Cursor | None = None
    ) -> DescribeTopicPartitionsResponse:
        topics = [TopicRequest(name) for name in names]
        request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
        return self.ask(request, 0, DescribeTopicPartitionsResponse)


def assigned(name: str, *nodes: list[int], partitions: int = -1, factor: int = -1) -> CreatableTopic:
    """A topic with its replicas written out."""
    assignments = [CreatableReplicaAssignment(index, one) for index, one in enumerate(nodes)]
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=factor, assignments=assignments
    )


def sized(name: str, partitions: int = 1, factor: int = 1) -> CreatableTopic:
    """A topic by its numbers."""
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)


def features_set(
    admin: Admin, name: str, level: int, kind: int = 1, *, validate_only: bool = False, version: int = 2
) -> tuple[int, str | None]:
    update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only)
    told = admin.ask(request, version, UpdateFeaturesResponse)
    return told.error_code, told.error_message
