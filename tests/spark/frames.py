"""The words the Spark tests are written in: read a topic, write a topic, run a stream to its end."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

RUN_S_MAX = 240
"""The first stream of a Spark takes a minute on a machine that does much else."""


def read(
    spark: SparkSession, servers: str, topic: str | None = None, *, schema: str | None = None, **options: Any
) -> DataFrame:
    """A batch read of `topic`, or of the topics that `options` select."""
    reader = spark.read.format("sparklog").options(**{"kafka.bootstrap.servers": servers}, **options)
    if topic is not None:
        reader = reader.option("subscribe", topic)
    return (reader if schema is None else reader.schema(schema)).load()


def write(frame: DataFrame, servers: str, topic: str | None = None, **options: Any) -> None:
    """A batch write to `topic`, or to the topics that the frame's column names."""
    writer = frame.write.format("sparklog").options(**{"kafka.bootstrap.servers": servers}, **options)
    (writer if topic is None else writer.option("topic", topic)).mode("append").save()


def stream(spark: SparkSession, servers: str, topic: str, **options: Any) -> DataFrame:
    """A stream of `topic`, from its earliest record unless told otherwise."""
    merged = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **options,
    }
    return spark.readStream.format("sparklog").options(**merged).load()


class Collected:
    """The rows of each micro-batch of a stream: values by batch number, in order of partition and offset."""

    def __init__(self) -> None:
        self.batches: dict[int, list[str]] = {}

    def __call__(self, batch: DataFrame, number: int) -> None:
        rows = (
            batch.selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
            .orderBy("partition", "offset")
            .collect()
        )
        self.batches[number] = [row.value for row in rows]

    @property
    def values(self) -> list[str]:
        return [value for number in sorted(self.batches) for value in self.batches[number]]


def run_to_end(source: DataFrame, checkpoint: Path, sink: Any) -> StreamingQuery:
    """Everything there is now, through `foreachBatch`; raises the query's error."""
    writer = source.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(RUN_S_MAX)
    return query


def texts(spark: SparkSession, values: list[str]) -> DataFrame:
    """One row per value, in order, in one task."""
    return spark.createDataFrame([(value,) for value in values], "value STRING").coalesce(1)
