"""One transactional producer's machines, joined in virtual time with scripted brokers, told as text.

    version N                     the transaction version of the cluster from now on
    init | begin | commit | abort the calls; `again` after one continues to wait for it
    send PARTITION                a batch of one record
    offsets GROUP PARTITION=OFFSET [member=M generation=N]
    refuse REQUEST CODE [times=N]       the next N of these requests are answered with the error
    lose REQUEST [times=N] [done=yes]   the connection breaks before the reply; with `done` the broker
                                        executed the request
    unreachable NODE ms=N         no connection to that broker for so long
    move NODE                     coordinators are on this broker from now on
    exhaust                       the epochs of the producer id are used up: the next one belongs to a new id
    run MILLISECONDS              lets time pass

The output has the requests with their versions and replies, the results of the calls, completed batches,
and the state if it changed. Broker 1 leads the partitions, 2 is every coordinator.
"""

from collections.abc import Callable

from sparklog.client.cluster import Cluster
from sparklog.client.membership.member import Errand, GroupMetadata
from sparklog.client.membership.offsets import OffsetAndMetadata
from sparklog.client.producer.outbound import Outbound
from sparklog.client.producer.outbound_batch import Done, OutboundBatch, Shipment
from sparklog.client.producer.transaction_states import Operation
from sparklog.client.transport.connection import api_of
from sparklog.errors import ConnectionFailed, ErrorCode, SparklogError
from sparklog.model import Micros, NodeId, TopicPartition
from sparklog.record.batch import build_batch, read_header
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from sparklog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from sparklog.wire.schema import Message
from tests.client.wire import metadata, ms, no_chance, settings
from tests.story import arguments

STEP_US = 1_000
LATENCY_US = 1_000
LEADER, COORDINATOR = 1, 2


class Broker:
    """Answers every request as it should be answered: ids from 7 on, epochs that rise."""

    def __init__(self) -> None:
        self.producer_id = 7
        self.epoch = -1
        self.coordinator = COORDINATOR
        self.end_offset = 0

    def answer(self, request: Message, code: int, version: int) -> Message:
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(
                coordinators=[Coordinator(request.coordinator_keys[0], self.coordinator, "b", 1, code)]
            )
        if isinstance(request, InitProducerIdRequest):
            self.epoch += not code
            return InitProducerIdResponse(
                error_code=code, producer_id=-1 if code else self.producer_id, producer_epoch=self.epoch
            )
        if isinstance(request, AddPartitionsToTxnRequest):
            topics = [
                AddPartitionsToTxnTopicResult(
                    topic.name,
                    [AddPartitionsToTxnPartitionResult(number, code) for number in topic.partitions],
                )
                for topic in request.v3_and_below_topics
            ]
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
        if isinstance(request, AddOffsetsToTxnRequest):
            return AddOffsetsToTxnResponse(error_code=code)
        if isinstance(request, TxnOffsetCommitRequest):
            parts = [
                (topic.name, told.partition_index) for topic in request.topics for told in topic.partitions
            ]
            return TxnOffsetCommitResponse(
                topics=[
                    TxnOffsetCommitResponseTopic(name, [TxnOffsetCommitResponsePartition(number, code)])
                    for name, number in parts
                ]
            )
        if isinstance(request, EndTxnRequest):
            if version < 5:
                return EndTxnResponse(error_code=code)
            self.epoch += not code
            return EndTxnResponse(
                error_code=code, producer_id=-1 if code else self.producer_id, producer_epoch=self.epoch
            )
        assert isinstance(request, ProduceRequest)
        told = [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [
                    PartitionProduceResponse(index=one.index, error_code=code, base_offset=self.end_offset)
                    for one in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        return ProduceResponse(responses=told)


class TransactionWorld:
    """The producer, its brokers, and the time between them."""

    def __init__(self) -> None:
        chosen = settings(
            transactional_id="x",
            retry_backoff_ms=100,
            delivery_timeout_ms=5_000,
            request_timeout_ms=1_000,
            linger_ms=0,
        )
        self._cluster = Cluster(chosen, no_chance)
        self._cluster.want(["t"])
        self._cluster.request(ms(0))
        self._cluster.replied(
            metadata({"t": [LEADER, LEADER]}, nodes=[(1, 9092), (2, 9093), (3, 9094)]), ms(0)
        )
        self.outbound = Outbound(chosen, self._cluster, no_chance)
        assert self.outbound.transaction is not None
        self.transaction = self.outbound.transaction
        self._broker = Broker()
        self._now = ms(0)
        self._answers: list[tuple[Micros, Errand | Shipment, Message | SparklogError]] = []
        self._trouble: dict[str, list[Callable[[Message, int], Message | SparklogError]]] = {}
        self._away: dict[int, Micros] = {}
        self._waiting: list[Operation] = []
        self._told: list[str] = []
        self._shown = "UNINITIALIZED epoch=-1"
        self._version("2")

    def run(self, line: str) -> list[str]:
        """One command, and its output."""
        (verb, *words), given = arguments(line)
        try:
            getattr(self, f"_{verb.replace('-', '_')}")(*words, **given)
        except SparklogError as error:
            self._tell(f"{verb} raised {type(error).__name__}: {error}")
        if verb != "run":
            self._pass(0)
        told, self._told = self._told, []
        shown = f"{self.transaction.state.name} epoch={self.transaction.identity.producer_epoch}"
        if shown != self._shown:
            told.append(f"= {shown}")
            self._shown = shown
        return told

    # -- commands

    def _version(self, level: str) -> None:
        self._cluster.features_received({"transaction.version": int(level)}, 1)

    def _init(self) -> None:
        self._waiting.append(self.transaction.init())

    def _begin(self) -> None:
        self.transaction.begin()

    def _commit(self) -> None:
        self._waiting.append(self.transaction.commit())

    def _abort(self) -> None:
        self._waiting.append(self.transaction.abort())

    def _again(self, call: str) -> None:
        before = self._waiting[-1]
        assert getattr(self.transaction, call)() is before

    def _send(self, partition: str) -> None:
        self.transaction.raise_unless_open()
        topic, _, number = partition.rpartition("-")
        batch = OutboundBatch(
            TopicPartition(topic, int(number)),
            build_batch([(None, b"v", (), 0)]),
            1,
            Micros(self._now + 5_000_000),
        )
        self.outbound.add(batch)

    def _offsets(self, group: str, member: str = "", generation: str = "-1", **offsets: str) -> None:
        wanted = {
            TopicPartition(name.rpartition("-")[0], int(name.rpartition("-")[2])): OffsetAndMetadata(int(o))
            for name, o in offsets.items()
        }
        self._waiting.append(
            self.transaction.send_offsets(wanted, GroupMetadata(group, int(generation), member, None))
        )

    def _refuse(self, request: str, code: str, times: str = "1") -> None:
        number = ErrorCode[code]
        for _ in range(int(times)):
            self._trouble.setdefault(request, []).append(
                lambda asked, version: self._broker.answer(asked, number, version)
            )

    def _lose(self, request: str, times: str = "1", done: str = "no") -> None:
        def lost(asked: Message, version: int) -> SparklogError:
            if done == "yes":
                self._broker.answer(asked, 0, version)
            return ConnectionFailed("the connection broke")

        for _ in range(int(times)):
            self._trouble.setdefault(request, []).append(lost)

    def _unreachable(self, node: str, ms: str) -> None:
        self._away[int(node)] = Micros(self._now + int(ms) * 1000)

    def _move(self, node: str) -> None:
        self._broker.coordinator = int(node)

    def _exhaust(self) -> None:
        self._broker.producer_id += 1
        self._broker.epoch = -1

    def _run(self, milliseconds: str) -> None:
        self._pass(int(milliseconds) * 1000)

    # -- time

    def _pass(self, duration_us: int) -> None:
        end = Micros(self._now + duration_us)
        self._turn()
        while self._now < end:
            self._now = Micros(self._now + STEP_US)
            self._turn()

    def _turn(self) -> None:
        arrived = [one for one in self._answers if one[0] <= self._now]
        self._answers = [one for one in self._answers if one[0] > self._now]
        for _, token, answer in arrived:
            self._take(token, answer)
        self._done(self.outbound.expire(self._now))
        if self.transaction.state.name in ("COMMITTING", "ABORTING") and not self.outbound.unfinished:
            self.transaction.flushed()
        while shipments := self.outbound.requests(self._now, self._is_ready):
            for shipment in shipments:
                self._deliver(shipment, shipment.request, shipment.version_max)
        for errand in self.transaction.errands(self._now, self._is_ready):
            self._deliver(errand, errand.request, errand.version_max)
        for operation in [one for one in self._waiting if one.is_done]:
            self._waiting.remove(operation)
            error = operation.error
            self._tell(
                f"{operation.name} done"
                if error is None
                else f"{operation.name} failed {type(error).__name__}: {error}"
            )

    def _take(self, token: Errand | Shipment, answer: Message | SparklogError) -> None:
        if isinstance(token, Shipment):
            if isinstance(answer, SparklogError):
                self._done(self.outbound.failed(token, answer, self._now))
            else:
                assert isinstance(answer, ProduceResponse)
                self._done(self.outbound.replied(token, answer, self._now))
        elif isinstance(answer, SparklogError):
            self.transaction.failed(token, answer, self._now)
        else:
            self.transaction.replied(token, answer, self._now)

    def _deliver(self, token: Errand | Shipment, request: Message, version_max: int | None) -> None:
        api = api_of(type(request))
        version = api.until if version_max is None else min(api.until, version_max)
        troubles = self._trouble.get(api.name, [])
        answer = troubles.pop(0)(request, version) if troubles else self._broker.answer(request, 0, version)
        self._answers.append((Micros(self._now + LATENCY_US), token, answer))
        self._tell(
            f"-> {token.node if token.node is not None else '?'} {api.name} v{version} {_said(request)} => "
            f"{_heard(answer)}"
        )

    def _is_ready(self, node: NodeId | None) -> bool:
        return node is None or self._away.get(node, Micros(0)) <= self._now

    def _done(self, done: list[Done]) -> None:
        for one in done:
            error = one.error
            what = "acknowledged" if error is None else f"failed {type(error).__name__}: {error}"
            self._tell(f"{one.batch.topic_partition} {what}")

    def _tell(self, text: str) -> None:
        self._told.append(f"t={self._now // 1000:<5} {text}")


def _said(request: Message) -> str:
    if isinstance(request, FindCoordinatorRequest):
        return f"type={request.key_type} {request.coordinator_keys[0]}"
    if isinstance(request, InitProducerIdRequest):
        return f"{request.producer_id}/{request.producer_epoch}"
    if isinstance(request, AddPartitionsToTxnRequest):
        named = [
            f"{topic.name}-{number}" for topic in request.v3_and_below_topics for number in topic.partitions
        ]
        return f"{request.v3_and_below_producer_id}/{request.v3_and_below_producer_epoch} {' '.join(named)}"
    if isinstance(request, AddOffsetsToTxnRequest):
        return f"{request.producer_id}/{request.producer_epoch} {request.group_id}"
    if isinstance(request, TxnOffsetCommitRequest):
        named = [
            f"{topic.name}-{one.partition_index}={one.committed_offset}"
            for topic in request.topics
            for one in topic.partitions
        ]
        member = f" member={request.member_id}/{request.generation_id}" if request.member_id else ""
        return f"{request.producer_id}/{request.producer_epoch} {request.group_id}{member} {' '.join(named)}"
    if isinstance(request, EndTxnRequest):
        return f"{request.producer_id}/{request.producer_epoch} {'commit' if request.committed else 'abort'}"
    assert isinstance(request, ProduceRequest)
    assert request.transactional_id == "x"
    headers = [
        (f"{topic.name}-{one.index}", read_header(one.records))
        for topic in request.topic_data
        for one in topic.partition_data
        if one.records is not None
    ]
    assert all(header.is_transactional for _, header in headers)
    return " ".join(f"{name} {h.producer_id}/{h.producer_epoch} seq={h.base_sequence}" for name, h in headers)


def _heard(answer: Message | SparklogError) -> str:
    if isinstance(answer, SparklogError):
        return "connection lost"
    if isinstance(answer, FindCoordinatorResponse):
        (told,) = answer.coordinators
        return ErrorCode(told.error_code).name if told.error_code else f"broker {told.node_id}"
    if isinstance(answer, AddPartitionsToTxnResponse):
        return ErrorCode(
            answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        ).name
    if isinstance(answer, TxnOffsetCommitResponse):
        return ErrorCode(answer.topics[0].partitions[0].error_code).name
    if isinstance(answer, ProduceResponse):
        return ErrorCode(answer.responses[0].partition_responses[0].error_code).name
    assert isinstance(answer, InitProducerIdResponse | AddOffsetsToTxnResponse | EndTxnResponse)
    code = ErrorCode(answer.error_code).name
    if isinstance(answer, AddOffsetsToTxnResponse) or answer.error_code or answer.producer_id < 0:
        return code
    return f"{answer.producer_id}/{answer.producer_epoch}"
