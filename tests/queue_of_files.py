"""The order in which pytest-xdist gives test files to its workers (`pytest -n 2`, `make test`).

The tests of a file stay together on one worker, as do files that share a Spark session, a browser or the
syntax trees of all modules. Long work comes first, so that the workers end at about the same time.
"""

from collections import defaultdict
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.durations import GUESSED_S

TOGETHER: Final = (
    *("tests/spark/kill_points/", "tests/spark/restarts/", "tests/spark/"),
    *("tests/console/", "tests/architecture/"),
)
"""Files below one of these folders go to one worker; the first that matches counts."""

LONGEST_FIRST: Final = ("tests/spark/", "tests/simulation/", "tests/compatibility/", "tests/live/")
"""Before durations are known, as in a fresh clone. All else follows, in the order of collection."""


class QueueOfFiles(LoadFileScheduling):
    """Each worker takes the next file, or folder of `TOGETHER`, from one queue."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # by the number of tests, which says little of their time

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """The folder of `TOGETHER` or the file in which a test lies."""
    file = nodeid.partition("::")[0]
    return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def put_longest_first(items: list[pytest.Item], recorded: dict[str, float]) -> None:
    """Sort tests by the time of their group, which stays in one piece."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for file in sorted({item.nodeid.partition("::")[0] for item in items}):
        seconds[group_of(file)] += recorded.get(file, GUESSED_S)

    def place(item: pytest.Item) -> tuple[int, float, str]:
        group = group_of(item.nodeid)
        first = (rank for rank, folder in enumerate(LONGEST_FIRST) if group.startswith(folder))
        return 0 if recorded else next(first, len(LONGEST_FIRST)), -seconds[group], group

    items.sort(key=place)
