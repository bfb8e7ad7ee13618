"""AssignReplicasToDirs: the assignments that the controller records, and those it refuses."""

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, Offset, Uuid
from sparklog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from sparklog_server.config.topic_settings import TopicSettings
from sparklog_server.controller.directory_assignment import assign_replicas_to_dirs
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import BrokerRegistrationChangeRecord
from tests.controller.test_elect_leaders import DIRECTORIES, TOPIC_ID, after, image_of

ELSEWHERE = Uuid(b"e" * 16)


def assign(
    image: MetadataImage, node: int, directory: Uuid, topic_id: Uuid = TOPIC_ID, index: int = 0
) -> tuple[int, PartitionImage, int]:
    """(error code, the resulting partition, the number of records)."""
    asked = AssignReplicasToDirsRequestTopicData(topic_id, [AssignReplicasToDirsRequestPartitionData(index)])
    request = AssignReplicasToDirsRequest(
        node, node, [AssignReplicasToDirsRequestDirectoryData(directory, [asked])]
    )
    outcome = assign_replicas_to_dirs(image, request, lambda _: TopicSettings())
    (told,) = outcome.reply.directories
    assert told.id == directory
    return told.topics[0].partitions[0].error_code, after(image, outcome.records), len(outcome.records)


def test_only_the_directory_of_the_named_replica_changes() -> None:
    second = BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, log_dirs=[DIRECTORIES[2], ELSEWHERE])
    image = image_of([1, 2], [1, 2], 1)
    image, _ = image.apply([(Offset(image.offset + 1), second)])
    before = image.topics_by_name["t"].partitions[0]
    code, partition, _ = assign(image, 2, DIRECTORIES[2])
    assert (code, partition) == (0, before)
    code, partition, records = assign(image, 2, ELSEWHERE)
    assert (code, records) == (0, 1)
    assert partition.directories == (DIRECTORIES[1], ELSEWHERE)
    assert (partition.leader, partition.leader_epoch, partition.isr) == (
        before.leader,
        before.leader_epoch,
        before.isr,
    )


def test_a_follower_whose_replica_goes_to_an_offline_directory_leaves_the_isr() -> None:
    code, partition, records = assign(image_of([1, 2], [1, 2], 1), 2, ELSEWHERE)
    assert (code, partition.leader, partition.leader_epoch, partition.isr, records) == (0, 1, 5, (1,), 1)


def test_a_leader_whose_replica_goes_to_an_offline_directory_resigns() -> None:
    code, partition, _ = assign(image_of([1, 2], [1, 2], 1), 1, ELSEWHERE)
    assert (code, partition.leader, partition.isr) == (0, NodeId(2), (2,))
    code, partition, _ = assign(image_of([1], [1], 1), 1, ELSEWHERE)
    assert (code, partition.leader, partition.isr) == (0, -1, (1,))


def test_a_partition_without_a_replica_on_the_broker_is_refused() -> None:
    image = image_of([1, 2], [1, 2], 1)
    before = image.topics_by_name["t"].partitions[0]
    assert assign(image, 3, ELSEWHERE) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, before, 0)
    assert assign(image, 1, ELSEWHERE, index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, before, 0)
    assert assign(image, 1, ELSEWHERE, index=-1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, before, 0)
    assert assign(image, 1, ELSEWHERE, topic_id=Uuid(b"u" * 16)) == (ErrorCode.UNKNOWN_TOPIC_ID, before, 0)
