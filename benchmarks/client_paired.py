"""Our client beside confluent-kafka and aiokafka: records per second, taken in turns against one broker.

Each repeat measures every call of the clients on topics of its own, so that a change of the machine's load
meets each; the table gives ours, theirs, and the ratio. AsyncProducer is compared with aiokafka, the others
with confluent-kafka. One partition, one thread, acks=1. `--records N`
sets the records of 100 bytes; a tenth of them are of 1 KB.
"""

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Protocol

import confluent_kafka
import pyarrow as pa
from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]

from benchmarks import harness
from sparklog.client.admin.admin import Admin
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.async_producer import AsyncProducer
from sparklog.client.producer.producer import Producer
from sparklog.model import TopicPartition

SIZES = {"100 B": 100, "1 KB": 1000}
BOUNDS = {
    "send, 100 B": ">= 500",
    "send_many, 100 B": ">= 1200",
    "send_arrow, 100 B": ">= 3000",
    "send, 1 KB": ">= 170",
    "poll, 100 B": ">= 2500",
    "poll, 1 KB": ">= 800",
    "poll_arrow, 100 B": ">= 8000",
    "AsyncProducer.send, 100 B": ">= 300",
}
AWAITED_SENDS = 2_000


def main() -> None:
    options = harness.options(
        __doc__, more=lambda parser: parser.add_argument("--records", type=int, default=1_000_000)
    )
    records: int = options.records
    figures = harness.Figures("client_paired")
    with harness.sparklog({"sparklog.ack.flush": "never"}) as subject:
        for repeat in range(options.repeats):
            for label, size in SIZES.items():
                count = records if size == SIZES["100 B"] else records // 10
                _measure(figures, subject.bootstrap_servers, f"paired-{repeat}-{size}", label, size, count)
            _start(figures, subject.bootstrap_servers)
    figures.note("one partition, one thread, acks=1, sparklog.ack.flush=never")
    figures.report(options)


def _measure(figures: harness.Figures, servers: str, topic: str, label: str, size: int, count: int) -> None:
    value = b"x" * size
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({topic: 1, f"{topic}-other": 1})
    theirs = _confluent_produce(servers, f"{topic}-other", value, count)
    figures.add(f"send, {label}", "k records/s", "confluent", theirs)
    with Producer(bootstrap_servers=servers, acks=1) as producer:
        producer.send(topic, value).result(10)

        def send() -> None:
            for _ in range(count):
                producer.send(topic, value)
            producer.flush()

        def send_many() -> None:
            producer.send_many(topic, [value] * count)
            producer.flush()

        table = pa.table({"value": pa.array([value] * count, pa.binary())})

        def send_arrow() -> None:
            producer.send_arrow(topic, table)
            producer.flush()

        for call in (send, send_many, send_arrow):
            _add(figures, f"{call.__name__}, {label}", _rate(call, count), theirs)
    _consume(figures, servers, topic, label, count)
    asyncio.run(_send_in_loop(figures, servers, f"{topic}-other", label, value, count))
    with Admin(bootstrap_servers=servers) as admin:
        admin.delete_topics([topic, f"{topic}-other"])


def _consume(figures: harness.Figures, servers: str, topic: str, label: str, count: int) -> None:
    theirs = _confluent_consume(servers, topic, count)
    figures.add(f"poll, {label}", "k records/s", "confluent", theirs)
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])

        def poll() -> None:
            read = 0
            while read < count:
                read += len(consumer.poll(1000, 10_000))

        def poll_arrow() -> None:
            read = 0
            while read < count:
                read += consumer.poll_arrow(1000).num_rows

        for call in (poll, poll_arrow):
            consumer.seek_to_beginning()
            _add(figures, f"{call.__name__}, {label}", _rate(call, count), theirs)


class _Loop(Protocol):
    """A producer of an event loop, ours or aiokafka's."""

    async def send(self, topic: str, value: bytes) -> object: ...

    async def send_and_wait(self, topic: str, value: bytes) -> object: ...

    async def flush(self) -> None: ...


async def _send_in_loop(
    figures: harness.Figures, servers: str, topic: str, label: str, value: bytes, count: int
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers, acks=1) as other:
        theirs = await _rate_in_loop(other, topic, value, count // 10)
        wait = await _awaited(other, topic, value)
    figures.add(f"AsyncProducer.send, {label}", "k records/s", "aiokafka", theirs)
    figures.add(f"awaited send, p50, {label}", "µs", "aiokafka", wait)
    async with AsyncProducer[bytes, bytes](bootstrap_servers=servers, acks=1) as producer:
        _add(
            figures,
            f"AsyncProducer.send, {label}",
            await _rate_in_loop(producer, topic, value, count),
            theirs,
        )
        wait = await _awaited(producer, topic, value)
    bound = "<= 150" if label == "100 B" else ""
    figures.add(f"awaited send, p50, {label}", "µs", "sparklog", wait, bound=bound)


async def _rate_in_loop(producer: _Loop, topic: str, value: bytes, count: int) -> float:
    await producer.send_and_wait(topic, value)
    begun = time.perf_counter()
    for _ in range(count):
        await producer.send(topic, value)
    await producer.flush()
    return count / (time.perf_counter() - begun) / 1e3


async def _awaited(producer: _Loop, topic: str, value: bytes) -> float:
    """The median of the time of one awaited record in microseconds."""
    waits = []
    for _ in range(AWAITED_SENDS):
        begun = time.perf_counter()
        await producer.send_and_wait(topic, value)
        waits.append(time.perf_counter() - begun)
    return statistics.median(waits) * 1e6


def _start(figures: harness.Figures, servers: str) -> None:
    """The time to import, and until a producer is ready, in a fresh process."""
    code = (
        "import time; a = time.perf_counter(); import sparklog; b = time.perf_counter();"
        f"sparklog.Producer(bootstrap_servers={servers!r}); c = time.perf_counter();"
        "print((b - a) * 1e3, (c - b) * 1e3)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    imported, ready = (float(word) for word in run.stdout.split())
    figures.add("import sparklog", "ms", "sparklog", imported, bound="<= 0.5")
    figures.add("Producer(...) ready, with its imports", "ms", "sparklog", ready, bound="<= 15")


def _add(figures: harness.Figures, what: str, ours: float, theirs: float) -> None:
    figures.add(what, "k records/s", "sparklog", ours, bound=BOUNDS.get(what, ""))
    figures.add(what, "k records/s", "ratio", ours / theirs)


def _rate(call: Callable[[], object], count: int) -> float:
    begun = time.perf_counter()
    call()
    return count / (time.perf_counter() - begun) / 1e3


def _confluent_produce(servers: str, topic: str, value: bytes, count: int) -> float:
    settings: dict[str, str | int] = {
        "bootstrap.servers": servers,
        "acks": 1,
        "queue.buffering.max.messages": 1_000_000,
    }
    producer = confluent_kafka.Producer(settings)
    producer.produce(topic, value)
    producer.flush()

    def produce() -> None:
        for _ in range(count):
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.flush()

    return _rate(produce, count)


def _confluent_consume(servers: str, topic: str, count: int) -> float:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "paired", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])

    def consume() -> None:
        read = 0
        while read < count:
            for message in consumer.consume(10_000, 1.0):
                message.value()
                read += 1

    rate = _rate(consume, count)
    consumer.close()
    return rate


if __name__ == "__main__":
    main()
