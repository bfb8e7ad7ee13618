"""Known disasters of replicated logs, each as its report tells it, on whole brokers."""

from pathlib import Path

import pytest

from tests.broker.cluster.disasters import Disaster
from tests.story import check_story

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_known_disaster_ends_as_its_report_says_it_must(story: Path) -> None:
    check_story(story, Disaster().run)
