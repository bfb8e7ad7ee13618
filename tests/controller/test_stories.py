"""The controller's decisions, told as stories."""

from pathlib import Path

import pytest

from tests.controller.world import World
from tests.story import check_story

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_the_controller_decides_as_the_story_tells(story: Path) -> None:
    check_story(story, World().run)
