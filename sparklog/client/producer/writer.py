"""Whole record batches written from one thread, idempotently or in transactions, for Spark's sink."""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from sparklog.client.clock import entropy, now_us
from sparklog.client.failures import RecordTooLarge, UnknownTopic
from sparklog.client.producer.exchange import deliver
from sparklog.client.producer.outbound import Outbound
from sparklog.client.producer.outbound_batch import Done, OutboundBatch
from sparklog.client.producer.transaction import Transaction
from sparklog.client.producer.transaction_states import Operation, ProducerIdentity
from sparklog.client.settings import ClientSettings
from sparklog.client.transport.network import Network, wait_for_topic
from sparklog.errors import RequestTimeout, SettingsError, SparklogError
from sparklog.model import Micros, TopicPartition
from sparklog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

REQUEST_BYTES_MAX: Final = 4 << 20
"""A request has one batch each of several partitions; Kafka's limit for a producer would allow only two of
Spark's batches.
"""
_TOPIC: Final = 2
_MESSAGE_BYTES_MAX: Final = "max.message.bytes"


class BatchWriter:
    """Writes prebuilt batches and checks every acknowledgement; no thread, no object per record. Not safe for
    use from several threads.

    Batches of one partition keep their order; up to five requests per broker are in flight. The producer id,
    epoch and sequence are stamped into the batch, which the caller must not use after `add`. After an error
    only `abort` is allowed.

    With a `transactional_id` among the settings: `init` once, then for each transaction `begin`, batches, and
    `commit` or `abort`. Another process that has the `identity` of the transaction may flush and end it
    (`Admin.end_transaction`).
    """

    def __init__(self, settings: ClientSettings, *, on_done: Callable[[Done], None] | None = None) -> None:
        self._settings = settings
        self._network = Network(settings)
        self._outbound = Outbound(
            settings,
            self._network.cluster,
            entropy,
            request_bytes_max=max(settings.max_request_size, REQUEST_BYTES_MAX),
        )
        self._on_done = on_done
        self._unacknowledged_bytes = 0
        self._error: SparklogError | None = None

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic (created, if the cluster allows it); raises UnknownTopic after
        `max_block_ms`.
        """
        wait_for_topic(self._network, topic, Micros(now_us() + self._settings.max_block_ms * 1000))
        return len(self._network.cluster.topics[topic].partitions)

    def message_bytes_max(self, topic: str) -> int | None:
        """The maximum batch size of the topic in bytes (`max.message.bytes`); None if the broker does not
        return it.
        """
        wanted = DescribeConfigsResource(_TOPIC, topic, [_MESSAGE_BYTES_MAX])
        deadline = Micros(now_us() + self._settings.request_timeout_ms * 1000)
        try:
            reply = self._network.call(
                DescribeConfigsRequest([wanted]), DescribeConfigsResponse, deadline=deadline
            )
        except SparklogError:
            return None  # not needed for writing: the broker refuses a batch that is too large
        values = [
            config.value
            for result in reply.results
            for config in result.configs
            if config.name == _MESSAGE_BYTES_MAX
        ]
        return int(values[0]) if values and values[0] else None

    def add(self, topic: str, partition: int, batch: bytearray, record_count: int) -> None:
        """Add a whole batch (v2, without a producer id). Waits for acknowledgements while more than
        `buffer_memory` bytes are unacknowledged.

        Raises DeliveryFailed or BrokerError as soon as any earlier batch is known to have failed,
        WrongTransactionState outside of a transaction if the writer has a transactional id.
        """
        self._raise_failure()
        if self._outbound.transaction is not None:
            self._outbound.transaction.raise_unless_open()
        if topic not in self._network.cluster.topics:
            self.partition_count(topic)
        if not 0 <= partition < len(self._network.cluster.topics[topic].partitions):
            raise UnknownTopic(f"topic {topic!r} has no partition {partition}")
        if len(batch) > self._settings.buffer_memory:
            raise RecordTooLarge(
                f"a batch of {len(batch)} bytes is larger than buffer_memory={self._settings.buffer_memory}"
            )
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

    # -- transactions ----------------------------------------------------------------------------------------

    def init(self) -> None:
        """Get a producer id and fence every earlier producer with the same transactional id; its open
        transaction is aborted.

        Raises RequestTimeout after `max_block_ms`; the same call again continues to wait. The same holds for
        `commit` and `abort`.
        """
        self._wait_for(self._transactional("init").init())

    def begin(self) -> None:
        """Begin a transaction."""
        self._transactional("begin").begin()
        self._error = None

    def commit(self) -> None:
        """Flush and commit; raises TransactionAbortable if the commit is impossible, and TransactionFatal."""
        self._end(self._transactional("commit").commit())

    def abort(self) -> None:
        """Abort: read_committed consumers never see the transaction's records. Raises TransactionFatal."""
        self._end(self._transactional("abort").abort())
        self._error = None

    @property
    def identity(self) -> ProducerIdentity:
        """Transactional id, producer id and epoch of the open transaction; they may change with the
        next one.
        """
        return self._transactional("identity").identity

    def close(self) -> None:
        """Close the connections; unflushed batches may or may not have been written, and an open transaction
        stays open until its timeout, or until a client that has its identity ends it.
        """
        self._network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _turn(self, deadline: Micros) -> None:
        """Send the ready batches and process the replies, waiting until `deadline` for the first one."""
        self._network.raise_refusal()
        for done in deliver(self._network, self._outbound, deadline):
            self._unacknowledged_bytes -= len(done.batch.records)
            if done.error is not None and self._error is None:
                self._error = done.error
            if self._on_done is not None:
                self._on_done(done)

    def _transactional(self, what: str) -> Transaction:
        if self._outbound.transaction is None:
            raise SettingsError(f"{what} needs a transactional_id")
        return self._outbound.transaction

    def _end(self, operation: Operation) -> None:
        deadline = self._blocking_deadline()
        while self._outbound.unfinished and not operation.is_done and now_us() < deadline:
            self._turn(deadline)
        if not self._outbound.unfinished:
            self._transactional("commit").flushed()
        self._wait_for(operation, deadline)

    def _wait_for(self, operation: Operation, deadline: Micros | None = None) -> None:
        deadline = self._blocking_deadline() if deadline is None else deadline
        while not operation.is_done:
            if now_us() >= deadline:
                trouble = self._network.last_error
                why = "" if trouble is None else f"; last trouble: {trouble}"
                raise RequestTimeout(
                    f"{operation.name} was not answered within "
                    f"max_block_ms={self._settings.max_block_ms}{why}"
                )
            self._turn(deadline)
        if operation.error is not None:
            raise operation.error

    def _blocking_deadline(self) -> Micros:
        return Micros(now_us() + self._settings.max_block_ms * 1000)

    def _raise_failure(self) -> None:
        if self._error is not None:
            raise self._error
