"""Spark's side, a process: `python -m sparklog_server.demo.spark_job SERVERS DIRECTORY`.

A stream appends the committed flights of the topic to a Parquet table until standard input ends. Spark's sink
for files writes each micro-batch exactly once. Then the table is counted.
"""

import os
import select
import sys
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import sparklog
from sparklog_server.demo.flights import TOPIC, Total
from sparklog_server.demo.spark import GROUP, Batch, Event, Hour, Ready, Table

OFFSETS_MAX: Final = 25_000
"""Of a micro-batch: the backlog from the time of the start takes several."""
SCHEMA: Final = "id INT, hour TIMESTAMP, airport STRING, carrier STRING, delay INT"
ASKED_EVERY_S: Final = 0.1


def main(servers: str, output: Path) -> None:
    """Stream until standard input ends, then count."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(output / "warehouse"),
    }
    builder = SparkSession.builder.master("local[2]").appName("sparklog demo")
    spark = builder.config(map=settings).getOrCreate()
    sparklog.register(spark)
    query = stream_flights(spark, servers, output)
    tell(Ready(spark.version))
    told = -1
    while not select.select([sys.stdin], [], [], ASKED_EVERY_S)[0]:
        told = tell_batches(query, told)
        if not query.isActive:
            query.awaitTermination()  # raises the error that ended the stream
    query.processAllAvailable()
    tell_batches(query, told)
    query.stop()
    tell(count(spark.read.parquet(str(output / "table"))))
    spark.stop()


def stream_flights(spark: SparkSession, servers: str, output: Path) -> StreamingQuery:
    """Start the stream into the table."""
    records = (
        spark.readStream.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("kafka.isolation.level", "read_committed")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_MAX)
        .option("groupId", GROUP)
        .load()
    )
    flights = records.select(f.from_json(f.col("value").cast("string"), SCHEMA).alias("flight"))
    stream = flights.select("flight.*").writeStream.format("parquet")
    return stream.option("checkpointLocation", str(output / "checkpoint")).start(str(output / "table"))


def tell_batches(query: StreamingQuery, told: int) -> int:
    """Tell the micro-batches after number `told` that had flights; returns the number of the last one."""
    newest = query.lastProgress
    if newest is None or newest.batchId <= told:
        return told
    for one in query.recentProgress:
        if one.batchId > told and one.numInputRows:
            tell(Batch(one.batchId, one.numInputRows, one.batchDuration / 1000))
    return newest.batchId


def count(table: DataFrame) -> Table:
    """Count the rows, the flights, and the result by airport and hour of the day."""
    rows, distinct = table.select(f.count("*"), f.count_distinct("id")).first() or (0, 0)
    hours = table.groupBy("airport", f.hour("hour").alias("at")).agg(
        f.count("*").alias("flights"),
        f.count_if(f.col("delay").isNull()).alias("cancelled"),
        f.coalesce(f.sum("delay"), f.lit(0)).alias("delay"),
    )
    found = [Hour(row.airport, row.at, Total(*row[2:])) for row in hours.orderBy("airport", "at").collect()]
    return Table(rows, distinct, found)


def tell(event: Event) -> None:
    """A line on standard output."""
    print(msgspec.json.encode(event).decode(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
