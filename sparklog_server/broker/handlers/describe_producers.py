"""DescribeProducers: who writes to a partition, and whose transaction hangs there (KIP-664)."""

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from sparklog_server.broker.administration import names_too_many
from sparklog_server.broker.authorization import Operation, Resource
from sparklog_server.broker.context import Context
from sparklog_server.broker.session import Call, Parked
from sparklog_server.controller.topics import check_name
from sparklog_server.log.producer_state import NO_SEQUENCE, Producer
from sparklog_server.outcome import Refused


def describe_producers(context: Context, call: Call, request: DescribeProducersRequest, now: Instant) -> DescribeProducersResponse | Parked:
    """The producers of each partition, by id; errors are told per partition."""
    if names_too_many(context, call, sum(len(topic.partition_indexes) for topic in request.topics)):
        return Parked.SILENT
    response = DescribeProducersResponse()
    told: dict[tuple[str, int], None] = {}
    for topic in request.topics:
        refusal = _refusal(context, call, topic.name)
        parts = []
        for index in topic.partition_indexes:
            part = PartitionResponse(partition_index=index)
            if refusal is not None:
                part.error_code, part.error_message = refusal.code, refusal.message
            elif (topic.name, index) in told:
                # Four bytes could ask for a million producers otherwise, as often as a frame has room. Kafka's client cannot ask twice.
                part.error_code, part.error_message = ErrorCode.INVALID_REQUEST, "the partition is named more than once"
            else:
                told[topic.name, index] = None
                _fill(context, topic.name, index, part)
            parts.append(part)
        response.topics.append(TopicResponse(name=topic.name, partitions=parts))
    return response


def _refusal(context: Context, call: Call, topic: str) -> Refused | None:
    try:
        check_name(topic)
    except Refused as refusal:
        return refusal
    if not context.allow(call, Operation.READ, Resource.TOPIC, topic):
        return _without_message(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic not in context.image.topics_by_name:
        return _without_message(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return None


def _without_message(code: ErrorCode) -> Refused:
    refusal = Refused(code)
    refusal.message = None
    return refusal


def _fill(context: Context, topic: str, index: int, part: PartitionResponse) -> None:
    partition = context.partitions.find(topic, index)
    if partition is None:
        part.error_code = context.partitions.absence(topic, index)
    elif partition.leader is None:
        part.error_code = partition.error
    else:
        part.active_producers = [_state(number, one) for number, one in sorted(partition.log.producers.producers.items())]


def _state(producer_id: int, producer: Producer) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.batches[-1][1] if producer.batches else NO_SEQUENCE,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_start,
    )
