"""Our own client: records per second of Producer.send, BatchWriter, Consumer.poll, poll_batches and
RangeReader.

The one client among the benchmarks that is ours: the others measure the broker with foreign ones. Values
of 100 bytes, four partitions; the broker runs beside the client, so both share the machine.
`--bootstrap-server HOST:PORT` measures against a broker that runs already.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import harness
from sparklog.client.admin.admin import Admin
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.ranges import RangeReader
from sparklog.client.producer.producer import Producer
from sparklog.client.producer.writer import BatchWriter
from sparklog.client.settings import ClientSettings
from sparklog.model import TopicPartition
from sparklog.record.batch import build_batch

VALUE = b"x" * 100
PARTITION_COUNT = 4
RECORDS_PER_BATCH = 4_800
BATCHES = 800
SENT_RECORDS = 300_000
POLLED_RECORDS_MIN = 1_000_000
FLUSH = "never"


def main() -> None:
    bootstrap_servers = _bootstrap_server()
    options = harness.options(__doc__, against=True)
    figures = harness.Figures("client")
    for name, address in _brokers(options, bootstrap_servers):
        for repeat in range(options.repeats):
            _measure(
                figures,
                name,
                ClientSettings.from_kafka({"bootstrap.servers": address}),
                f"client-{repeat}-{time.time_ns()}",
            )
    figures.note(
        f"sparklog.ack.flush={FLUSH}; acks=all, idempotent; {PARTITION_COUNT} partitions; values of "
        f"{len(VALUE)} B"
    )
    figures.report(options)


def _measure(figures: harness.Figures, name: str, settings: ClientSettings, topic: str) -> None:
    with Admin.from_settings(settings) as admin:
        admin.create_topics({topic: PARTITION_COUNT, f"{topic}-single": PARTITION_COUNT})
    _write(figures, name, settings, topic)
    _read_ranges(figures, name, settings, topic)
    _poll(figures, name, settings, topic)
    _send(figures, name, settings, f"{topic}-single")
    with Admin.from_settings(settings) as admin:
        admin.delete_topics([topic, f"{topic}-single"])


def _write(figures: harness.Figures, name: str, settings: ClientSettings, topic: str) -> None:
    batch = bytes(build_batch([(None, VALUE, (), int(time.time() * 1000))] * RECORDS_PER_BATCH))
    with BatchWriter(settings) as writer:
        writer.partition_count(topic)
        with _clock() as clock:
            for number in range(BATCHES):
                writer.add(topic, number % PARTITION_COUNT, bytearray(batch), RECORDS_PER_BATCH)
            writer.flush()
    records = BATCHES * RECORDS_PER_BATCH
    figures.add("BatchWriter", "M records/s", name, records / clock.wall_s / 1e6, bound=">= 2")
    figures.add("BatchWriter, client CPU", "s per M records", name, clock.cpu_s / records * 1e6)


def _read_ranges(figures: harness.Figures, name: str, settings: ClientSettings, topic: str) -> None:
    received = 0
    with RangeReader(settings) as reader, _clock() as clock:
        for partition in range(PARTITION_COUNT):
            for view in reader.read(topic, partition, 0, BATCHES // PARTITION_COUNT * RECORDS_PER_BATCH):
                received += len(view)
    figures.add("RangeReader", "GB/s", name, received / clock.wall_s / 1e9, bound=">= 1")
    figures.add("RangeReader, client CPU", "s per GB", name, clock.cpu_s / received * 1e9)


def _poll(figures: harness.Figures, name: str, settings: ClientSettings, topic: str) -> None:
    with Consumer.from_settings(settings) as consumer:
        partitions = [TopicPartition(topic, number) for number in range(PARTITION_COUNT)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        count = 0
        with _clock() as clock:
            while count < POLLED_RECORDS_MIN:
                count += len(consumer.poll(1000, 10_000))
        figures.add("Consumer.poll", "M records/s", name, count / clock.wall_s / 1e6)
        consumer.seek_to_beginning()
        total, received = sum(consumer.end_offsets(partitions).values()), 0
        with _clock() as clock:
            while received < total:
                received += sum(
                    batches.next_offset - batches.fetch_offset for batches in consumer.poll_batches(1000)
                )
        figures.add("Consumer.poll_batches", "M records/s", name, total / clock.wall_s / 1e6)


def _send(figures: harness.Figures, name: str, settings: ClientSettings, topic: str) -> None:
    with Producer.from_settings(settings) as producer:
        producer.send(topic, VALUE).result(10)
        with _clock() as clock:
            for _ in range(SENT_RECORDS):
                producer.send(topic, VALUE)
            producer.flush()
    figures.add("Producer.send", "k records/s", name, SENT_RECORDS / clock.wall_s / 1e3)
    figures.add("Producer.send, client CPU", "µs per record", name, clock.cpu_s / SENT_RECORDS * 1e6)


class _Clock:
    wall_s = 0.0
    cpu_s = 0.0


@contextmanager
def _clock() -> Iterator[_Clock]:
    clock = _Clock()
    wall, cpu = time.perf_counter(), time.process_time()
    yield clock
    clock.wall_s, clock.cpu_s = time.perf_counter() - wall, time.process_time() - cpu


def _bootstrap_server() -> str | None:
    """Take `--bootstrap-server` out of the arguments: the other ones are those of every benchmark."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT")
    found, sys.argv[1:] = parser.parse_known_args()
    address: str | None = found.bootstrap_server
    return address


def _brokers(options: argparse.Namespace, bootstrap_servers: str | None) -> Iterator[tuple[str, str]]:
    """(name, address) of each broker to measure."""
    if bootstrap_servers is not None:
        yield bootstrap_servers, bootstrap_servers
        return
    for subject in harness.subjects(options, flush=(FLUSH,)):
        yield subject.name, subject.bootstrap_servers


if __name__ == "__main__":
    main()
