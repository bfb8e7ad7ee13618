"""OffsetForLeaderEpoch: where an epoch ended here, so that others notice where their records are not ours
(KIP-101, KIP-320).
"""

from sparklog.errors import ErrorCode
from sparklog.model import Instant, LeaderEpoch
from sparklog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from sparklog_server.broker.authorization import Operation, Resource
from sparklog_server.broker.context import Context
from sparklog_server.broker.session import Call
from sparklog_server.replica.unavailable import PartitionUnavailable


def offset_for_leader_epoch(
    context: Context, call: Call, request: OffsetForLeaderEpochRequest, now: Instant
) -> OffsetForLeaderEpochResponse:
    """Answer every partition; -1 and -1 where nothing is known of the epoch."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_answer(context, call, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(context: Context, call: Call, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    part = EpochEndOffset(partition=asked.partition)
    if not context.allow(call, Operation.DESCRIBE, Resource.TOPIC, topic):
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
