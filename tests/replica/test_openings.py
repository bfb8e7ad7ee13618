"""Jobs create and remove many logs; no log is created while a job or a checkpoint may refer to an earlier one
of its name.
"""

import pytest

from sparklog.errors import ErrorCode
from tests.replica.by_hand import ByHand

MANY = 150
NOT_YET = ErrorCode.NOT_LEADER_OR_FOLLOWER
CHECKPOINT_MS = 6_000
COMPACTED = {
    "log.cleanup.policy": "compact",
    "log.segment.bytes": str(1 << 20),
    "log.cleaner.min.cleanable.ratio": "0.1",
}


def directories(world: ByHand, topic: str = "t") -> list[str]:
    return [
        name
        for name in world.disk.list("/data")
        if name.startswith(f"{topic}-") and not name.endswith("-delete")
    ]


# -- many at once


def test_a_few_partitions_are_begun_in_the_turn_that_creates_them() -> None:
    world = ByHand()
    world.create("t", 16)
    assert world.held == []
    assert [world.send("t", b"x", partition=partition) for partition in range(16)] == [0] * 16


def test_many_partitions_are_begun_by_jobs_and_a_client_asks_again_until_then() -> None:
    world = ByHand()
    world.create("t", MANY)
    assert len(world.held) == 1
    assert world.send("t", b"x") == NOT_YET
    assert world.read("t")[0] == NOT_YET
    world.create("beside")
    assert world.send("beside", b"x") == 0
    world.run(world.held[0])
    assert world.send("t", b"x") == 0
    assert world.send("t", b"x", partition=MANY - 1) == NOT_YET
    world.run_all()
    assert [world.send("t", b"y", partition=partition) for partition in range(MANY)] == [0] * MANY
    assert len(directories(world)) == MANY


@pytest.mark.parametrize("seed", range(6))
def test_partitions_whose_creation_a_crash_interrupted_are_there_after_it(seed: int) -> None:
    world = ByHand()
    world.create("t", MANY)
    if seed % 2:
        world.run(world.held[0])
        assert world.send("t", b"kept") == 0
    else:
        calls = iter(range(40 * seed))
        world.disk.fault = lambda *_: None if next(calls, None) is not None else "no power"
        world.run(world.held[0])
        world.disk.fault = None
    world.power_cut(seed)
    world.run_all()
    assert [world.send("t", b"x", partition=partition) for partition in range(MANY)] == [0] * MANY
    assert world.read("t") == (0, [b"kept", b"x"] if seed % 2 else [b"x"])


@pytest.mark.parametrize("partitions", [130, 144, MANY])
def test_partitions_that_wait_for_their_job_are_not_begun_twice_when_their_leader_epoch_moves_on(
    partitions: int,
) -> None:
    world = ByHand(**{"sparklog.ack.flush": "never"})
    world.create("t", partitions)
    # No log was created; a topic that serves records before they are synced gets a new epoch, in a second
    # metadata change.
    world.power_cut(1)
    assert len(world.held) == 1
    assert [world.send("t", b"x", partition=partition) for partition in (0, partitions - 1)] == [NOT_YET] * 2
    world.run_all()
    assert [world.send("t", b"x", partition=partition) for partition in range(partitions)] == [0] * partitions
    assert world.read("t", partition=partitions - 1) == (0, [b"x"])


def test_a_topic_deleted_while_its_logs_are_begun_leaves_nothing() -> None:
    world = ByHand()
    world.create("t", MANY)
    world.delete("t")
    world.run_all()
    assert directories(world) == []
    assert world.send("t", b"x") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_made_anew_while_logs_of_its_name_are_begun_gets_its_own() -> None:
    world = ByHand()
    world.create("t", MANY)
    world.delete("t")
    world.create("t", 2)
    assert world.send("t", b"x") == NOT_YET
    world.run_all()
    assert directories(world) == ["t-0", "t-1"]
    assert [world.send("t", b"x", partition=partition) for partition in range(2)] == [0, 0]
    world.power_cut(1)
    assert world.read("t") == (0, [b"x"])


def test_a_disk_that_fails_while_logs_are_begun_is_told_to_their_clients() -> None:
    world = ByHand()
    world.create("t", MANY)
    world.disk.fault = lambda call, _: "Input/output error" if call == "mkdir" else None
    world.run_all()
    assert world.send("t", b"x") == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.send("t", b"x", partition=MANY - 1) == ErrorCode.KAFKA_STORAGE_ERROR
    world.delete("t")
    assert world.send("t", b"x") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_directory_that_fails_with_the_logs_of_a_deleted_topic_takes_nothing_from_the_next_of_its_name() -> (  # noqa: E501
    None
):
    world = ByHand(**{"log.dirs": "/data,/other"})
    world.create("t", 2 * MANY)
    world.delete("t")
    world.create("odd", 1)
    world.create("t", 2)  # the other way round: the log assigned to /other is now assigned to /data
    world.disk.fault = lambda _, path: "Input/output error" if path.startswith("/other/") else None
    world.run_all()
    world.wait(1000)
    world.run_all()
    assert [line for line in world.trace if line.startswith("log-directory-offline path=/other")]
    assert sorted(world.send("t", b"x", partition=partition) for partition in range(2)) == [
        0,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ]


def test_a_clean_stop_waits_for_the_logs_that_are_being_begun_and_begins_no_more() -> None:
    world = ByHand()
    world.create("t", MANY)
    world.broker.stop(world.now)
    assert not world.broker.is_stopped
    world.run_all()
    assert world.broker.is_stopped
    assert 0 < len(directories(world)) < MANY
    world.disk.restart()
    world.start()
    world.run_all()
    assert [world.send("t", b"x", partition=partition) for partition in range(MANY)] == [0] * MANY


# -- an earlier log of the same name


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_checkpoint_rendered_before_a_deletion_is_on_disk_and_replaced_before_the_next_log_begins(
    order: tuple[int, int],
) -> None:
    world = ByHand()
    world.create("t")
    for _ in range(50):
        assert world.send("t", b"old") == 0
    world.wait(CHECKPOINT_MS)
    (checkpoint,) = world.held
    world.delete("t")
    world.create("t")
    steps = (checkpoint, world.held[1])
    for step in order:
        assert world.send("t", b"new") == NOT_YET
        world.run(steps[step])
        world.wait(0)
    assert world.send("t", b"new") == NOT_YET
    world.run_all()  # another checkpoint, which no longer names it
    assert world.send("t", b"new") == 0
    checkpoints = [
        world.disk.read(f"/data/{name}") or b""
        for name in world.disk.list("/data")
        if name.endswith("-checkpoint")
    ]
    assert not any(b"t 0 50" in content for content in checkpoints)
    world.power_cut(3)
    assert world.read("t") == (0, [b"new"])


def test_a_directory_is_away_before_the_next_log_of_its_name_begins() -> None:
    world = ByHand()
    world.create("t")
    assert world.send("t", b"old") == 0
    world.delete("t")
    world.create("t")
    assert world.send("t", b"new") == NOT_YET
    assert world.read("t")[0] == NOT_YET
    world.run_all()
    assert world.send("t", b"new") == 0
    assert world.read("t") == (0, [b"new"])


def test_a_directory_that_cannot_be_renamed_is_a_failed_one() -> None:
    world = ByHand(**{"log.dirs": "/data,/other"})
    world.create("t", 2)
    world.delete("t")
    world.disk.fault = lambda call, path: (
        "Input/output error" if call == "rename" and path.startswith("/other/") else None
    )
    world.run_all()
    assert [line for line in world.trace if line.startswith("log-directory-offline path=/other")]


@pytest.mark.parametrize("seed", range(4))
def test_a_round_of_compaction_under_way_touches_no_file_of_the_next_log(seed: int) -> None:
    world = ByHand(**COMPACTED)
    world.create("t")
    for at in range(40):
        assert world.send("t", bytes(100_000), key=b"%d" % (at % 3)) == 0
    world.wait(16_000)
    jobs = list(world.held)
    for job in jobs[:-1]:
        world.run(job)
    world.wait(16_000)
    cleaning = world.held[-1]
    for _ in range(seed):  # in its present state: work, commit, or the next piece
        world.run(cleaning)
        world.wait(1000)
        cleaning = world.held[-1]
    world.delete("t")
    removal = world.held[-1]
    world.create("t")
    world.run(removal)
    while world.held != [cleaning]:  # until no other work is pending
        world.run(next(run for run in world.held if run is not cleaning))
        world.wait(20)
    assert world.send("t", b"new", key=b"k") == NOT_YET
    world.run(cleaning)
    world.run_all()
    world.wait(20)
    world.run_all()
    assert world.send("t", b"new", key=b"k") == 0
    assert not [
        name for name in world.disk.list("/data/t-0") if name.endswith((".cleaned", ".swap", ".deleted"))
    ]
    world.power_cut(seed)
    assert world.read("t") == (0, [b"new"])


def test_a_round_of_compaction_that_rests_when_its_topic_goes_is_not_taken_up_in_the_next_of_its_name() -> (
    None
):
    world = ByHand(**COMPACTED, **{"log.cleaner.io.max.bytes.per.second": "100000"})
    world.create("t")
    for at in range(40):
        assert world.send("t", bytes(100_000), key=b"%d" % (at % 3)) == 0
    world.wait(16_000)
    world.run_all()  # a piece of the round; the next one must wait some seconds
    world.delete("t")
    world.create("t")
    for _ in range(3):
        world.run_all()
        world.wait(100)
    assert world.send("t", b"new", key=b"k") == 0
    touched: list[str] = []
    world.disk.fault = lambda _, path: (
        touched.append(path) if "/t-0/" in path and not path.endswith(".tmp") else None
    )
    world.wait(60_000)
    assert [run for run in world.held if "_work" in repr(run.job)] == []
    world.run_all()
    assert not [path for path in touched if path.endswith(".cleaned")]
    assert world.read("t") == (0, [b"new"])


# -- the ages of segments


def test_the_age_of_a_cold_segment_is_read_by_a_job_and_remembered() -> None:
    world = ByHand(
        **{
            "log.segment.bytes": str(1 << 20),
            "log.retention.ms": "3600000",
            "log.initial.task.delay.ms": "30000",
        },
        **{"log.retention.check.interval.ms": "60000"},
    )
    world.create("t")
    for _ in range(30):
        assert world.send("t", bytes(100_000)) == 0
    world.wait(1000)
    world.broker.stop(world.now)
    world.run_all()
    assert world.broker.is_stopped
    world.disk.restart()
    world.start()
    read: list[str] = []
    world.disk.fault = lambda call, path: (
        read.append(path) if call == "read" and path.endswith(".timeindex") else None
    )
    world.wait(40_000)
    assert read == []
    (ages,) = world.held
    world.run(ages)
    assert read == [f"/data/t-0/{0:020d}.timeindex"]  # the next segment is younger
    world.wait(120_000)
    assert (len(read), world.held) == (1, [])
    world.wait(3_600_000)
    world.run_all()
    world.wait(70_000)
    world.run_all()
    assert world.read("t")[0] == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("is_removed_first", [True, False])
def test_files_on_their_way_to_other_names_are_not_those_of_the_next_log(is_removed_first: bool) -> None:
    world = ByHand(
        **{
            "log.segment.bytes": str(1 << 20),
            "log.retention.bytes": "1000",
            "log.initial.task.delay.ms": "1000",
        },
        **{"log.retention.check.interval.ms": "10000"},
    )
    world.create("t")
    for _ in range(30):
        assert world.send("t", bytes(100_000)) == 0
    world.wait(10_000)
    assert [line for line in world.trace if line.startswith("segments-deleted partition=t-0")]
    renaming, *others = world.held
    for run in others:
        world.run(run)
    world.delete("t")
    removal = world.held[-1]
    world.create("t")
    steps = (removal, renaming) if is_removed_first else (renaming, removal)
    for step in steps:
        assert world.send("t", b"new") == NOT_YET
        world.run(step)
        world.wait(0)
    world.run_all()
    world.wait(0)
    world.run_all()
    assert world.send("t", b"new") == 0
    assert world.read("t") == (0, [b"new"])
    world.power_cut(1)
    assert world.read("t") == (0, [b"new"])
    assert not [line for line in world.trace if line.startswith("log-directory-offline")]
