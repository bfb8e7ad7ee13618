"""A stream whose checkpoint is spelled otherwise, moved and copied: `python -m tests.spark.checkpoints MASTER
SERVERS SOURCE TARGET DIRECTORY`, where MASTER is a Spark master or `connect`, for a client of Spark Connect.

Each run begins as after the death of a driver that had committed a batch to the sink, and not yet to Spark.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sparklog
from tests.spark.sinks import committed

PER_BATCH = 20


class Copying:
    """A stream from topic to topic, in micro-batches of at most `PER_BATCH` records."""

    def __init__(self, spark: Any, servers: str, source: str, target: str) -> None:
        self._spark, self._servers, self._source, self._target = spark, servers, source, target

    def write_numbers(self, numbers: range) -> None:
        frame = self._spark.range(numbers.start, numbers.stop).selectExpr("CAST(id AS STRING) AS value")
        writer = frame.write.format("sparklog").option("kafka.bootstrap.servers", self._servers)
        writer.option("topic", self._source).mode("append").save()

    def run(self, checkpoint: str, **options: str) -> list[int]:
        """The numbers in the target once the stream has copied all that is there."""
        reader = self._spark.readStream.format("sparklog").option("kafka.bootstrap.servers", self._servers)
        reader = reader.option("subscribe", self._source).option("startingOffsets", "earliest")
        frame = reader.option("maxOffsetsPerTrigger", PER_BATCH).load().select("value")
        writer = frame.writeStream.format("sparklog").option("kafka.bootstrap.servers", self._servers)
        writer = writer.option("topic", self._target).option("checkpointLocation", checkpoint)
        writer.options(**options).trigger(availableNow=True).start().awaitTermination()
        return sorted(map(int, committed(self._servers, self._target)))


def without_last_commit(checkpoint: Path) -> Path:
    """The checkpoint as a driver leaves it that dies before Spark has recorded the last micro-batch."""
    last = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    for file in (checkpoint / "commits").iterdir():
        if file.name in (f"{last}", f".{last}.crc"):
            file.unlink()
    return checkpoint


def walk(copying: Copying, directory: Path, *, is_told: Callable[[str], object] = lambda _: None) -> None:
    """Raises AssertionError unless each number is in the target once after each run."""
    first, more = list(range(PER_BATCH)), list(range(PER_BATCH + 10))
    checkpoint = directory / "checkpoint"
    copying.write_numbers(range(PER_BATCH))
    assert copying.run(str(checkpoint)) == first
    (directory / "link").symlink_to(checkpoint)
    for spelled in (f"file:{checkpoint}", os.path.relpath(checkpoint), str(directory / "link")):
        without_last_commit(checkpoint)
        assert copying.run(spelled) == first, spelled
        is_told(spelled)
    moved = without_last_commit(checkpoint.rename(directory / "moved"))
    assert copying.run(f"file://{moved}/") == first, "moved"
    is_told("moved")
    copy = shutil.copytree(moved, directory / "copy")
    copying.write_numbers(range(PER_BATCH, PER_BATCH + 10))
    for same in (moved, copy, without_last_commit(moved)):
        assert copying.run(str(same)) == more, same
    is_told("copy")


def main() -> None:
    master, servers, source, target, directory = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    builder = builder.remote("local[2]") if master == "connect" else builder.master(master)
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.executor.memory", "512m").getOrCreate()
    sparklog.register(spark)
    walk(Copying(spark, servers, source, target), Path(directory), is_told=print)
    spark.stop()


if __name__ == "__main__":
    main()
