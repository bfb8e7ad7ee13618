"""Runs every benchmark, one after another, each in a process of its own; figures go to
benchmarks/results/<name>.json.

`python -m benchmarks [NAME …] [-- OPTION …]`: options after `--` go to each benchmark. A benchmark that
fails is named at the end.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOT_BENCHMARKS = {"__init__", "__main__", "cluster_attack", "group_members", "harness", "raw", "rdkafka"}


def names() -> list[str]:
    """Every module here that is a command, which has a `main` guard, and every package that has a
    `__main__`.
    """
    modules = [source.stem for source in HERE.glob("*.py") if '__name__ == "__main__"' in source.read_text()]
    packages = [source.parent.name for source in HERE.glob("*/__main__.py")]
    return sorted(name for name in modules + packages if name not in NOT_BENCHMARKS)


def main(arguments: list[str]) -> int:
    wanted, _, passed_on = _split(arguments)
    failed = []
    for name in wanted or names():
        print(f"== {name}", flush=True)
        command = [
            sys.executable,
            "-m",
            f"benchmarks.{name}",
            "--json",
            str(HERE / "results" / f"{name}.json"),
            *passed_on,
        ]
        if subprocess.run(command, cwd=HERE.parent, check=False).returncode != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _split(arguments: list[str]) -> tuple[list[str], str, list[str]]:
    if "--" not in arguments:
        return arguments, "", []
    at = arguments.index("--")
    return arguments[:at], "--", arguments[at + 1 :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
