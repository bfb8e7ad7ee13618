"""The runtime of coordinator shards: one for each partition of an internal topic that this node leads.

                   ┌───────────── window by window: a job reads, `replay` in slices ─────────────┐
    elected ──► LOADING                                                                          └─► ACTIVE ──► dropped
                                                                                                       │
    command ─► shard.decide ─► records gathered and replayed ─► one batch at the end of the turn ─► answers parked
                                                                                                       │
                                                        high watermark passes the end of that batch ◄──┘

Whoever leads the partition is its only writer, so the offsets of gathered records are known before they
are appended; a shard whose log turns out to end elsewhere is loaded anew. Answers without records wait for
what was appended before them: nobody is told what a failover could undo. If an append is refused, or
leadership is lost, the shard is dropped with everything soft in it, and those who wait are refused. Where
this node leads on nevertheless, since the batch was too large, say, the shard is soon loaded anew. What is
written within a producer's transaction is appended before it is replayed, in a batch of its own, since the
log has a word on it; the marker that ends the transaction takes its place among the shard's batches.
"""  # noqa: E501

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from sparklog.effects import FileSlice, Run
from sparklog.errors import DecodeError, ErrorCode
from sparklog.model import Instant, LeaderEpoch, Micros, Offset, Ticket
from sparklog.record.batch import HEADER_SIZE, BatchBuilder, Record, record_size_max
from sparklog.record.control import ControlType, Marker
from sparklog.wire.schema import Message
from sparklog_server.disk.door import StorageError
from sparklog_server.metadata.image import MetadataDelta, MetadataImage
from sparklog_server.outcome import Refused

from .command import Command
from .home import ShardPartition
from .load_window import Decided, Lost, Window, read_window
from .loader import CoordinatorLoader
from .shard import Answer, Decision, InTransaction, Shard
from .timers import Timer, Timers

_NONE: Final = ErrorCode.NONE  # to name a member of an enum takes as long as two calls
_RELOAD_US = 1_000_000
"""After which time a shard is loaded anew whose batch the partition refused: what refused it may last."""
_RELOAD_FULL_US = 5_000_000
"""The same where the disk is full, which lasts longer: each load reads the partition."""
_TOO_LARGE: Final = ErrorCode.UNKNOWN_SERVER_ERROR
"""What Kafka tells of records that are too large for the log."""
_SLICE_RECORDS = 24
"""How many records are replayed before the loop gets its turn again: about a tenth of a millisecond (64
gave others 1.5 ms at p99).
"""

_OF_THE_PRODUCER: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)
"""For these the log refuses what a producer, or its coordinator, wants written; the shard has no fault."""


class Written(Message):
    """The reply to a marker: it is committed."""


WRITTEN: Final = Written()


class _Parked(NamedTuple):
    """Answers that may leave when the high watermark reaches `end_offset`."""

    end_offset: Offset
    answers: list[Answer]


class _Active:
    """A shard and what is under way for it. Invariant: every parked batch but the first has a later end
    than the one before.
    """

    __slots__ = (
        "answers",
        "builder",
        "epoch",
        "loading",
        "next_offset",
        "parked",
        "partition",
        "shard",
        "timer",
        "waits_until",
    )

    def __init__(
        self,
        index: int,
        shard: Shard,
        partition: ShardPartition,
        epoch: LeaderEpoch,
        loading: CoordinatorLoader,
    ) -> None:
        self.timer = Timer(index)
        self.shard = shard
        self.partition = partition
        self.epoch = epoch
        self.loading: CoordinatorLoader | None = loading
        self.next_offset = loading.end_offset
        self.builder: BatchBuilder | None = None
        self.answers: list[Answer] = []  # that rest on what is gathered
        self.parked: deque[_Parked] = deque()
        self.waits_until = Offset(-1)  # of the newest token that was parked


class CoordinatorRuntime:
    """The shards of one internal topic on this node, by partition.

    `answers`, `refused` (tokens without an answer, and why) and `jobs` collect what left the shards; the
    broker drains them each turn, after `flush`.
    """

    def __init__(
        self,
        topic: str,
        make_shard: Callable[[], Shard],
        *,
        tickets: Callable[[], Ticket],
        entropy: Callable[[int], bytes],
        trace: Callable[..., None],
    ) -> None:
        self.answers: list[Answer] = []
        self.refused: list[tuple[object, ErrorCode]] = []
        self.jobs: list[Run] = []
        self._topic = topic
        self._make_shard = make_shard
        self._tickets = tickets
        self._entropy = entropy
        self._trace = trace
        self._image = MetadataImage()
        self._active: dict[int, _Active] = {}
        self._gathering: dict[int, None] = {}
        self._replaying: dict[int, None] = {}
        self._timers: Timers[int] = Timers()
        self._loads: dict[Ticket, tuple[int, _Active, FileSlice]] = {}
        self._reloads: dict[int, tuple[Micros, ShardPartition, LeaderEpoch]] = {}
        self._dropped: dict[int, None] = {}

    # -- leadership

    def elected(self, index: int, partition: ShardPartition, now: Instant) -> None:
        """This node leads the partition: replay it into a new shard."""
        epoch = partition.leader_epoch
        if epoch is None:
            return
        self.resigned(index, ErrorCode.NOT_COORDINATOR)
        loading = CoordinatorLoader(
            f"{self._topic}-{index}", partition.log_start_offset, partition.log_end_offset, now
        )
        self._dropped.pop(index, None)
        self._active[index] = _Active(index, self._make_shard(), partition, epoch, loading)
        self._load_on(index, now)

    def resigned(self, index: int, code: ErrorCode) -> None:
        """The shard is no longer ours: everyone who waits for it is refused with `code`."""
        active = self._active.pop(index, None)
        self._reloads.pop(index, None)
        self._gathering.pop(index, None)
        self._replaying.pop(index, None)
        if active is None:
            return
        self._timers.cancel(active.timer)
        self._dropped[index] = None
        undone = [answer.token for parked in active.parked for answer in parked.answers] + [
            answer.token for answer in active.answers
        ]
        self.refused.extend((token, code) for token in (*undone, *active.shard.waiting()))
        self._trace("shard-dropped", partition=f"{self._topic}-{index}", reason=code.name)

    def _resign_for_a_moment(self, index: int, active: _Active, code: ErrorCode, now: Instant) -> None:
        """The partition refused what the shard needs: drop it, and load it anew while this node leads in
        that epoch.
        """
        self.resigned(index, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if active.partition.leader_epoch == active.epoch:
            after_us = _RELOAD_FULL_US if code is ErrorCode.KAFKA_STORAGE_ERROR else _RELOAD_US
            self._reloads[index] = Micros(now.mono_us + after_us), active.partition, active.epoch

    def _reload(self, now: Instant) -> None:
        for index, (due, partition, epoch) in list(self._reloads.items()):
            if partition.leader_epoch != epoch:
                del self._reloads[index]
            elif due <= now.mono_us:
                self.elected(index, partition, now)

    def check(self) -> None:
        """Drop the shards whose partitions this node no longer leads."""
        for index, active in list(self._active.items()):
            if active.partition.leader_epoch != active.epoch:
                self.resigned(index, ErrorCode.NOT_COORDINATOR)

    # -- loading

    def _load_on(self, index: int, now: Instant) -> None:
        """Read the next window beside the loop; begin the shard's life if there is none."""
        active = self._active[index]
        loading = active.loading
        assert loading is not None
        try:
            is_rest = loading.rest is not None
            window = loading.next_window(active.partition)
        except Refused as refused:
            self.resigned(index, refused.code)
            return
        if window is not None:
            ticket = self._tickets()
            window.file.retain()
            self._loads[ticket] = index, active, window
            seed = self._entropy(16)
            self.jobs.append(Run(lambda: read_window(window, seed, is_rest=is_rest), ticket))
            return
        active.loading = None
        loading.done(active.shard, self._trace)
        elapsed_ms = (now.mono_us - loading.begun.mono_us) // 1000
        if loading.end_offset:
            self._trace(
                "shard-loaded",
                partition=f"{self._topic}-{index}",
                end_offset=loading.end_offset,
                elapsed_ms=elapsed_ms,
            )
        self._take(index, active, active.shard.loaded(self._image, now), now)
        if loading.deleted and self._active.get(index) is active:
            delta = MetadataDelta(self._image, self._image, topics_deleted=tuple(loading.deleted))
            self._take(index, active, active.shard.image_changed(delta, now), now)

    def finished(self, ticket: Ticket, result: object, now: Instant) -> bool:
        """The result of a load job; False if the ticket is somebody else's."""
        load = self._loads.pop(ticket, None)
        if load is None:
            return False
        index, active, window = load
        window.file.release()
        if self._active.get(index) is not active or active.loading is None:
            return True
        if not isinstance(result, Window):
            self._trace("shard-unreadable", partition=f"{self._topic}-{index}", reason=str(result))
            if (
                isinstance(result, StorageError) and result.call == "open"
            ):  # the file was closed meanwhile: another has its place
                self._resign_for_a_moment(index, active, ErrorCode.COORDINATOR_NOT_AVAILABLE, now)
            else:
                self.resigned(index, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return True
        active.loading.took(result, active.partition)
        self._replaying[index] = None
        return True

    def _replay_on(self, index: int, active: _Active, loading: CoordinatorLoader, now: Instant) -> None:
        """Replay a slice of what was read; ask for the next window when it is done."""
        steps = loading.steps
        assert steps is not None
        shard = active.shard
        try:
            for _ in range(_SLICE_RECORDS):
                step = next(steps, None)
                if step is None:
                    loading.steps = None
                    del self._replaying[index]
                    self._load_on(index, now)
                    return
                if isinstance(step, Record):
                    if step.key is not None:
                        shard.replay(step.key, step.value, Offset(step.offset))
                elif isinstance(step, Lost):
                    loading.pass_over(step, shard, self._trace)
                elif isinstance(step, Decided):
                    shard.replay_marker(step.producer_id, step.is_commit, step.offset)
                elif (record := step.record).key is not None:
                    shard.replay_undecided(step.producer_id, record.key, record.value, Offset(record.offset))
        except DecodeError as error:
            # What is there was written by us or by Kafka; to go on without it would show groups offsets that
            # are not theirs.
            self._trace("shard-unreadable", partition=f"{self._topic}-{index}", reason=str(error))
            self.resigned(index, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # -- commands

    def decide(self, index: int, command: Command, token: object, now: Instant) -> ErrorCode:
        """Have a shard decide; NONE if it took the command up, and `answers` will have the reply to
        `token`.
        """
        active = self._serving(index)
        if isinstance(active, ErrorCode):
            return active
        self._gather(index, active, active.shard.decide(command, token, now), now)
        if index not in self._gathering:  # else `flush` does, once for all that it gathered
            self._arm(active)
        return _NONE

    def _serving(self, index: int) -> "_Active | ErrorCode":
        """The shard if it may be asked, else why not."""
        active = self._active.get(index)
        if active is None:
            return (
                ErrorCode.COORDINATOR_NOT_AVAILABLE if index in self._reloads else ErrorCode.NOT_COORDINATOR
            )
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
        token: object,
        now: Instant,
    ) -> ErrorCode:
        """Write the end of the transaction of a producer, its id and epoch, and show it to the shard.

        NONE if `answers` will have WRITTEN for `token`.
        """
        active = self._serving(index)
        if isinstance(active, ErrorCode):
            return active
        if active.builder is not None and not self._append(index, active, now):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            offset = active.partition.append_marker(marker, producer, is_bumped=is_bumped, now=now)
        except Refused as refused:
            return self._refused(index, active, refused, now)
        if offset != active.next_offset:
            return self._log_moved(index, active, now)
        active.shard.replay_marker(producer[0], marker.type is ControlType.COMMIT, offset)
        active.next_offset = Offset(offset + 1)
        active.answers.append(Answer(token, WRITTEN))
        self._gathering[index] = None
        return _NONE

    def _log_moved(self, index: int, active: _Active, now: Instant) -> ErrorCode:
        """What was appended lies elsewhere than expected: the log holds batches that the shard did not
        replay.
        """
        self._trace(
            "shard-log-moved",
            partition=f"{self._topic}-{index}",
            log_end_offset=active.partition.log_end_offset,
        )
        self._resign_for_a_moment(index, active, ErrorCode.COORDINATOR_NOT_AVAILABLE, now)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _refused(self, index: int, active: _Active, refused: Refused, now: Instant) -> ErrorCode:
        """What to tell of a batch that the partition refused; the shard is dropped unless a producer is at
        fault.
        """
        if refused.code not in _OF_THE_PRODUCER:
            self._trace("shard-append-refused", partition=f"{self._topic}-{index}", reason=str(refused))
            self._resign_for_a_moment(index, active, refused.code, now)
        # Clients of transactions take a code that they do not expect for fatal, so they are not told what the
        # disk said.
        return (
            ErrorCode.COORDINATOR_NOT_AVAILABLE
            if refused.code is ErrorCode.KAFKA_STORAGE_ERROR
            else refused.code
        )

    def abandoned(self, index: int, token: object) -> None:
        """Whoever sent the command of `token` is gone."""
        active = self._active.get(index)
        if active is not None:
            active.shard.abandoned(token)

    def image_changed(self, delta: MetadataDelta, now: Instant) -> None:
        """The published metadata changed."""
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
        due = []  # once each: a shard that has more to do at this very moment lets the others go first
        while (index := self._timers.pop(now.mono_us)) is not None:
            due.append(index)
        for index in due:
            active_now = self._active.get(index)
            if active_now is not None:
                self._take(index, active_now, active_now.shard.tick(now), now)

    def deadline(self) -> Micros | None:
        """When `tick` is wanted next: at once while something that was read waits to be replayed."""
        deadline = Micros(0) if self._replaying else self._timers.deadline()
        if self._reloads:
            due = min(due for due, _, _ in self._reloads.values())
            return due if deadline is None else min(due, deadline)
        return deadline

    def _arm(self, active: _Active) -> None:
        """Set the shard's timer to what it wants now."""
        deadline = active.shard.deadline()
        if deadline is None:
            self._timers.cancel(active.timer)
        elif deadline != active.timer.deadline:
            self._timers.arm(active.timer, deadline)

    def serving(self) -> list[Shard]:
        """The shards that are up to date, by partition."""
        return [active.shard for _, active in sorted(self._active.items()) if active.loading is None]

    @property
    def loaded_count(self) -> int:
        """How many shards are up to date."""
        return sum(active.loading is None for active in self._active.values())

    def is_coming(self, index: int) -> bool:
        """Whether the shard of a partition that this node leads may serve soon: it does not yet, and it
        was not dropped for good.
        """
        active = self._active.get(index)
        if active is not None:
            return active.loading is not None
        return index in self._reloads or index not in self._dropped

    def shards(self) -> list[int]:
        """The partitions whose shards are here, in order, those included that are not up to date yet."""
        return sorted(self._active)

    # -- decisions

    def _take(self, index: int, active: _Active, decisions: list[Decision], now: Instant) -> None:
        """Gather what a shard decided by itself; the shard may be dropped on the way."""
        for decision in decisions:
            if self._active.get(index) is active:
                self._gather(index, active, decision, now)
        if self._active.get(index) is active:
            self._arm(active)

    def _gather(self, index: int, active: _Active, decision: Decision, now: Instant) -> None:
        """Replay the records of a decision, and have them appended with those of the whole turn."""
        if decision.transaction is not None and decision.records:
            if not self._append_in_transaction(index, active, decision, decision.transaction, now):
                return
        elif decision.records:
            batch_bytes_max, needed = active.partition.batch_bytes_max, 0
            for record in decision.records:
                needed += record_size_max(record.key, record.value, ())
            if (
                needed > batch_bytes_max - HEADER_SIZE
                and decision.may_be_refused
                and not decision.fits(batch_bytes_max)
            ):
                self.refused.extend((answer.token, _TOO_LARGE) for answer in decision.answers)
                return
            room = batch_bytes_max - (HEADER_SIZE if active.builder is None else active.builder.size)
            is_kept = needed <= room or self._append(index, active, now)
            for record in decision.records:
                # One decision lies in one batch, unless it alone is larger than a batch may be.
                if needed > batch_bytes_max - HEADER_SIZE and is_kept and active.builder is not None:
                    size = record_size_max(record.key, record.value, ())
                    is_kept = active.builder.size + size <= batch_bytes_max or self._append(
                        index, active, now
                    )
                if not is_kept:
                    self.refused.extend(
                        (answer.token, ErrorCode.COORDINATOR_NOT_AVAILABLE) for answer in decision.answers
                    )
                    return
                builder = active.builder
                if builder is None:
                    builder = active.builder = BatchBuilder()
                builder.append(record.key, record.value, (), now.wall_ms)
                if record.message is None:
                    active.shard.replay(record.key, record.value, active.next_offset)
                else:
                    active.shard.replay_own(record.message, active.next_offset)
                active.next_offset = Offset(active.next_offset + 1)
        active.answers += decision.answers
        if active.builder is not None or active.answers:
            self._gathering[index] = None

    def _append_in_transaction(
        self, index: int, active: _Active, decision: Decision, transaction: InTransaction, now: Instant
    ) -> bool:
        """Append a decision's records in a batch of its own, then replay them; False if they were refused,
        and the tokens told so.
        """
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if active.builder is None or self._append(index, active, now):
            builder, producer_id = BatchBuilder(), transaction.producer_id
            for record in decision.records:
                builder.append(record.key, record.value, (), now.wall_ms)
            if builder.size <= active.partition.batch_bytes_max:
                batch = builder.build(
                    producer_id=producer_id, producer_epoch=transaction.producer_epoch, is_transactional=True
                )
                try:
                    offset = active.partition.append_in_transaction(batch, transaction.proof, now)
                except Refused as refused:
                    code = self._refused(index, active, refused, now)
                else:
                    if offset == active.next_offset:
                        for record in decision.records:
                            active.shard.replay_undecided(
                                producer_id, record.key, record.value, active.next_offset
                            )
                            active.next_offset = Offset(active.next_offset + 1)
                        return True
                    code = self._log_moved(index, active, now)
            else:
                code = _TOO_LARGE
        self.refused.extend((answer.token, code) for answer in decision.answers)
        return False

    @property
    def has_news(self) -> bool:
        """Whether `flush` has something to do, or something left the shards."""
        return bool(self._gathering or self.answers or self.refused or self.jobs)

    def flush(self, now: Instant) -> None:
        """The turn ends: append what it gathered, and let go of what need not wait."""
        while self._gathering:
            index = next(iter(self._gathering))
            del self._gathering[index]
            active = self._active.get(index)
            if active is not None and self._append(index, active, now):
                self._arm(active)
                self._await(index, active, now)

    def _append(self, index: int, active: _Active, now: Instant) -> bool:
        """Append what is gathered, and park the answers that rest on it; False if that was refused and the
        shard dropped.
        """
        builder, active.builder = active.builder, None
        if builder is not None:
            try:
                base_offset = active.partition.append(builder.build(), now)
            except Refused as refused:
                self._trace("shard-append-refused", partition=f"{self._topic}-{index}", reason=str(refused))
                self._resign_for_a_moment(index, active, refused.code, now)
                return False
            if base_offset + builder.record_count != active.next_offset:
                self._log_moved(index, active, now)
                return False
        if active.answers:
            active.parked.append(_Parked(active.next_offset, active.answers))
            active.answers = []
        return True

    def _await(self, index: int, active: _Active, now: Instant) -> None:
        """Let go of the answers that the high watermark has passed; have it tell when it passes the next."""
        high_watermark = active.partition.high_watermark
        while active.parked and active.parked[0].end_offset <= high_watermark:
            self.answers.extend(active.parked.popleft().answers)
        if active.parked and active.waits_until < active.parked[0].end_offset:
            active.waits_until = active.parked[0].end_offset
            try:
                active.partition.park(active.waits_until, partial(self._woken, index, active))
            except Refused as refused:
                self._resign_for_a_moment(index, active, refused.code, now)

    def _woken(self, index: int, waited: _Active, now: Instant) -> None:
        """The high watermark has moved for a shard that waited, or the role of its partition has ended."""
        active = self._active.get(index)
        if active is None or active.epoch != waited.epoch:
            return
        if active.partition.leader_epoch != active.epoch:
            self.resigned(index, ErrorCode.NOT_COORDINATOR)
        else:
            self._await(index, active, now)
