"""Watch a topic on the console until Ctrl-C: `python -m examples.stream`; it brings a broker and writes an
order each second itself.
"""

import contextlib
import io
import signal
import tempfile
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import sparklog
from examples.local_spark import local_spark


def orders_of(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """The topic as a stream of text, from its first record; `groupId` lets lag tools see how far it is."""
    return (
        spark.readStream.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("groupId", "examples")
        .load()
        .select("partition", "offset", f.col("value").cast("string").alias("value"))
    )


def to_console(orders: DataFrame, checkpoint: Path, *, ends: bool) -> StreamingQuery:
    """Prints each micro-batch; with `ends` only the present records."""
    writer = (
        orders.writeStream.format("console")
        .option("truncate", "false")
        .option("checkpointLocation", str(checkpoint))
    )
    return (
        writer.trigger(availableNow=True) if ends else writer.trigger(processingTime="500 milliseconds")
    ).start()


def to_delta(orders: DataFrame, table: Path, checkpoint: Path) -> StreamingQuery:
    """Appends the present records to a Delta table, each exactly once: Delta stores the
    micro-batches it has.
    """
    writer = orders.writeStream.format("delta").option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start(str(table))


def write_an_order_each_second(
    spark: SparkSession, servers: str, topic: str, checkpoint: Path
) -> StreamingQuery:
    """A stream into the topic; each micro-batch becomes visible atomically and once to read_committed
    consumers.
    """
    ticks = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
    records = ticks.select(f.concat(f.lit("order "), "value").alias("value"))
    writer = (
        records.writeStream.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
    )
    return writer.option("checkpointLocation", str(checkpoint)).start()


def wait_for_interrupt(query: StreamingQuery) -> None:
    """Return at Ctrl-C, or raise the error that ended the query.

    `query.awaitTermination()` would do, but PySpark's own handler of Ctrl-C then calls the JVM from within
    that call, which fails.
    """
    interrupted = threading.Event()
    signal.signal(signal.SIGINT, lambda _number, _frame: interrupted.set())
    while not interrupted.wait(1):
        if not query.isActive:
            query.awaitTermination()
            return


def main() -> None:
    with (
        sparklog.embedded() as broker,
        tempfile.TemporaryDirectory() as name,
        local_spark(Path(name)) as spark,
    ):
        servers, directory = broker.bootstrap_servers, Path(name)
        with sparklog.Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({"orders": 2})
        write_an_order_each_second(spark, servers, "orders", directory / "writer")
        query = to_console(orders_of(spark, servers, "orders"), directory / "console", ends=False)
        # Ctrl-C ends the Python workers too, and Spark logs each task that it breaks off with its stack.
        spark.sparkContext.setLogLevel("OFF")
        wait_for_interrupt(query)
        # While Spark stops, PySpark's accumulator server may find its connection closed and print that with a
        # traceback.
        with contextlib.redirect_stderr(io.StringIO()):
            for running in spark.streams.active:
                running.stop()
            spark.stop()


if __name__ == "__main__":
    main()
