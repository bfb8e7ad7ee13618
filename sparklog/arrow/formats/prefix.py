"""The prefix of a schema registry (`record.schema_id`) before the values of a column."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.record.schema_id import MAGIC, SIZE

_INT32_MAX: Final = (1 << 31) - 1


def without_prefix(values: pa.Array) -> pa.Array:
    """Binary values without the prefix, for formats whose content never begins with a zero byte."""
    begins = pc.starts_with(values, MAGIC)
    if not pc.any(begins).as_py():
        return values
    has_prefix = pc.and_(begins, pc.greater_equal(pc.binary_length(values), SIZE))
    # pyarrow fails if a value is shorter than the slice and no end is given.
    return pc.if_else(
        has_prefix, pc.binary_slice(pc.if_else(has_prefix, values, bytes(SIZE)), SIZE, _INT32_MAX), values
    )
