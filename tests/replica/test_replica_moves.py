"""Moves between log directories, job by job, with changes of the log, its topic and its disks during
the copy.
"""

from random import Random

import pytest

from sparklog.errors import ErrorCode
from sparklog.record.batch import build_batch, decode_records
from sparklog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.agenda import Agenda
from sparklog_server.continuations import Continuations
from sparklog_server.metadata.entries import Assignments
from sparklog_server.replica.log_cleaner import CleaningLimits, LogCleaner
from sparklog_server.replica.removals import Removals
from sparklog_server.replica.replica_moves import WISHES_MAX, ReplicaMoves
from sparklog_server.replica.retention import Retention
from tests.broker.world import ACKS_ALL, FETCH_BY_NAME, PRODUCE_BY_NAME, fetch, fetched, produce, produced
from tests.log.logs import NOW
from tests.replica.moves import BIG, Mover
from tests.replica.test_cutting import World


def test_a_copy_grows_no_faster_than_allowed_and_is_told_with_its_size_and_how_far_it_is_behind() -> None:
    world = Mover()
    world.slow_down(BIG)
    began_us = world.now.mono_us
    assert world.move(world.target) is ErrorCode.NONE
    size = world.sizes()[world.home][0]
    assert world.sizes() == {world.home: (size, 0, False), world.target: (0, 7, True)}
    seen = [0]
    lags = [7]
    while world.target in (sizes := world.sizes()) and sizes[world.target][2]:
        seen.append(sizes[world.target][0])
        lags.append(sizes[world.target][1])
        world.run_all()
        world.wait(200)
    assert seen == sorted(seen)
    assert lags == sorted(lags, reverse=True)
    assert len(frozenset(lags)) > 1
    world.finish()
    assert world.now.mono_us - began_us > 6 * 1_000_000
    assert world.sizes() == {world.target: (size, 0, False)}
    assert world.all() == world.values
    assert not world.is_led_after_failure_of(world.target)


def test_what_is_written_while_the_copy_grows_is_in_it() -> None:
    world = Mover()
    world.slow_down(BIG)
    world.move(world.target)
    for _ in range(5):
        world.write(2)
        world.run_all()
        world.wait(300)
    assert world.places() == [world.home]
    world.slow_down(1 << 40)
    world.finish()
    world.write(3)
    assert world.places() == [world.target]
    assert world.leftovers() == []
    assert world.all() == world.values
    world.power_cut(3)
    world.finish()
    assert world.all() == world.values


def test_nothing_counts_as_committed_between_the_swap_and_the_moment_when_no_crash_undoes_it() -> None:
    world = Mover()
    world.move(world.target)
    while world.places() == [world.home]:
        world.run(world.held[0])
    assert len(world.places()) == 2
    batch = bytes(build_batch([(None, b"late", (), world.now.wall_ms)]))
    world.begin(produce("t", batch, acks=ACKS_ALL, timeout_ms=30_000), PRODUCE_BY_NAME)
    world.wait(100)
    assert world.unanswered()
    world.run_all()
    assert not world.unanswered()
    assert produced(world.answer(PRODUCE_BY_NAME, ProduceResponse)) == (0, 7)
    world.finish()
    assert world.all() == [*world.values, b"late"]


def test_asking_for_the_directory_where_it_lies_ends_a_move() -> None:
    world = Mover()
    world.move(world.target)
    world.begin_copy()
    assert world.leftovers()
    assert world.move(world.home) is ErrorCode.NONE
    world.finish()
    assert (world.places(), world.leftovers()) == ([world.home], [])
    assert world.all() == world.values
    assert world.is_led_after_failure_of(world.target)


def test_a_job_that_was_under_way_when_its_move_ended_leaves_nothing_behind() -> None:
    world = Mover()
    world.move(world.target)
    world.move(world.home)
    world.finish()
    assert (world.places(), world.leftovers()) == ([world.home], [])


def test_another_directory_may_be_asked_for_at_any_moment() -> None:
    for jobs in range(8):
        world = Mover()
        world.move(world.target)
        for _ in range(jobs):
            if world.held:
                world.run(world.held[0])
            world.wait(1)
        world.move(world.other)
        world.finish()
        assert (world.places(), world.leftovers()) == ([world.other], [])
        assert world.all() == world.values
        assert world.is_led_after_failure_of(world.target)


def test_a_topic_may_be_deleted_at_any_moment_and_made_anew() -> None:
    for jobs in range(8):
        world = Mover()
        world.move(world.target)
        for _ in range(jobs):
            if world.held:
                world.run(world.held[0])
            world.wait(1)
        world.delete("t")
        world.create("t")
        world.finish()
        assert world.send("t", b"new") == 0
        assert world.all() == [b"new"]
        assert world.leftovers() == []
        assert len(world.places()) == 1
        world.power_cut(jobs)
        world.finish()
        assert world.all() == [b"new"]
        assert len(world.places()) == 1


def test_deleted_records_stay_deleted_in_the_copy() -> None:
    world = Mover()
    world.move(world.target)
    world.begin_copy()
    world.delete_records(2)
    assert world.places() == [world.target]
    assert world.all(2) == world.values[2:]
    world.power_cut(1)
    assert (
        fetched(world.ask(fetch("t", 1, max_wait_ms=0), FETCH_BY_NAME, FetchResponse))[0]
        == ErrorCode.OFFSET_OUT_OF_RANGE
    )
    assert world.all(2) == world.values[2:]


def test_segments_that_retention_takes_are_taken_from_the_copy_too() -> None:
    world = Mover(
        10,
        **{
            "log.retention.check.interval.ms": "1000",
            "log.initial.task.delay.ms": "1000",
            "log.segment.delete.delay.ms": "0",
        },
    )
    world.move(world.target)
    world.begin_copy()
    world.set(2, "t", retention_bytes=str(3 * BIG))
    world.finish()
    assert world.places() == [world.target]
    logs = [name for name in world.disk.list(f"{world.target}/t-0") if name.endswith(".log")]
    assert len(logs) < 4
    world.power_cut(2)
    world.finish()
    start = int(logs[0].removesuffix(".log"))
    assert start > 0
    assert world.all(start) == world.values[start:]


def test_a_log_is_compacted_before_and_after_but_not_while_it_moves() -> None:
    compacted = {
        "log.cleanup.policy": "compact",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.cleaner.backoff.ms": "100",
    }
    world = Mover(0, **compacted)
    world.write(4, key=b"k")
    world.move(world.target)
    world.write(6, key=b"k")
    world.finish()
    assert world.places() == [world.target]
    world.write(6, key=b"k")
    world.finish()
    assert any(line.startswith("log-cleaned") for line in world.trace)
    assert world.send("t", b"last", key=b"k") == 0
    last = fetched(world.ask(fetch("t", 16, max_wait_ms=0), FETCH_BY_NAME, FetchResponse))
    assert last == (0, [b"last"])
    assert "t 0" in (world.disk.read(f"{world.target}/cleaner-offset-checkpoint") or b"").decode()
    assert "t 0" not in (world.disk.read(f"{world.home}/cleaner-offset-checkpoint") or b"").decode()


# -- disks


@pytest.mark.parametrize("call", ["mkdir", "append", "sync", "rename", "replace"])
def test_a_target_that_fails_takes_the_copy_with_it_and_not_the_log(call: str) -> None:
    world = Mover()
    world.disk.fault = lambda asked, path: (
        "EIO" if asked == call and path.startswith(f"{world.target}/") else None
    )
    world.move(world.target)
    world.finish()
    world.disk.fault = None
    if call != "rename":
        assert world.send("t", b"x") == 0
        assert world.all() == [*world.values, b"x"]
        assert world.leader() == 1
    assert any(line.startswith(f"log-directory-offline path={world.target}") for line in world.trace)
    world.power_cut(1)
    world.finish()
    assert world.all()[: len(world.values)] == world.values
    assert world.leftovers() == []


def test_a_full_target_ends_the_move_and_costs_nobody_else_anything() -> None:
    world = Mover()
    world.disk.capacity_bytes = world.disk.used_bytes + BIG
    world.move(world.target)
    world.finish()
    assert not any(line.startswith("log-directory-offline") for line in world.trace)
    assert any(line.startswith("move-cancelled") for line in world.trace)
    assert (world.places(), world.leftovers()) == ([world.home], [])
    world.disk.capacity_bytes = None
    assert world.move(world.target) is ErrorCode.NONE
    world.finish()
    assert world.places() == [world.target]


def test_a_move_does_not_reach_into_the_reserve_of_its_target() -> None:
    world = Mover(**{"sparklog.disk.reserve.bytes": str(BIG)})
    world.disk.capacity_bytes = world.disk.used_bytes + BIG - 1
    world.move(world.target)
    world.finish()
    (line,) = [line for line in world.trace if line.startswith("move-cancelled")]
    assert f"of which producers may not use the last {BIG}" in line
    assert (world.places(), world.leftovers()) == ([world.home], [])


def test_a_log_that_cannot_be_read_while_it_is_copied_goes_offline() -> None:
    world = Mover()
    world.disk.fault = lambda call, path: (
        "EIO" if call == "read" and path.startswith(f"{world.home}/t-0/") else None
    )
    world.move(world.target)
    world.finish()
    assert world.send("t", b"x") == ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.fault = None
    world.power_cut(1)
    world.finish()
    assert world.all() == world.values
    assert world.places() == [world.target]


def test_the_directory_of_a_moved_replica_is_the_one_whose_failure_takes_its_leader() -> None:
    world = Mover()
    world.move(world.target)
    world.finish()
    world.disk.fault = lambda _, path: "EIO" if path.startswith(f"{world.target}/") else None
    assert world.send("t", b"x") == ErrorCode.KAFKA_STORAGE_ERROR
    world.wait(100)
    assert world.leader() == -1


# -- restarts


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_move_that_a_stop_interrupted_goes_on_after_the_start(is_clean: bool) -> None:
    world = Mover()
    world.move(world.target)
    world.begin_copy()
    if is_clean:
        world.broker.stop(world.now)
        world.disk.restart()
        world.start()
    else:
        world.power_cut(5)
    world.finish()
    assert (world.places(), world.leftovers()) == ([world.target], [])
    assert world.all() == world.values


@pytest.mark.parametrize(("is_asked", "is_deleted"), [(False, False), (True, False), (True, True)])
def test_the_controller_learns_of_a_cancelled_move_that_it_was_told_of_and_whose_replica_stays(
    is_asked: bool, is_deleted: bool
) -> None:
    here, there = World(), World()
    jobs = Continuations()
    assignments: Assignments = {}
    cleaning = LogCleaner(
        CleaningLimits(), here.disk, [here.directory], jobs, entropy=Random(1).randbytes, trace=untold
    )
    retention = Retention(
        Removals(jobs, trace=untold), jobs, first_check_ms=1000, check_interval_ms=1000, trace=untold
    )
    moves = ReplicaMoves(
        here.disk,
        jobs,
        Agenda(),
        cleaning=cleaning,
        retention=retention,
        assignments=assignments,
        bytes_per_second_max=float("inf"),
        trace=untold,
    )
    moves.begin(here.partition, here.directory, there.directory)
    moves.moves[here.partition].is_asked = is_asked
    if is_deleted:
        here.partition.close()
        moves.removed(here.partition)
    else:
        moves.move(here.partition, here.directory, here.directory, NOW)
    told = [one.directory_id for one in assignments.values()]
    assert told == [here.directory.log_dir.directory_id] * (is_asked and not is_deleted)


def untold(_event: str, **_fields: object) -> None:
    """A trace that keeps nothing."""


def interrupted(world: Mover) -> str:
    """The path of a copy, one segment and a part of the next, of a move that was in progress when the process
    died.
    """
    world.slow_down(16 * BIG)
    world.move(world.target)
    world.begin_copy()
    world.disk.restart()
    (name,) = (name for name in world.leftovers() if name.endswith("-future"))
    return f"{world.target}/{name}"


def appended_to_logs(world: Mover) -> list[str]:
    """The logs in the target to which the rest of the move appends, once for each time."""
    found: list[str] = []

    def note(call: str, path: str) -> None:
        if call == "append" and path.startswith(f"{world.target}/t-0.") and path.endswith(".log"):
            found.append(path)

    world.disk.fault = note
    world.start()
    world.finish()
    world.disk.fault = None
    return found


def test_a_move_goes_on_with_the_copy_that_an_earlier_life_has_left() -> None:
    world = Mover()
    copy = interrupted(world)
    first, second = (name for name in world.disk.list(copy) if name.endswith(".log"))
    copied = len(world.disk.read(f"{copy}/{second}") or b"")
    appended = appended_to_logs(world)
    assert f"{copy}/{first}" not in appended
    assert 0 < copied < 3 * BIG
    assert appended.count(f"{copy}/{second}") == -(-(3 * BIG + 222 - copied) // (256 << 10))
    assert (world.places(), world.leftovers()) == ([world.target], [])
    assert world.disk.list(copy) == []
    assert world.all() == world.values


@pytest.mark.parametrize("size", [-1, BIG, 0])
def test_what_an_earlier_life_has_left_counts_only_as_far_as_it_is_what_the_log_holds(size: int) -> None:
    """Truncated, or with other bytes from the middle or the beginning on; and with a segment and a snapshot
    that the log never had.
    """
    world = Mover()
    copy = interrupted(world)
    first, *_ = (name for name in world.disk.list(copy) if name.endswith(".log"))
    content = world.disk.read(f"{copy}/{first}")
    assert content is not None
    world.disk.write(f"{copy}/{first}", content[:size] + (b"" if size < 0 else bytes(len(content) - size)))
    for name in (
        "00000000000000000002.log",
        "00000000000000000001.snapshot",
        "00000000000000000000.txnindex",
    ):
        world.disk.write(f"{copy}/{name}", b"never there")
    assert f"{copy}/{first}" in appended_to_logs(world)
    assert (world.places(), world.leftovers()) == ([world.target], [])
    assert world.all() == world.values
    logs = [name for name in world.disk.list(f"{world.target}/t-0") if name.endswith((".log", ".txnindex"))]
    assert "00000000000000000002.log" not in logs
    assert "00000000000000000000.txnindex" not in logs
    assert world.disk.read(f"{world.target}/t-0/00000000000000000001.snapshot") is None
    world.power_cut(4)
    assert world.all() == world.values


def test_an_idempotent_producer_is_known_where_the_log_has_moved() -> None:
    world = Mover()
    batch = bytes(
        build_batch(
            [(None, b"once", (), world.now.wall_ms)], producer_id=7, producer_epoch=0, base_sequence=0
        )
    )

    def send() -> tuple[int, int]:
        return produced(world.ask(produce("t", batch, acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse))

    first = send()
    world.write(6)
    world.move(world.target)
    world.finish()
    assert send() == first
    world.power_cut(1)
    world.finish()
    assert send() == first


# -- refusals


def test_what_cannot_be_moved_has_kafkas_code() -> None:
    world = Mover()
    assert world.move("/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert world.move(f"{world.target}/") is ErrorCode.LOG_DIR_NOT_FOUND
    assert world.move(world.target, "missing") is ErrorCode.REPLICA_NOT_AVAILABLE
    assert world.move(world.target, "t", 1) is ErrorCode.REPLICA_NOT_AVAILABLE
    assert world.move(world.target, "t", -1) is ErrorCode.REPLICA_NOT_AVAILABLE
    assert world.move(world.target, "n" * 230) is ErrorCode.INVALID_TOPIC_EXCEPTION
    world.disk.fault = lambda _, path: "EIO" if path.startswith(f"{world.home}/") else None
    assert world.send("t", b"x") == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.move(world.target) is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.move(world.home, "missing") is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_topic_that_does_not_exist_yet_is_begun_where_it_was_wished_for() -> None:
    world = Mover()
    for index, path in enumerate(("/c", "/a", "/c", "/b")):
        assert world.move(path, f"u{index}") is ErrorCode.REPLICA_NOT_AVAILABLE
        world.create(f"u{index}")
        assert world.places(f"u{index}") == [path]


def test_the_wishes_for_what_does_not_exist_are_bounded() -> None:
    world = Mover(0)
    for first in range(0, WISHES_MAX + 1, 1000):
        topics = [AlterReplicaLogDirTopic(f"w{index}", [0]) for index in range(first, first + 1000)]
        world.ask(
            AlterReplicaLogDirsRequest([AlterReplicaLogDir("/c", topics)]), 2, AlterReplicaLogDirsResponse
        )
    world.create(f"w{WISHES_MAX}")
    assert world.places(f"w{WISHES_MAX}") == ["/c"]


def aborted_in(world: Mover) -> list[tuple[int, int]]:
    """(producer id, first offset) of every aborted transaction in the response to a read_committed
    consumer.
    """
    told: dict[tuple[int, int], None] = {}
    at = 0
    while True:
        request = fetch("t", at, max_wait_ms=0)
        request.isolation_level = 1
        held = list(world.held)
        world.begin(request, FETCH_BY_NAME)
        for run in [run for run in world.held if run not in held]:
            world.run(run)
        answer = world.answer(FETCH_BY_NAME, FetchResponse)
        assert isinstance(answer, FetchResponse)
        part = answer.responses[0].partitions[0]
        assert part.error_code == 0
        told |= {(one.producer_id, one.first_offset): None for one in part.aborted_transactions or ()}
        assert part.records is None or isinstance(part.records, memoryview)
        offsets = [record.offset for record in decode_records(part.records or b"")]
        if not offsets:
            return list(told)
        at = offsets[-1] + 1


def test_what_was_aborted_stays_so_in_the_copy_also_of_what_is_aborted_while_it_grows() -> None:
    world = Mover(2, **{"transaction.partition.verification.enable": "false"})
    first = world.log_end()
    world.in_transaction(7, 0, committed=False, count=4)  # and the index of a sealed segment
    world.in_transaction(7, 4, committed=True)
    world.write(4)
    second = world.log_end()
    world.in_transaction(8, 0, committed=False)
    assert aborted_in(world) == [(7, first), (8, second)]
    assert world.move(world.target) is ErrorCode.NONE
    world.begin_copy()
    third = world.log_end()
    world.in_transaction(7, 5, committed=False)
    world.finish()
    assert world.places() == [world.target]
    assert aborted_in(world) == [(7, first), (8, second), (7, third)]
    world.power_cut(3)
    assert world.places() == [world.target]
    assert aborted_in(world) == [(7, first), (8, second), (7, third)]
    assert any(name.endswith(".txnindex") for name in world.disk.list(f"{world.target}/t-0"))
