"""Our members and our broker in one process, in virtual time: every story of `stories`."""

from pathlib import Path

import pytest

from tests.client.membership.group_world import GroupWorld
from tests.story import check_story

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_members_and_coordinator_agree_as_told(path: Path) -> None:
    check_story(path, GroupWorld().run)
