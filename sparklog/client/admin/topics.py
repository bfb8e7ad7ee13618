"""Topics, their partitions and offsets, for administration."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from sparklog.client import offsets
from sparklog.client.admin.calls import Caller, raise_for, refusal, settle
from sparklog.client.failures import UnknownTopic
from sparklog.client.settings import IsolationLevel
from sparklog.client.transport.connection import UnsupportedByBroker
from sparklog.errors import BrokerError, ErrorCode
from sparklog.model import ZERO_UUID, LeaderEpoch, Micros, NodeId, Offset, TopicPartition, Uuid
from sparklog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from sparklog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from sparklog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from sparklog.wire.messages.describe_topic_partitions import Cursor

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3

_NAMED: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""The errors of one topic that are handled together with its name."""
_PAGE_PARTITIONS: Final = 2000
"""The most partitions that brokers return by default (max.request.partition.size.limit)."""


class Partition(Struct, frozen=True):
    """One partition; leader -1 if there is none. The eligible leader replicas (KIP-966) are empty if the
    broker does not report them.
    """

    partition: int
    leader: NodeId
    leader_epoch: LeaderEpoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    offline_replicas: tuple[NodeId, ...] = ()
    eligible_leader_replicas: tuple[NodeId, ...] = ()
    last_known_eligible: tuple[NodeId, ...] = ()

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in sync."""
        return len(self.isr) < len(self.replicas)


class Topic(Struct, frozen=True):
    """A topic and its partitions, by number."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[Partition, ...]


class NewTopic(Struct, frozen=True):
    """A topic to create: -1 is the broker's default; `assignment` (replicas per partition) replaces both
    numbers.
    """

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    assignment: Sequence[Sequence[int]] = ()


class CreatedTopic(Struct, frozen=True):
    """A created topic; -1 and ZERO_UUID if the broker's version does not return them."""

    name: str
    topic_id: Uuid
    partition_count: int
    replication_factor: int


class NewPartitions(Struct, frozen=True):
    """The new number of partitions of a topic; `assignment` has the replicas of each new one."""

    total_count: int
    assignment: Sequence[Sequence[int]] = ()


class ListedOffset(Struct, frozen=True):
    """Timestamp in ms, -1 for EARLIEST and LATEST; offset -1 if no record has that timestamp or a
    later one.
    """

    offset: Offset
    timestamp_ms: int
    leader_epoch: LeaderEpoch


def create_topics(
    caller: Caller, topics: Mapping[str, int] | Iterable[NewTopic], *, validate_only: bool
) -> dict[str, CreatedTopic]:
    """See Admin.create_topics."""
    deadline = caller.deadline()
    wanted = (
        [NewTopic(name, count) for name, count in topics.items()] if isinstance(topics, Mapping) else topics
    )
    request = CreateTopicsRequest(
        topics=[_creatable(topic) for topic in wanted],
        timeout_ms=caller.settings.request_timeout_ms,
        validate_only=validate_only,
    )
    created: dict[str, CreatedTopic] = {}
    errors: dict[str, BrokerError] = {}
    for result in caller.call(request, CreateTopicsResponse, deadline).topics:
        error = refusal(result.error_code, f"topic {result.name!r}", result.error_message)
        if error is None:
            created[result.name] = CreatedTopic(
                result.name, Uuid(result.topic_id), result.num_partitions, result.replication_factor
            )
        else:
            errors[result.name] = error
    if created and not validate_only:
        _wait_for_leaders(caller, list(created), deadline)
    return settle(created, errors)


def delete_topics(caller: Caller, names: list[str]) -> None:
    """See Admin.delete_topics."""
    timeout_ms = caller.settings.request_timeout_ms
    try:
        by_state = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names], timeout_ms=timeout_ms
        )
        reply = caller.call(by_state, DeleteTopicsResponse, caller.deadline())
    except UnsupportedByBroker:
        # Up to v5 a request has names without ids.
        reply = caller.call(
            DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms),
            DeleteTopicsResponse,
            caller.deadline(),
        )
    results = {
        str(result.name): refusal(result.error_code, f"topic {result.name!r}", result.error_message)
        for result in reply.responses
    }
    settle(*_parted(results))


def create_partitions(
    caller: Caller, wanted: Mapping[str, int | NewPartitions], *, validate_only: bool
) -> None:
    """See Admin.create_partitions."""
    counts = {name: NewPartitions(one) if isinstance(one, int) else one for name, one in wanted.items()}
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=one.total_count,
                assignments=[CreatePartitionsAssignment(list(replicas)) for replicas in one.assignment]
                or None,
            )
            for name, one in counts.items()
        ],
        timeout_ms=caller.settings.request_timeout_ms,
        validate_only=validate_only,
    )
    deadline = caller.deadline()
    results = caller.call(request, CreatePartitionsResponse, deadline).results
    done, errors = _parted(
        {
            result.name: refusal(result.error_code, f"topic {result.name!r}", result.error_message)
            for result in results
        }
    )
    while done and not validate_only:
        topics = topics_by_name(caller, list(done), deadline)
        if all(len(topics[name].partitions) >= counts[name].total_count for name in done if name in topics):
            break
        caller.pause(deadline)
    settle(done, errors)


def describe_topics(caller: Caller, names: list[str]) -> dict[str, Topic]:
    """See Admin.describe_topics."""
    deadline = caller.deadline()
    if not names:
        return {}
    try:
        topics = _pages(caller, names, deadline)
    except UnsupportedByBroker:
        topics = topics_by_name(caller, names, deadline)
    for name in names:
        if name not in topics:
            raise UnknownTopic(f"there is no topic {name!r}")
    return {name: topics[name] for name in names}


def list_topics(caller: Caller, *, include_internal: bool) -> dict[str, Topic]:
    """See Admin.list_topics."""
    topics = topics_by_name(caller, None, caller.deadline())
    return {name: topics[name] for name in sorted(topics) if include_internal or not topics[name].is_internal}


def list_offsets(
    caller: Caller, positions: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> dict[TopicPartition, ListedOffset]:
    """See Admin.list_offsets."""
    found = offsets.list_offsets(
        caller.network, positions, isolation_level=isolation_level, deadline=caller.deadline()
    )
    return {
        partition: ListedOffset(Offset(o), timestamp, LeaderEpoch(epoch))
        for partition, (o, timestamp, epoch) in found.items()
    }


def delete_records(caller: Caller, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
    """See Admin.delete_records."""
    log_starts = offsets.delete_records(caller.network, before, deadline=caller.deadline())
    errors = {
        partition: result for partition in before if isinstance(result := log_starts[partition], BrokerError)
    }
    begins = {
        partition: Offset(result)
        for partition in before
        if not isinstance(result := log_starts[partition], BrokerError)
    }
    return settle(begins, errors)


def topics_by_name(caller: Caller, names: list[str] | None, deadline: Micros) -> dict[str, Topic]:
    """Topics by name (None: all); topics that do not exist are left out. Raises BrokerError for one that the
    principal may not describe.
    """
    request = MetadataRequest(
        topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    reply = caller.ask(
        request,
        MetadataResponse,
        deadline,
        lambda reply: [
            reply.error_code,
            *(topic.error_code for topic in reply.topics if topic.error_code not in _NAMED),
        ],
    )
    topics: dict[str, Topic] = {}
    for topic in reply.topics:
        if topic.name is None or not _exists(topic.name, topic.error_code):
            continue
        partitions = [
            Partition(
                p.partition_index,
                NodeId(p.leader_id),
                LeaderEpoch(p.leader_epoch),
                *map(_nodes, (p.replica_nodes, p.isr_nodes, p.offline_replicas)),
            )
            for p in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        ]
        topics[topic.name] = Topic(topic.name, Uuid(topic.topic_id), topic.is_internal, tuple(partitions))
    return topics


def deleted_topics(caller: Caller, ids: Mapping[str, Uuid]) -> set[str]:
    """Those of the topics, with their ids, that the cluster reports as deleted; with ZERO_UUID, and for a
    broker that knows no ids, it is asked by name. A topic that exists and that the principal may not describe
    is not deleted.
    """
    deadline = caller.deadline()
    deleted: set[str] = set()
    by_id = {topic_id: name for name, topic_id in ids.items() if topic_id != ZERO_UUID}
    by_name = {name for name, topic_id in ids.items() if topic_id == ZERO_UUID}
    if by_id:
        asked = [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in by_id]
        try:
            reply = caller.call(
                MetadataRequest(topics=asked, allow_auto_topic_creation=False), MetadataResponse, deadline
            )
        except UnsupportedByBroker:
            by_name.update(ids)
        else:
            for topic in reply.topics:
                name = by_id.get(Uuid(topic.topic_id))
                if name is None:
                    continue
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                    deleted.add(name)
                elif topic.error_code == ErrorCode.INVALID_REQUEST:  # before version 12
                    by_name.add(name)
    if by_name:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in sorted(by_name)],
            allow_auto_topic_creation=False,
        )
        deleted.update(
            topic.name
            for topic in caller.call(request, MetadataResponse, deadline).topics
            if topic.name is not None and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    return deleted


def _exists(name: str, code: int) -> bool:
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise_for(code, f"topic {name!r}")
    return not code


def _pages(caller: Caller, names: list[str], deadline: Micros) -> dict[str, Topic]:
    """Topics with their eligible leader replicas, page by page: a topic may continue on the next page."""
    asked = [TopicRequest(name) for name in sorted(set(names))]
    topics: dict[str, Topic] = {}
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=asked, response_partition_limit=_PAGE_PARTITIONS, cursor=cursor
        )
        reply = caller.ask(
            request,
            DescribeTopicPartitionsResponse,
            deadline,
            lambda reply: [t.error_code for t in reply.topics if t.error_code not in _NAMED],
        )
        for topic in reply.topics:
            if topic.name is None or not _exists(topic.name, topic.error_code):
                continue
            known = topics[topic.name].partitions if topic.name in topics else ()
            page = tuple(
                Partition(
                    p.partition_index,
                    NodeId(p.leader_id),
                    LeaderEpoch(p.leader_epoch),
                    *map(
                        _nodes,
                        (
                            p.replica_nodes,
                            p.isr_nodes,
                            p.offline_replicas,
                            p.eligible_leader_replicas,
                            p.last_known_elr,
                        ),
                    ),
                )
                for p in topic.partitions
            )
            topics[topic.name] = Topic(topic.name, Uuid(topic.topic_id), topic.is_internal, known + page)
        following = reply.next_cursor
        if following is None:
            return topics
        if cursor is not None and (following.topic_name, following.partition_index) <= (
            cursor.topic_name,
            cursor.partition_index,
        ):
            raise_for(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the pages of DescribeTopicPartitions do not get past {following.topic_name!r}",
            )
        cursor = following


def _wait_for_leaders(caller: Caller, names: list[str], deadline: Micros) -> None:
    while True:
        topics = topics_by_name(caller, names, deadline)
        if len(topics) == len(names) and all(
            p.leader >= 0 for topic in topics.values() for p in topic.partitions
        ):
            return
        caller.pause(deadline)


def _creatable(topic: NewTopic) -> "CreatableTopic":
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignment else topic.partition_count,
        replication_factor=-1 if topic.assignment else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(index, list(replicas))
            for index, replicas in enumerate(topic.assignment)
        ],
        configs=[CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
    )


def _parted(results: "dict[str, BrokerError | None]") -> tuple[dict[str, None], dict[str, BrokerError]]:
    """The results of the items that succeeded, and the errors of those that failed."""
    return {item: None for item, error in results.items() if error is None}, {
        i: error for i, error in results.items() if error is not None
    }


def _nodes(ids: Iterable[int] | None) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, ids or ()))
