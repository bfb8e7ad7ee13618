"""`consume --value-format`: values as JSON, from JSON, Avro and Protobuf, also by a schema registry."""

import io
import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog import AvroSerializer, ProtobufSerializer, SchemaRegistry
from sparklog.client.consumer.consumer import ConsumerRecord
from sparklog.serializers.protobuf import file_set
from sparklog_server.cli.produce import NewRecord, new_record
from sparklog_server.cli.value_formats import Values, values_of
from sparklog_server.operations.json_records import json_text
from tests.cli.conftest import Tell
from tests.serializers.schema_registry import Registry, messages, running

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


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running() as stub:
        yield stub


def test_values_are_decoded_by_the_schemas_that_a_registry_has(
    tell: Tell, topic: str, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = SchemaRegistry(registry.url)
    other = {**SCHEMA, "fields": SCHEMA["fields"][1:]}
    written = [
        AvroSerializer(json.dumps(SCHEMA), client, subject="a")({"carrier": "UA", "delay": 3}),
        AvroSerializer(json.dumps(other), client, subject="a")({"delay": None}),
        b"\0\0\0\0\x09\x02",
        b"\x06UA\0",
    ]
    tell("topics", "create", topic)
    tell("produce", topic, "--from-json", stdin="".join(in_base64(value or b"") for value in written * 2))
    options = ("--value-format", "avro", "--schema-registry", registry.url)
    printed = tell("consume", topic, *READ, *options, "--json")
    told = [json.loads(line) for line in printed.out.splitlines()]
    assert [one["value"] for one in told[:2]] == [{"carrier": "UA", "delay": 3}, {"delay": None}]
    assert "HTTP 404, Schema not found" in told[2]["value_error"]
    assert told[3]["value_error"].startswith("no schema id precedes the value")
    assert (printed.code, len(told)) == (1, 8)
    by_id = [path for method, path, _ in registry.asked if method == "GET"]
    assert by_id == ["/schemas/ids/1", "/schemas/ids/2", "/schemas/ids/9"]  # each once
    monkeypatch.setenv("SPARKLOG_SCHEMA_REGISTRY", registry.url)
    assert tell("consume", topic, *READ, *options[:2], "--json").out == printed.out
    # A registry that does not answer ends the command.
    registry.fixed["/schemas/ids/1"] = (503, b"")
    ended = tell("consume", topic, *READ, *options)
    assert (ended.code, ended.out) == (1, "")
    assert f"the schema registry refuses {registry.url}/schemas/ids/1: HTTP 503" in ended.err


def test_messages_are_decoded_by_the_files_that_a_registry_has(
    tell: Tell, topic: str, registry: Registry
) -> None:
    client = SchemaRegistry(registry.url)
    order, line = messages()
    value = order(text="é", base={"text": "b"})
    written = (
        ProtobufSerializer(order, client, subject="o")(value),
        ProtobufSerializer(line, client, subject="o")(line(text="l")),
        b"\0\0\0\0\2\x02\x08",  # the fifth message of a file with two
    )
    tell("topics", "create", topic)
    tell("produce", topic, "--from-json", stdin="".join(in_base64(value or b"") for value in written))
    options = ("--value-format", "protobuf", "--schema-registry", registry.url)
    printed = tell("consume", topic, *READ, *options, "--json")
    told = [json.loads(line) for line in printed.out.splitlines()]
    assert [one["value"] for one in told[:2]] == [{"text": "é", "base": {"text": "b"}}, {"text": "l"}]
    assert told[2]["value_error"] == "the schema has no message [4]"
    registry.fixed["/schemas/ids/2?format=serialized"] = (200, b'{"schema": "syntax = \\"proto3\\";"}')
    assert "the schema with id 2 is AVRO, not PROTOBUF" in tell("consume", topic, *READ, *options).err
    text = b'{"schema": "syntax = \\"proto3\\";", "schemaType": "PROTOBUF"}'
    registry.fixed["/schemas/ids/2?format=serialized"] = (200, text)
    assert "does not tell the schema with id 2 as a descriptor" in tell("consume", topic, *READ, *options).err
    # Files that Google's library does not have.
    for imported in ("google/protobuf/none.proto", "google/protobuf/../x.proto"):
        file = descriptor_pb2.FileDescriptorProto(name="x.proto", dependency=[imported])
        registry.fixed["/schemas/ids/2?format=serialized"] = (
            200,
            json.dumps(
                {"schema": b64encode(file.SerializeToString()).decode(), "schemaType": "PROTOBUF"}
            ).encode(),
        )
        refused = tell("consume", topic, *READ, *options).err
        assert f"{imported}, which Google's library does not have" in refused


@pytest.mark.parametrize(
    ("format_", "library"), [("avro", "fastavro"), ("protobuf", "google.protobuf.message")]
)
@pytest.mark.parametrize("schema", [("--schema", __file__), ("--schema-registry", "http://localhost:1")])
def test_a_missing_library_ends_the_command(
    tell: Tell, monkeypatch: pytest.MonkeyPatch, format_: str, library: str, schema: tuple[str, str]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    message = ("--message", "m") if (format_, schema[0]) == ("protobuf", "--schema") else ()
    ended = tell("consume", "t", "--value-format", format_, *schema, *message)
    assert (ended.code, ended.out) == (2, "")
    assert "pip install 'sparklog[formats]'" in ended.err


def test_a_file_that_imports_itself_ends(registry: Registry) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", dependency=["x.proto"])
    registry.register(
        "x.proto",
        {
            "schema": b64encode(file.SerializeToString()).decode(),
            "schemaType": "PROTOBUF",
            "references": [{"name": "x.proto", "subject": "x.proto", "version": 1}],
        },
    )
    client = SchemaRegistry(registry.url)
    assert [one.name for one in file_set(client, 1).file] == ["x.proto", "x.proto"]


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
        ("--schema-registry", "http://localhost:1"),
        ("--value-format", "json", "--schema-registry", "http://localhost:1"),
        ("--value-format", "avro", "--schema", __file__, "--schema-registry", "http://localhost:1"),
        ("--value-format", "protobuf", "--message", "m", "--schema-registry", "http://localhost:1"),
        ("--value-format", "avro", "--schema-registry", "localhost:1"),
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
