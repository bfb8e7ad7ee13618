"""What columns a read has, by its options and by the schema a user gives; and schemas as text. No Spark
session here.
"""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from sparklog.arrow.columns import ArrowColumns
from sparklog.arrow.decoding import Decoding
from sparklog.arrow.formats import ddl
from sparklog.arrow.formats.decoded import UndecodableRecord
from sparklog.arrow.formats.names import Mode
from sparklog.errors import SettingsError
from sparklog.model import Offset, TopicPartition
from sparklog.record.batch import build_batch
from sparklog.spark.options import Options
from sparklog.spark.schema import arrow_schema, check_projection, parts_of, source_schema, with_schemas
from sparklog.spark.types import spark_type

AVRO = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"]}],
    }
)
EVERY_TYPE = (
    "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f DOUBLE, g BOOLEAN, h STRING, i BINARY, j DATE, k "
    "TIMESTAMP, l TIMESTAMP_NTZ,"
    " m DECIMAL(20,3), n ARRAY<INT>, o MAP<STRING, DATE>, p STRUCT<q: ARRAY<TIMESTAMP>, r: STRUCT<s: INT>>"
)


def parse_schema(text: str) -> StructType:
    return spark_type(ddl.parse_schema(text))  # type: ignore[return-value]


def options(**given: str) -> Options:
    needed = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    return with_schemas(Options.parse({**needed, **given}))


def table(given: Options, schema: StructType, *records: tuple[bytes | None, bytes | None]) -> pa.Table:
    batch = build_batch([(key, value, (), 1) for key, value in records], base_offset=10)
    kinds = arrow_schema(schema)
    decoding = Decoding.of(parts_of(given), kinds, is_failfast=given.mode is Mode.FAILFAST)
    columns = ArrowColumns(kinds, TopicPartition("t", 0), decoding=decoding)
    pieces = [piece for piece, _ in columns.record_batches(memoryview(batch), Offset(0), Offset(100))]
    for piece in pieces:
        piece.validate(full=True)
    return pa.Table.from_batches(pieces)


def test_typed_columns_take_the_place_of_key_and_value() -> None:
    given = options(valueFormat="JSON", valueSchema="a INT", keyFormat="string")
    schema = source_schema(given)
    assert schema.simpleString() == (
        "struct<key:string,value:struct<a:int>,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "_corrupt:struct<key:binary,value:binary,reason:string>>"
    )
    rows = (
        table(given, schema, (b"k", b'{"a":1}'), (b"\xff", b"?"), (None, None))
        .select(["key", "value", "offset", "_corrupt"])
        .to_pylist()
    )
    assert rows[0] == {"key": "k", "value": {"a": 1}, "offset": 10, "_corrupt": None}
    reason = "key: not UTF-8 at byte 0; value: not JSON: Expecting value at character 0"
    assert rows[1] == {
        "key": None,
        "value": None,
        "offset": 11,
        "_corrupt": {"key": b"\xff", "value": b"?", "reason": reason},
    }
    assert rows[2] == {"key": None, "value": None, "offset": 12, "_corrupt": None}


def test_only_what_is_wrong_is_kept_in_the_corrupt_column() -> None:
    given = options(valueFormat="json", valueSchema="a INT", keyFormat="string")
    (row,) = table(given, source_schema(given), (b"k", b"?")).select(["key", "_corrupt"]).to_pylist()
    assert (row["key"], row["_corrupt"]["key"], row["_corrupt"]["value"]) == ("k", None, b"?")


def test_failfast_names_the_record_and_has_no_corrupt_column() -> None:
    given = options(valueFormat="json", valueSchema="a INT", mode="failfast")
    assert "_corrupt" not in source_schema(given).names
    for columns in (source_schema(given), StructType([source_schema(given)["value"]])):
        with pytest.raises(
            UndecodableRecord,
            match=r"the value of offset 11 in t-0 cannot be decoded: not JSON.*mode=permissive",
        ):
            table(given, columns, (None, b"{}"), (None, b"?"))


def test_a_schema_may_choose_corrupt_alone_and_the_value_is_decoded_for_it() -> None:
    given = options(valueFormat="avro", valueSchema=AVRO)
    schema = StructType([source_schema(given)["_corrupt"]])
    assert [
        row["_corrupt"] is None
        for row in table(given, schema, (None, b"\x02\x00"), (None, b"\x02")).to_pylist()
    ] == [True, False]


def test_the_schema_of_the_read_serves_as_that_of_json() -> None:
    given = options(valueFormat="json")
    with pytest.raises(SettingsError, match="set 'valueSchema', or the schema of the read"):
        source_schema(given)
    schema = StructType(
        [StructField("value", StructType([StructField("b", LongType())])), StructField("offset", LongType())]
    )
    assert table(given, check_projection(schema, given), (None, b'{"a":[],"b":3}')).to_pylist() == [
        {"value": {"b": 3}, "offset": 10}
    ]


def test_a_schema_of_the_read_chooses_fields_of_a_struct() -> None:
    given = options(valueFormat="avro", valueSchema=AVRO)
    schema = check_projection(StructType([StructField("value", parse_schema("b STRING"))]), given)
    assert table(given, schema, (None, b"\x02\x02\x02x")).to_pylist() == [{"value": {"b": "x"}}]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            "c STRING",
            "column 'value' of a sparklog read is struct<a:bigint,b:string>, not struct<c:string>: choose "
            "among its fields",
        ),
        ("a INT", "not struct<a:int>"),
        ("a BIGINT NOT NULL", "cannot say NOT NULL"),
        ("STRING", "not string"),
        ("a BIGINT, a BIGINT", "a field is named twice"),
        ("STRUCT<>", "without fields"),
    ],
)
def test_a_schema_of_the_read_that_the_records_do_not_have_is_refused(value: str, said: str) -> None:
    given = options(valueFormat="avro", valueSchema=AVRO)
    with pytest.raises(SettingsError) as refused:
        check_projection(StructType([StructField("value", parse_schema(value))]), given)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"valueFormat": "xml"}, "must be one of binary, string, json, avro, protobuf"),
        (
            {"valueSchema": "a INT"},
            "'valueSchema' needs 'valueFormat' to be json, avro or protobuf, not binary",
        ),
        ({"valueFormat": "avro"}, "needs 'valueSchema'"),
        ({"keyFormat": "protobuf", "keySchema": "CgA="}, "needs 'keyMessage'"),
        (
            {"valueFormat": "json", "valueSchema": "a INT", "valueMessage": "M"},
            "'valueMessage' needs 'valueFormat' to be protobuf",
        ),
        ({"mode": "failfast"}, "set valueFormat or keyFormat"),
        (
            {"valueFormat": "json", "valueSchema": "a NONSENSE"},
            "option 'valueSchema': 'NONSENSE' is not a type",
        ),
        (
            {"valueFormat": "json", "valueSchema": "m MAP<INT, INT>"},
            "option 'valueSchema': map<int,int>: keys of JSON are strings",
        ),
        (
            {"valueFormat": "avro", "valueSchema": "/no/such/file.avsc"},
            "neither a schema nor a file that can be read",
        ),
        (
            {"valueFormat": "protobuf", "valueSchema": "/no/such/file", "valueMessage": "M"},
            "neither a schema nor a file",
        ),
    ],
)
def test_options_that_say_too_little_or_two_things_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        source_schema(options(**given))
    assert said in str(refused.value)


def test_a_schema_file_is_read_where_the_query_is_planned(tmp_path: Path) -> None:
    file = tmp_path / "r.avsc"
    file.write_text(AVRO)
    given = options(valueFormat="avro", valueSchema=str(file))
    file.unlink()
    assert source_schema(given)["value"].dataType.simpleString() == "struct<a:bigint,b:string>"


def test_ddl_knows_every_type_and_arrow_has_the_types_that_spark_compares_with() -> None:
    schema = parse_schema(EVERY_TYPE)
    assert isinstance(schema, StructType)
    assert arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"))
    assert parse_schema(schema.json()) == schema
    assert schema["m"].dataType == DecimalType(20, 3)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("INT", IntegerType()),
        ("array<map<string,int>>", ArrayType(MapType(StringType(), IntegerType()))),
        (
            "`a b` INT NOT NULL COMMENT 'it''s', int: STRING",
            StructType([StructField("a b", IntegerType(), False), StructField("int", StringType())]),
        ),
        ('"array<int>"', ArrayType(IntegerType())),
        ("struct<>", StructType()),
    ],
)
def test_a_schema_is_columns_or_one_type(text: str, kind: object) -> None:
    assert parse_schema(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a INT,",
        "a INT b INT",
        "ARRAY<INT",
        "ARRAY<INT>>",
        "MAP<INT>",
        "DECIMAL(39,1)",
        "a INT NOT",
        "{}",
        "array<" * 200,
        "$",
    ],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_schema(text)
