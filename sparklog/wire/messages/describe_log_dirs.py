"""Replicas in the log directories of a broker, with sizes; v4 adds total and usable bytes, v5 whether a
directory is cordoned.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Bool, Int16, Int32, Int64, Message, Str, Versions, nullable, since


class DescribableLogDirTopic(Message):
    topic: Str = ""
    partitions: list[Int32] = []


class DescribeLogDirsRequest(Message):
    versions: ClassVar = Versions(1, 5, flexible=2)

    topics: Annotated[list[DescribableLogDirTopic] | None, nullable()] = []


class DescribeLogDirsPartition(Message):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Message):
    name: Str = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsResult(Message):
    error_code: Int16 = 0
    log_dir: Str = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Annotated[Int64, since(4)] = -1
    usable_bytes: Annotated[Int64, since(4)] = -1
    is_cordoned: Annotated[Bool, since(5)] = False


class DescribeLogDirsResponse(Message):
    versions: ClassVar = Versions(1, 5, flexible=2)

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3)] = 0
    results: list[DescribeLogDirsResult] = []
