"""Files that a move leaves when its target fails after the swap: they have the log's name, and no partition
uses them.
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import Offset, TopicPartition
from sparklog.record.batch import build_batch
from sparklog_server.disk.ballast import FILE_NAME
from sparklog_server.disk.checkpoint import render_offsets
from sparklog_server.simulation.disk import NO_SPACE
from tests.broker.world import ACKS_ALL, PRODUCE_BY_NAME, produce
from tests.replica.moves import Mover


def copied_ahead() -> tuple[Mover, str]:
    """A stopped broker, whose copy of a log, at this path, has a record that the log lacks; and no ballast
    beside the copy.
    """
    world = Mover()
    world.move(world.target)
    while world.places() == [world.home]:
        world.run(world.held[0])
    batch = bytes(build_batch([(None, b"late", (), world.now.wall_ms)]))
    world.begin(produce("t", batch, acks=ACKS_ALL), PRODUCE_BY_NAME)
    world.disk.restart()
    copy = f"{world.target}/t-0.{'0' * 32}-future"
    world.disk.rename(f"{world.target}/t-0", copy)
    world.disk.remove(f"{world.target}/{FILE_NAME}")
    return world, copy


@pytest.mark.parametrize("jobs", range(6))
def test_a_topic_that_is_made_anew_where_a_move_left_its_log_behind_has_none_of_its_records(
    jobs: int,
) -> None:
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


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_copy_that_went_on_without_its_log_and_cannot_be_opened_takes_its_own_partition_offline(
    is_missing: bool,
) -> None:
    world = Mover()
    world.move(world.target)
    while world.places() == [world.home]:
        world.run(world.held[0])
    late = b"late"
    batch = bytes(build_batch([(None, late, (), world.now.wall_ms)]))
    world.begin(produce("t", batch, acks=ACKS_ALL), PRODUCE_BY_NAME)
    world.disk.restart()
    world.disk.rename(
        f"{world.target}/t-0", f"{world.target}/t-0.{'0' * 32}-future"
    )  # a crash may undo the rename of the swap
    if is_missing:
        world.disk.write(
            f"{world.target}/recovery-point-offset-checkpoint",
            render_offsets({TopicPartition("t", 0): Offset(20)}),
        )
    else:
        world.disk.fault = lambda call, path: (
            "EIO" if call == "read" and path.startswith(f"{world.target}/t-0/0") else None
        )
    for _ in range(2):
        world.start()
        world.finish()
        assert world.send("t", b"x") == ErrorCode.KAFKA_STORAGE_ERROR
        assert world.places() == sorted([world.home, world.target])
        assert [line for line in world.trace if line.startswith("log-directory-offline")] == []
        assert any(line.startswith("partition-offline partition=t-0") for line in world.trace)
        world.disk.restart()
    world.disk.fault = None
    if is_missing:
        world.disk.remove(f"{world.target}/recovery-point-offset-checkpoint")
    world.start()
    world.finish()
    assert world.all() == [*world.values, late]
    assert world.places() == [world.target]


@pytest.mark.parametrize("call", ["rename", "open"])
def test_a_copy_that_went_on_without_its_log_waits_for_room_and_is_taken_then(call: str) -> None:
    world, copy = copied_ahead()
    refused = copy if call == "rename" else f"{world.target}/t-0/"
    world.disk.fault = lambda asked, path: NO_SPACE if asked == call and path.startswith(refused) else None
    world.start()
    world.finish()
    assert world.send("t", b"x") == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not any(line.startswith(("log-directory-offline", "stray-log-set-aside")) for line in world.trace)
    world.disk.fault = None
    world.finish()
    assert world.all() == [*world.values, b"late"]
    assert world.places() == [world.target]


def test_the_log_that_a_copy_waiting_for_room_replaces_is_taken_away_as_soon_as_the_copy_is_taken() -> None:
    world, copy = copied_ahead()
    world.disk.fault = lambda call, path: NO_SPACE if call == "rename" and path == copy else None
    world.start()
    world.finish()
    world.disk.fault = None
    assert world.held == []
    while not any(line.startswith("interrupted-move-resolved") for line in world.trace):
        world.wait(1)
    assert len(world.held) == 1
    world.run(world.held[0])
    assert world.places() == [world.target]


def test_the_old_log_of_a_move_waits_for_room_for_its_new_name() -> None:
    world = Mover()
    world.move(world.target)
    world.disk.remove(f"{world.home}/{FILE_NAME}")
    world.disk.fault = lambda call, path: (
        NO_SPACE if call == "rename" and path == f"{world.home}/t-0" else None
    )
    world.finish()
    world.write(1)
    assert world.places() == sorted([world.home, world.target])
    world.disk.fault = None
    world.finish()
    assert (world.places(), world.leftovers()) == ([world.target], [])
    assert not any(line.startswith("log-directory-offline") for line in world.trace)
    assert world.all() == world.values
