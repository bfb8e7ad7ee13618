"""The producer for asyncio, without a thread: the batches, requests and transactions of `Producer`, turned by
the event loop (`transport/event_loop.py`).
"""

import asyncio
import contextlib
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar, Unpack

from sparklog.client.clock import entropy, now_us
from sparklog.client.failures import ClientClosed
from sparklog.client.membership.member import GroupMetadata
from sparklog.client.membership.offsets import OffsetAndMetadata, positions_of
from sparklog.client.producer.accumulator import Gathering
from sparklog.client.producer.intake import Intake, Partitioner, Rows, Run, Whole
from sparklog.client.producer.records import (
    RecordMetadata,
    Serializer,
    WrittenRange,
    checked_timestamp,
    error_of,
    listed,
    metadata_of,
    ranges_of,
)
from sparklog.client.producer.sending import Sending
from sparklog.client.producer.timeouts import memory_is_late, operation_is_late, topic_is_late, topic_refusal
from sparklog.client.producer.transaction import Transaction
from sparklog.client.producer.transaction_states import Operation, State
from sparklog.client.producer.turns import WITHOUT_LIMIT
from sparklog.client.settings import ClientSettings, ProducerOptions
from sparklog.client.transport.event_loop import AsyncClient, Driver
from sparklog.client.transport.network import Network
from sparklog.client.typed import KeyIn, SerializerOf, ValueIn
from sparklog.errors import RequestTimeout, SettingsError, SparklogError
from sparklog.kernels import gather
from sparklog.model import Micros, TopicPartition
from sparklog.record.batch import HEADER_SIZE, Headers, record_size_max

if TYPE_CHECKING:
    from sparklog.client.tables import Tabular

__all__ = ["AsyncDeliveries", "AsyncDelivery", "AsyncProducer"]

T = TypeVar("T")
_MS: Final = 1000
_IN_TRANSACTION: Final = State.IN_TRANSACTION


class AsyncProducer(AsyncClient, Generic[KeyIn, ValueIn]):
    """A producer for one event loop; idempotent by default. Not safe for use from other threads.

    `linger_ms` is 0 by default: the records of one iteration of the loop go into one batch; the first record
    of `send_and_wait` is sent at once. A record is sent also if no task awaits its delivery; a cancelled
    `send` has added none.
    """

    def __init__(
        self,
        *,
        key_serializer: SerializerOf[KeyIn] | None = None,
        value_serializer: SerializerOf[ValueIn] | None = None,
        partitioner: Partitioner | None = None,
        **settings: Unpack[ProducerOptions],
    ) -> None:
        settings.setdefault("linger_ms", 0)
        self._settings = ClientSettings.for_role("producer", settings)
        self._serialize_key: Serializer | None = key_serializer  # type: ignore[assignment]
        self._serialize_value: Serializer | None = value_serializer  # type: ignore[assignment]
        self._partitioner = partitioner
        self._driver: Driver | None = None
        self._network: Network
        self._sending: Sending
        self._intake: Intake
        self._waiting_for_memory = 0
        self._owes_turn = False
        self._operations: set[asyncio.Task[None]] = set()
        self._stopper: asyncio.Task[object] | None = None

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to work in the running loop; with a `transactional_id`, fence every earlier producer."""
        if self._driver is not None:
            self._started()
            raise RuntimeError("the producer was started before")
        self._network = Network(self._settings)
        self._sending = Sending(
            self._settings, self._network, entropy, nullcontext(True), lambda: None, self._partitioner
        )
        self._intake = self._sending.intake
        self._driver = Driver(self._network, self._turn)
        if self._sending.transaction is not None:
            try:
                await self._run(self._tell("start", Transaction.init), None)
            except BaseException:
                self._end(ClientClosed("the producer could not be started"))
                raise

    async def stop(self, timeout_ms: int | None = None) -> None:
        """Flush (for at most `timeout_ms`), abort an open transaction, fail the remaining records, and
        close the connections. A second call has no effect; a cancelled one closes at once.
        """
        if self._driver is None or self._driver.is_closed or self._stopper is not None:
            return
        self._stopper = asyncio.current_task()
        transaction = self._sending.transaction
        try:
            if transaction is not None and transaction.may_abort:
                with contextlib.suppress(SparklogError):
                    await self.abort_transaction(timeout_ms)
            with contextlib.suppress(RequestTimeout, ClientClosed):
                await self.flush(timeout_ms)
        finally:
            self._end(ClientClosed("the producer was stopped before the record was acknowledged"))

    def __del__(self) -> None:
        driver = getattr(self, "_driver", None)
        if driver is not None and not driver.is_closed:
            warnings.warn("an AsyncProducer was not stopped", ResourceWarning, source=self, stacklevel=2)
            driver.close()
            self._network.close()

    # -- sending ---------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: ValueIn | None = None,
        key: KeyIn | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "AsyncDelivery":
        """Add a record to a batch, and return the promise of its delivery, to be awaited; waits only for
        memory, up to `max_block_ms`.

        Raises as `Producer.send`.
        """
        driver = self._started()
        if self._owes_turn:
            await self._pause(driver)
        key_content: object = key if self._serialize_key is None else self._serialize_key(key)
        content: object = value if self._serialize_value is None else self._serialize_value(value)
        timestamp_ms = (
            time.time_ns() // 1_000_000 if timestamp_ms is None else checked_timestamp(timestamp_ms)
        )
        transaction = self._sending.transaction
        if transaction is not None and transaction.state is not _IN_TRANSACTION:
            transaction.raise_unless_open()
        taken = self._intake.add(topic, key_content, content, headers, partition, timestamp_ms)  # type: ignore[arg-type]
        if taken is not None:
            batch, index = taken
        else:
            batch, index = await self._wait_to_add(
                topic,
                lambda: self._intake.add(topic, key_content, content, headers, partition, timestamp_ms),  # type: ignore[arg-type]
                lambda: self._intake.has_memory(
                    topic,
                    HEADER_SIZE + record_size_max(key_content, content, headers),  # type: ignore[arg-type]
                ),
            )
        if self._sending.accumulator.has_changed:
            self._added(driver)
        return AsyncDelivery(driver, batch, index, timestamp_ms)

    async def send_and_wait(
        self,
        topic: str,
        value: ValueIn | None = None,
        key: KeyIn | None = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send a record and wait for its acknowledgement; raises the delivery error."""
        delivery = await self.send(
            topic, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        self._ship_alone()
        return await delivery

    async def send_many(
        self,
        topic: str,
        values: Iterable[ValueIn],
        keys: Iterable[KeyIn] | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "AsyncDeliveries":
        """As `Producer.send_many`. If cancelled, the records before some point are sent."""
        stamp = time.time_ns() // 1_000_000 if timestamp_ms is None else checked_timestamp(timestamp_ms)
        contents = listed(values, self._serialize_value)
        names = None if keys is None else listed(keys, self._serialize_key)
        if names is not None and len(names) != len(contents):
            raise ValueError(f"{len(names)} keys for {len(contents)} values")
        return await self._add_all(topic, self._intake.rows(topic, names, contents, partition, stamp))

    async def send_arrow(self, topic: str, table: "Tabular") -> "AsyncDeliveries":
        """As `Producer.send_arrow`."""
        from sparklog.client.tables import built_batches

        count = len(await self.partitions_for(topic))
        built = built_batches(table, self._settings, count, time.time_ns() // 1_000_000, entropy)
        return await self._add_all(topic, (Whole(self._intake, topic, batch) for batch in built))

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Send everything now; returns when each record sent before is acknowledged or given up,
        RequestTimeout after `timeout_ms`.
        """
        driver = self._started()
        accumulator = self._sending.accumulator
        accumulator.flush()
        batches = list(accumulator.incomplete)
        driver.soon()
        deadline = WITHOUT_LIMIT if timeout_ms is None else Micros(now_us() + timeout_ms * _MS)
        for batch in batches:
            if not await driver.wait(lambda: batch.done is not None, deadline):  # noqa: B023
                raise RequestTimeout("some records are neither acknowledged nor given up yet")

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        self._started()
        cluster = self._network.cluster
        if topic not in cluster.topics:
            await self._wait_for_topic(topic, self._blocks_until(None))
        return [partition.partition for partition in cluster.topics[topic].partitions]

    # -- transactions ----------------------------------------------------------------------------------------

    def transaction(self) -> contextlib.AbstractAsyncContextManager[Self]:
        """`async with producer.transaction():` begins a transaction, commits it at the end, and aborts it if
        the block raises or is cancelled.
        """
        self._started()
        return self._in_transaction()

    @contextlib.asynccontextmanager
    async def _in_transaction(self) -> AsyncIterator[Self]:
        await self.begin_transaction()
        try:
            yield self
        except BaseException:
            if self._sending.transaction is not None and self._sending.transaction.may_abort:
                await self.abort_transaction()
            raise
        await self.commit_transaction()

    async def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._tell("begin_transaction", Transaction.begin)

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: GroupMetadata,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit offsets for a group, each that of the next record to read, when the transaction commits."""
        positions = positions_of(offsets)
        operation = self._tell("send_offsets_to_transaction", lambda one: one.send_offsets(positions, group))
        await self._run(operation, timeout_ms)

    async def commit_transaction(self, timeout_ms: int | None = None) -> None:
        """Wait for every acknowledgement and commit. If cancelled, the commit goes on."""
        await self._run(self._tell("commit_transaction", Transaction.commit), timeout_ms, is_end=True)

    async def abort_transaction(self, timeout_ms: int | None = None) -> None:
        """Abort: read_committed consumers never see the transaction's records. If cancelled, it goes on."""
        await self._run(self._tell("abort_transaction", Transaction.abort), timeout_ms, is_end=True)

    # -- inside ----------------------------------------------------------------------------------------------

    def _started(self) -> Driver:
        driver = self._driver
        if driver is None:
            raise RuntimeError("start the producer first: `async with AsyncProducer(...) as producer`")
        if driver.is_closed:
            driver.check()
        if self._stopper is not None and not self._is_stopper():
            raise ClientClosed("the producer is stopped")
        return driver

    def _is_stopper(self) -> bool:
        """Whether this task stops the producer, or ends a transaction."""
        task = asyncio.current_task()
        return task is self._stopper or task in self._operations

    def _turn(self) -> Micros:
        self._owes_turn = False  # the loop runs
        now = self._sending.turn()
        self._publish()
        return self._sending.due(now)

    def _publish(self) -> None:
        if self._sending.publish():
            self._sending.call(_call)

    def _added(self, driver: Driver) -> None:
        """Send the full batches now: a task that only sends must not wait for the loop to do it. The others
        leave in the next iteration, or when they have lingered.
        """
        accumulator = self._sending.accumulator
        accumulator.has_changed = False
        if self._intake.held:
            self._intake.has_unasked = False
            self._owes_turn = True
            driver.soon()
        if accumulator.has_full:
            self._owes_turn = True
            self._sending.ship()
            self._publish()
        if self._settings.linger_ms:
            driver.at(Micros(now_us() + self._settings.linger_ms * _MS))
        else:
            driver.soon()

    def _ship_alone(self) -> None:
        """Send a record that a task waits for in this iteration of the loop. While others are on their way it
        leaves in the next iteration, in a batch with those of more tasks.
        """
        if self._settings.linger_ms or self._sending.outbound.unfinished:
            return
        driver = self._started()
        now = self._sending.ship()
        self._publish()
        if not self._sending.is_stuck:
            driver.not_soon()
            driver.at(self._sending.due(now))

    async def _pause(self, driver: Driver) -> None:
        """Let the loop run once for each full batch, before the next record is added."""
        self._owes_turn = False
        driver.soon()
        await asyncio.sleep(0)
        driver.check()

    async def _add_all(self, topic: str, groups: Iterable[Rows | Whole]) -> "AsyncDeliveries":
        driver = self._started()
        runs: list[Run] = []
        for rows in groups:
            while not rows.is_done:
                if self._owes_turn:
                    await self._pause(driver)
                if self._sending.transaction is not None:
                    self._sending.transaction.raise_unless_open()
                run = rows.add()
                runs.append(await self._wait_to_add(topic, rows.add, rows.has_memory) if run is None else run)
                if self._sending.accumulator.has_changed:
                    self._added(driver)
        return AsyncDeliveries(driver, runs)

    async def _wait_to_add(
        self, topic: str, add: Callable[[], T | None], has_memory: Callable[[], bool]
    ) -> T:
        """Add as soon as there is memory."""
        driver, accumulator = self._started(), self._sending.accumulator
        deadline = self._blocks_until(None)
        while True:
            self._waiting_for_memory += 1
            accumulator.is_short = True
            driver.soon()
            try:
                has_room = await driver.wait(has_memory, deadline)
            finally:
                self._waiting_for_memory -= 1
                accumulator.is_short = self._waiting_for_memory > 0
            if not has_room:
                if topic not in self._network.cluster.topics:
                    raise topic_is_late(self._network, self._settings, topic)
                raise memory_is_late(self._network, self._settings)
            if self._sending.transaction is not None:
                self._sending.transaction.raise_unless_open()
            taken = add()
            if taken is not None:
                return taken

    async def _wait_for_topic(self, topic: str, deadline: Micros) -> None:
        driver, network = self._started(), self._network
        network.cluster.want([topic])
        driver.soon()

        def is_over() -> bool:
            is_refused = network.refusal is not None or topic_refusal(network, topic) is not None
            return topic in network.cluster.topics or is_refused

        if not await driver.wait(is_over, deadline):
            raise topic_is_late(network, self._settings, topic)
        if topic not in network.cluster.topics:
            network.raise_refusal()
            if (refusal := topic_refusal(network, topic)) is not None:
                raise refusal

    def _tell(self, what: str, call: Callable[[Transaction], T]) -> T:
        driver = self._started()
        if self._sending.transaction is None:
            raise SettingsError(f"{what} needs a transactional_id")
        result = call(self._sending.transaction)
        driver.soon()
        return result

    async def _run(self, operation: Operation, timeout_ms: int | None, *, is_end: bool = False) -> None:
        """Wait for an operation, which goes on if the caller is cancelled."""
        task = self._started().loop.create_task(
            self._finish(operation, self._blocks_until(timeout_ms), is_end)
        )
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        await asyncio.shield(task)

    async def _finish(self, operation: Operation, deadline: Micros, is_end: bool) -> None:
        driver, network, transaction = self._started(), self._network, self._sending.transaction
        if is_end and transaction is not None:
            await self.flush(max(0, (deadline - now_us()) // _MS))
            transaction.flushed()
            driver.soon()
        if not await driver.wait(lambda: operation.is_done or network.refusal is not None, deadline):
            raise operation_is_late(network, operation)
        if not operation.is_done:
            network.raise_refusal()
        if operation.error is not None:
            raise operation.error

    def _blocks_until(self, timeout_ms: int | None) -> Micros:
        return Micros(now_us() + (self._settings.max_block_ms if timeout_ms is None else timeout_ms) * _MS)

    def _end(self, error: SparklogError) -> None:
        assert self._driver is not None
        self._sending.give_up(error)
        self._publish()
        self._driver.close()
        self._network.close()


class AsyncDelivery(gather.Place, Awaitable[RecordMetadata]):
    """The promise of one record's delivery; await it for the place of the record, or the delivery error."""

    __slots__ = ()

    _owner: Driver
    _batch: Gathering

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        if self._batch.done is None:
            yield from _finished(self._owner, self._batch).__await__()
        return self.result()

    def done(self) -> bool:
        """Whether the record is acknowledged or given up."""
        return self._batch.done is not None

    def result(self) -> RecordMetadata:
        """The place of the record; raises the delivery error, or `asyncio.InvalidStateError` if it is not
        known yet.
        """
        error = self.exception()
        if error is not None:
            raise error
        metadata = metadata_of(self._batch, self._index, self._timestamp_ms)
        assert metadata is not None
        return metadata

    def exception(self) -> SparklogError | None:
        """The delivery error, None for success; `asyncio.InvalidStateError` if that is not known yet."""
        if self._batch.done is None:
            raise asyncio.InvalidStateError("the record is neither acknowledged nor given up yet")
        return error_of(self._batch.done, self._index)

    def add_done_callback(self, callback: "Callable[[AsyncDelivery], object]") -> None:
        """Call the function in the event loop once the record is done, in the order of the records."""
        loop = self._owner.loop
        if self._batch.done is None:
            self._batch.callbacks.append(lambda: loop.call_soon(callback, self))
        else:
            loop.call_soon(callback, self)


class AsyncDeliveries(Awaitable[Sequence[WrittenRange]]):
    """The promise of the delivery of many records; await it for their places, or the first delivery error."""

    __slots__ = ("_driver", "_runs")

    def __init__(self, driver: Driver, runs: Sequence[Run]) -> None:
        self._driver = driver
        self._runs = runs

    def __len__(self) -> int:
        """The number of records."""
        return sum(run.record_count for run in self._runs)

    def __await__(self) -> Generator[object, None, Sequence[WrittenRange]]:
        for run in self._runs:
            if run.batch.done is None:
                yield from _finished(self._driver, run.batch).__await__()
        for run in self._runs:
            assert run.batch.done is not None
            if (error := error_of(run.batch.done, run.first, run.record_count)) is not None:
                raise error
        return [written for run in self._runs for written in ranges_of(run)]


def _call(callback: Callable[[], object]) -> None:
    callback()


def _finished(driver: Driver, batch: Gathering) -> asyncio.Future[None]:
    """A future that ends with the batch; its cancellation changes nothing else."""
    future = driver.loop.create_future()

    def end() -> None:
        if not future.done():
            future.set_result(None)

    batch.callbacks.append(end)
    return future
