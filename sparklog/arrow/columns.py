"""Batches of one partition as Arrow, in the columns of a schema.

The columns topic and partition, which are the same in every row, are built once for the largest number of
rows seen and then sliced.
"""

from collections.abc import Iterator

import pyarrow as pa

from sparklog.arrow.decoding import AS_THEY_ARE, CORRUPT, Decoding
from sparklog.errors import SparklogError
from sparklog.model import Offset, TopicPartition
from sparklog.record.arrow import (
    COLUMN_FLAGS,
    binary_array,
    column_array,
    fixed_array,
    repeated_int32,
    repeated_text,
)
from sparklog.record.columns import OFFSET, TIMESTAMP, Columns, read_columns

_TIMES_BEYOND = (-(2**63), 2**63 - 1)
"""The values in a column for a time that does not fit 64 bits of microseconds."""


class TimestampOutOfRange(SparklogError):
    """The timestamp of a record is beyond 64 bits of microseconds; names the record."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"the record at offset {offset} of {partition} has a timestamp beyond 64 bits of microseconds:"
            " leave the column 'timestamp' out of the read, or start after this record"
        )


class ArrowColumns:
    """Turns batches of one partition into Arrow. Only the columns of `schema` are built."""

    def __init__(
        self,
        schema: pa.Schema,
        partition: TopicPartition,
        *,
        decoding: Decoding = AS_THEY_ARE,
        check_crcs: bool = True,
    ) -> None:
        self._schema = schema
        self._wanted = 0
        for name in (*self._schema.names, *decoding.needs):
            self._wanted |= COLUMN_FLAGS.get(name, 0)
        self._decoding = decoding
        self._partition = partition
        self._check_crcs = check_crcs
        self._constant_rows = 0
        self._topics = self._partitions = pa.nulls(0)

    def record_batches(
        self, batches: memoryview, start: Offset, limit: Offset
    ) -> Iterator[tuple[pa.RecordBatch, Offset]]:
        """The records of `[start, limit)` in `batches`, in order; each piece with the offset after it."""
        for columns in read_columns([batches], start, limit, self._wanted, verify_crc=self._check_crcs):
            if columns.timestamps is not None and columns.count and not _are_times(columns):
                raise TimestampOutOfRange(self._partition, self._first_beyond(batches, start, limit))
            decoded = self._decoded(columns) if self._decoding.needs and columns.count else {}
            arrays = [
                decoded[field.name] if field.name in decoded else self._array(field, columns)
                for field in self._schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema), Offset(columns.next_offset)

    def _first_beyond(self, batches: memoryview, start: Offset, limit: Offset) -> int:
        """The offset of the first record whose timestamp is out of range."""
        import pyarrow.compute as pc

        for columns in read_columns([batches], start, limit, OFFSET | TIMESTAMP, verify_crc=False):
            if columns.count and not _are_times(columns):
                times = fixed_array(pa.int64(), columns.count, columns.timestamps)
                row = pc.index(pc.is_in(times, pa.array(_TIMES_BEYOND)), True).as_py()
                offset: int = fixed_array(pa.int64(), columns.count, columns.offsets)[row].as_py()
                return offset
        raise AssertionError("one of these records has it")

    def _decoded(self, columns: Columns) -> dict[str, pa.Array]:
        kind, count = pa.binary(), columns.count
        raw = {"key": columns.key, "value": columns.value}
        given = {
            name: binary_array(kind, count, column) for name, column in raw.items() if column is not None
        }
        offsets = None if columns.offsets is None else fixed_array(pa.int64(), count, columns.offsets)
        return self._decoding.decode(given, self._partition, offsets)

    def _array(self, field: pa.Field, columns: Columns) -> pa.Array:
        if field.name in COLUMN_FLAGS:
            return column_array(field, columns)
        if field.name == CORRUPT:
            return pa.nulls(columns.count, field.type)
        self._make_constants(columns.count)
        return (self._topics if field.name == "topic" else self._partitions)[: columns.count]

    def _make_constants(self, rows: int) -> None:
        if rows <= self._constant_rows:
            return
        self._constant_rows = rows = max(rows, 2 * self._constant_rows)
        self._topics = repeated_text(self._partition.topic, rows)
        self._partitions = repeated_int32(self._partition.partition, rows)


def _are_times(columns: Columns) -> bool:
    # not at the top: the import takes 40 ms, and a driver that only plans does not need it
    import pyarrow.compute as pc

    extremes = pc.min_max(fixed_array(pa.int64(), columns.count, columns.timestamps)).as_py()
    return bool(_TIMES_BEYOND[0] < extremes["min"] and extremes["max"] < _TIMES_BEYOND[1])
