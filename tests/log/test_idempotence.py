"""Idempotent producers: every batch once and in order, with any retries."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, Millis, Offset
from sparklog.record.batch import SEQUENCE_MAX, BatchHeader
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog, RecordsRefused
from sparklog_server.log.producers.producer_state import ProducerState, SnapshotCorrupt
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import EPOCH, NOW, START_MS, batch, new_log, open_log, read_all, sync, truncate

DAY_MS = 86_400_000


def send(
    log: PartitionLog, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7
) -> tuple[int, bool]:
    result = log.append(
        batch(count, producer_id=producer_id, producer_epoch=epoch, sequence=sequence), EPOCH, NOW
    )
    return result.base_offset, result.is_duplicate


def code_of(log: PartitionLog, sequence: int, count: int = 1, *, epoch: int = 0) -> ErrorCode:
    with pytest.raises(RecordsRefused) as caught:
        send(log, sequence, count, epoch=epoch)
    return caught.value.code


def test_each_of_the_last_five_batches_sent_again_succeeds_with_the_offset_it_had() -> None:
    log = new_log()
    offsets = [send(log, 2 * at, 2)[0] for at in range(7)]
    assert [send(log, 2 * at, 2) for at in range(2, 7)] == [(offset, True) for offset in offsets[2:]]
    assert log.log_end_offset == 14
    assert code_of(log, 2, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_refused_and_then_filled() -> None:
    log = new_log()
    send(log, 0)
    assert code_of(log, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 1) == (1, False)
    assert send(log, 2) == (2, False)


def test_a_duplicate_with_another_end_is_no_duplicate() -> None:
    log = new_log()
    send(log, 0, 3)
    assert code_of(log, 0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_anywhere() -> None:
    log = new_log()
    assert send(log, 41) == (0, False)
    assert send(log, 42) == (1, False)


def test_an_older_epoch_is_fenced() -> None:
    log = new_log()
    send(log, 0, epoch=5)
    assert code_of(log, 1, epoch=4) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_sequence_zero() -> None:
    log = new_log()
    send(log, 0, epoch=1)
    assert code_of(log, 1, epoch=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, epoch=2) == (1, False)
    assert send(log, 0, epoch=2) == (1, True)


def test_sequences_wrap_from_the_greatest_to_zero() -> None:
    log = new_log()
    send(log, SEQUENCE_MAX - 1)
    assert send(log, SEQUENCE_MAX, 3) == (1, False)  # SEQUENCE_MAX, 0, 1
    assert send(log, SEQUENCE_MAX, 3) == (1, True)
    assert send(log, 2) == (4, False)


def test_zero_follows_the_greatest_sequence() -> None:
    log = new_log()
    send(log, SEQUENCE_MAX)
    assert send(log, 0) == (1, False)


def test_producers_do_not_know_of_each_other() -> None:
    log = new_log()
    send(log, 0, producer_id=1)
    assert send(log, 0, producer_id=2) == (1, False)
    assert send(log, 1, producer_id=1) == (2, False)


def test_a_refused_append_leaves_the_sequence_as_it_was() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    send(log, 0)
    disk.fault = lambda *_: "Input/output error"
    with pytest.raises(Exception, match="Input/output"):
        send(log, 1)
    disk.fault = None
    assert send(log, 1) == (1, False)


def test_after_a_clean_stop_the_last_batch_is_still_known_as_a_duplicate() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for at in range(8):
        send(log, at)
    log.close(NOW)
    again = open_log(disk, was_clean=True)
    assert send(again, 7) == (7, True)
    assert (
        code_of(again, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )  # a snapshot keeps one batch per producer, as Kafka's does
    assert send(again, 8) == (8, False)


def test_after_a_crash_the_last_five_batches_are_known_from_the_log_itself() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for at in range(200):
        send(log, at)
    sync(disk, log)
    disk.restart()
    again = open_log(disk, recovery_point=200)
    assert [send(again, at) for at in range(195, 200)] == [(at, True) for at in range(195, 200)]
    assert send(again, 200) == (200, False)


def test_a_truncated_batch_is_forgotten() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for at in range(200):
        send(log, at)
    truncate(log, 150)
    assert send(log, 149) == (149, True)
    assert code_of(log, 151) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 150) == (150, False)
    assert len(read_all(log)) == 151


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    log = new_log()
    log.append(batch(producer_id=7, is_transactional=True), EPOCH, NOW)
    assert code_of(log, 1) is ErrorCode.INVALID_TXN_STATE


def test_silent_producers_are_forgotten_when_a_segment_rolls() -> None:
    log = new_log(LogConfig(segment_bytes=4096, producer_id_expiration_ms=1000))
    send(log, 0)
    later = Instant(Micros(0), Millis(START_MS + 1000))
    for _ in range(60):
        log.append(batch(), EPOCH, later)
    assert send(log, 12)[1] is False  # unknown again: any sequence is accepted


def after(ms: int) -> Instant:
    return Instant(Micros(0), Millis(NOW.wall_ms + ms))


@pytest.mark.parametrize("record_ms", [0, START_MS - 10 * DAY_MS, START_MS + 10 * DAY_MS])
@pytest.mark.parametrize("restart", ["none", "clean", "kill"])
def test_a_producer_is_remembered_by_the_time_of_its_append_not_by_the_time_of_its_records(
    record_ms: int, restart: str
) -> None:
    disk, settings = (
        SimulatedDisk(),
        LogConfig(producer_id_expiration_ms=DAY_MS, timestamp_after_max_ms=20 * DAY_MS),
    )
    log = open_log(disk, settings)
    sent = batch(producer_id=7, sequence=0, timestamp=record_ms)
    assert log.append(bytearray(sent), EPOCH, NOW).base_offset == 0
    if restart == "clean":
        log.close(NOW)
        log = open_log(disk, settings, was_clean=True, now=after(DAY_MS - 1))
    elif restart == "kill":
        sync(disk, log)
        disk.restart()
        log = open_log(disk, settings, recovery_point=1, now=NOW)
    log.retire(Offset(0), after(DAY_MS - 1))
    assert log.append(bytearray(sent), EPOCH, after(DAY_MS - 1)).is_duplicate
    log.retire(Offset(0), after(DAY_MS))
    assert not log.append(bytearray(sent), EPOCH, after(DAY_MS)).is_duplicate


def test_a_log_that_is_cut_keeps_the_times_of_its_appends() -> None:
    log = new_log(LogConfig(producer_id_expiration_ms=DAY_MS))
    old = batch(producer_id=7, sequence=0, timestamp=0)
    log.append(bytearray(old), EPOCH, NOW)
    log.append(batch(), EPOCH, NOW)
    truncate(log, 1)
    log.retire(Offset(0), after(DAY_MS - 1))
    assert log.append(bytearray(old), EPOCH, after(DAY_MS - 1)).is_duplicate


def test_a_snapshot_has_the_bytes_that_kafka_writes() -> None:
    log = new_log()
    send(log, 5, 3, epoch=2)
    state = ProducerState()
    state.appended(BatchHeader(0, 0, 0, 2, 0, 0, 2, 0, START_MS, 7, 2, 5, 3), 0, START_MS, START_MS)
    entry = (
        "0000000000000007 0002 00000007 0000000000000002 00000002 0000018bcfe56800 ffffffff ffffffffffffffff"
    )
    content = state.render()
    assert content[:2] == b"\0\1"
    assert content[6:] == bytes.fromhex("00000001" + entry.replace(" ", ""))
    assert ProducerState.parse(content).render() == content


@pytest.mark.parametrize("damage", ["cut", "flip", "version", "count", "empty"])
def test_a_damaged_snapshot_is_known_as_such(damage: str) -> None:
    state = ProducerState()
    state.appended(BatchHeader(0, 0, 0, 2, 0, 0, 2, 0, START_MS, 7, 2, 5, 3), 0, START_MS, START_MS)
    content = bytearray(state.render())
    if damage == "cut":
        del content[-3:]
    elif damage == "flip":
        content[20] ^= 1
    elif damage == "version":
        content[1] = 9
    elif damage == "count":
        content[6] = 0x7F
    else:
        content.clear()
    with pytest.raises(SnapshotCorrupt):
        ProducerState.parse(bytes(content))


def test_producers_that_have_expired_are_forgotten_without_a_roll() -> None:
    log = new_log(LogConfig())
    for producer_id in range(3000):
        send(log, 0, producer_id=producer_id)
    later = Instant(Micros(0), Millis(NOW.wall_ms + LogConfig().producer_id_expiration_ms + 1))
    for producer_id in range(5000, 6000):  # each append examines some of them
        log.append(batch(1, producer_id=producer_id, producer_epoch=0, sequence=0), EPOCH, later)
    assert len(log.producers.producers) < 2000
    # A forgotten producer may begin at any sequence.
    assert send(log, 77, producer_id=1)[1] is False
