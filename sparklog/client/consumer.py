"""The consumer: reads assigned partitions in offset order, as records or as whole batches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self, Unpack

from sparklog.client.settings import ClientSettings, ConsumerOptions
from sparklog.model import Offset, TopicPartition


class ConsumerRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class FetchedBatches(NamedTuple):
    """Whole batches as they stand in the log. The first may begin before `fetch_offset`: earlier records are the caller's to leave out."""

    topic_partition: TopicPartition
    records: memoryview
    high_watermark: int
    fetch_offset: int
    next_offset: int


class Consumer:
    """A blocking consumer. Not safe for use from several threads."""

    def __init__(
        self,
        *,
        key_deserializer: Callable[[bytes | None], object] | None = None,
        value_deserializer: Callable[[bytes | None], object] | None = None,
        interceptors: Sequence[Callable[[list[ConsumerRecord]], list[ConsumerRecord]]] = (),
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        raise NotImplementedError

    @classmethod
    def from_settings(cls, settings: ClientSettings) -> Self:
        raise NotImplementedError

    def assign(self, partitions: Iterable[TopicPartition]) -> None: ...
    def assignment(self) -> tuple[TopicPartition, ...]:
        raise NotImplementedError

    def seek(self, topic_partition: TopicPartition, offset: int) -> None: ...
    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None: ...
    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None: ...
    def position(self, topic_partition: TopicPartition) -> Offset:
        raise NotImplementedError

    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...
    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...
    def poll(self, timeout_ms: int = 1000, max_records: int = 500) -> list[ConsumerRecord]:
        raise NotImplementedError

    def poll_batches(self, timeout_ms: int = 1000) -> list[FetchedBatches]:
        raise NotImplementedError

    def topics(self) -> list[str]:
        raise NotImplementedError

    def partitions_for(self, topic: str) -> list[int]:
        raise NotImplementedError

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        raise NotImplementedError

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        raise NotImplementedError

    def offsets_for_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        """The first offset at or after each time; None where no record is that young."""
        raise NotImplementedError

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
