"""A program that reads or writes through whichever format it is given, and its result.

    def program(side: Side) -> object: ...          the text, run once for each format
    assert_alike(program, spark, servers)           both returned the same, or both refused

A refusal is compared by what it is about: the option, the column or the topic must be named by both. Spark
wraps what a Python source raises in errors of its own, so the classes of the two can never be the same.
"""

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

FORMATS = ("kafka", "sparklog")
NUMBERS = itertools.count(1)
QUERY_S_MAX = 240

Program = Callable[["Side"], object]


@dataclass(frozen=True, slots=True)
class Side:
    """One format against one broker, with a directory of its own for checkpoints."""

    spark: SparkSession
    format: str
    servers: str
    directory: Path

    def read(self, **options: str) -> DataFrame:
        """A batch read; `options` without the brokers."""
        return self.spark.read.format(self.format).options(**self._with_servers(options)).load()

    def stream(self, **options: str) -> DataFrame:
        """A streaming read."""
        return self.spark.readStream.format(self.format).options(**self._with_servers(options)).load()

    def write(self, frame: DataFrame, *, mode: str | None = "append", **options: str) -> None:
        """A batch write; without a mode if it is None."""
        writer = frame.write.format(self.format).options(**self._with_servers(options))
        (writer if mode is None else writer.mode(mode)).save()

    def run_into_topic(
        self, frame: DataFrame, checkpoint: str, *, mode: str = "append", **options: str
    ) -> None:
        """A streaming write of all there is now."""
        writer = frame.writeStream.format(self.format).options(**self._with_servers(options)).outputMode(mode)
        self.run(writer, checkpoint)

    def run(self, writer: DataStreamWriter, checkpoint: str, *, available_now: bool = True) -> StreamingQuery:
        """Runs a query to its end; raises the query's error."""
        writer = writer.option("checkpointLocation", str(self.directory / checkpoint))
        query = (writer.trigger(availableNow=True) if available_now else writer.trigger(once=True)).start()
        try:
            assert query.awaitTermination(QUERY_S_MAX), (
                f"{self.format}: still running after {QUERY_S_MAX} s: {query.lastProgress}"
            )
        finally:
            query.stop()
        return query

    def batches(
        self, source: DataFrame, checkpoint: str = "checkpoint", *, available_now: bool = True
    ) -> list[list[tuple[object, ...]]]:
        """The topic, partition and offset of every record, micro-batch by micro-batch; those without any
        are left out.
        """
        collected: dict[int, list[tuple[object, ...]]] = {}

        def collect(batch: DataFrame, number: int) -> None:
            collected[number] = sorted(map(tuple, batch.select("topic", "partition", "offset").collect()))

        self.run(source.writeStream.foreachBatch(collect), checkpoint, available_now=available_now)
        return [collected[number] for number in sorted(collected) if collected[number]]

    def _with_servers(self, options: Mapping[str, str]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, **options}


@dataclass(frozen=True, slots=True)
class Refused:
    """The error of a program, as text: the error and everything that caused it."""

    text: str

    def __eq__(self, other: object) -> bool:
        """Two refusals are alike; `assert_refused` looks into them."""
        return isinstance(other, Refused)

    __hash__ = None  # type: ignore[assignment]


def outcomes(program: Program, spark: SparkSession, servers: str, directory: Path) -> dict[str, object]:
    """The result of the program, or its refusal, for each format."""
    return {name: _outcome(program, Side(spark, name, servers, directory / name)) for name in FORMATS}


def _outcome(program: Program, side: Side) -> object:
    try:
        return program(side)
    except (PySparkException, Py4JJavaError) as error:
        return Refused(str(error))


def assert_alike(program: Program, spark: SparkSession, servers: str, directory: Path) -> object:
    """Both formats answer the same, which is returned; a refusal is no answer."""
    outcome = outcomes(program, spark, servers, directory)
    for name, result in outcome.items():
        assert not isinstance(result, Refused), f"{name} refused: {result.text[:3000]}"
    assert outcome["sparklog"] == outcome["kafka"], (
        f"\nsparklog: {outcome['sparklog']}\nkafka:    {outcome['kafka']}"
    )
    return outcome["sparklog"]


def assert_refused(program: Program, about: str, spark: SparkSession, servers: str, directory: Path) -> None:
    """Both formats refuse, and both name what the refusal is `about`, in upper or lower case."""
    for name, result in outcomes(program, spark, servers, directory).items():
        assert isinstance(result, Refused), f"{name} did not refuse, and answered {result}"
        assert about.lower() in result.text.lower(), f"{name} does not name {about!r}: {result.text[:3000]}"


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    """Every record with all its columns, in the order of topic, partition and offset."""
    frame = frame.selectExpr(*[f"unix_micros({c}) AS {c}" if c == "timestamp" else c for c in frame.columns])
    return [
        tuple(_plain(value) for value in row)
        for row in frame.orderBy("topic", "partition", "offset").collect()
    ]


def _plain(value: object) -> object:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list | tuple):
        return tuple(_plain(each) for each in value)
    return value


def new_name(prefix: str = "d") -> str:
    """A topic name that no other test uses."""
    return f"{prefix}-{os.getpid()}-{next(NUMBERS)}"
