"""The producer: records go in one by one from any thread, batches go out in the background, in transactions if it has a transactional id.

A shell around two machines: `Accumulator` gathers (under `_lock`), `Outbound` sends (under `_io`). A daemon thread drives the sending; a
thread that fills a batch drives it too, since Python would let the background thread wait up to 5 ms after each of its system calls while
another thread computes. Nobody waits for the network while holding a lock. Order of locks: `_io`, then `_lock`.
"""

import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar, Unpack

from sparklog.client.accumulator import Accumulator, Gathering, StickyPartitioner
from sparklog.client.cluster import TopicView
from sparklog.client.delivery import deliver
from sparklog.client.failures import BufferExhausted, ClientClosed, DeliveryFailed, RecordTooLarge, UnknownTopic
from sparklog.client.membership import GroupMetadata
from sparklog.client.membership_offsets import OffsetAndMetadata, positions_of
from sparklog.client.outbound import Done, Outbound, OutboundBatch
from sparklog.client.producer_records import Delivery, ProducerInterceptor, ProducerRecord, RecordMetadata, as_bytes, nothing_of
from sparklog.client.settings import ClientSettings, ProducerOptions
from sparklog.client.transaction import Transaction
from sparklog.client.transaction_states import Operation
from sparklog.client.transport import Network, entropy, now_us
from sparklog.errors import BrokerError, RequestTimeout, SettingsError, SparklogError
from sparklog.model import Micros, TopicPartition
from sparklog.record.batch import Headers, record_size_max
from sparklog.record.compression import Codec

__all__ = ["Delivery", "Partitioner", "Producer", "ProducerInterceptor", "ProducerRecord", "RecordMetadata", "Serializer"]

T = TypeVar("T")
Serializer = Callable[[object], bytes | None]
Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""(topic, key, value, number of partitions) -> partition."""

_MS: Final = 1000
_SLEEP_US_MAX: Final = 60_000_000


class Producer:
    """A producer for any number of threads; idempotent by default.

    With a `transactional_id`: `init` once, then for each transaction `begin`, records, offsets, and `commit` or `abort`. After a
    TransactionAbortable the transaction has to be aborted, after a TransactionFatal (ProducerFenced) the producer has to be closed. These
    calls raise RequestTimeout when `timeout` seconds (`max_block_ms`) are over, and go on to wait when they are called again.

    Callbacks run in the background thread, or in a thread that calls `send`, `flush` or `close`; those of a partition run in the order of
    its records, and none may block. What a callback raises is reported through `threading.excepthook` and stops nothing else.
    A fork takes no thread along: in a child process a producer of the parent only raises ClientClosed.
    """

    def __init__(
        self,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        **settings: Unpack[ProducerOptions],
    ) -> None:
        self._open(ClientSettings.for_role("producer", settings), key_serializer, value_serializer, partitioner, interceptors)

    @classmethod
    def from_settings(cls, settings: ClientSettings) -> Self:
        """A Producer from settings already parsed."""
        producer = cls.__new__(cls)
        producer._open(settings, None, None, None, ())
        return producer

    def _open(
        self,
        settings: ClientSettings,
        key_serializer: Serializer | None,
        value_serializer: Serializer | None,
        partitioner: Partitioner | None,
        interceptors: Sequence[ProducerInterceptor],
    ) -> None:
        self._settings = settings
        self._serialize_key = key_serializer or as_bytes
        self._serialize_value = value_serializer or as_bytes
        self._partitioner = partitioner
        self._interceptors = tuple(interceptors)
        self._codec = Codec[settings.compression_type.upper()]
        self._network = Network(settings, can_be_woken=True)
        self._outbound = Outbound(settings, self._network.cluster, entropy)
        self._transaction = self._outbound.transaction
        self._accumulator = Accumulator(settings)
        self._sticky = StickyPartitioner(settings, entropy)
        self._io = threading.Lock()  # network and outbound
        self._lock = threading.Lock()  # accumulator, callbacks and the flags below
        self._changed = threading.Condition(self._lock)  # a batch is done, or the cluster told something
        self._finished: deque[tuple[Gathering, Done]] = deque()
        self._callbacks_running = threading.Lock()
        self._waits_until = Micros(0)  # until when the background thread sleeps; 0 while it works
        self._metadata_answers = self._operations_ended = self._waiting_for_memory = 0
        self._is_wanted = False
        self._is_closed = self._is_forked = False
        self._thread = threading.Thread(target=self._run, name="sparklog-producer", daemon=True)
        self._thread.start()
        _forget_in_children(self)

    # -- sending --------------------------------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[RecordMetadata | None, SparklogError | None], None] | None = None,
    ) -> Delivery:
        """Put a record on its way; waits up to `max_block_ms` for the topic to be known and for room in `buffer_memory`.

        Text is written as UTF-8 unless there are serializers. Raises RecordTooLarge, BufferExhausted, UnknownTopic or ClientClosed at once;
        what happens later is told by the Delivery and by `on_delivery(metadata, error)`, one of which is None.
        """
        if self._is_closed:
            self._raise_if_closed()
        if self._interceptors:
            record = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
            for interceptor in self._interceptors:
                record = interceptor.on_send(record)
            topic, value, key, headers = record.topic, record.value, record.key, record.headers
            partition, timestamp_ms = record.partition, record.timestamp_ms
        key_bytes = self._serialize_key(key)
        value_bytes = self._serialize_value(value)
        size = record_size_max(key_bytes, value_bytes, headers)
        if size > self._settings.max_request_size or size > self._settings.buffer_memory:
            raise RecordTooLarge(f"a record of about {size} bytes: max_request_size and buffer_memory must be larger than that")
        view = self._network.cluster.topics.get(topic) or self._wait_for_topic(topic)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        now = now_us()
        with self._lock:
            if self._transaction is not None:
                self._transaction.raise_unless_open()
            number = self._partition(view, key_bytes, value_bytes, size, partition)
            topic_partition = TopicPartition(topic, number)
            taken = self._accumulator.append(topic_partition, key_bytes, value_bytes, headers, timestamp_ms, now)
            if taken is None:
                taken = self._wait_for_memory(topic_partition, key_bytes, value_bytes, headers, timestamp_ms)
            batch, index = taken
            delivery = Delivery(self, batch, index, timestamp_ms)
            if on_delivery is not None or self._interceptors:
                batch.callbacks.append(lambda: self._tell(delivery, on_delivery))
            has_full = self._accumulator.has_full
            must_wake = index == 0 and now + self._settings.linger_ms * _MS < self._waits_until
            if must_wake:
                self._waits_until = Micros(0)  # once is enough
        if has_full or not self._settings.linger_ms:
            self._drive()
        elif must_wake:
            self._network.wake()
        return delivery

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now; returns when each record sent before is acknowledged or given up, RequestTimeout after `timeout` s."""
        with self._lock:
            self._raise_if_closed()
            self._accumulator.flush()
            batches = list(self._accumulator.incomplete)
            has_full = self._accumulator.has_full
        if has_full:
            self._drive()
        deadline = None if timeout is None else time.monotonic() + timeout
        for batch in batches:
            self._wait_for(batch, None if deadline is None else deadline - time.monotonic())

    # -- transactions ---------------------------------------------------------------------------------------------------------------------

    def init(self, timeout: float | None = None) -> None:
        """Get a producer id and fence every producer before with the same transactional id; a transaction it left open is aborted."""
        self._finish(self._locked("init", Transaction.init), self._blocks_until(timeout))

    def begin(self) -> None:
        """Begin a transaction."""
        self._locked("begin", Transaction.begin)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: GroupMetadata, timeout: float | None = None
    ) -> None:
        """Commit offsets for a group, each that of the next record to read, when the transaction commits (`Consumer.group_metadata`)."""
        positions = positions_of(offsets)
        self._finish(self._locked("send_offsets", lambda one: one.send_offsets(positions, group)), self._blocks_until(timeout))

    def commit(self, timeout: float | None = None) -> None:
        """Wait for every acknowledgement and commit: the records and offsets are seen together by who reads read-committed."""
        self._end(self._locked("commit", Transaction.commit), self._blocks_until(timeout))

    def abort(self, timeout: float | None = None) -> None:
        """Abort: nothing of the transaction is ever seen by who reads read-committed; records not sent yet fail."""
        self._end(self._locked("abort", Transaction.abort), self._blocks_until(timeout))

    # -- questions ------------------------------------------------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        view = self._network.cluster.topics.get(topic) or self._wait_for_topic(topic)
        return [partition.partition for partition in view.partitions]

    def close(self, timeout: float | None = None) -> None:
        """Flush (for `timeout` seconds at most), give up what is left, and drop the connections; the second time nothing happens.

        A transaction that is open is aborted, if a broker answers in that time.
        """
        if self._is_closed:
            return
        try:
            self._abort_open(timeout)
            self.flush(timeout)
        except RequestTimeout:
            pass  # what is left fails below, each record by its own Delivery
        finally:
            self._is_closed = True
            self._network.wake()
            if threading.current_thread() is not self._thread:
                self._thread.join()
            with self._io:
                self._give_up(ClientClosed("the producer was closed before the record was acknowledged"))
                self._network.close()
            self._run_callbacks()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -- in the caller's thread -----------------------------------------------------------------------------------------------------------

    def _partition(self, view: TopicView, key: bytes | None, value: bytes | None, size: int, partition: int | None) -> int:
        if partition is None:
            if self._partitioner is None:
                return self._sticky.choose(view, key, size, self._accumulator.is_beginning)
            partition = self._partitioner(view.name, key, value, len(view.partitions))
        if not 0 <= partition < len(view.partitions):
            raise UnknownTopic(f"topic {view.name!r} has no partition {partition}")
        return partition

    def _locked(self, what: str, call: Callable[[Transaction], T]) -> T:
        """Tell the transaction something; no record gets between."""
        self._raise_if_closed()
        if self._transaction is None:
            raise SettingsError(f"{what} needs a transactional_id")
        with self._io, self._lock:
            return call(self._transaction)

    def _end(self, operation: Operation, deadline: float) -> None:
        self.flush(max(0.0, deadline - time.monotonic()))
        self._locked("flush", Transaction.flushed)
        self._finish(operation, deadline)

    def _finish(self, operation: Operation, deadline: float) -> None:
        self._drive()
        with self._changed:
            while not operation.is_done:
                self._raise_if_closed()
                left = deadline - time.monotonic()
                if left <= 0:
                    trouble = self._network.last_error
                    why = "" if trouble is None else f"; last trouble: {trouble}"
                    raise RequestTimeout(f"{operation.name} was not answered in time{why}: call it again to go on waiting")
                self._changed.wait(left)
        if operation.error is not None:
            raise operation.error

    def _abort_open(self, timeout: float | None) -> None:
        if self._transaction is not None and self._transaction.may_abort:
            with contextlib.suppress(SparklogError):
                self.abort(timeout)

    def _blocks_until(self, timeout: float | None) -> float:
        return time.monotonic() + (self._settings.max_block_ms / 1000 if timeout is None else timeout)

    def _wait_for_topic(self, topic: str) -> TopicView:
        deadline = time.monotonic() + self._settings.max_block_ms / 1000
        with self._io:
            self._raise_if_closed()
            self._network.cluster.want([topic])
        self._network.wake()
        with self._changed:
            while topic not in self._network.cluster.topics:
                self._raise_if_closed()
                code = self._network.cluster.errors.get(topic)
                if code is not None and not code.is_retriable:
                    raise BrokerError(code, f"topic {topic!r}")
                left = deadline - time.monotonic()
                if left <= 0:
                    trouble = self._network.last_error if code is None else code.name
                    why = f": {trouble}" if trouble is not None else ""
                    raise BufferExhausted(f"nothing was known of topic {topic!r} within max_block_ms={self._settings.max_block_ms}{why}")
                self._changed.wait(left)
            return self._network.cluster.topics[topic]

    def _wait_for_memory(
        self, topic_partition: TopicPartition, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int
    ) -> tuple[Gathering, int]:
        """Append as soon as memory is free; called and left with `_lock` held."""
        deadline = time.monotonic() + self._settings.max_block_ms / 1000
        self._waiting_for_memory += 1
        self._accumulator.is_short = True
        try:
            self._network.wake()
            while True:
                if self._transaction is not None:
                    self._transaction.raise_unless_open()
                taken = self._accumulator.append(topic_partition, key, value, headers, timestamp_ms, now_us())
                if taken is not None:
                    return taken
                self._raise_if_closed()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise BufferExhausted(
                        f"buffer_memory={self._settings.buffer_memory} was full for max_block_ms={self._settings.max_block_ms}"
                    )
                self._changed.wait(left)
        finally:
            self._waiting_for_memory -= 1
            self._accumulator.is_short = self._waiting_for_memory > 0

    def _wait_for(self, batch: Gathering, timeout: float | None) -> Done:
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._is_forked:
            self._raise_if_closed()
        with self._changed:
            while batch.done is None:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise RequestTimeout("the record is neither acknowledged nor given up yet")
                self._changed.wait(left)
            return batch.done

    def _call_when_done(self, batch: Gathering, callback: Callable[[], None]) -> bool:
        """Whether the callback will be called; if not, the batch is done already."""
        with self._lock:
            if batch.done is not None:
                return False
            batch.callbacks.append(callback)
            return True

    def _tell(self, delivery: Delivery, on_delivery: Callable[[RecordMetadata | None, SparklogError | None], None] | None) -> None:
        done = delivery._batch.done
        error = None if done is None else done.error
        metadata = delivery.metadata()
        for interceptor in self._interceptors:
            interceptor.on_acknowledgement(metadata, error)
        if on_delivery is not None:
            on_delivery(metadata, error)

    def _raise_if_closed(self) -> None:
        if self._is_forked:
            raise ClientClosed("this producer belongs to the parent process: make one of the child's own")
        if self._is_closed:
            raise ClientClosed("the producer is closed")

    # -- in any thread --------------------------------------------------------------------------------------------------------------------

    def _drive(self) -> None:
        """Send what is ready; if another thread is at it, that one looks again."""
        self._is_wanted = True
        while self._is_wanted and self._io.acquire(blocking=False):
            try:
                self._is_wanted = False
                if self._is_closed:
                    return
                self._turn()
                if self._next_turn() < self._waits_until:
                    self._network.wake()
            finally:
                self._io.release()
        self._run_callbacks()

    def _turn(self) -> None:
        """Ready batches into the machine, the machine's requests into the network, answers back; without waiting. `_io` is held."""
        now = now_us()
        while True:
            with self._lock:
                taken = self._accumulator.take(now, self._outbound.has_room)
                late = self._accumulator.expired(Micros(now - self._settings.delivery_timeout_ms * _MS))
            for batch in late:
                error = DeliveryFailed(batch.topic_partition, "the record found no way to its leader within delivery_timeout_ms")
                self._outbound.failed_elsewhere(error)
                self._finished.append((batch, Done(nothing_of(batch), error=error)))
            for batch in taken:
                records = batch.builder.build(codec=self._codec, compression_level=self._settings.compression_level)
                deadline = Micros(batch.created + self._settings.delivery_timeout_ms * _MS)
                self._outbound.add(OutboundBatch(batch.topic_partition, records, batch.builder.record_count, deadline, batch))
            finished = deliver(self._network, self._outbound, now)
            for done in finished:
                assert isinstance(done.batch.context, Gathering)
                self._finished.append((done.batch.context, done))
            if not taken and not finished:
                return

    def _give_up(self, error: SparklogError) -> None:
        with self._lock:
            left = self._accumulator.abandon()
        for done in self._outbound.give_up(error):
            assert isinstance(done.batch.context, Gathering)
            self._finished.append((done.batch.context, done))
        for batch in left:
            self._finished.append((batch, Done(nothing_of(batch), error=error)))

    def _run_callbacks(self) -> None:
        """Publish what is finished, in order: one thread at a time, and never inside a callback of its own."""
        while self._finished or self._metadata_answers != self._network.cluster.answers or self._has_ended_operation():
            if not self._callbacks_running.acquire(blocking=False):
                return
            try:
                self._publish()
            finally:
                self._callbacks_running.release()

    def _has_ended_operation(self) -> bool:
        return self._transaction is not None and self._transaction.ended != self._operations_ended

    def _publish(self) -> None:
        callbacks: list[Callable[[], None]] = []
        with self._changed:
            self._metadata_answers = self._network.cluster.answers
            self._operations_ended = 0 if self._transaction is None else self._transaction.ended
            while self._finished:
                batch, done = self._finished.popleft()
                batch.done = done
                self._accumulator.released(batch)
                callbacks += batch.callbacks
                batch.callbacks = []
            self._changed.notify_all()
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread())))

    # -- the background thread ------------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            # A fault of ours: nobody may wait for what nobody sends any more.
            self._is_closed = True
            with self._io:
                self._give_up(ClientClosed(f"the producer's thread broke: {error!r}"))
            self._run_callbacks()
            raise

    def _work(self) -> None:
        while not self._is_closed:
            with self._io:
                self._is_wanted = False
                self._turn()
                until = self._next_turn(is_going_to_sleep=True)
            self._run_callbacks()
            if not self._is_wanted:
                self._network.wait(until)
            self._waits_until = Micros(0)

    def _next_turn(self, *, is_going_to_sleep: bool = False) -> Micros:
        """When there is something to do without anything having happened. `_io` is held."""
        now = now_us()
        outbound = self._outbound.deadline(now)
        until = self._network.next_event(Micros(now + _SLEEP_US_MAX) if outbound is None else outbound)
        with self._lock:
            lingered = self._accumulator.deadline(now)
            until = until if lingered is None else min(until, lingered)
            if is_going_to_sleep:
                # Batches come and go: a short sleep is cheaper than being woken for the linger of each. Else no longer than a request
                # may take: whoever sends one meanwhile need not wake us for its time limit.
                is_busy, settings = bool(self._accumulator.incomplete), self._settings
                until = min(until, Micros(now + (max(settings.linger_ms, 1) if is_busy else settings.request_timeout_ms) * _MS))
                # Under the lock: a record that comes later sees it, and wakes us if it cannot wait that long.
                self._waits_until = until
        return until


# -- fork ---------------------------------------------------------------------------------------------------------------------------------

_producers: weakref.WeakSet[Producer] = weakref.WeakSet()


def _forget_in_children(producer: Producer) -> None:
    if not _producers and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_mark_forked)
    _producers.add(producer)


def _mark_forked() -> None:
    for producer in list(_producers):
        producer._is_forked = producer._is_closed = True
    _producers.clear()
