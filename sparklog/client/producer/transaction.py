"""One producer's transactions, as a machine: the calls that are legal, their requests, and the effect of
each error.

              init            begin              commit, abort          EndTxn answered
    UNINITIALIZED -> INITIALIZING -> READY -> IN_TRANSACTION -> COMMITTING, ABORTING -> READY
                                                |                  |
                          a batch or an offset could not be written   --> ABORTABLE_ERROR --abort--> ABORTING
    fenced, forbidden, or an unknown error code: from anywhere --> FATAL_ERROR

It does no I/O and reads no clock. Each of the caller's five calls returns an `Operation`, which ends when a
broker has answered; `errands` returns the request to send, `replied` and `failed` take its outcome. One
request is in flight at a time. Retriable errors are retried without limit: the waiting thread has a time
limit, and continues to wait when it makes the same call again.

`Outbound` calls `may_send` for each partition, and `shipped` and `batch_failed`. Under transaction version 2
(KIP-890) producing adds the partition, and the reply to EndTxn has the next epoch; below it
AddPartitionsToTxn and AddOffsetsToTxn are sent first, and a transaction that left a gap in the sequences is
followed by an InitProducerId, which raises the epoch.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sparklog.client.cluster import Entropy, backoff_us
from sparklog.client.failures import (
    TransactionAbortable,
    TransactionError,
    TransactionFatal,
    WrongTransactionState,
)
from sparklog.client.membership.member import (
    COORDINATOR_GONE,
    TRANSACTION_KEY,
    Coordinator,
    Errand,
    GroupMetadata,
)
from sparklog.client.membership.offsets import OffsetAndMetadata
from sparklog.client.producer.transaction_errors import classified, has_wrong_rights, of_batch
from sparklog.client.producer.transaction_states import (
    END_BEFORE_V2,
    ENDING,
    LEGAL,
    OPEN,
    REMEDIES,
    Operation,
    ProducerIdentity,
    State,
    follows_v2,
)
from sparklog.client.settings import ClientSettings
from sparklog.errors import BrokerError, ErrorCode, SparklogError, code_of
from sparklog.model import Micros, NodeId, ProducerEpoch, ProducerId, TopicPartition
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from sparklog.wire.schema import Message

PRODUCE_BEFORE_V2: Final = 11
OFFSETS_BEFORE_V2: Final = 4
ADD_PARTITIONS_OF_CLIENTS: Final = 3
CONCURRENT_BACKOFF_MS: Final = 20
"""Kafka's first back-off while the coordinator still completes the previous transaction (KAFKA-5482)."""
UNREACHABLE_US_MAX: Final = 1_000_000
"""How long a coordinator may be unreachable before another broker is asked for the coordinator."""


def add_partitions(
    identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """The client's request (v3 at most) that adds partitions to its transaction."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, partition in sorted(partitions):
        topics.setdefault(name, AddPartitionsToTxnTopic(name, [])).partitions.append(partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=identity.transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=list(topics.values()),
    )


def partition_errors(reply: AddPartitionsToTxnResponse) -> dict[TopicPartition, ErrorCode]:
    """The result of each partition."""
    return {
        TopicPartition(topic.name, partition.partition_index): code_of(partition.partition_error_code)
        for topic in reply.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }


class PendingOffsets:
    """Offsets to be committed in a transaction; `left` has those that are still to be sent."""

    __slots__ = ("group", "home", "is_added", "left", "operation")

    def __init__(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        operation: Operation,
        home: Coordinator,
    ) -> None:
        self.left = offsets
        self.group = group
        self.operation = operation
        self.home = home
        self.is_added = False
        """Whether the group was added to the transaction at the coordinator, which must come first below
        version 2.
        """

    def request(
        self, identity: ProducerIdentity, *, is_v2: bool
    ) -> tuple[TxnOffsetCommitRequest, int | None]:
        """The commit of the remaining offsets, and the newest version that may be used."""
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, partition), position in self.left.items():
            committed = TxnOffsetCommitRequestPartition(
                partition, position.offset, position.leader_epoch, position.metadata
            )
            topics.setdefault(name, TxnOffsetCommitRequestTopic(name, [])).partitions.append(committed)
        request = TxnOffsetCommitRequest(
            transactional_id=identity.transactional_id,
            group_id=self.group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            generation_id=self.group.generation_id,
            member_id=self.group.member_id,
            group_instance_id=self.group.group_instance_id,
            topics=list(topics.values()),
        )
        return request, None if is_v2 else OFFSETS_BEFORE_V2

    def committed(self, reply: TxnOffsetCommitResponse) -> ErrorCode:
        """Process a reply. Returns NONE if everything is committed, else an error; one that is not retriable
        takes precedence.
        """
        codes = [ErrorCode.UNKNOWN_SERVER_ERROR] if not reply.topics else []
        for topic in reply.topics:
            for partition in topic.partitions:
                code = code_of(partition.error_code)
                if code is ErrorCode.NONE:
                    self.left.pop(TopicPartition(topic.name, partition.partition_index), None)
                else:
                    codes.append(code)
        return min(codes, key=lambda code: code.is_retriable, default=ErrorCode.NONE)


class Pace:
    """Back-offs between requests, and the time since which the coordinator has been unreachable."""

    __slots__ = ("_entropy", "_settings", "attempts", "not_before", "unreachable_since")

    def __init__(self, settings: ClientSettings, entropy: Entropy) -> None:
        self._settings = settings
        self._entropy = entropy
        self.attempts = 0
        self.not_before = Micros(0)
        self.unreachable_since: Micros | None = None

    @property
    def deadline(self) -> Micros:
        """The time at which the next request may be sent, or another coordinator is looked up."""
        if self.unreachable_since is None:
            return self.not_before
        return Micros(self.unreachable_since + UNREACHABLE_US_MAX)

    def begin(self) -> None:
        """A new operation begins without a back-off."""
        self.attempts, self.not_before = 0, Micros(0)

    def retry(self, code: ErrorCode, now: Micros) -> None:
        """Back off after an error."""
        first, most = self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms
        if code is ErrorCode.CONCURRENT_TRANSACTIONS:
            # The coordinator completes a transaction within milliseconds.
            first, most = min(first, CONCURRENT_BACKOFF_MS), first
        wait = backoff_us(first, max(first, most), self.attempts, self._entropy)
        self.attempts += 1
        self.not_before = Micros(now + wait)

    def may_reach(self, home: Coordinator, now: Micros, *, is_ready: bool) -> bool:
        """Whether a request may be sent to the coordinator; one that stays unreachable is given up."""
        if is_ready:
            self.unreachable_since = None
        elif self.unreachable_since is None:
            self.unreachable_since = now
        elif now - self.unreachable_since >= UNREACHABLE_US_MAX:
            self.unreachable_since = None
            home.lost(now)
        return is_ready


class Transaction:
    """The transactions of one producer, one after another. Invariants: see `LEGAL`; `operation` is that of
    the current state, if it has one.
    """

    def __init__(
        self, settings: ClientSettings, entropy: Entropy, features: Callable[[], Mapping[str, int]]
    ) -> None:
        assert settings.transactional_id is not None
        self.transactional_id = settings.transactional_id
        self.state = State.UNINITIALIZED
        self.is_v2 = False
        """Whether the transaction, or the next one, follows KIP-890."""
        self.ended = 0
        """The number of operations that have ended, for callers that wait for the next one."""
        self._settings = settings
        self._entropy = entropy
        self._features = features
        self._producer_id = ProducerId(-1)
        self._epoch = ProducerEpoch(-1)
        self._error: TransactionError | None = None
        self._operation: Operation | None = None
        self._offsets: PendingOffsets | None = None
        self._added: dict[TopicPartition, None] = {}  # below version 2: known to the coordinator
        self._adding: dict[TopicPartition, None] = {}  # with a batch that waits for the coordinator
        self._is_started = False  # whether the coordinator may have the transaction
        self._is_doubtful = False  # whether only a lost reply could tell if the coordinator has it
        self._is_flushed = False
        self._needs_epoch = (
            False  # an InitProducerId must follow, because sequences have a gap or the version changes
        )
        self._coordinator = Coordinator(
            settings, entropy, key=self.transactional_id, key_type=TRANSACTION_KEY
        )
        self._group_home: tuple[str, Coordinator] | None = None
        self._asked: Errand | None = None
        self._pace = Pace(settings, entropy)
        self._number = 0

    # -- the caller's five calls -----------------------------------------------------------------------------

    def init(self) -> Operation:
        """Request a producer id and fence every earlier producer with the same transactional id."""
        if self.state is State.INITIALIZING:
            return self._waited("init")
        self._require(State.UNINITIALIZED, "init")
        self._go(State.INITIALIZING)
        return self._begin_operation("init")

    def begin(self) -> None:
        """Begin a transaction; nothing is sent for it."""
        self._require(State.READY, "begin")
        self._added, self._adding = {}, {}
        self._is_started = self._is_doubtful = self._is_flushed = False
        self._go(State.IN_TRANSACTION)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> Operation:
        """Commit offsets of a group as part of the transaction."""
        self._require(State.IN_TRANSACTION, "send_offsets")
        if self._offsets is not None:
            raise WrongTransactionState("send_offsets: the one before has not ended: abort the transaction")
        operation = Operation("send_offsets")
        if not offsets:
            operation.end()
            return operation
        if (
            self._group_home is None
            or self._group_home[0] != group.group_id
            or self._group_home[1].error is not None
        ):
            self._group_home = group.group_id, Coordinator(self._settings, self._entropy, key=group.group_id)
        self._pace.begin()
        self._offsets = PendingOffsets(dict(sorted(offsets.items())), group, operation, self._group_home[1])
        return operation

    def commit(self) -> Operation:
        """Commit once `flushed` has reported that every batch is acknowledged."""
        if self.state is State.COMMITTING:
            return self._waited("commit")
        self._require(State.IN_TRANSACTION, "commit")
        self._go(State.COMMITTING)
        return self._begin_operation("commit")

    def abort(self) -> Operation:
        """Abort once `flushed` has reported that no batch is in flight."""
        if self.state is State.ABORTING:
            return self._waited("abort")
        if self.state is not State.ABORTABLE_ERROR:
            self._require(State.IN_TRANSACTION, "abort")
        self._go(State.ABORTING)
        self._error = None
        self._adding = {}
        self._drop_offsets(TransactionAbortable("the transaction was aborted"))
        return self._begin_operation("abort")

    def flushed(self) -> None:
        """Note that no batch of the ending transaction waits or is in flight."""
        self._is_flushed = True

    def raise_unless_open(self) -> None:
        """Raise the error that forbids adding a record now."""
        if self.state is not State.IN_TRANSACTION:
            self._require(State.IN_TRANSACTION, "send")

    # -- partitions of batches -------------------------------------------------------------------------------

    @property
    def identity(self) -> ProducerIdentity:
        """Producer id and epoch, -1 before `init`."""
        return ProducerIdentity(self.transactional_id, self._producer_id, self._epoch)

    @property
    def refusal(self) -> SparklogError | None:
        """The error with which waiting batches must fail; None if they may be sent."""
        if self.state is State.ABORTING:
            return TransactionAbortable("the transaction was aborted before the records were sent")
        return self._error

    @property
    def may_abort(self) -> bool:
        """Whether a transaction is open and not ending."""
        return self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR)

    def may_send(self, partition: TopicPartition) -> bool:
        """Whether a batch of the partition may be sent; if not, the partition is added at the coordinator
        first.
        """
        if self.state not in OPEN:
            return False
        if self.is_v2 or partition in self._added:
            return True
        self._adding[partition] = None
        return False

    def shipped(self) -> None:
        """Note that a batch is sent: under version 2 it may begin the transaction at the coordinator."""
        self._is_started = True

    def batch_failed(self, error: SparklogError, *, was_sent: bool) -> None:
        """A batch is given up: the transaction must not be committed."""
        if was_sent and not self.is_v2:
            self._needs_epoch = True
        if self.state in OPEN:
            self._fail(of_batch(error, self.transactional_id))

    # -- requests to send ------------------------------------------------------------------------------------

    def errands(self, now: Micros, is_ready: Callable[[NodeId | None], bool]) -> list[Errand]:
        """Requests to send now. `is_ready(None)` asks whether any broker is."""
        if self._asked is not None:
            return []
        self._end_what_never_began()
        home = self._home()
        if home is None:
            return []
        home.want()
        if home.error is not None:
            self._no_coordinator(home)
            return []
        if home.node is None:
            self._pace.unreachable_since = None
            deadline = home.deadline()
            return home.errands(now) if deadline is not None and now >= deadline and is_ready(None) else []
        if now < self._pace.not_before or not self._pace.may_reach(home, now, is_ready=is_ready(home.node)):
            return []
        self._number += 1
        request, version_max = self._question()
        # Without a reply the offsets may or may not be in the transaction: it must be ended in both cases.
        self._is_started = self._is_started or isinstance(request, TxnOffsetCommitRequest)
        self._asked = Errand(request, home.node, self._number, None, version_max)
        return [self._asked]

    def deadline(self) -> Micros | None:
        """When `errands` returns a request without an event; None if only an event leads to one."""
        home = self._home() if self._asked is None else None
        if home is None:
            return None
        if home.node is None:
            return home.deadline()
        return self._pace.deadline

    def replied(self, errand: Errand, reply: Message, now: Micros) -> None:
        """Take in an answer."""
        if isinstance(reply, FindCoordinatorResponse):
            if (home := self._coordinator_of(errand)) is not None:
                home.replied(reply, now)
            return
        if errand is not self._asked:
            return
        self._asked = None
        if isinstance(reply, InitProducerIdResponse):
            self._initialized(errand, reply, now)
        elif isinstance(reply, AddPartitionsToTxnResponse):
            self._partitions_added(errand, reply, now)
        elif isinstance(reply, AddOffsetsToTxnResponse):
            self._offsets_added(errand, reply, now)
        elif isinstance(reply, TxnOffsetCommitResponse):
            self._offsets_committed(errand, reply, now)
        else:
            assert isinstance(reply, EndTxnResponse)
            self._end_answered(errand, reply, now)

    def failed(self, errand: Errand, error: SparklogError, now: Micros) -> None:
        """The request failed without a reply: the broker may have executed it. It may be repeated."""
        if isinstance(errand.request, FindCoordinatorRequest):
            if (home := self._coordinator_of(errand)) is not None:
                home.failed(error, now)
            return
        if errand is not self._asked:
            return
        home = self._home()
        self._asked = None
        if isinstance(error, BrokerError) and not error.is_retriable:
            self._fail(TransactionFatal(f"transactional id {self.transactional_id!r}: {error}", error.code))
            return
        if not self._is_started and isinstance(
            errand.request, AddPartitionsToTxnRequest | AddOffsetsToTxnRequest
        ):
            self._is_started = self._is_doubtful = True
        if home is not None:
            home.lost(now)  # FindCoordinator has its own back-off

    # -- questions -------------------------------------------------------------------------------------------

    def _home(self) -> Coordinator | None:
        """The coordinator of the next request; None if there is no request."""
        if self.state is State.INITIALIZING or (self.state in OPEN and self._adding):
            return self._coordinator
        if self.state in OPEN and self._offsets is not None:
            return self._offsets.home if self.is_v2 or self._offsets.is_added else self._coordinator
        if self.state in ENDING and self._is_flushed:
            return self._coordinator
        return None

    def _question(self) -> tuple[Message, int | None]:
        """The next request and the newest version that may be used for it."""
        if self.state is State.INITIALIZING:
            return self._init_request(), None
        if self.state in OPEN and self._adding:
            return add_partitions(self.identity, self._adding), ADD_PARTITIONS_OF_CLIENTS
        if self.state in OPEN and self._offsets is not None:
            if not self.is_v2 and not self._offsets.is_added:
                return AddOffsetsToTxnRequest(*self.identity, self._offsets.group.group_id), None
            return self._offsets.request(self.identity, is_v2=self.is_v2)
        if self._is_started:
            request = EndTxnRequest(*self.identity, committed=self.state is State.COMMITTING)
            return request, None if self.is_v2 else END_BEFORE_V2
        return self._init_request(), None

    def _init_request(self) -> InitProducerIdRequest:
        # With its id and epoch a producer raises its own epoch, unless it was fenced meanwhile (KIP-360).
        return InitProducerIdRequest(
            self.transactional_id, self._settings.transaction_timeout_ms, self._producer_id, self._epoch
        )

    # -- answers ---------------------------------------------------------------------------------------------

    def _initialized(self, errand: Errand, reply: InitProducerIdResponse, now: Micros) -> None:
        code = code_of(reply.error_code)
        if code is ErrorCode.NONE:
            self._become(reply.producer_id, reply.producer_epoch)
            self._needs_epoch = False
            self._end_operation(State.READY)
            self.is_v2 = follows_v2(self._features())
        elif self.state is State.INITIALIZING and has_wrong_rights(code):
            self._end_operation(
                State.UNINITIALIZED, BrokerError(code, f"transactional id {self.transactional_id!r}")
            )
        else:
            self._refused(errand, code, now)

    def _partitions_added(self, errand: Errand, reply: AddPartitionsToTxnResponse, now: Micros) -> None:
        errors = partition_errors(reply)
        # "Not attempted" is no cause: another partition has it.
        codes = sorted(
            (code for code in errors.values() if code is not ErrorCode.NONE),
            key=lambda code: code is ErrorCode.OPERATION_NOT_ATTEMPTED,
        )
        if codes:
            self._refused(errand, codes[0], now, is_first=not self._added)
            return
        for partition in errors:
            if self._adding.pop(partition, partition) is None:
                self._added[partition] = None
        self._is_started, self._is_doubtful = True, False
        self._pace.attempts = 0

    def _offsets_added(self, errand: Errand, reply: AddOffsetsToTxnResponse, now: Micros) -> None:
        code = code_of(reply.error_code)
        if code is not ErrorCode.NONE:
            self._refused(errand, code, now)
            return
        self._is_started, self._is_doubtful = True, False
        self._pace.attempts = 0
        if self._offsets is not None:
            self._offsets.is_added = True

    def _offsets_committed(self, errand: Errand, reply: TxnOffsetCommitResponse, now: Micros) -> None:
        pending = self._offsets
        if pending is None or self.state not in OPEN:
            return  # aborted meanwhile
        code = pending.committed(reply)
        if code is not ErrorCode.NONE:
            self._refused(errand, code, now)
            return
        self._pace.attempts = 0
        self._drop_offsets(None)

    def _end_answered(self, errand: Errand, reply: EndTxnResponse, now: Micros) -> None:
        code = code_of(reply.error_code)
        never_began = self._is_doubtful and code is ErrorCode.INVALID_TXN_STATE
        if code is not ErrorCode.NONE and not never_began:
            self._refused(errand, code, now)
            return
        if reply.producer_id >= 0:
            self._become(reply.producer_id, reply.producer_epoch)
            self._needs_epoch = False
        self._is_started = False
        self._ended()

    def _end_what_never_began(self) -> None:
        """End a transaction without records and offsets at once: the coordinator does not have it."""
        if (
            self.state in ENDING
            and self._is_flushed
            and not (self._is_started or self._needs_epoch or self._adding or self._offsets)
        ):
            self._ended()

    def _ended(self) -> None:
        """The coordinator has ended the transaction; the epoch may have to be raised before the next one."""
        self._pace.attempts = 0
        is_v2_now = follows_v2(self._features())
        self._needs_epoch = self._needs_epoch or (is_v2_now and not self.is_v2)
        if not self._needs_epoch:
            self.is_v2 = is_v2_now
            self._end_operation(State.READY)

    # -- errors ----------------------------------------------------------------------------------------------

    def _refused(self, errand: Errand, code: ErrorCode, now: Micros, *, is_first: bool = True) -> None:
        """Retry a retriable error; any other ends the transaction, or the producer."""
        home = self._home()
        error = classified(
            type(errand.request), code, self.transactional_id, is_aborting=self.state is State.ABORTING
        )
        if error is not None:
            if self.state not in OPEN and isinstance(error, TransactionAbortable):
                self._pace.retry(code, now)  # an aborting transaction needs no error
                return
            if code is ErrorCode.UNKNOWN_PRODUCER_ID and not self.is_v2:
                self._needs_epoch = True
            self._fail(error)
            return
        if code in COORDINATOR_GONE and home is not None:
            home.lost(now)
        else:
            self._pace.retry(code if is_first else ErrorCode.NONE, now)

    def _fail(self, error: TransactionError) -> None:
        if self.state is State.FATAL_ERROR:
            return
        is_abortable = isinstance(error, TransactionAbortable)
        if is_abortable and self.state is State.ABORTABLE_ERROR:
            return
        self._error = error
        self._drop_offsets(error)
        self._end_operation(State.ABORTABLE_ERROR if is_abortable else State.FATAL_ERROR, error)

    def _no_coordinator(self, home: Coordinator) -> None:
        error = home.error
        assert error is not None
        code = error.code if isinstance(error, BrokerError) else None
        if home is not self._coordinator:
            self._fail(TransactionAbortable(f"the offsets found no coordinator: {error}", code))
        elif self.state is State.INITIALIZING:
            home.error = None  # the permission may be granted meanwhile: the next init tries again
            self._end_operation(State.UNINITIALIZED, error)
        else:
            self._fail(TransactionFatal(f"no coordinator: {error}", code))

    # -- inside ----------------------------------------------------------------------------------------------

    def _require(self, state: State, call: str) -> None:
        if self._error is not None:
            raise self._error
        if self.state is not state:
            remedy = "init() has been called already" if call == "init" else REMEDIES[self.state]
            raise WrongTransactionState(f"{call}: {remedy}")

    def _go(self, target: State) -> None:
        assert target in LEGAL[self.state], f"{self.transactional_id}: {self.state.name} → {target.name}"
        self.state = target

    def _begin_operation(self, name: str) -> Operation:
        assert self._operation is None
        self._pace.begin()
        self._operation = Operation(name)
        return self._operation

    def _waited(self, name: str) -> Operation:
        assert self._operation is not None
        assert self._operation.name == name
        return self._operation

    def _end_operation(self, target: State, error: SparklogError | None = None) -> None:
        self._go(target)
        operation, self._operation = self._operation, None
        self.ended += 1
        if operation is not None:
            operation.end(error)

    def _drop_offsets(self, error: SparklogError | None) -> None:
        if self._offsets is not None:
            self._offsets.operation.end(error)
            self._offsets = None
            self.ended += 1

    def _become(self, producer_id: int, epoch: int) -> None:
        self._producer_id, self._epoch = ProducerId(producer_id), ProducerEpoch(epoch)

    def _coordinator_of(self, errand: Errand) -> Coordinator | None:
        """The coordinator that a FindCoordinator was sent for; None if its result is no longer needed."""
        assert isinstance(errand.request, FindCoordinatorRequest)
        if errand.request.key_type == TRANSACTION_KEY:
            return self._coordinator
        is_asked = self._group_home is not None and self._group_home[0] in errand.request.coordinator_keys
        return self._group_home[1] if is_asked and self._group_home is not None else None
