"""What sparklog takes for granted of Spark's Python data sources, asked of Spark itself: where one of
these changes, the source must too.

That a batch is replayed with the same number and the same ends after the driver died, and a task that
failed is run again as a whole, is seen in `restarts`; that one module `pyspark_*` is found without being
named, in `test_discovery`.
"""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.frames import RUN_S_MAX
from tests.spark.probe import IDLE_CALLS_MAX, Probe, noted
from tests.spark.test_discovery import ASK_WITHOUT_REGISTERING, PROJECT, run

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(Probe)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def numbers(spark: SparkSession, notes: Path, count: int, **options: str) -> DataFrame:
    return spark.readStream.format("probe").options(notes=str(notes), count=str(count), **options).load()


def drained(frame: DataFrame, notes: Path, *, mode: str = "append", **options: str) -> StreamingQuery:
    """Everything there is, into the sink; the query when it has ended."""
    writer = frame.writeStream.format("probe").outputMode(mode).options(notes=str(notes), **options)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(RUN_S_MAX)
    return query


def ends(notes: Path, call: str) -> list[int]:
    return [told["end"] for _, told in noted(notes, call)]


def test_the_start_is_asked_for_twice_and_commits_trail_by_a_batch(
    spark: SparkSession, notes: Path, tmp_path: Path
) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    sink = tmp_path / "sink"
    drained(numbers(spark, notes, 4), sink, checkpointLocation=checkpoint)
    assert [call for call, _ in noted(notes)][:4] == [
        "prepareForTriggerAvailableNow",
        "getDefaultReadLimit",
        "initialOffset",
        "latestOffset",
    ]
    assert len(noted(notes, "initialOffset")) == 2
    assert {told["limit"] for _, told in noted(notes, "latestOffset")} == {"ReadMaxRows"}
    assert [(told["start"], told["end"]) for _, told in noted(notes, "partitions")] == [(0, 2), (2, 4)]
    assert ends(notes, "commit") == [2]  # the last one is not reported before the next run
    notes.unlink()
    drained(numbers(spark, notes, 6), sink, checkpointLocation=checkpoint)
    assert ends(notes, "commit") == [4]
    assert [told["start"] for _, told in noted(notes, "latestOffset")] == [4, 6]


def test_one_offset_in_two_spellings_makes_batches_without_end(
    spark: SparkSession, notes: Path, tmp_path: Path
) -> None:
    seen: list[int] = []
    enough = threading.Event()

    def empty(batch: DataFrame, number: int) -> None:
        seen.append(number)
        if number >= 3:
            enough.set()

    writer = numbers(spark, notes, 2, spelling="both").writeStream.foreachBatch(empty)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        assert enough.wait(RUN_S_MAX)
    finally:
        query.stop()
    assert [(told["start"], told["end"]) for _, told in noted(notes, "partitions")][:4] == [
        (0, 2),
        (2, 2),
        (2, 2),
        (2, 2),
    ]


def test_an_idle_source_is_asked_again_and_again(spark: SparkSession, notes: Path, tmp_path: Path) -> None:
    writer = (
        numbers(spark, notes, 2)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    with pytest.raises(PySparkException, match="asked often enough"):
        writer.start().awaitTermination(RUN_S_MAX)
    assert [told["start"] for _, told in noted(notes, "latestOffset")].count(2) == IDLE_CALLS_MAX


def test_tasks_know_query_run_and_batch_and_the_commit_knows_the_batch_alone(
    spark: SparkSession, notes: Path, tmp_path: Path
) -> None:
    sink = tmp_path / "sink"
    query = drained(numbers(spark, notes, 4), sink, checkpointLocation=str(tmp_path / "checkpoint"))
    written = [told["properties"] for _, told in noted(sink, "write")]
    assert written == [[query.id, batch, query.runId] for batch in ("0", "0", "1", "1")]
    assert noted(sink, "sink commit") == [
        ("sink commit", {"messages": [1, 1], "batch": batch, "has_task": False}) for batch in (0, 1)
    ]


def test_a_sink_hears_of_a_checkpoint_only_where_it_is_its_option(
    spark: SparkSession, notes: Path, tmp_path: Path
) -> None:
    def told(sink: Path, **options: str) -> dict[str, str]:
        drained(numbers(spark, notes, 2), sink, **options)
        return {**dict(noted(sink, "streamWriter")[-1][1]["options"]), "notes": ""}

    at = str(tmp_path / "checkpoint")
    assert told(tmp_path / "one", checkpointLocation=at) == {"notes": "", "checkpointlocation": at}
    setting = "spark.sql.streaming.checkpointLocation"
    spark.conf.set(setting, str(tmp_path / "checkpoints"))
    try:
        assert told(tmp_path / "two", queryName="copy") == {"notes": "", "queryname": "copy"}
    finally:
        spark.conf.unset(setting)


def test_a_commit_that_fails_is_followed_by_an_abort_with_the_same_messages_and_its_reason_is_told(
    spark: SparkSession, notes: Path, tmp_path: Path
) -> None:
    sink = tmp_path / "sink"
    with pytest.raises(PySparkException) as caught:
        drained(
            numbers(spark, notes, 2), sink, checkpointLocation=str(tmp_path / "checkpoint"), fail="commit"
        )
    assert "the commit was refused for a reason" in str(caught.value)
    told = [
        (call, told["messages"], told["batch"]) for call, told in noted(sink, "sink commit", "sink abort")
    ]
    assert told == [("sink commit", [1, 1], 0), ("sink abort", [1, 1], 0)]


def test_a_batch_frame_is_planned_once_and_no_partition_is_one_that_is_none(
    spark: SparkSession, notes: Path
) -> None:
    frame = spark.read.format("probe").options(notes=str(notes)).load()
    assert [frame.count(), frame.count(), frame.where("number > 0").count()] == [1, 1, 1]
    assert noted(notes, "partitions") == [("partitions", {})]
    assert noted(notes, "read") == [("read", {"partition": None})] * 3


def test_output_mode_update_is_refused_and_complete_says_overwrite(
    spark: SparkSession, notes: Path, tmp_path: Path
) -> None:
    counted = numbers(spark, notes, 2).groupBy("number").count()
    with pytest.raises(PySparkException, match=r"does not support Update mode|UNSUPPORTED|update"):
        drained(counted, tmp_path / "update", mode="update", checkpointLocation=str(tmp_path / "1"))
    drained(
        counted.where("number = 0"),
        tmp_path / "complete",
        mode="complete",
        checkpointLocation=str(tmp_path / "2"),
    )
    assert {told["overwrite"] for _, told in noted(tmp_path / "complete", "streamWriter")} == {True}
    # Tasks without a row write as well: a sink must not begin anything before its first row.
    assert sorted(told["rows"] for _, told in noted(tmp_path / "complete", "write")) == [0, 1]


@pytest.mark.parametrize(("mode", "overwrite"), [("append", False), ("overwrite", True)])
def test_a_batch_is_appended_or_overwrites(
    spark: SparkSession, notes: Path, mode: str, overwrite: bool
) -> None:
    spark.range(1).write.format("probe").options(notes=str(notes)).mode(mode).save()
    assert noted(notes, "writer") == [("writer", {"overwrite": overwrite})]
    assert noted(notes, "sink commit")[0][1]["messages"] == [0, 1]


@pytest.mark.parametrize("mode", [None, "error", "ignore"])
def test_a_batch_in_any_other_mode_is_refused(spark: SparkSession, notes: Path, mode: Any) -> None:
    with pytest.raises(PySparkException):
        spark.range(1).write.format("probe").options(notes=str(notes)).mode(mode).save()
    assert noted(notes, "write", "sink commit") == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_one_broken_module_hides_every_source_from_spark(tmp_path: Path) -> None:
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('broken on import')\n")
    paths = os.pathsep.join((str(PROJECT), str(tmp_path)))
    with pytest.raises(AssertionError):
        run(
            sys.executable,
            "-c",
            ASK_WITHOUT_REGISTERING,
            cwd=tmp_path,
            PYTHONPATH=paths,
            PYSPARK_PYTHON=sys.executable,
        )
