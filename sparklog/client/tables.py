"""Arrow tables of records: rows as record batches for a producer, and fetched batches as a table.

The columns have the names and types of the Spark source and sink. Loaded only by `Producer.send_arrow` and
`Consumer.poll_arrow`, because pyarrow takes long to import.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.client.cluster import Entropy
from sparklog.client.consumer.records import FetchedBatches
from sparklog.client.failures import CorruptRecords
from sparklog.client.settings import ClientSettings
from sparklog.column_types import COLUMN_TYPES
from sparklog.errors import DecodeError, SettingsError
from sparklog.model import TopicPartition
from sparklog.record.arrow import (
    COLUMN_FLAGS,
    binary_column,
    column_array,
    fixed_column,
    headers_column,
    repeated_int32,
    repeated_text,
)
from sparklog.record.columns import (
    BATCH_BYTES_MAX,
    Columns,
    PartitionBatch,
    RowRefused,
    read_columns,
    write_batches,
)
from sparklog.record.compression import Codec

Tabular: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader

_WRITTEN: Final = ("key", "value", "headers", "partition", "timestamp")
_ROWS_MAX: Final = 65_536
"""Rows whose batches are built at once: a table is not in memory twice."""


def built_batches(
    table: Tabular, settings: ClientSettings, partition_count: int, timestamp_ms: int, entropy: Entropy
) -> Iterator[PartitionBatch]:
    """The rows as whole batches, in order within a partition. SettingsError for a missing or wrong column,
    RowRefused for a row that cannot be written.
    """
    _check(table.schema)
    batches = [table] if isinstance(table, pa.RecordBatch) else table
    if isinstance(batches, pa.Table):
        batches = batches.to_batches(max_chunksize=_ROWS_MAX)
    sticky = int.from_bytes(entropy(2), "big") % partition_count
    before = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS_MAX):
            rows = batch.slice(start, _ROWS_MAX)
            columns = {name: rows.column(name) for name in rows.schema.names if name in _WRITTEN}
            try:
                _check_timestamps(columns)
                written = write_batches(
                    rows.num_rows,
                    value=binary_column(columns["value"]),
                    key=binary_column(columns["key"]) if "key" in columns else None,
                    headers=headers_column(columns["headers"]) if "headers" in columns else None,
                    partitions=fixed_column(columns["partition"]) if "partition" in columns else None,
                    timestamps=fixed_column(_micros(columns["timestamp"]))
                    if "timestamp" in columns
                    else None,
                    timestamp_ms=timestamp_ms,
                    partition_count=partition_count,
                    sticky_partition=sticky,
                    batch_bytes_max=min(max(settings.batch_bytes_max, 1), BATCH_BYTES_MAX),
                    codec=Codec[settings.compression_type.upper()],
                    compression_level=settings.compression_level,
                )
            except RowRefused as refused:
                raise RowRefused(refused.reason, refused.row + before if refused.row >= 0 else -1) from None
            sticky = written.sticky_partition
            yield from written.batches
            before += rows.num_rows


def table_of(batches: Sequence[FetchedBatches], wanted: Sequence[str]) -> pa.Table:
    """The records of fetched batches, in their order. SettingsError for an unknown column."""
    for name in wanted:
        if name not in COLUMN_TYPES:
            raise SettingsError(f"there is no column {name!r}: choose among {', '.join(COLUMN_TYPES)}")
    schema = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in wanted])
    flags = 0
    for name in wanted:
        flags |= COLUMN_FLAGS.get(name, 0)
    pieces: list[pa.RecordBatch] = []
    for fetched in batches:
        try:
            for columns in read_columns(
                [fetched.records], fetched.fetch_offset, fetched.next_offset, flags, verify_crc=False
            ):
                if columns.count:
                    arrays = [_array(field, columns, fetched.topic_partition) for field in schema]
                    pieces.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        except DecodeError as error:
            raise CorruptRecords(fetched.topic_partition, fetched.fetch_offset, str(error)) from error
    return pa.Table.from_batches(pieces, schema=schema)


def _array(field: pa.Field, columns: Columns, partition: TopicPartition) -> pa.Array:
    match field.name:
        case "topic":
            return repeated_text(partition.topic, columns.count)
        case "partition":
            return repeated_int32(partition.partition, columns.count)
    return column_array(field, columns)


def _check(schema: pa.Schema) -> None:
    if "value" not in schema.names:
        raise SettingsError("column 'value' is missing: a record needs one")
    for name in _WRITTEN:
        if name in schema.names and not _is_fit(name, schema.field(name).type):
            expected = "text or binary" if name in ("key", "value") else str(COLUMN_TYPES[name])
            raise SettingsError(
                f"column {name!r} is {schema.field(name).type}, and must be {expected}: cast it"
            )


def _is_fit(name: str, kind: pa.DataType) -> bool:
    if name in ("key", "value"):
        tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
        return any(test(kind) for test in tests)
    if name == "timestamp":
        return bool(pa.types.is_timestamp(kind))
    if name == "partition":
        return bool(kind == pa.int32())
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    pair = kind.value_type
    return (
        pair.num_fields == 2
        and (pair.field(0).name, pair.field(0).type) == ("key", pa.string())
        and (pair.field(1).name, pair.field(1).type) == ("value", pa.binary())
    )


def _micros(times: pa.Array) -> pa.Array:
    return times.cast(pa.timestamp("us", tz=times.type.tz), safe=False)


def _check_timestamps(columns: Mapping[str, pa.Array]) -> None:
    if "timestamp" not in columns:
        return
    times = _micros(columns["timestamp"]).cast(pa.int64())
    least = pc.min(times)
    if least.is_valid and least.as_py() < 0:
        raise RowRefused("its timestamp is before 1970", pc.index(times, least).as_py())
