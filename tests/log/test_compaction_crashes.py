"""Power cuts and refusals at every disk call of a round and its swap: no committed record is ever missing."""

from collections.abc import Callable
from random import Random

import pytest

from sparklog.record.batch import Record, decode_records
from sparklog_server.disk.door import StorageError
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.compacting import compact
from tests.log.logs import DIRECTORY, NOW, open_log, read_all, sync
from tests.log.test_compaction import SETTINGS, all_records, fill, last_of_each


class PowerCut(Exception):
    """The power is cut here."""


def prepared(seed: int) -> tuple[SimulatedDisk, PartitionLog]:
    """A log with a clean part, a dirty part and an unsynced tail."""
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    fill(log, Random(seed), count=40)
    sync(disk, log)
    compact(disk, log)
    fill(log, Random(seed + 1), count=40)
    sync(disk, log)
    return disk, log


def stopping_at(call_index: int) -> Callable[[str, str], str | None]:
    """A fault that cuts the power before the call of that index."""
    calls = iter(range(call_index + 1))

    def fault(_: str, __: str) -> str | None:
        if next(calls, None) == call_index:
            raise PowerCut
        return None

    return fault


def calls_of_a_round() -> int:
    disk, log = prepared(0)
    counted: list[str] = []
    disk.fault = lambda call, _: counted.append(call)
    compact(disk, log)
    return len(counted)


def agrees(before: list[Record], after: list[Record]) -> None:
    assert [record for record in before if record in after] == after
    assert last_of_each(after) == last_of_each(before)


@pytest.mark.parametrize("checkpoint", [0.0, 0.4, 1.0], ids=["none", "old", "fresh"])
def test_a_crash_at_any_call_leaves_the_old_records_or_the_new(checkpoint: float) -> None:
    for call_index in range(calls_of_a_round()):
        disk, log = prepared(0)
        before = all_records(log)
        end = log.log_end_offset
        disk.fault = stopping_at(call_index)
        with pytest.raises(PowerCut):
            compact(disk, log)
        disk.fault = None
        disk.crash(Random(call_index))
        reopened = open_log(disk, SETTINGS, recovery_point=int(end * checkpoint))
        agrees(before, all_records(reopened))
        assert reopened.log_end_offset == end
        names = disk.list(DIRECTORY)
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        again = open_log(disk, SETTINGS, recovery_point=end)
        assert read_all(again) == read_all(reopened)
        sync(disk, again)
        compact(disk, again, now_ms=NOW.wall_ms + 5000)
        assert {
            key for key, record in last_of_each(all_records(again)).items() if record.value is not None
        } == {key for key, record in last_of_each(before).items() if record.value is not None}


def test_a_crash_while_recovery_completes_a_swap_is_recovered_from_too() -> None:
    total = calls_of_a_round()
    for call_index in range(total * 2 // 3, total, 3):
        for second in range(0, 40, 2):
            disk, log = prepared(0)
            before = all_records(log)
            end = log.log_end_offset
            disk.fault = stopping_at(call_index)
            with pytest.raises(PowerCut):
                compact(disk, log)
            disk.fault = None
            disk.crash(Random(call_index))
            disk.fault = stopping_at(second)
            try:
                open_log(disk, SETTINGS, recovery_point=end)
            except PowerCut:
                disk.fault = None
                disk.crash(Random(second))
            disk.fault = None
            agrees(before, all_records(open_log(disk, SETTINGS, recovery_point=end)))


def test_a_disk_that_refuses_any_call_leaves_a_log_that_can_be_opened_again() -> None:
    for call_index in range(calls_of_a_round()):
        disk, log = prepared(0)
        before = all_records(log)
        calls = iter(range(call_index + 1))
        disk.fault = lambda _, __, calls=calls, last=call_index: (
            "I/O error" if next(calls, None) == last else None
        )  # type: ignore[misc]
        with pytest.raises(StorageError):
            compact(disk, log)
        disk.fault = None
        disk.restart()
        agrees(before, all_records(open_log(disk, SETTINGS, recovery_point=log.log_end_offset)))


def test_the_records_of_every_batch_can_be_decoded_after_a_swap() -> None:
    disk, log = prepared(7)
    compact(disk, log)
    for place in read_all(log):
        decode_records(place.content, verify_crc=True)
