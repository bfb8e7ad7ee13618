"""How fast one core compacts a log, and how long the event loop is held meanwhile.

Run as `python -m benchmarks.compaction [--json FILE]`. A log of 1 GB with 10 million records of 100 B and
a million keys is written into a temporary directory, then compacted by jobs in a thread, as the daemon
runs them, while this process' loop ticks every half millisecond: the delay of a tick is the time
that a request would have waited. The megabytes are those of the log, which is read twice.
"""

import random
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks import harness
from sparklog.model import ZERO_UUID, Instant, LeaderEpoch, Micros, Millis, TopicPartition
from sparklog.record.batch import build_batch
from sparklog_server.daemon.server import prepare_process
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.cleaning.cleaner import Round
from sparklog_server.log.cleaning.compaction import judge, plan_round
from sparklog_server.log.cleaning.swap import commit
from sparklog_server.log.partition_log import LogConfig, PartitionLog
from sparklog_server.replica.log_cleaner import WORK_BYTES

RECORDS = 10_000_000
KEYS = 1_000_000
BATCH_RECORDS = 160
TICK_S = 0.0005
NOW = Instant(Micros(0), Millis(1_700_000_000_000))


def filled_log(disk: OsDisk, directory: str, records: int) -> PartitionLog:
    """A log of records of 100 B with random keys, in segments of 128 MiB, synced."""
    settings = LogConfig(is_compacted=True, segment_bytes=128 << 20, max_message_bytes=1 << 20)
    log = PartitionLog.open(disk, directory, TopicPartition("bench", 0), ZERO_UUID, settings, now=NOW)
    chosen = random.Random(1)
    keys = max(records * KEYS // RECORDS, 1)
    for _ in range(records // BATCH_RECORDS):
        rows = [
            (b"key-%012d" % chosen.randrange(keys), b"v" * 76, (), NOW.wall_ms + index)
            for index in range(BATCH_RECORDS)
        ]
        log.append(memoryview(build_batch(rows)), LeaderEpoch(1), NOW)
    files, end_offset = log.begin_sync()
    disk.sync(files)
    log.synced(end_offset)
    return log


def compact_beside_a_loop(disk: OsDisk, log: PartitionLog, late_us: list[float]) -> tuple[int, float, float]:
    """(bytes before, seconds, processor seconds) of one round; adds to `late_us` by how much each tick of
    this thread came too late.
    """
    choice = judge(log, log.log_end_offset, NOW.wall_ms)
    size = sum(segment.file.size for segment in choice.segments)
    plan = plan_round(
        log, choice, table_bytes_max=128 << 20, load_factor=0.9, seed=bytes(16), now_ms=NOW.wall_ms
    )
    work = Round(disk, plan)
    started, processor = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(1) as pool:
        is_done = False
        while not is_done:
            job = pool.submit(work.work, WORK_BYTES)
            wait(job, late_us)  # type: ignore[arg-type]
            progress = job.result()
            is_done = progress.is_done
            if progress.cleaned is not None:
                before = time.perf_counter()
                assert log.segments.swap_in(progress.cleaned)
                late_us.append((time.perf_counter() - before) * 1e6)
                swapping = pool.submit(commit, disk, progress.cleaned.swap)
                wait(swapping, late_us)  # type: ignore[arg-type]
                swapping.result()
                log.segments.swapped(progress.cleaned.base_offset)
    return size, time.perf_counter() - started, time.process_time() - processor


def wait(job: "Future[object]", late_us: list[float]) -> None:
    """Tick until the job is done."""
    while not job.done():
        before = time.perf_counter()
        time.sleep(TICK_S)
        late_us.append((time.perf_counter() - before - TICK_S) * 1e6)


def main() -> None:
    """Fill, compact, report."""
    options = harness.options(__doc__)
    # the loop of a broker is not kept waiting for five milliseconds by another thread's Python
    prepare_process()
    figures = harness.Figures("compaction")
    with tempfile.TemporaryDirectory() as directory:
        disk = OsDisk()
        path = str(Path(directory) / "bench-0")
        disk.make_directory(path)
        log = filled_log(disk, path, RECORDS)
        late_us: list[float] = []
        size, seconds, processor = compact_beside_a_loop(disk, log, late_us)
        figures.add("compacted", "MB/s", "sparklog", size / seconds / 1e6, bound=">= 100")
        figures.add("compacted, per second of processor", "MB/s", "sparklog", size / processor / 1e6)
        figures.add("loop held p99", "µs", "sparklog", float(np.percentile(late_us, 99)), bound="<= 1000")
        figures.add("loop held at most", "µs", "sparklog", max(late_us), bound="<= 5000")
        figures.add(
            "size after", "MB", "sparklog", sum(segment.file.size for segment in log.segments.settled) / 1e6
        )
    figures.report(options)


if __name__ == "__main__":
    main()
