"""One history under many settings: how a log is cut into segments, indexed, compressed and synced must not be seen by anyone who reads it.

The history is drawn from a seed before any broker runs; each setting then lives through it on a node of its own. To add an operation that
changes what is read (DeleteRecords), give `Step` a kind and let `live` ask for it.
"""

from random import Random
from typing import NamedTuple

import pytest

from sparklog.record.batch import build_batch, decode_records
from sparklog.record.compression import Codec
from sparklog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.schema import Message
from tests.broker.world import ACKS_ALL, FETCH_BY_NAME, PRODUCE_BY_NAME, World, fetch, produce, produced

START_MS = 1_700_000_000_000
NAMES = ("one", "two")


class Step(NamedTuple):
    """`produce`: the values of one batch, by an idempotent producer or none; `stop`, `cut`: how the process ends before it starts again."""

    kind: str
    topic: str = ""
    values: tuple[bytes, ...] = ()
    producer_id: int = -1
    sequence: int = -1


class Setting(NamedTuple):
    """What may differ: Kafka's topic keys, and how producers compress."""

    name: str
    topic_configs: dict[str, str]
    codec: Codec = Codec.NONE


SETTINGS = (
    Setting("defaults", {}),
    Setting("tiny segments", {"internal.segment.bytes": "700"}),
    Setting("an index entry for each batch", {"index.interval.bytes": "0", "internal.segment.bytes": "3000"}),
    Setting("compressed", {"internal.segment.bytes": "2000"}, Codec.ZSTD),
    Setting("compressed, huge index interval", {"index.interval.bytes": "1000000"}, Codec.SNAPPY),
    Setting("every record synced", {"sparklog.ack.flush": "always", "internal.segment.bytes": "1500"}),
    Setting("lz4, a sync for each", {"sparklog.ack.flush": "always"}, Codec.LZ4),
    Setting("gzip", {"internal.segment.bytes": "900"}, Codec.GZIP),
)


def history_of(seed: int, *, length: int = 60) -> list[Step]:
    """Produces to two topics, repeated ones too, with restarts of every kind between them."""
    random = Random(seed)
    sequences: dict[tuple[str, int], int] = {}
    steps: list[Step] = []
    for number in range(length):
        if random.random() < 0.08:
            steps.append(Step(random.choice(("stop", "cut"))))
            continue
        topic, producer_id = random.choice(NAMES), random.choice((-1, 41, 42))
        values = tuple(b"%d.%d " % (number, at) + b"v" * random.randrange(150) for at in range(random.randrange(1, 4)))
        sequence = sequences.get((topic, producer_id), 0) if producer_id >= 0 else -1
        step = Step("produce", topic, values, producer_id, sequence)
        steps.append(step)
        if producer_id >= 0:
            sequences[topic, producer_id] = sequence + len(values)
            if random.random() < 0.2:
                steps.append(step)  # the client did not see the answer
    return steps


def create(world: World, setting: Setting) -> None:
    for name in NAMES:
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in {"retention.ms": "-1", **setting.topic_configs}.items()]
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)], timeout_ms=1000
        )
        answer = world.ask(world.node.connect(), request, 7, CreateTopicsResponse)
        assert isinstance(answer, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message


def live(seed: int, steps: list[Step], setting: Setting) -> dict[str, list[tuple[int, int, bytes]]]:
    """Every record of both topics at the end: (offset, timestamp, value)."""
    world = World(seed)
    world.node.start()
    world.settle()
    create(world, setting)
    client = world.node.connect()
    for number, step in enumerate(steps):
        if step.kind == "produce":
            batch = build_batch(
                [(None, value, (), START_MS + number) for value in step.values],
                codec=setting.codec,
                producer_id=step.producer_id,
                producer_epoch=0 if step.producer_id >= 0 else -1,
                base_sequence=step.sequence,
            )
            code, _ = produced(world.ask(client, produce(step.topic, bytes(batch), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse))
            assert code == 0, (step, setting.name)
            continue
        if step.kind == "stop":
            world.node.stop()
        else:
            world.node.kill()
        world.node.start()
        world.settle()
        client = world.node.connect()
    return {topic: read(world, topic) for topic in NAMES}


def read(world: World, topic: str) -> list[tuple[int, int, bytes]]:
    """Fetch from the beginning to the end."""
    client = world.node.connect()
    found: list[tuple[int, int, bytes]] = []
    while True:
        offset = found[-1][0] + 1 if found else 0
        answer: Message = world.ask(client, fetch(topic, offset, max_wait_ms=0, max_bytes=4000), FETCH_BY_NAME, FetchResponse)
        assert isinstance(answer, FetchResponse)
        part = answer.responses[0].partitions[0]
        assert part.error_code == 0
        records = [record for record in decode_records(part.records or b"") if record.offset >= offset]
        if not records:
            assert offset == part.high_watermark
            return found
        found += [(record.offset, record.timestamp, record.value or b"") for record in records]


def expected_of(steps: list[Step]) -> dict[str, list[tuple[int, int, bytes]]]:
    """What a list would hold."""
    records: dict[str, list[tuple[int, int, bytes]]] = {name: [] for name in NAMES}
    seen: dict[tuple[str, int, int], None] = {}
    for number, step in enumerate(steps):
        if step.kind != "produce" or (step.topic, step.producer_id, step.sequence) in seen:
            continue
        if step.producer_id >= 0:
            seen[step.topic, step.producer_id, step.sequence] = None
        records[step.topic] += [
            (len(records[step.topic]) + at, START_MS + number, value) for at, value in enumerate(step.values)
        ]  # fmt: skip
    return records


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
@pytest.mark.parametrize("seed", range(2))
def test_one_history_gives_the_same_records_under_every_setting(seed: int, setting: Setting) -> None:
    steps = history_of(seed)
    assert live(seed, steps, setting) == expected_of(steps)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_histories_give_the_same_records_under_every_setting(seed: int) -> None:
    steps = history_of(seed, length=150)
    for setting in SETTINGS:
        assert live(seed, steps, setting) == expected_of(steps), setting.name
