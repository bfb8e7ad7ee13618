"""The values that a consumer returns: records, or whole batches."""

from collections.abc import Callable
from typing import Generic, NamedTuple

import msgspec

from sparklog.client.consumer.chunk import Chunk
from sparklog.client.typed import KeyOut, ValueOut
from sparklog.model import TopicPartition
from sparklog.record.batch import read_header


class ConsumerRecord(msgspec.Struct, Generic[KeyOut, ValueOut], gc=False, frozen=True):
    """One record; the timestamp in ms of Unix time, -1 for none. Key and value are the results of the
    deserializers, if there are any.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: KeyOut
    value: ValueOut
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the record."""
        return TopicPartition(self.topic, self.partition)


Record = ConsumerRecord

Deserializer = Callable[[bytes | None], object]
ConsumerInterceptor = Callable[[list[ConsumerRecord]], list[ConsumerRecord]]
"""Sees the records of a poll before the caller, and returns those that the caller sees."""


class FetchedBatches(NamedTuple):
    """Whole batches with offsets below `next_offset`, with the bytes that the log has.

    The first may begin before `fetch_offset`: the caller skips earlier records, and control batches. Under
    read_committed, batches of aborted transactions are left out. The bytes do not change while a reference
    to the view exists.
    """

    topic_partition: TopicPartition
    records: memoryview
    high_watermark: int
    fetch_offset: int
    next_offset: int


def batches_of(chunk: Chunk) -> list[FetchedBatches]:
    """The batches of a chunk that were not returned yet, in several pieces if aborted ones are
    between them.
    """
    runs = chunk.runs()
    if not runs:
        return []
    starts = [chunk.position, *(read_header(run).base_offset for run in runs[1:])]
    limits = [*starts[1:], chunk.next_offset]
    return [
        FetchedBatches(chunk.topic_partition, run, chunk.high_watermark, *ends)
        for run, *ends in zip(runs, starts, limits, strict=True)
    ]


def deserialize(
    key_of: Deserializer | None,
    value_of: Deserializer | None,
    taken: list[ConsumerRecord],
    records: list[ConsumerRecord],
) -> int:
    """Append records up to the first that a deserializer refuses to `records`; returns their number. If it is
    the first record of the poll, its error is raised and the position stays there.
    """
    for count, record in enumerate(taken):
        try:
            key = record.key if key_of is None else key_of(record.key)
            value = record.value if value_of is None else value_of(record.value)
        except Exception:
            if records:
                return count  # the next poll raises it
            raise
        records.append(msgspec.structs.replace(record, key=key, value=value))
    return len(taken)
