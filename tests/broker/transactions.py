"""Requests of transactional producers in one line, and their replies as text."""

from sparklog.errors import ErrorCode, code_of
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from sparklog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from sparklog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from sparklog.wire.schema import Message
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.world import World

SETTINGS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "2"}
CLIENTS, BROKERS = 3, 5  # the versions of AddPartitionsToTxn


class Producer:
    """A transactional producer that sends the requests of the test, over a connection of its own."""

    def __init__(self, world: World, transactional_id: str, *, end_version: int = 5) -> None:
        self.world = world
        self.id = transactional_id
        self.client: SimulatedConnection = world.node.connect()
        self.producer_id, self.epoch = -1, -1
        self._end_version = end_version

    def ask(self, request: Message, version: int, reply: type[Message]) -> Message:
        return self.world.ask(self.client, request, version, reply)

    def find(self) -> ErrorCode:
        """Find the coordinator of the id."""
        answer = self.ask(
            FindCoordinatorRequest(key_type=1, coordinator_keys=[self.id]), 4, FindCoordinatorResponse
        )
        assert isinstance(answer, FindCoordinatorResponse)
        return code_of(answer.coordinators[0].error_code)

    def init(self, *, timeout_ms: int = 60_000, version: int = 5, keep: bool = False) -> ErrorCode:
        request = InitProducerIdRequest(self.id, timeout_ms)
        if keep:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        answer = self.ask(request, version, InitProducerIdResponse)
        assert isinstance(answer, InitProducerIdResponse)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return code_of(answer.error_code)

    def add(self, *partitions: int, topic: str = "t", version: int = CLIENTS) -> list[ErrorCode]:
        """As a client does, all partitions of a topic at once."""
        topics = [AddPartitionsToTxnTopic(topic, list(partitions))]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        answer = self.ask(request, version, AddPartitionsToTxnResponse)
        assert isinstance(answer, AddPartitionsToTxnResponse)
        found = answer.results_by_topic_v3_and_below
        return [
            code_of(one.partition_error_code)
            for topic_result in found
            for one in topic_result.results_by_partition
        ]

    def add_offsets(self, group: str, *, version: int = 4) -> ErrorCode:
        answer = self.ask(
            AddOffsetsToTxnRequest(self.id, self.producer_id, self.epoch, group),
            version,
            AddOffsetsToTxnResponse,
        )
        assert isinstance(answer, AddOffsetsToTxnResponse)
        return code_of(answer.error_code)

    def end(self, *, commit: bool, version: int | None = None) -> ErrorCode:
        version = self._end_version if version is None else version
        answer = self.ask(
            EndTxnRequest(self.id, self.producer_id, self.epoch, commit), version, EndTxnResponse
        )
        assert isinstance(answer, EndTxnResponse)
        if not answer.error_code and answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return code_of(answer.error_code)

    def part(
        self, *partitions: int, verify_only: bool = False, topic: str = "t"
    ) -> AddPartitionsToTxnTransaction:
        """A broker's request for one transaction among others."""
        topics = [AddPartitionsToTxnTopic(topic, list(partitions))]
        return AddPartitionsToTxnTransaction(self.id, self.producer_id, self.epoch, verify_only, topics)

    def state(self) -> str:
        """The reply of DescribeTransactions."""
        found = describe(self.world, self.client, self.id)[0]
        return code_of(found.error_code).name if found.error_code else found.transaction_state


def ready(world: World, transactional_id: str, *, end_version: int = 5, timeout_ms: int = 60_000) -> Producer:
    """A producer that knows its coordinator, producer id and epoch."""
    producer = Producer(world, transactional_id, end_version=end_version)
    assert producer.find() is ErrorCode.NONE
    assert producer.init(timeout_ms=timeout_ms) is ErrorCode.NONE
    return producer


def describe(world: World, client: SimulatedConnection, *ids: str) -> list[TransactionState]:
    """DescribeTransactions."""
    answer = world.ask(
        client, DescribeTransactionsRequest(transactional_ids=list(ids)), 0, DescribeTransactionsResponse
    )
    assert isinstance(answer, DescribeTransactionsResponse)
    return answer.transaction_states


def listed(
    world: World, client: SimulatedConnection, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """ListTransactions."""
    answer = world.ask(client, request, 2, ListTransactionsResponse)
    assert isinstance(answer, ListTransactionsResponse)
    return answer


def add_many(
    world: World, client: SimulatedConnection, *parts: AddPartitionsToTxnTransaction
) -> dict[str, list[ErrorCode]]:
    """A request of one broker to another; the codes by id."""
    answer = world.ask(
        client, AddPartitionsToTxnRequest(transactions=list(parts)), BROKERS, AddPartitionsToTxnResponse
    )
    assert isinstance(answer, AddPartitionsToTxnResponse)
    assert not answer.error_code, code_of(answer.error_code)
    return {
        result.transactional_id: [
            code_of(one.partition_error_code)
            for topic in result.topic_results
            for one in topic.results_by_partition
        ]
        for result in answer.results_by_transaction
    }


def log_end(world: World, client: SimulatedConnection, partition: int = 0, topic: str = "t") -> int:
    """Where a partition ends: a marker takes an offset."""
    asked = [
        ListOffsetsTopic(
            name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)]
        )
    ]
    answer = world.ask(client, ListOffsetsRequest(topics=asked), 7, ListOffsetsResponse)
    assert isinstance(answer, ListOffsetsResponse)
    return answer.topics[0].partitions[0].offset
