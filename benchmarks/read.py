"""`sparklog.read` of a topic of four partitions: values as binary, and JSON of four columns, to Arrow.

One broker and one client process; `poll_arrow` of a consumer beside it. Each read begins with its
connections.
"""

import time
from array import array

import sparklog
from benchmarks import harness
from sparklog.client.producer.writer import BatchWriter
from sparklog.client.settings import ClientSettings
from sparklog.record.columns import BinaryColumn, FixedColumn, write_batches

RECORDS = 5_000_000
PARTITIONS = 4
DISTINCT = 20_000
BATCH_BYTES = 64 << 10
JSON_SCHEMA = "carrier STRING, delay DOUBLE, flight BIGINT, cancelled BOOLEAN"
COLUMNS = ["carrier", "delay", "flight", "cancelled"]


def main() -> None:
    options = harness.options(__doc__, repeats=5)
    figures = harness.Figures("read")
    with harness.sparklog({"sparklog.ack.flush": "never"}) as subject:
        servers = subject.bootstrap_servers
        fill(
            subject,
            "binary",
            [(f"value-{row}" + "abcdefghij" * 10)[:100].encode() for row in range(DISTINCT)],
        )
        fill(subject, "json", [json_of(row) for row in range(DISTINCT)])
        binary = sparklog.read("binary", columns=["value"], bootstrap_servers=servers)
        table = sparklog.read("binary", bootstrap_servers=servers)
        typed = sparklog.read(
            "json", value_format="json", value_schema=JSON_SCHEMA, columns=COLUMNS, bootstrap_servers=servers
        )
        for _ in range(options.repeats):
            for what, read, bound in (
                ("5 M x 100 B, value as binary", binary, ">= 6"),
                ("5 M x 100 B, 7 columns", table, ""),
                ("JSON of 4 columns", typed, ">= 2"),
            ):
                figures.add(what, "M records/s", "read", rate(read), bound=bound)
            figures.add("5 M x 100 B, 7 columns", "M records/s", "poll_arrow", polled(servers))
    figures.report(options)


def rate(read: sparklog.TopicRead) -> float:
    began, rows = time.perf_counter(), 0
    for batch in read.batches():
        rows += batch.num_rows
    assert rows == RECORDS
    return rows / (time.perf_counter() - began) / 1e6


def polled(servers: str) -> float:
    with sparklog.Consumer(bootstrap_servers=servers, max_partition_fetch_bytes=8 << 20) as consumer:
        consumer.assign([sparklog.TopicPartition("binary", number) for number in range(PARTITIONS)])
        consumer.seek_to_beginning()
        began, rows = time.perf_counter(), 0
        while rows < RECORDS:
            rows += consumer.poll_arrow(1000).num_rows
        return rows / (time.perf_counter() - began) / 1e6


def fill(subject: harness.Subject, topic: str, values: list[bytes]) -> None:
    """A topic with `RECORDS` records, in turns of `DISTINCT` to each partition."""
    harness.create_topic(subject, topic, partitions=PARTITIONS)
    ends = array("i", [0])
    for value in values:
        ends.append(ends[-1] + len(value))
    column = BinaryColumn(None, ends, b"".join(values))
    now_ms = time.time_ns() // 1_000_000
    writer = BatchWriter(ClientSettings(bootstrap_servers=(subject.bootstrap_servers,)))
    for start in range(0, RECORDS, DISTINCT):
        number = start // DISTINCT % PARTITIONS
        made = write_batches(
            DISTINCT,
            value=column,
            partitions=FixedColumn(None, array("i", [number]) * DISTINCT),
            timestamp_ms=now_ms,
            partition_count=PARTITIONS,
            batch_bytes_max=BATCH_BYTES,
        )
        for batch in made.batches:
            writer.add(topic, number, batch.batch, batch.record_count)
    writer.flush()
    writer.close()


def json_of(row: int) -> bytes:
    return (
        f'{{"carrier":"{"AA UA DL B6".split()[row % 4]}","delay":{row % 997 / 4},"flight":{row},'
        f'"cancelled":{"true" if row % 50 == 0 else "false"},"origin":"JFK","tail":"N{row:05}"}}'
    ).encode()


if __name__ == "__main__":
    main()
