"""Spark's data source `sparklog`: topics as tables and streams, Arrow in both directions, no JAR.

It knows the client, the record format and Spark's Python data source API, and never the server. `options`,
`offsets` and `plan` are pure and are tested without Spark. `batch_reader` and `stream_reader` query brokers
and plan, `readers` and `writers` move columns on the executors; `source` is the entry point for Spark. Read
`plan.py` first, then `stream_reader.py`.

Importing this package imports neither pyspark nor pyarrow.
"""

from typing import TYPE_CHECKING

from sparklog.spark.shipping import missing_packages

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


def register(spark: "SparkSession") -> None:
    """Makes `format("sparklog")` available in `spark`; not needed if Spark discovers the installed
    `pyspark_sparklog`.

    Raises ImportError if pyspark or another required package is missing.
    """
    missing = missing_packages("pyspark")
    if missing:
        remedy = (
            "pip install 'sparklog[spark,local-spark]', or use the Python of your Spark and install them "
            "there and on every executor"
        )
        raise ImportError(
            f"sparklog.register() needs packages that are not installed: {', '.join(missing)}: {remedy}"
        )
    from pyspark.errors import AnalysisException

    from sparklog.spark.source import SparklogSource, SparklogSourceWithoutTables

    # With any session catalog but Spark's own (Delta's, for example), a table of a Python source can be
    # created but not read.
    has_tables = (spark.conf.get("spark.sql.catalog.spark_catalog", None) or "builtin") == "builtin"
    try:
        spark.dataSource.register(SparklogSource if has_tables else SparklogSourceWithoutTables)
    except AnalysisException as error:
        # Spark 4.0 refuses to register a source that it has discovered itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def header_map(headers: "Column | str" = "headers") -> "Column":
    """The column `headers` of a read as map<string,binary>; of several headers with the same name, the last
    one.
    """
    from sparklog.spark.functions import header_map as made

    return made(headers)
