"""The producer: any thread adds records, batches are sent in the background, in transactions if it has a
transactional id.

The public interface to `sender.py`, which schedules the sending: the calls of users and their waits.
"""

import contextlib
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Self, TypeVar, Unpack

from sparklog.client.clock import entropy, now_us
from sparklog.client.cluster import TopicView
from sparklog.client.failures import FORKED, ClientClosed, not_pickled
from sparklog.client.membership.member import GroupMetadata
from sparklog.client.membership.offsets import OffsetAndMetadata, positions_of
from sparklog.client.producer.accumulator import Gathering
from sparklog.client.producer.intake import Partitioner, Rows, Run, Whole
from sparklog.client.producer.outbound_batch import Done
from sparklog.client.producer.promises import Deliveries, Delivery
from sparklog.client.producer.records import (
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
    Serializer,
    checked_timestamp,
    listed,
)
from sparklog.client.producer.sender import Sender
from sparklog.client.producer.timeouts import (
    delivery_is_late,
    memory_is_late,
    operation_is_late,
    topic_is_late,
    topic_refusal,
)
from sparklog.client.producer.transaction import Transaction
from sparklog.client.producer.transaction_states import Operation, State
from sparklog.client.producer.turns import WITHOUT_LIMIT
from sparklog.client.settings import ClientSettings, ProducerOptions
from sparklog.client.typed import KeyIn, SerializerOf, ValueIn
from sparklog.errors import RequestTimeout, SettingsError, SparklogError
from sparklog.model import Micros, TopicPartition
from sparklog.record.batch import HEADER_SIZE, Headers, record_size_max

__all__ = [
    "Deliveries",
    "Delivery",
    "Partitioner",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "RecordMetadata",
    "Serializer",
]

if TYPE_CHECKING:
    from sparklog.client.tables import Tabular

T = TypeVar("T")

_MS: Final = 1000
_IN_TRANSACTION: Final = State.IN_TRANSACTION  # read through the class it costs two calls


class Producer(Generic[KeyIn, ValueIn]):
    """A producer for any number of threads; idempotent by default.

    With a `transactional_id`: `init` once, then for each transaction `begin`, records, offsets, and `commit`
    or `abort`. After a TransactionAbortable the transaction has to be aborted, after a TransactionFatal
    (ProducerFenced) the producer has to be closed. These calls raise RequestTimeout after `timeout_ms`
    (`max_block_ms`); the same call again continues to wait.

    Callbacks run in the background thread, or in a thread that calls `send`, `flush` or `close`; those of
    a partition run in the order of its records, and none may block. An exception of a callback is reported
    through `threading.excepthook` and has no other effect. The partitioner runs in the thread that sends, or
    in the background thread for records whose topic was not known yet. Threads do not survive a fork: in a
    child process a producer of the parent only raises ClientClosed.
    """

    def __init__(
        self,
        *,
        key_serializer: SerializerOf[KeyIn] | None = None,
        value_serializer: SerializerOf[ValueIn] | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        **settings: Unpack[ProducerOptions],
    ) -> None:
        self._open(
            ClientSettings.for_role("producer", settings),
            key_serializer,
            value_serializer,
            partitioner,
            interceptors,
        )

    @classmethod
    def from_settings(cls, settings: ClientSettings) -> Self:
        """A Producer from settings already parsed."""
        producer = cls.__new__(cls)
        producer._open(settings, None, None, None, ())
        return producer

    def _open(
        self,
        settings: ClientSettings,
        key_serializer: SerializerOf[KeyIn] | None,
        value_serializer: SerializerOf[ValueIn] | None,
        partitioner: Partitioner | None,
        interceptors: Sequence[ProducerInterceptor],
    ) -> None:
        self._settings = settings
        self._serialize_key: Serializer | None = key_serializer  # type: ignore[assignment]
        self._serialize_value: Serializer | None = value_serializer  # type: ignore[assignment]
        self._interceptors = tuple(interceptors)
        self._sender = Sender(settings, partitioner)
        self._turns = self._sender.turns
        self._network = self._sender.network
        self._transaction = self._sender.transaction
        self._accumulator = self._sender.accumulator
        self._lock = self._sender.lock
        self._intake = self._sender.intake
        self._sticky_batches = self._intake.sticky_batches
        self._waiting_for_memory = 0
        self._is_forked = False
        self._closers: dict[int, None] = {}
        """The threads that have called `close`: only these may use the producer from then on."""
        _forget_in_children(self)

    # -- sending ---------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: ValueIn | None = None,
        key: KeyIn | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[RecordMetadata | None, SparklogError | None], None] | None = None,
    ) -> Delivery:
        """Add a record to a batch; waits only for memory of `buffer_memory`, up to `max_block_ms`. A record
        of a topic whose metadata is not known yet is held for up to `max_block_ms`.

        Text is encoded as UTF-8 unless there are serializers. Raises BufferExhausted, RecordTooLarge or
        ClientClosed at once, and UnknownTopic for a partition that a known topic does not have. Later errors
        are those of the Delivery and of `on_delivery(metadata, error)`, one argument of which is None: so is
        RequestTimeout if no broker answers for the topic in time.
        """
        if self._interceptors:
            record = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
            for interceptor in self._interceptors:
                record = interceptor.on_send(record)
            topic, value, key, headers = record.topic, record.value, record.key, record.headers  # type: ignore[assignment]
            partition, timestamp_ms = record.partition, record.timestamp_ms
        key_content: object = key if self._serialize_key is None else self._serialize_key(key)
        content: object = value if self._serialize_value is None else self._serialize_value(value)
        timestamp_ms = (
            time.time_ns() // 1_000_000 if timestamp_ms is None else checked_timestamp(timestamp_ms)
        )
        with self._lock:
            if self._turns.is_closed or self._closers or self._transaction is not None:
                self._raise_unless_open()
            # Most records take this way into a batch, without a call of `Intake.add`.
            batch = self._sticky_batches.get(topic) if key_content is None and partition is None else None
            if batch is None or (index := batch.append(None, content, headers, timestamp_ms)) < 0:  # type: ignore[arg-type]
                add = partial(self._intake.add, topic, key_content, content, headers, partition, timestamp_ms)  # type: ignore[arg-type]
                batch, index = add() or self._wait_to_add(
                    topic,
                    add,
                    lambda: self._intake.has_memory(
                        topic,
                        HEADER_SIZE + record_size_max(key_content, content, headers),  # type: ignore[arg-type]
                    ),
                )
            delivery = Delivery(self, batch, index, timestamp_ms)
            if on_delivery is not None or self._interceptors:
                batch.callbacks.append(lambda: self._tell(delivery, on_delivery))
            if self._accumulator.has_changed or not self._settings.linger_ms:
                self._added()
        return delivery

    def send_many(
        self,
        topic: str,
        values: Iterable[ValueIn],
        keys: Iterable[KeyIn] | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Deliveries:
        """Add many records, several times as fast as by `send`; waits and raises as `send` does. After an
        error the records before the refused one are sent.
        """
        if self._interceptors:
            pairs = zip(values, itertools.repeat(None) if keys is None else keys, strict=keys is not None)
            sent = [
                self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms)
                for value, key in pairs
            ]
            return Deliveries(self, [one.run for one in sent])
        stamp = time.time_ns() // 1_000_000 if timestamp_ms is None else checked_timestamp(timestamp_ms)
        contents = listed(values, self._serialize_value)
        names = None if keys is None else listed(keys, self._serialize_key)
        if names is not None and len(names) != len(contents):
            raise ValueError(f"{len(names)} keys for {len(contents)} values")
        return self._add_all(topic, self._intake.rows(topic, names, contents, partition, stamp))

    def send_arrow(self, topic: str, table: "Tabular") -> Deliveries:
        """Add the rows of a pyarrow Table, RecordBatch or RecordBatchReader; waits up to
        `max_block_ms` for the metadata of the topic, and raises as `send` does.

        The columns are those of Spark's sink: `value`, and if present `key`, `headers`, `partition` and
        `timestamp`. No serializer, partitioner or interceptor is called. RowRefused for a row that cannot be
        written.
        """
        from sparklog.client.tables import built_batches

        count = len(self.partitions_for(topic))
        built = built_batches(table, self._settings, count, time.time_ns() // 1_000_000, entropy)
        return self._add_all(topic, (Whole(self._intake, topic, batch) for batch in built))

    def flush(self, timeout_ms: int | None = None) -> None:
        """Send everything now; returns when each record sent before is acknowledged or given up,
        RequestTimeout after `timeout_ms`.
        """
        with self._lock:
            self._raise_if_closed()
            self._accumulator.flush()
            batches = list(self._accumulator.incomplete)
            if batches:
                self._turns.wanted()
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        for batch in batches:
            self._wait_for(batch, None if deadline is None else deadline - time.monotonic())

    # -- transactions ----------------------------------------------------------------------------------------

    def init(self, timeout_ms: int | None = None) -> None:
        """Get a producer id and fence every earlier producer with the same transactional id; its open
        transaction is aborted.
        """
        self._finish(self._locked("init", Transaction.init), self._blocks_until(timeout_ms))

    def begin(self) -> None:
        """Begin a transaction."""
        self._locked("begin", Transaction.begin)

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: GroupMetadata,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit offsets for a group, each that of the next record to read, when the transaction commits
        (`Consumer.group_metadata`).
        """
        positions = positions_of(offsets)
        self._finish(
            self._locked("send_offsets", lambda one: one.send_offsets(positions, group)),
            self._blocks_until(timeout_ms),
        )

    def commit(self, timeout_ms: int | None = None) -> None:
        """Wait for every acknowledgement and commit: the records and offsets become visible atomically to
        read_committed consumers.
        """
        self._end(self._locked("commit", Transaction.commit), self._blocks_until(timeout_ms))

    def abort(self, timeout_ms: int | None = None) -> None:
        """Abort: read_committed consumers never see the transaction's records; unsent records fail."""
        self._end(self._locked("abort", Transaction.abort), self._blocks_until(timeout_ms))

    # -- questions -------------------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        self._raise_if_closed()
        view = self._network.cluster.topics.get(topic) or self._wait_for_topic(topic)
        return [partition.partition for partition in view.partitions]

    def close(self, timeout_ms: int | None = None) -> None:
        """Flush (for at most `timeout_ms`), fail the remaining records, and close the connections; a
        second call has no effect. An open transaction is aborted, if a broker answers in that time.
        """
        if self._is_forked:
            return
        self._closers[threading.get_ident()] = None
        try:
            self._abort_open(timeout_ms)
            self.flush(timeout_ms)
        except (RequestTimeout, ClientClosed):
            pass  # the remaining records fail below, each by its own Delivery
        finally:
            self._sender.close(ClientClosed("the producer was closed before the record was acknowledged"))

    def __reduce__(self) -> NoReturn:
        raise not_pickled("Producer")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- in the caller's thread ------------------------------------------------------------------------------

    def _add_all(self, topic: str, groups: Iterable[Rows | Whole]) -> Deliveries:
        runs: list[Run] = []
        for rows in groups:
            while not rows.is_done:
                with self._lock:
                    self._raise_unless_open()
                    run = rows.add()
                    runs.append(self._wait_to_add(topic, rows.add, rows.has_memory) if run is None else run)
                    if self._accumulator.has_changed or not self._settings.linger_ms:
                        self._added()
        return Deliveries(self, runs)

    def _raise_unless_open(self) -> None:
        self._raise_if_closed()
        transaction = self._transaction
        if transaction is not None and transaction.state is not _IN_TRANSACTION:
            transaction.raise_unless_open()

    def _added(self) -> None:
        """Send the full batches, or note when the new one has lingered; `_lock` is held."""
        accumulator, linger_ms = self._accumulator, self._settings.linger_ms
        accumulator.has_changed = False
        if self._intake.has_unasked:
            self._intake.has_unasked = False
            self._turns.wanted()
        if not linger_ms or accumulator.has_full:
            self._sender.send()
        else:
            self._turns.due_at(Micros(now_us() + linger_ms * _MS))

    def _locked(self, what: str, call: Callable[[Transaction], T]) -> T:
        """Call a function of the transaction while no record can be added."""
        self._raise_if_closed()
        if self._transaction is None:
            raise SettingsError(f"{what} needs a transactional_id")
        transaction = self._transaction
        return self._sender.tell(lambda: call(transaction))

    def _end(self, operation: Operation, deadline: float) -> None:
        self.flush(max(0, int((deadline - time.monotonic()) * 1000)))
        self._locked("flush", Transaction.flushed)
        self._finish(operation, deadline)

    def _finish(self, operation: Operation, deadline: float) -> None:
        if not self._waited(lambda: operation.is_done or self._network.refusal is not None, deadline):
            raise operation_is_late(self._network, operation)
        if not operation.is_done:
            self._network.raise_refusal()
        if operation.error is not None:
            raise operation.error

    def _waited(self, is_over: Callable[[], bool], deadline: float) -> bool:
        """Wait until a condition holds; False if it does not by then (`time.monotonic()`)."""
        if self._is_forked:
            self._raise_if_closed()
        with self._lock:
            is_over_in_time = self._sender.wait(is_over, Micros(int(deadline * 1e6)))
        if is_over_in_time:
            return True
        self._raise_if_closed()
        return False

    def _abort_open(self, timeout_ms: int | None) -> None:
        if self._transaction is not None and self._transaction.may_abort:
            with contextlib.suppress(SparklogError):
                self.abort(timeout_ms)

    def _blocks_until(self, timeout_ms: int | None) -> float:
        return time.monotonic() + (self._settings.max_block_ms if timeout_ms is None else timeout_ms) / 1000

    def _wait_for_topic(self, topic: str) -> TopicView:
        cluster = self._network.cluster
        self._raise_if_closed()
        self._sender.tell(lambda: cluster.want([topic]))

        network = self._network

        def is_over() -> bool:
            is_refused = network.refusal is not None or topic_refusal(network, topic) is not None
            return topic in cluster.topics or is_refused

        if not self._waited(is_over, self._blocks_until(None)):
            raise topic_is_late(network, self._settings, topic)
        if topic not in cluster.topics:
            network.raise_refusal()
            if (refusal := topic_refusal(network, topic)) is not None:
                raise refusal
        return cluster.topics[topic]

    def _wait_to_add(self, topic: str, add: Callable[[], T | None], has_memory: Callable[[], bool]) -> T:
        """Add as soon as there is memory; called and left with `_lock` held."""
        deadline = self._blocks_until(None)
        accumulator = self._accumulator
        while True:
            self._waiting_for_memory += 1
            accumulator.is_short = True
            self._turns.wanted()
            try:
                with _released(self._lock):
                    has_room = self._waited(has_memory, deadline)
            finally:
                self._waiting_for_memory -= 1
                accumulator.is_short = self._waiting_for_memory > 0
            self._raise_unless_open()
            if not has_room:
                if topic not in self._network.cluster.topics:
                    raise topic_is_late(self._network, self._settings, topic)
                raise memory_is_late(self._network, self._settings)
            taken = add()
            if taken is not None:
                return taken

    def _wait_for(self, batch: Gathering, timeout: float | None) -> Done:
        if self._is_forked:
            self._raise_if_closed()
        done = self._sender.wait_for(
            batch, WITHOUT_LIMIT if timeout is None else Micros(now_us() + int(timeout * 1e6))
        )
        if done is None:
            raise delivery_is_late(self._network)
        return done

    def _call_when_done(self, batch: Gathering, callback: Callable[[], object]) -> bool:
        """Whether the callback will be called; if not, the batch is done already."""
        with self._lock:
            if batch.done is not None:
                return False
            batch.callbacks.append(callback)
            return True

    def _tell(
        self,
        delivery: Delivery,
        on_delivery: Callable[[RecordMetadata | None, SparklogError | None], None] | None,
    ) -> None:
        error = delivery.exception()
        metadata = delivery.metadata()
        for interceptor in self._interceptors:
            interceptor.on_acknowledgement(metadata, error)
        if on_delivery is not None:
            on_delivery(metadata, error)

    def _raise_if_closed(self) -> None:
        if self._is_forked:
            raise ClientClosed(FORKED)
        if self._turns.is_closed or (self._closers and threading.get_ident() not in self._closers):
            raise ClientClosed("the producer is closed")


@contextlib.contextmanager
def _released(lock: threading.Lock) -> Iterator[None]:
    lock.release()
    try:
        yield
    finally:
        lock.acquire()


# -- fork ----------------------------------------------------------------------------------------------------

_producers: weakref.WeakSet[Producer[Any, Any]] = weakref.WeakSet()


def _forget_in_children(producer: Producer[Any, Any]) -> None:
    if not _producers and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_mark_forked)
    _producers.add(producer)


def _mark_forked() -> None:
    for producer in list(_producers):
        producer._is_forked = producer._turns.is_closed = True
        producer._lock = threading.Lock()  # A thread of the parent may have held the lock.
    _producers.clear()
