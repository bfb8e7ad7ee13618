"""What is installed: the source distribution, the wheels that cibuildwheel would build, and the one for Linux
that `make manylinux` builds.
"""

import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from sparklog.kernels import NAMES
from tests.packaging.conftest import PACKAGES
from tests.tools import PROJECT

SAY = "from sparklog import kernels, __version__; print(kernels.implementation(), __version__)"
ROUND_TRIP = """
from sparklog import Consumer, Producer, TopicPartition, embedded
with embedded() as broker:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("flights", value=b"UA").result()
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("flights", 0)])
        print([record.value for record in consumer.poll(timeout_ms=5000)])
"""


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={"HOME": str(cwd), "PATH": os.environ["PATH"]} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def environment_without_compiler(directory: Path) -> tuple[Path, dict[str, str]]:
    """An empty environment, and the variables under which no compiler is found."""
    venv.create(directory, with_pip=True)
    return directory / "bin" / "python", {"PATH": str(directory / "bin")}


def sdist_of(tree: Path) -> Path:
    build = "from setuptools.build_meta import build_sdist; build_sdist('dist')"
    run(sys.executable, "-c", build, cwd=tree, SPARKLOG_PURE="1")  # else Cython runs, for nothing
    (archive,) = (tree / "dist").glob("*.tar.gz")
    return archive


def test_the_source_distribution_has_every_source(tree: Path) -> None:
    with tarfile.open(sdist_of(tree)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    of_tree = [
        path.relative_to(tree).as_posix()
        for package in PACKAGES
        for path in (tree / package).rglob("*")
        if path.is_file()
    ]
    assert [name for name in (*of_tree, "setup.py", "LICENSE") if name not in names] == []


def test_wheels_are_configured_for_every_python_and_platform() -> None:
    told = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert told["build"] == [f"cp3{minor}-*" for minor in (11, 12, 13, 14)]
    assert told["linux"]["archs"] == ["x86_64", "aarch64"]
    assert {told["linux"][f"manylinux-{arch}-image"] for arch in told["linux"]["archs"]} == {"manylinux_2_28"}
    assert told["macos"]["archs"] == ["x86_64", "arm64"]
    assert told["windows"]["archs"] == ["AMD64"]


def test_the_command_that_tries_a_wheel_passes_here() -> None:
    told = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    for command in (told["test-command"], told["windows"]["test-command"]):
        subprocess.run(
            ["sh", "-c", command.replace("python", f'"{sys.executable}"', 1)], cwd=PROJECT, check=True
        )


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_wheel_for_linux_runs_where_there_is_no_compiler(tree: Path, tmp_path: Path) -> None:
    run("make", "manylinux", f"PYTHON={sys.executable}", cwd=tree)
    wheels = list((tree / "dist").glob("*manylinux_2_28_x86_64.whl"))
    assert len(wheels) == 1
    with zipfile.ZipFile(wheels[0]) as archive:
        built = {
            Path(name).name.partition("_compiled")[0] for name in archive.namelist() if name.endswith(".so")
        }
    assert built == {*NAMES, "json"}
    identifiers = run(
        *(str(tree / ".venvs/wheels/bin/cibuildwheel"), "--platform", "linux", "--archs", "x86_64,aarch64"),
        "--print-build-identifiers",
        cwd=tree,
    )
    assert set(identifiers.split()) == {
        f"cp3{minor}-manylinux_{arch}" for minor in (11, 12, 13, 14) for arch in ("x86_64", "aarch64")
    }
    python, bare = environment_without_compiler(tmp_path / "bare")
    run(str(python), "-m", "pip", "install", "--quiet", f"{wheels[0]}[server]", cwd=tmp_path, **bare)
    assert run(str(python), "-c", SAY, cwd=tmp_path, **bare).split()[0] == "compiled"
    assert run(str(python), "-c", ROUND_TRIP, cwd=tmp_path, **bare) == "[b'UA']\n"


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_source_distribution_installs_where_there_is_no_compiler(tree: Path, tmp_path: Path) -> None:
    python, bare = environment_without_compiler(tmp_path / "bare")
    run(str(python), "-m", "pip", "install", "--quiet", str(sdist_of(tree)), cwd=tmp_path, **bare)
    assert run(str(python), "-c", SAY, cwd=tmp_path, **bare).split()[0] == "reference"
