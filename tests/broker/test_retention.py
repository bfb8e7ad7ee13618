"""Retention and DeleteRecords through a whole broker: removed segments and files, and the state a crash
brings back.
"""

from random import Random

import pytest

from sparklog.errors import ErrorCode
from sparklog.record.batch import build_batch, decode_records, iterate_headers
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
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.schema import Message
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.world import (
    ACKS_ALL,
    FETCH_BY_NAME,
    PRODUCE_BY_NAME,
    World,
    fetch,
    fetched,
    latest,
    listed,
    produce,
    produced,
)

CHECK_MS = 60_000
EARLIEST = -2
HIGH_WATERMARK = -1


def started(**given: str) -> World:
    world = World(1, **{"log.retention.check.interval.ms": str(CHECK_MS), **given})
    world.node.start()
    world.settle()
    return world


def create(world: World, client: SimulatedConnection, name: str, **configs: object) -> None:
    wanted = [
        CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in configs.items()
    ]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=wanted)
    answer = world.ask(client, CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7, CreateTopicsResponse)
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer


def fill(world: World, client: SimulatedConnection, topic: str, count: int = 8) -> None:
    """`count` batches of one record each, 500 bytes and acknowledged."""
    for index in range(count):
        answer = world.ask(
            client,
            produce(topic, world.batch(b"%d" % index * 400), acks=ACKS_ALL),
            PRODUCE_BY_NAME,
            ProduceResponse,
        )
        assert produced(answer) == (0, index)


def earliest(world: World, client: SimulatedConnection, topic: str) -> int:
    error, offset = listed(world.ask(client, latest(topic, timestamp=EARLIEST), 7, ListOffsetsResponse))
    assert error == 0
    return offset


def delete(topic: str, offset: int, *, partition: int = 0) -> DeleteRecordsRequest:
    part = DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=5000)


def deleted(answer: Message) -> tuple[int, int]:
    """(error code, low watermark) of the one partition."""
    assert isinstance(answer, DeleteRecordsResponse)
    part = answer.topics[0].partitions[0]
    return part.error_code, part.low_watermark


def ask_delete(world: World, client: SimulatedConnection, topic: str, offset: int) -> tuple[int, int]:
    return deleted(world.ask(client, delete(topic, offset), 2, DeleteRecordsResponse))


def names(world: World, topic: str, suffix: str) -> list[str]:
    return [name for name in world.disk.list(f"/data/{topic}-0") if name.endswith(suffix)]


def test_old_segments_go_at_the_next_check_and_their_files_after_the_delay() -> None:
    world = started()
    client = world.node.connect()
    create(world, client, "t", internal_segment_bytes=1000, retention_ms=10_000, file_delete_delay_ms=60_000)
    fill(world, client, "t")
    world.settle(CHECK_MS + 2_000)
    assert earliest(world, client, "t") == 8
    assert names(world, "t", ".log") == [f"{8:020d}.log"]
    assert names(world, "t", ".log.deleted")
    world.settle(62_000)
    assert names(world, "t", ".deleted") == []
    assert produced(
        world.ask(client, produce("t", world.batch(b"new")), PRODUCE_BY_NAME, ProduceResponse)
    ) == (0, 8)
    assert fetched(world.ask(client, fetch("t", 3), FETCH_BY_NAME, FetchResponse)) == (
        ErrorCode.OFFSET_OUT_OF_RANGE,
        [],
    )


def test_retention_bytes_keeps_the_newest_segments() -> None:
    world = started()
    client = world.node.connect()
    create(world, client, "t", internal_segment_bytes=1000, retention_bytes=2000)
    fill(world, client, "t")
    world.settle(CHECK_MS)
    assert 0 < earliest(world, client, "t") < 8


@pytest.mark.parametrize("policy", ["compact", ""])
def test_a_topic_without_delete_forgets_nothing(policy: str) -> None:
    world = started(**{"log.cleaner.enable": "false"})
    client = world.node.connect()
    create(
        world,
        client,
        "t",
        internal_segment_bytes=1000,
        retention_ms=1,
        retention_bytes=1,
        cleanup_policy=policy,
    )
    if policy == "":
        fill(world, client, "t")
    world.settle(3 * CHECK_MS)
    assert earliest(world, client, "t") == 0


def test_what_was_retired_stays_away_after_a_clean_stop_and_after_a_crash() -> None:
    for is_clean in (True, False):
        world = started()
        client = world.node.connect()
        create(world, client, "t", internal_segment_bytes=1000, retention_ms=10_000)
        fill(world, client, "t")
        world.settle(CHECK_MS + 2_000)
        assert names(world, "t", ".deleted")
        world.node.stop() if is_clean else world.node.kill()
        world.node.start()
        world.settle()
        assert names(world, "t", ".deleted") == []
        assert earliest(world, world.node.connect(), "t") == 8


def test_a_topic_made_anew_while_files_of_its_namesake_are_renamed_keeps_its_own() -> None:
    world = started()
    client = world.node.connect()
    create(world, client, "t", internal_segment_bytes=1000, retention_ms=1_000)
    fill(world, client, "t", 4)
    while not [line for line in world.node.trace if line.startswith("segments-deleted")]:
        world.clock.run(until_us=world.clock.now.mono_us + 100)
    client.replies.clear()
    client.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5, DeleteTopicsResponse)
    again = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    client.send(CreateTopicsRequest(topics=[again], timeout_ms=1000), 7, CreateTopicsResponse)
    world.settle()
    assert len(client.replies) == 2
    fill(world, client, "t", 2)
    assert earliest(world, client, "t") == 0


# -- DeleteRecords


def test_deleted_records_are_out_of_range_and_stay_so_after_a_crash() -> None:
    for seed in range(20):
        world = started()
        client = world.node.connect()
        create(world, client, "t", internal_segment_bytes=1000)
        fill(world, client, "t")
        client.replies.clear()
        client.send(delete("t", 5), 2, DeleteRecordsResponse)
        while not client.replies:
            world.clock.run(until_us=world.clock.now.mono_us + 100)
        assert deleted(client.replies[0]) == (0, 5)
        world.random.seed(seed)
        world.node.kill()
        world.node.start()
        world.settle()
        client = world.node.connect()
        assert earliest(world, client, "t") == 5
        assert (
            fetched(world.ask(client, fetch("t", 4), FETCH_BY_NAME, FetchResponse))[0]
            == ErrorCode.OFFSET_OUT_OF_RANGE
        )
        assert fetched(world.ask(client, fetch("t", 7), FETCH_BY_NAME, FetchResponse)) == (0, [b"7" * 400])


def test_minus_one_deletes_all_that_is_committed_and_its_segments_go() -> None:
    world = started()
    client = world.node.connect()
    create(world, client, "t", internal_segment_bytes=1000, retention_ms=-1)
    fill(world, client, "t")
    assert ask_delete(world, client, "t", HIGH_WATERMARK) == (0, 8)
    assert names(world, "t", ".log")[0] == f"{0:020d}.log"
    world.settle(CHECK_MS)
    assert len(names(world, "t", ".log")) == 1


def test_an_offset_deleted_before_is_no_error() -> None:
    world = started()
    client = world.node.connect()
    create(world, client, "t")
    fill(world, client, "t")
    assert ask_delete(world, client, "t", 5) == (0, 5)
    assert ask_delete(world, client, "t", 3) == (0, 5)


def test_what_cannot_be_deleted_is_told() -> None:
    world = started(**{"log.cleaner.enable": "false"})
    client = world.node.connect()
    create(world, client, "t")
    create(world, client, "c", cleanup_policy="compact")
    create(world, client, "both", cleanup_policy="compact,delete")
    fill(world, client, "t", 2)
    assert ask_delete(world, client, "t", 3) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert ask_delete(world, client, "t", -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert ask_delete(world, client, "c", 0) == (ErrorCode.POLICY_VIOLATION, -1)
    assert ask_delete(world, client, "both", 0) == (0, 0)
    assert ask_delete(world, client, "nowhere", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert ask_delete(world, client, "__consumer_offsets", 0) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


def test_a_disk_that_refuses_the_checkpoint_is_told_to_who_waits_for_it() -> None:
    world = started()
    client = world.node.connect()
    create(world, client, "t")
    fill(world, client, "t", 2)
    world.disk.fault = lambda call, path: (
        "injected" if "log-start-offset-checkpoint" in path and call == "replace" else None
    )
    assert ask_delete(world, client, "t", 1) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    world.disk.fault = None


@pytest.mark.parametrize("seed", range(6))
def test_retention_beside_producers_and_power_cuts_loses_nothing_it_should_keep(seed: int) -> None:
    random = Random(seed)
    world = World(seed, **{"log.retention.check.interval.ms": "300", "log.retention.ms": "2000"})
    world.node.start()
    world.settle()
    client = world.node.connect()
    create(world, client, "t", internal_segment_bytes=2000, segment_ms=700, file_delete_delay_ms=100)
    start = 0
    for offset in range(60):
        answer = world.ask(
            client, produce("t", world.batch(b"x" * 100), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse
        )
        assert produced(answer) == (0, offset)
        if random.random() < 0.1:
            world.node.kill()
            world.node.start()
            world.settle(100 + random.randrange(3_000))
            client = world.node.connect()
        error, end = listed(world.ask(client, latest("t"), 7, ListOffsetsResponse))
        assert (error, end) == (0, offset + 1)
        start = earliest(world, client, "t")
        assert start <= end
        if start < end:
            code, _ = fetched(world.ask(client, fetch("t", start), FETCH_BY_NAME, FetchResponse))
            assert code == 0 or earliest(world, client, "t") > start
    assert start > 0


@pytest.mark.parametrize("seed", range(6))
def test_a_topic_compacted_and_deleted_keeps_the_last_record_of_each_young_key(seed: int) -> None:
    random = Random(seed)
    world = World(
        seed,
        **{
            "log.retention.check.interval.ms": "500",
            "log.initial.task.delay.ms": "0",
            "log.cleaner.backoff.ms": "200",
        },
    )
    world.node.start()
    world.settle()
    client = world.node.connect()
    configs = {
        "internal_segment_bytes": 1000,
        "min_cleanable_dirty_ratio": 0.01,
        "retention_ms": 30_000,
        "file_delete_delay_ms": 100,
    }
    create(world, client, "t", cleanup_policy="compact,delete", **configs)
    newest: dict[bytes, tuple[bytes, int]] = {}
    for index in range(80):
        key, value = b"%d" % (index // 8), b"%d" % index * 100
        now_ms = world.clock.now.wall_ms
        sent = produce("t", bytes(build_batch([(key, value, (), now_ms)])), acks=ACKS_ALL)
        assert produced(world.ask(client, sent, PRODUCE_BY_NAME, ProduceResponse)) == (0, index)
        newest[key] = value, now_ms
        if random.random() < 0.1:
            world.node.kill()
            world.node.start()
            world.settle(100 + random.randrange(3_000))
            client = world.node.connect()
    assert [line for line in world.node.trace if line.startswith("log-cleaned")]
    assert [line for line in world.node.trace if line.startswith("segments-deleted")]
    world.settle(2_000)
    found: dict[bytes, bytes] = {}
    offset = earliest(world, client, "t")
    assert offset > 0
    while offset < 80:
        answer = world.ask(client, fetch("t", offset), FETCH_BY_NAME, FetchResponse)
        assert isinstance(answer, FetchResponse)
        part = answer.responses[0].partitions[0]
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            offset = earliest(world, client, "t")  # retention came in between
            continue
        assert part.records, f"nothing at {offset}"
        records = decode_records(part.records)
        for record in records:
            assert record.key is not None
            found[record.key] = record.value or b""
        *_, (_, last) = iterate_headers(part.records)
        offset = last.next_offset  # compaction may have left a batch without records
    young = {key: value for key, (value, at_ms) in newest.items() if world.clock.now.wall_ms - at_ms < 30_000}
    assert {key: found.get(key) for key in young} == young


CHECKPOINT_RARELY = {
    "replica.high.watermark.checkpoint.interval.ms": "3600000",
    "log.flush.start.offset.checkpoint.interval.ms": "3600000",
}


def test_two_kills_before_the_watermarks_are_written_down_damage_nothing_that_retention_has_taken_from() -> (
    None
):
    world = started(**CHECKPOINT_RARELY)
    client = world.node.connect()
    create(world, client, "t", internal_segment_bytes=1000, retention_bytes=2000)
    fill(world, client, "t", 3)
    assert ask_delete(world, client, "t", 1) == (0, 1)  # the high watermark is written down with it
    for index in range(3, 12):
        answer = world.ask(
            client,
            produce("t", world.batch(b"%d" % index * 400), acks=ACKS_ALL),
            PRODUCE_BY_NAME,
            ProduceResponse,
        )
        assert produced(answer) == (0, index)
    world.settle(CHECK_MS + 1000)
    start = earliest(world, client, "t")
    assert start > 3
    for _ in range(3):
        world.node.kill(is_power_cut=False)
        world.node.start()
        world.settle(200)
        assert earliest(world, world.node.connect(), "t") == start
    world.settle(CHECK_MS)
    assert not names(world, "t", ".deleted")


def test_a_damaged_log_start_checkpoint_damages_no_idle_log_that_retention_has_taken_from() -> None:
    world = started()
    client = world.node.connect()
    create(world, client, "t", internal_segment_bytes=1000, retention_ms=10_000, file_delete_delay_ms=1)
    fill(world, client, "t")
    world.settle(3 * CHECK_MS)
    assert not names(world, "t", ".deleted")
    assert earliest(world, client, "t") == 8
    world.node.kill(is_power_cut=False)
    world.disk.write("/data/log-start-offset-checkpoint", b"0\n7\nt 0")
    world.node.start()
    world.settle()
    assert earliest(world, world.node.connect(), "t") == 8
