"""The quorum of one: acknowledged records survive, and no record is acknowledged before it is durable."""

import json
from random import Random

import pytest

from sparklog.errors import DecodeError, ErrorCode
from sparklog.model import NodeId
from sparklog.record.batch import build_batch, decode_records
from sparklog.record.control import LeaderChange, parse_control
from sparklog_server.metadata.features import INITIAL
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.raft.election_state import ElectionStateCorrupt
from tests.raft.world import LOG, NOW, World, topic


def _syncs_fail(call: str, _path: str) -> str | None:
    return "I/O error" if call == "sync" else None


def test_the_vote_is_on_disk_before_anything_is_done_in_its_epoch() -> None:
    world = World()
    assert world.quorum.log_end_offset == 0
    assert world.sync() == 1
    state = json.loads(world.disk.read(f"{LOG}/quorum-state"))
    assert (state["leaderEpoch"], state["votedId"], state["data_version"]) == (1, 1, 1)
    assert world.quorum.log_end_offset > 0


def test_a_cluster_is_formed_with_three_syncs_the_first_time_and_every_time() -> None:
    world = World()
    for life in (b"A", b"B"):
        world.join(life)  # the vote; the LeaderChange record and the registration; the unfencing
        assert world.sync_count == 3
        assert world.quorum.image.features == INITIAL
        assert not world.quorum.image.brokers[NodeId(1)].is_fenced
        world.crash()


def test_nothing_is_public_before_it_is_synced() -> None:
    world = World()
    world.join()
    world.propose(topic("t"), "t")
    assert "t" not in world.quorum.image.topics_by_name
    assert "t" not in world.replies
    world.sync()
    assert "t" in world.quorum.image.topics_by_name
    assert world.replies["t"].topics[0].error_code == ErrorCode.NONE


def test_a_reply_without_records_waits_for_what_it_rests_on() -> None:
    world = World()
    world.join()
    world.propose(topic("t"), "first")
    world.propose(topic("t"), "second")
    assert "second" not in world.replies
    world.sync()
    assert world.replies["second"].topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    world.propose(topic("t"), "third")
    assert world.replies["third"].topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_whatever_is_proposed_during_a_sync_shares_the_next() -> None:
    world = World()
    world.join()
    for number in range(50):
        world.propose(topic(f"t{number}"), number)
    assert world.settle() == 2
    assert len(world.quorum.image.topics_by_name) == 50


def test_replies_come_in_the_order_of_their_commands() -> None:
    world = World()
    world.join()
    for number in range(5):
        world.propose(topic("t" if number % 2 else f"t{number}"), number)
    world.settle()
    assert [token for token in world.replies if isinstance(token, int)] == [0, 1, 2, 3, 4]


def test_a_restart_sees_the_same_image_in_a_higher_epoch() -> None:
    world = World()
    world.join()
    world.propose(topic("t", partitions=3), "t")
    world.settle()
    before = world.quorum.image
    world.quorum.close(NOW)
    world.crash()
    world.settle()
    assert world.quorum.image.topics_by_name == before.topics_by_name
    assert world.quorum.image.brokers == before.brokers
    assert world.quorum.epoch == 2


def test_each_leadership_begins_with_a_leader_change_record() -> None:
    world = World()
    world.settle()
    world.crash()
    world.settle()
    log = world.disk.read(f"{LOG}/{0:020d}.log")
    changes = [
        parse_control(record)
        for record in decode_records(log, include_control=True)
        if record.key is not None
    ]
    assert [
        (change.leader_id, [voter.voter_id for voter in change.voters])
        for change in changes
        if isinstance(change, LeaderChange)
    ] == [
        (1, [1]),
        (1, [1]),
    ]


@pytest.mark.parametrize("seed", range(60))
def test_a_power_cut_at_any_moment_keeps_what_was_promised(seed: int) -> None:
    random = Random(seed)
    world = World(seed)
    promised: set[str] = set()
    epochs: list[int] = []
    for life in range(4):
        world.replies.clear()
        if random.random() < 0.8:
            world.join(life=bytes([65 + life]))
            for number in range(random.randrange(8)):
                world.propose(
                    topic(f"life{life}-{number}", partitions=1 + number % 3), f"life{life}-{number}"
                )
                if random.random() < 0.5:
                    world.sync()
        else:
            world.sync()
        promised |= {
            token
            for token, reply in world.replies.items()
            if token.startswith("life") and reply.topics[0].error_code == 0
        }
        world.crash()
        world.settle()
        epochs.append(world.quorum.epoch)
        assert promised <= set(world.quorum.image.topics_by_name)
        topics = world.quorum.image.topics_by_name.items()
        # A batch is whole or absent: no topic comes back with a part of its partitions.
        assert all(len(found.partitions) == 1 + int(name.split("-")[1]) % 3 for name, found in topics)
    assert epochs == sorted(set(epochs)), "an epoch was led in twice"


def test_a_failed_sync_halts_and_nobody_is_told_anything() -> None:
    world = World()
    world.join()
    before = world.quorum.image
    world.propose(topic("t"), "t")
    world.disk.fault = _syncs_fail
    world.sync()
    world.sync()
    assert len(world.halts) == 1
    assert "I/O error" in world.halts[0]
    assert "t" not in world.replies
    assert world.quorum.image is before
    world.propose(topic("u"), "u")
    assert world.replies["u"].topics[0].error_code == ErrorCode.NOT_CONTROLLER


def test_a_vote_that_cannot_be_written_halts() -> None:
    world = World()
    world.disk.fault = _syncs_fail
    world.sync()
    world.sync()
    assert len(world.halts) == 1
    assert world.quorum.log_end_offset == 0


def test_a_full_disk_fails_the_command_alone() -> None:
    world = World(capacity_bytes=6000)
    world.join()
    number = 0
    while not world.replies or all(
        reply.topics[0].error_code == 0 for token, reply in world.replies.items() if isinstance(token, int)
    ):
        world.propose(topic(f"t{number}"), number)
        world.settle()
        number += 1
        assert number < 1000
    refused = world.replies[number - 1].topics[0]
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert f"t{number - 1}" not in world.quorum.image.topics_by_name
    assert world.quorum.is_leader
    assert world.halts == []


def test_a_lost_vote_file_does_not_bring_an_old_epoch_back() -> None:
    world = World()
    world.join()
    world.disk.remove(f"{LOG}/quorum-state")
    world.crash()
    world.settle()
    assert world.quorum.epoch == 2


def test_a_vote_file_that_cannot_be_read_is_refused_rather_than_guessed() -> None:
    world = World()
    world.settle()
    world.disk.write(f"{LOG}/quorum-state", b'{"leaderEpoch":')
    with pytest.raises(ElectionStateCorrupt):
        world.open()


def test_a_log_with_records_from_the_future_is_refused() -> None:
    world = World()
    world.join()
    value = bytes([1, 99, 0, 0])
    file = world.disk.open(f"{LOG}/{0:020d}.log")
    file.append(
        bytes(build_batch([(None, value, (), 0)], base_offset=world.quorum.log_end_offset, leader_epoch=1))
    )
    world.disk.sync([file])
    with pytest.raises(DecodeError, match="key 99"):
        world.open()


def test_the_first_delta_tells_the_whole_cluster() -> None:
    world = World()
    world.join()
    world.propose(topic("t", partitions=2), "t")
    world.settle()
    world.crash()
    due = world.continuations.take_effects()
    for effect in due:
        world.disk.sync(effect.files)
        world.continuations.finished(effect.ticket, None, NOW)
        due += world.continuations.take_effects()
    deltas = world.quorum.take_deltas()
    assert deltas[0].before == MetadataImage()
    assert [str(changed.topic_partition) for changed in deltas[0].partitions_changed] == ["t-0", "t-1"]
