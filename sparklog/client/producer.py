"""The producer: records go in one by one from any thread, batches go out from one background thread."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self, Unpack

from sparklog.client.settings import ClientSettings, ProducerOptions
from sparklog.model import TopicPartition

Headers = Sequence[tuple[str, bytes | None]]


class RecordMetadata(NamedTuple):
    """Where a record was written; offset -1 with acks=0."""

    topic_partition: TopicPartition
    offset: int
    timestamp_ms: int


class Delivery:
    """The promise of one record's delivery: `result`, `exception`, `done`, `add_done_callback` as in `concurrent.futures.Future`."""

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait (seconds) for the acknowledgement; raises what went wrong, RequestTimeout if not known yet."""
        raise NotImplementedError

    def exception(self, timeout: float | None = None) -> BaseException | None:
        raise NotImplementedError

    def done(self) -> bool:
        raise NotImplementedError

    def add_done_callback(self, callback: "Callable[[Delivery], None]") -> None:
        raise NotImplementedError


class Producer:
    """A thread-safe producer; idempotent by default."""

    def __init__(
        self,
        *,
        key_serializer: Callable[[object], bytes | None] | None = None,
        value_serializer: Callable[[object], bytes | None] | None = None,
        partitioner: Callable[[str, bytes | None, bytes | None, int], int] | None = None,
        interceptors: Sequence["ProducerInterceptor"] = (),
        **settings: Unpack[ProducerOptions],
    ) -> None:
        raise NotImplementedError

    @classmethod
    def from_settings(cls, settings: ClientSettings) -> Self:
        raise NotImplementedError

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[RecordMetadata | None, BaseException | None], None] | None = None,
    ) -> Delivery:
        raise NotImplementedError

    def flush(self, timeout: float | None = None) -> None:
        raise NotImplementedError

    def partitions_for(self, topic: str) -> list[int]:
        raise NotImplementedError

    def close(self, timeout: float | None = None) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class ProducerInterceptor(Protocol):
    pass
