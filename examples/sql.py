"""A topic in SQL: `python -m examples.sql`."""

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import sparklog
from examples.local_spark import local_spark


def make_view(spark: SparkSession, servers: str, topic: str) -> None:
    """A view of a topic, which can be read and written: its options tell both."""
    spark.sql(
        f"""CREATE OR REPLACE TEMPORARY VIEW orders USING sparklog
            OPTIONS (`kafka.bootstrap.servers` '{servers}', subscribe '{topic}', topic '{topic}')"""
    )


def insert_orders(spark: SparkSession) -> None:
    """Writing names the columns it gives; the others are for the broker to fill."""
    spark.sql(
        "INSERT INTO orders (key, value) SELECT CAST('c' || id % 3 AS BINARY), CAST('order ' || id AS "
        "BINARY) FROM range(9)"
    )


def orders_by_customer(spark: SparkSession) -> dict[str, int]:
    rows = spark.sql(
        "SELECT CAST(key AS STRING) AS customer, count(*) AS orders FROM orders GROUP BY customer ORDER BY "
        "customer"
    ).collect()
    return {row.customer: row.orders for row in rows}


def copy_between_tables(
    spark: SparkSession, servers: str, source: str, target: str, checkpoint: Path
) -> StreamingQuery:
    """A stream from one table into another. Made without columns, a table remembers its OPTIONS; a stream
    into it says its own.
    """
    for table, topic in (("logs", source), ("copies", target)):
        spark.sql(
            f"""CREATE TABLE IF NOT EXISTS {table} USING sparklog
                OPTIONS (`kafka.bootstrap.servers` '{servers}', subscribe '{topic}', topic '{topic}', startingOffsets 'earliest')"""  # noqa: E501
        )
    writer = spark.readStream.table("logs").writeStream.options(
        **{"kafka.bootstrap.servers": servers, "topic": target}
    )
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).toTable("copies")


def main() -> None:
    with (
        sparklog.embedded() as broker,
        tempfile.TemporaryDirectory() as directory,
        local_spark(Path(directory)) as spark,
    ):
        servers = broker.bootstrap_servers
        make_view(spark, servers, "orders")
        insert_orders(spark)
        print(orders_by_customer(spark))
        copy_between_tables(
            spark, servers, "orders", "copies", Path(directory) / "checkpoint"
        ).awaitTermination()


if __name__ == "__main__":
    main()
