"""Decodes flat Avro records into Arrow's buffers: numbers, text, bytes, dates and times, each nullable."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final, Self

import pyarrow as pa

from sparklog.arrow.formats.avro_program import SORTS
from sparklog.arrow.formats.names import SchemaIdPrefix
from sparklog.arrow.formats.types import names_of
from sparklog.kernels import avro, compiled

PREFIXES: Final = {
    SchemaIdPrefix.NEVER: avro.NEVER,
    SchemaIdPrefix.ALWAYS: avro.ALWAYS,
    SchemaIdPrefix.AUTO: avro.PERHAPS,
}


class FlatRecords:
    """Decodes the values of one flat schema; made by `of`."""

    def __init__(
        self,
        kernel: ModuleType,
        fields: Sequence[tuple[int, int, bool]],
        places: Sequence[int],
        kind: pa.DataType,
        prefix: SchemaIdPrefix,
    ) -> None:
        """`places` has the index of the writer's field for each column of `kind`."""
        self._kernel = kernel
        self._fields = list(fields)
        self._places = places
        self._kind = kind
        self._prefix = PREFIXES[prefix]

    @classmethod
    def of(cls, plain: Any, wanted: pa.DataType, prefix: SchemaIdPrefix) -> Self | None:
        """The decoder of some columns of a schema in the form of `avro`; None if the schema is not flat or
        the kernel is not built.
        """
        kernel = compiled("avro")
        is_record = isinstance(plain, dict) and plain["type"] == "record"
        if kernel is None or not is_record or not pa.types.is_struct(wanted):
            return None
        sorts = [_sort(field["type"]) for field in plain["fields"]]
        known = [sort for sort in sorts if sort is not None]
        if len(known) < len(sorts):
            return None
        names = [field["name"] for field in plain["fields"]]
        chosen = names_of(wanted)
        fields = [
            (sort, null_branch, name in chosen)
            for name, (sort, null_branch) in zip(names, known, strict=True)
        ]
        return cls(kernel, fields, [names.index(name) for name in chosen], wanted, prefix)

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[int]]:
        """The structs, and the rows that are null because they could not be decoded."""
        count = len(values)
        validity, offsets, content = values.buffers()
        if count == 0 or offsets is None:
            return pa.nulls(count, self._kind), []
        valid, columns, refused = self._kernel.read_records(
            count, validity, offsets, content or b"", values.offset, self._fields, self._prefix
        )
        made: list[pa.Array] = []
        for place, field in zip(self._places, self._kind, strict=True):
            column = columns[place]
            assert column is not None, "a requested column"
            made.append(pa.Array.from_buffers(field.type, count, [pa.py_buffer(part) for part in column]))
        return pa.Array.from_buffers(self._kind, count, [pa.py_buffer(valid)], children=made), refused


def together(made: pa.Array, rows: Sequence[int], others: pa.Array) -> pa.Array:
    """`made` with the values of `others` in these rows."""
    if others.null_count == len(others):
        return made
    places = list(range(len(made)))
    for place, row in enumerate(rows, len(made)):
        places[row] = place
    return pa.concat_arrays([made, others]).take(pa.array(places, pa.int64()))


def _sort(plain: Any) -> tuple[int, int] | None:
    """The sort of a field and the null branch of its union (-1: none); None for a field that only fastavro
    decodes.
    """
    if isinstance(plain, list):
        if len(plain) != 2 or plain.count("null") != 1:
            return None
        null_branch = plain.index("null")
        read = _sort(plain[1 - null_branch])
        return None if read is None or read[1] >= 0 else (read[0], null_branch)
    if isinstance(plain, str):
        plain = {"type": plain}
    if plain.get("logicalType") is not None or plain["type"] not in SORTS:
        return None
    return (avro.MILLIS if plain.get("unit") == "ms" else SORTS[plain["type"]]), -1
