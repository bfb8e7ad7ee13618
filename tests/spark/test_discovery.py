"""How Spark comes to know the format: found by itself where the package is installed, or shipped as a zip
file.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import sparklog
from tests.spark.conftest import MakeTopic

PROJECT = Path(__file__).resolve().parents[2]

ASK_WITHOUT_REGISTERING = """
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    spark.read.format("sparklog").option("startingOfsets", "earliest").load()
except PySparkException as error:
    assert "did you mean 'startingOffsets'?" in str(error), error
    print("found")
spark.stop()
"""

READ_FROM_ZIP = """
import os, sys, time
from pyspark.sql import SparkSession
import sparklog
assert ".zip" in sparklog.__file__, sparklog.__file__
servers, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
sparklog.register(spark)
spark.range(count).selectExpr("rpad(CAST(id AS STRING), 100, 'x') AS value").write.format("sparklog").options(
    **{"kafka.bootstrap.servers": servers, "topic": topic}).mode("append").save()
def read():
    return spark.read.format("sparklog").options(**{"kafka.bootstrap.servers": servers, "subscribe": topic}).load()
rates = []
for _ in range(3):
    began = time.perf_counter()
    read().write.format("noop").mode("overwrite").save()
    rates.append(count / (time.perf_counter() - began))
assert read().select("value").distinct().count() == count
print("rate", max(rates))
spark.stop()
"""  # noqa: E501


def run(*command: str, cwd: Path, **environment: str) -> str:
    """The output of a command, run from `cwd` with nothing of the project on its path."""
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_the_discovery_module_never_fails_to_import(tmp_path: Path) -> None:
    # -S: no site-packages, so no pyspark either. If this import failed, Spark would lose every Python data
    # source.
    code = f"import sys; sys.path.insert(0, {str(PROJECT)!r}); import pyspark_sparklog as p; print(hasattr(p, 'DefaultSource'))"  # noqa: E501
    assert run(sys.executable, "-S", "-c", code, cwd=tmp_path) == "False\n"


def test_importing_the_source_starts_no_spark_and_imports_no_server_and_nothing_that_only_tasks_need(
    tmp_path: Path,
) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import sparklog.spark.source; from pyspark.sql import "
        "SparkSession;"
        " assert SparkSession.getActiveSession() is None;"
        " print([m for m in sys.modules if m.startswith(('sparklog_server', 'sparklog.record', 'pandas'))])"
    )
    assert run(sys.executable, "-c", code, str(PROJECT), cwd=tmp_path) == "[]\n"


def test_the_source_imports_on_a_spark_without_read_limits_and_arrow_streams(tmp_path: Path) -> None:
    # Spark 4.0 has neither module nor class; its streams hand rows to the sink.
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import pyspark.sql.datasource as d; del "
        "d.DataSourceStreamArrowWriter;"
        " sys.modules['pyspark.sql.streaming.datasource'] = None; from sparklog.spark import readers, "
        "source, writers;"
        " from pyspark.sql import Row; from pyspark.sql.types import StructType; schema = "
        "StructType().add('value', 'string');"
        " print(writers.STREAMS_GIVE_ROWS, [b.to_pylist() for b in "
        "writers.batches_of_rows(iter([Row(value='a')]), schema)])"
    )
    assert run(sys.executable, "-c", code, str(PROJECT), cwd=tmp_path) == "True [[{'value': 'a'}]]\n"


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "msgspec", "zstandard"])
def test_who_registers_without_what_it_needs_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(
        ImportError, match=rf"not installed: {missing}: pip install 'sparklog\[spark,local-spark\]'"
    ):
        sparklog.register(None)  # type: ignore[arg-type]


@pytest.mark.spark
def test_spark_finds_the_format_by_itself(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    told = run(
        sys.executable,
        "-c",
        ASK_WITHOUT_REGISTERING,
        cwd=tmp_path,
        PYTHONPATH=str(PROJECT),
        PYSPARK_PYTHON=sys.executable,
    )
    assert "found" in told


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_installed_wheel_is_found_in_a_clean_environment(tmp_path: Path) -> None:
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        str(tmp_path),
        str(PROJECT),
        cwd=tmp_path,
        SPARKLOG_PURE="1",
    )
    (wheel,) = tmp_path.glob("sparklog-*.whl")
    run(sys.executable, "-m", "venv", "clean", cwd=tmp_path)
    python = str(tmp_path / "clean" / "bin" / "python")
    # Spark's own dependencies come from this environment's directory, sparklog from the wheel alone.
    run(python, "-m", "pip", "install", "-q", "--no-deps", str(wheel), cwd=tmp_path)
    (site,) = (tmp_path / "clean" / "lib").glob("python*/site-packages")
    for package in installed_packages_but_sparklog():
        if not (site / package.name).exists():
            (site / package.name).symlink_to(package)
    assert "found" in run(python, "-c", ASK_WITHOUT_REGISTERING, cwd=tmp_path, PYSPARK_PYTHON=python)


@pytest.mark.spark
@pytest.mark.long
def test_a_zip_file_with_reference_kernels_reads_fast_enough(
    servers: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    archive = tmp_path / "sparklog.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for package in ("sparklog", "pyspark_sparklog"):
            for source in sorted((PROJECT / package).rglob("*.py")):
                zipped.write(source, source.relative_to(PROJECT))
    (tmp_path / "job.py").write_text(READ_FROM_ZIP)
    submit = Path(sys.executable).with_name("spark-submit")
    job = [str(submit), "--py-files", str(archive), "job.py", servers, make_topic(4), "1000000"]
    told = run(*job, cwd=tmp_path, PYSPARK_PYTHON=sys.executable, SPARKLOG_KERNELS="reference")
    rate = float(told.rpartition("rate ")[2].split()[0])
    assert rate >= 400_000


def installed_packages_but_sparklog() -> list[Path]:
    """Everything in this environment's directory that is neither sparklog nor the machinery of
    environments.
    """
    import pyspark

    site = Path(pyspark.__file__).parent.parent
    skipped = (
        "sparklog",
        "__editable__",
        "_virtualenv",
        "distutils-precedence",
        "easy-install",
        "pip",
        "setuptools",
        "__pycache__",
    )
    return [path for path in sorted(site.iterdir()) if not path.name.startswith(skipped)]
