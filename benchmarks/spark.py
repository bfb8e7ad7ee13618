"""Spark batch read and write of 5 M records of 100 B through a topic of 4 partitions, nine runs each in one session.

Warm is the median of runs 5 to 9: by then Spark's code is compiled and its Python workers are up. `--bootstrap-server` measures against a
broker that runs already (a real Kafka, say) instead of one of ours. Needs Java, as Spark does.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import sparklog as sparklog_package
from benchmarks import harness

RUNS = 9
FIRST_WARM_RUN = 5
PARTITIONS = 4


def main() -> None:
    options = parse_options()
    figures = harness.Figures("spark")
    figures.note(
        f"local[2], {options.records:,} records of 100 B, {PARTITIONS} partitions; warm = runs {FIRST_WARM_RUN} and later of one session"
    )
    with session() as spark:
        if options.bootstrap_server is not None:
            measure(spark, options.bootstrap_server, options, figures, "given")
        else:
            for subject in harness.subjects(options):
                measure(spark, subject.bootstrap_servers, options, figures, subject.name)
    figures.report(options)


def measure(spark: SparkSession, servers: str, options: argparse.Namespace, figures: harness.Figures, subject: str) -> None:
    """All runs against one broker."""
    with sparklog_package.Admin(bootstrap_servers=servers) as admin:
        topics = {
            f"bench-{os.getpid()}-read": PARTITIONS,
            **{f"bench-{os.getpid()}-write-{run}": PARTITIONS for run in range(options.runs)},
        }
        admin.create_topics(topics)
        read, *writes = topics
        if "read" in options.what:
            write(records_of(spark, options.records).drop("key"), servers, read)
            rates = [
                rate(options.records, lambda: load(spark, servers, read).write.format("noop").mode("overwrite").save()) for _ in writes
            ]
            report(figures, "batch read to noop", subject, rates, ">= 3.0")
            rates = [
                rate(options.records, lambda: load(spark, servers, read, "value BINARY").write.format("noop").mode("overwrite").save())
                for _ in writes
            ]
            report(figures, "batch read of the value alone to noop", subject, rates, "")
        if "write" in options.what:
            records = records_of(spark, options.records)
            rates = [rate(options.records, lambda topic=topic: write(records, servers, topic)) for topic in writes]  # type: ignore[misc]
            report(figures, "batch write, string keys", subject, rates, ">= 1.4")
            assert load(spark, servers, writes[-1], "offset LONG").count() == options.records
        admin.delete_topics(list(topics))


def report(figures: harness.Figures, what: str, subject: str, rates: list[float], bound: str) -> None:
    """The warm runs as the figure, the others beside it."""
    figures.add(f"{what}, first run", "M records/s", subject, rates[0])
    for warm in rates[FIRST_WARM_RUN - 1 :] or rates[-1:]:
        figures.add(f"{what}, warm", "M records/s", subject, warm, bound=bound)


def records_of(spark: SparkSession, count: int) -> DataFrame:
    """`count` records with string keys and values of 100 characters, made as they are written."""
    value = f.rpad(f.concat(f.lit("value-"), f.col("id").cast("string")), 100, "abcdefghij")
    return spark.range(0, count, 1, PARTITIONS).select(f.col("id").cast("string").alias("key"), value.alias("value"))


def write(records: DataFrame, servers: str, topic: str) -> None:
    records.write.format("sparklog").option("kafka.bootstrap.servers", servers).option("topic", topic).mode("append").save()


def load(spark: SparkSession, servers: str, topic: str, schema: str | None = None) -> DataFrame:
    reader = spark.read.format("sparklog").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return (reader.schema(schema) if schema is not None else reader).load()


def rate(records: int, action: Callable[[], None]) -> float:
    """Millions of records per second of wall time."""
    began = time.perf_counter()
    action()
    return records / (time.perf_counter() - began) / 1e6


@contextmanager
def session() -> Iterator[SparkSession]:
    """A Spark of two cores that says nothing but errors."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    log = harness.PROJECT / "examples" / "log4j2.properties"
    builder = builder.config("spark.driver.memory", "4g").config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log}")
    spark = builder.getOrCreate()
    sparklog_package.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as JSON")
    parser.add_argument("--against", choices=["kafka"], help="run the same load against a real Kafka (needs Java; see `make jars`)")
    parser.add_argument("--only", choices=["kafka"], help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="measure against the broker there")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"runs of each kind (default {RUNS})")
    parser.add_argument("--records", type=int, default=5_000_000, metavar="N", help="records per run (default 5 000 000)")
    parser.add_argument("--what", nargs="+", choices=["read", "write"], default=["read", "write"], help="what to measure (default both)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
