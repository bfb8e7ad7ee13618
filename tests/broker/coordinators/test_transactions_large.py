"""Transactions of many partitions, and a broker that loses the shard or the disk beneath them."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from sparklog.errors import ErrorCode
from sparklog.record.batch import build_batch
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.broker.coordinators import participants
from tests.broker.transactions import SETTINGS, Producer, log_end, ready
from tests.broker.world import World

NONE = ErrorCode.NONE


@pytest.fixture
def world() -> Iterator[World]:
    settings: dict[str, Any] = {**SETTINGS}
    world = World(1, **settings)
    world.node.start()
    world.settle()
    yield world
    assert world.node.halted is None


def test_the_markers_of_many_partitions_are_written_over_several_turns(world: World) -> None:
    producer = ready(world, "a")
    assert world.create(producer.client, "many", partitions=450) == 0
    assert set(producer.add(*range(450), topic="many")) == {NONE}
    assert producer.end(commit=False) is NONE
    assert producer.state() == "CompleteAbort"
    assert {log_end(world, producer.client, index, topic="many") for index in (0, 199, 200, 401, 449)} == {1}


def test_while_the_markers_of_many_partitions_are_written_others_are_served(world: World) -> None:
    large, small = ready(world, "a"), ready(world, "b")
    assert world.create(large.client, "many", partitions=450) == 0
    assert world.create(large.client, "t") == 0
    assert set(large.add(*range(450), topic="many")) == {NONE}
    large.client.send(EndTxnRequest("a", large.producer_id, large.epoch, True), 5, EndTxnResponse)
    assert small.add(0) == [NONE]
    assert small.end(commit=True) is NONE
    assert [one.state() for one in (large, small)] == ["CompleteCommit"] * 2


def test_the_topic_of_transactions_may_be_deleted_while_one_of_them_ends(world: World) -> None:
    producer = ready(world, "a")
    assert world.create(producer.client, "t") == 0
    assert producer.add(0) == [NONE]
    producer.client.send(EndTxnRequest("a", producer.producer_id, producer.epoch, True), 5, EndTxnResponse)
    name = "__transaction_state"
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=1000)
    world.ask(world.node.connect(), request, 6, DeleteTopicsResponse)
    again = Producer(world, "a")
    assert again.find() is NONE
    assert again.init() is NONE


def test_a_marker_reaches_a_partition_of_offsets_that_no_shard_can_read() -> None:
    world = participants.started()
    writer = participants.Writer(world, "a", version=2)
    assert writer.send(b"x")[0] is NONE
    assert writer.commit_offset("g", 5) is NONE
    world.settle(10_000)
    end = log_end(world, world.node.connect(), 0, topic="__consumer_offsets")
    world.node.kill()
    # Something that neither we nor Kafka ever wrote: nobody may say what the groups of this partition have
    # committed.
    path = f"/data/__consumer_offsets-0/{0:020d}.log"
    nonsense = build_batch([(struct.pack(">hh", 77, 7), b"?", (), 0)], base_offset=end, leader_epoch=0)
    world.disk.write(path, (world.disk.read(path) or b"") + bytes(nonsense))
    world.node.start()
    world.settle()
    assert any(line.startswith("coordinator-load-failed") for line in world.node.trace)
    writer.reconnect()
    assert writer.end(is_commit=True) is NONE
    world.settle(20_000)
    assert writer.one.state() == "CompleteCommit"
    assert participants.read(world)[0] == [b"x"]


@pytest.mark.parametrize("level", [0, 1])
def test_a_cluster_of_an_older_version_is_upgraded_while_transactions_are_open(level: int) -> None:
    world = participants.started()
    set_level(world, level)
    open_, ended = (participants.Writer(world, name, version=1) for name in ("open", "ended"))
    for writer, partition in ((open_, 0), (ended, 1)):
        assert writer.add(partition) is NONE
        assert writer.send(b"before", partition=partition)[0] is NONE
    assert ended.end(is_commit=True) is NONE
    set_level(world, 2)
    assert open_.send(b"after")[0] is NONE
    assert open_.end(is_commit=True) is NONE
    assert participants.read(world)[0] == [b"before", b"after"]
    # The same client goes on, and one that takes its place speaks the new version from the next transaction
    # on.
    assert ended.add(1) is NONE
    assert ended.send(b"next", partition=1)[0] is NONE
    newer = participants.Writer(world, "ended", version=2)
    assert newer.send(b"newer", partition=1)[0] is NONE
    assert newer.end(is_commit=True) is NONE
    world.node.kill()
    world.node.start()
    world.settle()
    assert participants.read(world, partition=1)[0] == [b"before", b"next", b"newer"]
    assert len(participants.read(world, partition=1)[1]) == 1


def set_level(world: World, level: int) -> None:
    """Have the cluster speak a version of transactions."""
    update = FeatureUpdateKey("transaction.version", level, upgrade_type=1 if level == 2 else 2)
    answer = world.ask(
        world.node.connect(), UpdateFeaturesRequest(feature_updates=[update]), 1, UpdateFeaturesResponse
    )
    assert isinstance(answer, UpdateFeaturesResponse)
    assert answer.error_code == 0, answer.error_message
    assert [one.error_code for one in answer.results] == [0]
