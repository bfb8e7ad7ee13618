"""Write a topic and read it back: `python -m examples.batch`."""

import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import sparklog
from examples.local_spark import local_spark


def write_orders(spark: SparkSession, servers: str, topic: str) -> None:
    """A thousand orders of ten customers; those of one customer stay together and in order, for the key
    says where a record goes.
    """
    orders = spark.range(1000).select(
        (f.col("id") % 10).cast("string").alias("key"),
        f.to_json(f.struct("id", (f.col("id") * 3 % 100).alias("amount"))).alias("value"),
    )
    orders.write.format("sparklog").option("kafka.bootstrap.servers", servers).option("topic", topic).mode(
        "append"
    ).save()


def read_orders(spark: SparkSession, servers: str, topic: str, starting: str = "earliest") -> DataFrame:
    """Orders as columns, decoded while they are read; `starting` is `earliest`, `latest-100`, `-10m`, a
    time, or JSON by partition.
    """
    return (
        spark.read.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", starting)
        .option("valueFormat", "json")
        .option("valueSchema", "id BIGINT, amount BIGINT")
        .load()
        .select("partition", "offset", f.col("key").cast("string").alias("customer"), "value.*")
    )


def main() -> None:
    with (
        sparklog.embedded() as broker,
        tempfile.TemporaryDirectory() as directory,
        local_spark(Path(directory)) as spark,
    ):
        write_orders(spark, broker.bootstrap_servers, "orders")
        read_orders(spark, broker.bootstrap_servers, "orders").groupBy("customer").sum("amount").orderBy(
            "customer"
        ).show()


if __name__ == "__main__":
    main()
