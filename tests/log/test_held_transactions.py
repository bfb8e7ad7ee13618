"""The last stable offset never passes a transaction whose marker is not committed: neither after the log was
opened again, nor after a truncation.
"""

from random import Random

import pytest

from sparklog.model import Offset
from sparklog.record.batch import CONTROL_BIT, TRANSACTIONAL_BIT, read_header
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import EPOCH, NOW, SMALL, T0, TOPIC_ID, batch, new_log, open_log, read_all, sync, truncate
from tests.log.test_log_dir import open_dir
from tests.log.test_transactions import TINY, Producer, filled


def stable_by_definition(log: PartitionLog, high_watermark: int) -> int:
    """The first offset of the first transaction without a marker below the high watermark, from the
    batches.
    """
    open_: dict[int, int] = {}
    for place in read_all(log):
        header = read_header(place.content)
        if place.base_offset >= high_watermark:
            break
        if not header.attributes & TRANSACTIONAL_BIT:
            continue
        if header.attributes & CONTROL_BIT:
            open_.pop(header.producer_id, None)
        else:
            open_.setdefault(header.producer_id, place.base_offset)
    return min(open_.values(), default=high_watermark)


def stable_offsets(log: PartitionLog, high_watermark: int) -> list[int]:
    """The last stable offset at every batch boundary from `high_watermark` on."""
    ends = [place.next_offset for place in read_all(log)]
    return [log.last_stable_offset(Offset(end)) for end in ends if end >= high_watermark]


def due(log: PartitionLog, high_watermark: int) -> list[int]:
    ends = [place.next_offset for place in read_all(log)]
    return [stable_by_definition(log, end) for end in ends if end >= high_watermark]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("settings", [SMALL, TINY])
def test_a_transaction_is_held_after_a_restart_until_its_marker_is_committed(
    is_clean: bool, settings
) -> None:
    disk = SimulatedDisk()
    log = open_log(disk, settings)
    filled(log)
    sync(disk, log)
    reached = [place.next_offset for place in read_all(log)]
    if is_clean:
        log.close(NOW)
    for high_watermark in reached:
        disk.restart()
        log = open_log(
            disk,
            settings,
            was_clean=is_clean,
            recovery_point=reached[-1],
            high_watermark=high_watermark,
        )
        assert stable_offsets(log, high_watermark) == due(log, high_watermark)


def test_a_crash_that_may_lower_the_high_watermark_holds_the_transactions_above_the_recovery_point() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    one = Producer(log, 7)
    one.send(2)
    one.commit()
    disk.restart()
    log = open_log(disk, recovery_point=2, high_watermark=3)
    assert (log.last_stable_offset(Offset(2)), log.last_stable_offset(Offset(3))) == (0, 3)


def test_a_log_directory_holds_transactions_by_its_checkpoint_of_high_watermarks() -> None:
    disk = SimulatedDisk()
    log_dir = open_dir(disk)
    log = log_dir.create(T0, TOPIC_ID, SMALL, NOW)
    one = Producer(log, 7)
    one.send(2)
    one.commit()
    log_dir.close({T0: Offset(2)}, NOW)
    log = open_dir(disk).logs[T0]
    assert (log.last_stable_offset(Offset(2)), log.last_stable_offset(Offset(3))) == (0, 3)


def test_a_truncation_above_a_marker_that_is_not_committed_keeps_its_transaction_held() -> None:
    log = new_log()
    one = Producer(log, 7)
    one.send(2)
    assert one.commit() == 2
    log.append(batch(2), EPOCH, NOW)
    log.append(batch(2), EPOCH, NOW)
    assert log.last_stable_offset(Offset(2)) == 0
    truncate(log, 5)
    assert (log.last_stable_offset(Offset(2)), log.last_stable_offset(Offset(3))) == (0, 3)


@pytest.mark.parametrize("seed", range(10))
def test_the_last_stable_offset_is_right_after_a_truncation_that_lowers_the_high_watermark(seed: int) -> None:
    random = Random(seed)
    log = new_log(TINY)
    filled(log, seed=seed)
    ends = [place.next_offset for place in read_all(log)]
    high_watermark = random.choice(ends)
    assert log.last_stable_offset(Offset(high_watermark)) == stable_by_definition(log, high_watermark)
    truncate(log, random.choice(ends))
    high_watermark = min(high_watermark, log.log_end_offset)
    assert stable_offsets(log, high_watermark) == due(log, high_watermark)
