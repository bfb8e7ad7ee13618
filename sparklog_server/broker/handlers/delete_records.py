"""DeleteRecords: advance log start offsets. The response leaves when the new log start offset is durable, so
deleted records do not reappear after a crash.

    request ──► the records are committed ──► the log start offset moves ──► checkpoint durable, and every
                                              replica that is alive has the new log start: response

An acks=1 Produce followed by DeleteRecords of its records succeeds, as in Kafka: the log start offset moves
once they are synced.
"""

from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Offset
from sparklog.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.broker.request_timers import OWN_DISK_WAIT_MS
from sparklog_server.broker.session import AnsweredInSteps, Call, Parked
from sparklog_server.coordinator.placement import INTERNAL_TOPICS
from sparklog_server.replica.leader import PartitionUnavailable
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.purgatory import PurgatoryFull
from sparklog_server.replica.retention import delete_records as raise_log_start
from sparklog_server.replica.retention import deletion_end

if TYPE_CHECKING:
    from sparklog_server.broker.ports import PartitionPort


_NO_LOW_WATERMARK = -1


def delete_records(
    context: "PartitionPort", call: Call, request: DeleteRecordsRequest, now: Instant
) -> AnsweredInSteps:
    """Advance every requested log start offset; errors are per partition."""
    response = DeleteRecordsResponse(topics=[])
    waiting = _ParkedDeletion(context, call, response)
    for topic in request.topics:
        parts = []
        for asked in topic.partitions:
            part = DeleteRecordsPartitionResult(
                partition_index=asked.partition_index, low_watermark=_NO_LOW_WATERMARK
            )
            parts.append(part)
            try:
                partition = _partition_of(context, call, topic.name, asked.partition_index)
                waiting.add(partition, deletion_end(partition, asked.offset), part, now)
            except PartitionUnavailable as unavailable:
                part.error_code = unavailable.code
            now = yield
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=parts))
        now = yield
    waiting.is_whole = True
    if not waiting.remaining:
        return response
    is_alone = all(share.leader is not None and share.leader.is_alone for share in waiting.remaining)
    context.timers.park(
        waiting, max(request.timeout_ms, OWN_DISK_WAIT_MS) if is_alone else request.timeout_ms, now
    )
    return Parked.FLOWING


def _partition_of(context: "PartitionPort", call: Call, topic: str, index: int) -> Partition:
    if not context.allow(call, Operation.DELETE, Resource.TOPIC, topic):
        raise PartitionUnavailable(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic in INTERNAL_TOPICS:
        raise PartitionUnavailable(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = context.partitions.find(topic, index)
    if partition is None:
        raise PartitionUnavailable(context.partitions.absence(topic, index))
    return partition


class _Share:
    """One partition whose log start offset is to become `until`: it waits for the high watermark, then for
    the checkpoint and the other replicas.
    """

    __slots__ = ("call", "is_moved", "leader", "part", "partition", "until", "whole")

    def __init__(
        self,
        whole: "_ParkedDeletion",
        partition: Partition,
        until: Offset,
        part: DeleteRecordsPartitionResult,
    ) -> None:
        self.call = whole.call
        self.whole = whole
        self.partition = partition
        self.leader = partition.leader
        self.until = until
        self.part = part
        self.is_moved = False

    def move(self, now: Instant) -> bool:
        """Advance the log start offset, and wait for its checkpoint; False if the checkpoint is already
        durable.
        """
        raise_log_start(self.partition, self.until)
        self.is_moved = True
        if self.partition.low_watermark >= self.until:
            return False
        self.partition.park_until_durable(self.until, self, now)
        return True

    def fill(self) -> None:
        """Fill in the low watermark or the error."""
        partition = self.partition
        code = partition.loss_of(self.leader)
        if code is ErrorCode.NONE and partition.low_watermark >= self.until:
            self.part.low_watermark = partition.low_watermark
        else:
            self.part.error_code = code or ErrorCode.REQUEST_TIMED_OUT

    def released(self) -> None:
        self.whole.context.woken[self] = None

    def woken(self, now: Instant) -> DeleteRecordsResponse | None:
        try:
            is_led = self.partition.loss_of(self.leader) is ErrorCode.NONE
            if is_led and not self.is_moved and self.move(now):
                return None
            self.fill()
        except PartitionUnavailable as unavailable:
            self.part.error_code = unavailable.code
        del self.whole.remaining[self]
        return self.whole.response if self.whole.is_whole and not self.whole.remaining else None


class _ParkedDeletion:
    """A DeleteRecords whose log start offsets in `remaining` are not durable yet; it is answered no earlier
    than it `is_whole`, with every partition asked.
    """

    __slots__ = ("call", "context", "is_whole", "remaining", "response")

    def __init__(self, context: "PartitionPort", call: Call, response: DeleteRecordsResponse) -> None:
        self.context = context
        self.call = call
        self.response = response
        self.is_whole = False
        self.remaining: dict[_Share, None] = {}

    def add(
        self, partition: Partition, until: Offset, part: DeleteRecordsPartitionResult, now: Instant
    ) -> None:
        """Fill `part` now if the log start offset is durable, else when it is. Raises
        PartitionUnavailable.
        """
        share = _Share(self, partition, until, part)
        if partition.high_watermark >= until:
            if not share.move(now):
                share.fill()
                return
        else:
            try:
                partition.park(until, share)
            except PurgatoryFull:
                raise PartitionUnavailable(ErrorCode.REQUEST_TIMED_OUT) from None
        self.remaining[share] = None

    def expired(self, now: Instant) -> DeleteRecordsResponse:
        for share in self.remaining:
            share.fill()
        self.remaining.clear()
        return self.response

    def abandoned(self) -> None:
        """The shares stay parked until their event comes, and are dropped then."""
