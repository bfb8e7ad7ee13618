"""Damage to the metadata log: below its recovery point the node refuses to start; above it the torn end is
truncated, copied and logged.
"""

from random import Random

import pytest

from sparklog.record.batch import iterate_headers
from sparklog_server.disk.checkpoint import parse_offsets
from sparklog_server.log.recovery.cuts import parse_cut_name
from sparklog_server.log.segment.damage import LogDamaged
from sparklog_server.raft.durable_log import METADATA_PARTITION
from tests.raft.world import LOG, World, topic

PATH = f"{LOG}/{0:020d}.log"
POINT = f"{LOG}/recovery-point-checkpoint"


def lived(names: str = "abcde", *, waits: bool = True) -> World:
    """Topics were created one by one; with `waits` the recovery point was written afterwards."""
    world = World()
    world.join()
    for name in names:
        world.propose(topic(name, 2), name)
        world.settle()
    if waits:
        world.wait(500)
    return world


def point_of(world: World) -> int:
    return parse_offsets(world.disk.read(POINT) or b"0\n0\n").get(METADATA_PARTITION, 0)


def flip(world: World, at: int, bit: int = 1) -> None:
    content = bytearray(world.disk.read(PATH) or b"")
    content[at] ^= bit
    world.disk.write(PATH, bytes(content))


def refused(world: World) -> LogDamaged:
    """The reason why the node refuses to start, which is the same at the next start; no file changes."""
    before = world.disk.read(PATH)
    told = []
    for _ in range(2):
        with pytest.raises(LogDamaged) as raised:
            world.open()
        told.append(raised.value)
        world.disk.restart()
    assert (told[0].path, told[0].start) == (told[1].path, told[1].start)
    assert world.disk.read(PATH) == before
    assert told[0].with_remedy.endswith("run: sparklog log repair /data")
    return told[0]


def test_the_recovery_point_is_written_down_within_a_second_and_not_for_each_request() -> None:
    world = lived(waits=False)
    assert point_of(world) == 0
    written: list[str] = []
    world.disk.fault = lambda call, path: (
        written.append(path) if call == "replace" and "recovery-point" in path else None
    )
    for at in range(100):
        world.propose(topic(f"t{at}"), at)
        world.settle()
        world.wait(20)
    world.wait(500)
    assert 3 <= len(written) <= 6
    assert point_of(world) == world.quorum.log_end_offset
    world.wait(10_000)
    assert len(written) <= 6


def test_a_recovery_point_that_finds_no_room_stays_and_is_written_later() -> None:
    world = lived()
    point = point_of(world)
    world.propose(topic("f"), "f")
    world.settle()
    world.disk.capacity_bytes = world.disk.used_bytes
    world.wait(500)
    assert (point_of(world), world.halts) == (point, [])
    world.disk.capacity_bytes = None
    world.wait(500)
    assert point_of(world) == world.quorum.log_end_offset


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_bit_that_is_flipped_below_the_recovery_point_is_refused_with_file_byte_and_remedy(
    cleanly: bool,
) -> None:
    content = lived().disk.read(PATH) or b""
    batches = list(iterate_headers(content))
    point = point_of(lived())
    random = Random(1)
    for position, header in batches:
        if header.base_offset >= point:
            continue
        for at in (3, 10, 16, 20, *(random.randrange(21, header.size) for _ in range(2))):
            world = lived()
            if cleanly:
                world.stop()
            else:
                world.disk.restart()
            flip(world, position + at)
            damage = refused(world)
            assert damage.path == PATH
            assert damage.start in (header.base_offset, header.next_offset)
            assert damage.position is not None
            assert damage.position <= position + header.size


def test_a_bit_that_is_flipped_above_the_recovery_point_costs_the_end_which_is_kept_aside_and_told() -> None:
    world = lived("ab")
    point = point_of(world)
    size = len(world.disk.read(PATH) or b"")
    for name in "cde":
        world.propose(topic(name), name)
        world.settle()
    content = world.disk.read(PATH) or b""
    world.disk.restart()
    flip(world, size + 30)
    damaged = world.disk.read(PATH) or b""
    world.open()
    world.settle()
    assert world.told.count("log-cut") == 1
    assert sorted(world.quorum.image.topics_by_name) == ["a", "b"]
    (copy,) = [name for name in world.disk.list(LOG) if ".cut-" in name]
    parsed = parse_cut_name(copy)
    assert parsed is not None
    assert (parsed.base_offset, parsed.position) == (0, size)
    assert world.disk.read(f"{LOG}/{copy}") == damaged[size : len(content)]
    assert point <= world.quorum.log_end_offset


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_log_that_is_cut_or_deleted_below_the_recovery_point_is_refused(cleanly: bool) -> None:
    content = lived().disk.read(PATH) or b""
    for size in (0, 100, *(position for position, header in iterate_headers(content) if header.base_offset)):
        world = lived()
        if cleanly:
            world.stop()
        else:
            world.disk.restart()
        world.disk.write(PATH, content[:size])
        assert refused(world).end == world.quorum.log_end_offset
    world = lived()
    if cleanly:
        world.stop()
    else:
        world.disk.restart()
    world.disk.remove(PATH)
    with pytest.raises(LogDamaged):
        world.open()


def test_a_segment_of_the_log_that_is_deleted_is_refused() -> None:
    world = World(given={"metadata.log.segment.ms": "100"})
    world.join()
    for name in "abcdefgh":
        world.propose(topic(name, 4), name)
        world.settle()
        world.wait(500)
    logs = [name for name in world.disk.list(LOG) if name.endswith(".log")]
    assert len(logs) > 3
    world.disk.restart()
    for suffixes in ((".log",), (".log", ".index", ".timeindex")):
        kept = {f"{LOG}/{logs[1]}".replace(".log", suffix): b"" for suffix in suffixes}
        for path in kept:
            kept[path] = world.disk.read(path) or b""
            world.disk.remove(path)
        with pytest.raises(LogDamaged) as refused_start:
            world.open()
        assert "log repair" in refused_start.value.remedy
        world.disk.restart()
        for path, content in kept.items():
            world.disk.write(path, content)
    world.open()
    world.settle()
    assert len(world.quorum.image.topics_by_name) == 8


@pytest.mark.parametrize("seed", range(25))
def test_power_cuts_alone_never_look_like_damage(seed: int) -> None:
    world = World(seed, given={"metadata.log.segment.ms": "300"})
    random = Random(seed)
    world.join()
    for life in range(5):
        for at in range(random.randrange(12)):
            world.propose(topic(f"t{life}-{at}", random.randrange(1, 6)), at)
            for _ in range(random.randrange(4)):
                world.sync()
            if random.random() < 0.3:
                world.wait(random.randrange(700))
        if random.random() < 0.3:
            world.stop()
            world.open()
        else:
            world.crash()
        world.settle()
        assert not world.halts
        world.join(bytes([65 + life]))
