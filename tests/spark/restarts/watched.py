"""`format("sparklog_watched")`: sparklog's stream, which asks a referee before and after every hook whether to go on.

It runs in Spark's workers, so it asks over a socket, and holds nothing that could not be pickled.
"""

import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sparklog.spark.source import SparklogSource
from sparklog.spark.stream_reader import StreamReader

REFEREE = "referee"
"""The option that names the referee's address, `host:port`; every other option is sparklog's."""
ANSWER_S_MAX = 60

T = TypeVar("T")


class StruckDown(RuntimeError):
    """The referee had this hook fail."""


class WatchedSource(DataSource):
    """sparklog's source, for streams alone."""

    @classmethod
    def name(cls) -> str:
        return "sparklog_watched"

    def schema(self) -> StructType:
        return self._source().schema()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        reader = self._source().streamReader(schema)
        assert isinstance(reader, StreamReader)
        return WatchedReader(reader, self.options[REFEREE])

    def _source(self) -> SparklogSource:
        return SparklogSource({name: value for name, value in self.options.items() if name.lower() != REFEREE})


class WatchedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Every hook of a stream, with the question around it."""

    def __init__(self, reader: StreamReader, referee: str) -> None:
        self._reader = reader
        self._referee = referee

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        return self._watched("initialOffset", self._reader.initialOffset)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self._watched("getDefaultReadLimit", self._reader.getDefaultReadLimit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._watched("prepareForTriggerAvailableNow", self._reader.prepareForTriggerAvailableNow)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        return self._watched("latestOffset", lambda: self._reader.latestOffset(start, limit))

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        return self._watched("reportLatestOffset", self._reader.reportLatestOffset)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._watched("partitions", lambda: self._reader.partitions(start, end))

    def commit(self, end: dict[str, Any]) -> None:
        self._watched("commit", lambda: self._reader.commit(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Struck after it, a task has handed over every row and has not ended."""
        ask(self._referee, "read", "before")
        yield from self._reader.read(partition)
        ask(self._referee, "read", "after")

    def _watched(self, hook: str, call: Callable[[], T]) -> T:
        ask(self._referee, hook, "before")
        answer = call()
        ask(self._referee, hook, "after")
        return answer


def ask(referee: str, hook: str, moment: str) -> None:
    """Returns where the referee has nothing against it."""
    host, _, port = referee.rpartition(":")
    with socket.create_connection((host, int(port)), ANSWER_S_MAX) as connection:
        connection.sendall(f"{hook} {moment}\n".encode())
        answer = connection.makefile().readline().strip()
    if answer == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if answer != "go":
        raise StruckDown(f"struck down {moment} {hook}")
