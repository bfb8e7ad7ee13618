"""The consumer: reads partitions in offset order, as records or whole batches. The partitions are assigned by
hand, or by a consumer group.

The blocking shell of `core.ConsumerCore`. Reading, and every callback, happens in the caller's
thread, in `poll`; the next Fetch of a partition is in flight while the caller processes records. With a
`group_id`, a background thread keeps the membership alive between polls.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from sparklog.client.clock import now_us
from sparklog.client.consumer.consumer_group import RebalanceListener
from sparklog.client.consumer.core import ConsumerCore
from sparklog.client.consumer.fetch import EARLIEST, LATEST
from sparklog.client.consumer.records import (
    ConsumerInterceptor,
    ConsumerRecord,
    Deserializer,
    FetchedBatches,
)
from sparklog.client.consumer.waits import Call, Step, Steps, Until
from sparklog.client.failures import ClientClosed, UnknownTopic
from sparklog.client.membership.group_thread import IN_FLIGHT_MAX, GroupThread
from sparklog.client.membership.member import GroupMetadata
from sparklog.client.membership.offsets import CommitCallback, OffsetAndMetadata
from sparklog.client.offsets import list_offsets
from sparklog.client.settings import ClientSettings, ConsumerOptions
from sparklog.client.transport.network import Network, wait_for_topic
from sparklog.client.typed import DeserializerOf, KeyOut, ValueOut
from sparklog.model import Micros, Offset, TopicPartition
from sparklog.wire.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Consumer", "ConsumerInterceptor", "ConsumerRecord", "Deserializer", "FetchedBatches"]

T = TypeVar("T")


class Consumer(Generic[KeyOut, ValueOut]):
    """A blocking consumer. Not safe for use from several threads.

    Either partitions are assigned by hand, or topics are subscribed to as a member of the group `group_id`.
    Reading begins at the committed offset of a partition, or by `auto_offset_reset` if there is none or no
    group. Errors of a partition (CorruptRecords, OffsetOutOfRange, NoOffset, LogTruncated, BrokerError) are
    raised by `poll` once all earlier records were returned, and again until the caller seeks.
    """

    def __init__(
        self,
        *,
        key_deserializer: DeserializerOf[KeyOut] | None = None,
        value_deserializer: DeserializerOf[ValueOut] | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        self._open(
            ClientSettings.for_role("consumer", settings), key_deserializer, value_deserializer, interceptors
        )

    @classmethod
    def from_settings(cls, settings: ClientSettings) -> Self:
        """A Consumer from settings already parsed."""
        consumer = cls.__new__(cls)
        consumer._open(settings, None, None, ())
        return consumer

    def _open(
        self,
        settings: ClientSettings,
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
        interceptors: Sequence[ConsumerInterceptor],
    ) -> None:
        self._settings = settings
        has_group = settings.group_id is not None
        self._network = Network(settings, in_flight_max=IN_FLIGHT_MAX, can_be_woken=has_group)
        self._thread: GroupThread | None = None
        self._closer: int | None = None  # the thread that has called `close`
        self._is_closed = False
        self._core = ConsumerCore(
            settings,
            self._network,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=interceptors,
            keep=self._keep,
            wake=self._network.wake,
        )

    # -- positions and assignment ----------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others; those that were read before keep their position. Not allowed
        while subscribed.
        """
        self._usable().assign(partitions)

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

        The next `poll` joins the group. The listeners are called inside `poll`, `unsubscribe` and `close`:
        `on_revoke` while the partitions are still owned, `on_lost` (by default `on_revoke`) when another
        member may own them already. With `group_protocol="consumer"` the broker matches the pattern, as RE2.
        """
        self._usable().subscribe(
            topics, pattern=pattern, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost
        )

    def unsubscribe(self) -> None:
        """Stop reading; if topics were subscribed to, leave the group after a last automatic commit."""
        self._run(self._usable().unsubscribe())

    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions."""
        return self._usable().assignment()

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Continue from this offset."""
        self._usable().seek(topic_partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue from the first offset of these partitions (all assigned ones if none are named), looked up
        at the next poll.
        """
        self._usable().seek_to_beginning(partitions)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue from the end of these partitions (all assigned ones if none are named), looked up at the
        next poll.
        """
        self._usable().seek_to_end(partitions)

    def position(self, topic_partition: TopicPartition) -> Offset:
        """The offset of the next record that `poll` will return; looked up if needed."""
        return self._run(self._usable().position(topic_partition))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching and returning records of these partitions until they are resumed."""
        self._usable().pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume paused partitions."""
        self._usable().resume(partitions)

    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused."""
        return self._usable().paused()

    # -- the group's offsets ---------------------------------------------------------------------------------

    def commit(
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
        self._run(self._usable().commit(offsets, timeout_ms=timeout_ms))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting or retrying; `callback(offsets, error)` is called by a later `poll`,
        `commit` or `close`.
        """
        self._usable().commit_async(offsets, callback)

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets; None for partitions without a commit."""
        return self._run(self._usable().committed(partitions, timeout_ms=timeout_ms))

    def group_metadata(self) -> GroupMetadata:
        """This consumer's identity in its group, for a transactional producer that commits for it."""
        return self._usable().group_metadata()

    # -- reading ---------------------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: int = 1000, max_records: int | None = None
    ) -> list[ConsumerRecord[KeyOut, ValueOut]]:
        """Up to `max_records` (`max_poll_records`) records, as soon as there are any; none if none arrive
        within the timeout.
        """
        records: list[Any] = self._run(self._usable().poll(timeout_ms, max_records))
        return records

    def poll_batches(self, timeout_ms: int = 1000) -> list[FetchedBatches]:
        """All fetched records as whole batches, without decoding or decompression."""
        return self._run(self._usable().poll_batches(timeout_ms))

    def poll_arrow(self, timeout_ms: int = 1000, columns: Sequence[str] | None = None) -> "pyarrow.Table":
        """All fetched records as a pyarrow Table of the columns of the Spark source; `headers` only if
        `columns` names it. No deserializer or interceptor is called.
        """
        return self._run(self._usable().poll_arrow(timeout_ms, columns))

    def __iter__(self) -> Iterator[ConsumerRecord[KeyOut, ValueOut]]:
        """The records one after another, without end."""
        while True:
            yield from self.poll()

    # -- questions -------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """The names of all topics except internal ones."""
        request = MetadataRequest(None, allow_auto_topic_creation=False)
        reply = self._usable().network.call(request, MetadataResponse, deadline=self._deadline())
        return sorted(topic.name for topic in reply.topics if topic.name and not topic.is_internal)

    def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic; raises UnknownTopic."""
        self._usable()
        view = self._network.cluster.topics.get(topic)
        if view is None:
            was_allowed, self._network.allow_auto_create = self._network.allow_auto_create, False
            try:
                wait_for_topic(self._network, topic, self._deadline(), is_patient=False)
            finally:
                self._network.allow_auto_create = was_allowed
            view = self._network.cluster.topics.get(topic)
        if view is None:
            raise UnknownTopic(f"there is no topic {topic!r}")
        return [partition.partition for partition in view.partitions]

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The first offset of each partition."""
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The offset after the last record that this consumer may read, by its `isolation_level`."""
        return self._offsets(dict.fromkeys(partitions, LATEST))

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset | None]:
        """The first offset at or after each time; None if every record is older."""
        return {
            partition: offset if offset >= 0 else None
            for partition, offset in self._offsets(timestamps_ms).items()
        }

    def close(self, timeout_ms: int = 30_000) -> None:
        """Commit if auto-commit is on, leave the group (a static member stays in it), and close the
        connections.

        Steps that are not done after `timeout_ms` are skipped; the group then removes the member at its
        session timeout. A second call has no effect.
        """
        if self._closer is not None:
            return
        self._closer = threading.get_ident()
        try:
            self._run(self._core.close(timeout_ms))
        finally:
            self._is_closed = True
            self._network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside ----------------------------------------------------------------------------------------------

    def _usable(self) -> ConsumerCore:
        """The core. Raises ClientClosed once `close` has begun, except in the listeners that it calls."""
        if self._is_closed or self._closer not in (None, threading.get_ident()):
            raise ClientClosed("the consumer is closed")
        self._network.check_process()
        return self._core

    def _keep(self, tell: Callable[[], None]) -> GroupThread:
        self._thread = GroupThread(self._settings, tell)
        return self._thread

    def _run(self, steps: Steps[T]) -> T:
        """Perform the steps of the core in this thread."""
        try:
            step = next(steps)
            while True:
                try:
                    self._perform(step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result

    def _perform(self, step: Step) -> None:
        if isinstance(step, Call):
            step.listener(step.partitions)
        elif isinstance(step, Until):
            assert self._thread is not None
            with self._thread.lock:
                self._thread.wait_for(step.is_over, step.deadline)
        else:
            group, network = self._core.group, self._network
            if group is None:
                network.wait(network.next_event(step.until, step.now))
            elif (until := group.wait_begins(step.until, is_polling=step.is_polling)) is not None:
                network.wait(network.next_event(until, step.now))
                group.wait_ends()

    def _deadline(self) -> Micros:
        return Micros(now_us() + self._settings.default_api_timeout_ms * 1000)

    def _offsets(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        self._usable()
        level, deadline = self._settings.isolation_level, self._deadline()
        found = list_offsets(self._network, positions, isolation_level=level, deadline=deadline)
        return {partition: Offset(found[partition][0]) for partition in positions}
