"""Rows of tiny micro-batches, read in the process that plans them and sent to Spark with the plan.

Handing a task to a Python worker and taking its rows back costs more than a tiny micro-batch is worth. Spark
takes rows with the plan from one kind of reader only: `_SimpleStreamReaderWrapper`, which PySpark puts around
a `SimpleDataSourceStreamReader`. Spark stores these rows as a block, and the task reads the block. If the
block is lost, the task reads its partition from the broker, so no record depends on this path.

`EarlyRowsReader` overrides `__class__`, so that `isinstance` takes it for the wrapper in one moment: after a
plan whose rows were read, until Spark takes them. A subclass of the wrapper would be one all the time, and
PySpark asks the same question elsewhere: it reports no latest offset of such a reader, so that the query's
progress loses its lag, and looks for `simple_reader`, which a reader with limits does not have. PySpark has
no public call that sends rows with a plan; the wrapper's own way, to read while the end offset is computed,
would read every micro-batch in the process that plans, of any size.

The option `earlyRows` is the only way in, and this file the only one that knows these private parts of
PySpark. `partitions_func`, in the process that plans a stream, calls `partitions`, sends the plan, tests
whether the reader is the wrapper, and then calls `getCache`. Where that function refers to other names than
in Spark 4.0 to 4.3, or in another order, a warning is logged and tasks read all micro-batches.
"""

import importlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from sparklog.arrow.ranges import OffsetRange
from sparklog.errors import SparklogError
from sparklog.spark.option_values import EarlyRowsWhen
from sparklog.spark.options import Options
from sparklog.spark.plan import TINY_BYTES
from sparklog.spark.schema import arrow_schema
from sparklog.spark.stream_reader import StreamReader

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

TESTED_NAMES: Final = (
    *(
        "json",
        "loads",
        "utf8_deserializer",
        "partitions",
        "write_int",
        "len",
        "pickleSer",
        "_write_with_length",
        "isinstance",
    ),
    *("_SimpleStreamReaderWrapper", "getCache", "PREFETCHED_RECORDS_NOT_FOUND", "send_batch_func"),
)
"""The names that `partitions_func` refers to, in order, in Spark 4.0 to 4.3."""
TINY_OFFSETS: Final = 1000
"""Tasks read plans of more offsets: Spark makes an object of each row, writes it and reads it back.

Compared with a task, a hundred rows take half the time, a thousand four fifths, and seven thousand longer.
"""
REST_PLANS: Final = 16
"""The number of plans that tasks read after a plan whose rows could not be read or had too many bytes."""
PATIENCE_MS: Final = 2_000
"""The maximum wait for the next records while planning; a task waits as long as the settings say."""

_COPIED: Final = frozenset(
    {
        *(BinaryType, BooleanType, ByteType, DateType, DecimalType, DoubleType, FloatType),
        *(IntegerType, LongType, ShortType, StringType, TimestampType),
    }
)
_COPIED_IN_ARRAYS: Final = frozenset({BinaryType, DecimalType, StringType, StructType})


def stream_reader(options: Options, schema: StructType) -> StreamReader:
    """The reader of a stream; one that sends rows with its plans if the option, the columns and PySpark allow
    it.
    """
    if options.early_rows is EarlyRowsWhen.OFF or not can_take_early(schema):
        return StreamReader(options, schema)
    if rows_wrapper() is None:
        warnings.warn(
            f"option 'earlyRows' has no effect: PySpark {pyspark.__version__} plans micro-batches in another "
            f"way than 4.0 to 4.3. Tasks read all micro-batches; earlyRows=off omits this warning.",
            stacklevel=2,
        )
        return StreamReader(options, schema)
    return EarlyRowsReader(options, schema)


class EarlyRowsReader(StreamReader):
    """A stream reader that passes for PySpark's wrapper between `partitions` and `getCache`, if the rows of
    the plan have been read.

    At all other times `__class__` tells the truth: Spark gives the wrapper no limits, and asks it for no
    latest offset.
    """

    _rows: list[pa.RecordBatch] | None = None
    """The rows of the last plan, until Spark takes them."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._early = EarlyRows(options, schema)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: "ReadLimit | None" = None
    ) -> dict[str, object]:
        self._drop_rows()
        return super().latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._drop_rows()
        tasks = super().partitions(start, end)
        # Spark finds stored rows by their offsets as text, and after a loss the same offsets may come twice.
        if not self._planned_after_loss:
            self._rows = self._early.read([task.value for task in tasks])
        return tasks

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch]:  # noqa: N802
        """The rows of the plan, if `partitions` read them; Spark calls this right after `partitions`."""
        rows, self._rows = self._rows or [], None
        return iter(rows)

    @property  # type: ignore[misc]  # `object.__class__` can be set, and this cannot
    def __class__(self) -> type:
        return type(self) if self._rows is None else rows_wrapper() or type(self)

    def commit(self, end: dict[str, Any]) -> None:
        self._drop_rows()
        super().commit(end)

    def _drop_rows(self) -> None:
        """Rows that Spark did not take right after their plan are dropped, and tasks read all later plans."""
        if self._rows is not None:
            self._rows = None
            self._early.turn_off()


class EarlyRows:
    """Reads the rows of tiny plans."""

    def __init__(self, options: Options, schema: StructType) -> None:
        patience_ms = min(options.client.default_api_timeout_ms, PATIENCE_MS)
        self._options = replace(
            options, client=msgspec.structs.replace(options.client, default_api_timeout_ms=patience_ms)
        )
        self._schema = schema
        self._is_on = True
        self._plans_to_rest = 0

    def turn_off(self) -> None:
        """Leave all later plans to tasks."""
        self._is_on = False

    def read(self, tasks: Sequence[Sequence[OffsetRange]]) -> list[pa.RecordBatch] | None:
        """All rows of a plan with one task, in the task's order; None if the task must read them.

        If reading fails here, the task reads the rows again: Spark can retry it, and it reports the error.
        """
        if not self._is_on or len(tasks) != 1 or sum(map(len, tasks[0])) > TINY_OFFSETS:
            return None
        if self._plans_to_rest:
            self._plans_to_rest -= 1
            return None
        from sparklog.spark.readers import record_batches  # only a tiny micro-batch pays for the import

        rows, size = [], 0
        self._plans_to_rest = REST_PLANS
        try:
            for batch in record_batches(self._options, self._schema, tasks[0]):
                rows.append(batch)
                size += batch.nbytes
                if size > TINY_BYTES:
                    return None
        except (SparklogError, OSError):
            return None
        self._plans_to_rest = 0
        return rows


def rows_wrapper() -> type[DataSourceStreamReader] | None:
    """PySpark's wrapper class, if this PySpark asks for rows right after a plan as the tested versions do."""
    runner = sys.modules["__main__"]  # in the process that plans a stream
    try:
        if not hasattr(runner, "partitions_func"):
            runner = importlib.import_module("pyspark.sql.streaming.python_streaming_source_runner")
        from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
    except ImportError:
        return None
    code = getattr(getattr(runner, "partitions_func", None), "__code__", None)
    return _SimpleStreamReaderWrapper if code is not None and code.co_names == TESTED_NAMES else None


def can_take_early(schema: StructType) -> bool:
    """Whether Spark accepts rows of this schema with a plan.

    Spark requires the schema of the rows to equal the reader's, and Arrow carries neither comments of columns
    nor collations. Spark's copy of an array of numbers fails on a null; it copies a map as two arrays.
    """
    return _is_copied(schema) and from_arrow_schema(arrow_schema(schema)) == schema


def _is_copied(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_copied(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return type(kind.elementType) in _COPIED_IN_ARRAYS and _is_copied(kind.elementType)
    return type(kind) in _COPIED
