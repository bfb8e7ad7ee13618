"""Administration: topics, their settings and offsets; blocking calls with typed results."""

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar, Unpack

from sparklog.client.failures import UnknownTopic
from sparklog.client.settings import AdminOptions, ClientSettings, IsolationLevel
from sparklog.client.transport import Network, now_us
from sparklog.errors import BrokerError, ConnectionFailed, ErrorCode, RequestTimeout, code_of, error_for
from sparklog.model import LeaderEpoch, Micros, NodeId, Offset, TopicPartition, Uuid
from sparklog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sparklog.wire.schema import Message

if TYPE_CHECKING:
    from sparklog.wire.messages.create_topics import CreatableTopic
    from sparklog.wire.messages.describe_configs import DescribeConfigsResource, DescribeConfigsResourceResult

R = TypeVar("R", bound=Message)

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3

CONFIG_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
CONFIG_TYPES: Final = {1: "BOOLEAN", 2: "STRING", 3: "INT", 4: "SHORT", 5: "LONG", 6: "DOUBLE", 7: "LIST", 8: "CLASS", 9: "PASSWORD"}

_TOPIC: Final = 2
_BROKER: Final = 4


class Node(NamedTuple):
    """A broker as clients reach it."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None = None


class Cluster(NamedTuple):
    cluster_id: str
    controller_id: NodeId
    nodes: tuple[Node, ...]


class Partition(NamedTuple):
    """One partition; leader -1 for none."""

    partition: int
    leader: NodeId
    leader_epoch: LeaderEpoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    offline_replicas: tuple[NodeId, ...]


class Topic(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[Partition, ...]


class NewTopic(NamedTuple):
    """A topic to create: -1 is the broker's default; `assignment` (replicas per partition) replaces both numbers."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    assignment: tuple[tuple[int, ...], ...] = ()


class CreatedTopic(NamedTuple):
    """-1 and ZERO_UUID where the broker's version does not tell."""

    name: str
    topic_id: Uuid
    partition_count: int
    replication_factor: int


class ConfigEntry(NamedTuple):
    """`source` is Kafka's name: DYNAMIC_TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG …; a sensitive value is None."""

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool
    type: str
    documentation: str | None


class ListedOffset(NamedTuple):
    """Timestamp in ms, -1 for the landmarks; offset -1 if no record is that young."""

    offset: Offset
    timestamp_ms: int
    leader_epoch: LeaderEpoch


class DeletedRecords(NamedTuple):
    """Where the log of a partition begins now, or why its records were not deleted (offset -1 then)."""

    low_watermark: Offset
    error: BrokerError | None = None


class Admin:
    """A blocking administration client. One call at a time; not safe for use from several threads.

    Every call answers or raises within `default_api_timeout_ms`: BrokerError (with `.code`), ConnectionFailed, RequestTimeout or
    UnknownTopic. What only asks is tried again while an error is retriable; what changes something is sent once, unless no broker took it.
    """

    def __init__(self, **settings: Unpack[AdminOptions]) -> None:
        self._open(ClientSettings.for_role("admin", settings))

    @classmethod
    def from_settings(cls, settings: ClientSettings) -> Self:
        """An Admin from settings already parsed."""
        admin = cls.__new__(cls)
        admin._open(settings)
        return admin

    def _open(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._network = Network(settings)

    def create_topics(self, topics: Mapping[str, int] | Iterable[NewTopic], *, validate_only: bool = False) -> dict[str, CreatedTopic]:
        """Create topics and wait until their partitions have leaders. `{"name": partition_count}` is the short form."""
        from sparklog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

        wanted = [NewTopic(name, count) for name, count in topics.items()] if isinstance(topics, Mapping) else list(topics)
        deadline = self._deadline()
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in wanted], timeout_ms=self._settings.request_timeout_ms, validate_only=validate_only
        )
        reply = self._change(request, CreateTopicsResponse, deadline)
        for result in reply.topics:
            _raise_for(result.error_code, result.error_message or f"topic {result.name!r}")
        if not validate_only:
            self._wait_for_leaders([topic.name for topic in wanted], deadline)
        return {
            result.name: CreatedTopic(result.name, Uuid(result.topic_id), result.num_partitions, result.replication_factor)
            for result in reply.topics
        }

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics by name; returns when the cluster has taken note, files go later."""
        from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

        listed = list(names)
        # Both fields, since which one is sent depends on the version that the broker speaks; v6 is `essential` about its own.
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in listed], topic_names=listed, timeout_ms=self._settings.request_timeout_ms
        )
        try:
            reply = self._change(request, DeleteTopicsResponse, self._deadline())
        except ValueError:
            request = DeleteTopicsRequest(topic_names=listed, timeout_ms=self._settings.request_timeout_ms)
            reply = self._change(request, DeleteTopicsResponse, self._deadline())
        for result in reply.responses:
            _raise_for(result.error_code, result.error_message or f"topic {result.name!r}")

    def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Raise the number of partitions of topics to the counts given."""
        from sparklog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic

        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()],
            timeout_ms=self._settings.request_timeout_ms,
            validate_only=validate_only,
        )
        deadline = self._deadline()
        for result in self._change(request, CreatePartitionsResponse, deadline).results:
            _raise_for(result.error_code, result.error_message or f"topic {result.name!r}")
        while not validate_only:
            topics = self._topics(list(counts), deadline)
            if all(len(topics[name].partitions) >= count for name, count in counts.items() if name in topics):
                return
            self._pause(deadline)

    def list_topics(self, *, include_internal: bool = False) -> dict[str, Topic]:
        """Every topic, by name and in the order of names."""
        topics = self._topics(None, self._deadline())
        return {name: topics[name] for name in sorted(topics) if include_internal or not topics[name].is_internal}

    def describe_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """The topics named; raises UnknownTopic; never creates one."""
        listed = list(names)
        topics = self._topics(listed, self._deadline()) if listed else {}
        for name in listed:
            if name not in topics:
                raise UnknownTopic(f"there is no topic {name!r}")
        return {name: topics[name] for name in listed}

    def describe_configs(self, topics: Iterable[str] = (), *, brokers: Iterable[int] = ()) -> dict[str, dict[str, ConfigEntry]]:
        """Settings by topic name or by node id as text. Each broker tells its own; any broker tells those of topics."""
        from sparklog.wire.messages.describe_configs import DescribeConfigsResource

        described: dict[str, dict[str, ConfigEntry]] = {}
        resources = [DescribeConfigsResource(_TOPIC, name, None) for name in topics]
        if resources:
            described |= self._configs(resources, None)
        for broker in brokers:
            self._know_brokers()
            described |= self._configs([DescribeConfigsResource(_BROKER, str(broker), None)], NodeId(broker))
        return described

    def list_offsets(
        self, positions: Mapping[TopicPartition, int], *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets by EARLIEST, LATEST, MAX_TIMESTAMP, or the first at or after a timestamp in ms."""
        from sparklog.client.offsets import list_offsets

        found = list_offsets(self._network, positions, isolation_level=isolation_level, deadline=self._deadline())
        return {partition: ListedOffset(Offset(o), timestamp, LeaderEpoch(epoch)) for partition, (o, timestamp, epoch) in found.items()}

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, DeletedRecords]:
        """Delete the records below each offset, -1 for all that are committed. What one partition refuses is told in its result."""
        from sparklog.client.offsets import delete_records

        told = delete_records(self._network, before, deadline=self._deadline())
        return {
            partition: DeletedRecords(Offset(-1), result) if isinstance(result, BrokerError) else DeletedRecords(Offset(result))
            for partition, result in ((partition, told[partition]) for partition in before)
        }

    def describe_cluster(self) -> Cluster:
        """Id, controller and brokers, fenced ones left out."""
        from sparklog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

        reply = self._ask(DescribeClusterRequest(), DescribeClusterResponse, self._deadline(), lambda reply: [reply.error_code])
        nodes = sorted(Node(NodeId(b.broker_id), b.host, b.port, b.rack) for b in reply.brokers)
        return Cluster(reply.cluster_id, NodeId(reply.controller_id), tuple(nodes))

    def close(self) -> None:
        """Drop the connections."""
        self._network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -- inside ---------------------------------------------------------------------------------------------------------------------------

    def _deadline(self) -> Micros:
        return Micros(now_us() + self._settings.default_api_timeout_ms * 1000)

    def _pause(self, deadline: Micros) -> None:
        """Wait for the retry back-off; raises RequestTimeout when the time is up."""
        if now_us() >= deadline:
            raise RequestTimeout("the cluster did not come to the state asked for in time")
        self._network.rest(self._settings.retry_backoff_ms * 1000)

    def _ask(
        self, request: Message, reply: type[R], deadline: Micros, codes: Callable[[R], Iterable[int]], node: NodeId | None = None
    ) -> R:
        """Ask until the answer holds no retriable error."""
        while True:
            try:
                answer = self._network.call(request, reply, node=node, deadline=deadline)
            except (ConnectionFailed, RequestTimeout):
                if now_us() >= deadline:
                    raise
            else:
                errors = [code_of(code) for code in codes(answer) if code]
                if not errors or not all(code.is_retriable for code in errors) or now_us() >= deadline:
                    for code in errors:
                        raise BrokerError(code)
                    return answer
            self._pause(deadline)

    def _change(self, request: Message, reply: type[R], deadline: Micros) -> R:
        return self._network.call(request, reply, deadline=deadline)

    def _topics(self, names: list[str] | None, deadline: Micros) -> dict[str, Topic]:
        """Topics by name (None: all); those that are not there are left out."""
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        reply = self._ask(
            request,
            MetadataResponse,
            deadline,
            lambda reply: [reply.error_code, *(topic.error_code for topic in reply.topics if topic.error_code != absent)],
        )
        return {topic.name: _topic(topic.name, topic) for topic in reply.topics if topic.name is not None and not topic.error_code}

    def _wait_for_leaders(self, names: list[str], deadline: Micros) -> None:
        while True:
            topics = self._topics(names, deadline)
            if len(topics) == len(names) and all(p.leader >= 0 for topic in topics.values() for p in topic.partitions):
                return
            self._pause(deadline)

    def _know_brokers(self) -> None:
        """Learn where the brokers are, beyond the bootstrap addresses."""
        deadline = self._deadline()
        while not self._network.cluster.answers:
            if now_us() >= deadline:
                raise RequestTimeout("no broker told of the others in time")
            self._network.poll(deadline)

    def _configs(self, resources: "list[DescribeConfigsResource]", node: NodeId | None) -> dict[str, dict[str, ConfigEntry]]:
        from sparklog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

        reply = self._ask(
            DescribeConfigsRequest(resources=resources, include_documentation=True),
            DescribeConfigsResponse,
            self._deadline(),
            lambda reply: [result.error_code for result in reply.results],
            node,
        )
        return {result.resource_name: {entry.name: _entry(entry) for entry in result.configs} for result in reply.results}


def _creatable(topic: NewTopic) -> "CreatableTopic":
    from sparklog.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig

    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignment else topic.partition_count,
        replication_factor=-1 if topic.assignment else topic.replication_factor,
        assignments=[CreatableReplicaAssignment(index, list(replicas)) for index, replicas in enumerate(topic.assignment)],
        configs=[CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
    )


def _topic(name: str, topic: MetadataResponseTopic) -> Topic:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return Topic(name, Uuid(topic.topic_id), topic.is_internal, tuple(_partition(partition) for partition in partitions))


def _partition(told: MetadataResponsePartition) -> Partition:
    return Partition(
        told.partition_index,
        NodeId(told.leader_id),
        LeaderEpoch(told.leader_epoch),
        tuple(map(NodeId, told.replica_nodes)),
        tuple(map(NodeId, told.isr_nodes)),
        tuple(map(NodeId, told.offline_replicas)),
    )


def _entry(told: "DescribeConfigsResourceResult") -> ConfigEntry:
    return ConfigEntry(
        told.name,
        None if told.is_sensitive else told.value,
        CONFIG_SOURCES.get(told.config_source, "UNKNOWN"),
        told.read_only,
        told.is_sensitive,
        CONFIG_TYPES.get(told.config_type, "UNKNOWN"),
        told.documentation or None,
    )


def _raise_for(code: int, message: str) -> None:
    error = error_for(code, message)
    if error is not None:
        raise error
