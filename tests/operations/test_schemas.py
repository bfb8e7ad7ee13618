"""Values by the schemas of `--schema`."""

import io
import json
from pathlib import Path

import fastavro
import pytest
from google.protobuf import descriptor_pb2, wrappers_pb2

from sparklog.errors import SettingsError
from sparklog_server.operations.schemas import BYTES_MAX, schemas

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "delay", "type": "int"}, {"name": "raw", "type": "bytes"}],
}


@pytest.fixture
def avro(tmp_path: Path) -> str:
    (tmp_path / "flight.avsc").write_text(json.dumps(FLIGHT))
    return f"flights={tmp_path / 'flight.avsc'}"


@pytest.fixture
def protobuf(tmp_path: Path) -> str:
    file = descriptor_pb2.FileDescriptorProto()
    wrappers_pb2.DESCRIPTOR.CopyToProto(file)
    (tmp_path / "all.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return f"flights={tmp_path / 'all.desc'}:google.protobuf.StringValue"


def flight() -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(FLIGHT), {"delay": 16, "raw": b"\xff"})
    return stream.getvalue()


@pytest.mark.parametrize("prefix", [b"", b"\0\0\0\0\x07"])
def test_avro_is_shown_as_json_with_and_without_the_prefix_of_a_registry(avro: str, prefix: bytes) -> None:
    form, text = schemas([avro])["flights"](prefix + flight())
    assert (form, json.loads(text)) == ("avro", {"delay": 16, "raw": "ff"})


@pytest.mark.parametrize("prefix", [b"", b"\0\0\0\0\x07\x00", b"\0\0\0\0\x07\x04\x02\x00"])
def test_protobuf_is_shown_as_json_with_and_without_the_prefix_of_a_registry(
    protobuf: str, prefix: bytes
) -> None:
    content = wrappers_pb2.StringValue(value="late").SerializeToString()
    assert schemas([protobuf])["flights"](prefix + content) == ("protobuf", '"late"')


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 20, flight() + b"more", b"x" * (BYTES_MAX + 1), b"\0\0\0\0\1"]
)
def test_bytes_that_do_not_fit_avro_are_refused(avro: str, content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        schemas([avro])["flights"](content)


@pytest.mark.parametrize(
    "content", [b"\xff" * 20, b"\0\0\0\0\7\xff\xff\xff\xff\xff\xff", b"x" * (BYTES_MAX + 1)]
)
def test_bytes_that_do_not_fit_protobuf_are_refused(protobuf: str, content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        schemas([protobuf])["flights"](content)


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "array", "items": "null"}',
        '{"type":"array","items":{"type":"fixed","name":"n","size":0}}',
        "{",
        '{"type": "what"}',
    ],
)
def test_a_schema_that_is_none_or_has_endless_arrays_is_refused(tmp_path: Path, schema: str) -> None:
    (tmp_path / "bad.avsc").write_text(schema)
    with pytest.raises(SettingsError, match="--schema"):
        schemas([f"t={tmp_path / 'bad.avsc'}"])


@pytest.mark.parametrize("assignment", ["t", "=file", "t=", "t=/nowhere/at/all.avsc"])
def test_an_assignment_that_names_no_file_is_refused(assignment: str) -> None:
    with pytest.raises(SettingsError, match="--schema"):
        schemas([assignment])


def test_a_descriptor_set_without_the_message_is_refused(protobuf: str) -> None:
    with pytest.raises(SettingsError, match=r"google\.protobuf\.Nothing"):
        schemas([protobuf.replace("StringValue", "Nothing")])
