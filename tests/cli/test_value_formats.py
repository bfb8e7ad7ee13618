"""`consume --value-format`: values as JSON, from JSON, Avro and Protobuf."""

import io
import json
from pathlib import Path

import fastavro
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog.client.consumer import ConsumerRecord
from sparklog_server.cli.options import json_text
from sparklog_server.cli.produce import NewRecord, new_record
from sparklog_server.cli.value_formats import Values, values_of
from tests.cli.conftest import Tell

SCHEMA = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "int"]}],
}
READ = ("--from", "beginning", "-e")
PREFIX = b"\0\0\0\0\7"
NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def in_base64(content: bytes) -> str:
    return json_text({"value": content})


def test_values_of_json_are_printed_as_json(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    values = (b'{"a": [1,\n 2.5]}', PREFIX + b'"x"', b"null")
    tell("produce", topic, "--from-json", stdin="".join(map(in_base64, values)) + '{"value": null}\n')
    printed = tell("consume", topic, *READ, "--value-format", "json")
    assert (printed.code, printed.out) == (0, '{"a": [1, 2.5]}\n"x"\nnull\n\n')
    lines = tell("consume", topic, *READ, "--value-format", "json", "--json").out
    told = [json.loads(line) for line in lines.splitlines()]
    assert [(one["value"], one.get("value_format")) for one in told] == [
        ({"a": [1, 2.5]}, "json"),
        ("x", "json"),
        (None, "json"),
        (None, None),
    ]


def test_what_cannot_be_decoded_is_printed_as_it_is(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    tell("produce", topic, stdin=b"{\n1\n\xff\n")
    printed = tell("consume", topic, *READ, "--value-format", "json", "--json")
    told = [json.loads(line) for line in printed.out.splitlines()]
    assert [one["value"] for one in told] == ["{", 1, {"base64": "/w=="}]
    assert ["value_error" in one for one in told] == [True, False, True]
    assert printed.code == 1
    assert printed.err.splitlines()[0].startswith(f"sparklog: {topic}-0 at offset 0: not JSON: ")
    assert printed.err.splitlines()[2:] == ["read 3 records", "sparklog: 2 values could not be decoded"]


def test_values_of_avro_are_printed_as_json(tell: Tell, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "flight.avsc"
    file.write_text(json.dumps(SCHEMA))
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, SCHEMA, {"carrier": "UA", "delay": None})
    tell("topics", "create", topic)
    values = (stream.getvalue(), PREFIX + stream.getvalue())
    tell("produce", topic, "--from-json", stdin="".join(map(in_base64, values)))
    printed = tell("consume", topic, *READ, "--value-format", "avro", "--schema", str(file), "-f", "%s|")
    assert printed.out == '{"carrier": "UA", "delay": null}|' * 2
    lines = tell("consume", topic, *READ, "--value-format", "avro", "--schema", str(file), "--json").out
    refused = tell("produce", topic, "--from-json", stdin=lines)
    assert "its value is decoded from avro" in refused.err


def test_values_of_protobuf_are_printed_as_json(tell: Tell, topic: str, tmp_path: Path) -> None:
    described = descriptor_pb2.FileDescriptorProto(name="flight.proto", package="air")
    file = tmp_path / "flight.desc"
    field = described.message_type.add(name="Flight").field.add(name="delay", number=1)
    field.type, field.label = field.TYPE_INT32, field.LABEL_OPTIONAL
    file.write_bytes(descriptor_pb2.FileDescriptorSet(file=[described]).SerializeToString())
    tell("topics", "create", topic)
    tell("produce", topic, "--from-json", stdin=in_base64(b"\x08\x2a"))
    options = ("--value-format", "protobuf", "--schema", str(file), "--message", "air.Flight")
    printed = tell("consume", topic, *READ, *options)
    assert (printed.code, printed.out) == (0, '{"delay": 42}\n')


@pytest.mark.parametrize(
    "options",
    [
        ("--value-format", "avro"),
        ("--value-format", "xml"),
        ("--value-format", "json", "--schema", __file__),
        ("--value-format", "protobuf", "--schema", __file__),
        ("--value-format", "avro", "--schema", __file__, "--message", "m"),
        ("--value-format", "avro", "--schema", __file__),
        ("--schema", __file__),
        ("--message", "m"),
    ],
)
def test_options_that_do_not_fit_are_refused(tell: Tell, options: tuple[str, ...]) -> None:
    refused = tell("consume", "t", *options)
    assert (refused.code, refused.out) == (2, "")


@given(NESTED | st.fixed_dictionaries({"base64": st.text(max_size=8)}))
def test_a_decoded_value_keeps_its_meaning_in_a_line(value: object) -> None:
    values = values_of("json", None, None)
    assert isinstance(values, Values)
    record = ConsumerRecord("t", 0, 0, 0, None, json.dumps(value).encode(), ())
    decoded, reason = values.of(record)
    assert reason is None
    line = json_text({"value": decoded, "value_format": "json"}).encode()
    written = new_record(line, 1, NewRecord(None, None, (), None, None), keeps_partition=False)
    assert written.value is not None
    assert json.loads(written.value) == value


@given(st.binary(max_size=30))
@example(b'"\\ud800"')
@example(b"1e999")
@example(b"[" * 100_000)
def test_any_bytes_are_decoded_or_refused(content: bytes) -> None:
    values = values_of("json", None, None)
    assert isinstance(values, Values)
    value, reason = values.of(ConsumerRecord("t", 0, 0, 0, None, content, ()))
    assert reason is None or value == content
    json_text({"value": value}).encode()
