"""The `json` kernel and the row reader read the same values alike, and the kernel refuses all others."""

import json
from array import array
from collections.abc import Sequence
from itertools import accumulate
from struct import unpack

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.arrow.formats.json_rows import JsonRows
from sparklog.kernels import load

try:
    kernel = load("json", "compiled")
except ImportError:
    pytest.skip("the compiled kernels are not built (make setup)", allow_module_level=True)

FIELDS = [
    (b"b", kernel.BOOLEAN),
    (b"i", kernel.INT),
    (b"l", kernel.LONG),
    (b"d", kernel.DOUBLE),
    (b"s", kernel.STRING),
    ("é".encode(), kernel.STRING),
]
texts = st.text(max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats() | texts
nested = st.recursive(
    scalars, lambda one: st.lists(one, max_size=3) | st.dictionaries(texts, one, max_size=3), max_leaves=6
)
rows = st.fixed_dictionaries(
    {},
    optional={
        "b": st.none() | st.booleans(),
        "i": st.none() | st.integers(-(2**31), 2**31 - 1),
        "l": st.none() | st.integers(-(2**63), 2**63 - 1),
        "d": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
        "s": st.none() | texts,
        "é": st.none() | texts,
        "other": nested,
        "i ": scalars,
    },
)
pieces = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"',
        "\\",
        "\\u0041",
        "-",
        "0",
        "1e5",
        ".",
        "null",
        "tru",
        " ",
        "\n",
        "\x00",
        "\ud800",
    ]
)


def read(values: Sequence[bytes], start: int = 0) -> list[tuple[bytes, ...]] | None:
    offsets = array("i", [0, *accumulate(map(len, values))])
    columns = kernel.read_objects(len(values) - start, offsets, b"".join(values), start, FIELDS)
    return None if columns is None else [tuple(map(bytes, column)) for column in columns]


@st.composite
def values(draw: st.DrawFn) -> list[bytes]:
    """JSON as Python writes it, in places damaged."""
    made: list[bytes] = []
    for row in draw(st.lists(rows, max_size=10)):
        written = json.dumps(
            row, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, None, 1]))
        )
        if draw(st.integers(0, 9)) == 0:
            at = draw(st.integers(0, len(written)))
            written = written[:at] + draw(pieces) + written[at + draw(st.integers(0, 2)) :]
        made.append(written.encode("utf-8", "surrogatepass"))
    return made


KIND = pa.struct(
    [
        (name.decode(), kind)
        for (name, _), kind in zip(
            FIELDS, (pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.string()), strict=True
        )
    ]
)


def assert_read_alike(made: list[bytes], start: int = 0) -> None:
    """Either the kernel refuses, or it gives the structs that the row reader gives, and refuses none."""
    columns = read(made, start)
    if columns is None:
        return
    count = len(made) - start
    children = [
        pa.Array.from_buffers(field.type, count, list(map(pa.py_buffer, column)))
        for field, column in zip(KIND, columns, strict=True)
    ]
    refused: dict[int, str] = {}
    expected = JsonRows(KIND).decode(pa.array(made[start:], pa.binary()), 0, refused)
    assert refused == {}
    assert [list(column) for column in expected.flatten()] == [list(child) for child in children]


@given(values(), st.data())
def test_what_is_read_is_what_the_row_reader_reads(made: list[bytes], data: st.DataObject) -> None:
    for row in made:
        assert_read_alike([row])
    assert_read_alike(made, data.draw(st.integers(0, len(made))))


@given(st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?", fullmatch=True))
def test_numbers_are_what_the_row_reader_makes_of_them(number: str) -> None:
    for name in "ild":
        assert_read_alike([f'{{"{name}":{number}}}'.encode()])


@given(st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: str(number) != "-0.0"))
def test_a_double_is_the_one_that_was_written(number: float) -> None:
    columns = read([json.dumps({"d": number}).encode()])
    assert columns is not None
    assert unpack("=d", columns[3][1]) == (number,)


def test_fields_stand_in_any_order_and_what_is_missing_or_unknown_is_passed_over() -> None:
    made = [
        b'{"s":"a\\n\\"","x":{"s":[1,{}]},"i":-7}',
        b' { "i" : null , "b" : true } ',
        b"{}",
        '{"é":"ü","l":9223372036854775807}'.encode(),
    ]
    columns = read(made)
    assert columns is not None
    assert columns[0] == (b"\x02", b"\x02")
    assert columns[1] == (b"\x01", array("i", [-7, 0, 0, 0]).tobytes())
    assert columns[2] == (b"\x08", array("q", [0, 0, 0, 2**63 - 1]).tobytes())
    assert columns[4] == (b"\x01", array("i", [0, 3, 3, 3, 3]).tobytes(), b'a\n"')
    assert columns[5] == (b"\x08", array("i", [0, 0, 0, 0, 2]).tobytes(), "ü".encode())


@pytest.mark.parametrize(
    "value",
    [
        *(
            b"",
            b"1",
            b"null",
            b"[]",
            b"{",
            b'{"i":1',
            b'{"i":1}}',
            b'{"i":1,}',
            b'{"i":01}',
            b'{"i":1.0}',
            b'{"i":2147483648}',
            b'{"i":"1"}',
        ),
        *(
            b'{"l":9223372036854775808}',
            b'{"l":99999999999999999999}',
            b'{"l":-0}',
            b'{"d":-0.0}',
            b'{"d":1e999}',
            b'{"d":NaN}',
            b'{"d":.5}',
        ),
        *(
            b'{"s":1}',
            b'{"s":"\\u0041"}',
            b'{"s":"\n"}',
            b'{"s":"\xff"}',
            b'{"\\u0069":1}',
            b'{"i":1,"i":2}',
            b'{"b":yes}',
            b'{"b":nul}',
        ),
        b'{"x":' + b"[" * 99 + b"]" * 99 + b"}",
    ],
)
def test_what_is_unusual_is_refused(value: bytes) -> None:
    assert read([b"{}", value]) is None
