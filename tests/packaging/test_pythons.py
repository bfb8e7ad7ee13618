"""The clients, and the kernels compiled for it, on each other Python that this machine has."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.tools import PROJECT

TOOLS = ("Cython", "hypothesis", "pytest", "pytest-timeout", "setuptools", "uvloop")


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_the_clients_pass_their_tests_on_another_python(version: str, tree: Path) -> None:
    program = shutil.which(f"python{version}")
    if program is None or run(program, "--version", cwd=tree, check=False).returncode != 0:
        pytest.skip(f"no python{version} on this machine")
    for part in ("tests", "examples"):
        shutil.copytree(PROJECT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    pins = [
        pin
        for pin in project["optional-dependencies"]["test"]
        if pin.partition("[")[0].rstrip("0123456789.,<>=") in TOOLS
    ]
    assert len(pins) == len(TOOLS)
    run(program, "-m", "venv", "environment", cwd=tree)
    python = str(tree / "environment/bin/python")
    run(python, "-m", "pip", "install", "--quiet", *pins, cwd=tree)
    wanted = f"{tree}[server,arrow,formats]"
    run(python, "-m", "pip", "install", "--quiet", "--no-build-isolation", wanted, cwd=tree)
    run(python, "setup.py", "-q", "build_ext", "--inplace", cwd=tree)
    say = "from sparklog import kernels; print(kernels.implementation())"
    assert run(python, "-c", say, cwd=tree).stdout == "compiled\n"
    tests = ("tests/client", "-m", "not long")
    run(python, "-m", "pytest", *tests, cwd=tree)


def run(*command: str, cwd: Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run a command on the files of the copy; its output is shown if it fails."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment | {"PYTHONPATH": str(cwd)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 or not check, done.stdout[-5000:] + done.stderr[-3000:]
    return done
