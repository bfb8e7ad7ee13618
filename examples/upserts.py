"""Running totals, written when they change: `python -m examples.upserts`.

A Python sink cannot be written in output mode `update`; `foreachBatch` can, and a batch write with
`txnAppId` and `txnVersion` makes a micro-batch that is tried again after a failure count once.
"""

import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import sparklog
from examples.batch import write_orders
from examples.local_spark import local_spark


def write_totals(
    spark: SparkSession, servers: str, source: str, target: str, checkpoint: Path
) -> StreamingQuery:
    """For each micro-batch the totals it changed: the newest record of a key is a customer's total."""
    orders = (
        spark.readStream.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 400)
        .load()
    )
    amount = f.get_json_object(f.col("value").cast("string"), "$.amount").cast("bigint")
    totals = orders.groupBy("key").agg(f.sum(amount).cast("string").alias("value"))

    def write_changed(changed: DataFrame, batch: int) -> None:
        (
            changed.write.format("sparklog")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", target)
            .option("txnAppId", f"totals of {source}")
            .option("txnVersion", batch)
            .mode("append")
            .save()
        )

    writer = (
        totals.writeStream.outputMode("update")
        .foreachBatch(write_changed)
        .option("checkpointLocation", str(checkpoint))
    )
    return writer.trigger(availableNow=True).start()


def read_totals(spark: SparkSession, servers: str, target: str) -> dict[str, int]:
    """The newest record of each key."""
    read = (
        spark.read.format("sparklog").option("kafka.bootstrap.servers", servers).option("subscribe", target)
    )
    newest = (
        read.option("kafka.isolation.level", "read_committed")
        .load()
        .groupBy("key")
        .agg(f.max_by("value", "offset").alias("value"))
    )
    return {
        row.key: int(row.value)
        for row in newest.select(f.col("key").cast("string"), f.col("value").cast("string")).collect()
    }


def main() -> None:
    with (
        sparklog.embedded() as broker,
        tempfile.TemporaryDirectory() as directory,
        local_spark(Path(directory)) as spark,
    ):
        servers = broker.bootstrap_servers
        write_orders(spark, servers, "orders")
        write_totals(spark, servers, "orders", "totals", Path(directory) / "checkpoint").awaitTermination()
        print(read_totals(spark, servers, "totals"))


if __name__ == "__main__":
    main()
