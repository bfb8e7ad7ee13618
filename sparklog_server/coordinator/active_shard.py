"""A shard with its partition: the batch that one turn gathers for it, and the answers that wait for it.

    decision ─► records replayed, in the batch of the turn ─► appended ─► answers parked until it is committed

The leader is the only writer of the partition, so the offset of a gathered record is known before the record
is appended.
"""

from collections import deque
from typing import Final

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Instant, LeaderEpoch, Offset
from sparklog.record.batch import HEADER_SIZE, BatchBuilder, record_size_max
from sparklog.record.control import ControlType, Marker
from sparklog_server.coordinator.command import Token

from .loader import CoordinatorLoader
from .partition_writer import LogMoved, ShardPartition
from .shard import Answer, Decision, InTransaction, Shard
from .timers import Timer

_NONE: Final = ErrorCode.NONE  # Reading an enum member through its class costs as much as two calls.
_TOO_LARGE: Final = ErrorCode.UNKNOWN_SERVER_ERROR
"""The code that Kafka returns for records that are too large for the log."""


class _Parked(msgspec.Struct, frozen=True):
    """Answers that may leave when the high watermark reaches `end_offset`."""

    end_offset: Offset
    answers: list[Answer]


class ActiveShard:
    """A loaded shard and the partition that it writes. Invariant: each parked batch ends at a later offset
    than the one before.
    """

    __slots__ = (
        "_parked",
        "answers",
        "builder",
        "epoch",
        "loading",
        "next_offset",
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
        self.answers: list[Answer] = []  # they depend on the batch of this turn
        self._parked: deque[_Parked] = deque()
        self.waits_until = Offset(-1)  # the offset of the last waiter of the partition

    def gather(self, decision: Decision, now: Instant) -> ErrorCode:
        """Replay the records of a decision and add them to the batch of the turn. Returns an error code if
        only this decision is refused.

        Raises Refused or LogMoved, after which the shard has to be dropped.
        """
        batch_bytes_max, needed = self.partition.batch_bytes_max, 0
        for record in decision.records:
            needed += record_size_max(record.key, record.value, ())
        is_oversized = needed > batch_bytes_max - HEADER_SIZE
        if is_oversized and decision.may_be_refused and not decision.fits(batch_bytes_max):
            return _TOO_LARGE
        if needed > batch_bytes_max - (HEADER_SIZE if self.builder is None else self.builder.size):
            self.append(now)
        for record in decision.records:
            # The records of a decision share one batch, unless they are larger than a batch may be.
            if is_oversized and self.builder is not None:
                size = record_size_max(record.key, record.value, ())
                if self.builder.size + size > batch_bytes_max:
                    self.append(now)
            builder = self.builder
            if builder is None:
                builder = self.builder = BatchBuilder()
            builder.append(record.key, record.value, (), now.wall_ms)
            if record.message is None:
                self.shard.replay(record.key, record.value, self.next_offset)
            else:
                self.shard.replay_own(record.message, self.next_offset)
            self.next_offset = Offset(self.next_offset + 1)
        return _NONE

    def append(self, now: Instant) -> None:
        """Append the batch of the turn, and park the answers that depend on it. Raises Refused or LogMoved,
        after which the shard has to be dropped.
        """
        builder, self.builder = self.builder, None
        if builder is not None:
            base_offset = self.partition.append(builder.build(), now)
            if base_offset + builder.record_count != self.next_offset:
                raise LogMoved
        if self.answers:
            self._parked.append(_Parked(self.next_offset, self.answers))
            self.answers = []

    def append_in_transaction(
        self, decision: Decision, transaction: InTransaction, now: Instant
    ) -> ErrorCode:
        """Append the records of a decision in a batch of their own, then replay them. Returns the code if
        they are too large. Raises Refused or LogMoved.
        """
        builder, producer_id = BatchBuilder(), transaction.producer_id
        for record in decision.records:
            builder.append(record.key, record.value, (), now.wall_ms)
        if builder.size > self.partition.batch_bytes_max:
            return _TOO_LARGE
        batch = builder.build(
            producer_id=producer_id, producer_epoch=transaction.producer_epoch, is_transactional=True
        )
        if self.partition.append_in_transaction(batch, transaction.proof, now) != self.next_offset:
            raise LogMoved
        for record in decision.records:
            self.shard.replay_undecided(producer_id, record.key, record.value, self.next_offset)
            self.next_offset = Offset(self.next_offset + 1)
        return _NONE

    def append_marker(
        self, marker: Marker, producer: tuple[int, int], *, is_bumped: bool, now: Instant
    ) -> None:
        """Append the end of the transaction of a producer, its id and epoch, and replay it. Raises Refused
        or LogMoved.
        """
        offset = self.partition.append_marker(marker, producer, is_bumped=is_bumped, now=now)
        if offset != self.next_offset:
            raise LogMoved
        self.shard.replay_marker(producer[0], marker.type is ControlType.COMMIT, offset)
        self.next_offset = Offset(offset + 1)

    def release(self, answers: list[Answer]) -> Offset | None:
        """Move the answers that the high watermark has passed to `answers`. Returns the offset that the next
        parked answers wait for.
        """
        parked, high_watermark = self._parked, self.partition.high_watermark
        while parked and parked[0].end_offset <= high_watermark:
            answers.extend(parked.popleft().answers)
        return parked[0].end_offset if parked else None

    def unanswered(self) -> list[Token]:
        """The tokens of every command without an answer."""
        undone = [answer.token for parked in self._parked for answer in parked.answers]
        return [*undone, *(answer.token for answer in self.answers), *self.shard.waiting()]
