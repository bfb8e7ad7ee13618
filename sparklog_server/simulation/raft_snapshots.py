"""The snapshots of a simulated raft node: written every few committed records, and only the newest is kept.

    state = a checksum over the committed batches ── job ──► snapshot ──► the log start moves to it

The snapshot contains the state as one record, so the invariants can compare it with the state at its offset.
"""

from functools import partial

from sparklog.model import Instant, Offset, OffsetAndEpoch
from sparklog.record.batch import build_batch, decode_records
from sparklog.record.control import ControlMessage, KRaftVersion
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.raft.node import RaftNode
from sparklog_server.raft.quorum_state import ENDED
from sparklog_server.raft.snapshots import remove, write
from sparklog_server.simulation.invariants import RaftWatch
from sparklog_server.simulation.world import Machine


class RaftSnapshots:
    """One job at a time. Invariant: the newest snapshot of the log has been read, unless this process wrote
    it.
    """

    def __init__(
        self, machine: Machine, watch: RaftWatch, continuations: Continuations, offsets_between: int
    ) -> None:
        self._machine = machine
        self._watch = watch
        self._continuations = continuations
        self._offsets_between = offsets_between
        self._known: OffsetAndEpoch | None = None
        self._is_busy = False

    def advanced(self, raft: RaftNode, now: Instant) -> None:
        """The high watermark has moved, and no snapshot is being installed."""
        self.load(raft)
        start = raft.snapshots[-1].offset if raft.snapshots else Offset(0)
        # At a start every record below a snapshot counts as durable, so only synced records are written to
        # it.
        end = raft.high_watermark if raft.log.recovery_point >= raft.high_watermark else Offset(0)
        if not self._is_busy and end >= start + self._offsets_between:
            self._write(raft, now)
        elif not self._is_busy and len(raft.snapshots) > 1:
            self._remove(raft, now)

    def load(self, raft: RaftNode) -> None:
        """Read the newest snapshot, unless it has been read."""
        if not raft.snapshots or raft.snapshots[-1] == self._known:
            return
        found = raft.durable.load_snapshot()
        assert found is not None
        self._known = found.id
        if found.batches:
            (record,) = decode_records(found.batches)
            self._watch.snapshot_loaded(self._machine, found.id, int(record.value or b""))

    def _write(self, raft: RaftNode, now: Instant) -> None:
        end = raft.high_watermark
        _, state = self._watch.ledger.states[end]
        snapshot = self.id_of(raft, end)
        self._watch.snapshot_written(self._machine, snapshot)
        job = partial(
            write,
            self._machine.disk,
            raft.log.directory,
            snapshot,
            [build_batch([(None, b"%d" % state, (), now.wall_ms)])],
            last_timestamp=now.wall_ms,
            wall_ms=now.wall_ms,
            control=_control_of(raft, end),
        )
        self._is_busy = True
        self._continuations.run(job, partial(self._written, raft, snapshot))

    @staticmethod
    def id_of(raft: RaftNode, end: Offset) -> OffsetAndEpoch:
        """The id of a snapshot of the records below `end`."""
        return OffsetAndEpoch(end, raft.log.epochs.epoch_at(Offset(end - 1)))

    def _written(
        self, raft: RaftNode, snapshot: OffsetAndEpoch, error: StorageError | None, now: Instant
    ) -> None:
        self._is_busy = False
        if raft.role in ENDED or self._refused(raft, error):
            return
        if raft.snapshots and raft.snapshots[-1] >= snapshot:
            return  # a leader's snapshot was installed meanwhile
        raft.snapshots.append(snapshot)
        self._known = snapshot
        self._watch.reach("snapshot-written")

    def _remove(self, raft: RaftNode, now: Instant) -> None:
        oldest, successor = raft.snapshots[:2]
        raft.log.move_log_start(successor.offset)
        try:
            retire = raft.log.retire(raft.high_watermark, now)
        except StorageError as error:
            self._refused(raft, error)
            return
        job = partial(remove, self._machine.disk, raft.log.directory, oldest, retire)
        self._is_busy = True
        self._continuations.run(job, partial(self._removed, raft, oldest))

    def _removed(
        self, raft: RaftNode, snapshot: OffsetAndEpoch, error: StorageError | None, now: Instant
    ) -> None:
        self._is_busy = False
        if raft.role not in ENDED and not self._refused(raft, error) and snapshot in raft.snapshots:
            raft.snapshots.remove(snapshot)

    @staticmethod
    def _refused(raft: RaftNode, error: StorageError | None) -> bool:
        if error is not None and not error.is_full:
            raft.halt(error)
        return error is not None


def _control_of(raft: RaftNode, end: Offset) -> list[ControlMessage]:
    membership = raft.membership(end)
    if membership.kraft_version == 0:
        return []
    return [KRaftVersion(0, membership.kraft_version), membership.voters.record()]
