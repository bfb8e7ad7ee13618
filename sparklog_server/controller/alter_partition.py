"""AlterPartition: the leader of a partition shrinks or expands its ISR (KIP-497, KIP-841, KIP-903).

Each partition is decided by itself, in the order of the request; a refused one does not affect the others.
"""

from collections.abc import Sequence

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, Uuid
from sparklog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)
from sparklog.wire.schema import Message
from sparklog_server.metadata.entries import PartitionImage, merged
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import PartitionChangeRecord
from sparklog_server.outcome import Outcome

from .elections import (
    ElectionRules,
    PartitionChangeBuilder,
    SettingsFor,
    acceptable,
    has_replica_online,
    rules_for,
)

_RECOVERED, _RECOVERING = 0, 1
_ANY_EPOCH = -1
"""The broker epoch of a replica is not checked: the sender does not know it."""


def alter_partition(
    image: MetadataImage, request: AlterPartitionRequest, settings_for: SettingsFor
) -> Outcome[Message, AlterPartitionResponse]:
    """Write the requested ISR of each partition; the caller has checked the broker epoch of the sender."""
    leader = NodeId(request.broker_id)
    records: list[Message] = []
    topics = []
    for asked in request.topics:
        changes, results = _topic_altered(image, leader, asked, settings_for)
        records += changes
        topics.append(AlterPartitionResponseTopicData(asked.topic_id, results))
    return Outcome(tuple(records), AlterPartitionResponse(topics=topics), is_atomic=False)


def _topic_altered(
    image: MetadataImage, leader: NodeId, asked: AlterPartitionRequestTopicData, settings_for: SettingsFor
) -> tuple[list[Message], list[AlterPartitionResponsePartitionData]]:
    topic_id = Uuid(asked.topic_id)
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return [], [_refused(one, ErrorCode.UNKNOWN_TOPIC_ID) for one in asked.partitions]
    rules = rules_for(image, topic, settings_for(topic.name))
    records: list[Message] = []
    results = []
    # A partition that the request names twice is decided on its state after the first change.
    partitions = dict(enumerate(topic.partitions))
    for one in asked.partitions:
        index = one.partition_index
        if index not in partitions:
            results.append(_refused(one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            continue
        partition = partitions[index]
        if (code := _refusal(image, leader, partition, one)) is not ErrorCode.NONE:
            results.append(_refused(one, code))
            continue
        change = _change_to(image, partition, topic_id, one, rules)
        if change is not None:
            records.append(change)
            partition = partitions[index] = merged(partition, change)
        if partition.leader != leader:
            # The record is written all the same: the sender learns of its successor from the metadata.
            results.append(_refused(one, ErrorCode.NEW_LEADER_ELECTED))
        else:
            results.append(_reply_of(index, partition))
    return records, results


def _refusal(
    image: MetadataImage,
    leader: NodeId,
    partition: PartitionImage,
    asked: AlterPartitionRequestPartitionData,
) -> ErrorCode:
    """Why the request for one partition is refused; NONE if it is valid.

    NOT_CONTROLLER: the sender has read newer metadata, so another node leads the quorum.
    """
    if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if asked.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if asked.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    states = _states_in(asked)
    if not _is_valid(partition, [state.broker_id for state in states], asked.leader_recovery_state):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, partition, state) for state in states):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_valid(partition: PartitionImage, isr: Sequence[int], recovery_state: int) -> bool:
    """Whether the ISR is made of replicas, the leader among them, and the recovery state is a possible one:
    a leader that recovers is alone in sync, and one that has recovered never recovers again.
    """
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        return False
    if recovery_state == _RECOVERING:
        return partition.is_recovering and len(isr) == 1
    return recovery_state == _RECOVERED


def _is_eligible(image: MetadataImage, partition: PartitionImage, state: BrokerState) -> bool:
    """Whether the replica may be in sync: its broker is active, the leader means the present incarnation of
    that, and its directory is online.
    """
    broker = image.brokers.get(NodeId(state.broker_id))
    return (
        broker is not None
        and broker.is_active
        and state.broker_epoch in (_ANY_EPOCH, broker.epoch)
        and has_replica_online(partition, broker)
    )


def _states_in(asked: AlterPartitionRequestPartitionData) -> list[BrokerState]:
    """The requested ISR; version 2 of the request has no broker epochs."""
    return asked.new_isr_with_epochs or [BrokerState(node) for node in asked.new_isr]


def _change_to(
    image: MetadataImage,
    partition: PartitionImage,
    topic_id: Uuid,
    asked: AlterPartitionRequestPartitionData,
    rules: ElectionRules,
) -> PartitionChangeRecord | None:
    """The record of a valid request; None if the partition already is as requested."""
    change = PartitionChangeBuilder(
        partition, topic_id, asked.partition_index, rules, acceptable(image, partition)
    ).build(isr=tuple(NodeId(state.broker_id) for state in _states_in(asked)))
    if partition.is_recovering and asked.leader_recovery_state == _RECOVERED:
        change = change or PartitionChangeRecord(partition_id=asked.partition_index, topic_id=topic_id)
        change.leader_recovery_state = _RECOVERED
    return change


def _reply_of(index: int, partition: PartitionImage) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=_RECOVERING if partition.is_recovering else _RECOVERED,
        partition_epoch=partition.partition_epoch,
    )


def _refused(
    asked: AlterPartitionRequestPartitionData, code: ErrorCode
) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(asked.partition_index, code)
