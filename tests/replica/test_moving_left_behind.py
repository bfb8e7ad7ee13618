"""What a move leaves behind where its target fails after the swap: files under the log's name that nobody lives in."""

import pytest

from sparklog.errors import ErrorCode
from tests.replica.moves import Mover


@pytest.mark.parametrize("jobs", range(6))
def test_a_topic_that_is_made_anew_where_a_move_left_its_log_behind_has_none_of_its_records(jobs: int) -> None:
    world = Mover()
    world.move(world.target)
    while world.places() == [world.home]:
        world.run(world.held[0])
    for _ in range(jobs):
        if world.held:
            world.run(world.held[0])
    world.disk.fault = lambda _, path: "EIO" if path.startswith(f"{world.target}/") else None
    world.finish()
    world.send("t", b"x")
    world.finish()
    world.delete("t")
    world.finish()
    world.move(world.home)
    world.create("t")
    world.finish()
    assert world.send("t", b"new") == ErrorCode.NONE
    assert world.all() == [b"new"]
    world.disk.fault = None
    world.power_cut(jobs)
    world.finish()
    assert world.all() == [b"new"]
