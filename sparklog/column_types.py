"""The columns of records as Arrow types, apart from what reads them: Spark's driver needs no more."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

COLUMN_TYPES: Final[Mapping[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(
        pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    ),
}
"""The columns of records, with the names and types of Spark's Kafka connector."""
DEFAULT_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""Those of a read that chooses none."""
