"""AlterPartitionReassignments: partitions get other replicas while clients write (KIP-455, KIP-860).

    asked ──► replicas = target + those to remove, adding, removing ──► every added one in sync ──► target
                 │                                                                  ▲
                 └── cancelled: the original replicas ── asked again: another target ┘

The replicas of a partition always contain the original ones until the new ones hold every committed record;
`PartitionChangeBuilder` completes a reassignment with the change that makes that so
(PartitionReassignmentReplicas).
"""

from collections.abc import Sequence

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, Uuid
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.metadata.entries import PartitionImage, TopicImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord
from sparklog_server.outcome import RECORDS_PER_REQUEST_MAX, TOO_MANY_RECORDS, Outcome, Refused

from .elections import (
    Election,
    ElectionRules,
    PartitionChangeBuilder,
    Reassignment,
    SettingsFor,
    acceptable,
    rules_for,
)
from .placement import DirectoryChooser
from .topics import check_nodes


def alter_partition_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, settings_for: SettingsFor
) -> Outcome[Message, AlterPartitionReassignmentsResponse]:
    """Reassign partitions, each by itself; null instead of replicas cancels a reassignment.

    Of a partition that the request names twice, only the first is decided: the image does not contain it yet.
    """
    records: list[Message] = []
    chooser = DirectoryChooser(image)
    decided: set[tuple[str, int]] = set()
    responses: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        results = []
        for asked in topic.partitions:
            result = ReassignablePartitionResponse(partition_index=asked.partition_index, error_message=None)
            try:
                if (topic.name, asked.partition_index) in decided:
                    raise Refused(
                        ErrorCode.INVALID_REQUEST,
                        f"The request names partition {topic.name}:{asked.partition_index} more than once.",
                    )
                decided.add((topic.name, asked.partition_index))
                change = _decided(
                    image,
                    topic.name,
                    asked,
                    settings_for,
                    chooser,
                    is_factor_free=request.allow_replication_factor_change,
                )
                if change is not None:
                    records.append(change)
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
            results.append(result)
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=results))
    reply = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )
    if len(records) > RECORDS_PER_REQUEST_MAX:
        reply.error_code, reply.error_message = ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS
        reply.responses = []
        records = []
    return Outcome(tuple(records), reply)


def _decided(
    image: MetadataImage,
    name: str,
    asked: ReassignablePartition,
    settings_for: SettingsFor,
    chooser: DirectoryChooser,
    *,
    is_factor_free: bool,
) -> PartitionChangeRecord | None:
    """The record for one partition; None if it already is as requested. Raises Refused."""
    topic = image.topics_by_name.get(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    index = asked.partition_index
    if not 0 <= index < len(topic.partitions):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    rules = rules_for(image, topic, settings_for(name))
    if asked.replicas is None:
        return cancelled(image, topic, index, rules)
    partition = topic.partitions[index]
    check_nodes(image, asked.replicas, None, known=partition.replicas)
    target = tuple(NodeId(node) for node in asked.replicas)
    known = Reassignment.of(partition)
    if not is_factor_free and len(target) != len(known.target):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(known.target)} to {len(target)}",
        )
    return reassigned(image, topic, index, target, rules, chooser)


def reassigned(
    image: MetadataImage,
    topic: TopicImage,
    index: int,
    target: Sequence[NodeId],
    rules: ElectionRules,
    chooser: DirectoryChooser,
) -> PartitionChangeRecord | None:
    """The record that begins the reassignment of a partition to the replicas `target`, which are registered,
    in place of one in progress; it also completes one that has nothing to wait for. None if nothing changes.
    """
    partition = topic.partitions[index]
    begun = Reassignment.of(partition).to(target, partition.isr, chooser.choose)
    return _changed(image, topic.topic_id, index, partition, begun, rules)


def cancelled(
    image: MetadataImage, topic: TopicImage, index: int, rules: ElectionRules
) -> PartitionChangeRecord | None:
    """The record that gives a partition its original replicas again. Raises Refused: without a reassignment,
    and if no original replica could lead.

    Kafka takes the first original replica into the ISR where an unclean election is allowed, even one that is
    dead, and leaves the partition without a leader otherwise (KAFKA-14424).
    """
    partition = topic.partitions[index]
    known = Reassignment.of(partition)
    if not known.is_in_progress:
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    originals = known.originals
    isr = tuple([node for node in partition.isr if node in originals])
    change = _changed(image, topic.topic_id, index, partition, Reassignment(originals), rules, isr=isr)
    leader = partition.leader if change is None or change.leader == NO_LEADER_CHANGE else change.leader
    can_return = bool(isr) or not set(originals).isdisjoint(partition.eligible_leader_replicas)
    if leader == NO_LEADER and (partition.leader != NO_LEADER or not can_return):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}:{index}: of its original replicas "
            f"{list(originals)} none is alive and in sync. Wait until one is, or let the reassignment end.",
        )
    return change


def _changed(
    image: MetadataImage,
    topic_id: Uuid,
    index: int,
    partition: PartitionImage,
    reassignment: Reassignment,
    rules: ElectionRules,
    *,
    isr: tuple[NodeId, ...] | None = None,
) -> PartitionChangeRecord | None:
    # A reassignment is no reason for an unclean election of a partition that has a leader in sync.
    is_clean = partition.leader != NO_LEADER and (isr is None or bool(isr))
    return PartitionChangeBuilder(partition, topic_id, index, rules, acceptable(image, partition)).build(
        election=Election.ONLINE if is_clean else None,
        isr=isr,
        reassignment=reassignment,
    )
