"""The transaction coordinator of this broker: its shards over the partitions of `__transaction_state` that
this node leads.

handler, produce ─► send, vouch ─► the shard of the id ─► the answer to its token
                                              │
          told ◄── MarkersDue, VerdictDue ◄───┘ once the records before them are committed
           ├─► write_due ─► the port that writes markers ─► MarkersWritten ─► the shard
           └─► `resolver` ─► Verdict ─► the shard
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, ProducerId, TopicPartition
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from sparklog_server.agenda import Agenda
from sparklog_server.broker.coordinators.coordinator_shards import CoordinatorShards, compacted_topic
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.broker.session import Wakeable
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.coordinator.command import Command, Token
from sparklog_server.coordinator.placement import TRANSACTIONS_TOPIC
from sparklog_server.coordinator.txn.events import Answer as Outcome
from sparklog_server.coordinator.txn.events import MarkersDue, MarkersWritten, Verdict, VerdictDue
from sparklog_server.coordinator.txn.transaction_config import TransactionConfig
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.replica.directory import Trace

if TYPE_CHECKING:
    from sparklog_server.coordinator.txn.shard import TxnShard


_BROKERS_VERSION = 5
"""The version of AddPartitionsToTxn between brokers."""
_NEEDS_NONE = (
    ErrorCode.NONE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)
"""The codes of a partition that has its marker, has a newer marker of the producer, or accepts no marker."""

_MARKERS_AT_ONCE = 200
"""The markers that are written in one turn of the loop: some milliseconds."""
_JUDGED_AT_ONCE = 4
"""The verdicts in one turn of the loop: each searches a decision, 0.1 ms for one with ten thousand tasks."""

MarkersDone = Callable[[Mapping[TopicPartition, ErrorCode], Instant], None]
WriteMarkers = Callable[[MarkersDue, int, MarkersDone, Instant], None]
"""The port to `marker_channels.py`: writes the markers of a MarkersDue in the coordinator's epoch, and
reports the results once.
"""


class Resolver(Protocol):
    """The port that knows the outcome of timed-out transactions, from the decisions of the
    exactly-once sink.
    """

    deadline_us: Micros | None
    """When `tick` is wanted."""

    def tick(self, now: Instant) -> None: ...

    def verdict(self, transactional_id: str, producer_id: int, producer_epoch: int, now: Instant) -> Outcome:
        """The outcome of a transaction that has timed out. The coordinator calls it again every
        `transaction.abort.timed.out.transaction.cleanup.interval.ms` while it returns ASK_AGAIN, until the
        transaction has been open for `transaction.max.timeout.ms`. It must not block."""


class TransactionCoordinator:
    """The transaction coordinator; `due` has the markers whose writing has not begun.

    `write` is the port that writes markers, `resolver` the port that knows the outcome of `sl.` ids.
    """

    @staticmethod
    def shard_class() -> "type[TxnShard]":
        """The class of the shards; a start without transactions does not import it."""
        from sparklog_server.coordinator.txn.shard import TxnShard

        return TxnShard

    def __init__(
        self,
        live: DynamicBrokerConfig,
        continuations: Continuations,
        agenda: Agenda,
        resolver: Resolver,
        write: WriteMarkers,
        *,
        entropy: Callable[[int], bytes],
        trace: Trace,
    ) -> None:
        settings = live.settings
        txn_settings = txn_settings_of(settings)
        topic = compacted_topic(
            TRANSACTIONS_TOPIC,
            partition_count=settings.internal_topics.transaction_state_log_num_partitions,
            replication_factor=settings.internal_topics.transaction_state_log_replication_factor,
            configs={
                "segment.bytes": str(settings.internal_topics.transaction_state_log_segment_bytes),
                "min.insync.replicas": str(settings.internal_topics.transaction_state_log_min_isr),
                "unclean.leader.election.enable": "false",
            },
        )

        def make_shard() -> "TxnShard":
            return self.shard_class()(txn_settings, take_producer_id=self._take_producer_id, trace=trace)

        self._agenda = agenda
        self.producer_ids = ProducerIds()
        self.shards = CoordinatorShards(
            topic, make_shard, continuations, agenda, node_id=settings.node_id, entropy=entropy, trace=trace
        )
        self.resolver = resolver
        self._write = write
        self.due: list[MarkersDue] = []
        self.wants_producer_ids = False
        self._writing: dict[str, tuple[int, int]] = {}
        self._pieces: deque[tuple[MarkersDue, _Writing]] = deque()
        self._room = _MARKERS_AT_ONCE
        self._unjudged: deque[VerdictDue] = deque()
        self._judged_room = _JUDGED_AT_ONCE
        self.has_more_due = False
        """Whether markers or verdicts are due that did not fit into a turn."""

    def _take_producer_id(self) -> ProducerId | None:
        taken = self.producer_ids.take()
        self.wants_producer_ids = self.wants_producer_ids or taken is None
        return taken

    # -- requests

    def send(self, transactional_id: str, command: Command, token: Token, now: Instant) -> ErrorCode:
        """Send a command to the shard of a transactional id; NONE if the shard accepts it, and `token` will
        be answered.
        """
        return self.shards.send(transactional_id, command, token, now)

    def vouch(self, transaction: AddPartitionsToTxnTransaction, token: Token, now: Instant) -> ErrorCode:
        """Verify a transaction's partitions, or add them to it, as a broker asks by AddPartitionsToTxn 4+
        (KIP-890).

        NONE if `token` will be answered with an AddPartitionsToTxnResponse whose
        one result of `results_by_transaction` has an error code for each partition; another code is for
        all of them, at once.
        """
        command = Command(AddPartitionsToTxnRequest(transactions=[transaction]), _BROKERS_VERSION)
        return self.send(transaction.transactional_id, command, token, now)

    def open_producers(self) -> frozenset[int] | None:
        """The producer ids whose transactions are open or about to end; None while a shard is loading,
        or cannot be loaded. Scans all transactions.
        """
        count, runtime = self.shards.partition_count, self.shards.runtime
        if count and (not self.shards.is_settled or any(map(runtime.has_failed, range(count)))):
            return None
        from sparklog_server.coordinator.txn.states import FINISHED

        shards = cast("list[TxnShard]", runtime.serving())
        return frozenset(
            one.producer_id
            for shard in shards
            for one in shard.transactions.values()
            if one.state not in FINISHED
        )

    # -- due markers and verdicts

    def requested(self, due: MarkersDue | VerdictDue) -> None:
        """Take a request of a shard; a shard that was dropped repeats it after its next load."""
        if isinstance(due, MarkersDue):
            self.due.append(due)
            self._room = 0  # in another turn, so that the producer is answered first
        else:
            self._unjudged.append(due)
            self.has_more_due = True

    def _judge(self, due: VerdictDue, now: Instant) -> None:
        outcome = self.resolver.verdict(due.transactional_id, due.producer_id, due.producer_epoch, now)
        verdict = Verdict(due.transactional_id, due.producer_id, due.producer_epoch, outcome)
        self.send(due.transactional_id, Command(verdict, 0), None, now)

    def write_due(self, image: MetadataImage, now: Instant) -> None:
        """Request the due verdicts and begin to write the due markers, as many as fit into a turn; `resume`
        allows more.
        """
        while self._unjudged and self._judged_room > 0:
            self._judged_room -= 1
            self._judge(self._unjudged.popleft(), now)
        due, self.due = self.due, []
        for one in due:
            identity = one.producer_id, one.producer_epoch
            is_begun = self._writing.get(one.transactional_id) == identity
            if is_begun or one.end.is_over or not self.shards.partition_count:
                # the shard was loaded anew, or dropped: a second marker could end the next transaction
                continue
            self._writing[one.transactional_id] = identity
            self._begin(one, image, now)
        while self._pieces and self._room > 0:
            piece, writing = self._pieces.popleft()
            self._room -= len(piece.partitions)
            self._write(piece, writing.coordinator_epoch, writing.written, now)
        self.has_more_due = bool(self._pieces or self._unjudged)

    def resume(self) -> None:
        """Allow the work of another turn."""
        self._room = _MARKERS_AT_ONCE
        self._judged_room = _JUDGED_AT_ONCE
        if self.has_more_due:
            self._agenda.has_coordination = True

    def _begin(self, due: MarkersDue, image: MetadataImage, now: Instant) -> None:
        # A deleted partition needs no marker.
        there = tuple(one for one in due.partitions if is_there(image, one))
        gone = tuple(one for one in due.partitions if not is_there(image, one))

        def done(ended: list[TopicPartition], again: list[TopicPartition], now: Instant) -> None:
            self._writing.pop(due.transactional_id, None)
            written = MarkersWritten(
                due.transactional_id, due.producer_id, due.producer_epoch, (*gone, *ended), tuple(again)
            )
            self.send(due.transactional_id, Command(written, 0), None, now)

        if not there:
            done([], [], now)
            return
        pieces = [there[first : first + _MARKERS_AT_ONCE] for first in range(0, len(there), _MARKERS_AT_ONCE)]
        writing = _Writing(len(pieces), self.shards.leader_epoch(due.transactional_id), done)
        self._pieces.extend((msgspec.structs.replace(due, partitions=piece), writing) for piece in pieces)


class _Writing:
    """The markers of one MarkersDue, of which `missing` pieces are not written yet. Invariant: `done` is
    called once, after the last.
    """

    __slots__ = ("_again", "_done", "_ended", "_missing", "coordinator_epoch")

    def __init__(
        self,
        missing: int,
        coordinator_epoch: int,
        done: Callable[[list[TopicPartition], list[TopicPartition], Instant], None],
    ) -> None:
        self.coordinator_epoch = coordinator_epoch
        self._missing = missing
        self._done = done
        self._ended: list[TopicPartition] = []
        self._again: list[TopicPartition] = []

    def written(self, outcomes: Mapping[TopicPartition, ErrorCode], now: Instant) -> None:
        """The result of one piece."""
        for partition, code in outcomes.items():
            (self._ended if code in _NEEDS_NONE else self._again).append(partition)
        self._missing -= 1
        if not self._missing:
            self._done(self._ended, self._again, now)


def is_there(image: MetadataImage, partition: TopicPartition) -> bool:
    """Whether a partition exists in the metadata."""
    topic = image.topics_by_name.get(partition.topic)
    return topic is not None and 0 <= partition.partition < len(topic.partitions)


def txn_settings_of(settings: BrokerSettings) -> TransactionConfig:
    """The limits of transactions, from the broker's settings."""
    keys = settings.transactions
    return TransactionConfig(
        timeout_max_ms=keys.max_timeout_ms,
        abort_interval_ms=keys.abort_interval_ms,
        expiration_ms=keys.id_expiration_ms,
        resolved_expiration_ms=keys.sink_id_expiration_ms,
        expiry_interval_ms=keys.expiry_interval_ms,
        is_two_phase_enabled=keys.two_phase_commit_enable,
    )


class ProducerIds:
    """The half-open block `[next, limit)` of producer ids, and the requests that wait for the next block."""

    __slots__ = ("_limit", "_next", "is_asked", "waiting")

    def __init__(self) -> None:
        self._next = 0
        self._limit = 0
        self.is_asked = False
        self.waiting: list[Wakeable] = []

    @property
    def is_empty(self) -> bool:
        """Whether the block is used up."""
        return self._next == self._limit

    def take(self) -> ProducerId | None:
        """The next id, or None when the block is used up."""
        if self._next == self._limit:
            return None
        taken = ProducerId(self._next)
        self._next += 1
        return taken

    def granted(self, first: int, count: int) -> None:
        """The controller granted the block `[first, first + count)`; the rest of the old one is dropped."""
        self._next = first
        self._limit = first + count
        self.is_asked = False
