"""The replies of a transaction coordinator to each request in each state: cells of (history, request,
producer), run against any broker.

A cell begins with a history, steps that bring a new transactional id into a state:

    init     InitProducerId by a new producer; after an open transaction, the fence of the older one
    keep     InitProducerId that names the present producer id and epoch
    add      adds a partition: AddPartitionsToTxn of a client (TV1), of a broker (TV2, as Produce 12 does)
    commit, abort    EndTxn, and the end of its markers unless they are held
    hold, release    stop writing markers, or resume

The request of the cell then comes from the current producer, from its previous or next epoch, or from
another producer id. `outcome` returns the error, the identity in the reply, and the result of
DescribeTransactions afterwards. Identities are relative to the one before the request: `same+1` is the same
producer id in the next epoch, `new0` another producer id in epoch 0.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from sparklog.errors import ErrorCode, code_of
from sparklog.record.batch import build_batch
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
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
from sparklog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from sparklog.wire.schema import Message

TABLE = Path(__file__).with_suffix(".tsv")
TOPIC, GROUP = "t", "g"
SAFE_DOWNGRADE, UPGRADE = 2, 1
LAST_EPOCH = 32_766
OTHER_ID = 1 << 40
"""A producer id that no broker has given out."""

HISTORIES: dict[str, tuple[str, ...]] = {
    "Dead": ("",),
    "Empty": ("init init", "init keep"),
    "Ongoing": ("init init add hold", "init keep add hold"),
    "PrepareCommit": ("init init add hold commit", "init keep add hold commit"),
    "PrepareAbort": ("init init add hold abort", "init keep add hold abort"),
    "PrepareEpochFence": ("init init add hold init", "init keep add hold init"),
    "CompleteCommit": ("init init add commit", "init keep add commit", "init add abort add commit"),
    "CompleteAbort": ("init init add abort", "init keep add abort", "init init add hold init release"),
    "after Complete": ("init add commit init", "init add commit keep", "init add hold init release init"),
}
"""The states, each with the histories that lead to it; PrepareEpochFence is seen as the PrepareAbort that
it becomes.
"""
OF_THE_SERVER = ("PrepareEpochFence", "CompleteAbort", "after Complete")
"""The states in which the transaction version of the cluster matters, as against that of the client."""
WHO = ("current", "previous", "next", "other")


class Speaker(Protocol):
    """A connection to a broker, and the hold on its markers."""

    def ask(self, request: Message, version: int, reply: type[Message]) -> Message:
        """The reply to a request."""

    def hold(self, *, is_held: bool) -> None:
        """Keep markers from being written from now on, or let them be."""


class Cell(NamedTuple):
    """A place in the table: transaction versions of cluster and client, the history of the id, what is
    asked, and by which producer.
    """

    cluster: int
    client: int
    history: str
    request: str
    who: str


class Outcome(NamedTuple):
    """The error, the identity told (or `-`), and the state and identity that DescribeTransactions tells."""

    error: str
    told: str
    state: str
    identity: str


class Identity(NamedTuple):
    producer_id: int
    epoch: int

    def relative_to(self, before: "Identity") -> str:
        if self.producer_id < 0:
            return "-"
        if self.producer_id == before.producer_id:
            return f"same{self.epoch - before.epoch:+d}"
        return f"new{self.epoch}"


def cells(cluster: int) -> Iterator[Cell]:
    """Every cell of a cluster in transaction version 1 or 2."""
    for state, histories in HISTORIES.items():
        if cluster != 2 and state not in OF_THE_SERVER:
            continue
        for history in histories:
            for client in (1, 2):
                for request in REQUESTS:
                    callers = (*WHO, "nobody") if request == "init" else WHO
                    for who in callers if history else ("current", *callers[4:]):
                        yield Cell(cluster, client, history, request, who)


class Transactor:
    """One transactional id and the producer that has it."""

    def __init__(self, speaker: Speaker, transactional_id: str, client: int) -> None:
        self.speaker = speaker
        self.id = transactional_id
        self.client = client
        self.identity = Identity(0, 0)  # of an id that is not known
        self._is_held = False

    def step(self, name: str) -> None:
        """One step of a history."""
        if name in ("hold", "release"):
            self._is_held = name == "hold"
            self.speaker.hold(is_held=self._is_held)
        elif name in ("init", "keep"):
            error, told = self.init("nobody" if name == "init" else "current")
            while error is ErrorCode.CONCURRENT_TRANSACTIONS and not self._is_held:
                error, told = self.init("nobody" if name == "init" else "current")
            assert error is (ErrorCode.CONCURRENT_TRANSACTIONS if self._is_held else ErrorCode.NONE), (
                self.id,
                error,
            )
            self.identity = self.identity if told.producer_id < 0 else told
        elif name == "add":
            error, _ = self.add("current")
            assert error is ErrorCode.NONE, (self.id, error)
        else:
            error, told = self.end("current", is_commit=name == "commit")
            assert error is ErrorCode.NONE, (self.id, error)
        if self.identity.producer_id or self.identity.epoch or name == "init":
            self.settled()

    def settled(self) -> str:
        """The state, once nothing is under way but what is held; the producer knows its identity as the
        coordinator has it.
        """
        while True:
            state, self.identity = self.described()
            if self._is_held or not state.startswith("Prepare"):
                return state

    def described(self) -> tuple[str, Identity]:
        answer = self.speaker.ask(DescribeTransactionsRequest([self.id]), 0, DescribeTransactionsResponse)
        assert isinstance(answer, DescribeTransactionsResponse)
        found = answer.transaction_states[0]
        if found.error_code:
            return code_of(found.error_code).name, Identity(-1, -1)
        return found.transaction_state, Identity(found.producer_id, found.producer_epoch)

    def _as(self, who: str) -> Identity:
        producer_id, epoch = self.identity
        match who:
            case "nobody":
                return Identity(-1, -1)
            case "other":
                return Identity(OTHER_ID, epoch)
            case "previous":
                return Identity(producer_id, epoch - 1)
            case "next":
                return Identity(producer_id, epoch + 1)
        return self.identity

    # -- requests: the error, and the identity in the answer

    def init(self, who: str) -> tuple[ErrorCode, Identity]:
        request = InitProducerIdRequest(self.id, 60_000, *self._as(who))
        answer = self.speaker.ask(request, 5, InitProducerIdResponse)
        assert isinstance(answer, InitProducerIdResponse)
        return code_of(answer.error_code), Identity(answer.producer_id, answer.producer_epoch)

    def add(self, who: str) -> tuple[ErrorCode, Identity]:
        return self._adding(who, verify_only=False)

    def verify(self, who: str) -> tuple[ErrorCode, Identity]:
        return self._adding(who, verify_only=True)

    def _adding(self, who: str, *, verify_only: bool) -> tuple[ErrorCode, Identity]:
        topics = [AddPartitionsToTxnTopic(TOPIC, [0])]
        if self.client == 1 and not verify_only:
            request, version = AddPartitionsToTxnRequest([], self.id, *self._as(who), topics), 3
        else:
            one = AddPartitionsToTxnTransaction(self.id, *self._as(who), verify_only, topics)
            request, version = AddPartitionsToTxnRequest([one]), 3 + self.client
        answer = self.speaker.ask(request, version, AddPartitionsToTxnResponse)
        assert isinstance(answer, AddPartitionsToTxnResponse)
        found = answer.results_by_topic_v3_and_below
        if version > 3:
            found = answer.results_by_transaction[0].topic_results
        return code_of(found[0].results_by_partition[0].partition_error_code), Identity(-1, -1)

    def offsets(self, who: str) -> tuple[ErrorCode, Identity]:
        answer = self.speaker.ask(
            AddOffsetsToTxnRequest(self.id, *self._as(who), GROUP), 4, AddOffsetsToTxnResponse
        )
        assert isinstance(answer, AddOffsetsToTxnResponse)
        return code_of(answer.error_code), Identity(-1, -1)

    def offset(self, who: str) -> tuple[ErrorCode, Identity]:
        topics = [TxnOffsetCommitRequestTopic(TOPIC, [TxnOffsetCommitRequestPartition(0, 7)])]
        request = TxnOffsetCommitRequest(self.id, GROUP, *self._as(who), topics=topics)
        answer = self.speaker.ask(request, 3 + self.client, TxnOffsetCommitResponse)
        assert isinstance(answer, TxnOffsetCommitResponse)
        return code_of(answer.topics[0].partitions[0].error_code), Identity(-1, -1)

    def produce(self, who: str) -> tuple[ErrorCode, Identity]:
        producer_id, epoch = self._as(who)
        batch = build_batch(
            [(None, b"v", (), 0)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(0, bytes(batch))])]
        answer = self.speaker.ask(
            ProduceRequest(self.id, -1, 30_000, data), 10 + self.client, ProduceResponse
        )
        assert isinstance(answer, ProduceResponse)
        return code_of(answer.responses[0].partition_responses[0].error_code), Identity(-1, -1)

    def end(self, who: str, *, is_commit: bool) -> tuple[ErrorCode, Identity]:
        request = EndTxnRequest(self.id, *self._as(who), is_commit)
        answer = self.speaker.ask(request, 3 + self.client if self.client == 2 else 4, EndTxnResponse)
        assert isinstance(answer, EndTxnResponse)
        return code_of(answer.error_code), Identity(answer.producer_id, answer.producer_epoch)

    def commit(self, who: str) -> tuple[ErrorCode, Identity]:
        return self.end(who, is_commit=True)

    def abort(self, who: str) -> tuple[ErrorCode, Identity]:
        return self.end(who, is_commit=False)


REQUESTS: dict[str, Callable[[Transactor, str], tuple[ErrorCode, Identity]]] = {
    "init": Transactor.init,
    "add": Transactor.add,
    "verify": Transactor.verify,
    "offsets": Transactor.offsets,
    "offset": Transactor.offset,
    "produce": Transactor.produce,
    "commit": Transactor.commit,
    "abort": Transactor.abort,
}
"""AddPartitionsToTxn to add and to verify, AddOffsetsToTxn, TxnOffsetCommit, Produce, EndTxn by its
verdicts.
"""


def prepare(speaker: Speaker) -> None:
    """The topics, and the two coordinators."""
    speaker.ask(
        CreateTopicsRequest(topics=[CreatableTopic(TOPIC, 1, 1)], timeout_ms=30_000), 7, CreateTopicsResponse
    )
    for key, key_type in ((GROUP, 0), ("a", 1)):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        while True:
            answer = speaker.ask(request, 4, FindCoordinatorResponse)
            assert isinstance(answer, FindCoordinatorResponse)
            if not answer.coordinators[0].error_code:
                break
    one = Transactor(speaker, "begun", 1)
    while one.init("nobody")[0] is not ErrorCode.NONE:
        pass
    while one.offsets("nobody")[0] in (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ):
        pass


def set_level(speaker: Speaker, level: int) -> None:
    """The cluster's transaction version."""
    update = FeatureUpdateKey(
        "transaction.version", max_version_level=level, upgrade_type=UPGRADE if level > 1 else SAFE_DOWNGRADE
    )
    answer = speaker.ask(UpdateFeaturesRequest(feature_updates=[update]), 1, UpdateFeaturesResponse)
    assert isinstance(answer, UpdateFeaturesResponse)
    assert not answer.error_code, answer


def outcome(speaker: Speaker, cell: Cell, transactional_id: str) -> Outcome:
    """The outcome of a cell on a broker. The id must be new."""
    one = Transactor(speaker, transactional_id, cell.client)
    for step in cell.history.split():
        one.step(step)
    before = one.identity
    error, told = REQUESTS[cell.request](one, cell.who)
    state = one.settled()
    speaker.hold(is_held=False)
    return Outcome(error.name, told.relative_to(before), state, one.identity.relative_to(before))


def overflow(speaker: Speaker) -> list[tuple[str, ...]]:
    """What is said around the end of a transaction in the last epoch, which gives its producer another
    producer id.
    """
    one = Transactor(speaker, "overflow", 2)
    one.step("init")
    old = Identity(one.identity.producer_id, LAST_EPOCH)
    for epoch in range(LAST_EPOCH):
        answer = speaker.ask(
            InitProducerIdRequest(one.id, 60_000, old.producer_id, epoch), 5, InitProducerIdResponse
        )
        assert isinstance(answer, InitProducerIdResponse)
        assert answer.producer_epoch == epoch + 1
    one.settled()
    for step in ("add", "hold"):
        one.step(step)
    error, new = one.commit("current")
    told: list[tuple[str, ...]] = [("commit", error.name, new.relative_to(old))]

    def ask(name: str, who: str, identity: Identity) -> None:
        one.identity = identity
        error, identity = REQUESTS[name](one, who)
        told.append((name, who, error.name, identity.relative_to(new)))

    for identity in (old, new):
        for who in WHO:
            for name in REQUESTS:
                ask(name, who, identity)
    one.step("release")
    told.append((one.settled(), one.identity.relative_to(new)))
    for name in ("commit", "abort", "add", "verify", "init", "init"):
        ask(name, "current", old)
    return told


def table() -> dict[Cell, Outcome]:
    """The table on file: the outcomes of a real Kafka."""
    found = {}
    for line in TABLE.read_text().splitlines():
        if not line.startswith("#"):
            cluster, client, *rest = line.split("\t")
            found[Cell(int(cluster), int(client), *rest[:3])] = Outcome(*rest[3:])
    return found


def written(outcomes: dict[Cell, Outcome]) -> str:
    """The table as it is on file."""
    head = "#" + "\t".join((*Cell._fields, *Outcome._fields))
    return "\n".join((head, *("\t".join(map(str, (*cell, *told))) for cell, told in outcomes.items()))) + "\n"
