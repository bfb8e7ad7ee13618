"""A consumer without its waits: assignment, positions, fetched records, and the group.

`fetch.Fetcher` decides, `network.Network` sends and receives. The methods that wait, or call listeners, are
generators of `waits.py`; `Consumer` performs their steps by blocking, `AsyncConsumer` in an event loop.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING

from sparklog.client.clock import entropy, instant, now_us
from sparklog.client.consumer.chunk import Chunk
from sparklog.client.consumer.consumer_group import ConsumerGroup, Listeners, RebalanceListener
from sparklog.client.consumer.fetch import EARLIEST, LATEST, Errand, Fetcher
from sparklog.client.consumer.patterns import topic_pattern
from sparklog.client.consumer.records import (
    ConsumerInterceptor,
    ConsumerRecord,
    Deserializer,
    FetchedBatches,
    batches_of,
    deserialize,
)
from sparklog.client.consumer.waits import Events, Steps
from sparklog.client.failures import CorruptRecords
from sparklog.client.membership.group_thread import Keeper
from sparklog.client.membership.member import GroupMetadata, Subscription
from sparklog.client.membership.offsets import CommitCallback, OffsetAndMetadata, positions_of
from sparklog.client.settings import ClientSettings
from sparklog.client.transport.connection import UnsupportedByBroker
from sparklog.client.transport.network import Network
from sparklog.errors import RequestTimeout, SettingsError, SparklogError
from sparklog.model import Micros, Offset, TopicPartition
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse

if TYPE_CHECKING:
    import pyarrow


class ConsumerCore:
    """A blocking consumer. Not safe for use from several threads.

    Either partitions are assigned by hand, or topics are subscribed to as a member of the group `group_id`.
    Reading begins at the committed offset of a partition, or by `auto_offset_reset` if there is none or no
    group. Errors of a partition (CorruptRecords, OffsetOutOfRange, NoOffset, LogTruncated, BrokerError) are
    raised by `poll` once all earlier records were returned, and again until the caller seeks.
    """

    def __init__(
        self,
        settings: ClientSettings,
        network: Network,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        keep: Callable[[Callable[[], None]], Keeper],
        wake: Callable[[], None],
    ) -> None:
        """`keep` and `wake` as for `ConsumerGroup`; they are called only with a `group_id`."""
        self.settings = settings
        self._settings = settings
        self.network = network
        self._network = network
        network.allow_auto_create = settings.allow_auto_create_topics
        self._fetcher = Fetcher(settings, network.cluster, entropy)
        self._deserializers = (key_deserializer, value_deserializer)
        self._interceptors = tuple(interceptors)
        self._decoded: list[ConsumerRecord] = []  # of a batch that was returned in part
        self.group: ConsumerGroup | None = None
        if settings.group_id is not None:
            self.group = ConsumerGroup(
                settings,
                network,
                self._fetcher,
                put_back=self._put_back,
                position_of=self._position_now,
                keep=keep,
                wake=wake,
            )
        self._group = self.group

    # -- positions and assignment ----------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others; those that were read before keep their position. Not allowed
        while subscribed.
        """
        if self._group is not None and self._group.is_subscribed:
            raise ValueError(
                "partitions are assigned by the group while topics are subscribed to: unsubscribe first"
            )
        self._put_back()
        self._fetcher.assign(TopicPartition(*partition) for partition in partitions)
        if self._group is not None:
            self._group.hold_new()

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
        names = tuple(dict.fromkeys([topics] if isinstance(topics, str) else topics))
        text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
        if bool(names) == (text is not None):
            raise ValueError("subscribe to topics or to a pattern; unsubscribe() takes a subscription back")
        group = self._in_group("subscribe")
        if not group.is_subscribed:
            self.assign(())
        if text is not None and self._settings.group_protocol == "classic":
            topic_pattern(text)
        group.subscribe(Subscription(names, text), Listeners(on_assign, on_revoke, on_lost))

    def unsubscribe(self) -> Steps[None]:
        """Stop reading; if topics were subscribed to, leave the group after a last automatic commit."""
        if self._group is not None and self._group.is_subscribed:
            yield from self._group.unsubscribe(self._deadline())
        self.assign(())

    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions."""
        return self._fetcher.assignment

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Continue from this offset."""
        if offset < 0:
            raise ValueError(f"offset {offset} is below zero")
        self._put_back()
        self._fetcher.seek(topic_partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue from the first offset of these partitions (all assigned ones if none are named), looked up
        at the next poll.
        """
        self._put_back()
        for partition in list(partitions) or self.assignment():
            self._fetcher.seek(partition, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue from the end of these partitions (all assigned ones if none are named), looked up at the
        next poll.
        """
        self._put_back()
        for partition in list(partitions) or self.assignment():
            self._fetcher.seek(partition, LATEST)

    def position(self, topic_partition: TopicPartition) -> Steps[Offset]:
        """The offset of the next record that `poll` will return; looked up if needed."""
        deadline = self._deadline()
        if self._group is not None:
            self._group.find_positions()
        while True:
            offset = self._position_now(topic_partition)
            if offset is not None:
                return Offset(offset)
            self._fetcher.raise_failure(topic_partition)
            if now_us() >= deadline:
                raise RequestTimeout(f"no position of {topic_partition} in time")
            yield from self._turn(deadline)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching and returning records of these partitions until they are resumed."""
        self._put_back()
        for partition in partitions:
            self._fetcher.pause(partition, is_paused=True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume paused partitions."""
        for partition in partitions:
            self._fetcher.pause(partition, is_paused=False)

    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused."""
        return self._fetcher.paused()

    # -- the group's offsets ---------------------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Steps[None]:
        """Commit these offsets, each that of the next record to read, or the positions of all assigned
        partitions; wait for the result.

        Raises CommitFailed if the partitions are assigned to other members, RebalanceInProgress if a poll
        must come first, and RequestTimeout.
        """
        group = self._in_group("commit")
        yield from group.commit(
            group.consumed() if offsets is None else positions_of(offsets), self._deadline(timeout_ms)
        )

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting or retrying; `callback(offsets, error)` is called by a later `poll`,
        `commit` or `close`.
        """
        group = self._in_group("commit")
        positions = group.consumed() if offsets is None else positions_of(offsets)
        if positions or callback is not None:
            group.commit_async(positions, callback, self._deadline())

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata | None]]:
        """The group's committed offsets; None for partitions without a commit."""
        wanted = [TopicPartition(*partition) for partition in partitions]
        group = self._in_group("committed")
        found = (yield from group.committed(wanted, self._deadline(timeout_ms))) if wanted else {}
        return {partition: found.get(partition) for partition in wanted}

    def group_metadata(self) -> GroupMetadata:
        """This consumer's identity in its group, for a transactional producer that commits for it."""
        return self._in_group("group_metadata").metadata

    # -- reading ---------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int, max_records: int | None) -> Steps[list[ConsumerRecord]]:
        """Up to `max_records` (`max_poll_records`) records, as soon as there are any; none if none arrive
        within the timeout.
        """
        limit = self._settings.max_poll_records if max_records is None else max_records
        records: list[ConsumerRecord] = []
        try:
            yield from self._poll(records, limit, Micros(now_us() + timeout_ms * 1000))
            return reduce(lambda seen, intercept: intercept(seen), self._interceptors, records)
        except BaseException:
            self._put_back()
            self._fetcher.read_again((record.topic_partition, record.offset) for record in records)
            raise

    def poll_batches(self, timeout_ms: int) -> Steps[list[FetchedBatches]]:
        """All fetched records as whole batches, without decoding or decompression."""
        self._put_back()
        batches: list[FetchedBatches] = []
        deadline = Micros(now_us() + timeout_ms * 1000)
        try:
            yield from self._poll_begins()
            while True:
                while (chunk := self._next_chunk(is_first=not batches)) is not None:
                    batches += batches_of(chunk)
                    self._fetcher.taken(chunk)
                is_late = now_us() >= deadline
                yield from self._turn(
                    now_us() if batches or is_late else deadline, is_polling=True, has_records=bool(batches)
                )
                if batches or is_late:
                    return batches
        finally:
            self._poll_ends()

    def poll_arrow(self, timeout_ms: int, columns: Sequence[str] | None) -> Steps["pyarrow.Table"]:
        """All fetched records as a pyarrow Table of the columns of the Spark source; `headers` only if
        `columns` names it. No deserializer or interceptor is called.
        """
        from sparklog.client.tables import table_of
        from sparklog.column_types import DEFAULT_COLUMNS

        wanted = columns or DEFAULT_COLUMNS
        table_of((), wanted)  # refuses an unknown column
        batches = yield from self.poll_batches(timeout_ms)
        try:
            return table_of(batches, wanted)
        except BaseException:
            self._fetcher.read_again((one.topic_partition, one.fetch_offset) for one in batches)
            raise

    # -- questions -------------------------------------------------------------------------------------------

    def close(self, timeout_ms: int) -> Steps[None]:
        """Commit if auto-commit is on, leave the group (a static member stays in it), and close the
        connections.

        Steps that are not done after `timeout_ms` are skipped; the group then removes the member at its
        session timeout.
        """
        try:
            if self._group is not None and not self._network.is_forked:
                yield from self._group.close(Micros(now_us() + timeout_ms * 1000))
        finally:
            self._network.close()

    # -- inside ----------------------------------------------------------------------------------------------

    def _deadline(self, timeout_ms: int | None = None) -> Micros:
        return Micros(
            now_us() + (self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms) * 1000
        )

    def _in_group(self, what: str) -> ConsumerGroup:
        if self._group is None:
            raise SettingsError(f"{what} needs a group: give the consumer a group_id")
        return self._group

    def _position_now(self, partition: TopicPartition) -> int | None:
        """The offset of the next record for the caller; None while it is being looked up."""
        if self._decoded and self._decoded[0].topic_partition == partition:
            return self._decoded[0].offset
        return self._fetcher.position(partition)

    def _poll(self, records: list[ConsumerRecord], limit: int, deadline: Micros) -> Steps[None]:
        try:
            yield from self._poll_begins()
            while True:
                while len(records) < limit and self._collect(records, limit):
                    pass
                is_late = now_us() >= deadline
                # Also with fetched records: this sends the next Fetch before the caller processes them.
                yield from self._turn(
                    now_us() if records or is_late else deadline, is_polling=True, has_records=bool(records)
                )
                if records or is_late:
                    return
        finally:
            self._poll_ends()

    def _poll_begins(self) -> Steps[None]:
        self._network.check_process()
        if self._group is not None:
            self._group.poll_begins()
            yield from self._group.rebalance()
            self._group.find_positions()

    def _poll_ends(self) -> None:
        if self._group is not None:
            self._group.poll_ends()

    def _next_chunk(self, *, is_first: bool) -> Chunk | None:
        """The next chunk. If this poll has records already, errors are left to the next poll."""
        try:
            return self._fetcher.next_chunk()
        except SparklogError:
            if is_first:
                raise
            return None

    def _collect(self, records: list[ConsumerRecord], limit: int) -> bool:
        """Add records of one batch; returns whether there was a batch."""
        if not self._decoded:
            chunk = self._next_chunk(is_first=not records)
            if chunk is None:
                return False
            try:
                self._decoded = chunk.next_batch(partial(ConsumerRecord, *chunk.topic_partition))
            except CorruptRecords:
                if records:
                    return False
                raise
            self._fetcher.advanced(chunk)
        room = limit - len(records)
        taken, left = self._decoded[:room], self._decoded[room:]
        if self._deserializers == (None, None):
            records += taken
        elif (count := deserialize(*self._deserializers, taken, records)) < len(taken):
            left = self._decoded[count:]
        is_whole = len(left) + len(taken) == len(self._decoded)
        self._decoded = left
        return is_whole

    def _put_back(self) -> None:
        """Return the rest of a batch to the fetcher, because the caller moves its position."""
        if self._decoded:
            first, self._decoded = self._decoded[0], []
            if first.topic_partition in self._fetcher.assignment:
                epoch = self._fetcher.consumed_epoch(first.topic_partition)
                self._fetcher.seek(first.topic_partition, first.offset, epoch)

    def _turn(self, deadline: Micros, *, is_polling: bool = False, has_records: bool = False) -> Steps[None]:
        """Send the machine's requests, wait until `deadline` for an answer or for the group, and process
        the answers.

        No answer is processed before the wait, because the caller has not seen its effect. While fetched
        records wait for the caller, the group is not polled.
        """
        now = now_us()
        self._network.raise_refusal()
        self._send(now)
        wake = self._fetcher.deadline(now)
        deadline = deadline if wake is None else min(deadline, wake)
        if now < deadline:
            yield Events(deadline, now, is_polling)
        for answer in self._network.poll(now):
            if not isinstance(answer.token, Errand):
                continue
            message = answer.message
            if isinstance(message, FetchResponse | ListOffsetsResponse | OffsetForLeaderEpochResponse):
                self._fetcher.replied(answer.token, message, now_us())
            else:
                assert answer.error is not None
                self._fetcher.failed(answer.token, answer.error, now_us())
        if self._group is not None and not has_records:
            if is_polling:
                yield from self._group.rebalance()
            self._group.find_positions()
        self._send(now_us())

    def _send(self, now: Micros) -> None:
        if self._settings.reset_duration_ms is not None:
            self._fetcher.wall_ms = instant().wall_ms
        for errand in self._fetcher.errands(now, self._network.is_ready):
            try:
                self._network.send(errand.node, errand.request, errand, version_max=errand.version_max)
            except UnsupportedByBroker as error:
                self._fetcher.failed(errand, error, now)
