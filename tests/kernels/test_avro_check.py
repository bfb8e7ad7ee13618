"""The check of a value's bytes against a schema: both implementations agree, accept every written value, and
an accepted value is read to its last byte.
"""

import io
from array import array
from collections.abc import Sequence
from itertools import accumulate
from types import ModuleType
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.arrow.formats.avro_program import program_of
from sparklog.kernels import avro_reference as reference
from tests.kernels.test_avro_kernel import both, compiled, needs_compiled, varint

Plain = Any
Case = tuple[Plain, Any]


def leaf(plain: Plain, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Case]:
    return values.map(lambda value: (plain, value))


LEAVES = st.one_of(
    leaf("null", st.none()),
    leaf("boolean", st.booleans()),
    leaf("int", st.integers(-(2**31), 2**31 - 1)),
    leaf("long", st.integers(-(2**63), 2**63 - 1)),
    leaf("double", st.floats(allow_nan=False)),
    leaf("string", st.text(max_size=5)),
    leaf("bytes", st.binary(max_size=5)),
    leaf({"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")),
    leaf({"type": "fixed", "name": "F", "size": 3}, st.binary(min_size=3, max_size=3)),
)


def parents(children: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    """Values of records, arrays, maps and unions over `children`."""
    records = st.lists(children, min_size=1, max_size=4).map(
        lambda fields: (
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": f"f{at}", "type": plain} for at, (plain, _) in enumerate(fields)],
            },
            {f"f{at}": value for at, (_, value) in enumerate(fields)},
        )
    )
    some = children.filter(lambda case: takes_bytes(case[0]))
    counts = st.integers(0, 3)
    arrays = st.tuples(some, counts).map(
        lambda made: ({"type": "array", "items": made[0][0]}, [made[0][1]] * made[1])
    )
    maps = st.tuples(some, counts).map(
        lambda made: ({"type": "map", "values": made[0][0]}, {f"k{at}": made[0][1] for at in range(made[1])})
    )
    unions = some.filter(lambda case: not isinstance(case[0], list)).map(
        lambda case: (["null", case[0]], case[1])
    )
    return st.one_of(records, arrays, maps, unions)


def takes_bytes(plain: Plain) -> bool:
    """Whether every value takes at least a byte, as items of an array must."""
    if isinstance(plain, dict) and plain["type"] == "record":
        return any(takes_bytes(field["type"]) for field in plain["fields"])
    return bool(plain != "null")


CASES = st.recursive(LEAVES, parents, max_leaves=8)


def named_apart(plain: Plain, numbers: Any) -> Plain:
    """The schema with a name of its own for each type that has one."""
    if isinstance(plain, list):
        return [named_apart(branch, numbers) for branch in plain]
    if not isinstance(plain, dict):
        return plain
    made = dict(plain)
    if "name" in made:
        made["name"] = f"{plain['name']}{next(numbers)}"
    for key in ("items", "values"):
        if key in made:
            made[key] = named_apart(made[key], numbers)
    if "fields" in made:
        made["fields"] = [
            {"name": field["name"], "type": named_apart(field["type"], numbers)} for field in made["fields"]
        ]
    return made


def check(
    avro: ModuleType, plain: Plain, rows: Sequence[bytes | None], prefix: int = reference.NEVER
) -> list[int]:
    offsets = array("i", [0, *accumulate(len(row or b"") for row in rows)])
    bitmap = bytearray((len(rows) + 7) >> 3)
    for at, row in enumerate(rows):
        bitmap[at >> 3] |= (row is not None) << (at & 7)
    content = b"".join(row or b"" for row in rows)
    starts = avro.check_records(
        len(rows), bitmap if None in rows else None, offsets, content, 0, program_of(plain, {}), prefix
    )
    return list(memoryview(starts).cast("i"))


@needs_compiled
@given(CASES, st.data())
def test_what_a_writer_wrote_passes_and_what_passes_is_read_whole(case: Case, data: st.DataObject) -> None:
    assert compiled is not None
    plain, value = case
    plain = named_apart(plain, iter(range(100)))
    schema, written = fastavro.parse_schema(plain), io.BytesIO()
    fastavro.schemaless_writer(written, schema, value)
    whole = written.getvalue()
    rows: list[bytes | None] = [whole, b"\0\0\0\0\7" + whole]
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(whole)))
        rows.append(
            whole[:at] + data.draw(st.binary(max_size=11)) + whole[at + data.draw(st.integers(0, 2)) :]
        )
    found = check(compiled, plain, rows)
    assert found[0] == 0
    for prefix in (reference.NEVER, reference.ALWAYS, reference.PERHAPS):
        assert check(compiled, plain, rows, prefix) == check(reference, plain, rows, prefix)
    assert check(compiled, plain, rows, reference.ALWAYS)[1] == 5
    for start, row in zip(found, rows, strict=True):
        if start == 0:
            assert row is not None
            rest = io.BytesIO(row)
            fastavro.schemaless_reader(rest, schema)
            assert rest.tell() == len(row)


@both
@pytest.mark.parametrize(
    ("plain", "content", "position"),
    [
        (["null", "int"], b"\1", 0),  # branch -1
        (["null", "int"], b"\4\0", 0),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\1", 0),  # symbol -1
        ("boolean", b"\2", 0),
        ("int", varint(2**31), 0),
        ("long", b"\xff" * 9 + b"\2", 0),
        ("long", b"\2\0", 1),
        ("bytes", b"\1abc", 0),  # -1 bytes
        ({"type": "array", "items": "boolean"}, b"\4\1\2\0", 2),
        ({"type": "array", "items": "boolean"}, varint(2**40) + b"\1\0", 0),
        ({"type": "array", "items": "boolean"}, b"\3", 0),
        ({"type": "array", "items": "boolean"}, b"\2\1", 2),  # no block of 0 items
        ({"type": "array", "items": "boolean"}, varint(-(2**63)) + b"\2\1\0", 0),
        ({"type": "map", "values": "boolean"}, b"\2\2\xff\1\0", 1),
    ],
)
def test_bytes_that_are_no_value_are_refused_where_they_begin(
    avro: ModuleType, plain: Plain, content: bytes, position: int
) -> None:
    assert check(avro, plain, [content, None]) == [-1 - position, 0]
