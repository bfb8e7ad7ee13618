"""The JVM of a Spark in the tests: compiled no further than pays, its classes mapped from a file.

    python -m tests.spark.jvm     # writes the file (class-data sharing); `make test` does

With the file a Spark has taken 6 s of processor time when its first micro-batch ends, 11 s without it. A JVM
or jars that do not match the file do without it, and print nothing.
"""

import os
import sys
import tempfile
from typing import Final

from tests.tools import PROJECT

ARCHIVE: Final = PROJECT / ".jars" / "spark.jsa"
# C2 would compile for a quarter of all processor time what runs a few times.
_COMPILER_AND_COLLECTOR: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_QUIET: Final = "-Xlog:disable"  # the JVM's warnings go to standard output
DUMP_S_MAX: Final = 600


def jvm_options() -> str:
    """For `spark.driver.extraJavaOptions`."""
    log4j = f"-Dlog4j2.configurationFile={PROJECT / 'examples' / 'log4j2.properties'}"
    archive = f" -XX:SharedArchiveFile={ARCHIVE} {_QUIET}" if ARCHIVE.exists() else ""
    return f"{_COMPILER_AND_COLLECTOR} {log4j}{archive}"


def main() -> None:
    """Run a batch query and a stream in a JVM that writes its classes when it ends."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    ARCHIVE.unlink(missing_ok=True)
    written = ARCHIVE.with_suffix(f".{os.getpid()}.new")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    options = f"{jvm_options()} -XX:ArchiveClassesAtExit={written} {_QUIET}"
    spark = builder.config("spark.driver.extraJavaOptions", options).getOrCreate()
    spark.range(10).selectExpr("CAST(id AS STRING) AS key").groupBy("key").count().collect()
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = source.writeStream.foreachBatch(lambda batch, _: batch.collect())
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writer.start().awaitTermination()
    gateway = SparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(DUMP_S_MAX)
    written.replace(ARCHIVE)


if __name__ == "__main__":
    main()
