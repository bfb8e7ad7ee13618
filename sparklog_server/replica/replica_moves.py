"""Moves of replicas between this broker's log directories while they are written and read (KIP-113, KIP-858).

The controller is informed of the new directory before the swap: otherwise a directory that fails in between
would count as the location of replicas that have left it. Jobs copy in bounded steps within the configured
rate. The swap is a turn: it copies the rest, renames the copy to the log's name, and the log continues in it.
See `replica_move` for the stages of one replica.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from sparklog.model import Instant, Micros, TopicPartition, Uuid
from sparklog_server.agenda import Agenda
from sparklog_server.continuations import Continuations
from sparklog_server.disk.ballast import rename_all
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.disk.removal import removal
from sparklog_server.log.directory.future_log import (
    Copied,
    Copying,
    SourceFailed,
    catch_up,
    copy,
    segments_in,
)
from sparklog_server.metadata.entries import Assignment, Assignments
from sparklog_server.replica.directory import ReplicaDirectory, Trace
from sparklog_server.replica.log_cleaner import LogCleaner
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.replica_move import CATCH_UP_BYTES, Left, ReplicaMove, Stage
from sparklog_server.replica.retention import Retention

_Result = TypeVar("_Result")
WORK_BYTES = 8 << 20
"""The most bytes that one job copies."""
_WORK_BYTES_MIN = 64 << 10
_JOBS_PER_SECOND = 4
_JOBS_MAX = 2
_PUT_OFF_US = 1_000_000
"""The time after which the rename of an old log is retried on a full disk."""
_SEALED_PER_TURN = 16
WISHES_MAX = 10_000
"""The most partitions that do not exist yet whose requested directory is remembered."""
_SWAPPED = (Stage.SYNCING, Stage.CHECKPOINTING, Stage.NAMING)


class ReplicaMoves:
    """All moves of replicas between the directories of this broker.

    Invariants: a partition has at most one move; `assignments` has what is to be sent to the controller; a
    cancelled move has left `moves`, and stays in `_running` until its job is over.
    """

    def __init__(
        self,
        disk: Disk,
        continuations: Continuations,
        agenda: Agenda,
        *,
        cleaning: LogCleaner,
        retention: Retention,
        assignments: Assignments,
        bytes_per_second_max: float,
        trace: Trace,
    ) -> None:
        self.bytes_per_second_max = bytes_per_second_max
        self.assignments = assignments
        self.wishes: dict[TopicPartition, ReplicaDirectory] = {}
        self._disk = disk
        self._cleaning = cleaning
        self._retention = retention
        self._continuations = continuations
        self._agenda = agenda
        self._trace = trace
        self.moves: dict[Partition, ReplicaMove] = {}
        self._running: dict[ReplicaMove, None] = {}
        self._resume_at_us = Micros(0)
        self._next: dict[Partition, ReplicaDirectory] = {}  # requested while a move was ending
        # Their target failed after the swap: the old files have the name of a log, and no partition uses
        # them.
        self._left: dict[Partition, ReplicaMove] = {}
        self._is_stopping = False

    # -- requests

    def wish(self, topic_partition: TopicPartition, directory: ReplicaDirectory) -> None:
        """Remember the directory of a partition that does not exist yet."""
        self.wishes.pop(topic_partition, None)
        while len(self.wishes) >= WISHES_MAX:
            self.wishes.pop(next(iter(self.wishes)))
        self.wishes[topic_partition] = directory

    def move(
        self, partition: Partition, home: ReplicaDirectory, target: ReplicaDirectory, now: Instant
    ) -> None:
        """Move a replica; if the target is `home`, keep it there, and cancel a move in progress."""
        self._agenda.has_deadlines = True
        move = self.moves.get(partition)
        if move is not None and move.stage is not Stage.COPYING:
            self._next[partition] = target
            return
        if move is not None and move.target is not target:
            self._cancel(move, "another directory was asked for")
            move = None
        if move is None and target is not home:
            self.begin(partition, home, target)
        self.advance(now)

    def begin(
        self,
        partition: Partition,
        home: ReplicaDirectory,
        target: ReplicaDirectory,
        leftovers: tuple[str, ...] = (),
        left: Left | None = None,
    ) -> None:
        """Begin a move, or continue with the part that is `left` of an earlier run; other `leftovers` are
        removed first.
        """
        self.moves[partition] = ReplicaMove(partition, home, target, leftovers, left)
        self._trace(
            "replica-moving",
            partition=str(partition.topic_partition),
            source=home.log_dir.path,
            target=target.log_dir.path,
        )

    def serve(
        self,
        partition: Partition,
        home: ReplicaDirectory,
        directories: Sequence[ReplicaDirectory],
        assigned: Uuid | None,
    ) -> None:
        """Report the directory of an opened partition to the controller, and continue the move that an
        earlier process left unfinished.
        """
        topic_partition = partition.topic_partition
        self.wishes.pop(topic_partition, None)
        if assigned != home.log_dir.directory_id:
            self.assign(partition.log.topic_id, topic_partition.partition, home)
        for target in directories:
            copies = target.log_dir.futures.get(topic_partition, ())
            if not copies or target.error is not None:
                continue
            ours = [at for at, future in enumerate(copies) if future.topic_id == partition.log.topic_id]
            paths = target.log_dir.take_futures(topic_partition)
            if ours and target is not home and partition not in self.moves:
                path = paths.pop(ours[0])
                try:
                    left = Left(path, segments_in(self._disk, path))
                except StorageError as error:
                    target.storage_failed(error)
                    continue
                self.begin(partition, home, target, tuple(paths), left)
            else:
                self.discard(paths)

    def assign(self, topic_id: Uuid, index: int, directory: ReplicaDirectory) -> None:
        """Report the directory of a replica to the controller."""
        self.assignments[topic_id, index] = Assignment(topic_id, index, directory.log_dir.directory_id)
        self._agenda.has_deadlines = True

    def discard(self, paths: list[str]) -> None:
        """Remove unfinished copies."""
        if paths:
            self._continuations.run(partial(self._disk.remove, *paths), self._discarded)

    def _discarded(self, result: StorageError | None, now: Instant) -> None:
        if result is not None:
            self._trace("removal-failed", reason=str(result))

    def copies(self) -> Iterator[tuple[ReplicaDirectory, Partition, int, int]]:
        """Directory, partition, size, and lag in offsets of every copy in progress."""
        for partition, move in self.moves.items():
            if move.stage is Stage.COPYING:
                yield (
                    move.target,
                    partition,
                    move.size,
                    max(partition.log.log_end_offset - move.end_offset, 0),
                )

    def removed(self, partition: Partition) -> None:
        """End the moves of a deleted partition."""
        self._next.pop(partition, None)
        left = self._left.pop(partition, None)
        move = self.moves.get(partition)
        if left is not None:
            self._remove_old(left)
        elif move is not None and move.stage is Stage.COPYING:
            self._cancel(move, "the partition was deleted")
        elif move is not None and not move.is_running:
            self._remove_old(move)

    def holds(self, topic_partition: TopicPartition, directory: ReplicaDirectory) -> bool:
        """Whether files of this name are being moved into or out of a directory."""
        moves = (*self.moves.values(), *self._running)
        return any(
            move.topic_partition == topic_partition and directory in (move.home, move.target)
            for move in moves
        )

    def _cancel(self, move: ReplicaMove, reason: str) -> None:
        """End a move before its swap. Its copy is removed, except on a failed disk, where a restart continues
        the move.
        """
        self._drop(move)
        move.is_cancelled = True
        self._trace(
            "move-cancelled",
            partition=str(move.topic_partition),
            target=move.target.log_dir.path,
            reason=reason,
        )
        if move.is_asked and not move.partition.log.is_closed:
            self.assign(*move.key, move.home)
        if not move.is_running:
            self._discard_copy(move)

    def _discard_copy(self, move: ReplicaMove) -> None:
        if move.target.error is None and move.home.error is None and not move.is_unreadable:
            self.discard([move.path, *(move.leftovers or ())])

    def _drop(self, move: ReplicaMove) -> None:
        self.moves.pop(move.partition, None)
        self._cleaning.resume(move.partition)

    # -- schedule

    @property
    def is_quiet(self) -> bool:
        """Whether no job is in progress that a stop must wait for."""
        return not self._running

    def stop(self) -> None:
        """Begin no more jobs; a move before its swap begins again at the next start."""
        self._is_stopping = True

    def close(self) -> None:
        """Make the new names durable, at the end of a clean stop. Blocks."""
        for move in self.moves.values():
            if move.stage in _SWAPPED and move.target.error is None:
                path = move.target.log_dir.swap_path(move.topic_partition)
                try:
                    self._disk.rename(path, path)
                except StorageError as error:
                    move.target.storage_failed(error)

    def deadline(self) -> Micros | None:
        """The next time for `begin_due`."""
        if not self.moves or self._is_stopping:
            return None
        if any(move.stage is Stage.FOLLOWING for move in self.moves.values()):
            return Micros(0)
        is_due = len(self._running) < _JOBS_MAX and any(move.wants_job for move in self.moves.values())
        return self._resume_at_us if is_due else None

    def begin_due(self, now: Instant) -> None:
        """Begin the jobs that are due."""
        if self._is_stopping:
            return
        for move in list(self.moves.values()):
            if move.stage is Stage.FOLLOWING:
                self._follow(move)
            elif len(self._running) < _JOBS_MAX and move.wants_job and self._resume_at_us <= now.mono_us:
                if move.stage is Stage.REMOVING:
                    self._remove_old(move)
                else:
                    self._copy(move, now)

    def advance(self, now: Instant) -> None:
        """Continue the moves that waited for a sync, a checkpoint or a job."""
        for move in list(self.moves.values()) if not self._is_stopping else ():
            self._advance(move, now)

    def _advance(self, move: ReplicaMove, now: Instant) -> None:
        log, target = move.partition.log, move.target
        is_lost = move.home.error is not None or move.is_unreadable
        if target.error is not None or (move.stage is Stage.COPYING and is_lost):
            if move.stage is Stage.COPYING:
                self._cancel(move, "the partition or a log directory is offline")
            elif not move.is_running:
                self._leave(move)
            return
        match move.stage:
            case Stage.COPYING if not move.is_running:
                self._go_on(move, now)
            case Stage.SYNCING if log.recovery_point >= move.waits_for:
                # With its log start offset: without it the deleted records would return after a crash.
                move.waits_for, move.stage = target.checkpoints_begun + 1, Stage.CHECKPOINTING
                target.checkpoint_now(now)
            case Stage.CHECKPOINTING if target.checkpoints_done >= move.waits_for:
                move.stage = Stage.NAMING
                path = target.log_dir.swap_path(move.topic_partition)
                self._begin(move, partial(self._disk.rename, path, path), self._named)
            case _:
                pass

    # -- copying

    def _go_on(self, move: ReplicaMove, now: Instant) -> None:
        """Copy more, send the assignment to the controller, or swap, depending on the stage."""
        log = move.partition.log
        if not self._cleaning.pause(move.partition):
            move.is_due = False  # until the round has ended
        elif move.target.log_dir.checkpoints.is_vouched(move.topic_partition):
            move.is_due = False  # until no checkpoint has an earlier log of this name
            move.target.checkpoint_now(now)
        elif log.segments.cuts != move.cuts:
            move.begin((move.path, *(move.leftovers or ())))
        elif move.behind_bytes > CATCH_UP_BYTES:
            move.is_due = (
                log.segments.is_all_settled or bool(move.gone) or len(log.segments.settled) > len(move.whole)
            )
            if not move.is_due:
                self._settle_soon(move, now)
        elif not move.is_asked:
            move.is_due = False
            move.is_asked = True
            self.assign(*move.key, move.target)
        elif move.is_assigned:
            self._swap(move, now)

    def _settle_soon(self, move: ReplicaMove, now: Instant) -> None:
        """Sync soon: a sealed segment can be copied once it is synced."""
        move.home.mark_dirty(move.partition, 0, now, within_us=0)
        move.home.hurry()

    def _copy(self, move: ReplicaMove, now: Instant) -> None:
        if not move.target.room.has_room(now):
            self._cancel(move, move.target.room.refusal)
            return
        bytes_max = int(min(WORK_BYTES, max(self.bytes_per_second_max / _JOBS_PER_SECOND, _WORK_BYTES_MIN)))
        move.is_due = False
        todo = move.plan(bytes_max)
        if todo is None:
            self._settle_soon(move, now)
            return
        self._resume_at_us = max(self._resume_at_us, now.mono_us)
        self._begin(move, partial(copy, self._disk, todo), partial(self._copy_done, todo))

    def _begin(
        self,
        move: ReplicaMove,
        job: Callable[[], _Result],
        then: Callable[[ReplicaMove, _Result | StorageError, Instant], None],
    ) -> None:
        def done(result: _Result | StorageError, now: Instant) -> None:
            del self._running[move]
            move.is_running = False
            if move.is_cancelled:
                self._discard_copy(move)
            else:
                then(move, result, now)

        move.is_running = True
        self._running[move] = None
        self._continuations.run(job, done, is_background=True)

    def assigned(
        self, reported: tuple[Assignment, ...], refused: frozenset[tuple[Uuid, int]], now: Instant
    ) -> None:
        """Process the controller's reply: the assignments are recorded, except those that it refused."""
        by_key = {(*move.key, move.target.log_dir.directory_id): move for move in self.moves.values()}
        for one in reported:
            move = by_key.get(one)
            if move is None or not move.is_asked:
                continue
            if one[:2] in refused:
                move.is_asked = False
                self._cancel(move, "the controller refused")
            else:
                move.is_assigned = True
        self.advance(now)

    # -- the swap

    def _swap(self, move: ReplicaMove, now: Instant) -> None:
        """Within a turn: copy the rest, rename the copy to the log's name, and continue in it. Waits while
        jobs or a sync use the old paths.
        """
        partition, log = move.partition, move.partition.log
        move.is_due = False
        if log.is_syncing or log.segments.is_swapping or move.topic_partition in self._retention.renaming:
            return
        if log.is_truncating or move.home.is_cut_due(partition):
            return
        if not log.segments.is_all_settled:
            self._settle_soon(move, now)
            return
        if move.gone:
            move.is_due = True
            return
        path = move.target.log_dir.swap_path(move.topic_partition)
        active = log.segments.active
        try:
            end, has_aborted = active.file.size, active.has_aborted
            if not catch_up(
                self._disk,
                move.source,
                move.path,
                active.base_offset,
                copied=move.copied.get(active.base_offset, 0),
                end=end,
                has_aborted=has_aborted,
                bytes_max=CATCH_UP_BYTES,
            ):
                move.is_due = True
                return
            self._disk.rename(move.path, path, is_lasting=False)
            log.move_active(path, move.end_offset)
        except StorageError as error:
            self._failed(move, error)
            return
        move.doomed = move.home.let_go(partition, now)
        move.target.take_in(partition, now)
        self._cleaning.moved(partition, move.home, move.target)
        move.stage, move.waits_for = Stage.SYNCING, log.log_end_offset

    def _follow(self, move: ReplicaMove) -> None:
        """Read a few more segments from the new directory; after the last, nothing needs the old one."""
        try:
            if move.is_unreadable:
                self._leave(move)
            elif move.partition.log.is_closed or move.partition.log.segments.move_sealed(_SEALED_PER_TURN):
                self._remove_old(move)
        except StorageError as error:
            move.target.storage_failed(error)
            self._leave(move)

    def _leave(self, move: ReplicaMove) -> None:
        """The target failed after the swap: the old files stay, as the only readable ones, until the topic is
        deleted.
        """
        if move.partition.log.is_closed and not move.is_unreadable:
            self._remove_old(move)
            return
        self._left[move.partition] = move
        self._drop(move)

    def _remove_old(self, move: ReplicaMove) -> None:
        if move.home.error is not None:
            self._drop(move)
            return
        move.stage, move.is_due = Stage.REMOVING, False
        self._begin(
            move, partial(rename_all, self._disk, move.home.log_dir.path, [move.doomed]), self._old_renamed
        )

    # -- results

    def _old_renamed(self, move: ReplicaMove, result: StorageError | None, now: Instant) -> None:
        if isinstance(result, StorageError):
            if result.is_full and move.home.error is None:
                move.home.room.ran_out(result, now)
                move.is_due = True
                self._resume_at_us = Micros(now.mono_us + _PUT_OFF_US)
                return
            move.home.storage_failed(result)
        self._drop(move)
        self._trace("replica-moved", partition=str(move.topic_partition), target=move.target.log_dir.path)
        following = self._next.pop(move.partition, None)
        if result is None:
            if move.home.log_dir.checkpoints.is_vouched(move.topic_partition):
                move.home.hold(removal(self._disk, [move.doomed[1]]), now)
            else:
                self.discard([move.doomed[1]])
        if following is not None and not move.partition.log.is_closed:
            self.move(move.partition, move.target, following, now)

    def _copy_done(
        self, todo: Copying, move: ReplicaMove, result: Copied | SourceFailed | StorageError, now: Instant
    ) -> None:
        if isinstance(result, StorageError):
            self._failed(move, result)
        elif isinstance(result, SourceFailed):
            bases = {segment.base_offset for segment in move.partition.log.segments.settled} | {
                move.partition.log.segments.active.base_offset
            }
            if all(piece.base_offset in bases for piece in todo.pieces):
                move.partition.disk.storage_failed(result.error)
            move.leftovers = None  # otherwise retention removed a segment while it was copied
        else:
            move.copied_to(todo)
            self._resume_at_us = Micros(
                self._resume_at_us + int(result.io_bytes * 1_000_000 / self.bytes_per_second_max)
            )

    def _named(self, move: ReplicaMove, result: StorageError | None, now: Instant) -> None:
        if result is not None and not move.partition.log.is_closed:
            move.target.storage_failed(result)
            self._leave(move)
            return
        if not move.partition.log.is_closed:
            move.partition.moved(now)
        move.stage = Stage.FOLLOWING

    def _failed(self, move: ReplicaMove, error: StorageError) -> None:
        """The target's disk failed. If it is only full, the move ends, and the other partitions there stay
        online.
        """
        if not error.is_full:
            at_fault = move.partition.disk if error.path.startswith(f"{move.source}/") else move.target
            at_fault.storage_failed(error)
        self._cancel(move, error.with_remedy)
