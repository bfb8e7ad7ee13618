"""A thread that waits for the network is woken by the event that it waits for, though another thread
receives it. `test_turns.py` has each wake-up on virtual time; here the threads are real.
"""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from sparklog.client.clock import now_us
from sparklog.client.failures import ClientClosed
from sparklog.client.producer.producer import Producer
from sparklog.client.transport.network import Network
from sparklog.model import Micros, NodeId
from sparklog.wire.messages.init_producer_id import InitProducerIdResponse
from sparklog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from sparklog.wire.messages.metadata import MetadataRequest, MetadataResponse
from sparklog.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from sparklog.wire.schema import Message
from tests.client.wire import TOPIC_ID, ScriptedBroker, metadata, settings, versions

PATIENCE_S = 20
"""A third of what a lost wake-up lasts here, the time limit of a request."""


def known(broker: ScriptedBroker, request: Message) -> MetadataResponse:
    assert isinstance(request, MetadataRequest)
    return metadata({str(topic.name): [1] for topic in request.topics or []}, nodes=[(1, broker.port)])


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """Knows every topic, and acknowledges nothing."""
    with ScriptedBroker() as scripted:
        scripted.handlers |= {
            "Metadata": lambda request: known(scripted, request),
            "InitProducerId": lambda _: InitProducerIdResponse(producer_id=7, producer_epoch=0),
            "Produce": lambda _: b"",
        }
        yield scripted


def test_a_back_off_that_ends_before_the_network_waits_is_over_at_once(broker: ScriptedBroker) -> None:
    with (
        socket.socket() as deaf,
        Network(settings(bootstrap_servers=broker.address, reconnect_backoff_ms=200)) as network,
    ):
        deaf.bind(("127.0.0.1", 0))
        broker.handlers["Metadata"] = lambda _: metadata(nodes=[(1, broker.port), (2, deaf.getsockname()[1])])
        deadline = Micros(now_us() + PATIENCE_S * 1_000_000)
        network.call(MetadataRequest(topics=[]), MetadataResponse, deadline=deadline)
        while network.last_error is None:
            network.is_ready(NodeId(2))
            network.poll(now_us())
        answers = network.cluster.answers
        while network.cluster.answers == answers:
            network.poll(deadline)  # a connection that failed is a reason to ask for the cluster anew
        assert not network.is_ready(NodeId(2))
        due = network.next_event(deadline, now_us())
        while now_us() <= due:
            pass
        network.poll(deadline)
        assert now_us() < deadline


class Counting(Network):
    """Counts how often `call` looks whether a broker is ready, until it is."""

    looks = 0
    is_spinning = threading.Event()

    def is_ready(self, node: NodeId) -> bool:
        self.looks += 1
        if self.looks == 1_000:
            self.is_spinning.set()
        return super().is_ready(node)


def test_a_call_waits_for_its_reply_beside_a_wake_up_that_is_not_taken(broker: ScriptedBroker) -> None:
    with Counting(settings(bootstrap_servers=broker.address), can_be_woken=True) as network:

        def answer_late(_: Message) -> Message:
            network.is_spinning.wait(0.3)
            return versions()

        broker.handlers["ApiVersions"] = answer_late
        network.wake()
        deadline = Micros(now_us() + PATIENCE_S * 1_000_000)
        network.call(
            MetadataRequest(topics=[]),
            MetadataResponse,
            node=next(iter(network.cluster.brokers)),
            deadline=deadline,
        )
        assert not network.is_spinning.is_set()
        network.wait(deadline)  # ends at once: the wake-up is left for the thread that waits
        assert now_us() < deadline


def test_metadata_that_no_connection_has_room_to_request_waits_for_an_answer(broker: ScriptedBroker) -> None:
    node, may_answer = NodeId(1), threading.Event()

    def answer_late(_: Message) -> ListOffsetsResponse:
        assert may_answer.wait(PATIENCE_S)
        return ListOffsetsResponse()

    broker.handlers["ListOffsets"] = answer_late
    limits = settings(bootstrap_servers=broker.address, connections_max_idle_ms=1)
    with Network(limits, in_flight_max=1) as network:
        deadline = Micros(now_us() + PATIENCE_S * 1_000_000)
        network.call(MetadataRequest(topics=[]), MetadataResponse, deadline=deadline)
        while not network.is_ready(node):
            network.poll(deadline)
        network.send(node, ListOffsetsRequest(topics=[]), "")
        answers = network.cluster.answers
        network.cluster.refresh_soon()
        while any(network.is_connected(NodeId(bootstrap)) for bootstrap in range(-5, 0)):
            network.poll(now_us())  # the connections to the bootstrap addresses become idle
        assert network.next_event(deadline, now_us()) > now_us()
        may_answer.set()
        while network.cluster.answers == answers:
            network.poll(deadline)
        assert now_us() < deadline


@contextmanager
def waited_for(broker: ScriptedBroker) -> Iterator[tuple[Producer, ThreadPoolExecutor, threading.Semaphore]]:
    """A producer of which another thread waits for a record that was heard; the threads for more, and what
    each further record releases.
    """
    heard = threading.Semaphore(0)

    def hear(_: Message) -> bytes:
        heard.release()
        return b""

    broker.handlers["Produce"] = hear
    producer = Producer(bootstrap_servers=broker.address, acks=1, request_timeout_ms=60_000)
    delivery = producer.send("t", b"a")
    with ThreadPoolExecutor(2) as pool:
        pool.submit(delivery.exception, 60)
        assert heard.acquire(timeout=60)
        try:
            yield producer, pool, heard
        finally:
            producer.close(0)


def test_a_flush_sends_though_another_thread_waits_for_the_record_before(broker: ScriptedBroker) -> None:
    with waited_for(broker) as (producer, pool, heard):
        producer.send("t", b"b")
        pool.submit(producer.flush, 60_000)
        assert heard.acquire(timeout=PATIENCE_S)


def test_a_topic_is_asked_for_though_another_thread_waits_for_a_record(broker: ScriptedBroker) -> None:
    with waited_for(broker) as (producer, pool, _):
        assert pool.submit(producer.partitions_for, "u").result(PATIENCE_S) == [0]


def test_a_close_ends_the_waiting_of_all(broker: ScriptedBroker) -> None:
    producer = Producer(bootstrap_servers=broker.address, request_timeout_ms=60_000, max_block_ms=60_000)
    producer.partitions_for("t")
    del broker.handlers["Metadata"]
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(producer.partitions_for, topic) for topic in ("u", "v")]
        threading.Event().wait(0.2)
        producer.close(0)
        for one in waiting:
            with pytest.raises(ClientClosed):
                one.result(PATIENCE_S)


@pytest.mark.parametrize("linger_ms", [0, 5])
@pytest.mark.parametrize("is_waited_for", [True, False])
def test_a_callback_may_close_the_producer_in_any_thread(
    broker: ScriptedBroker, linger_ms: int, *, is_waited_for: bool
) -> None:
    acknowledged = ProduceResponse(
        responses=[TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[PartitionProduceResponse()])]
    )
    may_answer, is_closed = threading.Event(), threading.Event()

    def answer(_: Message) -> ProduceResponse:
        assert may_answer.wait(60)
        return acknowledged

    broker.handlers["Produce"] = answer
    producer = Producer(bootstrap_servers=broker.address, request_timeout_ms=60_000, linger_ms=linger_ms)

    def close(*_: object) -> None:
        producer.close(0)
        is_closed.set()

    delivery = producer.send("t", b"a", on_delivery=close)
    with ThreadPoolExecutor(1) as pool:
        if is_waited_for:
            pool.submit(delivery.exception, 60)
            threading.Event().wait(0.1)
        may_answer.set()
        assert is_closed.wait(PATIENCE_S)
    assert delivery.exception(0) is None
