"""Spark's data source `sparklog`: topics as tables and streams, Arrow both ways, no JAR.

It knows the client and the record format, and Spark's Python data source API; it never knows the server. What is decided without asking
anybody is pure and is tested without Spark: `options`, `offsets`, `plan`. `readers` and `writers` ask brokers and move columns; `source` is
where Spark enters. Read `plan.py` first, then `readers.py`.

Importing this package imports neither pyspark nor pyarrow.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Makes `format("sparklog")` known to `spark`; not needed where Spark finds the installed `pyspark_sparklog` by itself."""
    from sparklog.spark.source import SparklogSource

    spark.dataSource.register(SparklogSource)
