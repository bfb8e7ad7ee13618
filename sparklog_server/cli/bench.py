"""`sparklog bench`: the performance of a Kafka-compatible cluster for one client: throughput and
latencies.
"""

import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from secrets import token_hex
from time import perf_counter, perf_counter_ns, sleep, time
from typing import Any, TypeVar

import click

from sparklog.client.admin.admin import NewTopic
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer, RecordMetadata
from sparklog.client.producer.writer import BatchWriter
from sparklog.model import TopicPartition
from sparklog.record.batch import build_batch
from sparklog_server.cli.admin import admin, topic_names
from sparklog_server.cli.options import client_settings, reaches_cluster
from sparklog_server.cli.printing import as_json, print_json, print_table

Command = TypeVar("Command", bound=Callable[..., Any])

PERCENTS = (50.0, 95.0, 99.0, 99.9)
SAMPLES_MAX = 200_000
"""The number of latencies kept; with more records every n-th is used."""
QUIET_S_MAX = 10.0
"""After this time without a record, the missing records count as lost."""
POLL_RECORDS_MAX = 10_000
STAMP_BYTES = 8
POLL_MS = 100
IN_FLIGHT_MAX = "1000"
PROGRESS_EVERY = 1 << 10


@click.group()
def bench() -> None:
    """Measure a Kafka-compatible cluster from this machine."""


def _load(records: int) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in (
            click.option(
                "--size",
                metavar="BYTES",
                type=click.IntRange(STAMP_BYTES, 1 << 30),
                default=100,
                show_default=True,
                help="Set the size of a value.",
            ),
            click.option(
                "--records",
                metavar="N",
                type=click.IntRange(1),
                default=records,
                show_default=True,
                help="Set the number of records.",
            ),
            click.argument("topic", required=False, metavar="[TOPIC]", shell_complete=topic_names),
        ):
            command = option(command)
        return command

    return add


@bench.command()
@_load(200_000)
@click.option(
    "--rate",
    metavar="N",
    type=click.IntRange(1),
    help="Write at most N records per second. [default: unlimited]",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Set the acknowledgements that each record needs.",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Set the compression codec.",
)
@click.option(
    "--partitions",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Set the partitions of the temporary topic.",
)
@reaches_cluster
@as_json
def produce(
    topic: str | None,
    records: int,
    size: int,
    rate: int | None,
    acks: str,
    compression: str,
    partitions: int,
    is_json: bool,
) -> None:
    """Write records to TOPIC, or to a temporary topic; print throughput and time to acknowledgement.

    Pass other settings as --set linger.ms=0.
    """
    settings = client_settings(acks=acks, compression_type=compression)
    with (
        _topic(topic, partitions) as name,
        Producer.from_settings(settings) as producer,
        _progress("produce", records, is_json=is_json) as advance,
    ):
        latencies_ms, seconds = _write(producer, name, records, size, rate, advance)
    _report("produce", records, records * size, seconds, latencies_ms, is_json=is_json)


def _write(
    producer: Producer,
    topic: str,
    records: int,
    size: int,
    rate: int | None,
    advance: Callable[[int], None],
) -> "tuple[array[float], float]":
    """Send at the rate and wait for every acknowledgement; returns sampled latencies in ms and the duration
    in s.
    """
    producer.partitions_for(topic)
    value = _value(size)
    latencies_ms = array("d")
    failures: list[BaseException] = []
    every = -(-records // SAMPLES_MAX)

    def done(_metadata: RecordMetadata | None, error: BaseException | None) -> None:
        if error is not None:
            failures.append(error)

    def timed(sent_s: float) -> Callable[[RecordMetadata | None, BaseException | None], None]:
        def acknowledged(_metadata: RecordMetadata | None, error: BaseException | None) -> None:
            latencies_ms.append((perf_counter() - sent_s) * 1000)
            done(None, error)

        return acknowledged

    start_s = perf_counter()
    for number in range(records):
        if rate is not None and (wait_s := start_s + number / rate - perf_counter()) > 0:
            sleep(wait_s)
        producer.send(topic, value, on_delivery=done if number % every else timed(perf_counter()))
        if number % PROGRESS_EVERY == 0:
            advance(number)
            if failures:
                break
    producer.flush()
    seconds = perf_counter() - start_s
    if failures:
        raise click.ClickException(f"{len(failures)} records were not written: {failures[0]}")
    advance(records)
    return latencies_ms, seconds


@bench.command()
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "--records",
    metavar="N",
    type=click.IntRange(1),
    help="Stop after N records. [default: at the ends of the partitions]",
)
@click.option(
    "--batches",
    is_flag=True,
    help="Fetch whole batches without decoding: the limit of the cluster and the network.",
)
@reaches_cluster
@as_json
def consume(topic: str, records: int | None, batches: bool, is_json: bool) -> None:
    """Read TOPIC from the beginning and print throughput."""
    with Consumer.from_settings(client_settings()) as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        there = sum(ends[partition] - begins[partition] for partition in partitions)
        wanted = there if records is None else min(records, there)
        if wanted == 0:
            raise click.ClickException(
                f"topic {topic} has no records; `sparklog bench produce {topic}` writes some"
            )
        consumer.seek_to_beginning()
        count = size = 0
        with _progress("consume", wanted, is_json=is_json) as advance:
            start_s = last_s = perf_counter()
            # Offsets of removed records and control batches are never returned: the positions show when all
            # is read.
            while count < wanted and any(
                consumer.position(partition) < end for partition, end in ends.items()
            ):
                if batches:
                    found = consumer.poll_batches(500)
                    count += sum(batch.next_offset - batch.fetch_offset for batch in found)
                    size += sum(len(batch.records) for batch in found)
                else:
                    taken = consumer.poll(500, min(POLL_RECORDS_MAX, wanted - count))
                    count += len(taken)
                    size += sum(len(record.key or b"") + len(record.value or b"") for record in taken)
                now_s = perf_counter()
                last_s = now_s if (found if batches else taken) else last_s
                if now_s - last_s > QUIET_S_MAX:
                    raise click.ClickException(
                        f"{count} of {wanted} records came, and nothing for {QUIET_S_MAX:.0f} s"
                    )
                advance(min(count, wanted))
            seconds = perf_counter() - start_s
    _report("consume", count, size, seconds, (), is_json=is_json)


@bench.command()
@_load(5_000)
@click.option(
    "--rate",
    metavar="N",
    type=click.IntRange(1),
    default=1_000,
    show_default=True,
    help="Write N records per second.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Set the acknowledgements that each record needs.",
)
@reaches_cluster
@as_json
def latency(topic: str | None, records: int, size: int, rate: int, acks: str, is_json: bool) -> None:
    """Print the age of records when a consumer receives them, at a steady rate of writes.

    One thread writes and reads, each record in a batch of its own, so that the figure is the cluster's and
    not that of a client's threads.
    """
    with (
        _topic(topic, 1) as name,
        # Without a bound on requests in flight every record is sent when it is due, however long
        # acknowledgements take.
        BatchWriter(
            client_settings(
                acks=acks, enable_idempotence="false", max_in_flight_requests_per_connection=IN_FLIGHT_MAX
            )
        ) as writer,
        Consumer.from_settings(client_settings()) as consumer,
        _progress("latency", records, is_json=is_json) as advance,
    ):
        partition = TopicPartition(name, 0)
        consumer.assign([partition])
        consumer.seek_to_end()
        consumer.position(partition)
        writer.partition_count(name)
        ages_ms, seconds = _age(writer, consumer, partition, records, size, rate, advance)
    _report("latency", records, records * size, seconds, ages_ms, is_json=is_json)


def _age(
    writer: BatchWriter,
    consumer: Consumer,
    partition: TopicPartition,
    records: int,
    size: int,
    rate: int,
    advance: Callable[[int], None],
) -> "tuple[array[float], float]":
    """Write at the rate and read meanwhile; returns the age of each record in ms and the duration in s."""
    filler = _value(size)[STAMP_BYTES:]
    ages_ms = array("d")
    sent = 0
    start_s = last_s = perf_counter()
    while len(ages_ms) < records:
        while sent < records and (due_s := start_s + sent / rate - perf_counter()) <= 0:
            stamp = perf_counter_ns().to_bytes(STAMP_BYTES, "big")
            writer.add(
                partition.topic,
                partition.partition,
                build_batch([(None, stamp + filler, (), int(time() * 1000))]),
                1,
            )
            sent += 1
        found = consumer.poll(POLL_MS if sent == records else max(1, min(POLL_MS, int(due_s * 1000))))
        now_ns = perf_counter_ns()
        ages_ms.extend(
            (now_ns - int.from_bytes((record.value or b"")[:STAMP_BYTES], "big")) / 1e6 for record in found
        )
        if found:
            last_s = perf_counter()
            advance(len(ages_ms))
        elif sent == records:
            writer.flush()  # sends the batches that wait for a free request in flight
        if perf_counter() - last_s > QUIET_S_MAX:
            raise click.ClickException(
                f"{len(ages_ms)} of {records} records came, and nothing for {QUIET_S_MAX:.0f} s"
            )
    writer.flush()
    return ages_ms, perf_counter() - start_s


@contextmanager
def _topic(name: str | None, partitions: int) -> Iterator[str]:
    """The named topic, which must exist, or a temporary one that is deleted at the end."""
    if name is not None:
        with admin() as cluster:
            cluster.describe_topics([name])
        yield name
        return

    own = f"sparklog-bench-{token_hex(4)}"
    with admin() as cluster:
        cluster.create_topics([NewTopic(own, partitions)])
    try:
        yield own
    finally:
        with admin() as cluster:
            cluster.delete_topics([own])


def _value(size: int) -> bytes:
    """Bytes that compress about as well as text."""
    return bytes(Random(size).choices(b"abcdefghijklmnopqrstuvwxyz0123456789 ", k=size))  # noqa: S311


@contextmanager
def _progress(what: str, total: int, *, is_json: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr if that is a terminal."""
    if is_json or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.update(task, completed=count)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of the values do not exceed."""
    return ordered[max(0, -(-len(ordered) * int(percent * 10) // 1000) - 1)]


def _report(
    what: str, records: int, size: int, seconds: float, latencies_ms: Sequence[float], *, is_json: bool
) -> None:
    ordered = sorted(latencies_ms)
    found = (
        {f"p{percent:g}": round(percentile(ordered, percent), 3) for percent in PERCENTS}
        | {"max": round(ordered[-1], 3)}
        if ordered
        else {}
    )
    per_s, megabytes_per_s = round(records / seconds, 1), round(size / seconds / 1e6, 3)
    if is_json:
        print_json(
            {"bench": what, "records": records, "bytes": size, "seconds": round(seconds, 4)}
            | {"records_per_s": per_s, "megabytes_per_s": megabytes_per_s, "latency_ms": found or None}
        )
        return
    rows: list[list[object]] = [
        ["records", records],
        ["seconds", round(seconds, 3)],
        ["records/s", per_s],
        ["MB/s", megabytes_per_s],
    ]
    print_table([what, "value"], rows + [[f"{name} ms", value] for name, value in found.items()])
