"""One log is damaged below its recovery point: its partition is offline, named with the remedy, and
everything beside it serves on.
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.produce import ProduceResponse
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

MAGIC_POSITION = 16
LOG = f"{0:020d}.log"
DAMAGED = "/a/t-0"
"""In the directory that holds the metadata log too."""


def send(world: World, client: SimulatedConnection, partition: int, topic: str = "t") -> int:
    answer = world.ask(
        client,
        produce(topic, world.batch(b"x"), acks=ACKS_ALL, partition=partition),
        PRODUCE_BY_NAME,
        ProduceResponse,
    )
    return produced(answer)[0]


def read(
    world: World, client: SimulatedConnection, partition: int, topic: str = "t"
) -> tuple[int, list[bytes]]:
    return fetched(
        world.ask(client, fetch(topic, 0, partition=partition, max_wait_ms=0), FETCH_BY_NAME, FetchResponse)
    )


def restarted(world: World) -> SimulatedConnection:
    world.node.start()
    world.settle()
    assert world.node.running.is_ready
    return world.node.connect()


def flip(world: World) -> bytes:
    """Damage the first batch of the log; returns the content of the file."""
    content = bytearray(world.disk.read(f"{DAMAGED}/{LOG}") or b"")
    content[MAGIC_POSITION] ^= 1
    world.disk.write(f"{DAMAGED}/{LOG}", bytes(content))
    return bytes(content)


def damaged() -> tuple[World, SimulatedConnection, bytes]:
    """After a power cut the first batch of one of three partitions, below the recovery point, is none."""
    world = World(1, **{"log.dirs": "/a,/b"})
    client = restarted(world)
    assert world.create(client, "t", 3) == 0
    assert DAMAGED[3:] in world.disk.list("/a")
    for _ in range(3):
        assert [send(world, client, partition) for partition in range(3)] == [0, 0, 0]
    world.settle(10_000)  # the recovery points are written down
    world.node.kill()
    content = flip(world)
    return world, restarted(world), content


def test_a_damaged_log_takes_its_own_partition_offline_and_nothing_else() -> None:
    world, client, content = damaged()
    assert [send(world, client, partition) for partition in range(3)] == [ErrorCode.KAFKA_STORAGE_ERROR, 0, 0]
    assert read(world, client, 0) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    assert [read(world, client, partition) for partition in (1, 2)] == [(0, [b"x"] * 4)] * 2
    assert listed(world.ask(client, latest("t"), 7, ListOffsetsResponse))[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.disk.read(f"{DAMAGED}/{LOG}") == content
    assert world.create(client, "beside", 4) == 0
    assert [send(world, client, partition, "beside") for partition in range(4)] == [0] * 4
    assert not [line for line in world.node.trace if line.startswith("log-directory-offline")]


def test_one_line_names_the_file_the_place_and_the_remedy() -> None:
    world, _, _ = damaged()
    (line,) = [line for line in world.node.trace if line.startswith("partition-offline")]
    for part in (
        "partition=t-0",
        f"{DAMAGED}/{LOG}",
        "at byte 0:",
        "offsets [0, 1)",
        "restore the file",
        "sparklog log repair /a",
    ):
        assert part in line


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_promise_outlives_every_stop_until_the_file_is_restored(is_clean: bool) -> None:
    world, client, content = damaged()
    for _ in range(2):
        assert send(world, client, 1) == 0
        world.settle(10_000)  # the others are written down anew
        world.node.stop() if is_clean else world.node.kill()
        client = restarted(world)
        assert send(world, client, 0) == ErrorCode.KAFKA_STORAGE_ERROR
        assert world.disk.read(f"{DAMAGED}/{LOG}") == content
    world.node.stop() if is_clean else world.node.kill()
    assert flip(world) != content
    client = restarted(world)
    assert read(world, client, 0) == (0, [b"x"] * 3)
    assert send(world, client, 0) == 0


def test_without_its_recovery_point_the_log_is_cut_at_the_damage() -> None:
    world, _, _ = damaged()
    world.node.stop()
    path = "/a/recovery-point-offset-checkpoint"
    lines = [line for line in (world.disk.read(path) or b"").splitlines()[2:] if not line.startswith(b"t 0 ")]
    world.disk.write(path, b"\n".join((b"0", b"%d" % len(lines), *lines, b"")))
    client = restarted(world)
    assert read(world, client, 0) == (0, [])
    assert send(world, client, 0) == 0


def test_deleting_the_topic_takes_the_damaged_directory_away_and_its_name_is_free() -> None:
    world, client, _ = damaged()
    world.ask(client, DeleteTopicsRequest(topic_names=["t"], timeout_ms=10), 4, DeleteTopicsResponse)
    assert [name for name in (*world.disk.list("/a"), *world.disk.list("/b")) if name.startswith("t-")] == []
    assert world.create(client, "t", 3) == 0
    assert [send(world, client, partition) for partition in range(3)] == [0] * 3
    world.node.kill()
    client = restarted(world)
    assert [read(world, client, partition) for partition in range(3)] == [(0, [b"x"])] * 3


def test_a_damaged_log_that_no_topic_claims_is_set_aside() -> None:
    world, client, content = damaged()
    world.disk.fault = lambda call, path: (
        "no power" if call == "rename" and path.startswith(DAMAGED) else None
    )
    world.ask(client, DeleteTopicsRequest(topic_names=["t"], timeout_ms=10), 4, DeleteTopicsResponse)
    world.node.kill()
    world.disk.fault = None
    restarted(world)
    (stray,) = [name for name in world.disk.list("/a") if name.startswith("t-0")]
    assert stray.endswith("-stray")
    assert world.disk.read(f"/a/{stray}/{LOG}") == content


def test_logs_that_cannot_be_read_when_they_are_opened_take_their_partitions_offline_one_by_one() -> None:
    world, client, _ = damaged()
    world.node.kill()
    world.disk.fault = lambda call, path: (
        "Input/output error" if call == "read" and path.startswith("/b/") and path.endswith(".log") else None
    )
    client = restarted(world)
    assert not [line for line in world.node.trace if line.startswith("log-directory-offline")]
    codes = [send(world, client, partition) for partition in range(3)]
    lost = [partition for partition in range(3) if f"t-{partition}" in world.disk.list("/b")]
    assert lost
    assert [partition for partition in range(3) if codes[partition]] == [0, *lost]
    told = [
        line.split()[1]
        for line in world.node.trace
        if line.startswith("partition-offline") and "Input/output error" in line
    ]
    assert told == [f"partition=t-{partition}" for partition in lost]
