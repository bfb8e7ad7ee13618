"""The programs under examples/ that use Spark run as described."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import sparklog
from examples import batch, sql, stream, upserts
from examples.local_spark import has_delta
from tests.documents import blocks
from tests.spark.conftest import MakeTopic
from tests.tools import PROJECT

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    sparklog.register(spark)


def run(*command: str, cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def test_batch(spark: SparkSession, servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    batch.write_orders(spark, servers, topic)
    orders = batch.read_orders(spark, servers, topic)
    assert orders.count() == 1000
    assert orders.where("customer = '7'").select("partition").distinct().count() == 1
    assert batch.read_orders(spark, servers, topic, "latest-1").count() == 3


def test_a_stream_on_the_console(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path, admin: sparklog.Admin
) -> None:
    topic = make_topic()
    batch.write_orders(spark, servers, topic)
    query = stream.to_console(stream.orders_of(spark, servers, topic), tmp_path, ends=True)
    assert query.awaitTermination(60)
    assert sum(progress.numInputRows for progress in query.recentProgress) == 1000
    assert "examples" in [group.group_id for group in admin.list_groups()]


def test_sql(spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    source, target = make_topic(), make_topic()
    sql.make_view(spark, servers, source)
    sql.insert_orders(spark)
    assert sql.orders_by_customer(spark) == {"c0": 3, "c1": 3, "c2": 3}
    try:
        assert sql.copy_between_tables(spark, servers, source, target, tmp_path).awaitTermination(60)
        sql.make_view(spark, servers, target)
        assert sql.orders_by_customer(spark) == {"c0": 3, "c1": 3, "c2": 3}
    finally:
        spark.sql("DROP TABLE IF EXISTS logs")
        spark.sql("DROP TABLE IF EXISTS copies")


def test_totals_as_they_change(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = make_topic(), make_topic()
    batch.write_orders(spark, servers, source)
    assert upserts.write_totals(spark, servers, source, target, tmp_path).awaitTermination(60)
    expected = {
        str(customer): sum(order * 3 % 100 for order in range(customer, 1000, 10)) for customer in range(10)
    }
    assert upserts.read_totals(spark, servers, target) == expected


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_stream_into_delta(servers: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    if not has_delta():
        pytest.skip("no Delta JARs: `make jars` fetches them with Maven")
    # In a process of its own: a Spark has Delta from its start, or never.
    code = (
        "import sys; from pathlib import Path; from examples import batch, stream; from examples.local_spark "
        "import local_spark\n"
        "servers, topic, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])\n"
        "with local_spark(directory, delta=True) as spark:\n"
        "    for count in (1000, 2000):\n"
        "        batch.write_orders(spark, servers, topic)\n"
        "        stream.to_delta(stream.orders_of(spark, servers, topic), directory / 't', directory / "
        "'c').awaitTermination()\n"
        "        rows = spark.read.format('delta').load(str(directory / 't'))\n"
        "        assert rows.count() == rows.select('partition', 'offset').distinct().count() == count\n"
    )
    run("-c", code, servers, make_topic(2), str(tmp_path), cwd=tmp_path)


def test_the_stream_on_the_console_ends_quietly_at_an_interrupt() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "examples.stream"],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        seen = list(iter_until(child.stdout, "order 1"))
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        after = child.stdout.read().splitlines()
    assert child.returncode == 0, "\n".join([*seen, *after])
    # While Spark stops, PySpark's runner of a source may find its connection closed, and prints that.
    ours = [f'"{PROJECT / place}/' for place in ("examples", "sparklog", "sparklog_server")]
    assert not any(place in line for place in ours for line in after), "\n".join(after)


def iter_until(lines: Iterable[str], text: str) -> Iterator[str]:
    for line in lines:
        yield line
        if text in line:
            return


def test_the_block_of_readme(spark: SparkSession, servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    (block,) = [block for block in blocks("README.md") if "spark.readStream" in block.text]
    text = block.text.replace("localhost:9092", servers).replace(
        '"subscribe", "flights"', f'"subscribe", "{topic}"'
    )
    assert topic in text
    names: dict[str, object] = {"spark": spark}
    exec(compile(text, "README.md", "exec"), names)
    flights = names["flights"]
    assert isinstance(flights, DataFrame)
    assert flights.isStreaming


def test_the_page_that_starts_with_spark(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for block in blocks("docs/start-spark.md"):
        if block.language == "python":
            text = block.text.replace("spark.stop()", "")  # the session of the tests goes on
            exec(compile(text, "start-spark.md", "exec"), names)
    assert names["spark"] is spark
    shown = capfd.readouterr().out
    assert "26.0" in shown
    assert "-3.0" in shown
    spark.catalog.dropTempView("delays")
