"""Syncs that a topic asks for by number or by time, where acknowledgements ask for none."""

import pytest

from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.replica.durability import BEHIND_BYTES_MAX
from tests.broker.test_retention import create
from tests.broker.world import ACKS_ALL, PRODUCE_BY_NAME, World, produce, produced


def started(**configs: object) -> World:
    world = World(seed=1)
    world.node.start()
    world.settle()
    create(world, world.node.connect(), "t", sparklog_ack_flush="never", **configs)
    world.settle(20_000)
    world.node.syncs = 0
    return world


def send(world: World, count: int, value: bytes = b"x") -> None:
    client = world.node.connect()
    for _ in range(count):
        assert (
            produced(
                world.ask(
                    client, produce("t", world.batch(value), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse
                )
            )[0]
            == 0
        )


def test_nothing_is_synced_that_no_setting_asks_for() -> None:
    world = started()
    send(world, 10)
    world.settle(60_000)
    assert world.node.syncs == 0


def test_many_unsynced_bytes_are_synced_though_no_request_waits() -> None:
    world, value = started(), bytes(BEHIND_BYTES_MAX // 16)
    send(world, 16, value)
    world.settle(60_000)
    assert world.node.syncs == 1
    send(world, 15, value)
    world.settle(60_000)
    assert world.node.syncs == 1


def test_flush_messages_syncs_after_so_many_records() -> None:
    world = started(flush_messages=5)
    send(world, 4)
    assert world.node.syncs == 0
    send(world, 6)
    assert world.node.syncs == 2


def test_flush_ms_syncs_when_the_oldest_record_is_that_old() -> None:
    world = started(flush_ms=5_000)
    send(world, 3)
    assert world.node.syncs == 0
    world.settle(3_000)
    assert world.node.syncs == 1
    world.settle(60_000)
    assert world.node.syncs == 1


@pytest.mark.parametrize("key", ["log.flush.interval.ms", "log.flush.scheduler.interval.ms"])
def test_the_brokers_keys_are_the_topics_defaults(key: str) -> None:
    world = World(1, **{key: "3000", "sparklog.ack.flush": "never"})
    world.node.start()
    world.settle()
    create(world, world.node.connect(), "t")
    world.settle(20_000)
    world.node.syncs = 0
    send(world, 1)
    assert world.node.syncs == 0
    world.settle(3_000)
    assert world.node.syncs == 1
