"""The consumer for asyncio, without a thread: `ConsumerCore` and the machine of the group, in a loop."""

import asyncio
import inspect
import re
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from sparklog.client.clock import now_us
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.consumer_group import RebalanceListener
from sparklog.client.consumer.core import ConsumerCore
from sparklog.client.consumer.records import (
    ConsumerInterceptor,
    ConsumerRecord,
    FetchedBatches,
)
from sparklog.client.consumer.waits import Call, Step, Steps, Until
from sparklog.client.failures import ClientClosed
from sparklog.client.membership.group import Group
from sparklog.client.membership.group_thread import IN_FLIGHT_MAX, GroupTurns
from sparklog.client.membership.member import GroupMetadata
from sparklog.client.membership.offsets import CommitCallback, OffsetAndMetadata
from sparklog.client.settings import ClientSettings, ConsumerOptions
from sparklog.client.transport.event_loop import AsyncClient, Driver, resolver
from sparklog.client.transport.network import Network
from sparklog.client.typed import DeserializerOf, KeyOut, ValueOut
from sparklog.errors import SparklogError
from sparklog.model import Micros, Offset, TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["AsyncConsumer"]

T = TypeVar("T")


class AsyncConsumer(AsyncClient, Generic[KeyOut, ValueOut]):
    """A consumer for one event loop, and one task at a time; the methods are those of `Consumer`.

    A cancelled `poll` has taken no records; a commit that is cancelled may take effect. Rebalance listeners
    are functions or coroutine functions, called inside `poll`, `unsubscribe` and `stop`.
    """

    def __init__(
        self,
        *topics: str,
        key_deserializer: DeserializerOf[KeyOut] | None = None,
        value_deserializer: DeserializerOf[ValueOut] | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        """`topics` are subscribed to at the start."""
        self._settings = ClientSettings.for_role("consumer", settings)
        self._topics = topics
        self._deserializers = (key_deserializer, value_deserializer)
        self._interceptors = tuple(interceptors)
        self._core: ConsumerCore | None = None
        self._keeper: _LoopKeeper | None = None
        self._loop: asyncio.AbstractEventLoop
        self._network: Network
        self._waiting: asyncio.Future[None] | None = None
        self._stopper: asyncio.Task[Any] | None = None
        self._is_stopped = False
        self._is_busy = False

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to work in the running event loop."""
        if self._core is not None:
            self._started()
            raise RuntimeError("the consumer was started before")
        self._loop = asyncio.get_running_loop()
        self._network = Network(self._settings, in_flight_max=IN_FLIGHT_MAX)
        self._network.resolve = resolver(self._loop, self._wake)
        key_deserializer, value_deserializer = self._deserializers
        self._core = ConsumerCore(
            self._settings,
            self._network,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=self._interceptors,
            keep=self._keep,
            wake=self._wake,
        )
        if self._topics:
            self._core.subscribe(self._topics)

    async def stop(self, timeout_ms: int = 30_000) -> None:
        """Commit if auto-commit is on, leave the group, and close the connections, as `Consumer.close`; a
        second call has no effect.
        """
        if self._core is None or self._stopper is not None:
            return
        self._stopper = asyncio.current_task()
        try:
            await self._run(lambda core: core.close(timeout_ms))
        finally:
            self._is_stopped = True
            self._network.close()

    def __del__(self) -> None:
        if getattr(self, "_core", None) is not None and not self._is_stopped:
            warnings.warn("an AsyncConsumer was not stopped", ResourceWarning, source=self, stacklevel=2)
            self._network.close()
            if self._keeper is not None:
                self._keeper.stop()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[KeyOut, ValueOut]]:
        """The records one after another, without end. Those of a poll that the caller leaves are lost to it:
        seek, or commit offsets of the records that were processed.
        """
        while True:
            for record in await self.poll():
                yield record

    # -- generated by `make docs` from `Consumer`: edit the methods there ------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others; those that were read before keep their position. Not allowed
        while subscribed.
        """
        self._started().assign(partitions)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assign: RebalanceListener | None = None,
        on_revoke: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to these topics, or to those whose whole name matches the pattern; replaces an earlier
        subscription.

        The next `poll` joins the group. The listeners are called inside `poll`, `unsubscribe` and `stop`:
        `on_revoke` while the partitions are still owned, `on_lost` (by default `on_revoke`) when another
        member may own them already. With `group_protocol="consumer"` the broker matches the pattern, as RE2.
        """
        self._started().subscribe(
            topics, pattern=pattern, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost
        )

    async def unsubscribe(self) -> None:
        """Stop reading; if topics were subscribed to, leave the group after a last automatic commit."""
        await self._run(lambda core: core.unsubscribe())

    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions."""
        return self._started().assignment()

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Continue from this offset."""
        self._started().seek(topic_partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue from the first offset of these partitions (all assigned ones if none are named), looked up
        at the next poll.
        """
        self._started().seek_to_beginning(partitions)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue from the end of these partitions (all assigned ones if none are named), looked up at the
        next poll.
        """
        self._started().seek_to_end(partitions)

    async def position(self, topic_partition: TopicPartition) -> Offset:
        """The offset of the next record that `poll` will return; looked up if needed."""
        return await self._run(lambda core: core.position(topic_partition))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching and returning records of these partitions until they are resumed."""
        self._started().pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume paused partitions."""
        self._started().resume(partitions)

    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused."""
        return self._started().paused()

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit these offsets, each that of the next record to read, or the positions of all assigned
        partitions; wait for the result.

        Raises CommitFailed if the partitions are assigned to other members, RebalanceInProgress if a poll
        must come first, and RequestTimeout.
        """
        await self._run(lambda core: core.commit(offsets, timeout_ms=timeout_ms))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting or retrying; `callback(offsets, error)` is called by a later `poll`,
        `commit` or `stop`.
        """
        self._started().commit_async(offsets, callback)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets; None for partitions without a commit."""
        return await self._run(lambda core: core.committed(partitions, timeout_ms=timeout_ms))

    def group_metadata(self) -> GroupMetadata:
        """This consumer's identity in its group, for a transactional producer that commits for it."""
        return self._started().group_metadata()

    async def poll(
        self, timeout_ms: int = 1000, max_records: int | None = None
    ) -> list[ConsumerRecord[KeyOut, ValueOut]]:
        """Up to `max_records` (`max_poll_records`) records, as soon as there are any; none if none arrive
        within the timeout.
        """
        records: list[Any] = await self._run(lambda core: core.poll(timeout_ms, max_records))
        return records

    async def poll_batches(self, timeout_ms: int = 1000) -> list[FetchedBatches]:
        """All fetched records as whole batches, without decoding or decompression."""
        return await self._run(lambda core: core.poll_batches(timeout_ms))

    async def poll_arrow(
        self, timeout_ms: int = 1000, columns: Sequence[str] | None = None
    ) -> "pyarrow.Table":
        """All fetched records as a pyarrow Table of the columns of the Spark source; `headers` only if
        `columns` names it. No deserializer or interceptor is called.
        """
        return await self._run(lambda core: core.poll_arrow(timeout_ms, columns))

    async def topics(self) -> list[str]:
        """The names of all topics except internal ones."""
        return await self._ask(lambda consumer: consumer.topics())

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic; raises UnknownTopic."""
        return await self._ask(lambda consumer: consumer.partitions_for(topic))

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The first offset of each partition."""
        return await self._ask(lambda consumer: consumer.beginning_offsets(partitions))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The offset after the last record that this consumer may read, by its `isolation_level`."""
        return await self._ask(lambda consumer: consumer.end_offsets(partitions))

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset | None]:
        """The first offset at or after each time; None if every record is older."""
        return await self._ask(lambda consumer: consumer.offsets_for_times(timestamps_ms))

    # -- end of what is generated ----------------------------------------------------------------------------

    def _started(self) -> ConsumerCore:
        if self._core is None:
            raise RuntimeError("start the consumer first: `async with AsyncConsumer(...) as consumer`")
        # The listeners that `stop` calls may still use the consumer.
        if self._is_stopped or (self._stopper is not None and asyncio.current_task() is not self._stopper):
            raise ClientClosed("the consumer is stopped")
        return self._core

    async def _ask(self, question: Callable[[Consumer], T]) -> T:
        """Ask by a short-lived blocking consumer in the loop's shared pool; such questions are rare."""
        self._started()
        settings = self._settings.without_group()

        def ask() -> T:
            with Consumer.from_settings(settings) as consumer:
                return question(consumer)

        return await self._loop.run_in_executor(None, ask)

    async def _run(self, method: Callable[[ConsumerCore], Steps[T]]) -> T:
        """Perform the steps of a method of the core in the loop; a cancellation is raised at its step."""
        core = self._started()
        if self._is_busy:
            raise RuntimeError("another task waits for a method of this consumer: it is for one at a time")
        self._is_busy = True
        steps = method(core)
        try:
            step = next(steps)
            while True:
                try:
                    await self._perform(core, step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            self._is_busy = False

    async def _perform(self, core: ConsumerCore, step: Step) -> None:
        if isinstance(step, Call):
            called = step.listener(step.partitions)
            if inspect.isawaitable(called):
                await called
        elif isinstance(step, Until):
            assert self._keeper is not None
            await self._keeper.wait(step)
        elif core.group is None:
            await self._wait_for_events(self._network.next_event(step.until, step.now))
        else:
            until = core.group.wait_begins(step.until, is_polling=step.is_polling)
            if until is not None:
                try:
                    await self._wait_for_events(self._network.next_event(until, step.now))
                finally:
                    core.group.wait_ends()

    async def _wait_for_events(self, until: Micros) -> None:
        """Wait for the sockets, for `_wake`, or until the deadline."""
        left_us = until - now_us()
        if left_us <= 0:
            await asyncio.sleep(0)
            return
        descriptor = self._network.fileno()
        future = self._waiting = self._loop.create_future()
        self._loop.add_reader(descriptor, self._wake)
        timer = self._loop.call_later(left_us / 1e6, self._wake)
        try:
            await future
        finally:
            timer.cancel()
            self._loop.remove_reader(descriptor)
            self._waiting = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _keep(self, tell: Callable[[], None]) -> "_LoopKeeper":
        self._keeper = _LoopKeeper(self._settings, tell)
        return self._keeper


class _LoopKeeper:
    """`group_thread.Keeper` in an event loop: its turns run between those of the user's tasks."""

    def __init__(self, settings: ClientSettings, tell: Callable[[], None]) -> None:
        self._network = Network(settings, in_flight_max=IN_FLIGHT_MAX)
        self._turns = GroupTurns(settings, self._network)
        self._tell = tell
        self._driver = Driver(self._network, self._turn)

    def start(self) -> None:
        """The turns begin with the first `wake`."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Nothing: one thread uses the machine."""
        return nullcontext()

    @property
    def group(self) -> Group:
        """The machine."""
        return self._turns.group

    @property
    def has_crashed(self) -> bool:
        """Whether no more turns run, because of an exception."""
        return self._driver.crash is not None

    def wake(self) -> None:
        """Run a turn soon."""
        self._driver.soon()

    def check(self) -> None:
        """Raise the exception that ended the turns, if any."""
        crash = self._driver.crash
        if crash is not None:
            raise SparklogError(f"the turns that keep the group have failed: {crash!r}") from crash

    async def wait(self, step: Until) -> None:
        """Wait until the condition of the machine holds, or a crash."""
        await self._driver.wait(lambda: step.is_over() or self.has_crashed, step.deadline)

    def stop(self) -> None:
        """End the turns, and close the connections."""
        self._driver.close()
        self._network.close()

    def _turn(self) -> Micros:
        try:
            return self._turns.turn()
        finally:
            self._driver.loop.call_soon(self._tell)
