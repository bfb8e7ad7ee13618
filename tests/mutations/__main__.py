"""Runs tests against 60 mutants of the core, which mutants.json keeps, and says which test notices each.

    python -m tests.mutations draw --seed 40      # a new list
    python -m tests.mutations run LABEL           # each mutant against the nearest room of tests
    python -m tests.mutations run LABEL --rooms 3 # what survived that, against the next two rooms too
    python -m tests.mutations sound LABEL         # the tests that killed pass on the source as it is
    python -m tests.mutations again OLD LABEL     # what OLD killed, against the same test, else its room
    python -m tests.mutations report OLD LABEL    # a table; status 1 if LABEL misses what OLD killed

Results are saved after each mutant; a run that is interrupted goes on where it stopped. The tests are those
of `make test` but for Spark's; `--select` changes pytest's `-m`. Mutants are applied to a copy of the tracked
files in `--tree`, never to the working tree; child processes find the copy by PYTHONPATH.

mutmut and cosmic-ray were considered. mutmut numbers the mutants of a module by position, runs them in forks
of one interpreter, so that brokers which tests start as processes run the original, and cannot mutate Cython.
cosmic-ray keeps line and column in a database, changes the working tree in place and records the exit status
of the tests only. Neither finds a mutant again after its file has moved, which this list is for.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import psutil

from tests.mutations.mutants import Mutant, apply, draw
from tests.tools import PROJECT

LIST = Path(__file__).with_name("mutants.json")
# More than a whole room takes on two busy cores; a test that hangs fails by its own time limit before.
LIMIT_S = 600
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)

Run = dict[str, str | float]


def copied(tree: Path) -> None:
    """Make `tree` equal to the tracked files and the compiled kernels; what is equal keeps its bytecode."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    names = {Path(name) for name in listed.stdout.split("\0") if name and (PROJECT / name).is_file()}
    names |= {path.relative_to(PROJECT) for path in PROJECT.glob("sparklog/kernels/*.so")}
    for top in ("sparklog", "sparklog_server", "pyspark_sparklog", "tests"):
        for path in list((tree / top).rglob("*")):
            if path.suffix in (".py", ".pyx", ".so") and path.relative_to(tree) not in names:
                path.unlink()
    for name in names:
        given, kept = (PROJECT / name).stat(), tree / name
        if not kept.exists() or (kept.stat().st_mtime_ns, kept.stat().st_size) != (
            given.st_mtime_ns,
            given.st_size,
        ):
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.unlink(missing_ok=True)
            shutil.copy2(PROJECT / name, kept)
    for installed in (".venv", ".jars", ".node", ".deb"):
        if (PROJECT / installed).exists() and not (tree / installed).exists():
            (tree / installed).symlink_to(PROJECT / installed)


def mutated(mutant: Mutant, tree: Path) -> None:
    """A fresh copy with the mutant in it, compiled if it is one of a kernel."""
    copied(tree)
    path = apply(mutant, tree)
    if path.suffix == ".pyx":
        command = f"-m Cython.Build.Cythonize -f -q -i -3 {path.relative_to(tree)}".split()
        environment = os.environ | {"CFLAGS": "-O3 -fno-strict-aliasing"}
        subprocess.run([sys.executable, *command], cwd=tree, env=environment, check=True, capture_output=True)


def pytest(tree: Path, stages: Iterable[list[str]], options: list[str]) -> Run:
    """Run tests in `tree`, stage by stage up to the first failure: `survived`, `killed` or `time-out`."""
    began = time.monotonic()
    run: Run = {"outcome": "survived", "test": ""}
    temporary = tree.with_name(f"{tree.name}-tmp")
    command = ["-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", "--tb=line"]
    environment = os.environ | {"PYTHONPATH": str(tree), "TMPDIR": str(temporary)}
    for tests in filter(None, stages):
        temporary.mkdir(exist_ok=True)
        with (temporary / "output").open("w+") as output:
            child = subprocess.Popen(
                [sys.executable, *command, *options, *tests],
                cwd=tree,
                env=environment,
                stdout=output,
                stderr=output,
            )
            try:
                if child.wait(LIMIT_S) not in (0, 4, 5):  # 4, 5: no such test, none selected
                    output.seek(0)
                    text = output.read()
                    failed = _FAILED.search(text)
                    run = {"outcome": "killed", "test": failed[1] if failed else text[-300:].strip()}
            except subprocess.TimeoutExpired:
                run = {"outcome": "time-out", "test": tests[0]}
                for process in [*psutil.Process(child.pid).children(recursive=True), child]:
                    process.kill()
                child.wait()
        shutil.rmtree(temporary, ignore_errors=True)
        if run["outcome"] != "survived":
            break
    return run | {"seconds": round(time.monotonic() - began, 1)}


def room(mutant: Mutant, name: str, tree: Path) -> list[str]:
    """The test files of a room, first those of a like name or that name the module or the class."""
    words = {mutant.module, mutant.function.partition(".")[0]}
    stems = set(mutant.module.rpartition(".")[2].split("_"))

    def distance(file: Path) -> int:
        return -2 * len(stems & set(file.stem.split("_"))) - any(word in file.read_text() for word in words)

    files = sorted((tree / "tests" / name).rglob("test_*.py"))
    return [str(file.relative_to(tree)) for file in sorted(files, key=distance)]


def present(tests: list[str], tree: Path) -> list[str]:
    """The tests with all their parameters, in the file that has them now; what is gone is left out."""
    kept: dict[str, None] = {}
    for test in tests:
        file, _, name = test.partition("[")[0].partition("::")
        function = f"def {name.rpartition('::')[2]}("
        others = (str(path.relative_to(tree)) for path in sorted((tree / "tests").rglob("test_*.py")))
        for path in (file, *others):
            if name and (tree / path).is_file() and function in (tree / path).read_text():
                kept[f"{path}::{name}"] = None
                break
    return list(kept)


def report(mutants: list[Mutant], old: str, label: str) -> int:
    """Print the table; the number of mutants that `old` killed and `label` did not."""
    for each in dict.fromkeys((old, label)):
        counts = Counter(str(mutant.runs[each]["outcome"]) for mutant in mutants if each in mutant.runs)
        print(f"{each}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    lost = 0
    for mutant in mutants:
        runs = [(each, mutant.runs[each]) for each in dict.fromkeys((old, label)) if each in mutant.runs]
        is_lost = bool(runs) and runs[0][1]["outcome"] != "survived" and runs[-1][1]["outcome"] == "survived"
        lost += is_lost
        change = f"{mutant.kind}: {mutant.before} -> {mutant.after}"
        print(f"{mutant.number:3} {'LOST ' * is_lost}{mutant.module}:{mutant.function} {change}")
        for each, run in runs:
            print(f"      {each}: {run['outcome']} {run['test']} {run['seconds']} s {mutant.judgement}")
    return lost


def main() -> int:
    """Parse the command line and run one command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("draw", "run", "sound", "again", "report"))
    parser.add_argument("labels", nargs="*", default=["before"])
    parser.add_argument("--seed", type=int, default=40)
    memory = Path("/dev/shm")
    parser.add_argument(
        "--tree", type=Path, default=(memory if memory.is_dir() else Path("/tmp")) / "mutated"
    )
    parser.add_argument("--select", default="not spark and not long")
    parser.add_argument("--deselect", action="append", default=[], help="a test that fails anyway")
    parser.add_argument("--rooms", type=int, default=1, help="how many rooms, the nearest first")
    parser.add_argument("--numbers", type=int, nargs="+", help="only these mutants")
    parser.add_argument("--count", type=int, help="stop after as many mutants")
    given = parser.parse_args()
    old, label, tree = given.labels[0], given.labels[-1], given.tree.resolve()
    if given.command == "draw":
        LIST.write_bytes(msgspec.json.format(msgspec.json.encode(draw(PROJECT, given.seed)), indent=1))
        return 0
    mutants = msgspec.json.decode(LIST.read_bytes(), type=list[Mutant])
    chosen = [mutant for mutant in mutants if not given.numbers or mutant.number in given.numbers]
    if given.command == "report":
        return min(report(chosen, old, label), 1)
    options = ["-m", given.select, *(f"--deselect={test}" for test in given.deselect)]
    copied(tree)
    if given.command == "sound":
        tests = [str(mutant.runs[label]["test"]) for mutant in chosen if label in mutant.runs]
        run = pytest(tree, [present(tests, tree)], options)
        print(run)
        return run["outcome"] != "survived"
    due = [mutant for mutant in chosen if label not in mutant.runs]
    if given.command == "again":
        due = [mutant for mutant in due if mutant.runs[old]["outcome"] != "survived"]
    elif given.rooms > 1:
        due += [mutant for mutant in chosen if mutant.runs.get(label, {}).get("outcome") == "survived"]
    for mutant in due[: given.count]:
        first = 1 if label in mutant.runs else 0
        names = mutant.rooms.split()[first : given.rooms]
        stages = [room(mutant, name, tree) for name in names]
        if given.command == "again":
            killer = str(mutant.runs[old]["test"])
            own = killer.removeprefix("tests/").partition("/")[0]
            stages = [
                present([killer], tree),
                *(room(mutant, name, tree) for name in dict.fromkeys((own, *names))),
            ]
        mutated(mutant, tree)
        mutant.runs[label] = pytest(tree, stages, options)
        print(mutant.number, mutant.module, mutant.function, *mutant.runs[label].values(), flush=True)
        LIST.write_bytes(msgspec.json.format(msgspec.json.encode(mutants), indent=1) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
