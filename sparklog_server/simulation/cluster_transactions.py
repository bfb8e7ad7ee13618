"""Transactions in a simulated cluster: the clients of `transactors` and `readers`, each request sent to the
node whose partition or coordinator it is for.

    incarnations until the end ──► two more, which end what was left open ──► all partitions are read
                                                                              and the history is checked
"""

from collections.abc import Generator
from random import Random

from sparklog.model import NodeId, TopicPartition
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from sparklog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from sparklog.wire.messages.end_txn import EndTxnRequest
from sparklog.wire.messages.fetch import FetchRequest
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.messages.offset_fetch import OffsetFetchRequest
from sparklog.wire.messages.produce import ProduceRequest
from sparklog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from sparklog.wire.schema import Message
from sparklog_server.simulation import line
from sparklog_server.simulation.checkers import check
from sparklog_server.simulation.client_process import Ask, Steps
from sparklog_server.simulation.clock import VirtualClock
from sparklog_server.simulation.cluster_clients import (
    GROUP_KEY,
    PARTITIONS,
    TRANSACTION_KEY,
    TRANSACTION_TOPIC,
    Clients,
    Notes,
)
from sparklog_server.simulation.history import History
from sparklog_server.simulation.readers import Readers
from sparklog_server.simulation.transactors import Transactor
from sparklog_server.simulation.world import Violation

IDS = 2
_GROUPS = ("gx",)
_TRANSACTIONS = 5
_PAUSE_US = 100_000
_SETTLE_US = 3_000_000


class TransactionClients:
    """The clients of one run, and their history. The producer of an odd number uses transaction version 2."""

    def __init__(self, clients: Clients, notes: Notes, clock: VirtualClock) -> None:
        self._clients = clients
        self._notes = notes
        self._clock = clock
        self._ended = 0  # producers
        self._partitions = tuple(TopicPartition(TRANSACTION_TOPIC, index) for index in range(PARTITIONS))
        self.history = History()

    def transactor(self, random: Random, number: int) -> Steps:
        """One incarnation of a transactional id after the other."""
        yield from self._until_created()
        incarnation = 0
        while not self._notes.is_over:
            incarnation += 1
            yield from self._life(random, number, incarnation, _TRANSACTIONS)
            yield _PAUSE_US
        for transactions in (1, 0):  # the last one only ends what its predecessor left open
            incarnation += 1
            yield from self._life(random, number, incarnation, transactions)
        self._ended += 1

    def _life(self, random: Random, number: int, incarnation: int, transactions: int) -> Steps:
        transactor = Transactor(
            self._clock,
            random,
            self.history,
            transactional_id=f"x{number}",
            incarnation=incarnation,
            is_v2=number % 2 == 1,
            timeout_ms=60_000,
            partitions=self._partitions,
            readers=self._readers(random),
            group=_GROUPS[number] if number < len(_GROUPS) else None,
        )
        yield from self._routed(random, transactor.life(transactions))

    def reader(self, random: Random) -> Steps:
        """Read committed records as they come; at the end read everything, and check the history."""
        yield from self._until_created()
        readers, notes = self._readers(random), self._notes
        yield from self._routed(random, readers.follow("reader", lambda: notes.is_over, is_committed=True))
        while self._ended < IDS:
            yield _PAUSE_US
        yield _SETTLE_US
        if not notes.lost:
            yield from self._routed(random, readers.conclude(_GROUPS))
            if anomalies := check(self.history):
                raise Violation(anomalies[0].kind, anomalies[0].said)
        notes.is_concluded = True

    def _readers(self, random: Random) -> Readers:
        return Readers(self._clock, random, self.history, self._partitions)

    def _until_created(self) -> Steps:
        while TRANSACTION_TOPIC not in self._notes.created:
            yield _PAUSE_US

    def _routed(self, random: Random, steps: line.Steps) -> Steps:
        """The same steps, each request sent to its node."""
        response: Message | None = None
        while True:
            try:
                step = steps.send(response)
            except StopIteration:
                return
            if isinstance(step, int):
                response = yield step
            else:
                node = yield from self._home(random, step.request)
                response = yield Ask(node, *step)

    def _home(self, random: Random, request: Message) -> Generator[Ask | int, Message | None, NodeId]:
        clients = self._clients
        match request:
            case ProduceRequest():
                topic = request.topic_data[0]
                return (yield from clients.leader(random, topic.name, topic.partition_data[0].index))
            case FetchRequest():
                asked = request.topics[0]
                part = asked.partitions[0]
                leader, epoch = yield from clients.leader_and_epoch(random, asked.topic, part.partition)
                part.current_leader_epoch = epoch
                return leader
            case OffsetFetchRequest():
                return (yield from clients.coordinator(random, request.groups[0].group_id, GROUP_KEY))
            case TxnOffsetCommitRequest():
                return (yield from clients.coordinator(random, request.group_id, GROUP_KEY))
            case AddPartitionsToTxnRequest():
                name = request.v3_and_below_transactional_id
            case InitProducerIdRequest() | EndTxnRequest() | AddOffsetsToTxnRequest():
                name = request.transactional_id or ""
            case _:
                raise AssertionError(request)
        return (yield from clients.coordinator(random, name, TRANSACTION_KEY))
