"""Spark and topics of three nodes: brokers are killed meanwhile, and every row lands once."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparklog
from sparklog import Admin
from tests.spark.sinks import committed
from tests.spark.test_exactly_once_spark import stream, write_numbers

pytestmark = pytest.mark.spark
_ROWS, _AT_A_TIME = 400, 40


@contextmanager
def killed_in_turn(pids: Sequence[int]) -> Iterator[threading.Event]:
    """Kill one node after the other while the block runs; the supervisor starts each again. The event is set
    once all were killed.
    """
    is_over, were_all = threading.Event(), threading.Event()

    def kill() -> None:
        for node in (0, 1, 2):
            if is_over.wait(3):
                return
            os.kill(pids[node], signal.SIGKILL)
            time.sleep(2)
        were_all.set()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield were_all
    finally:
        is_over.set()
        killer.join()


def test_a_stream_under_killed_brokers_lands_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    sparklog.register(spark)
    with sparklog.embedded(nodes=3) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({"source": 3, "target": 3})
        write_numbers(spark, servers, "source", range(_ROWS))
        with killed_in_turn(cluster.pids):
            writer = stream(spark, servers, "source", rows_at_a_time=_AT_A_TIME).writeStream.format(
                "sparklog"
            )
            query = (
                writer.option("kafka.bootstrap.servers", servers)
                .option("topic", "target")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        write_numbers(spark, servers, "source", range(_ROWS, _ROWS + 20))
        assert sorted(map(int, committed(servers, "target"))) == list(range(_ROWS))


def test_batch_writes_and_reads_under_killed_brokers_find_every_row_once(spark: SparkSession) -> None:
    """A batch write is at least once: a task that Spark runs again would repeat its rows. None is, since the
    producer and the reader ride through each failover.
    """
    sparklog.register(spark)
    with sparklog.embedded(nodes=3) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({"target": 3})
        reader = spark.read.format("sparklog").option("kafka.bootstrap.servers", servers)
        written = 0
        with killed_in_turn(cluster.pids) as were_all:
            while not were_all.is_set():
                write_numbers(spark, servers, "target", range(written, written + _ROWS))
                written += _ROWS
                rows = reader.option("subscribe", "target").load().select("value").collect()
                assert sorted(int(row.value) for row in rows) == list(range(written))
