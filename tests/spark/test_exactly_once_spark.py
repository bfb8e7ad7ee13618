"""Exactly once on a real Spark: the batches of a stream, and writes of foreachBatch that are run again."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from sparklog.client.exactly_once.decision_log import DecisionLog
from sparklog.client.exactly_once.decisions import sink_name
from sparklog.client.settings import ClientSettings
from sparklog.spark.connections import query_of_checkpoint
from tests.spark.checkpoints import Copying, walk
from tests.spark.conftest import MakeTopic
from tests.spark.sinks import committed
from tests.tools import PROJECT, require_command

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
        last = log.last(sink_name(query_of_checkpoint(str(tmp_path / "ck"))))
    assert last is not None
    assert (last.decision.batch, last.decision.record_count, last.is_finished) == (3, 20, True)
    assert len(last.decision.runs) == 2


def test_a_batch_counts_once_however_the_path_of_its_checkpoint_is_spelled(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    walk(Copying(spark, servers, make_topic(), make_topic(2)), tmp_path)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_batch_counts_once_in_a_connect_session(
    servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    require_command("java")
    pytest.importorskip("grpc_status", reason="needs pyspark[connect]")
    walk_in_process("connect", servers, make_topic(), make_topic(2), tmp_path)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_batch_counts_once_on_a_standalone_cluster(
    servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    require_command("java")
    with standalone_cluster(tmp_path) as master:
        walk_in_process(master, servers, make_topic(), make_topic(2), tmp_path)


def walk_in_process(master: str, servers: str, source: str, target: str, directory: Path) -> None:
    (directory / "walk").mkdir()
    command = ["-m", "tests.spark.checkpoints", master, servers, source, target, str(directory / "walk")]
    done = subprocess.run(
        [sys.executable, *command], cwd=PROJECT, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert done.stdout.splitlines()[-2:] == ["moved", "copy"]


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """A Spark master and one worker, as processes of their own; gives the master's address."""
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROJECT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    deploy, at = "org.apache.spark.deploy", ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    log = directory / "cluster.log"
    children: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        with log.open("ab") as into:
            children.append(
                subprocess.Popen([spark_class, *arguments], stdout=into, stderr=into, env=environment)
            )
        return children[-1]

    def told(pattern: str, by: subprocess.Popen[bytes]) -> str:
        deadline = time.monotonic() + 120
        while (found := re.search(pattern, log.read_text())) is None:
            assert time.monotonic() < deadline, log.read_text()
            with suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"ended with {by.wait(0.1)}: {log.read_text()}")
        return found.group()

    try:
        master = told(r"spark://127\.0\.0\.1:\d+", start(f"{deploy}.master.Master", *at))
        worker = start(f"{deploy}.worker.Worker", *at, "--cores", "2", "--memory", "1g", master)
        told("Successfully registered with master", worker)
        yield master
    finally:
        for child in reversed(children):
            child.terminate()
        for child in children:
            child.wait(60)


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
