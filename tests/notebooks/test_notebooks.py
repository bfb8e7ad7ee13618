"""Each notebook runs to its end, and what its last cell asserts holds. Those with Delta, but for one, are
long.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sparklog
from examples.local_spark import has_delta
from notebooks.tools.runner import names
from tests.tools import PROJECT, require_command

QUICK = ("quick_start", "change_data_capture")
WITHOUT_DELTA = ("quick_start", "sessions_with_state", "migrating_from_kafka")


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in names()]
)
def test_a_notebook_runs_to_its_end(name: str, tmp_path: Path) -> None:
    run_to_its_end(name, tmp_path)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", names())
def test_a_notebook_runs_to_its_end_with_three_nodes(name: str, tmp_path: Path) -> None:
    with sparklog.embedded(nodes=3) as cluster:
        run_to_its_end(name, tmp_path, "--set", f"bootstrap={cluster.bootstrap_servers}")


def run_to_its_end(name: str, directory: Path, *options: str) -> None:
    """Run a notebook in a process of its own: a Spark has Delta from its start, or never."""
    require_command("java")
    if name not in WITHOUT_DELTA and not has_delta():
        pytest.skip("no Delta JARs: `make jars` fetches them with Maven")
    command = [sys.executable, "-m", "notebooks.tools", name, "--ipynb", str(directory), *options]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=290, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert (directory / f"{name}.ipynb").exists()
