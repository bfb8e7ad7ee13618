"""Power cuts at any moment: acknowledged records survive in order, and every record that a reader got is
there.
"""

from random import Random

import pytest

from sparklog.record.batch import decode_records
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from tests.broker.world import ACKS_ALL, FETCH_BY_NAME, PRODUCE_BY_NAME, World, fetch, produce, produced


@pytest.mark.parametrize("seed", range(15))
def test_no_acknowledged_record_is_lost_and_no_shown_record_is_unsaid_over_crashes(seed: int) -> None:
    random = Random(seed)
    world = World(seed)
    world.node.start()
    world.settle()
    world.create(world.node.connect(), "t")
    acknowledged: dict[int, bytes] = {}
    shown: list[bytes] = []
    written = 0
    for _ in range(random.randint(2, 5)):
        client = world.node.connect()
        sent = []
        for _ in range(random.randint(1, 30)):
            value = b"%d-" % written + b"x" * random.randint(0, 2000)
            written += 1
            sent.append(value)
            client.send(produce("t", world.batch(value), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
            if random.random() < 0.4:
                world.clock.run(until_us=world.clock.now.mono_us + random.randint(0, 4000))
        world.clock.run(until_us=world.clock.now.mono_us + random.randint(0, 6000))
        for value, answer in zip(sent, client.replies, strict=False):
            code, offset = produced(answer)
            assert code == 0
            acknowledged[offset] = value
        reader = world.node.connect()
        reader.send(fetch("t", 0, max_wait_ms=0, max_bytes=1 << 26), FETCH_BY_NAME, FetchResponse)
        seen = read_values(reader.replies[0])
        assert seen[: len(shown)] == shown
        shown = seen
        if random.random() < 0.2:
            world.node.stop()
        else:
            world.node.kill()
        if random.random() < 0.3:
            world.clock.step_wall(random.choice([-3_600_000, 3_600_000]))
        world.node.start()
        world.settle()
    assert not [line for line in world.node.trace if line.startswith("partition-offline")], (
        "damaged by no more than a crash"
    )
    after = world.ask(world.node.connect(), fetch("t", 0, max_bytes=1 << 26), FETCH_BY_NAME, FetchResponse)
    records = decode_records(after.responses[0].partitions[0].records)
    assert [record.offset for record in records] == list(range(len(records)))
    stored = {record.offset: record.value for record in records}
    assert {offset: stored.get(offset) for offset in acknowledged} == acknowledged
    assert [record.value for record in records][: len(shown)] == shown


def read_values(answer: FetchResponse) -> list[bytes]:
    """The values of the one fetched partition."""
    return [record.value for record in decode_records(answer.responses[0].partitions[0].records or b"")]


def test_the_same_seed_tells_the_same_story() -> None:
    stories = []
    for _ in range(2):
        world = World(seed=7)
        world.node.start()
        world.settle()
        client = world.node.connect()
        world.create(client, "t", partitions=3)
        for partition in range(3):
            world.ask(
                client, produce("t", world.batch(b"x"), partition=partition), PRODUCE_BY_NAME, ProduceResponse
            )
        world.node.kill()
        world.node.start()
        world.settle()
        stories.append((world.node.trace, [str(reply) for reply in client.replies], world.clock.now))
    assert stories[0] == stories[1]


@pytest.mark.parametrize("seed", range(12))
def test_topics_that_come_and_go_with_their_segments_are_never_missed_after_crashes(seed: int) -> None:
    """Deletion, retention and crashes at any moment: files that the broker itself removed do not look like
    damage.
    """
    random = Random(seed)
    world = World(
        seed,
        **{
            "log.segment.bytes": "1048576",
            "log.retention.bytes": "1500000",
            "log.retention.check.interval.ms": "2000",
            "log.segment.delete.delay.ms": "0",
        },
    )
    for _ in range(5):
        world.node.start()
        world.settle()
        assert not [line for line in world.node.trace if line.startswith("partition-offline")], (
            "damaged by no more than a crash"
        )
        client = world.node.connect()
        for _ in range(random.randrange(3, 9)):
            topic = random.choice("ab")
            fate = random.random()
            if fate < 0.2:
                client.send(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10), 4, DeleteTopicsResponse)
            elif fate < 0.4:
                created = CreateTopicsRequest(
                    topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)],
                    timeout_ms=1000,
                )
                client.send(created, 7, CreateTopicsResponse)
            else:
                client.send(
                    produce(topic, world.batch(bytes(400_000)), acks=ACKS_ALL),
                    PRODUCE_BY_NAME,
                    ProduceResponse,
                )
            world.clock.run(
                until_us=world.clock.now.mono_us + random.choice((0, 500, 5_000, 600_000, 7_000_000))
            )
        if random.random() < 0.3:
            world.node.stop()
        else:
            world.node.kill()
