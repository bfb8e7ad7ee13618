"""The states of a transaction, and the moves between them.

    Empty ────────── add ──────────► Ongoing          add: also from Complete*, the next transaction begins
    Ongoing ──────── end: commit ──► PrepareCommit ── all markers written ──► CompleteCommit
    Ongoing ──────── end: abort ───► PrepareAbort ─── all markers written ──► CompleteAbort
    Ongoing ──────── init, timeout ► PrepareEpochFence (never written) ─────► PrepareAbort
    Empty, Complete* ─ end: abort ─► PrepareAbort     TV2 only: an abort of nothing
    Empty, Complete* ─ init ───────► Empty
    Empty, Complete* ─ unused ─────► Dead: a tombstone, and forgotten

In transaction version 1 (TV1) a producer keeps its epoch over transactions. In TV2 (KIP-890) every end bumps
the epoch: the markers and the answer to EndTxn have the new one. After the last epoch the transactional id
gets another producer id.
"""

from enum import IntEnum

import msgspec

from sparklog.model import ProducerEpoch, ProducerId, TopicPartition


class State(IntEnum):
    """The states, with Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


LEGAL: dict[State, tuple[State, ...]] = {
    State.EMPTY: (State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD),
    State.ONGOING: (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE),
    State.PREPARE_COMMIT: (State.COMPLETE_COMMIT,),
    State.PREPARE_ABORT: (State.COMPLETE_ABORT,),
    State.COMPLETE_COMMIT: (State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD),
    State.COMPLETE_ABORT: (State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD),
    State.DEAD: (),
    State.PREPARE_EPOCH_FENCE: (State.PREPARE_ABORT,),
}
NAMES = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
    State.DEAD: "Dead",
    State.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
"""The names in DescribeTransactions and ListTransactions."""
ENDING = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
FINISHED = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""The states without an open transaction: the id may expire."""

NO_PRODUCER_ID = ProducerId(-1)
NO_EPOCH = ProducerEpoch(-1)
EPOCH_MAX = 32_767
LAST_EPOCH = EPOCH_MAX - 1
"""The last epoch of a producer: the next one is left to fence it."""
BUMPING = 2
"""The first transaction version in which every end bumps the epoch."""
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of two-phase commits (KIP-939): none."""


class Transaction(msgspec.Struct, frozen=True):
    """The durable state of one transactional id. `client_version` is the transaction version of its last
    move.

    `previous_producer_id` is the producer id before the last move; `next_producer_id`, if given, replaces the
    producer id on completion. Times are epoch milliseconds; a start of -1 is none.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int
    update_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_id: ProducerId = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left for a producer."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def epoch_before_end(self) -> ProducerEpoch:
        """The epoch before the end of the last transaction bumped it; NO_EPOCH if that did not bump it."""
        if self.client_version < BUMPING or self.state in (State.EMPTY, State.ONGOING):
            return NO_EPOCH
        if self.producer_epoch == 0:
            return ProducerEpoch(LAST_EPOCH)
        return ProducerEpoch(self.producer_epoch - 1)


def _check(before: State, *moves: State) -> None:
    for target in moves:
        assert target in LEGAL[before], f"{before.name} → {target.name}"
        before = target


def begun(producer_id: ProducerId, timeout_ms: int, now_ms: int) -> Transaction:
    """The first producer of a transactional id."""
    return Transaction(producer_id, ProducerEpoch(0), timeout_ms, now_ms)


def initialised(
    before: Transaction, producer_id: ProducerId, producer_epoch: int, timeout_ms: int, now_ms: int
) -> Transaction:
    """InitProducerId: the transactional id has a producer with this id and epoch."""
    _check(before.state, State.EMPTY)
    return msgspec.structs.replace(
        before,
        state=State.EMPTY,
        producer_id=producer_id,
        producer_epoch=ProducerEpoch(producer_epoch),
        previous_producer_id=before.producer_id,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=-1,
        update_ms=now_ms,
    )


def joined(
    before: Transaction, partitions: frozenset[TopicPartition], client_version: int, now_ms: int
) -> Transaction:
    """Add partitions; begins a transaction if none is open."""
    _check(before.state, State.ONGOING)
    is_open = before.state is State.ONGOING
    return msgspec.structs.replace(
        before,
        state=State.ONGOING,
        previous_producer_id=before.producer_id,
        partitions=before.partitions | partitions,
        start_ms=before.start_ms if is_open else now_ms,
        update_ms=now_ms,
        client_version=client_version,
    )


def ended(
    before: Transaction,
    *,
    is_commit: bool,
    client_version: int,
    next_producer_id: ProducerId,
    now_ms: int,
) -> Transaction:
    """EndTxn: decide the outcome. From Empty and Complete* (TV2) an abort of nothing, which bumps the epoch
    too.
    """
    target = State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT
    _check(before.state, target)
    bump = 1 if client_version >= BUMPING and before.producer_epoch < EPOCH_MAX else 0
    return msgspec.structs.replace(
        before,
        state=target,
        producer_epoch=ProducerEpoch(before.producer_epoch + bump),
        previous_producer_id=before.producer_id,
        next_producer_id=next_producer_id,
        start_ms=before.start_ms if before.state is State.ONGOING else now_ms,
        update_ms=now_ms,
        client_version=client_version,
    )


def fenced(
    before: Transaction, *, server_version: int, next_producer_id: ProducerId, now_ms: int
) -> Transaction:
    """Abort for a newer producer or a timeout; the epoch is bumped in every version, so that the old producer
    is fenced.
    """
    _check(before.state, State.PREPARE_EPOCH_FENCE, State.PREPARE_ABORT)
    aborted = ended(
        before,
        is_commit=False,
        client_version=server_version,
        next_producer_id=next_producer_id,
        now_ms=now_ms,
    )
    if server_version >= BUMPING or before.producer_epoch == EPOCH_MAX:
        return aborted
    # As in Kafka before KIP-890: the transaction has version 0.
    return msgspec.structs.replace(
        aborted, producer_epoch=ProducerEpoch(before.producer_epoch + 1), client_version=0
    )


def completed(before: Transaction, now_ms: int) -> Transaction:
    """Complete the transaction: every partition has its marker."""
    target = State.COMPLETE_COMMIT if before.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
    _check(before.state, target)
    is_rotated = before.client_version >= BUMPING and before.next_producer_id != NO_PRODUCER_ID
    return msgspec.structs.replace(
        before,
        state=target,
        producer_id=before.next_producer_id if is_rotated else before.producer_id,
        producer_epoch=ProducerEpoch(0) if is_rotated else before.producer_epoch,
        previous_producer_id=before.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        update_ms=now_ms,
    )


def may_be_forgotten(transaction: Transaction) -> bool:
    """Whether the id may expire in its state."""
    return State.DEAD in LEGAL[transaction.state]
