"""`format("sparklog_watched")`: sparklog's stream, which asks a referee before and after every hook
whether to go on.

It runs in Spark's workers, so it asks over a socket, and holds nothing that could not be pickled.
"""

import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from sparklog.spark.option_values import Use
from sparklog.spark.options import Options
from sparklog.spark.source import SparklogSource
from sparklog.spark.stream_reader import StreamReader
from sparklog.spark.uses import checked

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
        given = {name: value for name, value in self.options.items() if name.lower() != REFEREE}
        options = checked(Options.parse(given), Use.STREAM_READ)
        return WatchedReader(options, schema, self.options[REFEREE])

    def _source(self) -> SparklogSource:
        return SparklogSource(
            {name: value for name, value in self.options.items() if name.lower() != REFEREE}
        )


class WatchedReader(StreamReader):
    """Every hook of a stream, with the question around it."""

    def __init__(self, options: Options, schema: StructType, referee: str) -> None:
        super().__init__(options, schema)
        self._referee = referee

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        return self._watched("initialOffset", super().initialOffset)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self._watched("getDefaultReadLimit", super().getDefaultReadLimit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._watched("prepareForTriggerAvailableNow", super().prepareForTriggerAvailableNow)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, object]:
        return self._watched("latestOffset", partial(super().latestOffset, start, limit))

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        return self._watched("reportLatestOffset", super().reportLatestOffset)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._watched("partitions", partial(super().partitions, start, end))

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch]:  # noqa: N802
        return self._watched("getCache", partial(super().getCache, start, end))

    def commit(self, end: dict[str, Any]) -> None:
        self._watched("commit", partial(super().commit, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Struck after it, a task has handed over every row and has not ended."""
        ask(self._referee, "read", "before")
        yield from super().read(partition)
        ask(self._referee, "read", "after")

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "referee": self._referee}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["options"], state["schema"], state["referee"])  # type: ignore[misc]

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
