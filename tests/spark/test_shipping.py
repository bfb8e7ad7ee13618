"""sparklog that is shipped with a session and installed nowhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark")

from pyspark import cloudpickle

from sparklog.spark import shipping
from sparklog.spark.shipping import PACKAGES
from sparklog.spark.source import SparklogSource
from tests.spark.conftest import MakeTopic
from tests.spark.shipped import python_without_sparklog, zipped
from tests.tools import require_command

PROCESS_S_MAX = 390

UNPICKLE = """
import pickle, sys
sys.path.append(sys.argv[2])
print(pickle.load(open(sys.argv[1], "rb")).options["subscribe"])
"""

WALK = """
import sys
how, zip_file, servers, source, target, checkpoint = sys.argv[1:]
from pyspark.sql import SparkSession

builder = SparkSession.builder.remote("local[2]") if how == "connect" else SparkSession.builder.master("local[2]")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
if how != "--py-files":
    sys.path.insert(0, zip_file)
    spark.addArtifacts(zip_file, pyfile=True)
import sparklog

assert ".zip" in sparklog.__file__, sparklog.__file__
sparklog.register(spark)
at = {"kafka.bootstrap.servers": servers}
spark.range(10).selectExpr("CAST(id AS STRING) AS value").write.format("sparklog").options(**at, topic=source).mode("append").save()
stream = spark.readStream.format("sparklog").options(**at, subscribe=source, startingOffsets="earliest", minPartitions="2").load()
writer = stream.select("value").writeStream.format("sparklog").options(**at, topic=target, checkpointLocation=checkpoint)
query = writer.trigger(availableNow=True).start()
assert query.awaitTermination(240)
print("rows:", spark.read.format("sparklog").options(**at, subscribe=target).load().count())
"""  # noqa: E501


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_without_sparklog(tmp_path_factory.mktemp("python"))


def environment(python: Path) -> dict[str, str]:
    """What the processes of a Spark see that runs this Python: none of this source tree."""
    shown = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**shown, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}


def unpickled(python: Path, pickle_file: Path, path: Path) -> subprocess.CompletedProcess[str]:
    command = [python, "-c", UNPICKLE, pickle_file, path]
    return subprocess.run(
        command, env=environment(python), cwd=path, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_source_is_unpickled_where_the_shipped_file_is_in_the_directory_of_its_session(
    monkeypatch: pytest.MonkeyPatch, python: Path, tmp_path: Path
) -> None:
    """As an executor has it over Spark Connect, whose path has the directory above."""
    here, elsewhere, source = tmp_path / "worker", tmp_path / "elsewhere", tmp_path / "source"
    (here / "session").mkdir(parents=True)
    elsewhere.mkdir()
    zipped(here / "session" / "sparklog.zip")
    with monkeypatch.context() as context:
        context.setattr(shipping, "__file__", "/driver/session/sparklog.zip/sparklog/spark/shipping.py")
        source.write_bytes(cloudpickle.dumps(SparklogSource({"subscribe": "orders"})))
    assert unpickled(python, source, here).stdout == "orders\n"
    nowhere = unpickled(python, source, elsewhere)
    assert nowhere.returncode == 1
    assert "ImportError: sparklog cannot be imported by" in nowhere.stderr
    assert "install it on the driver and on every executor" in nowhere.stderr


def test_the_migration_page_names_every_package_that_is_needed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "migrating-from-kafka.md").read_text()
    assert [name for name in PACKAGES if f"`{name}`" not in page] == []


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("how", ["--py-files", "addArtifacts", "connect"])
def test_a_batch_and_a_stream_run_where_it_is_not_installed(
    servers: str, make_topic: MakeTopic, python: Path, tmp_path: Path, how: str
) -> None:
    require_command("java")
    if how == "connect":
        pytest.importorskip("grpc_status", reason="needs pyspark[connect]")
    found = subprocess.run(
        [python, "-c", "import sparklog"],
        env=environment(python),
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert b"No module named 'sparklog'" in found.stderr
    program, zip_file = tmp_path / "walk.py", zipped(tmp_path / "sparklog.zip")
    program.write_text(WALK)
    arguments = [
        program,
        how,
        zip_file,
        servers,
        make_topic(2),
        make_topic(),
        (tmp_path / "checkpoint").as_uri(),
    ]
    submit = [
        Path(sys.executable).with_name("spark-submit"),
        "--conf",
        "spark.ui.enabled=false",
        "--py-files",
        zip_file,
    ]
    command = [*(submit if how == "--py-files" else [python]), *arguments]
    done = subprocess.run(
        command,
        env=environment(python),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROCESS_S_MAX,
        check=False,
    )
    assert "rows: 10" in done.stdout, done.stdout[-3000:] + done.stderr[-6000:]
