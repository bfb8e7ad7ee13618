"""A stream of Spark between topics of three nodes: brokers are killed meanwhile, and every row lands once."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparklog
from sparklog import Admin
from tests.spark.sinks import committed
from tests.spark.test_exactly_once_spark import stream, write_numbers

pytestmark = pytest.mark.spark
_ROWS, _AT_A_TIME = 400, 40


def test_brokers_are_killed_under_a_stream_and_every_row_lands_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    sparklog.register(spark)
    with sparklog.embedded(nodes=3) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({"source": 3, "target": 3})
        write_numbers(spark, servers, "source", range(_ROWS))
        is_over = threading.Event()

        def kill() -> None:
            """Kill one node after the other; the supervisor starts it again."""
            for node in (0, 1, 2):
                if is_over.wait(3):
                    return
                os.kill(cluster.pids[node], signal.SIGKILL)
                time.sleep(2)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
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
            killer.join()
        finally:
            is_over.set()
        write_numbers(spark, servers, "source", range(_ROWS, _ROWS + 20))
        assert sorted(map(int, committed(servers, "target"))) == list(range(_ROWS))
