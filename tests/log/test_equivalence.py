"""One history under many settings: the division into segments, indexes, compression and syncs must not change
the results of any reader.

The history is drawn from a seed before any broker runs; each setting then runs it on its own node. Retention
has nothing to remove there, and compaction may keep superseded records: under a compacting setting the newest
record of each key must be the same.
"""

from random import Random
from typing import NamedTuple

import pytest

from sparklog.errors import ErrorCode
from sparklog.record.batch import build_batch, decode_records, iterate_headers
from sparklog.record.compression import Codec
from sparklog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.schema import Message
from tests.broker.world import (
    ACKS_ALL,
    FETCH_BY_NAME,
    PRODUCE_BY_NAME,
    World,
    fetch,
    latest,
    listed,
    produce,
    produced,
)

START_MS = 1_700_000_000_000
NAMES = ("one", "two")
EARLIEST = -2


class Step(NamedTuple):
    """`produce`: the values of one batch, by an idempotent producer or none; `delete`: the records below
    `offset`, or all.

    `stop`, `cut`: the way the process ends before it starts again; `wait`: time passes until retention and
    compaction run.
    """

    kind: str
    topic: str = ""
    values: tuple[bytes, ...] = ()
    producer_id: int = -1
    sequence: int = -1
    offset: int = 0


class Setting(NamedTuple):
    """The varied settings: Kafka's topic keys, and the compression of producers."""

    name: str
    topic_configs: dict[str, str]
    codec: Codec = Codec.NONE
    is_compacted: bool = False


COMPACTING = {
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": "0.01",
    "internal.segment.bytes": "1500",
}
SETTINGS = (
    Setting("defaults", {}),
    Setting("tiny segments", {"internal.segment.bytes": "700"}),
    Setting("an index entry for each batch", {"index.interval.bytes": "0", "internal.segment.bytes": "3000"}),
    Setting("compressed", {"internal.segment.bytes": "2000"}, Codec.ZSTD),
    Setting("compressed, huge index interval", {"index.interval.bytes": "1000000"}, Codec.SNAPPY),
    Setting("every record synced", {"sparklog.ack.flush": "always", "internal.segment.bytes": "1500"}),
    Setting("lz4, a sync for each", {"sparklog.ack.flush": "always"}, Codec.LZ4),
    Setting("gzip", {"internal.segment.bytes": "900"}, Codec.GZIP),
    Setting("compacted", COMPACTING, is_compacted=True),
    Setting("compacted, zstd", COMPACTING, Codec.ZSTD, is_compacted=True),
)


def history_of(seed: int, *, length: int = 60) -> list[Step]:
    """Produces to two topics, with retries, and restarts of every kind in between."""
    random = Random(seed)
    sequences: dict[tuple[str, int], int] = {}
    steps: list[Step] = []
    for number in range(length):
        if random.random() < 0.12:
            steps.append(Step(random.choice(("stop", "cut", "wait"))))
            continue
        if random.random() < 0.06:
            steps.append(Step("delete", random.choice(NAMES), offset=random.randrange(-1, length)))
            continue
        topic, producer_id = random.choice(NAMES), random.choice((-1, 41, 42))
        values = tuple(
            b"%d.%d " % (number, at) + b"v" * random.randrange(150) for at in range(random.randrange(1, 4))
        )
        sequence = sequences.get((topic, producer_id), 0) if producer_id >= 0 else -1
        step = Step("produce", topic, values, producer_id, sequence)
        steps.append(step)
        if producer_id >= 0:
            sequences[topic, producer_id] = sequence + len(values)
            if random.random() < 0.2:
                steps.append(step)  # the client did not get the response
    return steps


def create(world: World, setting: Setting) -> None:
    for name in NAMES:
        configs = [
            CreatableTopicConfig(name=key, value=value)
            for key, value in {"retention.ms": "-1", **setting.topic_configs}.items()
        ]
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)],
            timeout_ms=1000,
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
                [(key_of(value), value, (), START_MS + number) for value in step.values],
                codec=setting.codec,
                producer_id=step.producer_id,
                producer_epoch=0 if step.producer_id >= 0 else -1,
                base_sequence=step.sequence,
            )
            code, _ = produced(
                world.ask(
                    client, produce(step.topic, bytes(batch), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse
                )
            )
            assert code == 0, (step, setting.name)
            continue
        if step.kind == "delete":
            part = DeleteRecordsPartition(partition_index=0, offset=step.offset)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=step.topic, partitions=[part])], timeout_ms=5000
            )
            deleted = world.ask(client, request, 2, DeleteRecordsResponse)
            assert isinstance(deleted, DeleteRecordsResponse)
            assert deleted.topics[0].partitions[0].error_code in (
                ErrorCode.NONE,
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
            continue
        if step.kind == "wait":
            world.settle(ms=60_000)
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
    """Fetch from the log start to the end."""
    client = world.node.connect()
    found: list[tuple[int, int, bytes]] = []
    error, offset = listed(world.ask(client, latest(topic, timestamp=EARLIEST), 7, ListOffsetsResponse))
    assert error == 0
    while True:
        answer: Message = world.ask(
            client, fetch(topic, offset, max_wait_ms=0, max_bytes=4000), FETCH_BY_NAME, FetchResponse
        )
        assert isinstance(answer, FetchResponse)
        part = answer.responses[0].partitions[0]
        assert part.error_code == 0
        content = part.records or b""
        assert isinstance(content, (bytes, memoryview))
        headers = [header for _, header in iterate_headers(content)]
        if not headers:
            assert offset == part.high_watermark
            return found
        records = [record for record in decode_records(content) if record.offset >= offset]
        offset = headers[-1].next_offset  # a compacted batch may have no records
        found += [(record.offset, record.timestamp, record.value or b"") for record in records]


def key_of(value: bytes) -> bytes:
    """A few keys, each with many values."""
    return b"key-%d" % (len(value) % 5)


def newest(records: list[tuple[int, int, bytes]]) -> dict[bytes, tuple[int, int, bytes]]:
    """The last record of each key."""
    return {key_of(record[2]): record for record in records}


def expected_of(steps: list[Step]) -> dict[str, list[tuple[int, int, bytes]]]:
    """The records that both topics must have."""
    records: dict[str, list[tuple[int, int, bytes]]] = {name: [] for name in NAMES}
    seen: dict[tuple[str, int, int], None] = {}
    starts = dict.fromkeys(NAMES, 0)
    for number, step in enumerate(steps):
        if step.kind == "delete":
            end = len(records[step.topic])
            if step.offset <= end:
                starts[step.topic] = max(starts[step.topic], end if step.offset < 0 else step.offset)
            continue
        if step.kind != "produce" or (step.topic, step.producer_id, step.sequence) in seen:
            continue
        if step.producer_id >= 0:
            seen[step.topic, step.producer_id, step.sequence] = None
        records[step.topic] += [
            (len(records[step.topic]) + at, START_MS + number, value) for at, value in enumerate(step.values)
        ]  # fmt: skip
    return {topic: some[starts[topic] :] for topic, some in records.items()}


def agree(seed: int, steps: list[Step], setting: Setting) -> None:
    found, expected = live(seed, steps, setting), expected_of(steps)
    if not setting.is_compacted:
        assert found == expected, setting.name
        return
    for topic in NAMES:
        assert [record for record in expected[topic] if record in found[topic]] == found[topic], setting.name
        assert newest(found[topic]) == newest(expected[topic]), setting.name


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
@pytest.mark.parametrize("seed", range(2))
def test_one_history_gives_the_same_records_under_every_setting(seed: int, setting: Setting) -> None:
    agree(seed, history_of(seed), setting)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_histories_give_the_same_records_under_every_setting(seed: int) -> None:
    steps = history_of(seed, length=150)
    for setting in SETTINGS:
        agree(seed, steps, setting)
