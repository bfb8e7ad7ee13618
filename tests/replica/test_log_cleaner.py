"""Compaction as the broker schedules it: jobs clean the due logs, within the rate limit, and the result
survives power cuts.
"""

from random import Random

import pytest

from sparklog.record.batch import build_batch, decode_records, iterate_headers
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.simulation.disk import NO_SPACE
from tests.broker.world import ACKS_ALL, FETCH_BY_NAME, PRODUCE_BY_NAME, World, fetch, produce, produced
from tests.replica.moves import Mover

COMPACTED = {
    "log.cleanup.policy": "compact",
    "log.segment.bytes": str(1 << 20),
    "log.cleaner.min.cleanable.ratio": "0.1",
}
BACKOFF_MS = 15_000
CHECKPOINT = "cleaner-offset-checkpoint"


def started(**more: str) -> World:
    world = World(1, **COMPACTED, **more)
    world.node.start()
    world.settle()
    world.create(world.node.connect(), "t")
    world.settle()
    return world


def write(world: World, *, rounds: int = 40, keys: int = 5) -> dict[bytes, bytes]:
    """Batches of 100 KB over a few keys; the last value of each."""
    client = world.node.connect()
    told: dict[bytes, bytes] = {}
    for index in range(rounds):
        pairs = {
            b"k%d" % (index * keys % 7 + key): b"%d-%d" % (index, key) + bytes(20_000) for key in range(keys)
        }
        records = [(key, value, (), world.clock.now.wall_ms) for key, value in pairs.items()]
        client.send(
            produce("t", bytes(build_batch(records)), acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse
        )
        world.settle(ms=20)
        assert produced(client.replies[-1])[0] == 0
        told |= pairs
    return told


def read(world: World) -> list[tuple[bytes | None, bytes | None]]:
    """Every record of the topic, as a reader from the start finds it."""
    found: list[tuple[bytes | None, bytes | None]] = []
    reader, offset = world.node.connect(), 0
    while True:
        answer = world.ask(
            reader, fetch("t", offset, max_wait_ms=0, max_bytes=1 << 26), FETCH_BY_NAME, FetchResponse
        )
        content = answer.responses[0].partitions[0].records or b""  # type: ignore[attr-defined]
        headers = [header for _, header in iterate_headers(content)]
        if not headers:
            return found
        found += [(record.key, record.value) for record in decode_records(content) if record.offset >= offset]
        offset = headers[-1].next_offset  # a batch may be left without records


def test_a_compacted_topic_shrinks_and_keeps_the_last_value_of_each_key() -> None:
    world = started()
    told = write(world)
    assert len(read(world)) == 200
    world.settle(ms=2 * BACKOFF_MS)
    left = read(world)
    assert len(left) < 100
    assert dict(left) == told
    assert any(line.startswith("log-cleaned") for line in world.node.trace)


def test_a_round_for_which_a_full_disk_has_no_room_leaves_nothing_behind_and_is_tried_again() -> None:
    world = started(**{"sparklog.disk.reserve.bytes": "0"})
    told = write(world)
    world.disk.capacity_bytes = world.disk.used_bytes + 30
    world.settle(ms=3 * BACKOFF_MS)
    assert len([line for line in world.node.trace if line.startswith("disk-full")]) == 1
    assert not [name for name in world.disk.list("/data/t-0") if name.endswith(".cleaned")]
    assert dict(read(world)) == told
    assert not [
        line for line in world.node.trace if line.startswith(("log-directory-offline", "log-cleaned"))
    ]
    world.disk.capacity_bytes = None
    world.settle(ms=60_000 + 2 * BACKOFF_MS)
    assert len(read(world)) < 100
    assert dict(read(world)) == told


@pytest.mark.parametrize("refused", ["rename", "cleaner-offset-checkpoint"])
def test_what_a_full_disk_refuses_of_a_swap_or_its_checkpoint_is_tried_again(refused: str) -> None:
    world = started()
    told = write(world)
    world.disk.fault = lambda call, path: (
        NO_SPACE if refused in (call, path.rpartition("/")[2].split(".")[0]) else None
    )
    world.settle(ms=2 * BACKOFF_MS)
    world.disk.fault = None
    world.settle(ms=3_000)
    assert len(read(world)) < 100
    assert dict(read(world)) == told
    assert not [line for line in world.node.trace if line.startswith("log-directory-offline")]
    assert world.disk.read("/data/cleaner-offset-checkpoint") is not None
    world.node.kill()
    world.node.start()
    world.settle()
    assert dict(read(world)) == told


def test_a_segment_that_compaction_cannot_read_takes_its_partition_offline_alone() -> None:
    world = started(**{"num.partitions": "1"})
    world.create(world.node.connect(), "beside")
    write(world)
    world.disk.fault = lambda call, path: (
        "Input/output error" if call == "read" and path.startswith("/data/t-0/") else None
    )
    world.settle(ms=2 * BACKOFF_MS)
    assert [line.split()[1] for line in world.node.trace if line.startswith("partition-offline")] == [
        "partition=t-0"
    ]
    batch = bytes(build_batch([(b"k", b"x", (), world.clock.now.wall_ms)]))
    answer = world.ask(
        world.node.connect(), produce("beside", batch, acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse
    )
    assert produced(answer) == (0, 0)


def test_the_checkpoint_says_after_a_restart_what_is_clean() -> None:
    world = started()
    told = write(world)
    world.settle(ms=2 * BACKOFF_MS)
    cleaned = sum(line.startswith("log-cleaned") for line in world.node.trace)
    world.node.stop()
    world.node.start()
    world.settle(ms=2 * BACKOFF_MS)
    assert sum(line.startswith("log-cleaned") for line in world.node.trace) == cleaned
    assert dict(read(world)) == told


def test_nothing_is_cleaned_where_the_cleaner_is_switched_off() -> None:
    world = started(**{"log.cleaner.enable": "false"})
    write(world)
    world.settle(ms=2 * BACKOFF_MS)
    assert len(read(world)) == 200


def test_a_slow_rate_spreads_the_work_over_time() -> None:
    world = started(**{"log.cleaner.io.max.bytes.per.second": "1000000"})
    write(world)
    world.settle(ms=BACKOFF_MS)
    begun = world.clock.now.mono_us
    while not any(line.startswith("log-cleaned") for line in world.node.trace):
        world.settle(ms=500)
        assert world.clock.now.mono_us < begun + 60_000_000
    assert len(read(world)) < 200


@pytest.mark.parametrize("seed", range(10))
def test_power_cuts_around_compaction_lose_nothing(seed: int) -> None:
    random = Random(seed)
    world = started()
    told: dict[bytes, bytes] = {}
    for _ in range(3):
        told |= write(world, rounds=random.randrange(10, 30))
        world.clock.run(until_us=world.clock.now.mono_us + random.randrange(1000 * BACKOFF_MS))
        for _ in range(random.randrange(3)):
            world.clock.run(until_us=world.clock.now.mono_us + random.randrange(20_000))
        world.node.kill()
        world.node.start()
        world.settle()
        assert dict(read(world)) == told


def test_the_checkpoint_of_a_removed_topic_vouches_for_no_other() -> None:
    world = started()
    write(world)
    world.settle(ms=2 * BACKOFF_MS)
    assert b"t 0 " in (world.disk.read(f"/data/{CHECKPOINT}") or b"")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
    world.ask(world.node.connect(), request, 6, DeleteTopicsResponse)
    world.settle()
    assert b"t 0 " not in (world.disk.read(f"/data/{CHECKPOINT}") or b"")


def test_who_was_aborted_is_read_beside_the_loop_before_a_log_is_compacted() -> None:
    world = Mover(0, **COMPACTED, **{"transaction.partition.verification.enable": "false"})
    for at in range(12):
        world.in_transaction(41, at, committed=at % 3 > 0, key=b"k%d" % (at % 2))
    read: list[str] = []

    def note(call: str, path: str) -> None:
        if call in ("open", "read") and path.endswith(".txnindex"):
            read.append(path)

    world.disk.restart()
    world.start()
    world.disk.fault = note
    while not any("log-cleaned" in line for line in world.trace):
        read.clear()
        world.wait(BACKOFF_MS)
        assert read == []
        assert world.held, "compaction has come to a rest"
        world.run(world.held[0])
