"""Transactions told as stories: what happens to an id, request by request and as time passes."""

from pathlib import Path

import pytest

from tests.coordinator.transactions import TxnWorld
from tests.story import check_story

STORIES = sorted((Path(__file__).parent / "stories" / "txn").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    check_story(path, TxnWorld().run)
