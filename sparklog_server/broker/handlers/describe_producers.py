"""DescribeProducers: the active producers of a partition and their open transactions (KIP-664)."""

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from sparklog.effects import Steps
from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.header import encode_reply
from sparklog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.broker.handlers.administration import names_too_many
from sparklog_server.broker.session import AnsweredInSteps, Call, Encoded, Parked
from sparklog_server.controller.topic_names import check_name
from sparklog_server.disk.door import StorageError
from sparklog_server.log.producers.producer_state import MANY, NO_SEQUENCE, FrozenProducers, Producer
from sparklog_server.outcome import Refused

if TYPE_CHECKING:
    from sparklog_server.broker.ports import PartitionPort


_STEP = 256


def describe_producers(
    context: "PartitionPort", call: Call, request: DescribeProducersRequest, now: Instant
) -> AnsweredInSteps:
    """The producers of each partition, by id; errors are per partition."""
    if names_too_many(context, call, (topic.partition_indexes for topic in request.topics)):
        return Parked.SILENT
    response = DescribeProducersResponse()
    many: list[tuple[PartitionResponse, FrozenProducers]] = []
    told: dict[tuple[str, int], None] = {}
    for topic in request.topics:
        refusal = _refusal(context, call, topic.name)
        parts = []
        for index in topic.partition_indexes:
            part = PartitionResponse(partition_index=index)
            if refusal is not None:
                part.error_code, part.error_message = refusal.code, refusal.message
            elif (topic.name, index) in told:
                # A repeated partition costs four bytes of the request and a million producers of the
                # response. Kafka's client cannot repeat one.
                part.error_code, part.error_message = (
                    ErrorCode.INVALID_REQUEST,
                    "the partition is named more than once",
                )
            else:
                told[topic.name, index] = None
                _fill(context, topic.name, index, part, many)
            parts.append(part)
            yield
        yield
        response.topics.append(TopicResponse(name=topic.name, partitions=parts))
    if not many:
        return response
    job = partial(_describe, response, many, call)

    def described(result: Encoded | StorageError, _: Instant) -> Encoded:
        assert not isinstance(result, StorageError), "the job reads no disk"
        return result

    context.jobs.run_in_steps(call, job, described)
    return Parked.MUTING


def _describe(
    response: DescribeProducersResponse, many: list[tuple[PartitionResponse, FrozenProducers]], call: Call
) -> Steps[Encoded]:
    """The job: the encoded response with the producers of these partitions."""
    for part, frozen in many:
        producers = yield from frozen.in_order()
        while some := list(islice(producers, _STEP)):
            part.active_producers += [_state(producer_id, one) for producer_id, one in some]
            yield
    chunks = encode_reply(response, call.api_key, call.version, call.correlation_id)
    if call.used is None:  # else a quota may need the response encoded again, with a throttle time
        for part, _ in many:
            while part.active_producers:  # the loop would free all of them at once: 20 ms for 300 000
                del part.active_producers[-_STEP:]
                yield
    return Encoded(response, chunks)


def _refusal(context: "PartitionPort", call: Call, topic: str) -> Refused | None:
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


def _fill(
    context: "PartitionPort",
    topic: str,
    index: int,
    part: PartitionResponse,
    many: list[tuple[PartitionResponse, FrozenProducers]],
) -> None:
    partition = context.partitions.find(topic, index)
    if partition is None:
        part.error_code = context.partitions.absence(topic, index)
    elif partition.leader is None:
        part.error_code = partition.error
    elif len(partition.log.producers.producers) >= MANY:
        many.append((part, partition.log.producers.freeze()))
    else:
        part.active_producers = [
            _state(number, one) for number, one in sorted(partition.log.producers.producers.items())
        ]


def _state(producer_id: int, producer: Producer) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.batches[-1][1] if producer.batches else NO_SEQUENCE,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.transaction_start,
    )
