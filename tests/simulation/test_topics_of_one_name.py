"""A topic is deleted and another gets its name: no state of the first applies to the second."""

import pytest

from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from tests.broker.world import ACKS_ALL, FETCH_BY_NAME, PRODUCE_BY_NAME, World, fetch, fetched, produce


@pytest.mark.parametrize(
    "seed", [5, 14, 19, 21, 56, 59, 60, 61]
)  # the first six once read torn batches as sound ones
def test_a_checkpoint_of_a_deleted_topic_does_not_vouch_for_the_next_of_its_name(seed: int) -> None:
    world = World(seed)
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "t")
    client.replies.clear()
    for _ in range(50):
        client.send(produce("t", world.batch(b"old")), PRODUCE_BY_NAME, ProduceResponse)
    world.settle(ms=7000)  # a checkpoint says that 50 records are durable
    world.ask(client, DeleteTopicsRequest(topic_names=["t"], timeout_ms=10), 4, DeleteTopicsResponse)
    world.create(client, "t")
    world.ask(client, produce("t", world.batch(b"new 0"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    for number in range(1, 31):
        client.send(
            produce("t", world.batch(b"new %d" % number + b" " * 700)), PRODUCE_BY_NAME, ProduceResponse
        )
    world.node.kill()
    world.node.start()
    world.settle()
    code, values = fetched(world.ask(world.node.connect(), fetch("t", 0), FETCH_BY_NAME, FetchResponse))
    assert code == 0
    assert [value.strip() for value in values] == [b"new %d" % number for number in range(len(values))]
    assert values


def test_a_log_whose_topic_was_deleted_just_before_the_crash_is_set_aside() -> None:
    world = World(seed=1)
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "t")
    world.create(client, "kept")
    world.ask(client, produce("t", world.batch(b"old"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    world.disk.fault = lambda call, path: f"no power for {path}" if call == "rename" else None
    world.ask(client, DeleteTopicsRequest(topic_names=["t"], timeout_ms=10), 4, DeleteTopicsResponse)
    world.node.kill()
    world.disk.fault = None
    world.disk.remove("/data/t-0/partition.metadata")  # as if it had never reached the disk
    world.node.start()
    world.settle()
    client = world.node.connect()
    names = [name for name in world.disk.list("/data") if name.endswith(("-0", "-stray"))]
    assert [name.partition(".")[0] for name in names] == ["__cluster_metadata-0", "kept-0", "t-0"]
    assert names[2].endswith("-stray")
    world.create(client, "t")
    assert fetched(world.ask(client, fetch("t", 0, max_wait_ms=0), FETCH_BY_NAME, FetchResponse)) == (0, [])
    world.node.stop()
    world.node.start()
    world.settle()
    assert names[2] in world.disk.list("/data")
