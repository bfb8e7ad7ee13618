"""Repairs: the records kept, the losses reported, and the damage that cannot be repaired."""

from random import Random

import pytest

from sparklog.model import Offset
from sparklog_server.cli.inspect import other_readers
from sparklog_server.cli.log_repair import planned
from sparklog_server.disk.checkpoint import parse_properties, render_offsets
from sparklog_server.log_tools.examine_directory import Looking, verify
from sparklog_server.log_tools.repair import Step
from sparklog_server.simulation.disk import SimulatedDisk
from tests.broker.world import World
from tests.log.history import CLUSTER_ID, reopened
from tests.log.logs import NOW, T0, batch, read_all
from tests.log.test_damage import Stopped, stopped, with_file
from tests.log_tools.corruption import METADATA, ROOT, flip, served, world_over

RECORD_COUNT = slice(57, 61)
UNDER_THE_CHECKSUM = slice(21, None)


def damaged_at_random(random: Random, world: Stopped) -> dict[str, bytes]:
    """One to three files altered, truncated, zeroed, extended or removed."""
    files = dict(world.files)
    for _ in range(random.randrange(1, 4)):
        path = random.choice(sorted(files))
        content = bytearray(files.pop(path))
        at = random.randrange(len(content) + 1)
        kind = random.randrange(5)
        if kind == 0 and at < len(content):
            content[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            del content[at:]
        elif kind == 2:
            limit = min(len(content), at + random.randrange(300))
            content[at:limit] = bytes(limit - at)
        elif kind == 3:
            content += random.randbytes(random.randrange(100))
        if kind != 4:
            files[path] = bytes(content)
    return files


def repair(disk: SimulatedDisk) -> list[Step]:
    told: list[Step] = []
    for _ in range(4):
        plans = planned(disk, "data", cluster_id=CLUSTER_ID, node_id=1, wall_ms=1)
        steps = [step for plan in plans for step in plan.steps if step.is_possible]
        if not steps:
            break
        told += steps
        for plan in plans:
            plan.execute()
    return told


def repair_random_damage(seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)
        world = stopped(cleanly=random.random() < 0.5)
        disk = with_file(Stopped(damaged_at_random(random, world), []), "", b"")
        repair(disk)
        found = [
            one
            for report in verify(disk, "data", Looking(also=other_readers()))
            for one in report.findings
            if one.is_damage
        ]
        assert [str(one) for one in found if not one.path.endswith("partition.metadata")] == [], seed
        log_dir = reopened(disk)
        if T0 not in log_dir.logs:
            assert T0 not in log_dir.damaged, seed
            continue  # its directory had no file left
        places = read_all(log_dir.logs[T0])
        was = {place.content[UNDER_THE_CHECKSUM]: place.base_offset for place in world.places}
        for place in places:
            is_empty = not any(place.content[RECORD_COUNT])
            assert is_empty or was[place.content[UNDER_THE_CHECKSUM]] == place.base_offset, seed
        end = log_dir.logs[T0].log_end_offset
        assert log_dir.logs[T0].append(batch(), log_dir.logs[T0].latest_epoch, NOW).base_offset == end


def test_whatever_is_damaged_a_repaired_directory_verifies_clean_and_every_batch_kept_its_offset() -> None:
    repair_random_damage(range(100))


def test_a_log_whose_first_segment_is_gone_opens_after_repair_though_its_high_watermark_was_below_the_next() -> (  # noqa: E501
    None
):
    files = dict(stopped(cleanly=False).files)
    del files["data/t-0/00000000000000000000.log"]
    files["data/replication-offset-checkpoint"] = render_offsets({T0: Offset(4)})
    disk = with_file(Stopped(files, []), "", b"")
    repair(disk)
    log_dir = reopened(disk)
    assert (log_dir.damaged, log_dir.logs[T0].log_start_offset) == ({}, 16)


@pytest.mark.long
def test_repairs_of_many_random_damages_verify_clean() -> None:
    repair_random_damage(range(100, 2000))


def test_a_sound_directory_has_nothing_to_repair() -> None:
    for cleanly in (True, False):
        assert repair(with_file(stopped(cleanly=cleanly), "", b"")) == []


def test_a_plan_changes_nothing() -> None:
    files = damaged_at_random(Random(3), stopped(cleanly=True))
    disk = with_file(Stopped(files, []), "", b"")
    disk.fault = lambda call, _: None if call in ("read", "open", "list", "stat") else f"no {call} in a plan"
    assert planned(disk, "data", cluster_id=CLUSTER_ID, node_id=1)


def steps_of(world: World, **ids: str) -> list[Step]:
    return [step for plan in planned(world.disk, ROOT, wall_ms=1, **ids) for step in plan.steps]


def test_the_records_that_a_cut_of_the_metadata_log_costs_are_named() -> None:
    files = dict(served(is_clean=True).files)
    for path in [path for path in files if path.startswith(METADATA) and path.endswith(".checkpoint")]:
        del files[path]
    path = flip(".log", 0, batch=4, byte=70, directory=METADATA)(files)
    (step,) = [step for step in steps_of(world_over(files)) if step.path == path]
    assert "the log is cut at offset" in step.action
    assert "TopicRecord __consumer_offsets" in step.lost
    assert "PartitionRecord" in step.lost


def test_below_a_sound_snapshot_damage_of_the_metadata_log_costs_nothing() -> None:
    files = dict(served(is_clean=True).files)
    path = flip(".log", 0, batch=1, byte=70, directory=METADATA)(files)
    (step,) = [step for step in steps_of(world_over(files)) if step.path == path]
    assert "which the snapshot holds" in step.action
    assert step.lost == ""


def test_a_topic_id_that_no_metadata_log_here_knows_is_asked_for_beside() -> None:
    world = stopped(cleanly=True)
    disk = with_file(world, "", b"")
    disk.remove("data/t-0/partition.metadata")
    (step,) = [step for plan in planned(disk, "data") for step in plan.steps]
    assert not step.is_possible
    assert "--beside" in step.action


def test_meta_properties_get_the_directory_id_that_the_metadata_log_knows() -> None:
    files = dict(served(is_clean=True).files)
    was = parse_properties(files.pop(f"{ROOT}/meta.properties"))
    world = world_over(files)
    (step,) = steps_of(world)
    assert not step.is_possible
    for plan in planned(world.disk, ROOT, cluster_id=was["cluster.id"]):
        plan.execute()
    assert parse_properties(world.disk.read(f"{ROOT}/meta.properties") or b"") == was
