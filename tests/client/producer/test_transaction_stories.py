"""A transactional producer against brokers that answer as they are told, in virtual time: every story of
`stories`.
"""

from pathlib import Path

import pytest

from tests.client.producer.transaction_world import TransactionWorld
from tests.story import check_story

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_calls_and_answers_lead_where_the_story_says(path: Path) -> None:
    check_story(path, TransactionWorld().run)
