"""Speculation: two attempts of one task run at the same time, both write all they have, and one of them
counts.

Spark starts a second attempt only on another host, so this Spark is a cluster of a master and two workers,
at 127.0.0.1 and 127.0.0.2.
"""

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.spark.kill_points.conftest import free_port
from tests.spark.kill_points.harness import START_S_MAX, Harness, Spark, is_exact
from tests.tools import PROJECT, require_command

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

HOSTS = ("127.0.0.1", "127.0.0.2")
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.locality.wait": "0s",
}


@contextmanager
def spark_process(directory: Path, kind: str, *arguments: str) -> Iterator[None]:
    """A master or a worker of Spark's own cluster."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    log4j = PROJECT / "examples" / "log4j2.properties"
    command = [
        require_command("java"),
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={log4j}",
        "-cp",
        f"{jars}/*",
    ]
    command += [f"org.apache.spark.deploy.{kind}", *arguments]
    with (directory / "cluster.log").open("ab") as log:
        child = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            cwd=directory,
            env=os.environ
            | {
                "PYTHONPATH": str(PROJECT),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_HOME": str(jars.parent),
                "SPARK_SCALA_VERSION": "2.13",
            },
            start_new_session=True,
        )
    try:
        yield
    finally:
        child.kill()
        child.wait()


def wait_for(port: int) -> None:
    """Return when the address has a listener."""
    deadline = time.monotonic() + START_S_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, f"nobody listens on port {port}"
            select.select([], [], [], 0.05)
        else:
            return


@pytest.fixture(scope="module")
def cluster(one_harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    directory, port = tmp_path_factory.mktemp("cluster"), free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        stack.enter_context(
            spark_process(
                directory, "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"
            )
        )
        wait_for(port)
        for host in HOSTS:
            here = directory / host
            here.mkdir()
            stack.enter_context(
                spark_process(
                    here,
                    "worker.Worker",
                    "--host",
                    host,
                    "--cores",
                    "2",
                    "--memory",
                    "1g",
                    "--webui-port",
                    "0",
                    master,
                )
            )
        yield stack.enter_context(one_harness.another_spark(master=master, **SETTINGS))


def test_an_attempt_that_wrote_all_and_lost_to_another_does_not_count(
    harness: Harness, cluster: Spark
) -> None:
    query = harness.query()
    slow = harness.points.hold(
        "written", query.target, batch=1, partition=1
    )  # with all of its records acknowledged
    number = cluster.start(query)
    slow.reached()
    raised = cluster.ended(number)
    assert raised is None, raised
    slow.release()
    harness.points.check()
    attempts = [
        point
        for point in harness.points.passed
        if (point.name, point.batch, point.partition) == ("written", 1, 1)
    ]
    assert len(attempts) == 2
    assert is_exact(query)


def test_both_attempts_write_and_the_one_that_was_first_may_win(harness: Harness, cluster: Spark) -> None:
    query = harness.query()
    first = harness.points.hold("written", query.target, batch=1, partition=1)
    number = cluster.start(query)
    first.reached()
    second = harness.points.hold("written", query.target, batch=1, partition=1)
    second.reached()
    first.release()
    raised = cluster.ended(number)
    assert raised is None, raised
    second.release()
    harness.points.check()
    assert is_exact(query)
