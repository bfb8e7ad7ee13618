"""The disk refuses one call: its directory goes offline, everyone who waits is told, and a new start serves what was acknowledged."""

import struct

import pytest

from sparklog.errors import ErrorCode
from sparklog.kernels import scan
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.produce import ProduceResponse
from tests.broker.world import ACKS_ALL, FETCH_BY_NAME, PRODUCE_BY_NAME, World, fetch, fetched, latest, listed, produce, produced
from tests.replica.by_hand import ByHand

MAX_TIMESTAMP = -3


def refuse(world: World, call: str, part_of_path: str) -> None:
    """Have the disk refuse a call from now on."""
    world.disk.fault = lambda asked, path: "injected" if asked == call and part_of_path in path else None


@pytest.mark.parametrize("call", ["replace", "append"])
def test_a_disk_that_refuses_to_begin_a_sync_is_told_to_those_who_wait_for_it(world: World, call: str) -> None:
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
    struct.pack_into(">I", batch, scan.CRC_POSITION, scan.crc(memoryview(batch)[scan.CRC_START :]))
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
    assert fetched(world.ask(client, fetch("t", 0), 5, FetchResponse)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
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
