"""Tries sparklog on several versions of Spark, each in an environment of its own: `python -m tests.spark.versions [4.0 4.1 …]`.

`.venvs/spark-<version>/` gets the newest pyspark of that line, sparklog's wheel from dist/ (`make wheels`) and what the wheel's extra
`spark` names, which is pyarrow: nothing else, so that no source tree and no forgotten package helps. There `smoke.py` walks through it,
against a broker that runs here. Ends with 1 if any version fails; the log of each is build/spark-<version>.log.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sparklog import embedded

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
    shown = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with log.open("w") as output, embedded() as broker, tempfile.TemporaryDirectory() as elsewhere:
        child = subprocess.run(
            [python, "-P", PROJECT / "tests" / "spark" / "smoke.py", "--bootstrap", broker.bootstrap_servers],
            cwd=elsewhere,
            env=shown,
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
    """The Python of the environment for this line of Spark, made where it is not there yet, with the newest wheel."""
    directory = PROJECT / ".venvs" / f"spark-{version}"
    python = directory / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not (directory / "settled").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", directory], check=True)
        subprocess.run([*pip, f"pyspark=={version}.*"], check=True)
        (directory / "settled").touch()
    subprocess.run([*pip, f"{wheel()}[spark]"], check=True)
    subprocess.run([*pip, "--force-reinstall", "--no-deps", wheel()], check=True)
    return python


def wheel() -> Path:
    """sparklog's wheel, the compiled one where there is one."""
    found = sorted((PROJECT / "dist").glob("sparklog-*.whl"), key=lambda path: path.name.endswith("-none-any.whl"))
    if not found:
        raise SystemExit("no wheel in dist/: `make wheels` builds it")
    return found[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(VERSIONS)))
