"""The controller of one leadership: it decides on commands, and replies once the decisions are committed.

    command ─► controller.decide(pending) ─► raft.append ─► controller.replay into pending
                                                                └─► parked with its end offset
    the high watermark passes that offset ─► metadata log, reply

There are two images: the controller decides on the pending one, which includes everything appended; all
others see that of the metadata log, which includes everything committed. A reply without records also waits
until the state it was decided on is committed, so that no client learns of a decision that is undone.
Commands proposed before the leadership has begun wait in order.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from sparklog.effects import Loss
from sparklog.errors import ErrorCode
from sparklog.model import NO_EPOCH, Instant, Micros, Offset
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.metadata_log import MetadataLog
from sparklog_server.controller.controller import Controller
from sparklog_server.disk.door import StorageError
from sparklog_server.metadata.image import MetadataDelta
from sparklog_server.metadata.records import batch_of
from sparklog_server.outcome import Outcome
from sparklog_server.raft.node import RaftNode
from sparklog_server.raft.quorum_state import ENDED
from sparklog_server.raft.roles import Role
from sparklog_server.raft.snapshots import read_bootstrap_metadata

_RECORDS_PER_BATCH = 2000
"""How many records of an outcome that need not be whole go into one batch."""

Decided = Callable[[Message, Instant], None]
"""Goes on with the reply to a command once that is committed."""
Replies = list[tuple[Decided, Message]]

Probing = Callable[[tuple[str, int], Callable[[Loss | None, Instant], None], Instant], None]
"""Connects to an address; the continuation takes None if a process answers there, else the loss."""


class _Change(msgspec.Struct, frozen=True):
    """Published when the high watermark reaches `end_offset`, with so many bytes of records."""

    end_offset: Offset
    delta: MetadataDelta
    size: int = 0


class _Decision(msgspec.Struct, frozen=True):
    """The reply to a command, given when the high watermark reaches `end_offset`."""

    end_offset: Offset
    then: Decided
    command: Message
    reply: Message


class ActiveController:
    """One leadership, from `prepare` on; `replies` takes the replies that may be given.

    Invariants: the pending image is that of the metadata log and, on top of it, every appended record;
    parked entries are in order of their end offsets; after a halt no reply is given.
    """

    def __init__(
        self,
        raft: RaftNode,
        log: MetadataLog,
        controller: Controller,
        replies: Replies,
        probe: Probing | None,
        trace: Callable[..., None],
    ) -> None:
        self._raft = raft
        self._log = log
        self._controller = controller
        self._replies = replies
        self._probe = probe
        self._trace = trace
        self._epoch = NO_EPOCH  # of the leadership, once it has begun
        self._parked: deque[_Change | _Decision] = deque()
        self._waiting: deque[tuple[Message, Decided, str]] = deque()

    @property
    def is_active(self) -> bool:
        """Whether commands are decided on, not only taken."""
        return self._epoch != NO_EPOCH

    @property
    def is_over(self) -> bool:
        """Whether this node no longer leads the epoch of this leadership, or will not."""
        if self.is_active:
            return not self._raft.is_leader or self._raft.epoch != self._epoch
        return self._raft.role not in (Role.CANDIDATE, Role.LEADER)

    @property
    def is_quiet(self) -> bool:
        """Whether no reply waits."""
        return not (self._parked or self._waiting)

    def prepare(self) -> None:
        """Bring the pending image up to the end of the log: what is not committed yet becomes public as one
        delta. Raises StorageError, DecodeError.
        """
        end_offset = self._raft.log_end_offset
        ahead = self._log.ahead()
        if ahead is None:
            start = self._log.end_offset
            self._controller.reset(self._log.image)
        else:
            start = ahead.end_offset
            self._controller.reset(ahead.delta.after)
            self._parked.append(_Change(start, ahead.delta))
        delta = self._controller.replay(self._log.records(end_offset, start))
        self._parked.append(_Change(end_offset, delta))

    def begin(self, now: Instant) -> None:
        """This node leads: decide on the commands that wait."""
        self._epoch = self._raft.epoch
        self._controller.activate(now)
        records = self._controller.bootstrap()
        if records:
            self._begin_cluster(records, now)
        elif records := self._controller.due_once():
            self._append_unasked(Outcome(records, None), now)
        while self._waiting and not self.is_over:
            self._decide(*self._waiting.popleft(), now)
        self._raft.flush(now)

    def propose(self, command: Message, then: Decided, principal: str, now: Instant) -> None:
        """Decide on a wire request of `principal`; `replies` gets `then` with its reply. Commands share
        syncs.
        """
        if self.is_active:
            self._decide(command, then, principal, now)
            self._raft.flush(now)
        else:
            self._waiting.append((command, then, principal))

    def tick(self, now: Instant) -> None:
        """Let the controller act on time: fence a silent broker, probe a suspected one."""
        if not self.is_active:
            return
        records = self._controller.tick(now)
        if records:
            self._append_unasked(Outcome(records, None, is_atomic=False), now)
        self._raft.flush(now)
        if self._probe is None:
            return
        for probe in self._controller.take_probes():
            probed = partial(self._controller.sessions.probed, probe)
            self._probe((probe.host, probe.port), probed, now)

    def deadline(self) -> Micros | None:
        """The time of the next call of `tick`."""
        return self._controller.deadline() if self.is_active else None

    def publish(self) -> None:
        """Publish the entries that the high watermark has passed."""
        # Replies may be due at once, but never before this leadership has committed anything: until then
        # nothing is public.
        high_watermark = self._raft.high_watermark
        while self._parked and high_watermark and self._parked[0].end_offset <= high_watermark:
            parked = self._parked.popleft()
            if isinstance(parked, _Change):
                self._log.publish(parked.delta, parked.end_offset, parked.size)
            else:
                self._replies.append((parked.then, parked.reply))

    def end(self) -> None:
        """The leadership is over: uncommitted records may be lost, and no reply rests on them. A node that
        has halted replies nothing.
        """
        if self._raft.role not in ENDED:
            commands = [(one.then, one.command) for one in self._parked if isinstance(one, _Decision)]
            commands += [(then, command) for command, then, _ in self._waiting]
            self._replies += [(then, refused_here(command)) for then, command in commands]
        self._parked.clear()
        self._waiting.clear()

    def _begin_cluster(self, records: tuple[Message, ...], now: Instant) -> None:
        """Append the records with which the directory was formatted, or else these."""
        durable = self._raft.durable
        try:
            batches = read_bootstrap_metadata(durable.disk, durable.log_dir)
            if batches is not None:
                from sparklog_server.broker.cluster.bootstrap_metadata import (
                    bootstrap_records,  # only for directories that Kafka formatted
                )

                records = self._controller.completed(bootstrap_records(batches, durable.log_dir, self._trace))
        except StorageError as error:
            self._raft.halt(error)
            return
        self._append_unasked(Outcome(records, None), now)

    def _decide(self, command: Message, then: Decided, principal: str, now: Instant) -> None:
        """Decide, append, and park the reply behind the records that it depends on."""
        outcome = self._controller.decide(command, self._raft.log_end_offset, now, principal)
        reply = outcome.reply
        if outcome.records:
            self._trace(
                "metadata-change",
                command=type(command).__name__,
                principal=principal,
                records=len(outcome.records),
            )
            try:
                self._append(outcome, now)
            except _Full as full:
                if self._has_successors:
                    self._waiting.append((command, then, principal))  # the next leader decides on it
                    self._raft.resign(now)
                    return
                reply = _refusal_of(command, ErrorCode.KAFKA_STORAGE_ERROR, str(full))
        self._parked.append(_Decision(self._raft.log_end_offset, then, command, reply))

    def _append(self, outcome: Outcome[Message, object], now: Instant) -> None:
        """Append an outcome's records and replay them into the pending image."""
        size = len(outcome.records) if outcome.is_atomic else _RECORDS_PER_BATCH
        for first in range(0, len(outcome.records), size):
            records = outcome.records[first : first + size]
            batch = batch_of(records, now.wall_ms)
            try:
                base_offset = self._raft.append(batch, now)
            except StorageError as error:
                if error.is_full:
                    # Nothing was written, so this command alone fails: the cluster lives on for those who
                    # delete.
                    raise _Full(error) from error
                self._raft.halt(error)
                return
            self._replay(records, base_offset, len(batch))

    def _append_unasked(self, outcome: Outcome[Message, None], now: Instant) -> None:
        """Append records that no command requested; without room for them this node cannot remain leader."""
        try:
            self._append(outcome, now)
        except _Full as full:
            if self._has_successors:
                self._raft.resign(now)
            else:
                self._raft.halt(full.error)

    @property
    def _has_successors(self) -> bool:
        """Whether other nodes may lead while this one has no room."""
        return len(self._raft.voter_ids) > 1

    def _replay(self, records: Sequence[Message], base_offset: Offset, size: int) -> None:
        pairs = [(Offset(base_offset + index), record) for index, record in enumerate(records)]
        delta = self._controller.replay(pairs)
        self._parked.append(_Change(self._raft.log_end_offset, delta, size))


class _Full(Exception):
    """The disk has no room for the records of one command."""

    def __init__(self, error: StorageError) -> None:
        super().__init__(f"The metadata log cannot grow: {error}")
        self.error = error


def refused_here(command: Message) -> Message:
    """The reply to a command that only the active controller can decide on."""
    return _refusal_of(command, ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata quorum.")


def _refusal_of(command: Message, code: ErrorCode, message: str | None) -> Message:
    # At its only use: a start refuses no command, and the replies to all of them take 2 ms.
    from sparklog_server.controller.refusals import refusal_of

    return refusal_of(command, code, message)
