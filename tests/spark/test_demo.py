"""The demo with Spark: what the table is counted by, and the whole of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog_server.demo import spark_job
from sparklog_server.demo.flights import Total, flights
from sparklog_server.demo.spark import Hour
from tests.tools import PROJECT

pytestmark = pytest.mark.spark


def test_a_missing_and_a_doubled_flight_are_counted(spark: SparkSession) -> None:
    rows = [(one.id, one.hour, one.airport, one.delay) for one in flights(limit=3)]
    table = spark.createDataFrame([*rows, rows[2]], "id INT, hour STRING, airport STRING, delay INT")
    counted = spark_job.count(table.selectExpr("id", "to_timestamp(hour) AS hour", "airport", "delay"))
    assert (counted.rows, counted.distinct) == (4, 3)
    assert counted.hours == [Hour("EWR", 5, Total(2, 0, -2)), Hour("JFK", 5, Total(2, 0, 4))]


PLAY = """
import sys
from pathlib import Path
from rich.console import Console
from sparklog_server.demo.play import play
play(Path(sys.argv[1]), Console(width=160), limit=200_000)
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_spark_and_python_count_the_same_flights_after_both_kills(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLAY, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "Spark's table: 200,000 flights: none missing, none doubled" in done.stdout
    assert "micro-batch" in done.stdout
