"""OffsetForLeaderEpoch: the end offset of an epoch in this log, by which clients and followers detect
divergence (KIP-101, KIP-320).
"""

from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import Instant, LeaderEpoch
from sparklog.wire.messages.fetch import EpochEndOffset as DivergingEpoch
from sparklog.wire.messages.fetch import FetchPartition
from sparklog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.session import AnsweredInSteps, Call
from sparklog_server.log.partition_log import OffsetOutOfRange
from sparklog_server.replica.leader import PartitionUnavailable
from sparklog_server.replica.partition import Partition

if TYPE_CHECKING:
    from sparklog_server.broker.ports import PartitionPort


def offset_for_leader_epoch(
    context: "PartitionPort", call: Call, request: OffsetForLeaderEpochRequest, now: Instant
) -> AnsweredInSteps:
    """Answer every partition; -1 and -1 if the epoch is unknown. Brokers need no access to the topics."""
    is_broker = context.may(call, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in request.topics:
        is_allowed = is_broker or context.allow(call, Operation.DESCRIBE, Resource.TOPIC, topic.topic)
        result = OffsetForLeaderTopicResult(topic=topic.topic, partitions=[])
        response.topics.append(result)
        for asked in topic.partitions:
            result.partitions.append(_answer(context, topic.topic, asked, is_allowed=is_allowed))
            yield
        yield
    return response


def _answer(
    context: "PartitionPort", topic: str, asked: OffsetForLeaderPartition, *, is_allowed: bool
) -> EpochEndOffset:
    part = EpochEndOffset(partition=asked.partition)
    if not is_allowed:
        part.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return part
    partition = context.partitions.find(topic, asked.partition)
    if partition is None:
        part.error_code = context.partitions.absence(topic, asked.partition)
        return part
    try:
        partition.leader_for(asked.current_leader_epoch)
    except PartitionUnavailable as unavailable:
        part.error_code = unavailable.code
        return part
    part.end_offset, part.leader_epoch = partition.log.end_offset_for_epoch(LeaderEpoch(asked.leader_epoch))
    return part


def divergence(partition: Partition, asked: FetchPartition) -> DivergingEpoch | None:
    """The diverging epoch and its end offset, given the last epoch of the log that fetches; None if the logs
    agree, or if the request has no epoch. Raises OffsetOutOfRange: also for an offset before the log start
    with any epoch (KAFKA-12996).
    """
    log, last_epoch = partition.log, asked.last_fetched_epoch
    if last_epoch < 0 or (
        last_epoch == log.epochs.latest and log.log_start_offset <= asked.fetch_offset <= log.log_end_offset
    ):
        return None
    end_offset, epoch = log.end_offset_for_epoch(LeaderEpoch(last_epoch))
    if end_offset < 0 or epoch < 0:
        raise OffsetOutOfRange(f"{partition.topic_partition}: unknown epoch {last_epoch}")
    if asked.fetch_offset < log.log_start_offset:
        raise OffsetOutOfRange(f"{partition.topic_partition}: {asked.fetch_offset} is before the log start")
    if epoch == last_epoch and end_offset >= asked.fetch_offset:
        return None
    return DivergingEpoch(epoch=epoch, end_offset=end_offset)
