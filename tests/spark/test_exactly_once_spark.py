"""Exactly once on a real Spark: the batches of a stream, and writes of foreachBatch that are run again."""

import os
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparklog.client.decision_log import DecisionLog
from sparklog.client.decisions import sink_name
from sparklog.client.settings import ClientSettings
from tests.spark.conftest import MakeTopic
from tests.spark.sinks import committed

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    import sparklog

    sparklog.register(spark)


def write_numbers(spark: SparkSession, servers: str, topic: str, numbers: range) -> None:
    frame = spark.range(numbers.start, numbers.stop).selectExpr("CAST(id AS STRING) AS value")
    frame.write.format("sparklog").option("kafka.bootstrap.servers", servers).option("topic", topic).mode(
        "append"
    ).save()


def stream(spark: SparkSession, servers: str, topic: str, *, rows_at_a_time: int) -> DataFrame:
    reader = (
        spark.readStream.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
    )
    return (
        reader.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows_at_a_time)
        .load()
        .select("value")
    )


def test_a_stream_of_three_batches_lands_as_a_whole_and_goes_on_after_a_restart(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(2), make_topic(2)
    for numbers in (range(60), range(60, 80)):
        write_numbers(spark, servers, source, numbers)
        writer = stream(spark, servers, source, rows_at_a_time=20).writeStream.format("sparklog")
        writer = (
            writer.option("kafka.bootstrap.servers", servers)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "ck"))
        )
        writer.trigger(availableNow=True).start().awaitTermination()
        assert sorted(map(int, committed(servers, target))) == list(range(numbers.stop))
    with DecisionLog(ClientSettings.from_kafka({"bootstrap.servers": servers})) as log:
        last = log.last(sink_name(str(tmp_path / "ck")))
    assert last is not None
    assert (last.decision.batch, last.is_finished) == (3, True)


def test_a_write_of_foreach_batch_that_is_run_again_is_dropped(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(), make_topic(2)
    write_numbers(spark, servers, source, range(40))
    app = f"app-{os.getpid()}"

    def write(frame: DataFrame, batch: int) -> None:
        writer = (
            frame.write.format("sparklog").option("kafka.bootstrap.servers", servers).option("topic", target)
        )
        writer.option("txnAppId", app).option("txnVersion", batch).mode("append").save()

    for checkpoint in ("first", "again"):
        writer = stream(spark, servers, source, rows_at_a_time=20).writeStream.foreachBatch(write)
        query = (
            writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        )
        query.awaitTermination()
        assert sorted(map(int, committed(servers, target))) == list(range(40))
