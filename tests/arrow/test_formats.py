"""Keys and values decoded into columns: the result of each format, and that a bad record harms nobody but
itself. No Spark session here.
"""

import datetime
import io
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.arrow.formats.avro import AvroDecoder, avro_type
from sparklog.arrow.formats.choice import TextDecoder
from sparklog.arrow.formats.ddl import parse_schema
from sparklog.arrow.formats.decoded import Decoded, Decoder
from sparklog.arrow.formats.json_rows import JsonRows
from sparklog.arrow.formats.json_text import FEW_ROWS, ROWS, JsonDecoder
from sparklog.arrow.formats.names import SchemaIdPrefix
from sparklog.arrow.formats.types import name_of, nullable
from tests.properties import examples

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC)
PREFIX = b"\0" + (42).to_bytes(4, "big")


def decoded(decoder: Decoder, *values: bytes | None) -> Decoded:
    made = decoder.decode(pa.array(values, pa.binary()))
    made.array.validate(full=True)
    assert len(made.array) == len(values)
    assert all(not made.array[row].is_valid for row in made.refused)
    return made


def from_json(schema: str, *values: bytes | None) -> Decoded:
    kind = nullable(parse_schema(schema))
    made = decoded(JsonDecoder(kind, may_be_prefixed=True), *values)
    assert made.array.type == kind
    return made


def test_text_is_text_and_what_is_no_utf8_is_refused() -> None:
    assert decoded(TextDecoder(), "é".encode(), None, b"").array.to_pylist() == ["é", None, ""]
    assert decoded(TextDecoder(), b"a", b"b\xff", b"c") == (
        pa.array(["a", None, "c"]),
        {1: "not UTF-8 at byte 1"},
    )


def column(made: Decoded, name: str) -> list[object]:
    return [None if row is None else row[name] for row in made.array.to_pylist()]


# -- JSON ----------------------------------------------------------------------------------------------------


def test_fields_are_read_by_exact_name_and_missing_ones_are_null() -> None:
    made = from_json(
        "a INT, b STRING", b'{"a":1,"b":"x","c":[{}]}', b'{"A":2}', None, b' {\n"b": null }\n', b"{}"
    )
    none = {"a": None, "b": None}
    assert made.array.to_pylist() == [{"a": 1, "b": "x"}, none, None, none, none]
    assert made.refused == {}


def test_every_type_has_its_way_to_be_written() -> None:
    schema = (
        "y BYTE, l BIGINT, f FLOAT, d DOUBLE, o BOOLEAN, m DECIMAL(6,2), t TIMESTAMP, n TIMESTAMP_NTZ, day "
        "DATE, x BINARY,"
        " s STRUCT<a: INT>, r ARRAY<STRUCT<b: TIMESTAMP>>"
    )
    written = {
        "y": -128,
        "l": 2**63 - 1,
        "f": 1,
        "d": 1.5,
        "o": True,
        "m": 12.5,
        "t": "2026-01-02T04:04:05.678901999+01:00",
        "n": "2026-01-02 03:04:05",
        "day": "2026-01-02",
        "x": "AAE=",
        "s": {"a": 1, "z": 2},
        "r": [{"b": "2026-01-02T03:04:05.678901Z"}, None],
    }
    expected = {
        **written,
        "f": 1.0,
        "m": Decimal("12.50"),
        "t": MOMENT,
        "n": MOMENT.replace(tzinfo=None, microsecond=0),
        "day": MOMENT.date(),
        "x": b"\0\1",
        "s": {"a": 1},
        "r": [{"b": MOMENT}, None],
    }
    content = json.dumps(written).encode()
    whole = from_json(schema, content, None, content)
    one_by_one = from_json(schema, content, b"[]", content)
    assert (whole.array.to_pylist(), dict(whole.refused)) == ([expected, None, expected], {})
    assert (one_by_one.array.to_pylist(), list(one_by_one.refused)) == ([expected, None, expected], [1])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"null and void", "not JSON"),
        (b'{"a":', "not JSON"),
        (b'{"a":1}{"a":2}', "not JSON"),
        (b'{"a":1}\n{"a":2}', "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b'{"a":\xff}', "not UTF-8 at byte 5"),
        (b'{"b":"\xff"}', "not UTF-8 at byte 6"),
        (b'{"a":"x"}', "a: 'x' is no int"),
        (b'{"a":1.5}', "a: '1.5' is no int"),
        (b'{"a":2147483648}', "a: '2147483648' is no int"),
        (b'{"a":99999999999999999999999999}', "is no int"),
        (b'{"a":true}', "a: 'true' is no int"),
        (b"[1]", "the value: '[1]' is no struct<a:int,b:string,s:struct<t:timestamp>>"),
        (b'{"s":{"t":"yesterday"}}', "s.t: 'yesterday' is no timestamp"),
        (b'{"b":"\\ud800"}', "b: '\\ud800' is no string"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"a":' * 100_000, "nested too deep"),
    ],
)
def test_a_bad_record_is_refused_alone_wherever_it_stands(content: bytes, said: str) -> None:
    schema = "a INT, b STRING, s STRUCT<t: TIMESTAMP>"
    good = b'{"a":7}'
    for before in (0, 1, 3):
        made = from_json(schema, *[good] * before, content, *[good] * 2)
        assert list(made.refused) == [before]
        assert said in made.refused[before]
        assert [row and row["a"] for row in made.array.to_pylist()] == [7] * before + [None] + [7, 7]


def test_pieces_of_json_that_would_fit_together_stay_apart() -> None:
    split = [b'{"a":', b"1}", b'{"a":2}{"a":3}']
    assert list(from_json("a INT", *split).refused) == [0, 1, 2]
    nested = [b'{"b":[{}', b"{}]}", b'{"a":2}{"a":3}']
    assert list(from_json("a INT", *nested).refused) == [0, 1, 2]
    in_text = [b'{"b":"}', b'{"b":"}', b'{"a":2} {"a":3}']
    assert list(from_json("a INT", *in_text).refused) == [0, 1, 2]


def test_bad_records_in_many_blocks_are_found_each_in_its_place() -> None:
    count = 2 * ROWS + 3 * FEW_ROWS
    values = [b'{"a":%d}' % row for row in range(count)]
    bad = sorted({0, FEW_ROWS, ROWS - 1, ROWS, count - 1})
    for row in bad:
        values[row] = b"?"
    made = from_json("a INT", *values)
    assert list(made.refused) == bad
    expected = [None if row in bad else row for row in range(count)]
    assert column(made, "a") == expected


def test_where_most_records_are_bad_the_others_are_still_read() -> None:
    made = from_json("a INT", *[b"?", b'{"a":1}'] * (3 * ROWS))
    assert made.array.null_count == len(made.refused) == 3 * ROWS


def test_strings_take_whatever_stands_there_as_it_was_written() -> None:
    values = (
        b'{"a":1.50}',
        b'{"a":[1, {"b":"\\u00e9"}]}',
        b'{"a":true}',
        b'{"a":123456789012345678901234567890}',
    )
    texts = ["1.50", '[1,{"b":"é"}]', "true", "123456789012345678901234567890"]
    assert column(from_json("a STRING", *values), "a") == texts


def test_numbers_follow_spark_where_json_has_no_words_for_them() -> None:
    values = (
        b'{"d":NaN,"m":1}',
        b'{"d":"-INF","m":"2.345"}',
        b'{"d":1e400,"m":-2.345}',
        b'{"d":1,"m":123456}',
    )
    made = from_json("d DOUBLE, m DECIMAL(5,2)", *values)
    assert [str(row and row["d"]) for row in made.array.to_pylist()] == ["nan", "-inf", "inf", "None"]
    assert column(made, "m")[:3] == [Decimal("1.00"), Decimal("2.35"), Decimal("-2.35")]
    assert list(made.refused) == [3]


def test_maps_lists_and_single_values_are_read_too() -> None:
    assert from_json("m MAP<STRING, INT>", b'{"m":{"a":1,"b":null}}').array.to_pylist() == [
        {"m": [("a", 1), ("b", None)]}
    ]
    assert from_json("ARRAY<INT>", b"[1,null]", b"{}").array.to_pylist() == [[1, None], None]
    assert from_json("INT", b"5").array.to_pylist() == [5]


def test_a_schema_id_before_json_is_passed_over() -> None:
    made = from_json("a INT", PREFIX + b'{"a":1}', b'{"a":2}', PREFIX, b"\0")
    assert column(made, "a") == [1, 2, None, None]
    assert list(made.refused) == [2, 3]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["2026-01-02", "2026-01-02T03:04:05Z"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abst"), inner, max_size=3),
    max_leaves=6,
)


@examples(200)
@given(st.lists(JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=8), max_size=6))
def test_whole_blocks_and_single_rows_are_read_alike(values: list[bytes]) -> None:
    kind = nullable(parse_schema("a BIGINT, b DOUBLE, s STRING, t TIMESTAMP"))
    made = decoded(JsonDecoder(kind, may_be_prefixed=False), *values)
    refused: dict[int, str] = {}
    alone = [
        JsonRows(kind).decode(pa.array([value], pa.binary()), row, refused)
        for row, value in enumerate(values)
    ]
    expected = pa.concat_arrays([*alone, pa.array([], kind)])
    assert made.array.is_valid() == expected.is_valid()
    # As Arrow's text, since NaN is not equal to itself, and Python has no years below 1 or above 9999.
    assert list(map(str, made.array.flatten())) == list(map(str, expected.flatten()))
    assert list(made.refused) == list(refused)


# -- Avro ----------------------------------------------------------------------------------------------------

ADDRESS = {
    "type": "record",
    "name": "Address",
    "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": ["null", "int"]}],
}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "exact", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "to", "type": ADDRESS},
        {"name": "from", "type": ["null", "Address"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": ["null", "long"]}},
        {"name": "either", "type": ["int", "long"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
    ],
}
ORDER_ROW = {
    "id": 7,
    "at": MOMENT.replace(microsecond=678000),
    "exact": MOMENT,
    "day": MOMENT.date(),
    "price": Decimal("12.34"),
    "state": "SENT",
    "to": {"city": "Paris", "zip": None},
    "from": {"city": "Rom", "zip": 1},
    "tags": ["a", "b"],
    "counts": {"x": 1, "y": None},
    "either": 5,
    "hash": b"ab",
}


def avro(schema: object, row: object) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)  # type: ignore[arg-type]
    return stream.getvalue()


def avro_decoder(
    schema: object, wanted: pa.DataType | None = None, prefix: SchemaIdPrefix = SchemaIdPrefix.AUTO
) -> AvroDecoder:
    text = json.dumps(schema)
    return AvroDecoder(text, wanted or avro_type(text), prefix)


def test_an_avro_record_is_a_struct_of_the_types_that_from_avro_gives() -> None:
    assert name_of(avro_type(json.dumps(ORDER))) == (
        "struct<id:bigint,at:timestamp,exact:timestamp,day:date,price:decimal(8,2),state:string,to:struct<city:string,zip:int>,"
        "from:struct<city:string,zip:int>,tags:array<string>,counts:map<string,bigint>,either:bigint,hash:binary>"
    )
    made = decoded(avro_decoder(ORDER), avro(ORDER, ORDER_ROW), None)
    assert made.refused == {}
    expected = {**ORDER_ROW, "counts": [("x", 1), ("y", None)]}
    assert made.array.to_pylist() == [expected, None]


def test_fields_left_out_of_the_schema_of_a_read_are_not_there() -> None:
    wanted = parse_schema("at TIMESTAMP, `from` STRUCT<zip: INT>")
    (row,) = decoded(avro_decoder(ORDER, wanted), avro(ORDER, ORDER_ROW)).array.to_pylist()
    assert row == {"at": ORDER_ROW["at"], "from": {"zip": 1}}


def test_avro_with_a_schema_id_is_recognised_and_may_be_demanded_or_denied() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}],
    }
    zero, seven = ({"a": number, "b": "xyz"} for number in (0, 7))
    plain = (avro(schema, zero), avro(schema, seven))
    prefixed = [PREFIX + content for content in plain]
    assert decoded(avro_decoder(schema), *plain, *prefixed).array.to_pylist() == [zero, seven] * 2
    always = decoded(avro_decoder(schema, prefix=SchemaIdPrefix.ALWAYS), *plain, *prefixed)
    assert (list(always.refused), always.array.to_pylist()[2:]) == ([0, 1], [zero, seven])
    assert list(decoded(avro_decoder(schema, prefix=SchemaIdPrefix.NEVER), *plain, *prefixed).refused) == [
        2,
        3,
    ]


@pytest.mark.parametrize(
    "bad", [b"", b"\x0e", b"\xff" * 30, avro(ORDER, ORDER_ROW)[:-1], avro(ORDER, ORDER_ROW) + b"x"]
)
def test_bytes_that_are_not_avro_of_the_schema_are_refused_alone(bad: bytes) -> None:
    good = avro(ORDER, ORDER_ROW)
    made = decoded(avro_decoder(ORDER), good, bad, good)
    assert list(made.refused) == [1]
    assert [row and row["id"] for row in made.array.to_pylist()] == [7, None, 7]


def test_a_time_that_no_timestamp_holds_is_refused_alone() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
    }
    plain = {"type": "record", "name": "R", "fields": [{"name": "t", "type": "long"}]}
    made = decoded(avro_decoder(schema), avro(plain, {"t": 0}), avro(plain, {"t": 2**62}))
    assert list(made.refused) == [1]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "not an Avro schema"),
        ('{"type":"nonsense"}', "'nonsense' is not an Avro type"),
        ('{"type":"array","items":"null"}', "'null' is not an Avro type"),
        ('{"type":"array","items":{"type":"fixed","name":"F","size":0}}', "take no bytes"),
        ('["string","int"]', "a union of 2 types"),
        (
            '{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}',
            "record 'R' is recursive",
        ),
        ('{"type":"record","name":"R","fields":[]}', "no columns"),
        ('{"type":"record","fields":[]}', "without a name"),
    ],
)
def test_a_schema_that_has_no_columns_says_why(schema: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        avro_type(schema)


@examples(100)
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_no_bytes_end_avro_decoding(values: Sequence[bytes]) -> None:
    decoded(avro_decoder(ORDER), *values)
