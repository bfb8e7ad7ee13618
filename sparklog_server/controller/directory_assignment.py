"""AssignReplicasToDirs: a broker reports the log directories of its replicas (KIP-858)."""

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, Uuid
from sparklog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from sparklog.wire.schema import Message
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import NO_LEADER_CHANGE, PartitionChangeRecord
from sparklog_server.outcome import RECORDS_PER_REQUEST_MAX, Outcome

from .elections import PartitionChangeBuilder, SettingsFor, acceptable, has_replica_online, rules_for


def assign_replicas_to_dirs(
    image: MetadataImage, request: AssignReplicasToDirsRequest, settings_for: SettingsFor
) -> Outcome[Message, AssignReplicasToDirsResponse]:
    """Record the directories of a broker's replicas, each by itself; the caller has checked the broker epoch.

    If the new directory is offline the broker leaves the ISR and stops leading the partition. If the old one
    was offline, the broker may lead again a partition whose ISR it has not left, and is not eligible for
    another.
    """
    node = NodeId(request.broker_id)
    assigned: dict[tuple[Uuid, int], Message] = {}  # by this request; the last one counts
    results: list[AssignReplicasToDirsResponseDirectoryData] = []
    for directory in request.directories:
        topics: list[AssignReplicasToDirsResponseTopicData] = []
        for topic in directory.topics:
            partitions: list[AssignReplicasToDirsResponsePartitionData] = []
            for asked in topic.partitions:
                code = _refusal(image, node, Uuid(topic.topic_id), asked.partition_index)
                if code is ErrorCode.NONE:
                    key = Uuid(topic.topic_id), asked.partition_index
                    assigned[key] = _assigned(image, node, *key, Uuid(directory.id), settings_for)
                partitions.append(AssignReplicasToDirsResponsePartitionData(asked.partition_index, code))
            topics.append(AssignReplicasToDirsResponseTopicData(topic.topic_id, partitions))
        results.append(AssignReplicasToDirsResponseDirectoryData(directory.id, topics))
    if len(assigned) > RECORDS_PER_REQUEST_MAX:
        return Outcome((), AssignReplicasToDirsResponse(error_code=ErrorCode.POLICY_VIOLATION))
    records = tuple(record for key, record in assigned.items() if _changes(image, node, *key, record))
    return Outcome(records, AssignReplicasToDirsResponse(directories=results), is_atomic=False)


def _refusal(image: MetadataImage, node: NodeId, topic_id: Uuid, index: int) -> ErrorCode:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if node in topic.partitions[index].replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _assigned(
    image: MetadataImage, node: NodeId, topic_id: Uuid, index: int, directory: Uuid, settings_for: SettingsFor
) -> PartitionChangeRecord:
    topic = image.topics_by_id[topic_id]
    before = topic.partitions[index]
    directories = tuple(
        directory if replica == node else lies
        for replica, lies in zip(before.replicas, before.directories, strict=True)
    )
    partition: PartitionImage = msgspec.structs.replace(before, directories=directories)
    broker = image.brokers[node]
    isr = before.isr
    if not has_replica_online(partition, broker):
        isr = tuple(replica for replica in isr if replica != node)
    change = PartitionChangeBuilder(
        partition,
        topic_id,
        index,
        rules_for(image, topic, settings_for(topic.name)),
        acceptable(image, partition),
    ).build(
        isr=isr,
        # The log in place of one on an offline directory begins empty.
        lost=None if has_replica_online(before, broker) else node,
    ) or PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    change.directories = list(directories)
    return change


def _changes(image: MetadataImage, node: NodeId, topic_id: Uuid, index: int, record: Message) -> bool:
    """Whether a record changes anything; an unchanged assignment is not written again."""
    assert isinstance(record, PartitionChangeRecord)
    partition = image.topics_by_id[topic_id].partitions[index]
    return (
        tuple(record.directories or ()) != partition.directories
        or record.isr is not None
        or record.leader != NO_LEADER_CHANGE
        or record.eligible_leader_replicas is not None
    )
