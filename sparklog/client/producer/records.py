"""A record of a producer: the caller's values, the promise of its delivery, and the place where it was
written.
"""

from collections.abc import Callable, Iterable
from operator import index
from typing import Final, NamedTuple, Protocol

import msgspec

from sparklog.client.producer.accumulator import Gathering
from sparklog.client.producer.intake import Run
from sparklog.client.producer.outbound_batch import Done, OutboundBatch
from sparklog.errors import SparklogError
from sparklog.model import Micros, TopicPartition
from sparklog.record.batch import Content, Headers

INT64_MAX: Final = (1 << 63) - 1

Serializer = Callable[[object], bytes | None]


class RecordMetadata(NamedTuple):
    """The place of a written record; offset -1 if the broker does not return it (acks=0, or a duplicate of an
    old batch).
    """

    topic_partition: TopicPartition
    offset: int
    timestamp_ms: int


class ProducerRecord(msgspec.Struct, frozen=True):
    """A record with the caller's values, for interceptors."""

    topic: str
    value: object = None
    key: object = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor(Protocol):
    """Called with every record before it is serialized, and with its result."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord: ...

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: SparklogError | None) -> None: ...


def checked_timestamp(timestamp_ms: int) -> int:
    """A timestamp that the caller gave. Raises ValueError, and TypeError for any other type."""
    if isinstance(timestamp_ms, bool):
        raise TypeError(f"timestamp_ms={timestamp_ms}: give milliseconds since 1970 as an int")
    try:
        stamp = index(timestamp_ms)
    except TypeError:
        raise TypeError(f"timestamp_ms={timestamp_ms!r}: give milliseconds since 1970 as an int") from None
    if not 0 <= stamp <= INT64_MAX:
        raise ValueError(f"timestamp_ms={stamp} is outside [0, {INT64_MAX}]")
    return stamp


class WrittenRange(NamedTuple):
    """Records `[offset, offset + record_count)`; offset -1 if the broker does not return it."""

    topic_partition: TopicPartition
    offset: int
    record_count: int


def metadata_of(batch: Gathering, index: int, timestamp_ms: int) -> RecordMetadata | None:
    """The place of a record of a batch; None while it is not known, or if the record failed."""
    done = batch.done
    if done is None:
        return None
    if done.parts:
        ((done, index, _),) = done.among(index, 1)
    if done.error is not None:
        return None
    offset = done.base_offset + index if done.base_offset >= 0 else -1
    timestamp = done.log_append_time_ms if done.log_append_time_ms >= 0 else timestamp_ms
    return RecordMetadata(batch.topic_partition, offset, timestamp)


def error_of(done: Done, first: int, record_count: int = 1) -> SparklogError | None:
    """The first error of these records of a batch; None if all are acknowledged."""
    if done.error is None or not done.parts:
        return done.error
    return next((part.error for part, _, _ in done.among(first, record_count) if part.error), None)


def ranges_of(run: Run) -> list[WrittenRange]:
    """The places of acknowledged records: several if the batch was sent in parts."""
    assert run.batch.done is not None
    return [
        WrittenRange(
            run.batch.topic_partition, part.base_offset + first if part.base_offset >= 0 else -1, record_count
        )
        for part, first, record_count in run.batch.done.among(run.first, run.record_count)
    ]


def listed(given: Iterable[object], serialize: Callable[[object], bytes | None] | None) -> list[Content]:
    """The contents of records, serialized if there is a serializer."""
    if serialize is not None:
        return [serialize(one) for one in given]
    return given if type(given) is list else list(given)  # type: ignore[arg-type]  # the kernel checks each


def nothing_of(batch: Gathering) -> OutboundBatch:
    """Stands for the batch of a record that failed before it was added to one."""
    return OutboundBatch(batch.topic_partition, bytearray(), batch.builder.record_count, Micros(0), batch)
