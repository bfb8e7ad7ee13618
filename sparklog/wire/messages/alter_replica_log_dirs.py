"""Moves replicas between the log directories of one broker."""

from typing import ClassVar

from sparklog.wire.schema import Int16, Int32, Message, Str, Versions


class AlterReplicaLogDirTopic(Message):
    name: Str = ""
    partitions: list[Int32] = []


class AlterReplicaLogDir(Message):
    path: Str = ""
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirsRequest(Message):
    versions: ClassVar = Versions(1, 2, flexible=2)

    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDirPartitionResult(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AlterReplicaLogDirTopicResult(Message):
    topic_name: Str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirsResponse(Message):
    versions: ClassVar = Versions(1, 2, flexible=2)

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []
