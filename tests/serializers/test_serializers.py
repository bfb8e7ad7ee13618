"""Serializers of JSON, Avro and Protobuf, alone and with a schema registry of ours over HTTP."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparklog
from sparklog import (
    AvroDeserializer,
    AvroSerializer,
    Consumer,
    DecodeError,
    JsonDeserializer,
    JsonSerializer,
    Producer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Record,
    RegistryError,
    SchemaRegistry,
    SettingsError,
    TopicPartition,
)
from sparklog.record.schema_id import message_indexes, prefix_of, schema_id_of
from tests.properties import examples
from tests.serializers.schema_registry import Registry, messages, running

FLIGHT = '{"type":"record","name":"Flight","fields":[{"name":"delay","type":"int"}]}'
WIDER = (
    '{"type":"record","name":"Flight","fields":[{"name":"delay","type":"long"},'
    '{"name":"carrier","type":"string","default":"?"}]}'
)


@dataclass
class Order:
    number: int
    paid: bool = False


@pytest.fixture
def stub() -> Iterator[Registry]:
    with running() as registry:
        yield registry


@pytest.fixture
def registry(stub: Registry) -> SchemaRegistry:
    return SchemaRegistry(stub.url, timeout_ms=5000)


def test_json_is_read_as_it_was_written_and_nothing_stays_nothing() -> None:
    serialize, deserialize = JsonSerializer(Order), JsonDeserializer(Order)
    assert serialize(Order(1)) == b'{"number":1,"paid":false}'
    assert deserialize(b'{"number":1}') == Order(1)
    assert (serialize(None), deserialize(None)) == (None, None)
    for content in (b"", b"[]", b'{"number":"x"}', b'{"number":1}x', b"\xff", b"[" * 100_000):
        with pytest.raises(DecodeError, match="not JSON of this type"):
            deserialize(content)


def test_json_with_a_registry_follows_the_id_of_its_schema(stub: Registry, registry: SchemaRegistry) -> None:
    serialize = JsonSerializer(Order, registry, subject="orders-value")
    assert serialize(Order(2, True)) == b'\0\0\0\0\1{"number":2,"paid":true}'
    assert JsonDeserializer(Order)(serialize(Order(2, True))) == Order(2, True)
    assert stub.schemas[0]["schemaType"] == "JSON"


def test_avro_alone_is_read_as_it_was_written() -> None:
    serialize, deserialize = AvroSerializer(FLIGHT), AvroDeserializer(FLIGHT)
    content = serialize({"delay": 16})
    assert (content, deserialize(content)) == (b"\x20", {"delay": 16})
    assert (serialize(None), deserialize(None)) == (None, None)
    for broken in (b"", b"\x20\x20", b"\xff" * 20):
        with pytest.raises(DecodeError, match="not Avro of the schema"):
            deserialize(broken)
    with pytest.raises((TypeError, ValueError)):
        serialize({"delay": "late"})


def test_avro_with_a_registry_is_resolved_from_the_schema_of_its_writer(
    stub: Registry, registry: SchemaRegistry
) -> None:
    serialize = AvroSerializer(FLIGHT, registry, subject="flights/eu-value")
    content = serialize({"delay": 16})
    assert content == b"\0\0\0\0\1\x20"
    assert list(stub.subjects) == ["flights/eu-value"]
    deserialize = AvroDeserializer(WIDER, registry)
    assert [deserialize(content), deserialize(content)] == [{"delay": 16, "carrier": "?"}] * 2
    assert AvroDeserializer(registry=registry)(content) == {"delay": 16}
    asked = [path for _, path, _ in stub.asked]
    assert asked == ["/subjects/flights%2Feu-value/versions", "/schemas/ids/1"]  # each once
    with pytest.raises(DecodeError, match="no schema id"):
        deserialize(b"\x20")
    with pytest.raises(RegistryError, match=r"/schemas/ids/9: HTTP 404, Schema not found"):
        deserialize(b"\0\0\0\0\x09\x20")


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        '{"type":"what"}',
        '{"type":"array","items":"null"}',
        '{"type":"array","items":{"type":"record","name":"E","fields":[]}}',
        '{"type":"record","name":"R","fields":[{"name":"e","type":{"type":"fixed","name":"N","size":0}},'
        '{"name":"many","type":{"type":"array","items":"N"}}]}',
    ],
)
def test_a_schema_that_is_none_or_has_endless_arrays_is_refused(schema: str) -> None:
    with pytest.raises(SettingsError, match="not an Avro schema"):
        AvroDeserializer(schema)


def test_a_schema_that_the_registry_refuses_or_lacks_is_told_with_its_reason(
    registry: SchemaRegistry,
) -> None:
    bad = FLIGHT.replace("Flight", "incompatible")
    with pytest.raises(RegistryError, match="HTTP 409, Schema being registered is incompatible"):
        AvroSerializer(bad, registry, subject="s")
    with pytest.raises(RegistryError, match="HTTP 404, Schema not found"):
        AvroSerializer(FLIGHT, registry, subject="s", when_unknown="fail")
    with pytest.raises(SettingsError, match="set subject"):
        AvroSerializer(FLIGHT, registry)
    with pytest.raises(SettingsError, match="a schema or a registry"):
        AvroDeserializer()


def test_protobuf_follows_the_path_of_its_message_and_registers_its_imports(
    stub: Registry, registry: SchemaRegistry
) -> None:
    order, line = messages()
    serialize = ProtobufSerializer(order, registry, subject="orders-value")
    content = serialize(order(text="a"))
    assert content == b"\0\0\0\0\2" + b"\x02\x02" + order(text="a").SerializeToString()
    assert ProtobufDeserializer(order)(content) == order(text="a")
    assert stub.schemas[1]["references"] == [{"name": "base.proto", "subject": "base.proto", "version": 1}]
    within = ProtobufSerializer(line, registry, subject="orders-value")(line(text="b"))
    assert within is not None
    assert within[:8] == b"\0\0\0\0\2" + b"\x04\x02\x00"
    with pytest.raises(DecodeError, match=r"the prefix names message \[1, 0\] of its file, not \[1\]"):
        ProtobufDeserializer(order)(within)


def test_protobuf_alone_is_read_as_it_was_written() -> None:
    order, _ = messages()
    serialize, deserialize = ProtobufSerializer(order), ProtobufDeserializer(order)
    assert deserialize(serialize(order(text="a"))) == order(text="a")
    assert (serialize(None), deserialize(None)) == (None, None)
    for broken in (b"\xff" * 20, b"\0\0\0\0\7\xff\xff\xff\xff\xff\xff"):
        with pytest.raises(DecodeError, match=r"not a t\.Order"):
            deserialize(broken)


@given(st.integers(0, 2**31 - 1), st.lists(st.integers(0, 2**20), min_size=1, max_size=64))
@examples(50)
def test_a_prefix_is_read_as_it_was_written(schema_id: int, indexes: list[int]) -> None:
    content = prefix_of(schema_id, indexes)
    assert schema_id_of(content) == schema_id
    assert message_indexes(content + b"x") == (tuple(indexes), len(content))


# -- the registry's client -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"nonsense", "its reply is not JSON"),
        (200, b"[]", "not an object"),
        (200, b"{}", "tells no schema for id 1"),
        (200, b'{"schema":"' + b"x" * (5 << 20) + b'"}', "more than"),
        (302, b"", "HTTP 302"),
        (503, b"", "HTTP 503"),
        (401, b'{"message":"who are you"}', "HTTP 401, who are you"),
    ],
)
def test_an_answer_that_is_none_is_refused(
    stub: Registry, registry: SchemaRegistry, status: int, body: bytes, said: str
) -> None:
    stub.fixed["/schemas/ids/1"] = (status, body)
    with pytest.raises(RegistryError, match=said):
        registry.by_id(1)


def test_the_next_address_is_asked_where_one_does_not_answer(stub: Registry) -> None:
    registry = SchemaRegistry(["http://127.0.0.1:1", stub.url], username="u", password="p")
    assert registry.register("s", FLIGHT, "AVRO") == 1
    assert stub.asked[0][2] == "Basic dTpw"
    with pytest.raises(RegistryError, match=r"does not answer http://127\.0\.0\.1:1/"):
        SchemaRegistry("http://127.0.0.1:1").by_id(1)


@pytest.mark.parametrize(
    ("url", "given", "said"),
    [
        ("localhost:8081", {}, "is not the URL"),
        ("http://u:secret@localhost", {}, "has no credentials"),
        ("http://registry:8081", {"token": "t"}, "only to an URL of https"),
        ("http://localhost", {"token": "t", "username": "u"}, "exclude each other"),
        ("https://localhost", {"ca_file": "/nowhere"}, "no certificates in PEM"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(url: str, given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as refused:
        SchemaRegistry(url, **given)  # type: ignore[arg-type]
    assert "secret" not in str(refused.value)


def test_a_producer_and_a_consumer_keep_the_types_of_ready_serializers() -> None:
    with sparklog.embedded() as broker:
        servers = broker.bootstrap_servers
        with Producer(bootstrap_servers=servers, value_serializer=JsonSerializer(Order)) as producer:
            producer.send("orders", Order(1)).result(20)
            producer.send("orders", None).result(20)
        with Consumer(bootstrap_servers=servers, value_deserializer=JsonDeserializer(Order)) as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            consumer.seek_to_beginning()
            records = consumer.poll(20_000)
            while len(records) < 2:
                records += consumer.poll(20_000)
    assert_type(records, list[Record[bytes | None, Order | None]])
    assert [record.value for record in records] == [Order(1), None]
