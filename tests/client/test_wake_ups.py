"""Who waits for a producer's network is woken by what another thread hears, sends or wants."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from sparklog.client.producer import Producer
from sparklog.client.sender import Sender
from sparklog.client.transport import Network
from sparklog.wire.messages.init_producer_id import InitProducerIdResponse
from sparklog.wire.messages.metadata import MetadataRequest, MetadataResponse
from sparklog.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from sparklog.wire.schema import Message
from tests.client.wire import TOPIC_ID, ScriptedBroker, metadata

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


def test_an_answer_that_the_background_thread_could_take_reaches_who_waits_for_it(broker: ScriptedBroker) -> None:
    """The worst moment, held by a trace: one has looked and goes to sleep, the other has seen nobody and is about to look."""
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
        [ProduceResponse(responses=[TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[PartitionProduceResponse()])])]
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


def test_a_flush_sends_though_another_thread_waits_for_the_record_before(broker: ScriptedBroker) -> None:
    first, second = threading.Event(), threading.Event()

    def hear(_: Message) -> bytes:
        (second if first.is_set() else first).set()
        return b""

    broker.handlers["Produce"] = hear
    producer = Producer(bootstrap_servers=broker.address, request_timeout_ms=60_000)
    delivery = producer.send("t", b"a")
    with ThreadPoolExecutor(2) as pool:
        pool.submit(delivery.exception, 60)
        assert first.wait(60)
        producer.send("t", b"b")
        pool.submit(producer.flush, 60)
        try:
            assert second.wait(PATIENCE_S)
        finally:
            producer.close(0)


def test_a_topic_is_asked_for_though_another_thread_waits_for_a_record(broker: ScriptedBroker) -> None:
    first = threading.Event()

    def hear(_: Message) -> bytes:
        first.set()
        return b""

    broker.handlers["Produce"] = hear
    producer = Producer(bootstrap_servers=broker.address, request_timeout_ms=60_000)
    delivery = producer.send("t", b"a")
    with ThreadPoolExecutor(2) as pool:
        pool.submit(delivery.exception, 60)
        assert first.wait(60)
        try:
            assert pool.submit(producer.partitions_for, "u").result(PATIENCE_S) == [0]
        finally:
            producer.close(0)
