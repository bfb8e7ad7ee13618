"""The type of JSON values from a sample."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.arrow.formats.ddl import parse_schema
from sparklog.arrow.formats.json_text import JsonDecoder
from sparklog.arrow.formats.types import ddl_of, name_of
from sparklog.arrow.inference import inferred_type
from tests.properties import examples


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([b'{"a":1}', b'{"a":null,"b":[true]}'], "struct<a:bigint,b:array<boolean>>"),
        ([b'{"a":1}', b'{"a":1.5}'], "struct<a:double>"),
        ([b'{"a":1}', b'{"a":"x"}'], "struct<a:string>"),
        ([b'{"a":{}}', b'{"a":{"b":2}}', None, b"?"], "struct<a:struct<b:bigint>>"),
        ([b'{"a":null,"b":{},"c":[]}'], "struct<a:string,b:string,c:array<string>>"),
        ([b"1", b"[1]"], "string"),
        ([b'{"a":9223372036854775808}'], "struct<a:double>"),
        ([b'{"":1,"a":2}'], "struct<a:bigint>"),
    ],
)
def test_values_share_a_type(values: list[bytes | None], expected: str) -> None:
    kind = inferred_type(values)
    assert kind is not None
    assert name_of(kind) == expected


def test_without_json_there_is_no_type() -> None:
    assert inferred_type([b"?", None, b"\xff", b"null"]) is None


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=4)
json_values = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.text(max_size=3), json_values, max_size=3), min_size=1, max_size=5))
@examples(30)
def test_a_sample_is_read_in_the_type_that_it_has(objects: list[dict[str, object]]) -> None:
    values = [json.dumps(one).encode() for one in objects]
    kind = inferred_type(values)
    assert kind is not None
    assert parse_schema(ddl_of(kind)) == kind
    made = JsonDecoder(kind, may_be_prefixed=False).decode(pa.array(values, pa.binary()))
    assert dict(made.refused) == {}
