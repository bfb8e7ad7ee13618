"""Several data directories: one that fails takes its own partitions offline, and the others serve on."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.disk.door import StorageError
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

PARTITIONS = 4
DIRS = ("/a", "/b", "/c")


def started(**given: str) -> World:
    world = World(1, **{"log.dirs": ",".join(DIRS), **given})
    world.node.start()
    world.settle()
    return world


def filled(**given: str) -> tuple[World, SimulatedConnection]:
    """Every partition holds one acknowledged record."""
    world = started(**given)
    client = world.node.connect()
    assert world.create(client, "t", PARTITIONS) == 0
    for partition in range(PARTITIONS):
        assert send(world, client, partition) == 0
    return world, client


def send(world: World, client: SimulatedConnection, partition: int, topic: str = "t") -> int:
    answer = world.ask(
        client,
        produce(topic, world.batch(b"x"), acks=ACKS_ALL, partition=partition),
        PRODUCE_BY_NAME,
        ProduceResponse,
    )
    return produced(answer)[0]


def placed(world: World, directory: str, topic: str = "t") -> list[int]:
    """The partitions that lie in a directory."""
    return [
        int(name[-1])
        for name in world.disk.list(directory)
        if name.startswith(f"{topic}-") and name[-1].isdigit()
    ]


def break_disk(world: World, directory: str, *calls: str) -> None:
    """Have the disk refuse these calls in one directory, or all of them."""
    world.disk.fault = lambda call, path: (
        "EIO" if path.startswith(f"{directory}/") and (not calls or call in calls) else None
    )


def leaders(world: World, client: SimulatedConnection) -> dict[int, int]:
    answer = world.ask(client, MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 8, MetadataResponse)
    assert isinstance(answer, MetadataResponse)
    return {part.partition_index: part.leader_id for part in answer.topics[0].partitions}


def test_partitions_are_spread_over_the_directories() -> None:
    world, _ = filled()
    assert sorted(partition for directory in DIRS for partition in placed(world, directory)) == list(
        range(PARTITIONS)
    )
    assert all(placed(world, directory) for directory in DIRS)


@pytest.mark.parametrize("call", ["append", "sync", "replace"])
def test_a_directory_that_fails_takes_only_its_own_partitions_with_it(call: str) -> None:
    world, client = filled()
    break_disk(world, "/b", call)
    lost = placed(world, "/b")
    # One write is enough: the other logs in the directory are lost with it.
    codes = [send(world, client, partition) for partition in lost for _ in range(2)]
    world.settle(10_000)
    assert ErrorCode.KAFKA_STORAGE_ERROR in codes or call == "replace"
    for partition in range(PARTITIONS):
        expected = ErrorCode.KAFKA_STORAGE_ERROR if partition in lost else ErrorCode.NONE
        assert send(world, client, partition) == expected
        answer = world.ask(client, fetch("t", 0, partition=partition), FETCH_BY_NAME, FetchResponse)
        assert fetched(answer)[0] == expected
    assert {partition for partition, leader in leaders(world, client).items() if leader < 0} == set(lost)
    assert world.create(client, "u", 3) == 0
    assert placed(world, "/b", "u") == []
    world.disk.fault = None
    world.node.stop()
    assert world.disk.read("/a/.kafka_cleanshutdown") is not None
    assert world.disk.read("/b/.kafka_cleanshutdown") is None


def test_a_full_disk_is_a_failed_one() -> None:
    world, client = filled()
    lost = placed(world, "/c")
    world.disk.fault = lambda call, path: (
        "No space left on device" if path.startswith("/c/") and call == "append" else None
    )
    assert send(world, client, lost[0]) == ErrorCode.KAFKA_STORAGE_ERROR
    assert send(world, client, placed(world, "/a")[0]) == 0


def test_after_a_new_start_the_directory_and_its_records_are_back() -> None:
    world, client = filled()
    lost = placed(world, "/b")
    break_disk(world, "/b")
    for partition in lost:
        send(world, client, partition)
    world.node.kill()
    world.disk.fault = None
    world.node.start()
    world.settle()
    client = world.node.connect()
    for partition in range(PARTITIONS):
        assert fetched(world.ask(client, fetch("t", 0, partition=partition), FETCH_BY_NAME, FetchResponse))[
            1
        ][:1] == [b"x"]
        assert send(world, client, partition) == 0


@pytest.mark.parametrize("call", ["mkdir", "read", "list", "remove"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_directory_that_cannot_be_opened_is_left_out_and_nothing_begins_in_its_place(
    call: str, is_clean: bool
) -> None:
    world, client = filled()
    lost = placed(world, "/b")
    before = {directory: placed(world, directory) for directory in DIRS}
    world.node.stop() if is_clean else world.node.kill()
    world.disk.fault = lambda asked, path: (
        "EIO" if asked == call and (path == "/b" or path.startswith("/b/")) else None
    )
    world.node.start()
    world.settle()
    assert world.node.running.is_ready
    assert [line for line in world.node.trace if line.startswith("log-directory-offline path=/b")]
    client = world.node.connect()
    for partition in range(PARTITIONS):
        assert send(world, client, partition) == (
            ErrorCode.KAFKA_STORAGE_ERROR if partition in lost else ErrorCode.NONE
        )
    error, _ = listed(world.ask(client, latest("t", partition=lost[0]), 7, ListOffsetsResponse))
    assert error == ErrorCode.KAFKA_STORAGE_ERROR
    assert (
        fetched(world.ask(client, fetch("t", 0, partition=lost[0]), 5, FetchResponse))[0]
        == ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    world.disk.fault = None
    assert {directory: placed(world, directory) for directory in DIRS} == before
    world.node.stop()
    world.node.start()
    world.settle()
    client = world.node.connect()
    for partition in range(PARTITIONS):
        assert send(world, client, partition) == 0


def test_without_the_directory_of_the_metadata_log_there_is_no_broker() -> None:
    world, _ = filled()
    world.node.stop()
    world.disk.fault = lambda _, path: "EIO" if path == "/a/meta.properties" else None
    with pytest.raises(StorageError):
        world.node.start()


def test_without_any_data_directory_there_is_no_broker() -> None:
    world, _ = filled(**{"metadata.log.dir": "/m"})
    world.node.stop()
    world.disk.fault = lambda _, path: None if path.startswith("/m") else "EIO"
    with pytest.raises(StorageError):
        world.node.start()


def test_a_directory_of_the_metadata_log_alone_gets_no_partitions() -> None:
    world, client = filled(**{"metadata.log.dir": "/m"})
    assert [name for name in world.disk.list("/m") if name.startswith("t-")] == []
    world.node.stop()
    assert world.disk.read("/m/.kafka_cleanshutdown") is not None
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert [send(world, client, partition) for partition in range(PARTITIONS)] == [0] * PARTITIONS


def test_a_directory_of_an_earlier_topic_is_set_aside_not_deleted() -> None:
    world, client = filled()
    directory = next(directory for directory in DIRS if 0 in placed(world, directory))
    world.node.stop()
    world.disk.write(f"{directory}/t-0/partition.metadata", b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    world.node.start()
    world.settle()
    client = world.node.connect()
    assert listed(world.ask(client, latest("t"), 7, ListOffsetsResponse)) == (0, 0)
    strays = [name for name in world.disk.list(directory) if name.endswith("-stray")]
    assert len(strays) == 1
    assert f"{0:020d}.log" in world.disk.list(f"{directory}/{strays[0]}")
    assert [line for line in world.node.trace if line.startswith("stray-log-set-aside partition=t-0")]
