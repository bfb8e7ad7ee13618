"""The start of a sync: at once for a waiting request, soon otherwise, and never two at a time."""

from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from tests.broker.world import ACKS_ALL, FETCH_BY_NAME, PRODUCE_BY_NAME, World, fetch, fetched, produce


def started() -> World:
    world = World(seed=1)
    world.node.start()
    world.settle()
    world.create(world.node.connect(), "t")
    world.settle()
    world.node.syncs = 0
    return world


def test_a_stream_that_nobody_waits_for_shares_a_few_syncs() -> None:
    world = started()
    client = world.node.connect()
    for _ in range(100):
        client.send(produce("t", world.batch(b"x"), acks=1), PRODUCE_BY_NAME, ProduceResponse)
        world.clock.run(until_us=world.clock.now.mono_us + 300)
    world.settle()
    assert 2 <= world.node.syncs <= 6


def test_the_first_who_waits_has_the_sync_begin_at_once() -> None:
    world = started()
    client = world.node.connect()
    client.send(produce("t", world.batch(b"x"), acks=1), PRODUCE_BY_NAME, ProduceResponse)
    assert world.node.syncs == 0
    client.send(produce("t", world.batch(b"y"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    assert world.node.syncs == 1


def test_a_reader_at_the_end_has_what_is_there_synced_and_shown() -> None:
    world = started()
    writer, reader = world.node.connect(), world.node.connect()
    writer.send(produce("t", world.batch(b"x"), acks=1), PRODUCE_BY_NAME, ProduceResponse)
    reader.send(fetch("t", 0), FETCH_BY_NAME, FetchResponse)
    assert world.node.syncs == 1
    world.settle(ms=10)
    assert fetched(reader.replies[0]) == (0, [b"x"])


def test_a_waiting_reader_has_the_next_record_synced_at_once() -> None:
    world = started()
    writer, reader = world.node.connect(), world.node.connect()
    reader.send(fetch("t", 0), FETCH_BY_NAME, FetchResponse)
    assert world.node.syncs == 0
    writer.send(produce("t", world.batch(b"x"), acks=1), PRODUCE_BY_NAME, ProduceResponse)
    assert world.node.syncs == 1
