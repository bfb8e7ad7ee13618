"""Compaction for tests: whole rounds over a log, with the steps of the scheduler, its jobs and the broker's
turns in one call.
"""

from sparklog.model import Millis, Offset
from sparklog_server.disk.door import Disk
from sparklog_server.log.cleaning.cleaner import Round
from sparklog_server.log.cleaning.compaction import judge, plan_round
from sparklog_server.log.cleaning.swap import commit
from sparklog_server.log.partition_log import PartitionLog
from tests.log.logs import START_MS

SEED = bytes(range(16))
TABLE_BYTES = 1 << 20


def compact(
    disk: Disk,
    log: PartitionLog,
    *,
    now_ms: int = START_MS,
    high_watermark: int | None = None,
    table_bytes: int = TABLE_BYTES,
    work_bytes: int = 1 << 20,
    load_factor: float = 0.9,
) -> bool:
    """One round over all segments that can be cleaned, due or not; False if no record was dirty."""
    choice = judge(
        log, log.log_end_offset if high_watermark is None else Offset(high_watermark), Millis(now_ms)
    )
    if choice.first_dirty_offset >= choice.first_uncleanable_offset:
        return False
    plan = plan_round(
        log, choice, table_bytes_max=table_bytes, load_factor=load_factor, seed=SEED, now_ms=Millis(now_ms)
    )
    work = Round(disk, plan)
    while True:
        progress = work.work(work_bytes)
        if progress.cleaned is not None:
            assert log.segments.swap_in(progress.cleaned)
            commit(disk, progress.cleaned.swap)
            log.segments.swapped(progress.cleaned.base_offset)
        if progress.is_done:
            assert work.end_offset is not None
            log.first_dirty_offset = work.end_offset
            return True
