"""Whole record batches written idempotently from one thread: the road of Spark's sink into a topic."""

from types import TracebackType
from typing import Self

from sparklog.client.settings import ClientSettings


class BatchWriter:
    """Writes prebuilt batches, every acknowledgement checked; no thread, no object per record. Not safe for use from several threads.

    Batches of one partition keep their order; up to five requests per broker are in flight. The producer id, epoch and sequence are
    stamped into the batch, which belongs to the writer from `add` on.
    """

    def __init__(self, settings: ClientSettings) -> None:
        raise NotImplementedError

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic (auto-created if the cluster does that); raises UnknownTopic."""
        raise NotImplementedError

    def add(self, topic: str, partition: int, batch: bytearray, record_count: int) -> None:
        """Take a whole batch (v2, without producer fields). Waits for acknowledgements while more than `buffer_memory` bytes are on the way.

        Raises DeliveryFailed or BrokerError as soon as any earlier batch is known to have failed.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """Return when every batch is acknowledged; raises DeliveryFailed or BrokerError if one was not."""
        raise NotImplementedError

    def close(self) -> None:
        """Drop the connections; batches not flushed may or may not have been written."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
