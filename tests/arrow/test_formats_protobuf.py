"""Protobuf messages as columns, by descriptor sets made here. No Spark session."""

from base64 import b64encode
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory, timestamp_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from sparklog.arrow.formats.ddl import parse_schema
from sparklog.arrow.formats.decoded import Decoded
from sparklog.arrow.formats.names import SchemaIdPrefix
from sparklog.arrow.formats.protobuf import ProtobufDecoder, message_descriptor, protobuf_type
from sparklog.arrow.formats.types import name_of
from sparklog.record.schema_id import message_indexes
from tests.properties import examples

F = descriptor_pb2.FieldDescriptorProto
PREFIX = b"\0\0\0\0\x2a"


def field(
    name: str, number: int, kind: int, *, repeated: bool = False, type_name: str | None = None, **more: Any
) -> descriptor_pb2.FieldDescriptorProto:
    label = F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL
    return F(name=name, number=number, type=kind, label=label, type_name=type_name, **more)  # type: ignore[arg-type]


def descriptors() -> str:
    """File shop.proto: a message Other, an Order with one field of each sort, a recursive Node."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    file.message_type.add(name="Other").field.extend([field("a", 1, F.TYPE_INT32)])
    order = file.message_type.add(name="Order")
    order.enum_type.add(name="State").value.extend(
        [
            descriptor_pb2.EnumValueDescriptorProto(name=name, number=number)
            for number, name in enumerate(("NEW", "SENT"))
        ]
    )
    order.nested_type.add(name="Line").field.extend(
        [field("item", 1, F.TYPE_STRING), field("count", 2, F.TYPE_UINT32)]
    )
    entry = order.nested_type.add(name="StockEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    entry.field.extend(
        [field("key", 1, F.TYPE_STRING), field("value", 2, F.TYPE_MESSAGE, type_name=".shop.Order.Line")]
    )
    order.oneof_decl.add(name="_note")
    order.field.extend(
        [
            field("id", 1, F.TYPE_INT64),
            field("huge", 2, F.TYPE_UINT64),
            field("state", 3, F.TYPE_ENUM, type_name=".shop.Order.State"),
            field("first", 4, F.TYPE_MESSAGE, type_name=".shop.Order.Line"),
            field("lines", 5, F.TYPE_MESSAGE, repeated=True, type_name=".shop.Order.Line"),
            field("stock", 6, F.TYPE_MESSAGE, repeated=True, type_name=".shop.Order.StockEntry"),
            field("at", 7, F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp"),
            field("rate", 8, F.TYPE_MESSAGE, type_name=".google.protobuf.DoubleValue"),
            field("raw", 9, F.TYPE_BYTES),
            field("note", 10, F.TYPE_STRING, oneof_index=0, proto3_optional=True),
            field("scores", 11, F.TYPE_FLOAT, repeated=True),
        ]
    )
    file.message_type.add(name="Node").field.extend(
        [field("name", 1, F.TYPE_STRING), field("next", 2, F.TYPE_MESSAGE, type_name=".shop.Node")]
    )
    known = []
    for module in (timestamp_pb2, wrappers_pb2):
        copied = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(copied)
        known.append(copied)
    return b64encode(descriptor_pb2.FileDescriptorSet(file=[*known, file]).SerializeToString()).decode()


SET = descriptors()
ORDER = message_descriptor(SET, "shop.Order")


def order(**fields: Any) -> bytes:
    content: bytes = message_factory.GetMessageClass(ORDER)(**fields).SerializeToString()
    return content


def decoded(
    *values: bytes | None, wanted: str | None = None, prefix: SchemaIdPrefix = SchemaIdPrefix.AUTO
) -> Decoded:
    kind = protobuf_type(ORDER) if wanted is None else parse_schema(wanted)
    made = ProtobufDecoder(ORDER, kind, prefix).decode(pa.array(values, pa.binary()))
    made.array.validate(full=True)
    return made


def test_a_message_is_a_struct_of_its_fields() -> None:
    assert name_of(protobuf_type(ORDER)) == (
        "struct<id:bigint,huge:decimal(20,0),state:string,first:struct<item:string,count:bigint>,lines:array<struct<item:string,count:bigint>>,"
        "stock:map<string,struct<item:string,count:bigint>>,at:timestamp,rate:double,raw:binary,note:string,scores:array<float>>"
    )
    made = decoded(
        order(
            id=-1,
            huge=2**64 - 1,
            state=1,
            first={"item": "a", "count": 2**32 - 1},
            lines=[{"item": "b"}],
            stock={"x": {"count": 3}},
            at={"seconds": 5, "nanos": 678_901_999},
            rate={"value": 0.5},
            raw=b"\xff",
            note="",
            scores=[1.5],
        ),
        None,
    )
    full, null = made.array.to_pylist()
    assert null is None
    assert full.pop("at").timestamp() == 5.678901
    assert full == {
        "id": -1,
        "huge": Decimal(2**64 - 1),
        "state": "SENT",
        "first": {"item": "a", "count": 2**32 - 1},
        "lines": [{"item": "b", "count": 0}],
        "stock": [("x", {"item": "", "count": 3})],
        "rate": 0.5,
        "raw": b"\xff",
        "note": "",
        "scores": [1.5],
    }


def test_what_was_not_set_is_null_where_the_schema_can_tell_and_the_default_elsewhere() -> None:
    (row,) = decoded(b"").array.to_pylist()
    assert row == {
        **{"id": 0, "huge": Decimal(0), "state": "NEW", "lines": [], "stock": [], "raw": b"", "scores": []},
        **{"first": None, "at": None, "rate": None, "note": None},
    }


def test_an_enum_number_without_a_name_is_told_as_a_number() -> None:
    assert decoded(order(state=9), wanted="state STRING").array.to_pylist() == [{"state": "9"}]


def test_fields_left_out_of_the_schema_of_a_read_are_not_there() -> None:
    made = decoded(order(id=1, first={"item": "a"}), wanted="first STRUCT<item: STRING>")
    assert made.array.to_pylist() == [{"first": {"item": "a"}}]


def test_a_message_that_holds_itself_is_read_as_deep_as_a_schema_asks() -> None:
    node = message_descriptor(SET, "Node")
    with pytest.raises(ValueError, match="is recursive"):
        protobuf_type(node)
    wanted = parse_schema("name STRING, next STRUCT<name: STRING>")
    assert protobuf_type(node, wanted) == wanted
    content = message_factory.GetMessageClass(node)(
        name="a", next={"name": "b", "next": {"name": "c"}}
    ).SerializeToString()
    made = ProtobufDecoder(node, wanted, SchemaIdPrefix.AUTO).decode(pa.array([content]))
    assert made.array.to_pylist() == [{"name": "a", "next": {"name": "b"}}]


def test_a_schema_id_and_the_path_of_the_message_are_passed_over_if_they_are_of_this_message() -> None:
    made = decoded(
        order(id=1),
        PREFIX + b"\x02\x02" + order(id=2),
        PREFIX + b"\0" + order(id=3),
        PREFIX + b"\xff" * 6,
        wanted="id BIGINT",
    )
    assert [row and row["id"] for row in made.array.to_pylist()] == [1, 2, None, None]
    assert "names message [0] of its file, not [1]" in made.refused[2]
    assert "do not end" in made.refused[3]
    assert list(decoded(order(id=1), prefix=SchemaIdPrefix.ALWAYS).refused) == [0]
    assert list(decoded(PREFIX + b"\x02\x02" + order(id=1), prefix=SchemaIdPrefix.NEVER).refused) == [0]
    assert message_indexes(PREFIX + b"\x04\x02\x00rest") == ((1, 0), 8)


def test_bytes_that_are_no_message_and_times_beyond_all_columns_are_refused_alone() -> None:
    late = order(at={"seconds": 2**60})
    made = decoded(order(id=1), b"\xff\xff", late, order(id=4))
    assert list(made.refused) == [1, 2]
    assert [row and row["id"] for row in made.array.to_pylist()] == [1, None, None, 4]


def test_a_message_is_named_fully_or_by_its_last_part_and_must_be_one() -> None:
    assert message_descriptor(SET, "Line").full_name == "shop.Order.Line"
    with pytest.raises(ValueError, match=r"'None' is none of .*shop\.Order"):
        message_descriptor(SET, "None")
    with pytest.raises(ValueError, match="not a descriptor set"):
        message_descriptor("AAAA", "Order")


@examples(100)
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_no_bytes_end_protobuf_decoding(values: list[bytes]) -> None:
    assert len(decoded(*values).array) == len(values)
