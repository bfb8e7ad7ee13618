"""The work of one Python worker of Spark while it reads, without Spark: ranges of offsets to Arrow batches,
one process, one partition.

Values of 100 bytes in batches of 16 KiB, as Java's producers send them; JSON and Avro values of 10 fields.
Memory is that of the process over its memory before it read a gigabyte. Rates are per second of wall
time, the broker's work on the same machine included.
"""

import io
import json
import time
from array import array
from collections.abc import Callable, Iterator

import fastavro
import psutil

from benchmarks import harness
from sparklog.arrow.formats.ddl import parse_schema
from sparklog.arrow.ranges import OffsetRange
from sparklog.client.producer.writer import BatchWriter
from sparklog.client.settings import ClientSettings
from sparklog.model import Offset, TopicPartition
from sparklog.record.columns import BinaryColumn, write_batches
from sparklog.record.compression import Codec
from sparklog.spark.options import Options
from sparklog.spark.readers import record_batches
from sparklog.spark.schema import check_projection, source_schema
from sparklog.spark.types import spark_type

RECORDS = 2_000_000
FORMAT_RECORDS = 300_000
DISTINCT = 20_000
GIGABYTE = 1_000_000_000
GIGABYTE_VALUE = 1_000
BATCH_BYTES = 16 << 10
CODECS = {"none": Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
JSON_SCHEMA = "id BIGINT, name STRING, price DOUBLE, quantity INT, paid BOOLEAN, city STRING, at TIMESTAMP, account BIGINT, rate DOUBLE, note STRING"  # noqa: E501
AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "quantity", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "city", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "account", "type": "long"},
        {"name": "rate", "type": "double"},
        {"name": "note", "type": "string"},
    ],
}
AT_MS = 1_767_323_045_678


def main() -> None:
    options = harness.options(__doc__, repeats=5)
    figures = harness.Figures("spark reader")
    with harness.sparklog({"sparklog.ack.flush": "never"}) as subject:
        memory(figures, subject)
        for codec in CODECS:
            values = [(f"value-{row}" + "abcdefghij" * 10)[:100].encode() for row in range(DISTINCT)]
            fill(subject, codec, values, RECORDS, CODECS[codec])
            repeat(figures, options.repeats, subject, codec, RECORDS, "7 columns", {})
            repeat(figures, options.repeats, subject, codec, RECORDS, "value alone", {}, "value BINARY")
        fill(
            subject,
            "json",
            [json.dumps(order(row)).encode() for row in range(DISTINCT)],
            FORMAT_RECORDS,
            Codec.NONE,
        )
        json_options = {"valueFormat": "json", "valueSchema": JSON_SCHEMA}
        repeat(figures, options.repeats, subject, "json", FORMAT_RECORDS, "10 typed columns", json_options)
        fill(subject, "avro", [avro(row) for row in range(DISTINCT)], FORMAT_RECORDS, Codec.NONE)
        avro_options = {"valueFormat": "avro", "valueSchema": json.dumps(AVRO_SCHEMA)}
        repeat(
            figures,
            options.repeats,
            subject,
            "avro",
            FORMAT_RECORDS,
            "10 typed columns",
            avro_options,
            bound=">= 2",
        )
    figures.report(options)


def memory(figures: harness.Figures, subject: harness.Subject) -> None:
    """The most and the least that the process holds while the second half of a gigabyte passes: flat is
    the same.
    """
    count = GIGABYTE // GIGABYTE_VALUE
    fill(subject, "gigabyte", [bytes([row % 251]) * GIGABYTE_VALUE for row in range(1000)], count, Codec.NONE)
    process = psutil.Process()
    before, rows = process.memory_info().rss, 0
    seen: list[int] = []
    for batch_rows in read(subject, "gigabyte", count, {}, None):
        rows += batch_rows
        if rows > count // 2:
            seen.append(process.memory_info().rss)
    figures.add("resident while reading 1 GB, whole process", "MB", "worker", max(seen) / 1e6, bound="<= 300")
    figures.add("of it while reading alone", "MB", "worker", (max(seen) - before) / 1e6)
    figures.add("highest above lowest in the second half", "MB", "worker", (max(seen) - min(seen)) / 1e6)


def repeat(
    figures: harness.Figures,
    repeats: int,
    subject: harness.Subject,
    topic: str,
    count: int,
    what: str,
    given: dict[str, str],
    schema: str | None = None,
    bound: str = "",
) -> None:
    """The same read several times; the first opens the connection and is not counted."""

    def whole() -> None:
        assert sum(read(subject, topic, count, given, schema)) == count

    whole()
    for _ in range(repeats):
        figures.add(f"{topic}: {what}", "M records/s", "worker", rate(count, whole), bound=bound)


def read(
    subject: harness.Subject, topic: str, count: int, given: dict[str, str], schema: str | None
) -> Iterator[int]:
    """The sizes of the Arrow batches."""
    options = Options.parse(
        {"kafka.bootstrap.servers": subject.bootstrap_servers, "subscribe": topic, **given}
    )
    chosen = (
        source_schema(options)
        if schema is None
        else check_projection(spark_type(parse_schema(schema)), options)
    )  # type: ignore[arg-type]
    pieces = [OffsetRange(TopicPartition(topic, 0), Offset(0), Offset(count))]
    for batch in record_batches(options, chosen, pieces):
        yield batch.num_rows


def fill(subject: harness.Subject, topic: str, values: list[bytes], count: int, codec: Codec) -> None:
    """A topic of one partition with `count` records, whose values come round again and again."""
    harness.create_topic(subject, topic)
    ends = array("i", [0])
    for value in values:
        ends.append(ends[-1] + len(value))
    column = BinaryColumn(None, ends, b"".join(values))
    now_ms = time.time_ns() // 1_000_000  # older records would be gone by retention
    writer = BatchWriter(ClientSettings(bootstrap_servers=(subject.bootstrap_servers,)))
    for start in range(0, count, len(values)):
        rows = min(len(values), count - start)
        made = write_batches(
            rows,
            value=column,
            timestamp_ms=now_ms,
            partition_count=1,
            batch_bytes_max=BATCH_BYTES,
            codec=codec,
        )
        for batch in made.batches:
            writer.add(topic, 0, batch.batch, batch.record_count)
    writer.flush()
    writer.close()


def order(row: int) -> dict[str, object]:
    return {
        "id": row,
        "name": f"name-{row}",
        "price": row % 9973 / 100,
        "quantity": row % 7,
        "paid": row % 2 == 0,
        "city": "Paris",
        "at": "2026-01-02T03:04:05.678Z",
        "account": row * 1_000_000_007,
        "rate": (row * 7919 % 100_003) / 100_003,
        "note": "abcdefghijabcdefghij",
    }


def avro(row: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, AVRO_SCHEMA, {**order(row), "at": AT_MS})
    return stream.getvalue()


def rate(count: int, work: Callable[[], object]) -> float:
    """Millions per second of wall time."""
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started) / 1e6


if __name__ == "__main__":
    main()
