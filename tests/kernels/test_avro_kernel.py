"""The `avro` kernel and fastavro read flat records alike, and the kernel refuses all others."""

import json
import math
from array import array
from importlib import import_module
from itertools import accumulate
from types import ModuleType

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog.arrow.formats.avro import AvroDecoder, avro_type
from sparklog.arrow.formats.names import SchemaIdPrefix
from sparklog.kernels import avro_reference as reference

try:
    compiled: ModuleType | None = import_module("sparklog.kernels.avro_compiled")
except ImportError:
    compiled = None

needs_compiled = pytest.mark.skipif(
    compiled is None, reason="the compiled kernels are not built (make setup)"
)
both = pytest.mark.parametrize(
    "avro", [reference, pytest.param(compiled, marks=needs_compiled)], ids=["reference", "compiled"]
)

SORTS = range(8)
ZERO = {"type": "fixed", "name": "Z", "size": 0}
fields = st.lists(
    st.tuples(st.sampled_from(SORTS), st.sampled_from([-1, -1, 0, 1]), st.booleans()), max_size=6
)
VALUES = {
    reference.BOOLEAN: st.booleans().map(lambda value: bytes([value])),
    reference.FLOAT: st.binary(min_size=4, max_size=4),
    reference.DOUBLE: st.binary(min_size=8, max_size=8),
    reference.INT: st.integers(-(2**31), 2**31 - 1).map(lambda value: varint(value)),
    reference.LONG: st.integers(-(2**63), 2**63 - 1).map(lambda value: varint(value)),
    reference.MILLIS: st.integers(-(2**53), 2**53).map(lambda value: varint(value)),
    reference.BYTES: st.binary(max_size=9).map(lambda value: varint(len(value)) + value),
    reference.STRING: st.text(max_size=9).map(lambda value: varint(len(value.encode())) + value.encode()),
}


def varint(value: int) -> bytes:
    raw, content = (value << 1) ^ (value >> 63), bytearray()
    while raw >= 0x80:
        content.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*content, raw])


@st.composite
def records(draw: st.DrawFn) -> tuple[list[tuple[int, int, bool]], list[bytes | None]]:
    """Fields, and rows that are mostly records of them."""
    chosen = draw(fields)
    rows: list[bytes | None] = []
    for _ in range(draw(st.integers(0, 12))):
        row = b""
        for sort, null_branch, _ in chosen:
            is_null = null_branch >= 0 and draw(st.booleans())
            if null_branch >= 0:
                row += varint(null_branch if is_null else 1 - null_branch)
            row += b"" if is_null else draw(VALUES[sort])
        match draw(
            st.sampled_from(["whole", "whole", "whole", "prefixed", "null", "cut", "damaged", "noise"])
        ):
            case "prefixed":
                row = b"\0\0\0\0\7" + row
            case "null":
                rows.append(None)
                continue
            case "cut":
                row = row[: draw(st.integers(0, len(row)))]
            case "damaged" if row:
                at = draw(st.integers(0, len(row) - 1))
                row = row[:at] + draw(st.binary(max_size=11)) + row[at + 1 :]
            case "noise":
                row = draw(st.binary(max_size=30))
        rows.append(row)
    return chosen, rows


@needs_compiled
@pytest.mark.parametrize(
    ("sort", "content"),
    [
        (reference.BOOLEAN, b"\2"),
        (reference.INT, varint(2**31)),
        (reference.LONG, b"\xff" * 9 + b"\2"),
        (reference.LONG, b"\x80" * 10 + b"\0"),
        (reference.MILLIS, varint(2**63 // 1000 + 1)),
        (reference.DOUBLE, bytes(7)),
        (reference.BYTES, varint(-1)),
        (reference.BYTES, varint(2**62)),
        (reference.STRING, varint(1) + b"\xff"),
        (reference.STRING, varint(3) + "\ud800".encode("utf-8", "surrogatepass")),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_refused_and_its_neighbours_are_read(
    sort: int, content: bytes
) -> None:
    assert compiled is not None
    chosen = [(reference.STRING, -1, True), (sort, -1, True), (reference.BOOLEAN, 0, True)]
    good = {
        reference.BOOLEAN: b"\1",
        reference.DOUBLE: bytes(8),
        reference.BYTES: b"\0",
        reference.STRING: b"\0",
    }.get(sort, b"\2")
    first, last = b"\2a" + good + b"\2\1", b"\2c" + good + b"\0"
    valid, columns, refused = compiled.read_records(
        3,
        None,
        array("i", accumulate([0, len(first), 3 + len(content), len(last)])),
        first + b"\2b" + content + b"\0" + last,
        0,
        chosen,
        reference.NEVER,
    )
    assert (bytes(valid), refused) == (b"\5", [1])
    assert tuple(map(bytes, columns[0])) == (b"\5", array("i", [0, 1, 1, 2]).tobytes(), b"ac")
    assert tuple(map(bytes, columns[2])) == (b"\1", b"\1")


def bits_of(column: pa.Array) -> pa.Array:
    """A column that equals itself: one NaN for all of them, since Python turns a signalling NaN of 32 bits
    into a quiet one.
    """
    if not pa.types.is_floating(column.type):
        return column
    one = pc.if_else(pc.is_nan(column), pa.scalar(math.nan, column.type), column)
    return one.view(pa.int32() if column.type == pa.float32() else pa.int64())


@example(([(reference.FLOAT, -1, False)], [b"\x00\x00\x81\x7f"]), SchemaIdPrefix.AUTO)
@example(([(reference.INT, 1, False)], [b"\x00\x80\x80\x80\x80\x01"]), SchemaIdPrefix.AUTO)
@given(records(), st.sampled_from(SchemaIdPrefix))
def test_a_flat_record_is_what_fastavro_makes_of_it(
    made: tuple[list[tuple[int, int, bool]], list[bytes | None]], prefix: SchemaIdPrefix
) -> None:
    chosen, rows = made
    names = [
        "boolean",
        "int",
        "long",
        {"type": "long", "logicalType": "timestamp-millis"},
        "float",
        "double",
        "bytes",
        "string",
    ]
    unions = {-1: "{}", 0: '["null",{}]', 1: '[{},"null"]'}
    declared = [
        {"name": f"f{at}", "type": json.loads(unions[null].replace("{}", json.dumps(names[sort])))}
        for at, (sort, null, _) in enumerate([*chosen, (0, -1, True)])
    ]
    flat = json.dumps({"type": "record", "name": "R", "fields": declared})
    # A field that takes no bytes and that the kernel does not know.
    other = json.dumps({"type": "record", "name": "R", "fields": [*declared, {"name": "z", "type": ZERO}]})
    values = pa.array([None if row is None else row + b"\1" for row in rows], pa.binary())
    wanted = avro_type(flat)
    found, expected = (AvroDecoder(text, wanted, prefix).decode(values) for text in (flat, other))
    found.array.validate(full=True)
    assert found.refused.keys() == expected.refused.keys()
    assert found.array.is_valid() == expected.array.is_valid()
    for ours, theirs in zip(found.array.flatten(), expected.array.flatten(), strict=True):
        assert bits_of(ours) == bits_of(theirs)
