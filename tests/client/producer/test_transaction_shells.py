"""The blocking calls of transactional producers against brokers that follow a script, over real sockets on
loopback.
"""

import threading
from collections.abc import Callable, Iterator

import pytest

from sparklog.client.failures import (
    ClientClosed,
    ProducerFenced,
    RecordTooLarge,
    TransactionAbortable,
    TransactionFatal,
    WrongTransactionState,
)
from sparklog.client.membership.member import GroupMetadata
from sparklog.client.producer.producer import Producer
from sparklog.client.producer.writer import BatchWriter
from sparklog.errors import BrokerError, ErrorCode, RequestTimeout, SettingsError
from sparklog.model import TopicPartition
from sparklog.record.batch import build_batch, read_header
from sparklog.wire.messages.api_versions import FinalizedFeatureKey
from sparklog.wire.messages.end_txn import EndTxnResponse
from sparklog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from sparklog.wire.schema import Message
from tests.client.producer.transaction_world import Broker
from tests.client.wire import ScriptedBroker, metadata, settings, versions

Answer = Callable[[Message], Message | None]


class Cluster:
    """One broker that leads everything, coordinates everything, and keeps the records written in
    transactions; `trouble` comes first.
    """

    def __init__(self) -> None:
        self.state = Broker()
        self.state.coordinator = 1
        self.trouble: dict[str, list[Message | None]] = {}
        self.written: list[tuple[int, int]] = []  # epoch and sequence of each batch
        self.server = ScriptedBroker()
        hello = versions(Produce=(3, 12))
        hello.finalized_features_epoch = 1
        hello.finalized_features = [FinalizedFeatureKey("transaction.version", 2, 2)]
        self.server.handlers |= {
            "ApiVersions": lambda _: hello,
            "Metadata": lambda _: metadata({"t": [1]}, nodes=[(1, self.server.port)]),
        }
        for name, version in (
            ("FindCoordinator", 6),
            ("InitProducerId", 5),
            ("EndTxn", 5),
            ("TxnOffsetCommit", 5),
            ("Produce", 12),
        ):
            self.server.handlers[name] = self.answering(name, version)

    def answering(self, name: str, version: int) -> Answer:
        def answer(request: Message) -> Message | None:
            if self.trouble.get(name):
                return self.trouble[name].pop(0)
            if isinstance(request, ProduceRequest):
                for one in request.topic_data[0].partition_data:
                    assert one.records is not None
                    header = read_header(one.records)
                    self.written.append((header.producer_epoch, header.base_sequence))
            return self.state.answer(request, 0, version)

        return answer

    def asked(self, name: str) -> int:
        return sum(api == name for api, _ in self.server.seen)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    with cluster.server:
        yield cluster


def producer(cluster: Cluster, **given: int) -> Producer:
    quick = {"linger_ms": 0, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "max_block_ms": 5_000} | given
    return Producer(bootstrap_servers=cluster.server.address, transactional_id="x", **quick)  # type: ignore[arg-type]


def writer(cluster: Cluster, **given: int) -> BatchWriter:
    quick = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "max_block_ms": 5_000} | given
    return BatchWriter(settings(bootstrap_servers=cluster.server.address, transactional_id="x", **quick))


def refused(code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[TopicProduceResponse("t", partition_responses=[PartitionProduceResponse(0, code)])]
    )


def test_a_commit_follows_every_acknowledgement_and_the_next_transaction_has_the_next_epoch(
    cluster: Cluster,
) -> None:
    with producer(cluster) as one:
        one.init()
        for _ in range(2):
            one.begin()
            deliveries = [one.send("t", b"v") for _ in range(3)]
            one.commit()
            assert all(delivery.done() for delivery in deliveries)
    assert {epoch for epoch, _ in cluster.written} == {0, 1}
    assert [name for name, _ in cluster.server.seen if name in ("Produce", "EndTxn")][-1] == "EndTxn"


def test_a_commit_waits_for_records_whose_topic_is_not_known(cluster: Cluster) -> None:
    opened = threading.Event()
    known = cluster.server.handlers["Metadata"]

    def answer(request: Message) -> Message | bytes | None:
        if not getattr(request, "topics", None):
            return metadata_of_nodes
        opened.wait(10)
        return known(request)

    metadata_of_nodes = metadata({}, nodes=[(1, cluster.server.port)])
    cluster.server.handlers["Metadata"] = answer
    with producer(cluster) as one:
        one.init()
        one.begin()
        delivery = one.send("t", b"v")
        with pytest.raises(RequestTimeout):
            one.commit(timeout_ms=50)
        assert cluster.asked("EndTxn") == 0
        opened.set()
        one.commit()
        assert delivery.done()
    assert [name for name, _ in cluster.server.seen if name in ("Produce", "EndTxn")] == ["Produce", "EndTxn"]


def test_a_commit_fails_after_a_record_whose_topic_was_not_known_in_time(cluster: Cluster) -> None:
    with producer(cluster, max_block_ms=300) as one:
        one.init(5_000)
        one.begin()
        delivery = one.send("nowhere", b"v")
        with pytest.raises(TransactionAbortable):
            one.commit(5_000)
        assert isinstance(delivery.exception(0), RequestTimeout)
        one.abort(5_000)


def test_an_answer_that_does_not_come_ends_the_wait_and_the_same_call_waits_on(cluster: Cluster) -> None:
    held = threading.Event()
    ready = cluster.server.handlers["InitProducerId"]

    def slow(request: Message) -> Message | bytes | None:
        held.wait(10)
        return ready(request)

    cluster.server.handlers["InitProducerId"] = slow
    with producer(cluster) as one:
        with pytest.raises(RequestTimeout, match="init was not answered"):
            one.init(timeout_ms=50)
        with pytest.raises(WrongTransactionState, match=r"init\(\) has not ended"):
            one.begin()
        held.set()
        one.init()
        one.begin()
        one.abort()
    assert cluster.asked("InitProducerId") == 1


def test_records_refused_fail_the_transaction_and_an_abort_makes_room_for_the_next(cluster: Cluster) -> None:
    cluster.trouble["Produce"] = [refused(ErrorCode.INVALID_RECORD)]
    with producer(cluster) as one:
        one.init()
        one.begin()
        failed = one.send("t", b"v")
        with pytest.raises(BrokerError, match="INVALID_RECORD"):
            failed.result(5)
        with pytest.raises(TransactionAbortable) as told:
            one.commit()
        assert told.value.code is ErrorCode.INVALID_RECORD
        with pytest.raises(TransactionAbortable):
            one.send("t", b"v")
        one.abort()
        one.begin()
        assert one.send("t", b"v").result(5).topic_partition == TopicPartition("t", 0)
        one.commit()


def test_records_not_sent_yet_fail_with_an_abort(cluster: Cluster) -> None:
    with producer(cluster, linger_ms=10_000) as one:
        one.init()
        one.begin()
        waiting = one.send("t", b"v")
        one.abort()
        with pytest.raises(TransactionAbortable, match="aborted before the records were sent"):
            waiting.result(0)
    assert (cluster.asked("Produce"), cluster.asked("EndTxn")) == (0, 0)


def test_a_fenced_producer_says_so_at_every_call(cluster: Cluster) -> None:
    with producer(cluster) as one:
        one.init()
        one.begin()
        one.send("t", b"v")
        cluster.trouble["EndTxn"] = [EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)]
        for call in (one.commit, one.abort, one.begin, one.init):
            with pytest.raises(ProducerFenced):
                call()


def test_offsets_go_with_the_transaction(cluster: Cluster) -> None:
    group = GroupMetadata("g", 3, "m", None)
    with producer(cluster) as one:
        one.init()
        one.begin()
        one.send_offsets({TopicPartition("t", 0): 7}, group)
        with pytest.raises(ValueError, match="below zero"):
            one.send_offsets({TopicPartition("t", 0): -1}, group)
        one.commit()
    assert cluster.asked("TxnOffsetCommit") == 1


def test_closing_aborts_what_is_open(cluster: Cluster) -> None:
    one = producer(cluster)
    one.init()
    one.begin()
    one.send("t", b"v").result(5)
    one.close()
    ended = [request for name, request in cluster.server.seen if name == "EndTxn"]
    assert [getattr(request, "committed", None) for request in ended] == [False]
    with pytest.raises(ClientClosed):
        one.begin()


def test_without_a_transactional_id_there_are_no_transactions(cluster: Cluster) -> None:
    with Producer(bootstrap_servers=cluster.server.address) as one:
        for call in (one.init, one.begin, one.commit, one.abort):
            with pytest.raises(SettingsError, match="needs a transactional_id"):
                call()
    with (
        BatchWriter(settings(bootstrap_servers=cluster.server.address)) as other,
        pytest.raises(SettingsError, match="transactional_id"),
    ):
        other.begin()


def test_the_writer_goes_on_after_an_abort_and_shows_who_it_is(cluster: Cluster) -> None:
    cluster.trouble["Produce"] = [refused(ErrorCode.MESSAGE_TOO_LARGE)]
    with writer(cluster) as one:
        with pytest.raises(WrongTransactionState):
            one.add("t", 0, build_batch([(None, b"v", (), 0)]), 1)
        one.init()
        one.begin()
        one.add("t", 0, build_batch([(None, b"v", (), 0)]), 1)
        with pytest.raises(RecordTooLarge, match="MESSAGE_TOO_LARGE"):
            one.flush()
        with pytest.raises(TransactionAbortable):
            one.commit()
        one.abort()
        one.begin()
        one.add("t", 0, build_batch([(None, b"v", (), 0)]), 1)
        one.flush()
        assert one.identity == ("x", 7, 1)
        one.commit()
    assert cluster.written == [(1, 0)]


def test_the_writer_gives_up_waiting_for_a_broker_that_does_not_answer() -> None:
    with ScriptedBroker() as silent:
        given = settings(bootstrap_servers=silent.address, transactional_id="x", max_block_ms=50)
        with BatchWriter(given) as one, pytest.raises(RequestTimeout, match="max_block_ms=50"):
            one.init()


def test_a_broker_too_old_for_transactions_is_told_at_once(cluster: Cluster) -> None:
    cluster.server.handlers["ApiVersions"] = lambda _: versions(InitProducerId=(0, -1))
    with writer(cluster) as one, pytest.raises(TransactionFatal, match="InitProducerId"):
        one.init()
