"""A broker reports to the controller the log directory of each replica (KIP-858)."""

from typing import ClassVar

from sparklog.wire.schema import ZERO_UUID, Int16, Int32, Int64, Message, Uuid, Versions


class AssignReplicasToDirsRequestPartitionData(Message):
    partition_index: Int32 = 0


class AssignReplicasToDirsRequestTopicData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[AssignReplicasToDirsRequestPartitionData] = []


class AssignReplicasToDirsRequestDirectoryData(Message):
    id: Uuid = ZERO_UUID
    topics: list[AssignReplicasToDirsRequestTopicData] = []


class AssignReplicasToDirsRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    directories: list[AssignReplicasToDirsRequestDirectoryData] = []


class AssignReplicasToDirsResponsePartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AssignReplicasToDirsResponseTopicData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[AssignReplicasToDirsResponsePartitionData] = []


class AssignReplicasToDirsResponseDirectoryData(Message):
    id: Uuid = ZERO_UUID
    topics: list[AssignReplicasToDirsResponseTopicData] = []


class AssignReplicasToDirsResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: list[AssignReplicasToDirsResponseDirectoryData] = []
