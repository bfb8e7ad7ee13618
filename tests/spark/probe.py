"""`format("probe")`: a source of numbers and a sink that drops them, which write down every call that
Spark makes of them.

Option `notes` names the file of the notes; `count` is how many numbers there are. It runs in Spark's
workers, in several processes.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import Row, StructType

IDLE_CALLS_MAX = 20
PROPERTIES = ("sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id")


def note(notes: str, call: str, **told: object) -> None:
    """One whole line, also beside other writers."""
    descriptor = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, json.dumps([call, told]).encode() + b"\n")
    finally:
        os.close(descriptor)


def noted(notes: Path, *calls: str) -> list[tuple[str, dict[str, Any]]]:
    """The notes of these calls, in order; of all if none is named."""
    lines = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    return [(call, told) for call, told in lines if not calls or call in calls]


@dataclass
class Written(WriterCommitMessage):
    """One task's message."""

    rows: int


class Probe(DataSource):
    """Options besides `notes` and `count`: `spelling=both` tells one offset in two ways, `fail` names a
    call of the sink that fails.
    """

    @classmethod
    def name(cls) -> str:
        return "probe"

    def schema(self) -> str:
        return "number INT"

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchProbe(dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamProbe(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        note(self.options["notes"], "writer", overwrite=overwrite)
        return BatchDrain(dict(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        note(self.options["notes"], "streamWriter", overwrite=overwrite, options=sorted(self.options.items()))
        return StreamDrain(dict(self.options))


class BatchProbe(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        note(self.options["notes"], "partitions")
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        note(
            self.options["notes"],
            "read",
            partition=None if partition is None or partition.value is None else partition.value,
        )
        yield (1,)


class StreamProbe(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Two numbers in each micro-batch; nothing that it remembers matters."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.idle_calls = 0

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.note("prepareForTriggerAvailableNow")

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        self.note("getDefaultReadLimit")
        return ReadMaxRows(2)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        self.note("initialOffset")
        return {"a": 0, "n": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        self.note("latestOffset", start=start["n"], limit=type(limit).__name__)
        end = min(int(self.options["count"]), start["n"] + 2)
        self.idle_calls += end == start["n"]
        if self.idle_calls == IDLE_CALLS_MAX:
            raise RuntimeError("asked often enough")
        if self.options.get("spelling") == "both" and next(iter(start)) == "a":
            return {"n": end, "a": 0}
        return {"a": 0, "n": end}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return {"n": int(self.options["count"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self.note("partitions", start=start["n"], end=end["n"])
        return [InputPartition(number) for number in range(start["n"], end["n"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        if partition is not None and partition.value is not None:
            yield (partition.value,)

    def commit(self, end: dict[str, int]) -> None:
        self.note("commit", end=end["n"])

    def note(self, call: str, **told: object) -> None:
        note(self.options["notes"], call, **told)


class Drain:
    """The methods of both sinks."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def write(self, iterator: Iterator[Row]) -> Written:
        task = TaskContext.get()
        assert task is not None
        rows = len(list(iterator))
        note(
            self.options["notes"],
            "write",
            rows=rows,
            properties=[task.getLocalProperty(name) for name in PROPERTIES],
        )
        return Written(rows)

    def ended(self, call: str, messages: Sequence[object], batch: int | None) -> None:
        told = [message.rows if isinstance(message, Written) else None for message in messages]
        note(
            self.options["notes"],
            f"sink {call}",
            messages=told,
            batch=batch,
            has_task=TaskContext.get() is not None,
        )
        if self.options.get("fail") == call:
            raise ValueError(f"the {call} was refused for a reason")


class BatchDrain(Drain, DataSourceWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.ended("commit", messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.ended("abort", messages, None)


class StreamDrain(Drain, DataSourceStreamWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.ended("commit", messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.ended("abort", messages, batchId)
