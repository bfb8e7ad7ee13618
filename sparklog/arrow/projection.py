"""The columns of a read without Spark: those of the log, and fields of the decoded value as columns of their
own.

A name is a column of the log (`offset`), else a field of the value (`carrier`); `value.offset` is a field in
any case. Only what the names need is decoded.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from sparklog.arrow.decoding import CORRUPT, CORRUPT_TYPE
from sparklog.arrow.formats.choice import PARTS, column_type
from sparklog.arrow.formats.names import PartFormat, is_decoding
from sparklog.column_types import COLUMN_TYPES, DEFAULT_COLUMNS
from sparklog.errors import SettingsError

_FIELD_OF_VALUE: Final = "value."


class Place(NamedTuple):
    """Where a column comes from: a column of the log, or with `field`, a field of that column."""

    column: str
    field: str | None = None


class Projection:
    """The columns of a read, and how to build them from record batches in the schema `decoded`."""

    def __init__(self, known: pa.Schema, names: Sequence[str] | None) -> None:
        """The columns `names` of a log whose columns are `known`; None for its usual ones. Raises
        SettingsError.
        """
        if names is None:
            names = [name for name in (*DEFAULT_COLUMNS, CORRUPT) if name in known.names]
        if len(set(names)) != len(names) or not names:
            raise SettingsError(f"columns must name each column once, and at least one: {', '.join(names)}")
        value = known.field("value").type
        fields = {field.name: field for field in value} if pa.types.is_struct(value) else {}
        self._known = known
        self._places = [_place(name, known, fields) for name in names]
        wanted = list(dict.fromkeys(place.column for place in self._places))
        parts = [place.field for place in self._places if place.column == "value"]
        if parts and None not in parts:
            value = pa.struct([fields[name] for name in dict.fromkeys(parts) if name is not None])
        kinds = {name: value if name == "value" else known.field(name).type for name in wanted}
        self.decoded = pa.schema([pa.field(name, kinds[name]) for name in wanted])
        self.schema = pa.schema(
            [
                pa.field(name, kinds[place.column] if place.field is None else fields[place.field].type)
                for name, place in zip(names, self._places, strict=True)
            ]
        )
        self._is_whole = all(place.field is None for place in self._places)

    def chosen(self, names: Sequence[str]) -> "Projection":
        """Some of these columns."""
        return Projection(self._known, names)

    def projected(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of a batch in the schema `decoded`."""
        if self._is_whole:
            return rows
        value = rows.column("value")
        # A field of a null is null: `flatten` applies the nulls of the struct, at the cost of a pass.
        children = value.flatten() if value.null_count else [value.field(i) for i in range(len(value.type))]
        fields = dict(zip([field.name for field in value.type], children, strict=True))
        arrays = [rows.column(p.column) if p.field is None else fields[p.field] for p in self._places]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def every_column(known: pa.Schema) -> list[str]:
    """The columns of the log, and the fields of the value whose names are those of no column, in any case:
    SQL does not tell `Offset` from `offset`.
    """
    value = known.field("value").type
    fields = [field.name for field in value] if pa.types.is_struct(value) else []
    found: dict[str, str] = {}
    for name in (*known.names, *fields):
        found.setdefault(name.lower(), name)
    return list(found.values())


def known_columns(parts: Mapping[str, PartFormat], *, has_corrupt: bool) -> pa.Schema:
    """All columns of a log whose keys and values have these formats."""
    kinds = dict(COLUMN_TYPES)
    for name in PARTS:
        kind = column_type(parts[name])
        if kind is None:
            raise SettingsError(f"{parts[name].option('format')} is json: set {parts[name].option('schema')}")
        kinds[name] = kind
    if is_decoding(*parts.values()) and has_corrupt:
        kinds[CORRUPT] = CORRUPT_TYPE
    return pa.schema(list(kinds.items()))


def _place(name: str, known: pa.Schema, fields: Mapping[str, pa.Field]) -> Place:
    if name in known.names:
        return Place(name)
    field = name.removeprefix(_FIELD_OF_VALUE)
    if field in fields:
        return Place("value", field)
    choice = f"{', '.join(known.names)}" + (
        f" and the fields of value, {', '.join(fields)}" if fields else ""
    )
    raise SettingsError(f"there is no column {name!r}: choose among {choice}")
