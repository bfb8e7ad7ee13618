"""Transactions in the log: the last stable offset and the aborted transactions, over rolls, truncations,
restarts and damage.
"""

import contextlib
from collections.abc import Callable
from random import Random
from struct import iter_unpack, pack

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import Offset
from sparklog.record.batch import build_batch, iterate_headers
from sparklog.record.control import ControlType, Marker, build_marker
from sparklog_server.disk.door import StorageError
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog, RecordsRefused
from sparklog_server.log.producers.producer_state import ProducerState
from sparklog_server.log.segment.txn_index import AbortedTxn
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.compacting import compact
from tests.log.logs import DIRECTORY, EPOCH, NOW, SMALL, START_MS, batch, new_log, open_log, sync, truncate

FIRST_INDEX = f"{DIRECTORY}/{0:020d}.txnindex"
TINY = LogConfig(segment_bytes=500, index_interval_bytes=200)


class Producer:
    """One transactional producer with its next sequence."""

    def __init__(self, log: PartitionLog, producer_id: int) -> None:
        self.log = log
        self.producer_id = producer_id
        self.sequence = 0

    def send(self, count: int = 1) -> int:
        """The first offset of a batch."""
        sent = batch(count, producer_id=self.producer_id, sequence=self.sequence, is_transactional=True)
        self.sequence += count
        return self.log.append(sent, EPOCH, NOW).base_offset

    def end(self, kind: ControlType, *, coordinator_epoch: int = 0) -> int:
        """The offset of the marker."""
        marker = Marker(kind, coordinator_epoch)
        written = build_marker(marker, producer_id=self.producer_id, producer_epoch=0, timestamp_ms=START_MS)
        return self.log.append_own(written, EPOCH, NOW).base_offset

    def abort(self) -> int:
        return self.end(ControlType.ABORT)

    def commit(self) -> int:
        return self.end(ControlType.COMMIT)


def entries_of(disk: SimulatedDisk, path: str = FIRST_INDEX) -> list[AbortedTxn]:
    """The content of the file as Kafka would read it."""
    return [AbortedTxn(*fields[1:]) for fields in iter_unpack(">hqqqq", disk.read(path) or b"")]


def all_aborted(log: PartitionLog) -> list[AbortedTxn]:
    return log.aborted_transactions(log.log_start_offset, log.log_end_offset)


def filled(log: PartitionLog, *, seed: int = 5, rounds: int = 12) -> list[AbortedTxn]:
    """Three producers with interleaved transactions, and the aborted ones by definition."""
    random = Random(seed)
    producers = [Producer(log, producer_id) for producer_id in (7, 8, 9)]
    open_: dict[int, int] = {}
    aborted = []
    for _ in range(rounds * 5):
        one = random.choice(producers)
        if random.random() < 0.65 or one.producer_id not in open_:
            offset = one.send(random.randrange(1, 3))
            open_.setdefault(one.producer_id, offset)
        elif random.random() < 0.4:
            one.commit()
            del open_[one.producer_id]
        else:
            last = one.abort()
            first = open_.pop(one.producer_id)
            aborted.append(AbortedTxn(one.producer_id, first, last, min(open_.values(), default=last + 1)))
        if random.random() < 0.2:
            log.append(batch(), EPOCH, NOW)
    return aborted


# -- the last stable offset


def test_what_lies_beyond_the_first_open_transaction_is_not_stable() -> None:
    log = new_log()
    one, other = Producer(log, 7), Producer(log, 8)
    log.append(batch(3), EPOCH, NOW)
    assert log.last_stable_offset(Offset(3)) == 3
    assert (one.send(2), other.send()) == (3, 5)
    assert log.last_stable_offset(Offset(6)) == 3
    assert one.commit() == 6
    assert log.last_stable_offset(Offset(7)) == 5
    assert other.abort() == 7
    assert log.last_stable_offset(Offset(8)) == 8


def test_a_transaction_whose_marker_is_not_committed_yet_is_not_stable_either() -> None:
    log = new_log()
    one = Producer(log, 7)
    log.append(batch(), EPOCH, NOW)
    one.send(2)
    one.commit()
    assert [log.last_stable_offset(Offset(high_watermark)) for high_watermark in (1, 2, 3, 4)] == [1, 1, 1, 4]


def test_the_last_stable_offset_never_lies_below_the_log_start() -> None:
    log = new_log()
    Producer(log, 7).send(4)
    log.append(batch(2), EPOCH, NOW)
    log.move_log_start(Offset(3))
    assert log.last_stable_offset(Offset(6)) == 3


@pytest.mark.parametrize("is_clean", [True, False])
def test_open_transactions_are_known_again_after_a_restart(is_clean: bool) -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append(batch(2), EPOCH, NOW)
    Producer(log, 7).send()
    log.append(batch(2), EPOCH, NOW)
    if is_clean:
        log.close(NOW)
    else:
        disk.restart()
    log = open_log(disk, was_clean=is_clean)
    assert log.last_stable_offset(Offset(5)) == 2
    Producer(log, 7).commit()
    assert log.last_stable_offset(Offset(6)) == 6


@pytest.mark.parametrize("log_start_offset", [2, 3])
def test_a_transaction_is_open_after_a_restart_though_its_first_batch_was_deleted_in_part(
    log_start_offset: int,
) -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append(batch(), EPOCH, NOW)
    producer = Producer(log, 5)
    assert producer.send(3) == 1
    sync(disk, log)
    log.move_log_start(Offset(log_start_offset))
    disk.restart()
    log = open_log(disk, log_start_offset=log_start_offset)
    assert log.last_stable_offset(log.log_end_offset) == log_start_offset
    producer.log = log
    marker = producer.abort()
    assert all_aborted(log) == [AbortedTxn(5, 1, marker, marker + 1)]


def test_a_truncation_that_takes_the_marker_opens_the_transaction_again() -> None:
    log = new_log()
    one = Producer(log, 7)
    one.send(2)
    one.abort()
    truncate(log, 2)
    assert log.last_stable_offset(Offset(2)) == 0
    assert all_aborted(log) == []
    one.abort()
    assert all_aborted(log) == [AbortedTxn(7, 0, 2, 3)]


# -- the index


def test_an_abort_is_written_down_with_what_was_stable_then() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    one, other = Producer(log, 7), Producer(log, 8)
    one.send(2)
    other.send()
    one.abort()
    other.send()
    other.abort()
    one.send()
    one.commit()
    assert entries_of(disk) == [AbortedTxn(7, 0, 3, 2), AbortedTxn(8, 2, 5, 6)]
    assert log.aborted_transactions(Offset(0), Offset(2)) == [AbortedTxn(7, 0, 3, 2)]
    assert log.aborted_transactions(Offset(4), Offset(6)) == [AbortedTxn(8, 2, 5, 6)]
    assert log.aborted_transactions(Offset(6), Offset(8)) == []


def test_a_marker_without_records_aborts_nothing() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    Producer(log, 7).abort()
    assert entries_of(disk) == []
    assert log.last_stable_offset(Offset(1)) == 1


def test_a_segment_has_the_entries_of_its_own_markers_and_a_reader_gets_those_of_all() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, TINY)
    aborted = filled(log)
    by_segment = [
        entry
        for name in disk.list(DIRECTORY)
        if name.endswith(".txnindex")
        for entry in entries_of(disk, f"{DIRECTORY}/{name}")
    ]
    assert by_segment == aborted
    assert len([name for name in disk.list(DIRECTORY) if name.endswith(".txnindex")]) >= 3
    for start in range(0, log.log_end_offset, 3):
        for limit in range(start + 1, log.log_end_offset + 1, 5):
            overlapping = [one for one in aborted if one.last_offset >= start and one.first_offset < limit]
            stable = log.last_stable_offset(Offset(limit))
            if limit <= stable:
                assert log.aborted_transactions(Offset(start), Offset(limit)) == overlapping


def test_what_a_leader_sends_ends_transactions_too() -> None:
    leader = new_log(TINY)
    aborted = filled(leader)
    disk = SimulatedDisk()
    follower = open_log(disk, SMALL)
    while follower.log_end_offset < leader.log_end_offset:
        part = leader.read(follower.log_end_offset, leader.log_end_offset, 400, at_least_one=True)
        assert part is not None
        follower.append_as_follower(part.read(), NOW)
    assert all_aborted(follower) == aborted
    assert follower.last_stable_offset(follower.log_end_offset) == leader.last_stable_offset(
        leader.log_end_offset
    )


def test_a_control_batch_that_ends_no_transaction_is_refused_from_a_leader() -> None:
    log = new_log()
    Producer(log, 7).send()
    odd = build_batch(
        [(b"\x00\x00\x00\x04", b"\x00\x00", (), START_MS)],
        producer_id=7,
        producer_epoch=0,
        base_offset=1,
        leader_epoch=3,
        is_transactional=True,
        is_control=True,
    )
    with pytest.raises(RecordsRefused) as refused:
        log.append_as_follower(odd, NOW)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 1


@pytest.mark.parametrize("call", ["append", "open"])
def test_a_marker_that_the_disk_refuses_leaves_everything_as_it_was(call: str) -> None:
    for suffix in (".log", ".txnindex"):
        disk = SimulatedDisk()
        log = open_log(disk)
        one = Producer(log, 7)
        one.send(2)
        disk.fault = lambda did, path, suffix=suffix: (
            "Input/output error" if did == call and path.endswith(suffix) else None
        )
        if call == "open" and suffix == ".log":
            continue
        with pytest.raises(StorageError):
            one.abort()
        disk.fault = None
        assert log.log_end_offset == 2
        assert (all_aborted(log), entries_of(disk), log.last_stable_offset(Offset(2))) == ([], [], 0)
        one.abort()
        assert all_aborted(log) == entries_of(disk) == [AbortedTxn(7, 0, 2, 3)]


@pytest.mark.parametrize("how", ["clean", "killed", "synced, then power cut", "opened on without a word"])
def test_the_aborted_transactions_are_the_same_after_a_restart(how: str) -> None:
    disk = SimulatedDisk()
    log = open_log(disk, TINY)
    aborted = filled(log)
    if how == "clean":
        log.close(NOW)
    elif how == "killed":
        disk.restart()
    else:
        sync(disk, log)
        disk.crash(Random(2))
    recovery_point = log.log_end_offset if how == "synced, then power cut" else 0
    again = open_log(disk, TINY, was_clean=how == "clean", recovery_point=recovery_point)
    assert all_aborted(again) == aborted


def test_a_truncation_at_any_offset_leaves_the_aborted_transactions_below_it() -> None:
    whole = new_log(TINY)
    end = (filled(whole), whole.log_end_offset)[1]
    for offset in range(1, end):
        disk = SimulatedDisk()
        log = open_log(disk, TINY)
        aborted = filled(log)
        sync(disk, log)
        truncate(log, offset)
        expected = [one for one in aborted if one.last_offset < log.log_end_offset]
        assert all_aborted(log) == expected
        disk.crash(Random(offset))
        assert all_aborted(open_log(disk, TINY, recovery_point=log.recovery_point)) == expected


def test_retention_takes_the_index_with_its_segment() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, LogConfig(segment_bytes=500, retention_bytes=1000))
    aborted = filled(log)
    sync(disk, log)
    job = log.retire(log.log_end_offset, NOW)
    assert job is not None
    remove = job()
    assert [name for name in disk.list(DIRECTORY) if name.endswith(".txnindex.deleted")]
    remove()
    assert log.log_start_offset > 0
    assert all_aborted(log) == [one for one in aborted if one.last_offset >= log.log_start_offset]
    bases = {int(name[:20]) for name in disk.list(DIRECTORY) if name.endswith(".log")}
    assert {int(name[:20]) for name in disk.list(DIRECTORY) if name.endswith(".txnindex")} <= bases


@pytest.mark.parametrize("seed", range(60))
def test_a_crash_while_segments_are_set_aside_forgets_no_aborted_transaction_of_what_stays(seed: int) -> None:
    disk = SimulatedDisk()
    log = open_log(disk, TINY)
    aborted = filled(log)
    sync(disk, log)
    end = log.log_end_offset
    log.move_log_start(log.segments.settled[3].base_offset)
    job = log.retire(end, NOW)
    assert job is not None
    changes = iter(range(seed % 12))

    def fault(call: str, _path: str) -> str | None:
        if call in {"rename", "sync"} and next(changes, None) is None:
            raise KeyboardInterrupt
        return None

    disk.fault = fault
    with contextlib.suppress(KeyboardInterrupt):
        job()
    disk.fault = None
    disk.crash(Random(seed))
    reopened = open_log(disk, TINY, recovery_point=end)
    assert all_aborted(reopened) == [one for one in aborted if one.last_offset >= reopened.log_start_offset]


@pytest.mark.parametrize("is_killed", [True, False])
def test_the_epoch_of_the_coordinator_reaches_the_snapshot_and_comes_back(is_killed: bool) -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    one = Producer(log, 7)
    one.send()
    one.end(ControlType.COMMIT, coordinator_epoch=12)
    if is_killed:
        disk.restart()
        log = open_log(disk)
    log.close(NOW)
    snapshot = disk.read(f"{DIRECTORY}/{2:020d}.snapshot")
    assert snapshot is not None
    assert ProducerState.parse(snapshot).producers[7].coordinator_epoch == 12


# -- compaction


def test_compaction_waits_for_the_first_transaction_that_is_not_stable() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, LogConfig(segment_bytes=300, is_compacted=True))
    for _ in range(8):
        log.append(batch(key=b"a"), EPOCH, NOW)
    one = Producer(log, 7)
    open_at = one.send()
    for _ in range(8):
        log.append(batch(key=b"a"), EPOCH, NOW)
    sync(disk, log)
    assert compact(disk, log)
    assert log.first_dirty_offset <= open_at


def test_compaction_carries_the_entries_of_what_it_could_not_take_yet() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, LogConfig(segment_bytes=500, is_compacted=True))
    filled(log, rounds=30)
    end = log.log_end_offset
    sync(disk, log)
    assert compact(disk, log)
    left = set(_aborted_markers(log))
    carried = all_aborted(log)
    assert {one.last_offset for one in carried} <= left
    sync(disk, log)
    again = open_log(disk, LogConfig(segment_bytes=500, is_compacted=True), recovery_point=end)
    assert all_aborted(again) == carried


def _aborted_markers(log: PartitionLog) -> list[int]:
    found = []
    start = log.log_start_offset
    while (part := log.read(start, log.log_end_offset, 1 << 20, at_least_one=True)) is not None:
        for _, header in iterate_headers(part.read()):
            if header.is_control:
                found.append(header.base_offset)
            start = Offset(header.next_offset)
    return found


# -- damage


def damaged_ways(content: bytes) -> list[bytes]:
    flipped = []
    for bit in range(len(content) * 8):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        flipped.append(bytes(changed))
    return flipped + [content[:size] for size in range(len(content)) if size % 34 or not size]


@pytest.mark.parametrize("opening", ["clean", "unclean"])
def test_no_bit_flipped_in_an_index_changes_what_a_reader_is_told(opening: str) -> None:
    """Except where the flip makes a valid offset: the base offset of another batch of the same
    transaction.
    """

    def told(damage: Callable[[bytes], bytes]) -> list[AbortedTxn]:
        disk = SimulatedDisk()
        log = open_log(disk, LogConfig(segment_bytes=100_000))
        one, other = Producer(log, 7), Producer(log, 8)
        log.append(batch(40), EPOCH, NOW)
        one.send(3)
        other.send(2)
        one.abort()
        other.abort()
        log.append(batch(60), EPOCH, NOW)
        if opening == "clean":
            log.close(NOW)
        else:
            sync(disk, log)
            disk.restart()
        content = disk.read(FIRST_INDEX)
        assert content is not None
        file = disk.open(FIRST_INDEX)
        file.truncate(0)
        file.append(damage(content))
        again = open_log(
            disk,
            LogConfig(segment_bytes=100_000),
            was_clean=opening == "clean",
            recovery_point=log.log_end_offset,
        )
        return all_aborted(again)

    intact = told(lambda content: content)
    assert intact == [AbortedTxn(7, 40, 45, 43), AbortedTxn(8, 43, 46, 47)]
    whole = b"".join(_packed(one) for one in intact)
    for damaged in damaged_ways(whole):
        assert told(lambda _, damaged=damaged: damaged) == intact  # type: ignore[misc]


def _packed(one: AbortedTxn) -> bytes:
    return pack(">hqqqq", 0, *one)
