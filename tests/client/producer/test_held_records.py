"""Records sent before the metadata of their topic is known: held, then added in their order, or failed."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from sparklog.client.failures import ClientClosed, DeliveryFailed, UnknownTopic
from sparklog.client.producer.async_producer import AsyncProducer
from sparklog.client.producer.producer import Delivery, Producer
from sparklog.errors import RequestTimeout, SparklogError
from sparklog.wire.messages.metadata import MetadataResponseTopic
from sparklog.wire.schema import Message
from tests.client.loops import Run, every_loop
from tests.client.shell_log import Log
from tests.client.wire import ScriptedBroker, metadata

UNREACHABLE = "127.0.0.1:1"
PATIENCE_S = 60


@pytest.fixture
def mute() -> Iterator[ScriptedBroker]:
    """A broker that accepts connections and answers nothing."""
    with ScriptedBroker() as broker:
        del broker.handlers["ApiVersions"]
        yield broker


@pytest.fixture
def gate(broker: ScriptedBroker, log: Log) -> Iterator[threading.Event]:
    """The broker answers the metadata of a topic once this is set."""
    opened = threading.Event()

    def answer(request: Message) -> Message:
        if not getattr(request, "topics", None):
            return metadata({}, nodes=[(1, broker.port)])
        opened.wait(PATIENCE_S)
        return log.metadata(broker, request)

    broker.handlers["Metadata"] = answer
    yield opened
    opened.set()


@pytest.mark.parametrize("is_mute", [False, True])
def test_the_time_limit_of_a_result_holds_while_no_broker_answers(
    mute: ScriptedBroker, is_mute: bool
) -> None:
    address = mute.address if is_mute else UNREACHABLE
    producer = Producer(bootstrap_servers=address)
    started = time.monotonic()
    with pytest.raises(RequestTimeout, match=r"^no broker answers.*neither acknowledged nor given up"):
        producer.send("t", b"x").result(0.1)
    with pytest.raises(RequestTimeout, match="no broker answers"):
        producer.send_many("t", [b"x", b"y"]).result(0.1)
    assert time.monotonic() - started < 5
    producer.close(0)


def test_a_record_fails_when_no_broker_answers_within_max_block_ms(mute: ScriptedBroker) -> None:
    told: list[SparklogError | None] = []
    with Producer(bootstrap_servers=mute.address, max_block_ms=50) as producer:
        delivery = producer.send("t", b"x", on_delivery=lambda _, error: told.append(error))
        error = delivery.exception(PATIENCE_S)
        assert isinstance(error, RequestTimeout)
        assert "no metadata of topic 't' within max_block_ms=50" in str(error)
    assert told == [error]


def test_a_close_fails_the_records_that_are_held(mute: ScriptedBroker) -> None:
    producer = Producer(bootstrap_servers=mute.address)
    deliveries = [producer.send("t", b"x"), producer.send("u", b"y", b"key")]
    producer.close(0)
    assert [type(one.exception(0)) for one in deliveries] == [ClientClosed, ClientClosed]


def test_held_records_count_in_buffer_memory_and_a_full_one_blocks(mute: ScriptedBroker) -> None:
    producer = Producer(bootstrap_servers=mute.address, buffer_memory=10_000, max_block_ms=300)
    held: list[Delivery] = []
    fill_up = partial(held.extend, (producer.send("t", bytes(1_000)) for _ in range(1_000)))
    with pytest.raises(RequestTimeout, match="no broker answers"):
        fill_up()
    assert 1 < len(held) < 10
    producer.close(0)


@pytest.mark.parametrize("linger_ms", [0, 60_000])
def test_the_order_of_records_holds_across_the_arrival_of_metadata(
    broker: ScriptedBroker, log: Log, gate: threading.Event, linger_ms: int
) -> None:
    told: list[int] = []
    with Producer(bootstrap_servers=broker.address, linger_ms=linger_ms, batch_size=300) as producer:

        def send(number: int, key: bytes | None = None, partition: int | None = None) -> Callable[[], int]:
            delivery = producer.send(
                "t",
                b"%d" % number,
                key,
                partition=partition,
                on_delivery=lambda metadata, _: told.append(metadata.offset if metadata else -1),
            )
            return lambda: delivery.result(PATIENCE_S).offset

        sent = [send(0), send(1, b"key"), send(2, None, 0), send(3)]
        many = producer.send_many("t", [b"4", b"5"], [b"a", b"b"])
        assert not told
        gate.set()
        sent += [send(number, b"%d" % number if number % 2 else None) for number in range(6, 100)]
        producer.flush()
        assert [offset() for offset in sent] == [0, 1, 2, 3, *range(6, 100)]
        assert [(one.offset, one.record_count) for one in many.result(PATIENCE_S)] == [(4, 1), (5, 1)]
    assert log.values() == [b"%d" % number for number in range(100)]
    assert told == [0, 1, 2, 3, *range(6, 100)]


def test_a_flush_waits_for_held_records_and_does_not_let_them_linger(
    broker: ScriptedBroker, log: Log, gate: threading.Event
) -> None:
    with Producer(
        bootstrap_servers=broker.address, linger_ms=600_000, delivery_timeout_ms=700_000
    ) as producer:
        delivery = producer.send("t", b"x")
        with pytest.raises(RequestTimeout):
            producer.flush(20)
        gate.set()
        producer.flush(PATIENCE_S * 1000)
        assert delivery.done()
    assert log.values() == [b"x"]


def test_the_caller_may_change_a_buffer_after_the_send(
    broker: ScriptedBroker, log: Log, gate: threading.Event
) -> None:
    with Producer(bootstrap_servers=broker.address) as producer:
        value = bytearray(b"before")
        producer.send("t", value)
        value[:] = b"after!"
        gate.set()
    assert log.values() == [b"before"]


def test_a_held_record_without_a_partition_of_its_topic_fails_alone(
    broker: ScriptedBroker, log: Log, gate: threading.Event
) -> None:
    def partition(_topic: str, _key: bytes | None, value: bytes | None, _count: int) -> int:
        return {b"x": 0}[value or b""]

    with Producer(bootstrap_servers=broker.address, partitioner=partition) as producer:
        beyond = producer.send("t", b"x", partition=5)
        broken = producer.send("t", b"y")
        good = producer.send("t", b"x")
        gate.set()
        assert isinstance(beyond.exception(PATIENCE_S), UnknownTopic)
        with pytest.raises(DeliveryFailed, match=r"the partitioner raised KeyError\(b'y'\)"):
            broken.result(PATIENCE_S)
        assert good.result(PATIENCE_S).offset == 0
    assert log.values() == [b"x"]


def test_a_topic_that_the_broker_refuses_fails_its_held_records_at_once(broker: ScriptedBroker) -> None:
    def refused(_: Message) -> Message:
        reply = metadata({}, nodes=[(1, broker.port)])
        reply.topics.append(MetadataResponseTopic(error_code=29, name="t"))
        return reply

    broker.handlers["Metadata"] = refused
    with Producer(bootstrap_servers=broker.address) as producer:
        for _ in range(2):
            error = producer.send("t", b"x").exception(PATIENCE_S)
            assert "TOPIC_AUTHORIZATION_FAILED" in str(error)


@every_loop
def test_the_asynchronous_producer_holds_records_as_well(
    broker: ScriptedBroker, log: Log, gate: threading.Event, run: Run
) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=broker.address) as producer:
            first = await producer.send("t", b"0")
            more = await producer.send_many("t", [b"1", b"2"])
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(producer.send_and_wait("t", b"3"), 0.05)
            gate.set()
            last = await producer.send("t", b"4")
            assert ((await first).offset, [one.offset for one in await more]) == (0, [1, 2])
            assert (await last).offset == 4

    run(main)
    assert log.values() == [b"%d" % number for number in range(5)]
