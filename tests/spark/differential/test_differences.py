"""Differences between the two formats, on purpose or because Spark lets a Python source do no more; each
with its reason.
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from tests.spark.differential.conftest import FIRST_MS, Bench, Sent
from tests.spark.differential.programs import Refused, Side, new_name, outcomes, rows_of
from tests.spark.differential.test_batch_reads import ranges

pytestmark = [pytest.mark.spark, pytest.mark.compat, pytest.mark.long, pytest.mark.timeout(300)]


def test_a_misspelt_option_is_refused_by_ours_since_ignoring_it_would_read_the_wrong_records(
    bench: Bench, records: str
) -> None:
    def program(side: Side) -> object:
        return len(rows_of(side.read(subscribe=records, startingOffset="latest")))

    outcome = outcomes(program, bench.spark, bench.servers, bench.directory)
    assert outcome["kafka"] == 15
    assert isinstance(outcome["sparklog"], Refused)
    assert "did you mean" in outcome["sparklog"].text


def test_a_schema_is_a_choice_of_columns_for_ours_since_spark_tells_a_python_source_no_other_way(
    bench: Bench, records: str
) -> None:
    def program(side: Side) -> object:
        reader = side.spark.read.format(side.format).schema("value BINARY, offset LONG")
        return (
            reader.option("kafka.bootstrap.servers", side.servers).option("subscribe", records).load().columns
        )

    outcome = outcomes(program, bench.spark, bench.servers, bench.directory)
    assert isinstance(outcome["kafka"], Refused)
    assert outcome["sparklog"] == ["value", "offset"]


def test_a_timestamp_column_is_the_records_time_for_ours_and_left_out_by_the_other(bench: Bench) -> None:
    told = datetime.fromtimestamp(FIRST_MS / 1000, UTC)

    def program(side: Side) -> object:
        topic = bench.topic()
        side.write(
            side.spark.createDataFrame([("v", told)], "value STRING, timestamp TIMESTAMP"), topic=topic
        )
        return side.read(subscribe=topic).selectExpr("unix_millis(timestamp)").first()[0] == FIRST_MS

    assert outcomes(program, bench.spark, bench.servers, bench.directory) == {
        "kafka": False,
        "sparklog": True,
    }


def test_a_null_topic_is_told_with_its_row_by_ours(bench: Bench) -> None:
    def program(side: Side) -> object:
        side.write(
            side.spark.createDataFrame([("v", "t"), ("w", None)], "value STRING, topic STRING").coalesce(1)
        )
        return None

    outcome = outcomes(program, bench.spark, bench.servers, bench.directory)
    assert isinstance(outcome["sparklog"], Refused)
    assert "row 1" in outcome["sparklog"].text


def test_a_batch_write_without_a_mode_is_refused_by_spark_for_every_python_source(bench: Bench) -> None:
    topic = bench.topic()

    def program(side: Side) -> object:
        side.write(side.spark.createDataFrame([("v",)], "value STRING"), mode=None, topic=topic)
        return "written"

    outcome = outcomes(program, bench.spark, bench.servers, bench.directory)
    assert outcome["kafka"] == "written"
    assert isinstance(outcome["sparklog"], Refused)
    assert "Append" in outcome["sparklog"].text


def test_update_mode_is_refused_by_spark_for_every_python_sink_and_foreach_batch_takes_its_place(
    bench: Bench, records: str
) -> None:
    def counts(side: Side) -> object:
        source = side.stream(subscribe=records, startingOffsets="earliest")
        return (
            source.groupBy("partition")
            .count()
            .selectExpr("CAST(partition AS STRING) AS key", "CAST(count AS STRING) AS value")
        )

    def update(side: Side) -> object:
        side.run_into_topic(counts(side), new_name("update"), mode="update", topic=bench.topic())  # type: ignore[arg-type]
        return "written"

    def by_batches(side: Side) -> object:
        topic = bench.topic()
        writer = (
            counts(side)
            .writeStream.outputMode("update")
            .foreachBatch(lambda batch, _: side.write(batch, topic=topic))
        )  # type: ignore[attr-defined]
        side.run(writer, new_name("batches"))
        return sorted((row.key, row.value) for row in side.read(subscribe=topic).collect())

    outcome = outcomes(update, bench.spark, bench.servers, bench.directory)
    assert outcome["kafka"] == "written"
    assert isinstance(outcome["sparklog"], Refused)
    assert len(bench.alike(by_batches)) == 2  # type: ignore[arg-type]


def test_an_end_of_a_stream_by_timestamp_is_refused_by_ours_and_overlooked_by_the_other(
    bench: Bench, records: str
) -> None:
    def program(side: Side) -> object:
        return len(
            side.batches(side.stream(subscribe=records, startingOffsets="earliest", endingTimestamp="1"))[0]
        )

    outcome = outcomes(program, bench.spark, bench.servers, bench.directory)
    assert outcome["kafka"] == 15
    assert isinstance(outcome["sparklog"], Refused)


def test_a_topic_made_anew_is_told_by_its_id_by_ours_and_read_on_in_the_middle_by_the_other(
    bench: Bench,
) -> None:
    def program(side: Side) -> object:
        topic = bench.topic(Sent(b"old"))
        options = {"subscribe": topic, "startingOffsets": "earliest"}
        side.batches(side.stream(**options))
        bench.admin.delete_topics([topic])
        bench.topic(Sent(b"0"), Sent(b"1"), name=topic)
        return [row[1:] for batch in side.batches(side.stream(**options)) for row in batch]

    outcome = outcomes(program, bench.spark, bench.servers, bench.directory)
    assert outcome["kafka"] == [(0, 1)]
    assert isinstance(outcome["sparklog"], Refused)
    assert "was deleted and recreated" in outcome["sparklog"].text


def test_records_for_each_task_of_a_batch_are_limited_by_ours_and_by_the_other_only_beside_tasks_at_least(
    bench: Bench, records: str
) -> None:
    def program(side: Side) -> object:
        return sorted(map(len, ranges(side.read(subscribe=records, maxRecordsPerPartition="3"))))

    outcome = outcomes(program, bench.spark, bench.servers, bench.directory)
    assert outcome == {"kafka": [5, 10], "sparklog": [2, 2, 2, 3, 3, 3]}


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": '{"$":"earliest"}', "endingOffsets": '{"$":"latest"}'},
        {"startingOffsetsByTimestamp": f'{{"$":{FIRST_MS}}}', "startingOffsetsByTimestampStrategy": "latest"},
    ],
    ids=["offsets", "timestamps"],
)
def test_a_place_may_be_told_of_a_whole_topic_for_ours(
    bench: Bench, records: str, options: dict[str, str]
) -> None:
    told = {name: value.replace("$", records) for name, value in options.items()}
    outcome = outcomes(
        lambda side: len(rows_of(side.read(subscribe=records, **told))),
        bench.spark,
        bench.servers,
        bench.directory,
    )
    assert isinstance(outcome["kafka"], Refused)
    assert outcome["sparklog"] == 15


def test_rows_are_inserted_by_sql_into_ours_and_the_other_has_no_sink_there(bench: Bench) -> None:
    def program(side: Side) -> object:
        topic, view = bench.topic(), f"into_{side.format}"
        options = f"`kafka.bootstrap.servers` '{side.servers}', subscribe '{topic}', topic '{topic}'"
        side.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING {side.format} OPTIONS ({options})")
        side.spark.sql(
            f"INSERT INTO {view} (key, value) SELECT CAST('k' AS BINARY), CAST(CAST(id AS STRING) AS BINARY) "
            f"FROM range(3)"
        )
        return side.read(subscribe=topic).count()

    outcome = outcomes(program, bench.spark, bench.servers, bench.directory)
    assert isinstance(outcome["kafka"], Refused)
    assert outcome["sparklog"] == 3


def test_a_header_without_a_name_is_refused_by_both_and_told_as_such_by_ours(bench: Bench) -> None:
    def program(side: Side) -> object:
        headers = "array(named_struct('key', CAST(NULL AS STRING), 'value', X'00')) AS headers"
        side.write(side.spark.range(1).selectExpr("'a' AS value", headers), topic=bench.topic())
        return "written"

    outcome = outcomes(program, bench.spark, bench.servers, bench.directory)
    assert isinstance(outcome["kafka"], Refused)  # a NullPointerException
    assert isinstance(outcome["sparklog"], Refused)
    assert "header" in outcome["sparklog"].text


def test_offsets_of_ours_say_more_than_the_other_understands(bench: Bench, tmp_path: Path) -> None:
    topic = bench.topic(Sent(b"a"))
    ours, kafka = (Side(bench.spark, name, bench.servers, tmp_path) for name in ("sparklog", "kafka"))
    ours.batches(ours.stream(subscribe=topic, startingOffsets="earliest"))
    bench.fill(topic, [Sent(b"b")])
    with pytest.raises(PySparkException):
        kafka.batches(kafka.stream(subscribe=topic, startingOffsets="earliest"))
