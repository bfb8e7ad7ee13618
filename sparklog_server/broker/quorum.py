"""The metadata quorum as the broker uses it: a command is proposed, and its reply follows once the decision
is committed.

    propose ─► controller.decide(pending) ─► raft.append ─► controller.replay into pending
                                                                 └─► parked with its end offset
    synced: the high watermark passes that offset ─► image, deltas, replies

There are two images: the controller decides on the pending one, which includes everything appended; all
others see the published one, which includes everything committed. A reply without records also waits until
the state it was decided on is committed, so that no client learns of a decision that a crash could undo.
Commands proposed before this node leads wait in order.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Instant, LeaderEpoch, Micros, NodeId, Offset, Uuid, earlier
from sparklog.wire.schema import Message
from sparklog_server.broker.snapshot_generator import SnapshotGenerator
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.controller.controller import Controller
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.log.log_config import LogConfig
from sparklog_server.metadata.batches import batch_of, records_of
from sparklog_server.metadata.image import MetadataDelta, MetadataImage
from sparklog_server.outcome import Outcome
from sparklog_server.raft.node import RaftNode
from sparklog_server.raft.roles import Role
from sparklog_server.raft.voters import VoterSet

_LEADER: Final = Role.LEADER  # to name a member of an enum takes as long as two calls
_RECORDS_PER_BATCH = 2000
"""How many records of an outcome that need not be whole go into one batch."""


Decided = Callable[[Message, Instant], None]
"""Goes on with the reply to a command once that is committed."""


class _Parked(msgspec.Struct, frozen=True):
    """Published when the high watermark reaches `end_offset`: an image, after `size` more bytes of
    records, or the reply to a command.
    """

    end_offset: Offset
    delta: MetadataDelta | None = None
    then: Decided | None = None
    reply: Message | None = None
    size: int = 0


class Quorum:
    """Raft and controller, joined. `deltas` and `committed` wait to be taken by the broker.

    Invariants: `image` has exactly the records below the high watermark; parked entries are in order of
    their end offsets; after a halt nothing more becomes public.
    """

    def __init__(
        self,
        raft: RaftNode,
        controller: Controller,
        snapshotting: SnapshotGenerator,
        trace: Callable[..., None],
    ) -> None:
        self.image = MetadataImage()
        self.deadline_us: Micros | None = None  # when `tick` is wanted: changes with each call
        self._raft = raft
        self._snapshotting = snapshotting
        self._controller = controller
        self._trace = trace
        self._is_active = False  # the controller was activated
        self._parked: deque[_Parked] = deque()
        self._waiting: deque[tuple[Message, Decided, str]] = deque()
        self.committed: list[tuple[Decided, Message]] = []
        self.deltas: list[MetadataDelta] = []

    @classmethod
    def open(
        cls,
        disk: Disk,
        settings: BrokerSettings,
        directory_id: Uuid,
        cluster_id: str,
        continuations: Continuations,
        *,
        entropy: Callable[[int], bytes],
        trace: Callable[..., None],
        now: Instant,
    ) -> "Quorum":
        """Open the metadata log, replay it and stand for election. `directory_id` is that of the directory
        of the metadata log.

        Raises StorageError, ElectionStateCorrupt, and DecodeError for a log or snapshot with records that
        this release does not know.
        """
        node_id = NodeId(settings.node_id)
        scope = continuations.followed_by(lambda now: quorum._finished(now))
        raft = RaftNode.open(
            disk,
            settings.metadata_log_dir,
            # Snapshots decide which segments are removed, never their age or size.
            LogConfig(
                segment_bytes=settings.metadata_log.segment_bytes,
                segment_ms=max(settings.metadata_log.segment_ms, 1),
                is_deleted=False,
            ),
            node_id=node_id,
            directory_id=directory_id,
            voters=VoterSet({node_id: directory_id}),
            continuations=scope,
            trace=trace,
            now=now,
        )
        snapshotting = SnapshotGenerator(disk, raft, settings, scope, trace=trace, now=now)
        quorum = cls(raft, Controller(settings, cluster_id, entropy), snapshotting, trace)
        quorum._replay_log()
        raft.start(now)
        quorum.deadline_us = quorum._deadline()
        return quorum

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits for the disk; records that wait for room on a full disk do not count."""
        is_settled = self._raft.retry_at_us is not None or not (self._parked or self._waiting)
        return self._raft.is_quiet and self._snapshotting.is_quiet and is_settled

    @property
    def is_leader(self) -> bool:
        """Whether this node decides."""
        return self._raft.is_leader

    @property
    def epoch(self) -> LeaderEpoch:
        """The epoch of the metadata quorum."""
        return self._raft.epoch

    @property
    def directory_id(self) -> Uuid:
        """The directory of the metadata log."""
        return self._raft.directory_id

    @property
    def high_watermark(self) -> Offset:
        """The end of the committed metadata log."""
        return self._raft.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """The end of the metadata log."""
        return self._raft.log_end_offset

    def controller_address(self) -> tuple[str, int] | None:
        """Where the active controller is reached; a node that is the only voter reaches it in itself."""
        return None

    def propose(self, command: Message, then: Decided, principal: str, now: Instant) -> None:
        """Decide on a wire request of `principal`; `take_committed` gives `then` with its reply. Commands
        share syncs.
        """
        if self._raft.is_leader:
            self._decide(command, then, principal, now)
            self._raft.flush(now)
        elif self._raft.role is Role.CANDIDATE:
            self._waiting.append((command, then, principal))
        else:
            self.committed.append(
                (
                    then,
                    _refusal_of(
                        command, ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata quorum."
                    ),
                )
            )
        self.deadline_us = self._deadline()

    def _finished(self, now: Instant) -> None:
        """A sync or job of this quorum has ended."""
        self._settle(now)
        self._snapshotting.begin_due(self.image, now)
        self.deadline_us = self._deadline()

    def _settle(self, now: Instant) -> None:
        """Take up or give up leadership as the raft node has, and publish what is committed now."""
        if self._raft.is_leader and not self._is_active:
            self._is_active = True
            self._begin_leadership(now)
        if not self._raft.is_leader and self._raft.role is not Role.CANDIDATE:
            self._drop()
        self._publish()

    def take_committed(self) -> list[tuple[Decided, Message]]:
        """The (continuation, reply) pairs committed since the last call, in the order of their commands."""
        committed, self.committed = self.committed, []
        return committed

    def take_deltas(self) -> list[MetadataDelta]:
        """The deltas published since the last call, in order; the first begins with the empty image."""
        deltas, self.deltas = self.deltas, []
        return deltas

    def tick(self, now: Instant) -> None:
        """Let the controller act on time: fence a silent broker, begin a snapshot; and the raft node."""
        self._tick(now)
        self.deadline_us = self._deadline()

    def _tick(self, now: Instant) -> None:
        was_leader = self._raft.is_leader
        self._raft.tick(now)
        if self._raft.is_leader != was_leader or self._raft.role is Role.HALTED:
            self._settle(now)
        if not self._raft.is_leader:
            return
        records = self._controller.tick(now)
        if records:
            self._append_unasked(Outcome(records, None, is_atomic=False), now)
        self._raft.flush(now)
        self._snapshotting.begin_due(self.image, now)

    def _deadline(self) -> Micros | None:
        raft = self._raft
        if raft.role is not _LEADER:
            return raft.deadline()
        earliest = earlier(self._controller.deadline(), self._snapshotting.deadline(self.image))
        return (
            earliest
            if raft.retry_at_us is None and raft.durable.recovery.due_us is None
            else earlier(earliest, raft.deadline())
        )

    def close(self, now: Instant) -> None:
        """Close the metadata log."""
        self._raft.close(now)
        self.deadline_us = None

    def _replay_log(self) -> None:
        """Bring the controller up to the end of the log in one go; it all becomes public when this
        leadership commits its first record.
        """
        delta = self._controller.replay(self._records(), self._raft.epoch)
        if delta.after.offset >= 0:
            self._parked.append(_Parked(self._raft.log_end_offset, delta=delta))

    def _records(self) -> Iterator[tuple[Offset, Message]]:
        """The records of the newest snapshot, all at the offset of the last that it stands for, and of the
        log from there on.
        """
        snapshot = self._raft.durable.load_snapshot()
        start = self._raft.log.log_start_offset
        if snapshot is not None:
            start = snapshot.id.offset
            for _, record in records_of(snapshot.batches):
                yield Offset(start - 1), record
        for batches in self._raft.durable.read(start, self._raft.log_end_offset):
            self._snapshotting.grown(len(batches))
            yield from records_of(batches)

    def _begin_leadership(self, now: Instant) -> None:
        self._controller.activate(now)
        records = self._controller.bootstrap()
        if records:
            self._append_unasked(Outcome(records, None), now)
        while self._waiting and self._raft.is_leader:
            self._decide(*self._waiting.popleft(), now)
        self._raft.flush(now)

    def _decide(self, command: Message, then: Decided, principal: str, now: Instant) -> None:
        """Decide, append, and park the reply behind the records that it depends on."""
        outcome = self._controller.decide(command, self._raft.log_end_offset, now)
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
                reply = _refusal_of(command, ErrorCode.KAFKA_STORAGE_ERROR, str(full))
        if not self._raft.is_leader:
            self._drop()
            return
        self._parked.append(_Parked(self._raft.log_end_offset, then=then, reply=reply))
        self._publish()

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
            self._raft.halt(full.error)
        if not self._raft.is_leader:
            self._drop()

    def _replay(self, records: Sequence[Message], base_offset: Offset, size: int) -> None:
        pairs = [(Offset(base_offset + index), record) for index, record in enumerate(records)]
        delta = self._controller.replay(pairs, self._raft.epoch)
        self._parked.append(_Parked(self._raft.log_end_offset, delta=delta, size=size))

    def _publish(self) -> None:
        """Publish the entries that the high watermark has passed."""
        # Replies may be due at once, but never before this leadership has committed anything: until then
        # nothing is public.
        high_watermark = self._raft.high_watermark
        while self._parked and high_watermark and self._parked[0].end_offset <= high_watermark:
            parked = self._parked.popleft()
            if parked.delta is not None:
                self.image = parked.delta.after
                self._snapshotting.grown(parked.size)
                self.deltas.append(parked.delta)
            if parked.then is not None and parked.reply is not None:
                self.committed.append((parked.then, parked.reply))

    def _drop(self) -> None:
        """Leadership is gone: uncommitted records may be lost, and no reply rests on them."""
        self._parked.clear()
        self._waiting.clear()
        self._controller.reset(self.image)


class _Full(Exception):
    """The disk has no room for the records of one command."""

    def __init__(self, error: StorageError) -> None:
        super().__init__(f"The metadata log cannot grow: {error}")
        self.error = error


def _refusal_of(command: Message, code: ErrorCode, message: str | None) -> Message:
    # At its only use: a start refuses no command, and the replies to all of them take 2 ms.
    from sparklog_server.controller.refusals import refusal_of

    return refusal_of(command, code, message)
