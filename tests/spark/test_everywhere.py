"""The other ways into Spark: SQL, a Connect session, a declarative pipeline, and Real-Time Mode by Spark's
own connector.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparklog
from sparklog import Consumer, Producer, TopicPartition
from tests.spark.conftest import MakeTopic
from tests.spark.frames import RUN_S_MAX
from tests.tools import DELTA_JARS, PROJECT, require_command, require_spark_connector, spark_connector_jars

pytestmark = pytest.mark.spark

PROCESS_S_MAX = 390

PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

import sparklog

spark = SparkSession.active()
sparklog.register(spark)
AT = {{"kafka.bootstrap.servers": "{servers}"}}

dp.create_sink("shouted", format="sparklog", options={{**AT, "topic": "{target}"}})


@dp.table
def records():
    return spark.readStream.format("sparklog").options(**AT, subscribe="{source}", startingOffsets="earliest").load()


@dp.append_flow(target="shouted")
def shout():
    return spark.readStream.table("records").selectExpr("upper(CAST(value AS STRING)) AS value")
"""  # noqa: E501

PIPELINE_SPEC = """
name: shouting
storage: {storage}
libraries:
  - glob:
      include: flow.py
configuration:
  spark.sql.shuffle.partitions: '2'
"""

REAL_TIME = """
import sys
from pyspark.sql import SparkSession

servers, source, target, directory, jars = sys.argv[1:]
spark = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false").config("spark.jars", jars).getOrCreate()
at = {"kafka.bootstrap.servers": servers}
stream = spark.readStream.format("kafka").options(**at, subscribe=source, startingOffsets="earliest").load().select("key", "value")
writer = stream.writeStream.format("kafka").options(**at, topic=target).outputMode("update")
query = writer.option("checkpointLocation", directory).trigger(realTime="10 seconds").start()
while not query.recentProgress and query.exception() is None:
    query.awaitTermination(1)
if query.exception():
    raise query.exception()
query.stop()
"""  # noqa: E501

WITH_DELTA = """
import sys
from pyspark.sql import SparkSession
import sparklog

servers, topic, warehouse, jars = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.jars", jars)
builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension").config("spark.sql.warehouse.dir", warehouse)
spark = builder.getOrCreate()
sparklog.register(spark)
options = f"USING sparklog OPTIONS (`kafka.bootstrap.servers` '{servers}', subscribe '{topic}', topic '{topic}')"
try:
    spark.sql(f"CREATE TABLE orders {options}")
except Exception as error:
    print(error)
print("tables:", spark.sql("SHOW TABLES").count())
spark.sql(f"CREATE TEMPORARY VIEW orders_now {options}")
spark.sql("INSERT INTO orders_now (value) VALUES (X'61')")
spark.sql("CREATE TABLE kept USING delta AS SELECT * FROM orders_now")
print("rows:", spark.table("kept").count())
"""  # noqa: E501


def run(*command: str | Path, cwd: Path, forgiven: str | None = None) -> str:
    """The output of a command, which ends well or with the one error that is `forgiven`; it sees this source
    tree and runs this Python.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROJECT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=PROCESS_S_MAX, check=False
    )
    is_forgiven = forgiven is not None and forgiven in done.stdout + done.stderr
    assert done.returncode == 0 or is_forgiven, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


def written(servers: str, topic: str, *values: bytes) -> str:
    with Producer(bootstrap_servers=servers) as producer:
        for value in values:
            producer.send(topic, value=value)
    return topic


def values_of(servers: str, topic: str, count: int) -> list[bytes | None]:
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning([TopicPartition(topic, 0)])
        values: list[bytes | None] = []
        while len(values) < count and (records := consumer.poll(timeout_ms=5000)):
            values += [record.value for record in records]
    return values


def options_of(servers: str, topic: str) -> str:
    return f"(`kafka.bootstrap.servers` '{servers}', subscribe '{topic}', topic '{topic}', startingOffsets 'earliest')"  # noqa: E501


@pytest.fixture
def tables(spark: SparkSession) -> Any:
    """A namespace that goes with its tables; none of sparklog's says anything of the topic, which stays."""
    sparklog.register(spark)
    spark.sql("CREATE DATABASE everywhere")
    spark.sql("USE everywhere")
    yield
    spark.sql("USE default")
    spark.sql("DROP DATABASE everywhere CASCADE")


def test_a_table_is_made_written_and_read_by_its_name_alone(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tables: None
) -> None:
    topic, other = make_topic(), written(servers, make_topic(), b"x", b"y")
    spark.sql(f"CREATE TABLE orders USING sparklog OPTIONS {options_of(servers, topic)}")
    spark.sql(
        "INSERT INTO orders (key, value) SELECT CAST(CAST(id AS STRING) AS BINARY), X'61' FROM range(3)"
    )
    spark.sql("INSERT INTO orders (value) VALUES (X'62')")
    assert spark.sql("SELECT count(DISTINCT key) AS n FROM orders WHERE value = X'61'").collect()[0].n == 3
    assert spark.sql(f"SELECT count(*) AS n FROM orders WITH (subscribe = '{other}')").collect()[0].n == 2
    spark.sql(f"INSERT INTO orders WITH (topic = '{other}') (value) VALUES (X'62')")
    assert values_of(servers, other, 3) == [b"x", b"y", b"b"]


def test_a_stream_goes_from_a_table_to_a_table(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tables: None, tmp_path: Path
) -> None:
    source, target = written(servers, make_topic(), b"one", b"two"), make_topic()
    spark.sql(f"CREATE TABLE orders USING sparklog OPTIONS {options_of(servers, source)}")
    spark.sql(f"CREATE TABLE copies USING sparklog OPTIONS {options_of(servers, target)}")
    writer = (
        spark.readStream.table("orders")
        .select("value")
        .writeStream.option("checkpointLocation", str(tmp_path))
    )
    told = {"kafka.bootstrap.servers": servers, "topic": target}
    query = writer.options(**told).trigger(availableNow=True).toTable("copies")
    assert query.awaitTermination(RUN_S_MAX)
    assert values_of(servers, target, 2) == [b"one", b"two"]
    assert spark.table("copies").count() == 2


def test_a_table_made_with_columns_says_what_to_write(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tables: None
) -> None:
    topic = make_topic()
    spark.sql(f"CREATE TABLE orders (value BINARY) USING sparklog OPTIONS {options_of(servers, topic)}")
    with pytest.raises(Exception, match=r"created without columns.*FROM name WITH"):
        spark.table("orders").count()
    at = f"WITH (`kafka.bootstrap.servers` = '{servers}', topic = '{topic}', subscribe = '{topic}')"
    spark.sql(f"INSERT INTO orders {at} VALUES (X'61')")
    assert spark.sql(f"SELECT value FROM orders {at}").collect() == [(b"a",)]


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_view_serves_where_the_catalog_of_delta_lets_no_table_be(
    servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """With any session catalog but its own, Spark takes a table of a Python source for one of its older
    kind, and finds nothing to read.

    So the table is refused where it is made.
    """
    require_command("java")
    if not DELTA_JARS.exists():
        pytest.skip("no Delta JARs in .jars/delta: `make jars` fetches them with Maven")
    jars = ",".join(map(str, sorted(DELTA_JARS.glob("*.jar"))))
    told = run(sys.executable, "-c", WITH_DELTA, servers, make_topic(), str(tmp_path), jars, cwd=tmp_path)
    assert "use a view, CREATE TEMPORARY VIEW name USING sparklog" in told
    assert "tables: 0" in told
    assert "rows: 1" in told


@pytest.mark.long
@pytest.mark.timeout(400)
def test_all_of_it_in_a_connect_session(tmp_path: Path) -> None:
    require_command("java")
    pytest.importorskip("grpc_status", reason="needs pyspark[connect]")
    told = run(sys.executable, "-P", PROJECT / "tests" / "spark" / "smoke.py", "--connect", cwd=tmp_path)
    assert " Connect, " in told
    assert ": all of " in told


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_declarative_pipeline_reads_and_writes(servers: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    require_command("java")
    pytest.importorskip("grpc_status", reason="needs pyspark[pipelines]")
    source, target = written(servers, make_topic(), b"one", b"two"), make_topic()
    (tmp_path / "flow.py").write_text(PIPELINE.format(servers=servers, source=source, target=target))
    (tmp_path / "spark-pipeline.yml").write_text(
        PIPELINE_SPEC.format(storage=(tmp_path / "storage").as_uri())
    )
    # Of any source in Python, the command takes the accumulators that workers report at the end for a
    # response it does not know.
    command = Path(sys.executable).with_name("spark-pipelines")
    run(
        command,
        "run",
        "--spec",
        "spark-pipeline.yml",
        cwd=tmp_path,
        forgiven="[UNKNOWN_RESPONSE] Unknown response: Plan observed(__python_",
    )
    assert values_of(servers, target, 2) == [b"ONE", b"TWO"]


@pytest.mark.long
@pytest.mark.timeout(400)
def test_real_time_mode_works_with_the_connector_against_our_broker(
    make_topic: MakeTopic, servers: str, tmp_path: Path
) -> None:
    require_spark_connector()
    source, target = written(servers, make_topic(), b"one", b"two"), make_topic()
    jars = ",".join(map(str, spark_connector_jars()))
    run(
        sys.executable,
        "-c",
        REAL_TIME,
        servers,
        source,
        target,
        str(tmp_path / "checkpoint"),
        jars,
        cwd=tmp_path,
    )
    assert values_of(servers, target, 2) == [b"one", b"two"]
