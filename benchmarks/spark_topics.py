"""Spark reads of many topics by a pattern, and of one topic with as many partitions: ours beside Spark's own
Kafka connector, on one broker in one session.

Each partition has one record, so a figure is the cost of planning and of the tasks, not of the records. A
stream runs once with AvailableNow, and its start and end are included.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.spark_session import Bench, Format, each_broker, parse_options
from sparklog import Producer

RUNS = 3
COUNT = 1000
BATCH_SIZE = 250
"""Topics that one request creates or deletes."""
PATIENCE_S = 600


def main() -> None:
    options = parse_options(__doc__, runs=RUNS, whats=["topics", "partitions"])
    for bench in each_broker("spark_topics", options):
        count = max(10, round(COUNT * options.scale))
        kinds = {"topics": (count, 1), "partitions": (1, count)}
        for what in options.what:
            topics, partitions = kinds[what]
            with made(bench, topics=topics, partitions=partitions) as pattern:
                for how, read in (("batch", batch), ("stream", stream)):
                    bench.compare(
                        f"{count} {what}, {how}",
                        "s",
                        took(read, pattern, count),
                        bound="<= 1",
                        warm_from=min(1, options.runs - 1),
                    )


@contextmanager
def made(bench: Bench, *, topics: int, partitions: int) -> Iterator[str]:
    """The pattern of new topics with one record in each partition, deleted at the end."""
    prefix = f"bench-{time.monotonic_ns()}-"
    names = [f"{prefix}{number}" for number in range(topics)]
    slices = [names[first : first + BATCH_SIZE] for first in range(0, topics, BATCH_SIZE)]
    for some in slices:
        bench.admin.create_topics(dict.fromkeys(some, partitions))
    try:
        with Producer(bootstrap_servers=bench.servers) as producer:
            for name in names:
                for partition in range(partitions):
                    producer.send(name, b"a record", partition=partition)
        yield f"{prefix}.*"
    finally:
        for some in slices:
            bench.admin.delete_topics(some)


def took(
    read: Callable[[Format, dict[str, str]], int], pattern: str, count: int
) -> Callable[[Format], float]:
    """Measures the seconds of a read, and counts its records."""

    def measure(of: Format) -> float:
        options = {
            "kafka.bootstrap.servers": of.servers,
            "subscribePattern": pattern,
            "startingOffsets": "earliest",
        }
        began = time.perf_counter()
        found = read(of, options)
        elapsed_s = time.perf_counter() - began
        if found != count:
            raise RuntimeError(f"{of.label}: {found} of {count} records were read")
        return elapsed_s

    return measure


def batch(of: Format, options: dict[str, str]) -> int:
    """The records of a batch read."""
    return of.spark.read.format(of.name).options(**options).load().count()


def stream(of: Format, options: dict[str, str]) -> int:
    """The records of a stream that ends with the last record."""
    counted: list[int] = []

    def take(rows: DataFrame, _: int) -> None:
        counted.append(rows.count())

    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as directory:
        frame = of.spark.readStream.format(of.name).options(**options).load()
        writer = frame.writeStream.foreachBatch(take).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(Path(directory) / "checkpoint")).start()
        if not query.awaitTermination(PATIENCE_S):
            query.stop()
            raise RuntimeError(f"{of.label}: the stream did not end within {PATIENCE_S} s")
    return sum(counted)


if __name__ == "__main__":
    main()
