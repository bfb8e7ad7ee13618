"""Metadata on every node: images at one offset are equal and commands outlive no leadership."""

import sys
from types import FrameType

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import Offset
from sparklog.record.batch import build_batch
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import decode_value
from tests.broker.cluster.quorums import Node, Quorums, creation, deletion


def formed(seed: int = 0, *, count: int = 3, voters: int | None = None, **given: str) -> tuple[Quorums, Node]:
    """A cluster with a leader, whose own broker is registered."""
    world = Quorums(seed, count=count, voters=voters, **given)
    world.start()
    world.run_until(lambda: world.led_by is not None)
    leader = world.led_by
    assert leader is not None
    leader.join()
    world.run_until(lambda: leader.is_ready)
    return world, leader


def others(world: Quorums, node: Node) -> list[Node]:
    return [other for other in world.nodes.values() if other is not node]


def topics(node: Node) -> set[str]:
    return set(node.image.topics_by_name)


def test_every_node_publishes_what_the_leader_has_committed() -> None:
    world, leader = formed()
    leader.propose(creation("t", 3))
    world.run_until(lambda: all("t" in topics(node) for node in world.nodes.values()))
    assert leader.replies[-1].topics[0].error_code == ErrorCode.NONE
    for node in world.nodes.values():
        assert node.deltas[0].before == MetadataImage()
        assert all(one.after is two.before for one, two in zip(node.deltas, node.deltas[1:], strict=False))


def test_an_observer_publishes_too() -> None:
    world, leader = formed(count=4, voters=3)
    leader.propose(creation("t"))
    world.run_until(lambda: "t" in topics(world.nodes[4]))


def test_a_node_that_does_not_lead_refuses_a_command() -> None:
    world, leader = formed()
    follower = others(world, leader)[0]
    follower.propose(creation("t"))
    assert follower.replies[-1].topics[0].error_code == ErrorCode.NOT_CONTROLLER


def test_a_command_that_was_appended_gets_not_controller_when_its_leader_is_deposed() -> None:
    world, leader = formed()
    world.cut([leader.id], [node.id for node in others(world, leader)])
    leader.propose(creation("t"))
    leader.propose(creation("t"))
    world.run_until(lambda: len(leader.replies) == 4)
    assert [reply.topics[0].error_code for reply in leader.replies[-2:]] == [ErrorCode.NOT_CONTROLLER] * 2
    world.heal()
    world.run_until(lambda: world.led_by not in (None, leader))
    new = world.led_by
    new.join()
    world.run_until(lambda: new.is_ready)
    new.propose(creation("u"))
    world.run_until(lambda: all("u" in topics(node) for node in world.nodes.values()))
    assert topics(leader) == {"u"}


def test_a_new_leader_decides_on_top_of_what_the_one_before_has_committed() -> None:
    world, leader = formed()
    leader.propose(creation("t"))
    world.run_until(lambda: "t" in topics(leader))
    leader.stop(power=False)
    world.run_until(lambda: world.led_by is not None)
    new = world.led_by
    new.join()
    world.run_until(lambda: new.is_ready)
    new.propose(creation("t"))
    new.propose(creation("u"))
    world.run_until(lambda: "u" in topics(new))
    assert [reply.topics[0].error_code for reply in new.replies[-2:]] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NONE,
    ]
    leader.start()
    world.run_until(lambda: topics(leader) == {"t", "u"})


def test_a_leader_of_restarted_voters_replays_nothing_that_they_had_before_the_election() -> None:
    world, leader = formed()
    for number in range(40):
        leader.propose(creation(f"t{number}"))
    world.run_until(lambda: all("t39" in topics(node) for node in world.nodes.values()))
    for node in world.nodes.values():
        node.stop(power=False)
        node.start()
    applied: list[str] = []

    def called(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code is decode_value.__code__:
            applied.append(frame.f_code.co_name)

    earlier = sys.getprofile()
    sys.setprofile(called)
    world.run_until(lambda: all("t39" in topics(node) for node in world.nodes.values()))
    sys.setprofile(earlier)
    assert len(applied) < 10
    assert all(node.deltas[0].before == MetadataImage() for node in world.nodes.values())


def test_what_a_voter_read_ahead_and_no_leader_has_is_not_published() -> None:
    world, leader = formed()
    world.cut([leader.id], [node.id for node in others(world, leader)])
    leader.propose(creation("lost"))
    leader.stop(power=False)
    world.run_until(lambda: world.led_by not in (None, leader))
    new = world.led_by
    assert new is not None
    new.join()
    world.run_until(lambda: new.is_ready)
    new.propose(creation("kept"))
    world.heal()
    leader.start()
    world.run_until(lambda: "kept" in topics(leader))
    assert topics(leader) == {"kept"}


def test_a_node_that_leads_twice_activates_twice() -> None:
    world, first = formed()
    for number in range(6):
        leader = world.led_by
        assert leader is not None
        leader.propose(creation(f"t{number}"))
        world.run_until(lambda name=f"t{number}": all(name in topics(node) for node in world.nodes.values()))
        leader.run(lambda node=leader: node.quorum.raft.resign(world.instant))
        world.run_until(lambda: world.led_by is not None)
    assert topics(first) == {f"t{number}" for number in range(6)}
    assert len({node.quorum.epoch for node in world.nodes.values()}) == 1


def test_a_snapshot_that_takes_the_place_of_the_log_is_published_as_its_changes() -> None:
    world, leader = formed(
        metadata_log_max_record_bytes_between_snapshots="2000", metadata_max_retention_bytes="1"
    )
    absent = others(world, leader)[0]
    leader.propose(creation("old"))
    leader.propose(creation("kept", 2))
    world.run_until(lambda: "kept" in topics(absent))
    absent.is_paused = True
    leader.propose(deletion("old"))
    for number in range(20):
        leader.propose(creation(f"t{number}", 10))
        world.run(100)
    world.run(2_000)
    assert leader.quorum.raft.log.log_start_offset > absent.quorum.raft.log_end_offset
    count = len(absent.deltas)
    absent.resume()
    world.run_until(lambda: "t19" in topics(absent))
    assert "old" not in topics(absent)
    (delta, *_) = absent.deltas[count:]
    assert [topic.name for topic in delta.topics_deleted] == ["old"]
    assert {topic.name for topic in delta.topics_created} >= {"t0"}
    assert "kept" not in {one.topic_partition.topic for one in delta.partitions_changed}


def test_followers_write_snapshots_of_their_own() -> None:
    world, leader = formed(count=4, voters=3, metadata_log_max_record_bytes_between_snapshots="2000")
    for number in range(10):
        leader.propose(creation(f"t{number}", 10))
        world.run(100)
    for node in world.nodes.values():
        assert node.quorum.raft.snapshots
        assert all(snapshot.offset <= node.image.offset + 1 for snapshot in node.quorum.raft.snapshots)


@pytest.mark.parametrize("seed", range(12))
def test_images_are_equal_at_equal_offsets_through_kills_and_cuts(seed: int) -> None:
    world, _ = formed(
        seed, metadata_log_max_record_bytes_between_snapshots="1500", metadata_max_retention_bytes="1"
    )
    random = world.random_of("faults")
    for number in range(60):
        leader = world.led_by
        if leader is not None and not leader.is_paused:
            if not leader.is_ready:
                leader.join()
            leader.propose(creation(f"t{number}", random.randrange(1, 6)))
            if random.random() < 0.3:
                leader.propose(deletion(f"t{random.randrange(number + 1)}"))
        node = random.choice(list(world.nodes.values()))
        fault = random.random()
        if fault < 0.1 and node.node is not None:
            node.stop(power=random.random() < 0.5)
        elif fault < 0.3 and node.node is None:
            node.start()
        elif fault < 0.35 and node.node is not None and not node.is_paused:
            node.is_paused = True
        elif fault < 0.4 and node.is_paused:
            node.resume()
        elif fault < 0.5:
            world.cut([node.id], [other.id for other in others(world, node)], one_way=random.random() < 0.5)
        elif fault < 0.6:
            world.heal()
        world.run(random.randrange(1000))
    world.heal()
    for node in world.nodes.values():
        if node.is_paused:
            node.resume()
        if node.node is None:
            node.start()
    world.run_until(lambda: world.led_by is not None)
    leader = world.led_by
    assert leader is not None
    world.run(3000)
    leader = world.led_by
    leader.join()
    world.run_until(lambda: leader.is_ready)
    leader.propose(creation("last"))
    world.run_until(lambda: all("last" in topics(node) for node in world.nodes.values()))
    assert not world.halts
    assert len({node.image.offset for node in world.nodes.values()}) == 1
    assert len(world.image_digests) > Offset(10)


def test_a_follower_goes_on_while_the_leader_removes_the_snapshot_of_an_earlier_epoch() -> None:
    world, first = formed(metadata_log_max_snapshot_interval_ms="1000")
    first.propose(creation("t"))
    world.run(1500)
    first.run(lambda: first.quorum.raft.resign(world.instant))
    world.run_until(lambda: world.led_by is not None)
    leader = world.led_by
    assert leader is not None
    leader.join()
    world.run_until(lambda: leader.is_ready)
    raft = leader.quorum.raft
    world.run_until(
        lambda: raft.snapshots[-1].epoch == raft.epoch and raft.snapshots[-1].offset == raft.log_end_offset
    )
    assert raft.snapshots[0].epoch < raft.epoch
    raft.log.move_log_start(raft.snapshots[-1].offset)
    world.run(600)  # the followers fetch again
    leader.propose(creation("last"))
    world.run_until(lambda: all("last" in topics(node) for node in world.nodes.values()))
    assert not [node.id for node in world.nodes.values() if "raft-snapshot-installed" in node.told]


@pytest.mark.parametrize(("key", "version", "said"), [(99, 0, "key 99"), (12, 9, "version 9")])
def test_a_follower_that_meets_a_record_of_a_later_release_halts_with_the_reason(
    key: int, version: int, said: str
) -> None:
    world, leader = formed()
    raft = leader.quorum.raft
    leader.run(
        lambda: raft.append(build_batch([(None, bytes([1, key, version, 0]), (), 0)]), world.instant) and None
    )
    leader.run(lambda: raft.flush(world.instant))
    world.run_until(lambda: len(world.halts) >= 2)
    assert all(said in reason for _, reason in world.halts)
    assert leader.id not in [node for node, _ in world.halts]
