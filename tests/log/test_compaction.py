"""Compaction keeps the last record of every key at its offset, and every other record that a reader may still
need.
"""

from pathlib import Path
from random import Random

import msgspec
import pytest

from sparklog.kernels import clean
from sparklog.model import Millis, Offset
from sparklog.record.batch import Record, build_batch, decode_records, read_header
from sparklog.record.compression import Codec
from sparklog.record.control import ControlType, Marker, build_marker
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.cleaning.cleaner import Round, UncleanableLog
from sparklog_server.log.cleaning.compaction import judge, plan_round
from sparklog_server.log.cleaning.swap import Cleaned, commit
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog, RecordsRefused
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.compacting import compact
from tests.log.logs import (
    DIRECTORY,
    EPOCH,
    NOW,
    START_MS,
    batch,
    offset_for_timestamp,
    open_log,
    read_all,
    sync,
    truncate,
)

SETTINGS = LogConfig(
    segment_bytes=2500, index_interval_bytes=200, is_compacted=True, delete_retention_ms=1000
)
Pair = tuple[bytes, bytes | None]


def put(
    log: PartitionLog, pairs: list[Pair], *, codec: Codec = Codec.NONE, timestamp: int = START_MS
) -> None:
    """One batch of these pairs, its timestamps growing by one."""
    records = [(key, value, (), timestamp + index) for index, (key, value) in enumerate(pairs)]
    log.append(memoryview(build_batch(records, codec=codec)), EPOCH, NOW)


def fill(
    log: PartitionLog,
    random: Random,
    *,
    count: int,
    keys: int = 20,
    codecs: tuple[Codec, ...] = (Codec.NONE,),
) -> None:
    """Batches of random keys; every tenth value is a tombstone."""
    for index in range(count):
        pairs: list[Pair] = []
        for _ in range(random.randrange(1, 6)):
            value = (
                None
                if random.random() < 0.1
                else b"v%d" % random.randrange(1 << 30) + bytes(random.randrange(60))
            )
            pairs.append((b"key-%d" % random.randrange(keys), value))
        put(log, pairs, codec=random.choice(codecs), timestamp=START_MS + 10 * index)


def all_records(log: PartitionLog) -> list[Record]:
    return [record for place in read_all(log) for record in decode_records(place.content)]


def last_of_each(records: list[Record]) -> dict[bytes | None, Record]:
    return {record.key: record for record in records}


@pytest.mark.parametrize("seed", range(12))
def test_what_is_left_is_the_last_record_of_each_key_and_all_that_is_young(seed: int) -> None:
    random, disk = Random(seed), SimulatedDisk()
    log = open_log(disk, SETTINGS)
    before: list[Record] = []
    for life in range(4):
        fill(log, random, count=random.randrange(10, 60), codecs=tuple(Codec) if seed % 2 else (Codec.NONE,))
        sync(disk, log)
        before = all_records(log)
        end, end_offset = (
            log.log_end_offset,
            log.segments.settled[-1].base_offset if log.segments.settled else 0,
        )
        table = 24 * random.choice([3, 9, 1000])
        work = random.choice([1, 700, 1 << 20])
        for _ in range(1000):
            if not compact(disk, log, now_ms=START_MS + life, table_bytes=table, work_bytes=work):
                break
        after = all_records(log)
        assert log.log_end_offset == end
        assert [record for record in before if record in after] == after, (
            "nothing is new, and nothing changed its place"
        )
        assert last_of_each(after) == last_of_each(before)
        clean_part = [record for record in after if record.offset < log.first_dirty_offset]
        assert log.first_dirty_offset >= end_offset
        assert len({record.key for record in clean_part}) == len(clean_part), (
            "two records of one key in the clean part"
        )
        if random.random() < 0.5:
            log.close(NOW)
            log = open_log(disk, SETTINGS, was_clean=True, recovery_point=end)
            assert all_records(log) == after


def test_every_offset_and_time_can_still_be_looked_up() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    fill(log, Random(5), count=120)
    sync(disk, log)
    while compact(disk, log):
        pass
    places = read_all(log)
    left = all_records(log)
    assert len(places) < 120
    for offset in range(log.log_end_offset):
        found = log.read(Offset(offset), log.log_end_offset, 1, at_least_one=True)
        assert found is not None
        assert found.read() == next(place.content for place in places if place.next_offset > offset)
    for timestamp in range(START_MS, START_MS + 1200, 7):
        expected = next(
            ((record.timestamp, record.offset) for record in left if record.timestamp >= timestamp), None
        )
        answer = offset_for_timestamp(log, Millis(timestamp), log.log_end_offset)
        assert (None if answer is None else answer[:2]) == expected


def test_segments_are_joined_up_to_the_size_of_one() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    fill(log, Random(1), count=150, keys=5)
    sync(disk, log)
    count = len(log.segments.settled)
    for now in (0, 2000):
        compact(disk, log, now_ms=START_MS + now)
        log.first_dirty_offset = Offset(0)
    assert len(log.segments.settled) < count / 3
    assert all(segment.file.size <= SETTINGS.segment_bytes for segment in log.segments.settled)


def test_a_slice_of_an_old_segment_stays_readable_while_and_after_it_is_swapped() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    fill(log, Random(2), count=80)
    sync(disk, log)
    held = log.read(Offset(0), log.log_end_offset, 1 << 20, at_least_one=True)
    assert held is not None
    held.file.retain()
    content = held.read()
    compact(disk, log)
    assert held.read() == content


def test_nothing_is_cleaned_beyond_the_high_watermark_the_lag_or_what_is_durable() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    fill(log, Random(3), count=80)
    assert judge(log, log.log_end_offset, Millis(START_MS)).segments == (), "nothing is durable yet"
    sync(disk, log)
    bases = [segment.base_offset for segment in log.segments.settled]
    choice = judge(log, Offset(bases[3] + 1), Millis(START_MS))
    assert (len(choice.segments), choice.first_uncleanable_offset) == (3, bases[3])
    limit = log.segments.settled[2].max_timestamp
    log.settings = LogConfig(segment_bytes=2500, is_compacted=True, min_compaction_lag_ms=100)
    assert len(judge(log, log.log_end_offset, Millis(limit + 99)).segments) == 2
    assert len(judge(log, log.log_end_offset, Millis(limit + 100)).segments) >= 3


def test_a_log_is_due_by_its_dirty_ratio_or_by_the_age_of_what_waits() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    fill(log, Random(4), count=80, keys=1000)
    sync(disk, log)
    assert judge(log, log.log_end_offset, Millis(START_MS)).is_due
    compact(disk, log)
    assert not judge(log, log.log_end_offset, Millis(START_MS)).is_due
    fill(log, Random(5), count=20, keys=1000)
    sync(disk, log)
    choice = judge(log, log.log_end_offset, Millis(START_MS))
    assert 0 < choice.dirty_ratio < 0.5
    assert not choice.is_due
    log.settings = LogConfig(segment_bytes=2500, is_compacted=True, max_compaction_lag_ms=5000)
    assert not judge(log, log.log_end_offset, Millis(START_MS + 5000)).is_due
    assert judge(log, log.log_end_offset, Millis(START_MS + 6000)).is_due


def test_a_tombstone_is_kept_for_its_time_after_the_round_that_first_saw_it() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    put(log, [(b"gone", b"v")])
    put(log, [(b"gone", None), (b"stays", b"v")])
    for _ in range(3):
        fill(log, Random(6), count=30)
    sync(disk, log)

    def is_told(now: int) -> bool:
        log.first_dirty_offset = Offset(0)
        compact(disk, log, now_ms=START_MS + now)
        return any(record.key == b"gone" for record in all_records(log))

    assert is_told(0)
    header = next(read_header(place.content) for place in read_all(log) if place.next_offset == 3)
    assert header.has_delete_horizon
    assert header.base_timestamp == START_MS + 1000
    assert is_told(999)
    assert not is_told(1000)
    assert any(record.key == b"stays" for record in all_records(log))


def test_an_idempotent_producer_goes_on_after_its_records_are_compacted_away() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    log.append(batch(3, producer_id=9, sequence=0, key=b"mine"), EPOCH, NOW)
    last = log.append(batch(2, producer_id=9, sequence=3, key=b"mine"), EPOCH, NOW)
    put(log, [(b"mine", b"another's")])
    fill(log, Random(7), count=60)
    sync(disk, log)
    compact(disk, log)
    kept = [read_header(place.content) for place in read_all(log)]
    mine = [header for header in kept if header.producer_id == 9]
    assert [(header.record_count, header.base_sequence, header.last_sequence) for header in mine] == [
        (0, 3, 4)
    ]
    for snapshot in [name for name in disk.list(DIRECTORY) if name.endswith(".snapshot")]:
        disk.remove(f"{DIRECTORY}/{snapshot}")
    log = open_log(disk, SETTINGS, recovery_point=log.recovery_point)
    again = log.append(batch(2, producer_id=9, sequence=3, key=b"mine"), EPOCH, NOW)
    assert (again.is_duplicate, again.base_offset) == (True, last.base_offset)
    with pytest.raises(RecordsRefused):
        log.append(batch(1, producer_id=9, sequence=7, key=b"mine"), EPOCH, NOW)
    assert not log.append(batch(1, producer_id=9, sequence=5, key=b"mine"), EPOCH, NOW).is_duplicate


def test_an_aborted_transaction_goes_and_its_marker_follows_when_its_time_is_over() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    put(log, [(b"k", b"before")])
    log.append(batch(2, producer_id=4, key=b"k", is_transactional=True), EPOCH, NOW)
    abort = Marker(ControlType.ABORT, 0)
    log.append_own(build_marker(abort, producer_id=4, producer_epoch=0, timestamp_ms=START_MS), EPOCH, NOW)
    log.append(batch(1, producer_id=4, sequence=2, key=b"other", is_transactional=True), EPOCH, NOW)
    commit = Marker(ControlType.COMMIT, 0)
    log.append_own(build_marker(commit, producer_id=4, producer_epoch=0, timestamp_ms=START_MS), EPOCH, NOW)
    fill(log, Random(8), count=60)
    sync(disk, log)

    def left_after(now: int) -> list[tuple[int, bool, bool]]:
        log.first_dirty_offset = Offset(0)
        compact(disk, log, now_ms=START_MS + now)
        headers = [read_header(place.content) for place in read_all(log)]
        return [
            (header.base_offset, header.is_control, header.has_delete_horizon)
            for header in headers
            if header.producer_id == 4
        ]

    assert left_after(0) == [(3, True, False), (4, False, False), (5, True, False)]
    assert f"{0:020d}.txnindex" in disk.list(DIRECTORY)
    assert left_after(1) == [(3, True, True), (4, False, False), (5, True, False)]
    assert f"{0:020d}.txnindex" not in disk.list(DIRECTORY)
    assert left_after(1000) == [(3, True, True), (4, False, False), (5, True, False)]
    assert left_after(1001) == [(4, False, False), (5, True, False)]
    assert b"before" in [record.value for record in all_records(log)]


def test_an_open_transaction_stops_compaction() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    fill(log, Random(9), count=40)
    start = log.append(batch(1, producer_id=4, key=b"k", is_transactional=True), EPOCH, NOW).base_offset
    fill(log, Random(10), count=40)
    sync(disk, log)
    choice = judge(log, log.log_end_offset, Millis(START_MS))
    assert choice.segments
    assert choice.first_uncleanable_offset <= start


def test_a_damaged_batch_stops_the_round_and_nothing_is_changed() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    fill(log, Random(11), count=60)
    sync(disk, log)
    before = read_all(log)
    file = log.segments.settled[0].file
    content = file.pread(0, file.size)
    file.truncate(0)
    file.append(content[:80] + bytes([content[80] ^ 1]) + content[81:])
    with pytest.raises(UncleanableLog):
        compact(disk, log)
    assert len(read_all(log)) == len(before)


def test_a_round_is_dropped_when_its_segments_were_removed_meanwhile() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    fill(log, Random(12), count=60)
    sync(disk, log)
    cleaned = clean_first_group(disk, log)
    truncate(log, log.segments.settled[0].base_offset)
    assert not log.segments.swap_in(cleaned)


def clean_first_group(disk: SimulatedDisk, log: PartitionLog) -> Cleaned:
    choice = judge(log, log.log_end_offset, Millis(START_MS))
    plan = plan_round(
        log, choice, table_bytes_max=1 << 16, load_factor=0.9, seed=bytes(16), now_ms=Millis(START_MS)
    )
    cleaned = Round(disk, plan).work(1 << 30).cleaned
    assert cleaned is not None
    return cleaned


def test_the_table_never_takes_more_than_it_may() -> None:
    log = open_log(disk := SimulatedDisk(), SETTINGS)
    fill(log, Random(13), count=60)
    sync(disk, log)
    rounds = 0
    while compact(disk, log, table_bytes=4 * clean.SLOT_SIZE):
        rounds += 1
    assert rounds > 5


def test_a_first_dirty_offset_that_a_damaged_checkpoint_made_up_costs_no_record_that_counts() -> None:
    """`cleaner-offset-checkpoint` has no checksum: a wrong offset may keep removable records, and removes
    none that must stay.
    """
    end = None
    for offset in range(0, 121, 7):
        disk = SimulatedDisk()
        log = open_log(disk, SETTINGS)
        fill(log, Random(4), count=60)
        sync(disk, log)
        end = log.log_end_offset
        before = last_of_each(all_records(log))
        log.first_dirty_offset = Offset(min(offset, end))
        compact(disk, log)
        log.first_dirty_offset = Offset(0)
        compact(disk, log)
        assert last_of_each(all_records(log)) == before
        assert log.log_end_offset == end


def test_a_cleaned_segment_and_those_it_replaces_keep_their_descriptors_while_their_names_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    disk = OsDisk(open_files_max=100)  # half of it belongs to readers of closed files
    log = open_log(disk, msgspec.structs.replace(SETTINGS, segment_bytes=500))
    fill(log, Random(6), count=40)
    sync(disk, log)
    before = last_of_each(all_records(log))
    log.settings = msgspec.structs.replace(SETTINGS, segment_bytes=1 << 20)  # many of them make one segment
    choice = judge(log, log.log_end_offset, Millis(START_MS))
    plan = plan_round(
        log, choice, table_bytes_max=1 << 20, load_factor=0.9, seed=bytes(16), now_ms=Millis(START_MS)
    )
    cleaned = Round(disk, plan).work(1 << 20).cleaned
    assert cleaned is not None
    assert len(cleaned.replaced) > 4
    slices = [
        log.read(base_offset, log.log_end_offset, 1 << 20, at_least_one=True)
        for base_offset in cleaned.replaced
    ]
    for part in slices:
        assert part is not None
        part.file.retain()
    assert log.segments.swap_in(cleaned)
    commit(disk, cleaned.swap)
    assert last_of_each(all_records(log)) == before
    assert [len(part.read()) for part in slices if part is not None] == [size for _, size in cleaned.before]
