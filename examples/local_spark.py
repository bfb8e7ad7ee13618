"""A Spark on this machine for the programs here: two cores, quiet, with Delta where its JARs are at hand.

On a cluster none of this is needed: take the Spark that is there, and install `sparklog` on it.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import sparklog

PROJECT = Path(__file__).resolve().parent.parent
DELTA_JARS = PROJECT / ".jars" / "delta"
CONNECTOR_JARS = PROJECT / ".jars" / "spark-kafka"


def has_delta() -> bool:
    """Whether the JARs are there that Delta tables need (`make setup` fetches them where Maven is at
    hand).
    """
    return any(DELTA_JARS.glob("delta-spark_*.jar")) and importlib.util.find_spec("delta") is not None


@contextmanager
def local_spark(directory: Path, *, delta: bool = False, connector: bool = False) -> Iterator[SparkSession]:
    """A Spark that ends with the block; its tables lie in `directory`, its Python workers are this Python.

    With `connector` it has Spark's own Kafka connector too, for comparison, where its JARs are at hand.
    """
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise SystemExit(
            "Spark needs Java 17 or newer, and there is none: install one (`apt install "
            "openjdk-17-jre-headless`)"
        )
    if delta and not has_delta():
        raise SystemExit(f"this needs Delta, and its JARs are not in {DELTA_JARS}: run `make setup`")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={PROJECT / 'examples' / 'log4j2.properties'}",  # noqa: E501
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    jars = [*CONNECTOR_JARS.glob("*.jar")] if connector else []
    if delta:
        jars += [
            jar
            for pattern in ("delta-spark_*.jar", "delta-storage-*.jar")
            for jar in DELTA_JARS.glob(pattern)
        ]
        settings["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        settings["spark.databricks.delta.snapshotPartitions"] = "2"
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    builder = SparkSession.builder.master("local[2]").appName("sparklog")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    sparklog.register(spark)
    try:
        yield spark
    finally:
        spark.stop()
