"""The demo's promise: a flight that is missing or doubled anywhere is noticed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparklog
from examples import flights as demo
from tests.spark.frames import texts, write
from tests.tools import PROJECT

pytestmark = pytest.mark.spark

HOURS = '{"origin":"JFK","hour":"2013-01-01T10:00:00.000Z","flights":%d,"cancelled":0,"mean_delay":1.0,"worst_delay":2.0}'  # noqa: E501


def test_a_missing_and_a_doubled_flight_end_the_demo(spark: SparkSession) -> None:
    with sparklog.embedded() as broker:
        servers = broker.bootstrap_servers
        with sparklog.Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({"flights": 1, "delays": 1})
        sparklog.register(spark)
        hours = spark.createDataFrame([("JFK 10", HOURS % 3)], "key STRING, value STRING")
        write(hours, servers, "delays")
        write(texts(spark, ['{"id":0}', '{"id":1}']), servers, "flights")
        delays = demo.latest_delays(spark, servers)
        with pytest.raises(demo.FlightsLost, match="of 3 flights the topic holds 2 records of 2 flights"):
            demo.count_back(spark, servers, 3, delays)
        write(texts(spark, ['{"id":2}']), servers, "flights")
        demo.count_back(spark, servers, 3, delays)
        write(texts(spark, ['{"id":2}']), servers, "flights")
        with pytest.raises(demo.FlightsLost, match="holds 4 records of 3 flights"):
            demo.count_back(spark, servers, 3, delays)


JOB = """
import sys
from pathlib import Path
from examples import flights
flights.OUTPUT = Path(sys.argv[1])
flights.run(sys.argv[2], [int(pid) for pid in sys.argv[3].split(",")], flights.read_package_flights())
"""
"""The job of the demo in a directory, with the brokers at an address, by their processes."""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_demo_counts_every_flight_back_with_three_nodes(tmp_path: Path) -> None:
    with sparklog.embedded(nodes=3) as cluster:
        done = subprocess.run(
            [
                *(sys.executable, "-c", JOB, str(tmp_path), cluster.bootstrap_servers),
                ",".join(map(str, cluster.pids)),
            ],
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
            timeout=290,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "none missing, none doubled" in (tmp_path / "flights.html").read_text()
    assert "the writer was killed" in done.stdout
