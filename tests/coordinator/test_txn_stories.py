"""Transactions told as stories: the states of an id, by request and time."""

from pathlib import Path

import pytest

from tests.coordinator.transactions import TxnWorld
from tests.story import check_story

STORIES = sorted((Path(__file__).parent / "stories" / "txn").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    check_story(path, TxnWorld().run)
