"""The container of conf/container: its file, and a broker that runs from the root that it lays out."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.harness import free_port
from tests.tools import PROJECT

FILE = PROJECT / "conf" / "container" / "Containerfile"
BYTES_MAX = 150_000_000
USER = 65532


def instructions() -> list[tuple[str, str]]:
    """The instructions of the last stage, without comments."""
    lines = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    told = [(line.split()[0], line.partition(" ")[2]) for line in lines]
    begin = max(number for number, (name, _) in enumerate(told) if name == "FROM")
    return told[begin:]


def argv(name: str) -> list[str]:
    (text,) = (text for instruction, text in instructions() if instruction == name)
    found: list[str] = json.loads(re.search(r"\[.*\]", text)[0])  # type: ignore[index]
    return found


def test_the_container_has_no_shell_runs_as_a_user_and_is_checked() -> None:
    told = instructions()
    assert ("FROM", "scratch") in told
    assert ("USER", f"{USER}:{USER}") in told
    assert ("VOLUME", "/data") in told
    assert argv("ENTRYPOINT")[:3] == ["/usr/bin/python3", "-P", "-m"]
    assert argv("CMD")[0] == "start"
    assert "/readyz" in argv("HEALTHCHECK")[-1]
    assert not any(name in ("ADD", "RUN") for name, _ in told)


def test_what_the_container_copies_exists() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", FILE.read_text(), re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert len(names) >= 8
    assert [name for name in names if not (PROJECT / name).exists()] == []


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_broker_runs_from_the_root_of_the_container(tmp_path: Path, tree: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("this system lets only root change the root directory")
    site, root = tmp_path / "site", tmp_path / "root"
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--root-user-action", "ignore")
    # The kernels are those that are built here: to compile them again takes minutes.
    without_kernels = os.environ | {"SPARKLOG_PURE": "1"}
    subprocess.run([*install, "--target", str(site), f"{tree}[server]"], check=True, env=without_kernels)
    for kernel in (PROJECT / "sparklog" / "kernels").glob("*.so"):
        shutil.copy2(kernel, site / "sparklog" / "kernels")
    subprocess.run([sys.executable, str(FILE.with_name("root.py")), str(site), str(root)], check=True)
    size = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    assert size < BYTES_MAX, f"{size / 1e6:.0f} MB"
    assert not (root / "bin/sh").exists()
    (root / "dev").mkdir()
    os.chown(root / "data", USER, USER)
    http, kafka = free_port(), free_port()
    start = [text.replace(":9644", f":{http}") for text in (*argv("ENTRYPOINT"), *argv("CMD"))]
    with _contained(root, [*start, "--listen", f"127.0.0.1:{kafka}"]) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("ready ")
        check = [text.replace(":9644", f":{http}") for text in argv("HEALTHCHECK")]
        with _contained(root, check) as healthy:
            assert healthy.wait(60) == 0
        broker.terminate()
        assert broker.wait(60) == 0
    with _contained(root, check) as unhealthy:
        assert unhealthy.wait(60) != 0


@contextmanager
def _contained(root: Path, command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Run a command with `root` as its read-only root, except for /data, as the user of the container."""
    script = (
        'mount --bind "$0" "$0" && mount --bind "$0/data" "$0/data" && mount -o remount,ro,bind "$0" && '
        'mount --bind /dev "$0/dev" && cd "$0" && '
        f'exec chroot --userspec={USER}:{USER} "$0" "$@"'
    )
    environment = {"PYTHONPATH": "/site", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script, str(root), *command],
        env=environment | {"PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()
