"""JSON in whole blocks into columns, without an object per record.

    block of ROWS      kernel, else pyarrow.json     a block with a bad value is refused as a whole
    block of FEW_ROWS  kernel, else pyarrow.json     a refused block is cut into smaller blocks
    row by row         `json_rows`                   only small blocks with a bad value are read so

All three give the same values; each is there for its cost. The kernel reads flat objects in a third of
pyarrow's processor time, pyarrow reads nested objects in an eighth of the row reader's, and only the row
reader tells which value is bad, and reads maps, NaN, and numbers in other forms than JSON has.

A value cannot extend into its neighbours in a block that pyarrow reads: each value is UTF-8, begins with `{`
and ends with `}`, and the block must give as many objects as it has values. No JSON document continues after
`}` with a newline and `{`, so documents end where values end, and each value holds exactly one.
"""

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from sparklog.arrow.formats.decoded import Decoded
from sparklog.arrow.formats.json_rows import JsonRows, binaries
from sparklog.arrow.formats.times import timestamps
from sparklog.arrow.formats.types import TIMESTAMP, TIMESTAMP_NTZ, array_of
from sparklog.kernels import compiled
from sparklog.record.schema_id import MAGIC, SIZE

ROWS: Final = 16384
FEW_ROWS: Final = 1024
"""A call of pyarrow's reader costs as much as a hundred rows one by one."""
PATIENCE: Final = 16
"""The number of blocks to read row by row after a block of which most parts were refused."""
_SPACE = " \t\r\n"
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
"""A name without characters that JSON escapes."""
_AS_TEXT: Final = frozenset({TIMESTAMP, TIMESTAMP_NTZ, pa.date32(), pa.binary()})
"""The types that are strings in JSON, which this module decodes."""
_SORTS: Final[dict[pa.DataType, int]] = {
    pa.bool_(): 0,
    pa.int32(): 1,
    pa.int64(): 2,
    pa.float64(): 3,
    **dict.fromkeys((pa.string(), *_AS_TEXT), 4),
}
"""The kernel's sort of each type; it reads times and binaries as strings, see `_parsed_type`."""


class JsonDecoder:
    """Decodes JSON values into one type; structs in whole blocks."""

    def __init__(self, kind: pa.DataType, *, may_be_prefixed: bool) -> None:
        self._struct = kind if pa.types.is_struct(kind) else pa.struct([])
        self._type = kind
        self._rows = JsonRows(kind)
        self._may_be_prefixed = may_be_prefixed
        self._slow_blocks = 0
        self._kernel = compiled("json")
        self._fields: list[tuple[bytes, int]] = []
        if all(field.type in _SORTS and _PLAIN.fullmatch(field.name) for field in self._struct):
            self._fields = [(field.name.encode(), _SORTS[field.type]) for field in self._struct]
        self._parse_options = None
        if pa.types.is_struct(kind) and _is_known_to_arrow(kind):
            schema = pa.schema([(field.name, _parsed_type(field.type)) for field in kind])
            self._parse_options = pj.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore", newlines_in_values=True
            )

    def decode(self, values: pa.Array) -> Decoded:
        if self._may_be_prefixed:
            values = without_prefix(values)
        refused: dict[int, str] = {}
        parts: list[pa.Array] = []
        for start in range(0, len(values), ROWS):
            self._block(values[start : start + ROWS], start, parts, refused)
        if len(parts) == 1:
            return Decoded(parts[0], refused)
        return Decoded(pa.concat_arrays(parts) if parts else pa.array([], self._type), refused)

    def _block(
        self, values: pa.Array, first_row: int, parts: list[pa.Array], refused: dict[int, str]
    ) -> None:
        if self._parse_options is None or self._slow_blocks:
            self._slow_blocks = max(0, self._slow_blocks - 1)
            parts.append(self._rows.decode(values, first_row, refused))
            return
        whole = self._whole(values)
        if whole is not None:
            parts.append(whole)
            return
        slow = 0
        for start in range(0, len(values), FEW_ROWS):
            few = values[start : start + FEW_ROWS]
            whole = self._whole(few)
            slow += whole is None
            parts.append(self._rows.decode(few, first_row + start, refused) if whole is None else whole)
        if 2 * slow * FEW_ROWS > len(values):
            self._slow_blocks = PATIENCE

    def _whole(self, values: pa.Array) -> pa.Array | None:
        """All values, decoded at once; None if one of them must be read by itself."""
        present = values.drop_null() if values.null_count else values
        if not len(present):
            return pa.nulls(len(values), self._type)
        try:
            columns = self._by_kernel(present) or self._by_pyarrow(present)
            if columns is None:
                return None
            made = _finished_struct(columns, self._struct, None)
        except (pa.ArrowInvalid, ValueError):
            return None
        return made if present is values else _spread(made, values)

    def _by_kernel(self, values: pa.Array) -> list[pa.Array] | None:
        if self._kernel is None or not self._fields:
            return None
        _, offsets, content = values.buffers()
        read = self._kernel.read_objects(len(values), offsets, content or b"", values.offset, self._fields)
        if read is None:
            return None
        kinds = [_parsed_type(field.type) for field in self._struct]
        made = zip(kinds, read, strict=True)
        return [
            pa.Array.from_buffers(kind, len(values), [pa.py_buffer(part) for part in column])
            for kind, column in made
        ]

    def _by_pyarrow(self, values: pa.Array) -> list[pa.Array] | None:
        texts = values.cast(pa.string())
        if not _all_in_braces(texts):
            texts = pc.utf8_trim(texts, _SPACE)
            if not _all_in_braces(texts):
                return None
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n")[
            0
        ].as_buffer()
        read_options = pj.ReadOptions(use_threads=False, block_size=joined.size + 1)
        table = pj.read_json(
            pa.BufferReader(joined), read_options=read_options, parse_options=self._parse_options
        )
        if table.num_rows != len(values):
            return None
        return [table.column(field.name).combine_chunks() for field in self._struct]


def _all_in_braces(texts: pa.Array) -> bool:
    return bool(pc.all(pc.starts_with(texts, "{")).as_py() and pc.all(pc.ends_with(texts, "}")).as_py())


def _spread(made: pa.Array, values: pa.Array) -> pa.Array:
    """`made` with nulls inserted where `values` has them."""
    is_there = values.is_valid()
    place = pc.subtract(pc.cumulative_sum(is_there.cast(pa.int32())), 1)
    return made.take(pc.if_else(is_there, place, None))


def _is_known_to_arrow(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return False  # pyarrow reads maps from lists of pairs
    if pa.types.is_list(kind):
        return _is_known_to_arrow(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_known_to_arrow(field.type) for field in kind)
    return True


def _parsed_type(kind: pa.DataType) -> pa.DataType:
    """The type in which pyarrow reads a field."""
    if kind in _AS_TEXT:
        return pa.string()
    if pa.types.is_list(kind):
        return array_of(_parsed_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _parsed_type(field.type)) for field in kind])
    return kind


def _finished(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return timestamps(column, kind)
    if pa.types.is_date(kind):
        return column.cast(kind)
    if pa.types.is_binary(kind):
        return binaries(column)
    if column.type == kind:
        return column
    if pa.types.is_struct(kind):
        children = [column.field(index) for index in range(kind.num_fields)]
        return _finished_struct(children, kind, column.is_null() if column.null_count else None)
    if pa.types.is_list(kind):
        validity, offsets = column.buffers()[:2]
        return pa.Array.from_buffers(
            kind, len(column), [validity, offsets], children=[_finished(column.values, kind.value_type)]
        )
    return column.cast(kind)


def _finished_struct(columns: list[pa.Array], kind: pa.StructType, mask: pa.Array | None) -> pa.Array:
    children = [_finished(column, field.type) for column, field in zip(columns, kind, strict=True)]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


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
