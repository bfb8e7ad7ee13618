"""How long each test file took when it last ran, kept in build/ for the runs that follow.

`make test` gives the longest files to its workers first, and `make check` chooses as many as fit into its
time. Without the file, as in a fresh clone, both go by `GUESSED_S`.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

PROJECT: Final = Path(__file__).resolve().parent.parent
FILE: Final = PROJECT / "build" / "test-durations.json"
GUESSED_S: Final = 2.0
"""Of a file that never ran: what most take."""


def recorded() -> dict[str, float]:
    """Seconds by file (`tests/log/test_read.py`), its fixtures included."""
    try:
        seconds: dict[str, float] = json.loads(FILE.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return seconds


class DurationsOfFiles:
    """A plugin of pytest that adds up the durations of a run, in which files run whole but for long tests."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not FILE.parent.is_dir():
            return
        rounded = {file: round(seconds, 2) for file, seconds in self._seconds.items()}
        kept = {file: seconds for file, seconds in recorded().items() if (PROJECT / file).exists()}
        written = FILE.with_suffix(".new")
        written.write_text(json.dumps(kept | rounded, indent=0, sort_keys=True))
        written.replace(FILE)
