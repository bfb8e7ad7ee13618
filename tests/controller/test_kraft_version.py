"""UpdateFeatures of kraft.version: raft decides, and every voter must have registered."""

from collections.abc import Collection

import pytest

from sparklog.model import Instant, NodeId
from tests.controller.world import World

KRAFT = "kraft.version:0-1,transaction.version:0-2"


class Quorum:
    """Three voters of kraft.version 0."""

    def __init__(self, refusal: str | None = None) -> None:
        self.kraft_version = 0
        self.voter_ids: Collection[NodeId] = (NodeId(1), NodeId(2), NodeId(3))
        self._refusal = refusal

    def upgrade_kraft_version(self, level: int, *, is_only_validated: bool, now: Instant) -> str | None:
        if self._refusal is None and not is_only_validated:
            self.kraft_version = level
        return self._refusal


def world_of(quorum: Quorum) -> World:
    world = World(quorum)
    world.run("register 1 life=a features=kraft.version:0-1")
    for node in (1, 2, 3):
        world.run(f"register-controller {node} life=a features={KRAFT}")
    return world


def test_raft_appends_its_record_and_the_reply_waits_for_one_behind_it() -> None:
    quorum = Quorum()
    world = world_of(quorum)
    assert world.run("features validate-only kraft.version=1") == ["-> features NONE"]
    assert quorum.kraft_version == 0
    assert world.run("features kraft.version=1") == ["NoOpRecord", "-> features NONE"]
    assert quorum.kraft_version == 1
    assert world.run("features kraft.version=1") == ["-> features NONE"]
    assert "kraft.version" not in world.controller.pending.features


def test_it_is_never_lowered() -> None:
    quorum = Quorum()
    world = world_of(quorum)
    world.run("features kraft.version=1")
    assert world.run("features downgrade kraft.version=0")[-1].endswith(
        "Can't downgrade the version of this feature."
    )
    assert quorum.kraft_version == 1


def test_what_raft_refuses_changes_no_other_feature_either() -> None:
    world = world_of(Quorum("a voter has no directory id"))
    (told,) = world.run("features kraft.version=1 transaction.version=2")
    assert told.endswith("a voter has no directory id")


@pytest.mark.parametrize(
    ("registered", "words"),
    [
        ("", "controller 3 has not registered, and may not support this feature"),
        ("register-controller 3 life=a", "Controller 3 does not support this feature."),
    ],
)
def test_a_voter_that_is_not_registered_or_too_old_prevents_an_update(registered: str, words: str) -> None:
    quorum = Quorum()
    world = World(quorum)
    world.run("register 1 life=a features=kraft.version:0-1")
    for node in (1, 2):
        world.run(f"register-controller {node} life=a features={KRAFT}")
    if registered:
        world.run(registered)
    (told,) = world.run("features kraft.version=1")
    assert words in told
    assert quorum.kraft_version == 0
