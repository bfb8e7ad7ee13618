"""The consumer in an event loop: reading, groups, cancellation, and brokers that are away."""

import asyncio
import gc
import threading
from collections.abc import Iterator

import pytest

import sparklog
from sparklog.client.admin.admin import Admin
from sparklog.client.consumer.async_consumer import AsyncConsumer
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.failures import ClientClosed, UnknownTopic
from sparklog.client.producer.async_producer import AsyncProducer
from sparklog.client.producer.producer import Producer
from sparklog.errors import SettingsError
from sparklog.model import TopicPartition
from tests.client.loops import Run, every_loop
from tests.client.shell_log import Log, fill
from tests.client.wire import ScriptedBroker

T0 = TopicPartition("t", 0)
PARTITIONS = 4
POLL_MS = 10_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with sparklog.embedded(group_initial_rebalance_delay_ms=0) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        admin.create_topics({name: PARTITIONS})
        for number in range(100):
            producer.send(name, b"%d" % number, partition=number % PARTITIONS)
    return str(name)


async def read_any(consumer: AsyncConsumer) -> None:
    while not await consumer.poll(POLL_MS):
        pass


@every_loop
def test_assigned_partitions_are_read_in_order_without_a_thread(
    broker: ScriptedBroker, log: Log, run: Run
) -> None:
    fill(log, 10)

    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers=broker.address) as consumer:
            consumer.assign([T0])
            consumer.seek_to_beginning()
            read = []
            async for record in consumer:
                read.append(record.offset)
                if len(read) == 10:
                    break
            assert read == list(range(10))
            assert await consumer.position(T0) == 10
            consumer.seek(T0, 7)
            assert [record.offset for record in await consumer.poll(POLL_MS)] == [7, 8, 9]
            assert await consumer.poll(0) == []
            consumer.seek(T0, 8)
            assert (
                sum(one.next_offset - one.fetch_offset for one in await consumer.poll_batches(POLL_MS)) == 2
            )
            assert not [one for one in threading.enumerate() if one.name.startswith("sparklog")]

    run(main)


@every_loop
def test_a_cancelled_poll_takes_no_records(broker: ScriptedBroker, log: Log, run: Run) -> None:
    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers=broker.address) as consumer:
            consumer.assign([T0])
            consumer.seek_to_beginning()
            waiting = asyncio.create_task(consumer.poll(60_000))
            while not any(name == "Fetch" for name, _ in broker.seen):
                await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="one at a time"):
                await consumer.poll(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            fill(log, 3)
            assert [record.offset for record in await consumer.poll(POLL_MS)] == [0, 1, 2]

    run(main)


@every_loop
def test_members_share_a_group_and_a_new_one_resumes_from_the_commit(
    servers: str, topic: str, run: Run
) -> None:
    group = f"group-{topic}"
    heard: list[str] = []

    async def assigned(partitions: tuple[TopicPartition, ...]) -> None:
        await asyncio.sleep(0)
        heard.append(f"assigned {len(partitions)}")

    async def read(consumer: AsyncConsumer, count: int) -> list[int]:
        values: list[int] = []
        while len(values) < count:
            values += [int(record.value or b"") for record in await consumer.poll(POLL_MS, 10)]
        return values

    async def main() -> None:
        async with AsyncConsumer(
            bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as one:
            one.subscribe(
                [topic], on_assign=assigned, on_revoke=lambda some: heard.append(f"revoked {len(some)}")
            )
            first = await read(one, 40)
            await one.commit()
            committed = await one.committed(one.assignment())
            assert sum(found.offset for found in committed.values() if found is not None) == len(first)
            assert one.group_metadata().group_id == group
        async with AsyncConsumer(
            topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
        ) as other:
            rest = await read(other, 100 - len(first))
        assert sorted(first + rest) == list(range(100))

    run(main)
    assert heard == [f"assigned {PARTITIONS}", f"revoked {PARTITIONS}"]


@every_loop
def test_two_members_in_one_loop_divide_the_partitions(servers: str, topic: str, run: Run) -> None:
    async def main() -> None:
        async with (
            AsyncConsumer(topic, bootstrap_servers=servers, group_id=f"two-{topic}") as one,
            AsyncConsumer(topic, bootstrap_servers=servers, group_id=f"two-{topic}") as two,
        ):
            while sorted((len(one.assignment()), len(two.assignment()))) != [PARTITIONS // 2] * 2:
                await asyncio.gather(one.poll(50), two.poll(50))
            assert set(one.assignment()) | set(two.assignment()) == {
                TopicPartition(topic, number) for number in range(PARTITIONS)
            }

    run(main)


@every_loop
def test_records_move_exactly_once_from_a_consumer_through_a_transaction(
    servers: str, topic: str, run: Run
) -> None:
    async def main() -> None:
        async with (
            AsyncConsumer(
                topic,
                bootstrap_servers=servers,
                group_id=f"eos-{topic}",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer,
            AsyncProducer(bootstrap_servers=servers, transactional_id=f"eos-{topic}") as producer,
        ):
            moved = 0
            while moved < 100:
                records = await consumer.poll(POLL_MS, 30)
                async with producer.transaction():
                    for record in records:
                        await producer.send(f"{topic}-out", record.value)
                    await producer.send_offsets_to_transaction(
                        {one: await consumer.position(one) for one in consumer.assignment()},
                        consumer.group_metadata(),
                    )
                moved += len(records)

    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({f"{topic}-out": 1})
    run(main)
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(f"{topic}-out", 0)])
        consumer.seek_to_beginning()
        read: list[int] = []
        while len(read) < 100:
            read += [int(record.value or b"") for record in consumer.poll(POLL_MS)]
        assert sorted(read) == list(range(100))
        assert consumer.poll(0) == []


@every_loop
def test_questions_about_topics_and_offsets_are_answered(servers: str, topic: str, run: Run) -> None:
    partition = TopicPartition(topic, 1)

    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers=servers) as consumer:
            assert topic in await consumer.topics()
            assert await consumer.partitions_for(topic) == list(range(PARTITIONS))
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 25}
            assert await consumer.offsets_for_times({partition: 0}) == {partition: 0}
            with pytest.raises(UnknownTopic):
                await consumer.partitions_for("nowhere")
            with pytest.raises(SettingsError, match="group_id"):
                await consumer.commit()
            table = consumer.poll_arrow(POLL_MS)
            consumer.assign([partition])
            consumer.seek_to_beginning()
            assert (await table).num_rows == 25

    run(main)


@every_loop
def test_a_listener_that_raises_ends_the_poll_and_the_next_one_goes_on(
    servers: str, topic: str, run: Run
) -> None:
    async def refuse(_: tuple[TopicPartition, ...]) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        async with AsyncConsumer(
            bootstrap_servers=servers, group_id=f"raises-{topic}", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe([topic], on_assign=refuse)
            with pytest.raises(ZeroDivisionError):
                await read_any(consumer)
            assert len(await consumer.poll(POLL_MS)) > 0

    run(main)


@every_loop
def test_a_stopped_consumer_and_one_that_was_not_started_say_so(broker: ScriptedBroker, run: Run) -> None:
    async def main() -> None:
        consumer = AsyncConsumer(bootstrap_servers=broker.address)
        with pytest.raises(RuntimeError, match="start the consumer first"):
            await consumer.poll()
        await consumer.stop()
        await consumer.start()
        await consumer.stop()
        await consumer.stop()
        with pytest.raises(ClientClosed):
            await consumer.poll()

    run(main)


@every_loop
def test_a_poll_ends_in_time_while_the_broker_is_away(run: Run) -> None:
    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers="127.0.0.1:1") as consumer:
            consumer.assign([T0])
            assert await consumer.poll(100) == []

    run(main)


def forget(made: list[AsyncConsumer]) -> None:
    made.clear()
    gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_consumer_that_is_left_in_a_closed_loop_says_so(broker: ScriptedBroker) -> None:
    made: list[AsyncConsumer] = []

    async def main() -> None:
        consumer = AsyncConsumer(bootstrap_servers=broker.address, group_id="g")
        await consumer.start()
        made.append(consumer)

    asyncio.run(main())
    with pytest.warns(ResourceWarning, match="was not stopped"):
        forget(made)
