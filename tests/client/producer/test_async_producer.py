"""The producer in an event loop: order, cancellation, memory, transactions, and brokers that break."""

import asyncio
import contextlib
import gc
import os
import signal
import threading

import pytest

import sparklog
from sparklog.client.admin.admin import Admin
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.failures import (
    BufferExhausted,
    ClientClosed,
    RecordTooLarge,
    TransactionAbortable,
    WrongTransactionState,
)
from sparklog.client.producer.async_producer import AsyncDelivery, AsyncProducer
from sparklog.errors import RequestTimeout, SettingsError
from sparklog.local_broker import EmbeddedBroker
from sparklog.model import TopicPartition
from sparklog.wire.messages.produce import ProduceRequest
from tests.client.loops import Run, every_loop
from tests.client.shell_log import Log
from tests.client.wire import ScriptedBroker

UNREACHABLE = "127.0.0.1:1"


@every_loop
def test_records_keep_their_order_and_each_promise_tells_its_place(
    broker: ScriptedBroker, log: Log, run: Run
) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=broker.address, batch_size=500) as producer:
            sent = [await producer.send("t", b"%d" % number) for number in range(500)]
            told = await asyncio.gather(*sent)
            assert [one.offset for one in told] == list(range(500))
            assert (await producer.send_and_wait("t", "last")).offset == 500
            assert not [one for one in threading.enumerate() if one.name.startswith("sparklog")]
            assert sent[0].done()
            assert sent[0].exception() is None

    run(main)
    assert log.values() == [*(b"%d" % number for number in range(500)), b"last"]


@every_loop
def test_the_records_of_one_iteration_of_the_loop_are_one_batch(broker: ScriptedBroker, run: Run) -> None:
    requests: list[ProduceRequest] = []
    produce = broker.handlers["Produce"]

    def count(request: object) -> object:
        assert isinstance(request, ProduceRequest)
        requests.append(request)
        return produce(request)  # type: ignore[arg-type]

    broker.handlers["Produce"] = count  # type: ignore[assignment]

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=broker.address) as producer:
            await producer.send_and_wait("t", b"first")
            requests.clear()
            await asyncio.gather(*[producer.send_and_wait("t", b"x") for _ in range(100)])
            assert len(requests) == 2, "the first at once, the others in the next iteration"
            requests.clear()
            sent = [await producer.send("t", b"x") for _ in range(100)]
            await asyncio.gather(*sent)
            assert len(requests) == 1

    run(main)


@every_loop
def test_a_cancelled_wait_for_an_acknowledgement_loses_no_record(
    broker: ScriptedBroker, log: Log, run: Run
) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=broker.address, linger_ms=50) as producer:
            await producer.partitions_for("t")
            task = asyncio.create_task(producer.send_and_wait("t", b"cancelled"))
            for _ in range(5):
                await asyncio.sleep(0)  # added; it lingers
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await producer.send_and_wait("t", b"after")

    run(main)
    assert log.values() == [b"cancelled", b"after"]


@every_loop
def test_a_send_cancelled_while_it_waits_for_memory_adds_nothing(
    broker: ScriptedBroker, log: Log, run: Run
) -> None:
    held = broker.handlers["Produce"]
    broker.handlers["Produce"] = lambda _: b""

    async def main() -> None:
        async with AsyncProducer(
            bootstrap_servers=broker.address, buffer_memory=200, max_request_size=200, request_timeout_ms=300
        ) as producer:
            first = await producer.send("t", bytes(100))
            waiting = asyncio.create_task(producer.send("t", b"c" * 100))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not waiting.done()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            broker.handlers["Produce"] = held
            await first
            await producer.send_and_wait("t", b"d" * 100)

    run(main)
    assert log.values() == [bytes(100), b"d" * 100]


@every_loop
def test_full_memory_names_the_broker_that_cannot_be_reached(broker: ScriptedBroker, run: Run) -> None:
    async def main() -> None:
        async with AsyncProducer(
            bootstrap_servers=broker.address,
            buffer_memory=300,
            max_request_size=300,
            max_block_ms=300,
            request_timeout_ms=50,
            delivery_timeout_ms=2_000,
        ) as producer:
            await producer.send_and_wait("t", b"x")
            broker.stop()
            await producer.send("t", bytes(150))
            with pytest.raises(BufferExhausted, match=f"{broker.address}.*; buffer_memory=300 was full"):
                await producer.send("t", bytes(150))
            await producer.stop(0)

    run(main)


@every_loop
def test_a_broker_that_nobody_runs_is_named_in_time(run: Run) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=UNREACHABLE, max_block_ms=200) as producer:
            with pytest.raises(
                RequestTimeout, match=r"no broker answers \(127\.0\.0\.1:1: .*; no metadata of topic 't'"
            ):
                await producer.send_and_wait("t", b"x")

    run(main)


@every_loop
def test_a_stop_ends_every_promise_and_a_second_one_does_nothing(broker: ScriptedBroker, run: Run) -> None:
    async def main() -> None:
        producer = AsyncProducer(bootstrap_servers=broker.address)
        with pytest.raises(RuntimeError, match="start the producer first"):
            await producer.send("t", b"x")
        await producer.start()
        await producer.send_and_wait("t", b"x")
        broker.handlers["Produce"] = lambda _: b""
        sent = await producer.send("t", b"never")
        waiting = asyncio.ensure_future(sent)
        with pytest.raises(RequestTimeout):
            await producer.flush(20)
        await producer.stop(0)
        await producer.stop()
        with pytest.raises(ClientClosed):
            await waiting
        with pytest.raises(ClientClosed):
            await producer.send("t", b"x")

    run(main)


@every_loop
def test_refused_records_raise_at_once_and_others_go_on(broker: ScriptedBroker, run: Run) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=broker.address, max_request_size=1_000) as producer:
            with pytest.raises(RecordTooLarge):
                await producer.send("t", bytes(2_000))
            with pytest.raises(TypeError, match="neither bytes nor text"):
                await producer.send("t", 3)
            with pytest.raises(SettingsError, match="transactional_id"):
                await producer.begin_transaction()
            heard: list[AsyncDelivery] = []
            sent = await producer.send("t", b"x")
            with pytest.raises(asyncio.InvalidStateError):
                sent.result()
            sent.add_done_callback(heard.append)
            await sent
            sent.add_done_callback(heard.append)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert heard == [sent, sent]

    run(main)


def forget(made: list[AsyncProducer]) -> None:
    made.clear()
    gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_producer_that_is_left_in_a_closed_loop_says_so(broker: ScriptedBroker) -> None:
    made: list[AsyncProducer] = []

    async def main() -> None:
        producer = AsyncProducer(bootstrap_servers=broker.address)
        await producer.start()
        await producer.send_and_wait("t", b"x")
        made.append(producer)

    asyncio.run(main())
    with pytest.warns(ResourceWarning, match="was not stopped"):
        forget(made)


@every_loop
def test_a_callback_that_raises_reaches_the_loop_and_nothing_else(broker: ScriptedBroker, run: Run) -> None:
    async def main() -> None:
        heard: list[BaseException | None] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: heard.append(told.get("exception")))

        def refuse(_: AsyncDelivery) -> None:
            raise ValueError("refused")

        async with AsyncProducer(bootstrap_servers=broker.address) as producer:
            (await producer.send("t", b"x")).add_done_callback(refuse)
            await producer.send_and_wait("t", b"y")
            await asyncio.sleep(0)
        assert [str(one) for one in heard] == ["refused"]

    run(main)


@every_loop
def test_transactions_commit_abort_and_survive_a_cancelled_commit(run: Run) -> None:
    async def main(broker: EmbeddedBroker) -> None:
        async with AsyncProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="mine"
        ) as producer:
            with pytest.raises(WrongTransactionState):
                await producer.send("t", b"outside")
            async with producer.transaction():
                await producer.send("t", b"committed")
            sent = []
            with contextlib.suppress(ZeroDivisionError):
                async with producer.transaction():
                    sent.append(await producer.send("t", b"aborted"))
                    raise ZeroDivisionError
            with pytest.raises(TransactionAbortable):
                await sent[0]
            await producer.begin_transaction()
            await producer.send("t", b"cancelled commit")
            os.kill(broker.pid, signal.SIGSTOP)  # so that the commit does not end before it is cancelled
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
            commit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commit
            again = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
            os.kill(broker.pid, signal.SIGCONT)
            await again
            async with producer.transaction():
                await producer.send_many("t", [b"a", b"b"])

    with sparklog.embedded() as broker:
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({"t": 1})
        run(lambda: main(broker))
        with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek_to_beginning()
            read: list[bytes | None] = []
            while b"b" not in read:
                read += [record.value for record in consumer.poll(5_000)]
    assert read == [b"committed", b"cancelled commit", b"a", b"b"]


@every_loop
def test_broken_connections_lose_nothing_and_keep_the_order(
    broker: ScriptedBroker, log: Log, run: Run
) -> None:
    count = 2_000

    async def main() -> None:
        async with AsyncProducer(
            bootstrap_servers=broker.address, batch_size=1_000, reconnect_backoff_ms=1, retry_backoff_ms=1
        ) as producer:
            sent = []
            for number in range(count):
                if number % 400 == 200:
                    log.trouble += [lambda: None] * 2  # the connection breaks in place of an answer
                sent.append(await producer.send("t", b"%d" % number))
            assert [one.offset for one in await asyncio.gather(*sent)] == list(range(count))

    run(main)
    assert log.values() == [b"%d" % number for number in range(count)]
    assert not log.trouble
