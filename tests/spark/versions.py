"""Tries sparklog on several versions of Spark, each in an environment of its own: `python -m tests.spark.versions [4.0 4.1 …]`.

`.venvs/spark-<version>/` gets the newest pyspark of that line and what sparklog needs beside it; sparklog itself is this source tree. Then
`tests.spark.smoke` walks through it. Ends with 1 if any version fails; the log of each is build/spark-<version>.log.
"""

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
VERSIONS = ("4.0", "4.1", "4.2", "4.3")
SECONDS_MAX = 600


def main(versions: list[str]) -> int:
    failed = [version for version in versions if not tried(version)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def tried(version: str) -> bool:
    """Whether sparklog works on this line of Spark; says so."""
    began = time.monotonic()
    python = environment(version)
    log = PROJECT / "build" / f"spark-{version}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("w") as output:
        child = subprocess.run(
            [python, "-m", "tests.spark.smoke"],
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": str(python)},
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=SECONDS_MAX,
            check=False,
        )
    told = [line for line in log.read_text().splitlines() if line.startswith("Spark ")]
    verdict = told[-1] if child.returncode == 0 else f"Spark {version}: FAILED, {log.relative_to(PROJECT)} tells why"
    print(f"{verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    return child.returncode == 0


def environment(version: str) -> Path:
    """The Python of the environment for this line of Spark, made or brought up to what pyproject.toml asks for."""
    directory = PROJECT / ".venvs" / f"spark-{version}"
    python = directory / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    wanted = [f"pyspark=={version}.*", *requirements()]
    settled = directory / "requirements.txt"
    if not settled.exists() or settled.read_text() != "\n".join(wanted):
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted], check=True)
        settled.write_text("\n".join(wanted))
    return python


def requirements() -> list[str]:
    """What sparklog needs to run, and pandas, as the project's metadata says it; no pyspark."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    pandas = [need for need in extras["local-spark"] if need.startswith("pandas")]
    return [*project["dependencies"], *extras["server"], *extras["spark"], *pandas]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(VERSIONS)))
