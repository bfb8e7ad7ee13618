"""Streams through Spark: every record once, across stops and starts."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparklog import Admin
from tests.spark.conftest import MakeTopic
from tests.spark.frames import RUN_S_MAX, Collected, read, run_to_end, stream, texts, write

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    import sparklog

    sparklog.register(spark)


def test_a_stream_reads_what_is_there_and_goes_on_where_it_stopped(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, collected = make_topic(), Collected()
    write(texts(spark, ["a", "b"]), servers, topic)
    run_to_end(stream(spark, servers, topic), tmp_path, collected)
    assert collected.batches == {0: ["a", "b"]}
    write(texts(spark, ["c"]), servers, topic)
    run_to_end(stream(spark, servers, topic), tmp_path, collected)
    assert collected.batches == {0: ["a", "b"], 1: ["c"]}


def test_a_crash_in_the_first_batch_is_replayed_with_the_same_records(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, collected = make_topic(), Collected()
    write(texts(spark, ["a", "b", "c"]), servers, topic)

    def crash(batch: DataFrame, number: int) -> None:
        raise RuntimeError("the power went out")

    with pytest.raises(PySparkException):
        run_to_end(stream(spark, servers, topic), tmp_path, crash)
    write(texts(spark, ["d"]), servers, topic)
    # The start of batch 0 is not stored: Spark asks for the initial offset again, and "latest" is beyond the
    # batch by now.
    run_to_end(stream(spark, servers, topic, startingOffsets="latest"), tmp_path, collected)
    assert collected.batches == {0: ["a", "b", "c"], 1: ["d"]}


def test_available_now_ends_with_partitions_added_before_each_run(
    spark: SparkSession, servers: str, admin: Admin, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, collected = make_topic(), Collected()
    write(texts(spark, ["a"]), servers, topic)
    run_to_end(stream(spark, servers, topic), tmp_path, collected)
    admin.create_partitions({topic: 3})
    write(spark.createDataFrame([("b", 2)], "value STRING, partition INT"), servers, topic)
    run_to_end(stream(spark, servers, topic, startingOffsets="latest"), tmp_path, collected)
    assert collected.values == ["a", "b"]


def test_available_now_does_not_read_what_comes_later(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, collected = make_topic(), Collected()
    write(texts(spark, ["a", "b"]), servers, topic)

    def and_write_more(batch: DataFrame, number: int) -> None:
        collected(batch, number)
        write(texts(spark, ["later"]), servers, topic)

    run_to_end(stream(spark, servers, topic, maxOffsetsPerTrigger=1), tmp_path, and_write_more)
    assert collected.batches == {0: ["a"], 1: ["b"]}


def test_a_limit_per_trigger_is_kept_and_shared_by_backlog(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, collected = make_topic(2), Collected()
    frame = spark.range(30).selectExpr("CAST(id AS STRING) AS value", "CAST(id % 3 = 0 AS INT) AS partition")
    write(frame.coalesce(1), servers, topic)
    run_to_end(stream(spark, servers, topic, maxOffsetsPerTrigger=12), tmp_path, collected)
    assert [len(collected.batches[number]) for number in sorted(collected.batches)] == [12, 12, 6]
    assert sorted(map(int, collected.values)) == list(range(30))


def test_an_idle_stream_makes_no_batches(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, collected = make_topic(), Collected()
    write(texts(spark, ["a"]), servers, topic)
    query = (
        stream(spark, servers, topic)
        .writeStream.foreachBatch(collected)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        write(texts(spark, ["b"]), servers, topic)
        query.processAllAvailable()
        assert collected.batches == {0: ["a"], 1: ["b"]}
        stored = json.loads((tmp_path / "offsets" / "1").read_text().splitlines()[-1])
        assert len(stored.pop("ids")[topic]) == 22
        assert stored == {"from": {topic: {"0": 0}}, "off": {topic: {"0": 2}}, "v": 2}
    finally:
        query.stop()


def test_a_run_once_takes_everything_in_one_batch_and_a_trigger_by_time_goes_on(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, collected = make_topic(), Collected()
    write(texts(spark, ["a", "b", "c"]), servers, topic)

    def start(**trigger: Any) -> StreamingQuery:
        source = stream(spark, servers, topic, maxOffsetsPerTrigger=2)
        writer = source.writeStream.foreachBatch(collected).option("checkpointLocation", str(tmp_path))
        return writer.trigger(**trigger).start()

    assert start(once=True).awaitTermination(RUN_S_MAX)
    assert collected.batches == {0: ["a", "b", "c"]}
    write(texts(spark, ["d", "e", "f"]), servers, topic)
    query = start(processingTime="50 milliseconds")
    try:
        query.processAllAvailable()
        assert collected.batches == {0: ["a", "b", "c"], 1: ["d", "e"], 2: ["f"]}
    finally:
        query.stop()


def test_a_union_with_an_idle_topic_ends_and_is_awake(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    busy, idle, collected = make_topic(), make_topic(), Collected()
    source = stream(spark, servers, busy).unionByName(stream(spark, servers, idle))
    query = source.writeStream.foreachBatch(collected).option("checkpointLocation", str(tmp_path)).start()
    try:
        for number, value in enumerate(["a", "b"]):
            write(texts(spark, [value]), servers, busy)
            query.processAllAvailable()
            assert collected.batches[number] == [value]
    finally:
        query.stop()


def test_records_go_from_topic_to_topic_once(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(2), make_topic(2)
    write(
        spark.range(100).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value"),
        servers,
        source,
    )
    for _ in range(2):
        records = stream(spark, servers, source, maxOffsetsPerTrigger=40).select("key", "value")
        writer = (
            records.writeStream.format("sparklog")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", target)
        )
        query = (
            writer.option("checkpointLocation", str(tmp_path))
            .queryName("copy")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(RUN_S_MAX)
    assert sorted(int(bytes(row.value)) for row in read(spark, servers, target).collect()) == list(range(100))


def made_anew(spark: SparkSession, servers: str, admin: Admin, topic: str) -> None:
    admin.delete_topics([topic])
    admin.create_topics({topic: 1})
    write(texts(spark, ["new"]), servers, topic)


def test_records_that_are_gone_end_the_query_with_the_remedy(
    spark: SparkSession, servers: str, admin: Admin, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, collected = make_topic(), Collected()
    write(texts(spark, ["a", "b"]), servers, topic)
    run_to_end(stream(spark, servers, topic), tmp_path, collected)
    made_anew(spark, servers, admin, topic)
    with pytest.raises(PySparkException) as caught:
        run_to_end(stream(spark, servers, topic), tmp_path, collected)
    assert f"topic '{topic}' was deleted and recreated; {topic}-0 was read up to offset 2 before" in str(
        caught.value
    )
    assert "failOnDataLoss" in str(caught.value)
    run_to_end(stream(spark, servers, topic, failOnDataLoss="false"), tmp_path, collected)
    assert collected.values == ["a", "b", "new"]


def store_instead(checkpoint: Path, batch: int, offset: object) -> None:
    """Another end of a micro-batch in the checkpoint."""
    stored = checkpoint / "offsets" / str(batch)
    lines = stored.read_text().splitlines()
    stored.write_text("\n".join([*lines[:-1], json.dumps(offset)]))
    (checkpoint / "offsets" / f".{batch}.crc").unlink(missing_ok=True)


def test_a_checkpoint_of_sparks_kafka_connector_is_carried_on(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, collected = make_topic(), Collected()
    write(texts(spark, ["a", "b"]), servers, topic)
    run_to_end(stream(spark, servers, topic), tmp_path, Collected())
    store_instead(tmp_path, 0, {topic: {"0": 1}})
    run_to_end(stream(spark, servers, topic), tmp_path, collected)
    assert collected.values == ["b"]


def test_a_checkpoint_of_another_source_is_refused(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    write(texts(spark, ["a"]), servers, topic)
    run_to_end(stream(spark, servers, topic), tmp_path, Collected())
    store_instead(tmp_path, 0, {"v": 0, "files": 7})
    with pytest.raises(PySparkException) as caught:
        run_to_end(stream(spark, servers, topic), tmp_path, Collected())
    assert "an offset that sparklog did not write" in str(caught.value)


def test_a_stream_refuses_an_end(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException) as caught:
        run_to_end(stream(spark, servers, make_topic(), endingOffsets="latest"), tmp_path, Collected())
    assert "availableNow=True" in str(caught.value)
