"""Clients of an event loop and a broker that is killed under them, and started anew on the same files."""

import asyncio
from pathlib import Path

from sparklog import Admin, AsyncConsumer, AsyncProducer, TopicPartition
from tests.client.loops import Run, every_loop
from tests.daemon.broker_process import BrokerProcess, broker

TASKS = 4
RECORDS_PER_TASK = 200
KILLS = 2
T0 = TopicPartition("t", 0)


class Broker:
    """One broker after another on the same files and the same port."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.process = broker(data_dir)
        self.host, self.port = self.process.address()

    def kill(self) -> None:
        self.process.__exit__(None, None, None)

    def start(self) -> None:
        self.process = BrokerProcess(
            "--data-dir", str(self._data_dir), "--listen", f"{self.host}:{self.port}"
        )
        self.process.address()


class Written:
    """The offsets of acknowledged values; a waiter of `reached` sees each number of them."""

    def __init__(self) -> None:
        self.offsets: dict[bytes, int] = {}
        self._changed = asyncio.Condition()

    async def add(self, value: bytes, offset: int) -> None:
        self.offsets[value] = offset
        async with self._changed:
            self._changed.notify_all()

    async def reached(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.offsets) >= count)


async def write(producer: AsyncProducer, task: int, written: Written) -> None:
    """Half of the records one by one, the others many at once."""
    values = [b"%d:%d" % (task, number) for number in range(RECORDS_PER_TASK)]
    for value in values[: RECORDS_PER_TASK // 2]:
        await written.add(value, (await producer.send_and_wait("t", value)).offset)
    sent = [(value, await producer.send("t", value)) for value in values[RECORDS_PER_TASK // 2 :]]
    for value, delivery in sent:
        await written.add(value, (await delivery).offset)


async def read(consumer: AsyncConsumer, count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while len(found) < count:
        found += [(record.offset, record.value or b"") for record in await consumer.poll(1000)]
    return found


async def write_and_read(running: Broker, servers: str) -> tuple[Written, list[tuple[int, bytes]]]:
    written, loop = Written(), asyncio.get_running_loop()
    total = TASKS * RECORDS_PER_TASK
    async with (
        AsyncProducer(
            bootstrap_servers=servers, retry_backoff_ms=20, reconnect_backoff_max_ms=100
        ) as producer,
        AsyncConsumer(
            bootstrap_servers=servers, retry_backoff_ms=20, reconnect_backoff_max_ms=100
        ) as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        consumer.assign([T0])
        consumer.seek_to_beginning()
        reading = tasks.create_task(read(consumer, total + KILLS))
        for task in range(TASKS):
            tasks.create_task(write(producer, task, written))
        for kill in range(KILLS):
            await written.reached(total * (kill + 1) // (KILLS + 2))
            running.kill()
            given_up = asyncio.ensure_future(producer.send_and_wait("t", b"cancelled:%d" % kill))
            await asyncio.sleep(0)
            given_up.cancel()
            await loop.run_in_executor(None, running.start)
    return written, reading.result()


@every_loop
def test_each_record_is_written_and_read_once_though_the_broker_is_killed(tmp_path: Path, run: Run) -> None:
    running = Broker(tmp_path)
    servers = f"{running.host}:{running.port}"
    try:
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({"t": 1})

        async def main() -> None:
            written, found = await write_and_read(running, servers)
            values = [value for _, value in found]
            cancelled = [b"cancelled:%d" % kill for kill in range(KILLS)]
            assert sorted(values) == sorted([*written.offsets, *cancelled])
            assert [offset for offset, _ in found] == list(range(len(found)))
            assert {value: offset for offset, value in found if value in written.offsets} == written.offsets
            for task in range(TASKS):
                of_task = [int(value.split(b":")[1]) for value in values if value.startswith(b"%d:" % task)]
                assert of_task == list(range(RECORDS_PER_TASK))

        run(main)
    finally:
        running.kill()
