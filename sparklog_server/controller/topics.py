"""Topics: names, creation, deletion and new partitions; every rule with Kafka's error code and message.

Each function decides on an image and returns records with a reply; nothing is changed here. A refused topic
of a request gets its error and does not affect the others.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID, LeaderEpoch, NodeId, Uuid
from sparklog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from sparklog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.entries import TopicImage
from sparklog_server.metadata.image import TOPIC_RESOURCE, MetadataImage
from sparklog_server.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from sparklog_server.outcome import RECORDS_PER_REQUEST_MAX, TOO_MANY_RECORDS, Outcome, Refused

from .configs import CreatedConfigs, checked, overrides_of
from .elections import Reassignment
from .placement import DirectoryChooser, Entropy, Placer
from .topic_names import check_name

PARTITIONS_PER_REQUEST_MAX = 10_000
TOO_MANY_PARTITIONS = (
    f"Excessively large number of partitions per request: at most {PARTITIONS_PER_REQUEST_MAX} in one."
)
METADATA_TOPIC = "__cluster_metadata"
UNKNOWN_TOPIC = "This server does not host this topic-partition."
UNKNOWN_ID = "This server does not host this topic ID."
T = TypeVar("T")

Colliding = Callable[[str], str | None]
"""The existing topic with the same metric name (`.` and `_` collide); None if there is none."""


class DecisionInputs(msgspec.Struct, frozen=True):
    """The inputs of a decision besides the image."""

    settings: BrokerSettings
    entropy: Entropy
    colliding: Colliding
    configs_of: CreatedConfigs


def create_topics(
    image: MetadataImage, request: CreateTopicsRequest, inputs: DecisionInputs
) -> Outcome[Message, CreateTopicsResponse]:
    """Create the valid topics of a request; all their records are one atomic batch."""
    repeated = _repeated(topic.name for topic in request.topics)
    topics = [topic for topic in request.topics if topic.name not in repeated]
    records: list[Message] = []
    results: list[CreatableTopicResult] = []
    room = inputs.settings.sparklog_partitions_max - image.partition_count
    asked = sum(partitions_asked(topic, inputs.settings.num_partitions) for topic in topics)
    too_many = max(len(topics), asked) > PARTITIONS_PER_REQUEST_MAX
    for topic in topics:
        try:
            if too_many:
                raise Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
            made, result = _create_topic(image, topic, inputs, room)
        except Refused as refusal:
            results.append(_refused_topic(topic.name, refusal.code, refusal.message))
        else:
            records += made
            room -= result.num_partitions
            results.append(result)
    if len(records) > RECORDS_PER_REQUEST_MAX:
        message = TOO_MANY_RECORDS
        results = [_refused_topic(topic.name, ErrorCode.POLICY_VIOLATION, message) for topic in topics]
        records = []
    results += [_refused_topic(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in repeated]
    return Outcome(() if request.validate_only else tuple(records), CreateTopicsResponse(topics=results))


def delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest
) -> Outcome[Message, DeleteTopicsResponse]:
    """Delete topics by name or by id; one that is named twice, in either way, is not deleted."""
    results: list[DeletableTopicResult] = []

    def refuse(name: str | None, topic_id: bytes, code: ErrorCode, message: str) -> None:
        results.append(
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
        )

    names: list[str] = list(request.topic_names)
    ids: list[Uuid] = []
    for state in request.topics:
        if state.name is None and state.topic_id == ZERO_UUID:
            refuse(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        elif state.name is None:
            ids.append(Uuid(state.topic_id))
        elif state.topic_id == ZERO_UUID:
            names.append(state.name)
        else:
            refuse(
                state.name,
                state.topic_id,
                ErrorCode.INVALID_REQUEST,
                "You may not specify both topic name and topic id.",
            )
    repeated_names, repeated_ids = _repeated(names), _repeated(ids)
    for name in repeated_names:
        refuse(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    for topic_id in repeated_ids:
        refuse(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    found: dict[Uuid, TopicImage] = {}
    for topic_id in ids:
        if topic_id in repeated_ids:
            continue
        if topic_id in image.topics_by_id:
            found[topic_id] = image.topics_by_id[topic_id]
        else:
            refuse(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID)
    for name in names:
        topic = image.topics_by_name.get(name)
        if name in repeated_names:
            continue
        if topic is None:
            refuse(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC)
        elif topic.topic_id in found or topic.topic_id in repeated_ids:
            found.pop(topic.topic_id, None)
            message = "The provided topic name maps to an ID that was already supplied."
            refuse(name, topic.topic_id, ErrorCode.INVALID_REQUEST, message)
        else:
            found[topic.topic_id] = topic
    results += [DeletableTopicResult(name=topic.name, topic_id=topic.topic_id) for topic in found.values()]
    records: tuple[Message, ...] = tuple(RemoveTopicRecord(topic_id=topic_id) for topic_id in found)
    return Outcome(records, DeleteTopicsResponse(responses=results))


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, inputs: DecisionInputs
) -> Outcome[Message, CreatePartitionsResponse]:
    """Add partitions to topics; existing partitions stay as they are."""
    repeated = _repeated(topic.name for topic in request.topics)
    results = [
        CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
        )
        for name in repeated
    ]
    records: list[Message] = []
    for topic in request.topics:
        if topic.name in repeated:
            continue
        try:
            made = _grow_topic(
                image,
                topic,
                inputs,
                room=inputs.settings.sparklog_partitions_max - image.partition_count - len(records),
            )
            if len(records) + len(made) > RECORDS_PER_REQUEST_MAX:
                raise Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS)
        except Refused as refusal:
            results.append(
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=refusal.code, error_message=refusal.message
                )
            )
        else:
            records += made
            results.append(CreatePartitionsTopicResult(name=topic.name))
    return Outcome(() if request.validate_only else tuple(records), CreatePartitionsResponse(results=results))


def random_uuid(entropy: Entropy) -> Uuid:
    """A random version 4 UUID that Kafka would also generate: its text never begins with a dash, which tools
    take for an option.
    """
    while True:
        raw = bytearray(entropy(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if not urlsafe_b64encode(raw).startswith(b"-"):
            return Uuid(bytes(raw))


def _create_topic(
    image: MetadataImage, topic: CreatableTopic, inputs: DecisionInputs, room: int
) -> tuple[list[Message], CreatableTopicResult]:
    """The records and the result of one new topic; raises Refused."""
    if topic.name == METADATA_TOPIC:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        )
    if topic.name in image.topics_by_name:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    check_name(topic.name)
    if (other := inputs.colliding(topic.name)) is not None:
        message = f"Topic '{topic.name}' collides with existing topic: {other}"
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    overrides = overrides_of(topic.configs)
    checked(inputs.settings.topics, overrides)
    replicas = _assigned(image, topic) if topic.assignments else _placed(image, topic, inputs)
    if len(replicas) > room:
        raise Refused(
            ErrorCode.POLICY_VIOLATION,
            f"The cluster may have {inputs.settings.sparklog_partitions_max} partitions "
            f"(sparklog.partitions.max) and has room for "
            f"{max(room, 0)}.",
        )
    topic_id = random_uuid(inputs.entropy)
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    # Kafka's order: the topic, then its settings, then its partitions.
    records += [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value)
        for name, value in overrides.items()
    ]
    records += _partition_records(image, topic_id, 0, replicas)
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=inputs.configs_of.of(overrides),
    )
    return records, result


def _assigned(image: MetadataImage, topic: CreatableTopic) -> list[tuple[NodeId, ...]]:
    """The replicas by partition of a manual assignment; raises Refused."""
    if topic.replication_factor != -1:
        message = "A manual partition assignment was specified, but replication factor was not set to -1."
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    if topic.num_partitions != -1:
        message = "A manual partition assignment was specified, but numPartitions was not set to -1."
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    by_index: dict[int, CreatableReplicaAssignment] = {}
    replica_count: int | None = None
    for assignment in topic.assignments:
        if assignment.partition_index in by_index:
            message = (
                f"Found multiple manual partition assignments for partition {assignment.partition_index}"
            )
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        _check_assignment(image, assignment.broker_ids, assignment.partition_index, replica_count)
        replica_count = len(assignment.broker_ids)
        by_index[assignment.partition_index] = assignment
    if sorted(by_index) != list(range(len(by_index))):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [tuple(NodeId(node) for node in by_index[index].broker_ids) for index in range(len(by_index))]


def _placed(image: MetadataImage, topic: CreatableTopic, inputs: DecisionInputs) -> list[tuple[NodeId, ...]]:
    """The replicas by partition as the controller places them; raises Refused."""
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    count = inputs.settings.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    replica_count = (
        inputs.settings.default_replication_factor
        if topic.replication_factor == -1
        else topic.replication_factor
    )
    placer = Placer(image, inputs.entropy)
    return [placer.place(replica_count) for _ in range(count)]


def _grow_topic(
    image: MetadataImage, topic: CreatePartitionsTopic, inputs: DecisionInputs, *, room: int
) -> list[Message]:
    """The records of the partitions to be added to one topic; raises Refused."""
    existing = image.topics_by_name.get(topic.name)
    if existing is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC)
    count = len(existing.partitions)
    if topic.count == count:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if topic.count < count:
        message = f"The topic {topic.name} currently has {count} partition(s); {topic.count} would not be an increase."  # noqa: E501
        raise Refused(ErrorCode.INVALID_PARTITIONS, message)
    additional = topic.count - count
    if topic.assignments is not None and len(topic.assignments) != additional:
        message = f"Attempted to add {additional} additional partition(s), but only {len(topic.assignments)} assignment(s) were specified."  # noqa: E501
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    # Checked before any placement: a request may ask for 2 000 000 000 partitions.
    if additional > min(room, PARTITIONS_PER_REQUEST_MAX):
        raise Refused(
            ErrorCode.POLICY_VIOLATION,
            f"The cluster may have {inputs.settings.sparklog_partitions_max} partitions "
            f"(sparklog.partitions.max), and one request may add "
            f"{PARTITIONS_PER_REQUEST_MAX}; {additional} more were requested.",
        )
    replica_count = len(Reassignment.of(existing.partitions[0]).target)
    if topic.assignments is None:
        placer = Placer(image, inputs.entropy)
        replicas = [placer.place(replica_count) for _ in range(additional)]
    else:
        for offset, assignment in enumerate(topic.assignments):
            _check_assignment(image, assignment.broker_ids, count + offset, replica_count)
        replicas = [tuple(NodeId(node) for node in assignment.broker_ids) for assignment in topic.assignments]
    return _partition_records(image, existing.topic_id, count, replicas)


def _check_assignment(
    image: MetadataImage, nodes: Sequence[int], index: int, replica_count: int | None
) -> None:
    """Refuse a manual assignment of a new partition that no broker could lead, or that `check_nodes`
    refuses.
    """
    check_nodes(image, nodes, replica_count)
    if not any(image.brokers[NodeId(node)].is_active for node in nodes):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or "
            f"in controlled shutdown.",
        )


def check_nodes(
    image: MetadataImage, nodes: Sequence[int], replica_count: int | None, known: Sequence[int] = ()
) -> None:
    """Refuse a manual assignment that names unknown, repeated or unusable brokers, or another number of
    replicas than before. A broker that gets no new replicas may keep those that are `known`.
    """
    reason = None
    if not nodes:
        reason = "The manual partition assignment includes an empty replica list."
    ordered = sorted(nodes)
    for position, node in enumerate(ordered):
        broker = image.brokers.get(NodeId(node))
        if broker is None:
            reason = (
                f"The manual partition assignment includes broker {node}, but no such broker is registered."
            )
        elif (state := image.broker_states.get(NodeId(node))) is not None and node not in known:
            reason = f"The manual partition assignment includes broker {node}, which is {state.value}: it gets no new replicas."  # noqa: E501
        elif broker.directories and not set(broker.directories) - set(broker.cordoned_directories):
            reason = f"The manual partition assignment includes broker {node}, but all its log directories are cordoned."  # noqa: E501
        elif position and ordered[position - 1] == node:
            reason = f"The manual partition assignment includes the broker {node} more than once."
        if reason is not None:
            break
    if reason is None and replica_count is not None and len(nodes) != replica_count:
        reason = (
            f"The manual partition assignment includes a partition with {len(nodes)} replica(s), but this is "
            f"not consistent with previous "
            f"partitions, which have {replica_count} replica(s)."
        )
    if reason is not None:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _partition_records(
    image: MetadataImage, topic_id: Uuid, first: int, replicas: Sequence[tuple[NodeId, ...]]
) -> list[Message]:
    """The records of new partitions from index `first` on: the first active replica leads, and all active
    ones are in the ISR. Placement and the checks of manual assignments leave at least one.
    """
    chooser = DirectoryChooser(image)
    records: list[Message] = []
    for index, nodes in enumerate(replicas, start=first):
        isr = [node for node in nodes if image.brokers[node].is_active]
        records.append(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=list(nodes),
                isr=list(isr),
                leader=isr[0],
                leader_epoch=LeaderEpoch(0),
                partition_epoch=0,
                directories=[chooser.choose(node) for node in nodes],
            )
        )
    return records


def partitions_asked(topic: CreatableTopic, default_count: int) -> int:
    """The number of partitions that a new topic is to have; 0 for a negative one, which is refused."""
    if topic.assignments:
        return len(topic.assignments)
    return default_count if topic.num_partitions == -1 else max(topic.num_partitions, 0)


def _refused_topic(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


def _repeated(names: Iterable[T]) -> Mapping[T, None]:
    """The values that occur more than once, in the order of their second occurrence."""
    seen: dict[T, None] = {}
    repeated: dict[T, None] = {}
    for name in names:
        if name in seen:
            repeated[name] = None
        seen[name] = None
    return repeated
