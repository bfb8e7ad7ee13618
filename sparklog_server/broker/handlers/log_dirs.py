"""DescribeLogDirs and AlterReplicaLogDirs: replicas by log directory, free space, and moves between
directories (KIP-113, KIP-827).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import Instant, TopicPartition
from sparklog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from sparklog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.session import AnsweredInSteps, Call, Parked
from sparklog_server.disk.door import StorageError
from sparklog_server.log.directory.log_dir import LogDir
from sparklog_server.log.directory.names import future_name
from sparklog_server.replica.directory import ReplicaDirectory

if TYPE_CHECKING:
    from sparklog_server.broker.ports import PartitionPort


_NAME_MAX = 255
_Room = tuple[int, int] | None
"""(total, usable) bytes of a file system; None if it cannot be queried."""


def describe_log_dirs(
    context: "PartitionPort", call: Call, request: DescribeLogDirsRequest, now: Instant
) -> DescribeLogDirsResponse | Parked:
    """Sizes of the requested logs, by directory; null topics mean all. A job queries the file systems."""
    if not context.allow(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted: dict[str, frozenset[int]] | None = None
    if request.topics is not None:
        wanted = {}
        for topic in request.topics:
            wanted[topic.topic] = wanted.get(topic.topic, frozenset()) | frozenset(topic.partitions)
    online = {one.log_dir.path: one for one in context.partitions.directories if one.error is None}
    copies = _copies(context)
    results = {path: _described(path, online.get(path), wanted, copies) for path in context.settings.log_dirs}

    def room_of_all() -> dict[str, _Room]:
        return {path: _room(directory.log_dir) for path, directory in online.items()}

    def finished(result: dict[str, _Room] | StorageError, then: Instant) -> Message:
        assert not isinstance(result, StorageError), "each directory tells its own"
        for path, room in result.items():
            if room is None:
                results[path] = _described(path, None, wanted, {})
            else:
                results[path].total_bytes, results[path].usable_bytes = room
        return DescribeLogDirsResponse(results=list(results.values()))

    context.jobs.run(call, room_of_all, finished)
    return Parked.MUTING


def _room(log_dir: LogDir) -> _Room:
    try:
        return log_dir.room()
    except StorageError:
        return None


_Copies = Mapping[ReplicaDirectory, list[tuple[TopicPartition, int, int]]]
"""(partition, bytes, offset lag) of the copies of moves, by target directory."""


def _copies(context: "PartitionPort") -> _Copies:
    copies: dict[ReplicaDirectory, list[tuple[TopicPartition, int, int]]] = {}
    for directory, partition, size, lag in context.partitions.moving.copies():
        copies.setdefault(directory, []).append((partition.topic_partition, size, lag))
    return copies


def _described(
    path: str,
    directory: ReplicaDirectory | None,
    wanted: Mapping[str, frozenset[int]] | None,
    copies: _Copies,
) -> DescribeLogDirsResult:
    """One directory; None is an unusable one."""
    result = DescribeLogDirsResult(log_dir=path)
    if directory is None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    topics: dict[str, DescribeLogDirsTopic] = {}
    result.is_cordoned = directory.is_cordoned
    for partition in directory.partitions:
        topic, index = partition.topic_partition
        if wanted is not None and index not in wanted.get(topic, ()):
            continue
        lag = (
            0 if partition.leader is None else max(partition.high_watermark - partition.log.log_end_offset, 0)
        )
        told = topics.setdefault(topic, DescribeLogDirsTopic(name=topic))
        told.partitions.append(
            DescribeLogDirsPartition(partition_index=index, partition_size=partition.log.size, offset_lag=lag)
        )
    for (topic, index), size, lag in copies.get(directory, ()):
        if wanted is None or index in wanted.get(topic, ()):
            told = topics.setdefault(topic, DescribeLogDirsTopic(name=topic))
            told.partitions.append(DescribeLogDirsPartition(index, size, lag, True))
    result.topics = list(topics.values())
    return result


# -- moves


def alter_replica_log_dirs(
    context: "PartitionPort", call: Call, request: AlterReplicaLogDirsRequest, now: Instant
) -> AnsweredInSteps:
    """Move replicas to other directories of this broker, each by itself; the last entry for a replica counts.
    Jobs copy the files.
    """
    asked: dict[TopicPartition, str] = {}
    for one in request.dirs:
        for topic in one.topics:
            for index in topic.partitions:
                asked[TopicPartition(topic.name, index)] = one.path
                now = yield
            now = yield
    is_allowed = context.allow(call, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for topic_partition, path in asked.items():
        code = (
            _move(context, topic_partition, path, now)
            if is_allowed
            else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
        told = results.setdefault(
            topic_partition.topic, AlterReplicaLogDirTopicResult(topic_partition.topic, [])
        )
        told.partitions.append(AlterReplicaLogDirPartitionResult(topic_partition.partition, code))
        now = yield
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _move(context: "PartitionPort", topic_partition: TopicPartition, path: str, now: Instant) -> ErrorCode:
    partitions = context.partitions
    if len(future_name(topic_partition, bytes(16))) > _NAME_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path not in context.settings.log_dirs:
        return ErrorCode.LOG_DIR_NOT_FOUND
    target = next(
        (one for one in partitions.directories if one.log_dir.path == path and one.error is None), None
    )
    if target is None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    partition = partitions.find(*topic_partition)
    if partition is None:
        if partitions.absence(*topic_partition) is ErrorCode.KAFKA_STORAGE_ERROR:
            return _begun_elsewhere(context, topic_partition, target, now)
        if topic_partition.partition >= 0 and not target.is_cordoned:
            partitions.moving.wish(topic_partition, target)
        return ErrorCode.REPLICA_NOT_AVAILABLE
    home = next(one for one in partitions.directories if partition in one.partitions)
    if home.error is not None:
        return _begun_elsewhere(context, topic_partition, target, now)
    if partition.error is ErrorCode.KAFKA_STORAGE_ERROR:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if target is not home and len(partitions.directories) < len(context.settings.log_dirs):
        return ErrorCode.KAFKA_STORAGE_ERROR  # the unreadable directory may hold a copy of it
    if target is not home and target.is_cordoned:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    partitions.moving.move(partition, home, target, now)
    return ErrorCode.NONE


def _begun_elsewhere(
    context: "PartitionPort", topic_partition: TopicPartition, target: ReplicaDirectory, now: Instant
) -> ErrorCode:
    """The replica on an offline directory begins empty in another one, and fetches what the leader has. Kafka
    4.3 refuses this: there it stays offline until its directory is back, or is not in log.dirs any more.
    """
    if target.is_cordoned:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    is_begun = context.partitions.begin_elsewhere(topic_partition, target, now)
    return ErrorCode.NONE if is_begun else ErrorCode.KAFKA_STORAGE_ERROR
