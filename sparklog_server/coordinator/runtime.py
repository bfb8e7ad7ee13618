"""The runtime of coordinator shards: one for each partition of an internal topic that this broker leads.

    elected ──► LOADING: a job reads a window, `replay` takes it in slices ──► ACTIVE ──► dropped
                   └── a batch or a record cannot be read ──► FAILED, until another leader is elected

    command ─► shard.decide ─► records replayed, gathered ─► one batch at the end of a turn ─► answers parked
                                                                                                   │
                                                    high watermark passes the end of the batch ◄───┘

An answer waits until every record before it is committed, because a failover could undo uncommitted records.
If an append is refused, or leadership is lost, the shard is dropped with its soft state, and the commands
without an answer are refused. A shard is loaded anew if its log ends elsewhere than expected, or if the
partition refused a batch and this broker still leads.

Records in a producer's transaction are appended in a batch of their own before they are replayed, because
the log may refuse them. The marker that ends the transaction keeps its place among the other batches.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from sparklog.effects import FileSlice
from sparklog.errors import DecodeError, ErrorCode
from sparklog.model import Instant, LeaderEpoch, Micros
from sparklog.record.control import Marker
from sparklog.wire.schema import Message
from sparklog_server.agenda import Agenda
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.metadata.image import MetadataDelta, MetadataImage
from sparklog_server.outcome import Refused

from .command import Command, Token
from .partition_writer import LogMoved, ShardPartition
from .shard import Answer, Decision, Shard
from .timers import Timers

if TYPE_CHECKING:
    from .active_shard import ActiveShard
    from .loader import CoordinatorLoader, Window

_NONE: Final = ErrorCode.NONE  # Reading an enum member through its class costs as much as two calls.
_RELOAD_US = 1_000_000
"""The delay before a shard is loaded anew whose batch the partition refused: the cause may last."""
_RELOAD_FULL_US = 5_000_000
"""The delay if the disk is full, which lasts longer; each load reads the partition."""
_SLICE_RECORDS = 24
"""The records replayed in one turn: about 0.1 ms (64 gave other requests a p99 of 1.5 ms)."""

_OF_THE_PRODUCER: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)
"""Codes by which the log refuses a producer or its coordinator; the shard stays."""


class Written(Message):
    """The reply to a marker that is committed."""


WRITTEN: Final = Written()


class CoordinatorRuntime:
    """The shards of one internal topic on this node, by partition.

    The broker drains `answers` and `refused` (tokens with their error codes) each turn, after `flush`.
    """

    def __init__(
        self,
        topic: str,
        make_shard: Callable[[], Shard],
        continuations: Continuations,
        agenda: Agenda,
        *,
        entropy: Callable[[int], bytes],
        trace: Callable[..., None],
    ) -> None:
        self.answers: list[Answer] = []
        self.refused: list[tuple[Token, ErrorCode]] = []
        self._topic = topic
        self._make_shard = make_shard
        self._continuations = continuations
        self._agenda = agenda
        self._entropy = entropy
        self._trace = trace
        self._image = MetadataImage()
        self._active: dict[int, ActiveShard] = {}
        self._gathering: dict[int, None] = {}
        self._replaying: dict[int, None] = {}
        self._timers: Timers[int] = Timers()
        self._reloads: dict[int, tuple[Micros, ShardPartition, LeaderEpoch]] = {}
        self._dropped: dict[int, None] = {}
        self._failed: dict[int, ActiveShard] = {}

    # -- leadership

    def elected(self, index: int, partition: ShardPartition, now: Instant) -> None:
        """This broker leads the partition: load its shard."""
        epoch = partition.leader_epoch
        if epoch is None:
            return
        self.resigned(index, ErrorCode.NOT_COORDINATOR)
        from .active_shard import ActiveShard
        from .loader import CoordinatorLoader

        loading = CoordinatorLoader(partition.log_start_offset, partition.log_end_offset, now)
        self._dropped.pop(index, None)
        self._active[index] = ActiveShard(index, self._make_shard(), partition, epoch, loading)
        self._load_on(index, now)

    def resigned(self, index: int, code: ErrorCode) -> None:
        """Drop a shard, and refuse its unanswered commands with `code`."""
        active = self._active.pop(index, None)
        self._reloads.pop(index, None)
        self._failed.pop(index, None)
        self._gathering.pop(index, None)
        self._replaying.pop(index, None)
        if active is None:
            return
        self._timers.cancel(active.timer)
        active.shard.dropped()
        self._dropped[index] = None
        self.refused.extend((token, code) for token in active.unanswered())
        self._agenda.has_coordination = True
        self._trace("coordinator-unloaded", partition=f"{self._topic}-{index}", reason=code.name)

    def _resign_for_a_moment(self, index: int, active: "ActiveShard", code: ErrorCode, now: Instant) -> None:
        """Drop a shard whose partition refused a batch, and load it anew after a delay."""
        self.resigned(index, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if active.partition.leader_epoch == active.epoch:
            after_us = _RELOAD_FULL_US if code is ErrorCode.KAFKA_STORAGE_ERROR else _RELOAD_US
            self._reloads[index] = Micros(now.mono_us + after_us), active.partition, active.epoch
            self._agenda.has_deadlines = True

    def _reload(self, now: Instant) -> None:
        for index, (due, partition, epoch) in list(self._reloads.items()):
            if partition.leader_epoch != epoch:
                del self._reloads[index]
            elif due <= now.mono_us:
                self.elected(index, partition, now)

    def check(self) -> None:
        """Drop the shards whose partitions this broker no longer leads."""
        for index, active in list(self._active.items()):
            if active.partition.leader_epoch != active.epoch:
                self.resigned(index, ErrorCode.NOT_COORDINATOR)

    # -- loading

    def _load_on(self, index: int, now: Instant) -> None:
        """Request a job that reads the next window; activate the shard if none is left."""
        active = self._active[index]
        loading = active.loading
        assert loading is not None
        try:
            window = loading.next_window(active.partition)
        except Refused as refused:
            self.resigned(index, refused.code)
            return
        except StorageError as error:
            self._fail(index, active, error.fields)
            return
        if window is not None:
            window.file.retain()
            self._continuations.run(
                loading.reading(window, self._entropy(16)),
                partial(self._loaded, index, active, window),
            )
            return
        active.loading = None
        elapsed_ms = (now.mono_us - loading.begun.mono_us) // 1000
        if loading.end_offset:
            self._trace(
                "coordinator-loaded",
                partition=f"{self._topic}-{index}",
                end_offset=loading.end_offset,
                elapsed_ms=elapsed_ms,
            )
        self._take(index, active, active.shard.loaded(self._image, now), now)
        if loading.deleted and self._active.get(index) is active:
            delta = MetadataDelta(self._image, self._image, topics_deleted=tuple(loading.deleted))
            self._take(index, active, active.shard.image_changed(delta, now), now)

    def _loaded(
        self,
        index: int,
        active: "ActiveShard",
        window: FileSlice,
        result: "Window | StorageError",
        now: Instant,
    ) -> None:
        window.file.release()
        if self._active.get(index) is not active or active.loading is None:
            return
        if isinstance(result, StorageError):
            if result.call == "open":  # compaction has replaced the file since
                self._trace("coordinator-load-failed", partition=f"{self._topic}-{index}", **result.fields)
                self._resign_for_a_moment(index, active, ErrorCode.COORDINATOR_NOT_AVAILABLE, now)
            else:
                self._fail(index, active, result.fields)
            return
        active.loading.took(result)
        self._replaying[index] = None

    def _replay_on(
        self, index: int, active: "ActiveShard", loading: "CoordinatorLoader", now: Instant
    ) -> None:
        """Replay a slice of the window; request the next window after the last slice."""
        try:
            is_left = loading.replay(active.shard, _SLICE_RECORDS)
        except DecodeError as error:
            # sparklog or Kafka wrote the record; without it, groups would get wrong offsets.
            self._fail(index, active, {"reason": str(error)})
            return
        if not is_left:
            del self._replaying[index]
            self._load_on(index, now)

    def _fail(self, index: int, active: "ActiveShard", fields: dict[str, str]) -> None:
        """Give up the load: nothing is served from a log of which a part cannot be read."""
        self.resigned(index, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._failed[index] = active
        self._trace(
            "coordinator-load-failed",
            partition=f"{self._topic}-{index}",
            **fields,
            effect="requests for its keys are refused with COORDINATOR_NOT_AVAILABLE",
        )

    def has_failed(self, index: int) -> bool:
        """Whether the shard of a partition that this broker leads cannot be loaded."""
        failed = self._failed.get(index)
        return failed is not None and failed.partition.leader_epoch == failed.epoch

    # -- commands

    def decide(self, index: int, command: Command, token: Token, now: Instant) -> ErrorCode:
        """Have a shard decide. NONE if it accepts the command: `answers` or `refused` will have `token`."""
        active = self._serving(index)
        if isinstance(active, ErrorCode):
            return active
        self._gather(index, active, active.shard.decide(command, token, now), now)
        if index not in self._gathering:  # else `flush` arms the timer, once for the whole turn
            self._arm(active)
        return _NONE

    def _serving(self, index: int) -> "ActiveShard | ErrorCode":
        """The shard, or the error code while it does not serve."""
        active = self._active.get(index)
        if active is None:
            is_due = index in self._reloads or self.has_failed(index)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_due else ErrorCode.NOT_COORDINATOR
        if active.partition.leader_epoch != active.epoch:
            self.resigned(index, ErrorCode.NOT_COORDINATOR)
            return ErrorCode.NOT_COORDINATOR
        return active if active.loading is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def end_transaction(
        self,
        index: int,
        marker: Marker,
        producer: tuple[int, int],
        *,
        is_bumped: bool,
        token: Token,
        now: Instant,
    ) -> ErrorCode:
        """Write the marker that ends the transaction of a producer, its id and epoch.

        NONE if the marker is appended: `answers` will have WRITTEN for `token`.
        """
        active = self._serving(index)
        if isinstance(active, ErrorCode):
            return active
        if active.builder is not None and not self._append(index, active, now):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            active.append_marker(marker, producer, is_bumped=is_bumped, now=now)
        except Refused as refused:
            return self._refused(index, active, refused, now)
        except LogMoved:
            return self._log_moved(index, active, now)
        active.answers.append(Answer(token, WRITTEN))
        self._await_flush(index)
        return _NONE

    def _log_moved(self, index: int, active: "ActiveShard", now: Instant) -> ErrorCode:
        """Load the shard anew: the log has batches that the shard did not replay."""
        self._trace(
            "coordinator-behind-log",
            partition=f"{self._topic}-{index}",
            log_end_offset=active.partition.log_end_offset,
        )
        self._resign_for_a_moment(index, active, ErrorCode.COORDINATOR_NOT_AVAILABLE, now)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _refused(self, index: int, active: "ActiveShard", refused: Refused, now: Instant) -> ErrorCode:
        """The error code for a refused batch of a transaction; the shard is dropped unless the producer is
        at fault.
        """
        if refused.code not in _OF_THE_PRODUCER:
            self._append_refused(index, active, refused, now)
        # Transactional clients treat an unexpected code as fatal.
        return (
            ErrorCode.COORDINATOR_NOT_AVAILABLE
            if refused.code is ErrorCode.KAFKA_STORAGE_ERROR
            else refused.code
        )

    def _append_refused(self, index: int, active: "ActiveShard", refused: Refused, now: Instant) -> None:
        self._trace("coordinator-append-refused", partition=f"{self._topic}-{index}", reason=str(refused))
        self._resign_for_a_moment(index, active, refused.code, now)

    def abandoned(self, index: int, token: Token) -> None:
        """The connection that sent the command of `token` is closed."""
        active = self._active.get(index)
        if active is not None:
            active.shard.abandoned(token)

    def image_changed(self, delta: MetadataDelta, now: Instant) -> None:
        """The broker has published new metadata."""
        self._image = delta.after
        for index, active in list(self._active.items()):
            if active.loading is None:
                self._take(index, active, active.shard.image_changed(delta, now), now)
            else:
                active.loading.deleted += delta.topics_deleted

    def tick(self, now: Instant) -> None:
        """Time has passed."""
        if self._reloads:
            self._reload(now)
        for replaying in list(self._replaying):
            active = self._active[replaying]
            assert active.loading is not None
            self._replay_on(replaying, active, active.loading, now)
        due = []  # each shard once: one that is due again waits for the next tick
        while (index := self._timers.pop(now.mono_us)) is not None:
            due.append(index)
        for index in due:
            active_now = self._active.get(index)
            if active_now is not None:
                self._take(index, active_now, active_now.shard.tick(now), now)

    def deadline(self) -> Micros | None:
        """The next time for `tick`: at once while a window is being replayed."""
        deadline = Micros(0) if self._replaying else self._timers.deadline()
        if self._reloads:
            due = min(due for due, _, _ in self._reloads.values())
            return due if deadline is None else min(due, deadline)
        return deadline

    def _arm(self, active: "ActiveShard") -> None:
        """Set the timer of a shard to its deadline."""
        deadline = active.shard.deadline()
        if deadline is None:
            self._timers.cancel(active.timer)
        elif deadline != (before := active.timer.deadline):
            self._timers.arm(active.timer, deadline)
            if before is None or deadline < before:
                self._agenda.has_deadlines = True

    def serving(self) -> list[Shard]:
        """The loaded shards, in the order of their partitions."""
        return [active.shard for _, active in sorted(self._active.items()) if active.loading is None]

    @property
    def loaded_count(self) -> int:
        """The number of loaded shards."""
        return sum(active.loading is None for active in self._active.values())

    def is_coming(self, index: int) -> bool:
        """Whether the shard of a led partition is being loaded, or will be: it does not serve yet."""
        active = self._active.get(index)
        if active is not None:
            return active.loading is not None
        return index in self._reloads or index not in self._dropped

    def shards(self) -> list[int]:
        """The partitions of all shards, loaded, loading or failed, in order. A failed one refuses its
        keys, because a key that is not found would count as absent.
        """
        return sorted([*self._active, *filter(self.has_failed, self._failed)])

    # -- decisions

    def _take(self, index: int, active: "ActiveShard", decisions: list[Decision], now: Instant) -> None:
        """Gather the decisions that time or metadata caused; one may drop the shard."""
        for decision in decisions:
            if self._active.get(index) is active:
                self._gather(index, active, decision, now)
        if self._active.get(index) is active:
            self._arm(active)

    def _gather(self, index: int, active: "ActiveShard", decision: Decision, now: Instant) -> None:
        """Replay the records of a decision, and append them with those of the whole turn."""
        if decision.records:
            code = self._replayed(index, active, decision, now)
            if code is not _NONE:
                self.refused.extend((answer.token, code) for answer in decision.answers)
                self._agenda.has_coordination = True
                return
        active.answers += decision.answers
        if active.builder is not None or active.answers:
            self._await_flush(index)

    def _await_flush(self, index: int) -> None:
        self._gathering[index] = None
        self._agenda.has_coordination = True

    def _replayed(self, index: int, active: "ActiveShard", decision: Decision, now: Instant) -> ErrorCode:
        """Replay the records of a decision. Returns the code if they are refused; may drop the shard."""
        try:
            if decision.transaction is None:
                return active.gather(decision, now)
            if active.builder is None or self._append(index, active, now):
                return active.append_in_transaction(decision, decision.transaction, now)
        except LogMoved:
            return self._log_moved(index, active, now)
        except Refused as refused:
            if decision.transaction is not None:
                return self._refused(index, active, refused, now)
            self._append_refused(index, active, refused, now)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    @property
    def has_news(self) -> bool:
        """Whether `flush` has a batch to append, or the broker has answers or refusals to take; the agenda
        has a note of it.
        """
        return bool(self._gathering or self.answers or self.refused)

    def flush(self, now: Instant) -> None:
        """End the turn: append the batches, and release the answers that are already committed."""
        while self._gathering:
            index = next(iter(self._gathering))
            del self._gathering[index]
            active = self._active.get(index)
            if active is not None and self._append(index, active, now):
                self._arm(active)
                self._await(index, active, now)

    def _append(self, index: int, active: "ActiveShard", now: Instant) -> bool:
        """Append the batch of the turn; False if it was refused and the shard dropped."""
        try:
            active.append(now)
        except Refused as refused:
            self._append_refused(index, active, refused, now)
            return False
        except LogMoved:
            self._log_moved(index, active, now)
            return False
        return True

    def _await(self, index: int, active: "ActiveShard", now: Instant) -> None:
        """Release the answers that the high watermark has passed, and wait until it passes the next."""
        until = active.release(self.answers)
        if until is not None and active.waits_until < until:
            active.waits_until = until
            try:
                active.partition.park(until, partial(self._woken, index, active))
            except Refused as refused:
                self._resign_for_a_moment(index, active, refused.code, now)

    def _woken(self, index: int, waited: "ActiveShard", now: Instant) -> None:
        """The high watermark has moved for a shard that waited, or the role of its partition has ended."""
        active = self._active.get(index)
        if active is None or active.epoch != waited.epoch:
            return
        if active.partition.leader_epoch != active.epoch:
            self.resigned(index, ErrorCode.NOT_COORDINATOR)
        else:
            self._await(index, active, now)
            self._agenda.has_coordination = True
