"""Clients that write and consume in transactions, of version 1 or 2, each record with a unique value; the
history records their requests.
"""

from collections.abc import Callable, Generator
from random import Random

from sparklog.errors import ErrorCode, code_of
from sparklog.model import TopicPartition
from sparklog.record.batch import build_batch
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.simulation.clock import VirtualClock
from sparklog_server.simulation.history import Commit, History, Initialized, Outcome, Transaction, Write
from sparklog_server.simulation.line import SimulatedRequest, Steps
from sparklog_server.simulation.readers import Consumed, Readers

_TRIES = 12
_END_TRIES = 60
_REST_US = (5_000, 40_000)
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)

Told = Generator[SimulatedRequest | int, Message | None, tuple[ErrorCode | None, Message | None]]
"""Steps that end with the error code and the response; None if no attempt got a response."""
Done = Generator[SimulatedRequest | int, Message | None, bool]
"""Steps that end with whether the request succeeded."""


class Transactor:
    """One incarnation of a transactional id. It commits offsets of `group`; `is_v2` says that it uses
    transaction version 2.
    """

    def __init__(
        self,
        clock: VirtualClock,
        random: Random,
        history: History,
        *,
        transactional_id: str,
        incarnation: int,
        is_v2: bool,
        timeout_ms: int,
        partitions: tuple[TopicPartition, ...],
        readers: Readers,
        group: str | None,
    ) -> None:
        self._clock = clock
        self._random = random
        self._history = history
        self._id = transactional_id
        self._incarnation = incarnation
        self._is_v2 = is_v2
        self._timeout_ms = timeout_ms
        self._partitions = partitions
        self._readers = readers
        self._group = group
        self._producer_id, self._epoch = -1, -1
        self._sequences: dict[TopicPartition, int] = {}
        self._added: dict[TopicPartition, None] = {}
        self._is_started = False  # whether the coordinator may have the transaction
        self._is_doubtful = False  # whether one of its requests had no response
        self._is_fenced = False

    def life(self, transactions: int) -> Steps:
        """Initialize the producer id, then write this many transactions, until a younger incarnation fences
        this one.
        """
        asked_us = self._now_us
        if not (yield from self._init(asked_us, is_new=True)):
            return
        for _ in range(transactions):
            yield from self._transaction()
            if self._is_fenced:
                return
            yield self._random.randint(*_REST_US)

    @property
    def _now_us(self) -> int:
        return self._clock.now.mono_us

    # -- one transaction

    def _transaction(self) -> Steps:
        random = self._random
        consumed: Consumed | None = None
        if self._group is not None and random.random() < 0.7:
            consumed = yield from self._readers.consume(self._group)
        txn = Transaction(
            len(self._history.transactions),
            self._id,
            self._incarnation,
            self._now_us,
            self._timeout_ms * 1000,
        )
        self._history.transactions.append(txn)
        self._added.clear()
        self._is_started = self._is_doubtful = False
        is_sound = True
        for _ in range(random.randint(0 if consumed else 1, 4)):
            is_sound = yield from self._send(txn)
            if not is_sound:
                break
            if random.random() < 0.2:
                yield random.randint(*_REST_US)
        if is_sound and consumed is not None:
            is_sound = yield from self._commit_offset(txn, consumed)
        if self._is_fenced:
            return
        if random.random() < 0.04:
            self._is_fenced = True  # the client dies
            return
        if random.random() < 0.1:
            yield random.randint(50_000, 1_500_000)  # the client is paused
        yield from self._end(txn, is_commit=is_sound and random.random() < 0.75)
        if not self._is_fenced and (not is_sound or (self._is_doubtful and not self._is_v2)):
            # The sequences have a gap; and in version 1 only a new epoch keeps requests in flight out of the
            # next transaction.
            yield from self._init(self._now_us, is_new=False)

    def _send(self, txn: Transaction) -> Done:
        """Write one batch; False if it was given up, and the transaction must not be committed."""
        random, history = self._random, self._history
        partition = random.choice(self._partitions)
        if not self._is_v2 and partition not in self._added:
            code, _ = yield from self._ask(self._add(partition), lambda: None)
            if code is not ErrorCode.NONE:
                return False
            self._added[partition] = None
        writes = []
        for _ in range(random.randint(1, 3)):
            writes.append(Write(partition, sum(len(one.writes) for one in history.transactions)))
            txn.writes.append(writes[-1])
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(writes)
        self._is_started = True
        ask = self._produce([write.value for write in writes], partition, sequence)
        code, answer = yield from self._ask(ask, lambda: None, tries=random.choice((1, _TRIES)))
        if code is ErrorCode.NONE and isinstance(answer, ProduceResponse):
            base_offset = answer.responses[0].partition_responses[0].base_offset
            for index, write in enumerate(writes):
                write.acked_us = self._now_us
                if base_offset >= 0:
                    write.offset = base_offset + index
        return code is ErrorCode.NONE

    def _commit_offset(self, txn: Transaction, consumed: Consumed) -> Done:
        """Commit the consumed offsets within the transaction."""
        assert self._group is not None
        if not self._is_v2:
            code, _ = yield from self._ask(
                SimulatedRequest(
                    AddOffsetsToTxnRequest(self._id, self._producer_id, self._epoch, self._group),
                    3,
                    AddOffsetsToTxnResponse,
                ),
                lambda: None,
            )
            if code is not ErrorCode.NONE:
                return False
        commit = Commit(self._group, consumed.partition, consumed.start, consumed.limit)
        txn.commits.append(commit)
        self._is_started = True
        part = TxnOffsetCommitRequestPartition(
            consumed.partition.partition, consumed.limit, committed_metadata=str(txn.number)
        )
        request = TxnOffsetCommitRequest(
            self._id,
            self._group,
            self._producer_id,
            self._epoch,
            topics=[TxnOffsetCommitRequestTopic(consumed.partition.topic, [part])],
        )
        code, _ = yield from self._ask(
            SimulatedRequest(request, 5 if self._is_v2 else 4, TxnOffsetCommitResponse), lambda: None
        )
        if code is ErrorCode.NONE:
            commit.acked_us = self._now_us
        return code is ErrorCode.NONE

    def _end(self, txn: Transaction, *, is_commit: bool) -> Steps:
        """Request the end until a response arrives. The outcome of a commit without a clear response is
        unknown.
        """
        if not self._is_started and not self._added:
            return  # the coordinator does not have the transaction
        txn.ended_us = self._now_us
        if is_commit:
            txn.commit_us, txn.outcome = self._now_us, Outcome.UNKNOWN
        doubts: list[None] = []
        request = EndTxnRequest(self._id, self._producer_id, self._epoch, is_commit)
        code, answer = yield from self._ask(
            SimulatedRequest(request, 5 if self._is_v2 else 4, EndTxnResponse),
            lambda: doubts.append(None),
            tries=_END_TRIES,
        )
        if code is ErrorCode.NONE and isinstance(answer, EndTxnResponse):
            txn.told_us = self._now_us
            txn.outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED
            if answer.producer_id >= 0:
                self._became(answer.producer_id, answer.producer_epoch)
        elif code is not None and not doubts:
            txn.outcome = Outcome.ABORTED
        if code is not ErrorCode.NONE and not (code is ErrorCode.INVALID_TXN_STATE and not is_commit):
            self._is_fenced = True  # for any error: the next incarnation cleans up

    def _init(self, asked_us: int, *, is_new: bool) -> Done:
        request = InitProducerIdRequest(self._id, self._timeout_ms)
        if not is_new:
            request.producer_id, request.producer_epoch = self._producer_id, self._epoch
        doubts: list[None] = []
        code, answer = yield from self._ask(
            SimulatedRequest(request, 5, InitProducerIdResponse),
            lambda: doubts.append(None),
            tries=_END_TRIES,
        )
        is_done = code is ErrorCode.NONE and isinstance(answer, InitProducerIdResponse)
        if is_done and isinstance(answer, InitProducerIdResponse):
            self._became(answer.producer_id, answer.producer_epoch)
        else:
            self._is_fenced = True
        told_us = self._now_us if is_done else None
        initialized = Initialized(
            self._id, self._incarnation, asked_us, told_us, is_doubtful=bool(doubts), is_first=is_new
        )
        self._history.initialized.append(initialized)
        return is_done

    def _became(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self._producer_id, self._epoch):
            self._producer_id, self._epoch = producer_id, epoch
            self._sequences.clear()

    # -- requests

    def _add(self, partition: TopicPartition) -> SimulatedRequest:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(partition.topic, [partition.partition])],
        )
        return SimulatedRequest(request, 3, AddPartitionsToTxnResponse)

    def _produce(self, values: list[int], partition: TopicPartition, sequence: int) -> SimulatedRequest:
        batch = build_batch(
            [(None, b"%d" % value, (), self._clock.now.wall_ms) for value in values],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = [
            TopicProduceData(
                name=partition.topic, partition_data=[PartitionProduceData(partition.partition, bytes(batch))]
            )
        ]
        request = ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=1000, topic_data=data)
        return SimulatedRequest(request, 12 if self._is_v2 else 11, ProduceResponse)

    def _ask(self, ask: SimulatedRequest, doubted: Callable[[], None], *, tries: int = _TRIES) -> Told:
        """Repeat the request until a final response; `doubted` gets each attempt that may have taken effect
        nevertheless.
        """
        for _ in range(tries):
            answer = yield ask
            if answer is None:
                self._is_doubtful = True
                doubted()
                continue
            code = _code_in(answer)
            if not code.is_retriable:
                self._is_fenced = self._is_fenced or code in _FENCED
                return code, answer
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                doubted()
            yield self._random.randint(*_REST_US)
        return None, None


def _code_in(answer: Message) -> ErrorCode:
    """The error code in a response about one partition or offset."""
    if isinstance(answer, ProduceResponse):
        return code_of(answer.responses[0].partition_responses[0].error_code)
    if isinstance(answer, AddPartitionsToTxnResponse):
        return code_of(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    if isinstance(answer, TxnOffsetCommitResponse):
        return code_of(answer.topics[0].partitions[0].error_code)
    assert isinstance(answer, InitProducerIdResponse | AddOffsetsToTxnResponse | EndTxnResponse)
    return code_of(answer.error_code)
