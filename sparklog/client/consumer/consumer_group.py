"""The part of a consumer group that runs in the user's thread: rebalance listeners, positions from commits,
and commits of positions.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sparklog.client.clock import now_us
from sparklog.client.consumer.fetch import Fetcher
from sparklog.client.consumer.waits import Call, Steps, Until
from sparklog.client.membership.group_thread import Keeper
from sparklog.client.membership.member import GroupMetadata, Step, StepKind, Subscription
from sparklog.client.membership.offsets import CommitCallback, Job, OffsetAndMetadata, Offsets
from sparklog.client.settings import ClientSettings
from sparklog.client.transport.network import Network
from sparklog.errors import BrokerError, RequestTimeout, SparklogError
from sparklog.model import Micros, TopicPartition

RebalanceListener = Callable[[tuple[TopicPartition, ...]], object]
"""Under an `AsyncConsumer` it may be a coroutine function."""
_MS: Final = 1000
_DEFAULT_WAIT_US: Final = 30_000_000
_TOLD: Final = {StepKind.REVOKE: "revoked", StepKind.LOSE: "lost", StepKind.ASSIGN: "assigned"}
_NAP_US: Final = 100_000
"""The shortest wait before an automatic commit: a waiting poll must not wake for each millisecond of the
interval.
"""


class Listeners:
    """The callbacks for partitions that are assigned, revoked or lost (`on_revoke` is called if there is
    no `on_lost`).
    """

    __slots__ = ("on_assign", "on_lost", "on_revoke")

    def __init__(
        self,
        on_assign: RebalanceListener | None = None,
        on_revoke: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
    ) -> None:
        self.on_assign = on_assign
        self.on_revoke = on_revoke
        self.on_lost = on_lost or on_revoke


class ConsumerGroup:
    """The group of one consumer. Not safe for use from several threads; the membership is kept by a
    `group_thread.Keeper`.
    """

    def __init__(
        self,
        settings: ClientSettings,
        network: Network,
        fetcher: Fetcher,
        *,
        put_back: Callable[[], None],
        position_of: Callable[[TopicPartition], int | None],
        keep: Callable[[Callable[[], None]], Keeper],
        wake: Callable[[], None],
    ) -> None:
        """`keep` makes the keeper, which calls the given function after each turn; `wake` ends the wait of
        the consumer for its network.
        """
        self._settings = settings
        self._network = network
        self._fetcher = fetcher
        self._put_back = put_back
        self._position_of = position_of
        self._listeners = Listeners()
        self._lookup: Job | None = None
        self._auto: Job | None = None
        self._auto_at: Micros | None = None
        self._is_waiting = False
        self._is_closed = False
        self._subscribed: tuple[str, ...] = ()  # topics by name
        self.is_subscribed = False
        self._wake = wake
        self._keeper = keep(self._wake_user)
        self._keeper.start()

    @property
    def metadata(self) -> GroupMetadata:
        """This consumer's identity in the group."""
        with self._keeper.lock:
            return self._keeper.group.identity

    # -- subscribing -----------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, listeners: Listeners) -> None:
        """Subscribe to these topics from the next poll on."""
        self._listeners = listeners
        self.is_subscribed = True
        self._subscribed = tuple(subscription.topics)
        self._network.cluster.want_only(
            [*subscription.topics, *(partition.topic for partition in self._fetcher.assignment)]
        )
        with self._keeper.lock:
            self._keeper.group.subscribe(subscription, now_us())
        self._keeper.wake()

    def unsubscribe(self, deadline: Micros) -> Steps[None]:
        """Revoke all partitions, after a last automatic commit, and leave the group."""
        try:
            yield from self._give_up(deadline)
        finally:
            self._subscribed = ()
            self._take(())
            self.is_subscribed = False
            with self._keeper.lock:
                self._keeper.group.leave(now_us())
            self._keeper.wake()

    def close(self, deadline: Micros) -> Steps[None]:
        """As `unsubscribe`; waits until the group has been informed, at most until `deadline`."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self.is_subscribed:
                yield from self.unsubscribe(deadline)
            else:
                yield from self._commit_automatically(self._fetcher.assignment, deadline)
        finally:
            self._keeper.wake()
            try:
                yield Until(self._is_settled, deadline)
            finally:
                self._keeper.stop()
                self._call_back()

    def _is_settled(self) -> bool:
        group = self._keeper.group
        return group.member.has_left and group.offsets.is_idle

    def _give_up(self, deadline: Micros) -> Steps[None]:
        with self._keeper.lock:
            owned = self._keeper.group.member.steps.owned
            is_lost = self._keeper.group.identity.generation_id < 0
        if not is_lost:
            yield from self._commit_automatically(owned, deadline)
        listener = self._listeners.on_lost if is_lost else self._listeners.on_revoke
        if owned and listener is not None:
            yield Call(listener, owned)

    # -- polling ---------------------------------------------------------------------------------------------

    def poll_begins(self) -> None:
        """Begin a poll: join the group if needed, and auto-commit the records returned before; raises errors
        that waiting does not resolve.
        """
        now = now_us()
        with self._keeper.lock:
            self._keeper.check()
            group = self._keeper.group
            had_started = group.step is not None or group.identity.generation_id >= 0
            group.member.polled(now, is_inside=True)
            error = group.error if self.is_subscribed else None
        if error is not None:
            raise error
        if self.is_subscribed and not had_started:
            self._keeper.wake()
        self._call_back()

    def poll_ends(self) -> None:
        """End a poll: the next one is due in `max_poll_interval_ms`."""
        with self._keeper.lock:
            self._keeper.group.member.polled(now_us(), is_inside=False)

    def rebalance(self) -> Steps[None]:
        """Perform the steps that the group needs from this thread: call the listeners, and auto-commit.

        Only while no fetched record waits for the user.
        """
        self._commit_now_and_then(now_us())
        if not self.is_subscribed:
            return
        while True:
            with self._keeper.lock:
                self._keeper.check()
                group = self._keeper.group
                if group.error is not None:
                    raise group.error
                if group.step is None:
                    return
                step = group.member.steps.begin()
            try:
                yield from self._do(step)
            finally:
                with self._keeper.lock:
                    group.member.step_done(now_us())
                self._keeper.wake()

    def find_positions(self) -> None:
        """Set the positions of partitions whose committed offsets were found; look up those of the others."""
        self._keeper.check()
        job = self._lookup
        if job is not None and job.is_done:
            self._lookup = None
            if isinstance(job.error, BrokerError):
                raise job.error
            awaiting = self._fetcher.awaiting_committed()
            for partition in job.wanted if job.error is None else ():
                found = job.found.get(partition)
                if partition in awaiting and found is not None:
                    self._fetcher.seek(partition, found.offset, found.leader_epoch)
                elif partition in awaiting:
                    self._fetcher.reset(partition)
        awaiting = self._fetcher.awaiting_committed()
        if awaiting and self._lookup is None:
            self._lookup = self._look_up(awaiting)
            self._keeper.wake()

    def hold_new(self) -> None:
        """Hold newly assigned partitions until the group's offsets are known.

        A look-up that includes a partition revoked meanwhile is dropped: while the partition was away, its
        next owner may have committed.
        """
        if self._lookup is not None and not set(self._lookup.wanted) <= set(self._fetcher.assignment):
            self._lookup = None
        for partition in self._fetcher.assignment:
            self._fetcher.hold(partition)

    def wait_begins(self, until: Micros, *, is_polling: bool) -> Micros | None:
        """The time until which the consumer may wait for its network; None if the group needs it now."""
        with self._keeper.lock:
            if self._has_news(is_polling=is_polling):
                return None
            self._is_waiting = True
        if self._auto_at is not None and is_polling:
            return min(until, max(self._auto_at, Micros(now_us() + _NAP_US)))
        return until

    def wait_ends(self) -> None:
        """Note that the wait is over."""
        self._is_waiting = False

    def _has_news(self, *, is_polling: bool) -> bool:
        group = self._keeper.group
        is_found = self._lookup is not None and self._lookup.is_done
        return (
            is_found
            or self._keeper.has_crashed
            or (is_polling and self.is_subscribed and (group.step is not None or group.error is not None))
        )

    def _wake_user(self) -> None:
        """Called by the group's thread after each of its turns."""
        with self._keeper.lock:
            if not self._is_waiting or not self._has_news(is_polling=True):
                return
            self._is_waiting = False
        self._wake()

    def _do(self, step: Step) -> Steps[None]:
        on = self._listeners
        self._network.reports.rebalanced(_TOLD[step.kind], self._settings.group_id, step.partitions, now_us())
        if step.kind is StepKind.ASSIGN:
            self._take(step.owned)
            if on.on_assign is not None:
                yield Call(on.on_assign, step.partitions)
            return
        if step.kind is StepKind.REVOKE:
            wait_ms = min(self._settings.default_api_timeout_ms, self._settings.max_poll_interval_ms)
            yield from self._commit_automatically(step.partitions, Micros(now_us() + wait_ms * _MS))
        try:
            listener = on.on_revoke if step.kind is StepKind.REVOKE else on.on_lost
            if listener is not None:
                yield Call(listener, step.partitions)
        finally:
            self._take(step.owned)

    def _take(self, owned: tuple[TopicPartition, ...]) -> None:
        self._put_back()
        self._fetcher.assign(owned, self._subscribed)
        self.hold_new()

    # -- offsets ---------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets, deadline: Micros) -> Steps[None]:
        """Commit and wait; retriable errors are retried until `deadline`."""
        self._call_back()
        if offsets:
            with self._keeper.lock:
                job = self._keeper.group.commit(Job(deadline=deadline, offsets=dict(offsets)))
            yield from self._finish(job)
        self._call_back()

    def commit_async(self, offsets: Offsets, callback: CommitCallback | None, deadline: Micros) -> Job:
        """Commit without waiting, once; the callback is called by a later poll, commit or close."""
        self._call_back()
        job = Job(deadline=deadline, offsets=dict(offsets), may_retry=False, callback=callback)
        with self._keeper.lock:
            self._keeper.check()
            self._keeper.group.commit(job)
        self._keeper.wake()
        return job

    def committed(
        self, partitions: Iterable[TopicPartition], deadline: Micros
    ) -> Steps[Mapping[TopicPartition, OffsetAndMetadata]]:
        """The group's committed offsets."""
        with self._keeper.lock:
            job = self._keeper.group.offsets.add(
                Job(deadline=deadline, wanted=tuple(dict.fromkeys(partitions)))
            )
        yield from self._finish(job)
        return job.found

    def _finish(self, job: Job) -> Steps[None]:
        """Wait for a job, which ends by its own deadline; raises its error."""
        self._keeper.wake()
        yield Until(lambda: job.is_done, Micros(job.deadline + _DEFAULT_WAIT_US))
        self._keeper.check()
        if not job.is_done:
            raise RequestTimeout("the group's coordinator was not asked in time")
        if job.error is not None:
            raise job.error

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The position of the user, for every partition that has one."""
        return self._consumed(self._fetcher.assignment)

    def _consumed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        stands = {partition: self._position_of(partition) for partition in partitions}
        return {
            partition: OffsetAndMetadata(offset, "", self._fetcher.consumed_epoch(partition))
            for partition, offset in stands.items()
            if offset is not None
        }

    def _look_up(self, partitions: tuple[TopicPartition, ...]) -> Job:
        deadline = Micros(now_us() + self._settings.default_api_timeout_ms * _MS)
        with self._keeper.lock:
            return self._keeper.group.offsets.add(Job(deadline=deadline, wanted=partitions))

    def _commit_now_and_then(self, now: Micros) -> None:
        """Commit every `auto_commit_interval_ms`; the next commit covers one that failed."""
        if not self._settings.enable_auto_commit or (self._auto_at is not None and now < self._auto_at):
            return
        is_first, self._auto_at = (
            self._auto_at is None,
            Micros(now + self._settings.auto_commit_interval_ms * _MS),
        )
        consumed = self.consumed()
        if consumed and not is_first and (self._auto is None or self._auto.is_done):
            try:
                self._auto = self.commit_async(
                    consumed, None, Micros(now + self._settings.default_api_timeout_ms * _MS)
                )
            except SparklogError:
                return  # The member is outside of the group: the next step reports it, or the member rejoins.

    def _commit_automatically(self, partitions: Iterable[TopicPartition], deadline: Micros) -> Steps[None]:
        """Commit before partitions are revoked. Errors are ignored: the next owner reads some records
        again.
        """
        if not self._settings.enable_auto_commit:
            return
        assigned = self._fetcher.assignment
        consumed = self._consumed(partition for partition in partitions if partition in assigned)
        if consumed:
            try:
                yield from self.commit(consumed, deadline)
            except SparklogError:
                return

    def _call_back(self) -> None:
        with self._keeper.lock:
            jobs = self._keeper.group.offsets.take_callbacks()
        for job in jobs:
            assert job.callback is not None
            assert job.offsets is not None
            job.callback(job.offsets, job.error)
