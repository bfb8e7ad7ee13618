"""Tries sparklog on several versions of Spark, each in an environment of its own: `python -m
tests.spark.versions [4.0 4.1 …]`.

`.venvs/spark-<version>/` gets the newest pyspark of that line, sparklog's wheel from dist/ (`make wheels`)
and what the wheel's extra `spark` names, which is pyarrow: nothing else, so that no source tree and no
forgotten package helps. There `smoke.py` walks through it, against a broker that runs here: once with
sparklog uninstalled and shipped with the session as a zip file, once with the wheel. Ends with 1 if any
version fails; the logs are build/spark-<version>-<how>.log.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sparklog import embedded

PROJECT = Path(__file__).resolve().parents[2]
VERSIONS = ("4.0", "4.1", "4.2", "4.3")
SECONDS_MAX = 600
SMOKE = PROJECT / "tests" / "spark" / "smoke.py"


def main(versions: list[str]) -> int:
    failed = [version for version in versions if not tried(version)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def tried(version: str) -> bool:
    """Whether sparklog works on this line of Spark; prints the verdict."""
    python = environment(version)
    with tempfile.TemporaryDirectory() as elsewhere:
        zip_file = shutil.copy(wheel(), Path(elsewhere) / "sparklog.zip")
        uninstall(python)
        by_zip = f"import runpy, sys; sys.path.insert(0, {str(zip_file)!r}); runpy.run_path({str(SMOKE)!r}, run_name='__main__')"  # noqa: E501
        is_shipped_tried = walked(
            version, "shipped", [python, "-P", "-c", by_zip, "--shipped", zip_file], elsewhere
        )
        install_wheel(python)
        return walked(version, "installed", [python, "-P", SMOKE], elsewhere) and is_shipped_tried


def walked(version: str, how: str, command: list[str | Path], elsewhere: str) -> bool:
    """Whether the smoke test ends well; prints the verdict."""
    began = time.monotonic()
    log = PROJECT / "build" / f"spark-{version}-{how}.log"
    log.parent.mkdir(exist_ok=True)
    shown = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "PYSPARK_PYTHON": str(command[0])
    }
    with log.open("w") as output, embedded() as broker:
        child = subprocess.run(
            [*command, "--bootstrap", broker.bootstrap_servers],
            cwd=elsewhere,
            env=shown,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=SECONDS_MAX,
            check=False,
        )
    told = [line for line in log.read_text().splitlines() if line.startswith("Spark ")]
    is_well = child.returncode == 0 and bool(told)
    verdict = told[-1] if is_well else f"Spark {version} {how}: FAILED, see {log.relative_to(PROJECT)}"
    print(f"{verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    return is_well


def environment(version: str) -> Path:
    """The Python of the environment for this line of Spark, made where it is not there yet, with what the
    wheel needs.
    """
    directory = PROJECT / ".venvs" / f"spark-{version}"
    python = directory / "bin" / "python"
    if not (directory / "settled").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", directory], check=True)
        subprocess.run([*pip(python), "install", f"pyspark=={version}.*"], check=True)
        (directory / "settled").touch()
    subprocess.run([*pip(python), "install", f"{wheel()}[spark]"], check=True)
    return python


def install_wheel(python: Path) -> None:
    """Put this wheel there, over any installed version."""
    subprocess.run([*pip(python), "install", "--force-reinstall", "--no-deps", wheel()], check=True)


def uninstall(python: Path) -> None:
    """Take sparklog away, and leave the packages that it needs."""
    subprocess.run([*pip(python), "uninstall", "--yes", "sparklog"], check=True)


def pip(python: Path) -> list[str | Path]:
    return [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def wheel() -> Path:
    """sparklog's wheel."""
    found = sorted((PROJECT / "dist").glob("sparklog-*.whl"))
    if not found:
        raise SystemExit("no wheel in dist/: `make wheels` builds it")
    return found[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(VERSIONS)))
