"""The rows of a tiny micro-batch, read where it is planned: they go to Spark with the plan, and no Python
worker is asked for them.

To hand a task to a Python worker and to take its rows back costs Spark more than a tiny micro-batch is
worth to the JVM. From one kind of reader Spark takes rows along with the plan: the one that it wraps
around a `SimpleDataSourceStreamReader`. It keeps them as a block, from which tasks read; where the block
is gone, a task reads its partition as ever. So what is handed over here is never the only way to a row.

This rests on private parts of PySpark. `partitions_func`, of the process that plans a stream, calls
`partitions`, sends the result, asks whether the reader is that wrapper, and only then asks it for rows.
Where that function refers to other names, or to these in another order, than in Spark 4.0 to 4.3, or where
another call comes between the two, tasks read everything.
"""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
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

from sparklog.spark.options import EarlyRowsWhen, Options
from sparklog.spark.plan import TINY_BYTES, OffsetRange
from sparklog.spark.schema import arrow_schema

if TYPE_CHECKING:
    GivesRows = DataSourceStreamReader
else:
    try:
        from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as GivesRows
    except ImportError:  # a Spark that does it otherwise: every micro-batch is read by tasks
        GivesRows = None

TESTED_ORDER: Final = (
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
"""A plan of more offsets is left to its task: Spark makes an object of each row, and writes and reads it
once more.

A hundred rows take half as long so as by a task, a thousand four fifths, seven thousand longer.
"""
REST_PLANS: Final = 16
"""So many plans are left to tasks after one that was read in vain, because it failed or had too many
bytes.
"""
PATIENCE_MS: Final = 2_000
"""How long the next records may take; a task waits for them as long as the settings say."""

_COPIED: Final = frozenset(
    {
        *(BinaryType, BooleanType, ByteType, DateType, DecimalType, DoubleType, FloatType),
        *(IntegerType, LongType, ShortType, StringType, TimestampType),
    }
)
_COPIED_IN_ARRAYS: Final = frozenset({BinaryType, DecimalType, StringType, StructType})


class EarlyRows:
    """Reads what is planned, if it is little and of columns that Spark can take so."""

    def __init__(self, options: Options, schema: StructType) -> None:
        patience_ms = min(options.client.default_api_timeout_ms, PATIENCE_MS)
        self._options = replace(
            options, client=msgspec.structs.replace(options.client, default_api_timeout_ms=patience_ms)
        )
        self._schema = schema
        self._is_possible = (
            options.early_rows is EarlyRowsWhen.AUTO and is_order_tested() and can_take_early(schema)
        )
        self._plans_to_rest = 0

    def turn_off(self) -> None:
        """Leave all plans to tasks from here on."""
        self._is_possible = False

    def read(self, tasks: Sequence[Sequence[OffsetRange]]) -> list[pa.RecordBatch] | None:
        """All rows of the one task in a plan, in its order; None where a task is to read them.

        On any error here the task reads the rows too: Spark may retry it, and it reports its errors as every
        read does.
        """
        if not self._is_possible or len(tasks) != 1 or sum(map(len, tasks[0])) > TINY_OFFSETS:
            return None
        if self._plans_to_rest:
            self._plans_to_rest -= 1
            return None
        from sparklog.spark.readers import (
            record_batches,
        )  # here: where only large micro-batches are planned nothing is read

        rows, size = [], 0
        self._plans_to_rest = REST_PLANS
        try:
            for batch in record_batches(self._options, self._schema, tasks[0]):
                rows.append(batch)
                size += batch.nbytes
                if size > TINY_BYTES:
                    return None
        except Exception:
            return None
        self._plans_to_rest = 0
        return rows


def is_order_tested() -> bool:
    """Whether this Spark asks for rows right after it asked for a plan, as the versions do that this was
    tested with.
    """
    if GivesRows is None:
        return False
    runner = sys.modules["__main__"]  # in the process that plans a stream
    if not hasattr(runner, "partitions_func"):
        try:
            runner = importlib.import_module("pyspark.sql.streaming.python_streaming_source_runner")
        except ImportError:
            return False
    code = getattr(getattr(runner, "partitions_func", None), "__code__", None)
    return code is not None and code.co_names == TESTED_ORDER


def can_take_early(schema: StructType) -> bool:
    """Whether Spark takes rows of this schema with a plan as it takes them from tasks.

    It compares the schema whole, with all that Arrow cannot tell: comments of columns, collations. And to
    copy an array of numbers it asks nulls for their value, which Arrow refuses; maps are copied as two
    arrays.
    """
    return _is_copied(schema) and from_arrow_schema(arrow_schema(schema)) == schema


def _is_copied(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_copied(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return type(kind.elementType) in _COPIED_IN_ARRAYS and _is_copied(kind.elementType)
    return type(kind) in _COPIED
