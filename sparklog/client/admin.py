"""Administration: topics, their settings and offsets; blocking calls with typed results."""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, Self, Unpack

from sparklog.client.settings import AdminOptions, ClientSettings
from sparklog.model import LeaderEpoch, NodeId, Offset, TopicPartition, Uuid

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3


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


class Admin:
    """A blocking administration client. One call at a time; not safe for use from several threads.

    Every call answers or raises within `default_api_timeout_ms`: BrokerError (with `.code`), ConnectionFailed, RequestTimeout, UnknownTopic.
    """

    def __init__(self, **settings: Unpack[AdminOptions]) -> None:
        raise NotImplementedError

    @classmethod
    def from_settings(cls, settings: ClientSettings) -> Self:
        """An Admin from settings already parsed."""
        raise NotImplementedError

    def create_topics(self, topics: Mapping[str, int] | Iterable[NewTopic], *, validate_only: bool = False) -> dict[str, CreatedTopic]:
        """Create topics and wait until their partitions have leaders. `{"name": partition_count}` is the short form."""
        raise NotImplementedError

    def delete_topics(self, names: Iterable[str]) -> None: ...

    def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Raise the number of partitions of topics to the counts given."""

    def list_topics(self, *, include_internal: bool = False) -> dict[str, Topic]:
        """Every topic, by name and in the order of names."""
        raise NotImplementedError

    def describe_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """The topics named; raises UnknownTopic; never creates one."""
        raise NotImplementedError

    def describe_configs(self, topics: Iterable[str] = (), *, brokers: Iterable[int] = ()) -> dict[str, dict[str, ConfigEntry]]:
        """Settings by topic name or by node id as text."""
        raise NotImplementedError

    def list_offsets(
        self, positions: Mapping[TopicPartition, int], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets by EARLIEST, LATEST, MAX_TIMESTAMP, or the first at or after a timestamp in ms."""
        raise NotImplementedError

    def describe_cluster(self) -> Cluster:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
