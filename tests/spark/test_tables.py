"""What a table of Spark's catalog remembers of the options it was made with. No Spark session here."""

import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from sparklog.errors import SettingsError
from sparklog.spark.source import SparklogSource, SparklogSourceWithoutTables
from sparklog.spark.tables import METADATA, of_use, table_options

AT = {"kafka.bootstrap.servers": "127.0.0.1:1"}


def made(**options: str) -> StructType:
    """The schema of a table made with these OPTIONS: Spark gives them twice, among the properties of the
    table.
    """
    given = {**AT, **options}
    properties = {"provider": "sparklog", "owner": "me", "color": "blue"}
    return SparklogSource(
        {**given, **{f"option.{key}": value for key, value in given.items()}, **properties}
    ).schema()


def test_a_table_remembers_its_options_and_not_its_properties() -> None:
    schema = made(Subscribe="t")
    assert of_use({}, schema) == {**AT, "subscribe": "t"}
    assert {column.name for column in schema.fields if column.metadata} == {"value"}


def test_a_frame_that_is_loaded_carries_no_options() -> None:
    assert not any(column.metadata for column in SparklogSource({**AT, "subscribe": "t"}).schema().fields)


def test_a_use_overrules_what_answers_the_same_question() -> None:
    schema = made(subscribe="t", startingTimestamp="1", topic="t")
    assert of_use({"assign": '{"t":[0]}', "startingOffsets": "-10m"}, schema) == {
        **AT,
        "topic": "t",
        "assign": '{"t":[0]}',
        "startingOffsets": "-10m",
    }


def test_a_use_that_names_the_brokers_says_everything() -> None:
    assert of_use({"Kafka.Bootstrap.Servers": "b:1"}, made(subscribe="t", topic="t")) == {
        "Kafka.Bootstrap.Servers": "b:1"
    }


def test_an_unknown_option_is_refused_where_the_table_is_made() -> None:
    with pytest.raises(SettingsError, match="did you mean 'subscribe'"):
        made(subscribed="t")


@pytest.mark.parametrize(
    "key", ["kafka.sasl.jaas.config", "kafka.ssl.key.password", "kafka.ssl.keystore.key"]
)
def test_a_secret_is_not_kept_where_anybody_may_read_it(key: str) -> None:
    with pytest.raises(SettingsError, match=f"{key}.*cannot be kept in a table"):
        made(subscribe="t", **{key: "hidden"})


def test_a_use_without_brokers_is_told_where_to_write_them() -> None:
    with_columns = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
    for use in (
        SparklogSource({"topic": "t"}).reader,
        lambda schema: SparklogSource({}).writer(schema, overwrite=False),
    ):
        with pytest.raises(SettingsError, match=r"created without columns.*FROM name WITH \(…\)"):
            use(with_columns)


def test_a_stream_that_writes_takes_nothing_from_the_table_its_rows_are_from() -> None:
    with pytest.raises(SettingsError, match="a stream that writes into a table does not read them"):
        SparklogSource({}).streamWriter(made(subscribe="t", topic="t"), overwrite=False)


def test_beside_a_catalog_that_cannot_read_it_no_table_is_made() -> None:
    given = {
        **AT,
        "subscribe": "t",
        **{f"option.{key}": value for key, value in {**AT, "subscribe": "t"}.items()},
    }
    with pytest.raises(
        SettingsError,
        match="cannot read a table of a data source in Python: use a view, CREATE TEMPORARY VIEW",
    ):
        SparklogSourceWithoutTables(given).schema()
    assert "value" in SparklogSourceWithoutTables({**AT, "subscribe": "t"}).schema().names


def test_a_column_that_was_given_other_metadata_is_no_memory() -> None:
    schema = StructType([StructField("value", StringType(), metadata={"comment": METADATA})])
    assert of_use({"topic": "t"}, schema) == {"topic": "t"}
    assert table_options({"topic": "t"}) == {}
