"""The driver: a Spark with Delta that executes each request on standard input, one JSON object a line, and
answers each with one line.

    {"run": topic, "checkpoint": path, "table": path, "options": {…}}   an AvailableNow stream into a table
    {"rows": path}                                                      the rows of a table
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.jvm import jvm_options
from tests.spark.restarts.watched import WatchedSource
from tests.tools import DELTA_JARS

RUN_S_MAX = 240


def session() -> SparkSession:
    """Two cores; a task that fails is tried once more."""
    jars = [
        str(jar)
        for pattern in ("delta-spark_*.jar", "delta-storage-*.jar")
        for jar in DELTA_JARS.glob(pattern)
    ]
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.extraJavaOptions": jvm_options(),
    }
    builder = SparkSession.builder.master("local[2,2]").appName("sparklog-restarts")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def run(spark: SparkSession, request: dict[str, Any]) -> None:
    source = (
        spark.readStream.format(WatchedSource.name())
        .option("subscribe", request["run"])
        .options(**request["options"])
        .load()
    )
    rows = source.selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
    writer = (
        rows.writeStream.format("delta")
        .option("checkpointLocation", request["checkpoint"])
        .trigger(availableNow=True)
    )
    query = writer.start(request["table"])
    if not query.awaitTermination(RUN_S_MAX):
        query.stop()
        raise TimeoutError(f"the query did not end within {RUN_S_MAX} s")


def answers(spark: SparkSession) -> Iterator[object]:
    yield {"driver": spark._jvm.java.lang.ProcessHandle.current().pid()}  # type: ignore[union-attr]
    for line in sys.stdin:
        request = json.loads(line)
        if "rows" in request:
            yield [list(row) for row in spark.read.format("delta").load(request["rows"]).collect()]
            continue
        try:
            run(spark, request)
            yield "done"
        except (PySparkException, Py4JError, OSError) as error:  # the last two if Spark's JVM is no more
            yield f"failed: {error}"


def main() -> None:
    spark = session()
    spark.dataSource.register(WatchedSource)
    for answer in answers(spark):
        print(f"answer {json.dumps(answer)}", flush=True)
    spark.stop()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    main()
