"""The disk refuses one call: its directory goes offline, everyone who waits is told, and a new start
serves the acknowledged records.
"""

import struct

import pytest

from sparklog.errors import ErrorCode
from sparklog.kernels import scan
from sparklog.record.batch import CRC_POSITION, CRC_START
from sparklog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.disk.door import StorageError
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.configuring import TOPIC, set_to
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
from tests.replica.by_hand import ByHand

MAX_TIMESTAMP = -3


def refuse(world: World, call: str, part_of_path: str) -> None:
    """Have the disk refuse a call from now on."""
    world.disk.fault = lambda asked, path: "injected" if asked == call and part_of_path in path else None


@pytest.mark.parametrize("call", ["replace", "append"])
def test_a_disk_that_refuses_to_begin_a_sync_is_told_to_those_who_wait_for_it(
    world: World, call: str
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    client.replies.clear()
    refuse(world, call, "leader-epoch-checkpoint")
    client.send(produce("t", world.batch(b"x"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    assert [produced(reply) for reply in client.replies] == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]


@pytest.mark.parametrize("timestamp", [1, MAX_TIMESTAMP])
def test_a_failing_read_in_a_search_by_time_is_answered(world: World, timestamp: int) -> None:
    client = world.node.connect()
    world.create(client, "t")
    world.ask(client, produce("t", world.batch(b"x"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    refuse(world, "read", ".log")
    answer = world.ask(client, latest("t", timestamp=timestamp), 7, ListOffsetsResponse)
    assert listed(answer) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


@pytest.mark.parametrize("timestamp", [1, MAX_TIMESTAMP])
def test_a_batch_that_does_not_decompress_fails_a_search_by_time_and_nothing_else(timestamp: int) -> None:
    world = World(1, **{"sparklog.validate.compressed": "false"})
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "t")
    batch = bytearray(world.batch(b"x" * 100))
    struct.pack_into(">h", batch, 21, 4)  # says zstd
    struct.pack_into(">I", batch, CRC_POSITION, scan.crc(memoryview(batch)[CRC_START:]))
    assert produced(world.ask(client, produce("t", bytes(batch)), PRODUCE_BY_NAME, ProduceResponse)) == (0, 0)
    answer = world.ask(client, latest("t", timestamp=timestamp), 7, ListOffsetsResponse)
    assert listed(answer) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert listed(world.ask(client, latest("t"), 7, ListOffsetsResponse)) == (0, 1)


def test_a_metadata_log_that_cannot_be_closed_does_not_keep_the_data_from_it(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    world.ask(client, produce("t", world.batch(b"x"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    refuse(world, "replace", "__cluster_metadata")
    world.node.stop()
    world.disk.fault = None
    assert world.disk.read("/data/.kafka_cleanshutdown") is not None
    world.node.start()
    world.settle()
    answer = world.ask(world.node.connect(), fetch("t", 0), FETCH_BY_NAME, FetchResponse)
    assert fetched(answer) == (0, [b"x"])


def test_a_fetch_of_an_early_version_hears_of_a_failed_disk_in_a_code_it_knows(world: World) -> None:
    client = world.node.connect()
    world.create(client, "t")
    refuse(world, "sync", "/data/t-0")
    client.send(produce("t", world.batch(b"x"), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    world.settle()
    assert fetched(world.ask(client, fetch("t", 0), 5, FetchResponse)) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        [],
    )
    assert fetched(world.ask(client, fetch("t", 0), 6, FetchResponse)) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


def test_a_clean_stop_ends_also_where_the_directory_of_the_metadata_log_has_failed() -> None:
    world = ByHand(**{"metadata.log.dir": "/meta"})
    world.create("t")
    assert world.send("t", b"kept") == 0
    world.disk.fault = lambda _, path: "Input/output error" if path.startswith("/meta/") else None
    world.broker.stop(world.now)
    world.run_all()
    assert world.broker.is_stopped
    assert [line for line in world.trace if line.startswith("log-directory-offline path=/meta")]
    world.disk.fault = None
    world.disk.restart()
    world.start()
    assert world.read("t") == (0, [b"kept"])


def leaders(world: World, client: SimulatedConnection) -> list[int]:
    """The leaders of the partitions of `t`, by Metadata and by DescribeTopicPartitions."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    answer = world.ask(client, asked, 9, MetadataResponse)
    assert isinstance(answer, MetadataResponse)
    parts = answer.topics[0].partitions
    assert [part.error_code != 0 for part in parts] == [part.leader_id < 0 for part in parts]
    assert [list(part.offline_replicas) for part in parts] == [
        [1] if part.leader_id < 0 else [] for part in parts
    ]
    described = world.ask(
        client,
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]),
        0,
        DescribeTopicPartitionsResponse,
    )
    assert isinstance(described, DescribeTopicPartitionsResponse)
    assert [part.leader_id for part in described.topics[0].partitions] == [part.leader_id for part in parts]
    return [part.leader_id for part in parts]


def send(world: World, client: SimulatedConnection, partition: int, value: bytes = b"x") -> int:
    request = produce("t", world.batch(value), acks=ACKS_ALL, partition=partition)
    return produced(world.ask(client, request, PRODUCE_BY_NAME, ProduceResponse))[0]


def read(world: World, client: SimulatedConnection, partition: int) -> tuple[int, list[bytes]]:
    return fetched(
        world.ask(client, fetch("t", 0, partition=partition, max_wait_ms=0), FETCH_BY_NAME, FetchResponse)
    )


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_file_that_cannot_be_read_takes_its_partition_offline_alone(world: World, is_sent: bool) -> None:
    client = world.node.connect()
    world.create(client, "t", 2)
    assert [send(world, client, partition) for partition in (0, 1)] == [0, 0]
    refuse(world, "read", "/data/t-0")
    if is_sent:
        reader = world.node.connect()
        reader.send(fetch("t", 0, partition=0, max_wait_ms=0), FETCH_BY_NAME, FetchResponse)
        world.settle()
        assert reader.is_closed
    else:
        assert (
            listed(world.ask(client, latest("t", timestamp=1), 7, ListOffsetsResponse))[0]
            == ErrorCode.KAFKA_STORAGE_ERROR
        )
    world.disk.fault = None
    assert read(world, client, 0) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    assert send(world, client, 0) == ErrorCode.KAFKA_STORAGE_ERROR
    assert send(world, client, 1) == 0
    assert read(world, client, 1) == (0, [b"x", b"x"])
    assert leaders(world, client) == [-1, 1]
    assert [line.split()[1] for line in world.node.trace if line.startswith("partition-offline")] == [
        "partition=t-0"
    ]
    assert not [line for line in world.node.trace if line.startswith("log-directory-offline")]
    world.node.stop()
    assert world.disk.read("/data/.kafka_cleanshutdown") is None
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert read(world, client, 0) == (0, [b"x"])
    assert leaders(world, client) == [1, 1]


@pytest.mark.parametrize("call", ["append", "sync"])
def test_a_write_that_fails_takes_the_directory_offline_and_metadata_names_no_leader_there(call: str) -> None:
    world = World(1, **{"log.dirs": "/a,/b"})
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "t", 4)
    assert [send(world, client, partition) for partition in range(4)] == [0] * 4
    refuse(world, call, "/a/t-")  # in the directory of the metadata log too
    offline = [partition for partition in range(4) if f"t-{partition}" in world.disk.list("/a")]
    assert 0 < len(offline) < 4
    assert send(world, client, offline[0]) == ErrorCode.KAFKA_STORAGE_ERROR
    assert leaders(world, client) == [-1 if partition in offline else 1 for partition in range(4)]
    assert [send(world, client, partition) != 0 for partition in range(4)] == [
        partition in offline for partition in range(4)
    ]
    world.disk.fault = None
    world.node.kill(is_power_cut=False)
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert leaders(world, client) == [1] * 4
    assert [read(world, client, partition)[1][:1] for partition in range(4)] == [[b"x"]] * 4


def test_a_file_system_that_becomes_read_only_costs_no_record_and_a_start_after_it_is_mended_serves_all(
    world: World,
) -> None:
    client = world.node.connect()
    world.create(client, "t")
    assert send(world, client, 0, b"kept") == 0
    world.disk.is_read_only = True
    assert send(world, client, 0, b"refused") == ErrorCode.KAFKA_STORAGE_ERROR
    assert leaders(world, client) == [-1]
    assert [
        line
        for line in world.node.trace
        if line.startswith("log-directory-offline") and "Read-only file system" in line
    ]
    world.settle(10_000)
    world.node.stop()
    with pytest.raises(StorageError, match="Read-only file system"):
        world.node.start()
    world.disk.is_read_only = False
    world.node.kill(is_power_cut=False)
    world.node.start()
    world.settle()
    assert read(world, world.node.connect(), 0) == (0, [b"kept"])


@pytest.mark.parametrize("call", ["append", "read"])
def test_an_offline_partition_is_not_synced_when_its_flush_policy_changes(call: str) -> None:
    world = World(1, **{"metadata.log.dir": "/meta", "sparklog.ack.flush": "never"})
    world.node.start()
    world.settle()
    client = world.node.connect()
    world.create(client, "t")
    assert send(world, client, 0) == 0
    refuse(world, call, "/data/t-0")
    if call == "append":
        assert send(world, client, 0) == ErrorCode.KAFKA_STORAGE_ERROR
    else:
        answer = world.ask(client, latest("t", timestamp=1), 7, ListOffsetsResponse)
        assert listed(answer)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.fault = None
    broker = world.node.running
    assert set_to(world, client, TOPIC, "t", sparklog_ack_flush="always")[0] == 0
    world.node.begin_stop()
    world.settle(20_000)
    assert broker.is_stopped


def test_a_produce_is_answered_at_once_if_a_later_partition_takes_the_directory_offline(
    world: World,
) -> None:
    client = world.node.connect()
    world.create(client, "t", 2)
    client.replies.clear()
    request = produce("t", world.batch(b"x"), acks=ACKS_ALL, timeout_ms=30_000)
    second = produce("t", world.batch(b"x"), partition=1)
    request.topic_data[0].partition_data += second.topic_data[0].partition_data
    refuse(world, "append", "/data/t-1")
    client.send(request, PRODUCE_BY_NAME, ProduceResponse)
    (answer,) = client.replies
    assert isinstance(answer, ProduceResponse)
    parts = answer.responses[0].partition_responses
    assert [part.error_code for part in parts] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
