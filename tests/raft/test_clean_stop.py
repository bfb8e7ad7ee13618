"""The mark of a clean stop: it saves the next start a scan, and nothing else counts as one."""

from sparklog.model import NodeId
from sparklog_server.continuations import Continuations
from sparklog_server.log.log_config import LogConfig
from sparklog_server.raft.node import RaftNode
from sparklog_server.raft.voters import VoterSet
from sparklog_server.simulation.disk import SimulatedDisk
from tests.raft.world import DIRECTORY, LOG, NOW, World, topic, untold

MARK = f"{LOG}/clean-stop-checkpoint"


def opened(disk: SimulatedDisk) -> RaftNode:
    """The state of the node before its first append or sync."""
    return RaftNode.open(
        disk,
        "/data",
        LogConfig(),
        node_id=NodeId(1),
        directory_id=DIRECTORY,
        voters=VoterSet({NodeId(1): DIRECTORY}),
        continuations=Continuations(),
        trace=untold,
        now=NOW,
    )


def lived() -> World:
    world = World()
    world.join()
    world.propose(topic("t", 3), "t")
    world.settle()
    return world


def test_after_a_clean_stop_the_whole_log_is_known_to_be_durable() -> None:
    world = lived()
    end_offset = world.quorum.log_end_offset
    world.quorum.close(NOW)
    node = opened(world.disk)
    assert node.log.recovery_point == node.log_end_offset == end_offset


def test_after_a_crash_nothing_is_taken_for_durable_that_was_not_written_down() -> None:
    world = lived()
    world.disk.restart()
    assert opened(world.disk).log.recovery_point == 0


def test_a_mark_counts_once() -> None:
    world = lived()
    world.quorum.close(NOW)
    assert world.disk.read(MARK) is not None
    opened(world.disk)
    world.disk.crash(world.random)
    assert world.disk.read(MARK) is None


def test_a_mark_that_is_not_that_of_this_log_counts_for_nothing() -> None:
    for content in (b"0\n1\n__cluster_metadata 0 2\n", b"0\n1\nother 0 2\n", b"0\n1\n", b"\xff"):
        world = lived()
        end_offset = world.quorum.log_end_offset
        world.quorum.close(NOW)
        world.disk.write(MARK, content)
        node = opened(world.disk)
        assert node.log_end_offset == end_offset
        assert node.log.recovery_point == end_offset  # which is in a separate file


def test_a_node_that_was_halted_leaves_no_mark() -> None:
    world = lived()
    world.propose(topic("u"), "u")
    world.disk.fault = lambda call, _path: "I/O error" if call == "sync" else None
    world.settle()
    world.disk.fault = None
    world.quorum.close(NOW)
    assert world.disk.read(MARK) is None
