"""Whole record batches written idempotently from one thread: the road of Spark's sink into a topic."""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from sparklog.client.delivery import deliver
from sparklog.client.failures import RecordTooLarge, UnknownTopic
from sparklog.client.outbound import Done, Outbound, OutboundBatch
from sparklog.client.settings import ClientSettings
from sparklog.client.transport import Network, entropy, now_us
from sparklog.errors import SparklogError
from sparklog.model import Micros, TopicPartition

REQUEST_BYTES_MAX: Final = 4 << 20
"""A request carries one batch of several partitions; Kafka's own limit for a producer would allow two of Spark's batches only."""


class BatchWriter:
    """Writes prebuilt batches, every acknowledgement checked; no thread, no object per record. Not safe for use from several threads.

    Batches of one partition keep their order; up to five requests per broker are in flight. The producer id, epoch and sequence are
    stamped into the batch, which belongs to the writer from `add` on. After an error nothing more is accepted.
    """

    def __init__(self, settings: ClientSettings, *, on_done: Callable[[Done], None] | None = None) -> None:
        self._settings = settings
        self._network = Network(settings)
        self._outbound = Outbound(
            settings, self._network.cluster, entropy, request_bytes_max=max(settings.max_request_size, REQUEST_BYTES_MAX)
        )
        self._on_done = on_done
        self._unacknowledged_bytes = 0
        self._error: SparklogError | None = None

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic (created, if the cluster does that); raises UnknownTopic after `max_block_ms`."""
        self._network.wait_for_topic(topic, Micros(now_us() + self._settings.max_block_ms * 1000))
        return len(self._network.cluster.topics[topic].partitions)

    def add(self, topic: str, partition: int, batch: bytearray, record_count: int) -> None:
        """Take a whole batch (v2, no producer yet). Waits for acknowledgements while more than `buffer_memory` bytes are on the way.

        Raises DeliveryFailed or BrokerError as soon as any earlier batch is known to have failed.
        """
        self._raise_failure()
        if topic not in self._network.cluster.topics:
            self.partition_count(topic)
        if not 0 <= partition < len(self._network.cluster.topics[topic].partitions):
            raise UnknownTopic(f"topic {topic!r} has no partition {partition}")
        if len(batch) > self._settings.buffer_memory:
            raise RecordTooLarge(f"a batch of {len(batch)} bytes, where buffer.memory is {self._settings.buffer_memory}")
        deadline = Micros(now_us() + self._settings.delivery_timeout_ms * 1000)
        self._outbound.add(OutboundBatch(TopicPartition(topic, partition), batch, record_count, deadline))
        self._unacknowledged_bytes += len(batch)
        self._turn(now_us())
        while self._unacknowledged_bytes > self._settings.buffer_memory:
            self._turn(deadline)

    def flush(self) -> None:
        """Return when every batch is acknowledged; raises DeliveryFailed or BrokerError if one was not."""
        while self._outbound.unfinished and self._error is None:
            self._turn(Micros(now_us() + self._settings.request_timeout_ms * 1000))
        self._raise_failure()

    def close(self) -> None:
        """Drop the connections; batches not flushed may or may not have been written."""
        self._network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _turn(self, deadline: Micros) -> None:
        """Send what can be sent and take in what was answered, waiting until `deadline` for the first of it."""
        for done in deliver(self._network, self._outbound, deadline):
            self._unacknowledged_bytes -= len(done.batch.records)
            if done.error is not None and self._error is None:
                self._error = done.error
            if self._on_done is not None:
                self._on_done(done)

    def _raise_failure(self) -> None:
        if self._error is not None:
            raise self._error
