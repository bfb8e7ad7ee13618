"""Who waits for the network is woken by what it waits for, though another thread hears, sends or wants it,
or the thread itself is late.
"""

import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from sparklog.client.failures import ClientClosed
from sparklog.client.producer import Producer
from sparklog.client.sender import Sender
from sparklog.client.transport import Network, now_us
from sparklog.model import Micros, NodeId
from sparklog.wire.messages.init_producer_id import InitProducerIdResponse
from sparklog.wire.messages.metadata import MetadataRequest, MetadataResponse
from sparklog.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from sparklog.wire.schema import Message
from tests.client.wire import TOPIC_ID, ScriptedBroker, metadata, settings

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


def test_an_answer_that_the_background_thread_could_take_reaches_who_waits_for_it(
    broker: ScriptedBroker,
) -> None:
    """The worst moment, held by a trace: one has looked and goes to sleep, the other has seen nobody and
    is about to look.
    """
    is_armed, sees_nobody, goes_to_sleep, has_looked = (threading.Event() for _ in range(4))

    def answer(request: Message) -> MetadataResponse:
        assert isinstance(request, MetadataRequest)
        if any(topic.name == "u" for topic in request.topics or []):
            assert goes_to_sleep.wait(60)
        return known(broker, request)

    def in_background(frame: FrameType, event: str, arg: Any) -> Any:
        if sees_nobody.is_set() and frame.f_code in (Network.wait.__code__, Sender._is_attended.__code__):
            has_looked.set()
        if frame.f_code is not Sender._is_attended.__code__:
            return None

        def leaving(_frame: FrameType, event: str, result: Any) -> Any:
            if event == "return" and not result and is_armed.is_set() and not sees_nobody.is_set():
                sees_nobody.set()
                assert goes_to_sleep.wait(60)
                answered.wait(60)
            return leaving

        return leaving

    def in_waiting(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is Network.wait.__code__ and not goes_to_sleep.is_set():
            goes_to_sleep.set()
            frame.f_locals["self"]._selector.select(60)  # the answer is there; nobody has taken it yet
            answered.set()
            assert has_looked.wait(60)
        return None

    answered = threading.Event()
    acknowledged = iter(
        [
            ProduceResponse(
                responses=[
                    TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[PartitionProduceResponse()])
                ]
            )
        ]
    )
    broker.handlers |= {"Metadata": answer, "Produce": lambda _: next(acknowledged, b"")}
    threading.settrace(in_background)
    producer = Producer(bootstrap_servers=broker.address, request_timeout_ms=60_000, linger_ms=1)
    threading.settrace(None)  # type: ignore[arg-type]
    producer.send("t", b"first").result(60)

    def wait_for_topic() -> list[int]:
        sys.settrace(in_waiting)
        return producer.partitions_for("u")

    is_armed.set()
    producer.send("t", b"a")  # has the background thread look
    assert sees_nobody.wait(60)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(wait_for_topic).result(PATIENCE_S) == [0]
    producer.close(0)


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
    producer = Producer(bootstrap_servers=broker.address, request_timeout_ms=60_000)
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
        pool.submit(producer.flush, 60)
        assert heard.acquire(timeout=PATIENCE_S)


def test_a_topic_is_asked_for_though_another_thread_waits_for_a_record(broker: ScriptedBroker) -> None:
    with waited_for(broker) as (producer, pool, _):
        assert pool.submit(producer.partitions_for, "u").result(PATIENCE_S) == [0]


def test_a_batch_whose_time_comes_between_two_looks_at_the_clock_is_sent(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Message] = []
    two = threading.Event()

    def hear(request: Message) -> bytes:
        heard.append(request)
        if len(heard) == 2:
            two.set()
        return b""

    broker.handlers["Produce"] = hear
    broker.handlers["Metadata"] = lambda _: metadata({"t": [1, 1]}, nodes=[(1, broker.port)])
    producer = Producer(bootstrap_servers=broker.address, request_timeout_ms=60_000, linger_ms=200)
    next_turn, is_late = Sender._next_turn, threading.Event()

    def late(self: Sender, now: Micros, **how: bool) -> Micros:
        if is_late.is_set():
            is_late.clear()
            threading.Event().wait(0.3)
        return next_turn(self, now, **how)

    monkeypatch.setattr(Sender, "_next_turn", late)
    delivery = producer.send("t", b"a", partition=0)
    with ThreadPoolExecutor(2) as pool:
        pool.submit(delivery.exception, 60)
        while not heard:
            threading.Event().wait(0.01)
        sent_us = now_us()
        producer.send("t", b"b", partition=1)
        while now_us() < sent_us + 100_000:
            threading.Event().wait(0.01)
        is_late.set()
        pool.submit(delivery.exception, 0.01)  # who begins to wait has the one who attends look
        try:
            assert two.wait(PATIENCE_S)
        finally:
            producer.close(0)


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
