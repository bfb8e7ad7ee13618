"""Classic groups, told as stories in virtual time."""

from pathlib import Path

import pytest

from tests.coordinator.groups import GroupWorld
from tests.story import check_story

STORIES = sorted((Path(__file__).parent / "stories" / "classic").glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_classic_group_behaves_as_the_story_tells(story: Path) -> None:
    check_story(story, GroupWorld().run)
