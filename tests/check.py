"""What a commit needs, in under 100 seconds: lint and types, the tests near the change, and a broker in use.

    python -m tests.check [--base COMMIT]

The change is what differs from `main` (from the commit before, on `main` itself), committed or not. The
import graph says which tests it can reach. Those of its own rooms come first, then those of the rooms that
import it, the nearest first, until the time is used; what changed itself is always run. `make test` runs
the rest.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final

from tests.durations import GUESSED_S, PROJECT, recorded

BUDGET_S: Final = 90.0
"""Of recorded time, for all workers together: collecting, mypy and the broker need the rest."""
WORKERS: Final = 2
SOURCES: Final = (
    "sparklog",
    "sparklog_server",
    "pyspark_sparklog",
    "tests",
    "docs",
    "examples",
    "benchmarks",
)
SMOKE: Final = "tests/daemon/test_smoke.py"
ARCHITECTURE: Final = tuple(
    f"tests/architecture/test_{name}.py" for name in ("layers", "determinism", "walks", "named_files")
)
"""The last two find the pages on the code that a moved file or a renamed function leaves behind."""
NOT_NEAR: Final = (
    *("architecture", "compatibility", "console", "hostile", "live", "notebooks", "packaging"),
    *("simulation", "spark"),
)
"""Rooms whose tests start processes or take long; a file of theirs runs if it was changed itself."""

Graph = dict[str, list[str]]


def changed_files(base: str | None) -> list[str]:
    """Files that differ from the base, or are new, and still exist."""
    if base is None:
        base = _git("merge-base", "main", "HEAD").strip() or "HEAD"
        if base == _git("rev-parse", "HEAD").strip() and not _git("status", "--porcelain").strip():
            base = "HEAD~1"
    names = _git("diff", "--name-only", base) + _git("ls-files", "--others", "--exclude-standard")
    return sorted({name for name in names.splitlines() if (PROJECT / name).exists()})


def importers() -> Graph:
    """Which files import each file, imports inside functions included."""
    command = (sys.executable, "-m", "ruff", "analyze", "graph", "--quiet", "--direction", "dependents")
    graph: Graph = json.loads(_run(*command, *SOURCES))
    return graph


def distances(changed: list[str], graph: Graph) -> dict[str, int]:
    """How many imports lie between a file and the change; a helper of tests is no step of its own."""
    found = dict.fromkeys(changed, 0)
    queue = deque(changed)
    while queue:
        file = queue.popleft()
        step = 0 if file.startswith("tests/") else 1
        for importer in graph.get(file, ()):
            if importer not in found or found[importer] > found[file] + step:
                found[importer] = found[file] + step
                (queue.append if step else queue.appendleft)(importer)
    return found


def room_of(file: str) -> str:
    """`broker/handlers` for sparklog_server/broker/handlers/fetch.py and tests/broker/handlers/test_fetch.py,
    `log_tools` for sparklog_server/log_tools/repair.py, `metrics` for sparklog_server/metrics.py.
    """
    inner = Path(file).with_suffix("").parts[1:]
    return "/".join(inner[:-1] or inner)


def chosen(changed: list[str], graph: Graph, seconds: dict[str, float]) -> tuple[list[str], int]:
    """The test files to run, nearest first, and how many the change reaches that the time does not allow."""
    inner = {room_of(file) for file in changed if file.endswith(".py")}
    rooms = {room.partition("/")[0] for room in inner}
    # Commands and handlers are imported by a name in a string, so a room's own tests count as reached.
    own = [str(path) for room in sorted(rooms) for path in Path("tests", room).rglob("test_*.py")]
    reached = dict.fromkeys(own, len(graph)) | distances(changed, graph)

    def rank(file: str) -> tuple[bool, bool, bool, int, str]:
        room = room_of(file)
        nearest = (file not in changed, room not in inner, room.partition("/")[0] not in rooms)
        return (*nearest, reached[file], file)

    tests = [
        file
        for file in reached
        if file.startswith("tests/")
        and Path(file).name.startswith("test_")
        and (file in changed or room_of(file).partition("/")[0] not in NOT_NEAR)
    ]
    tests.sort(key=rank)
    taken: list[str] = []
    left = BUDGET_S
    for file in tests:
        if left >= 0 or file in changed:
            left -= seconds.get(file, GUESSED_S)
            taken.append(file)
    return taken, len(tests) - len(taken)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="lint and test what changed, and use a broker")
    parser.add_argument("--base", help="the commit to compare with; main unless given")
    changed = changed_files(parser.parse_args(arguments).base)
    began_s = time.monotonic()
    tests, others = chosen(changed, importers(), recorded())
    print(f"make check: {len(changed)} files changed: {len(tests)} test files, {others} more by make test")
    beside = {"mypy": _begun("mypy")}
    if python := [file for file in changed if file.endswith((".py", ".pyi"))]:
        beside["ruff check"] = _begun("ruff", "check", "--quiet", "--force-exclude", *python)
        beside["ruff format"] = _begun("ruff", "format", "--check", "--quiet", "--force-exclude", *python)
    pytest = (sys.executable, "-m", "pytest", "-n", str(WORKERS), "-m", "not long")
    ran = subprocess.run((*pytest, SMOKE, *ARCHITECTURE, *tests), cwd=PROJECT, check=False)
    failed = ["pytest"] if ran.returncode else []
    for name, process in beside.items():
        told, _ = process.communicate()
        if process.returncode:
            print(f"---- {name} ----\n{told}", end="")
            failed.append(name)
    outcome = f"FAILED ({', '.join(failed)})" if failed else "passed"
    print(f"make check: {outcome} in {time.monotonic() - began_s:.0f} s")
    return 1 if failed else 0


def _begun(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (sys.executable, "-m", *command),
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _git(*arguments: str) -> str:
    return subprocess.run(
        ("git", *arguments), cwd=PROJECT, capture_output=True, text=True, check=False
    ).stdout


def _run(*command: str) -> str:
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
