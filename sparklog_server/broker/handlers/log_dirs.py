"""DescribeLogDirs: what lies in the data directories of this broker, and how much room they have (KIP-113, KIP-827)."""

from collections.abc import Mapping

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.context import Context
from sparklog_server.broker.session import Call, Parked
from sparklog_server.disk.door import StorageError
from sparklog_server.log.log_dir import LogDir
from sparklog_server.replica.directory import Directory

_Room = tuple[int, int] | None
"""(total, usable) bytes of a file system; None if it cannot be asked."""


def describe_log_dirs(context: Context, call: Call, request: DescribeLogDirsRequest, now: Instant) -> DescribeLogDirsResponse | Parked:
    """Sizes of the logs that are asked for, by directory; null topics mean all. The file systems are asked beside the loop."""
    if not context.allow(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted: dict[str, frozenset[int]] | None = None
    if request.topics is not None:
        wanted = {}
        for topic in request.topics:
            wanted[topic.topic] = wanted.get(topic.topic, frozenset()) | frozenset(topic.partitions)
    online = {one.log_dir.path: one for one in context.partitions.directories if one.error is None}
    results = {path: _described(path, online.get(path), wanted) for path in context.settings.log_dirs}

    def room_of_all() -> object:
        return {path: _room(directory.log_dir) for path, directory in online.items()}

    def finished(result: object, then: Instant) -> Message:
        assert isinstance(result, Mapping)
        for path, room in result.items():
            if room is None:
                results[path] = _described(path, None, wanted)
            else:
                results[path].total_bytes, results[path].usable_bytes = room
        return DescribeLogDirsResponse(results=list(results.values()))

    context.run(call, room_of_all, finished)
    return Parked.MUTING


def _room(log_dir: LogDir) -> _Room:
    try:
        return log_dir.room()
    except StorageError:
        return None


def _described(path: str, directory: Directory | None, wanted: Mapping[str, frozenset[int]] | None) -> DescribeLogDirsResult:
    """One directory; None is one that cannot be used."""
    result = DescribeLogDirsResult(log_dir=path)
    if directory is None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in directory.partitions:
        topic, index = partition.topic_partition
        if wanted is not None and index not in wanted.get(topic, ()):
            continue
        lag = 0 if partition.leader is None else max(partition.high_watermark - partition.log.log_end_offset, 0)
        told = topics.setdefault(topic, DescribeLogDirsTopic(name=topic))
        told.partitions.append(DescribeLogDirsPartition(partition_index=index, partition_size=partition.log.size, offset_lag=lag))
    result.topics = list(topics.values())
    return result
