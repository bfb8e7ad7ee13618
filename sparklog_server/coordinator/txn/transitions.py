"""The transactions of one shard, and the records and follow-ups of each move of a transaction.

move of a transaction ─► one record ─┬─► Ongoing: its timeout runs
                                     ├─► Prepare*: MarkersDue, once the record is committed
                                     └─► Prepare* without partitions: complete, in the same batch
"""

from collections.abc import Callable

from sparklog.errors import ErrorCode
from sparklog.model import Instant, ProducerId, TopicPartition
from sparklog_server.coordinator.shard import NOTHING, Answer, CoordinatorRecord, Decision
from sparklog_server.outcome import Refused

from . import checks
from .events import DUE, MarkersDue
from .records import encode_record
from .states import BUMPING, ENDING, NO_PRODUCER_ID, NO_TIMEOUT_MS, State, Transaction, completed, ended
from .transaction_config import TransactionConfig
from .waits import Completing, Completions, Timeouts


class Transitions:
    """The transactions of a shard. `transactions` is durable: only replay changes it. The other state is
    lost when the shard is loaded anew.

    `last_epochs` has the producer epoch from before the last bump by InitProducerId, for the retry of that
    request; `server_version` is the feature transaction.version.
    """

    def __init__(
        self,
        settings: TransactionConfig,
        *,
        take_producer_id: Callable[[], ProducerId | None],
        trace: Callable[..., None],
    ) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.completions = Completions()
        self.timeouts: Timeouts | None = None
        self.last_epochs: dict[str, int] = {}
        self.server_version = 0
        self._settings = settings
        self._take_producer_id = take_producer_id
        self._trace = trace

    def moved(self, transactional_id: str, after: Transaction, now: Instant, *answers: Answer) -> Decision:
        """The record of the transaction in its new state, with what follows from that state."""
        before = self.transactions.get(transactional_id)
        records = (encode_record(transactional_id, after, self.server_version),)
        if after.state is State.ONGOING:
            if before is None or before.state is not State.ONGOING:
                self.opened(transactional_id, after, now)
            return Decision(records, answers)
        self.running.end(transactional_id)
        if after.state in ENDING:
            if before is None or before.producer_epoch != after.producer_epoch:
                self.last_epochs.pop(transactional_id, None)  # the record has the epoch from now on
            self.completions.begin(transactional_id, after.partitions)
            rest = self.markers_or_complete(transactional_id, after, now)
            return Decision((*records, *rest.records), (*answers, *rest.answers))
        return Decision(records, answers)

    def markers_or_complete(self, transactional_id: str, transaction: Transaction, now: Instant) -> Decision:
        """Ask for the missing markers; complete the transaction if none is missing."""
        completing = self.completions.of(transactional_id)
        assert completing is not None
        if completing.missing:
            return Decision((), (self.markers_due(transactional_id, transaction, completing),))
        self.completions.end(transactional_id)
        after = completed(transaction, now.wall_ms)
        return Decision((encode_record(transactional_id, after, self.server_version),))

    def markers_due(self, transactional_id: str, transaction: Transaction, completing: Completing) -> Answer:
        """The request for the missing markers."""
        due = MarkersDue(
            transactional_id=transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            is_commit=transaction.state is State.PREPARE_COMMIT,
            transaction_version=transaction.client_version,
            partitions=tuple(completing.missing),
            end=completing.end,
        )
        return Answer(due, DUE)

    @property
    def running(self) -> Timeouts:
        """The timeouts of the open transactions."""
        assert self.timeouts is not None, "a shard decides nothing before it is loaded"
        return self.timeouts

    def opened(self, transactional_id: str, transaction: Transaction, now: Instant) -> None:
        """Let the timeout of an open transaction run."""
        if transaction.timeout_ms == NO_TIMEOUT_MS:
            return
        # The start may be from another process, and the wall clock may have been set back since.
        elapsed_ms = min(max(now.wall_ms - transaction.start_ms, 0), transaction.timeout_ms)
        longest_ms = max(self._settings.timeout_max_ms, transaction.timeout_ms)
        self.running.begin(
            transactional_id,
            elapsed_ms=elapsed_ms,
            timeout_ms=transaction.timeout_ms,
            longest_ms=longest_ms,
            now=now,
        )

    def producer_id(self) -> ProducerId:
        """A new producer id. Raises Refused with COORDINATOR_LOAD_IN_PROGRESS while the broker has none."""
        producer_id = self._take_producer_id()
        if producer_id is None:
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return producer_id

    def roll_forward(self, transactional_id: str, transaction: Transaction, now: Instant) -> Decision:
        """Commit in place of the producer, in its own version: a later EndTxn of the producer is a retry."""
        try:
            bumps = transaction.client_version >= BUMPING and transaction.is_exhausted
            next_producer_id = self.producer_id() if bumps else NO_PRODUCER_ID
        except Refused:
            self.running.ask_again(transactional_id, now)
            return NOTHING
        after = ended(
            transaction,
            is_commit=True,
            client_version=transaction.client_version,
            next_producer_id=next_producer_id,
            now_ms=now.wall_ms,
        )
        self._trace("transaction-rolled-forward", id=transactional_id, producer_id=transaction.producer_id)
        return self.moved(transactional_id, after, now)

    def abort(self, transactional_id: str, transaction: Transaction, now: Instant) -> Decision:
        """Abort a transaction that has reached its timeout, and fence its producer."""
        try:
            after = checks.fence(transaction, self.producer_id, self.server_version, now.wall_ms)
        except Refused:
            self.running.ask_again(transactional_id, now)
            return NOTHING
        self._trace(
            "transaction-timed-out",
            id=transactional_id,
            producer_id=transaction.producer_id,
            timeout_ms=transaction.timeout_ms,
        )
        return self.moved(transactional_id, after, now)

    def joined(
        self,
        transactional_id: str,
        before: Transaction,
        partitions: frozenset[TopicPartition],
        client_version: int,
        now: Instant,
        answer: Answer,
    ) -> Decision:
        """Add partitions to a transaction. Raises Refused if its record would be too large."""
        after = checks.add(before, partitions, client_version, now.wall_ms)
        if after is None:
            return Decision((), (answer,))
        decision = self.moved(transactional_id, after, now, answer)
        if _size(decision.records) > self._settings.record_bytes_max:
            if before.state is not State.ONGOING:
                self.running.end(transactional_id)
            # As Kafka answers when its own log refuses the record.
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
        return decision


def _size(records: tuple[CoordinatorRecord, ...]) -> int:
    return sum(len(record.key) + len(record.value or b"") for record in records)
