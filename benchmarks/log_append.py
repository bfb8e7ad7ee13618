"""Microseconds per call of the log: append and read of a small batch on a real directory, and how they
divide.

Run as `python -m benchmarks.log_append [--json FILE]`. The time over kernel and system call
excludes the kernel's checks and the bare `pwrite`; its bound is 4 µs for an append.
A batch of 16 KiB, as Java producers send it, is measured in processor time, in blocks that
alternate with a bare `pwrite` of the same bytes: fresh pages for the page cache cost now more, now less,
and both pay them. The time above the system call is the log's own, the kernel's checks included.
"""

import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import harness, raw
from sparklog.kernels import scan
from sparklog.model import ZERO_UUID, Instant, LeaderEpoch, Micros, Millis, Offset, TopicPartition
from sparklog.record.batch import build_batch
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.partition_log import LogConfig, PartitionLog

CALLS = 20_000
BATCH_BYTES = 170
BLOCKS = 40
CALLS_PER_BLOCK = 200
NOW = Instant(Micros(0), Millis(1_700_000_000_000))
EPOCH = LeaderEpoch(1)


def microseconds(calls: int, action: Callable[[], object]) -> float:
    """Per call of `action`, over `calls` of them."""
    started = time.perf_counter()
    for _ in range(calls):
        action()
    return (time.perf_counter() - started) / calls * 1e6


def small_batch(*, producer_id: int = -1) -> memoryview:
    """A batch of one record, of 170 bytes."""
    has_producer = producer_id >= 0
    return memoryview(
        build_batch(
            [(None, b"v" * (BATCH_BYTES - 70), (), NOW.wall_ms)],
            producer_id=producer_id,
            producer_epoch=0 if has_producer else -1,
            base_sequence=0 if has_producer else -1,
        )
    )


def measure_appends(figures: harness.Figures, disk: OsDisk, directory: Path) -> PartitionLog:
    """Appends one by one; the same buffer each time, its base offset set back as a client would send it."""
    log = PartitionLog.open(disk, str(directory), TopicPartition("bench", 0), ZERO_UUID, LogConfig(), now=NOW)
    batch = small_batch()

    def reset() -> None:
        batch[:8] = bytes(8)

    def append() -> None:
        log.append(batch, EPOCH, NOW)
        reset()

    resetting = microseconds(CALLS, reset)
    appending = microseconds(CALLS, append) - resetting
    reset()

    def check() -> None:
        scan.check_batch(batch, False)
        scan.stamp(batch, 0, 1)

    checking = microseconds(CALLS, check)
    with (directory / "bare").open("wb") as bare:
        position = 0

        def write() -> None:
            nonlocal position
            position += os.pwrite(bare.fileno(), batch, position)

        writing = microseconds(CALLS, write)
    figures.add("append, 170 B batch", "µs", "sparklog", appending)
    figures.add(
        "append over kernel and pwrite", "µs", "sparklog", appending - checking - writing, bound="<= 4"
    )
    figures.add("kernel: check and stamp", "µs", "sparklog", checking)
    figures.add("pwrite", "µs", "sparklog", writing)
    return log


def measure_idempotent_appends(figures: harness.Figures, log: PartitionLog) -> None:
    """The same with a producer id, its sequence moved on each time."""
    batches = []
    for sequence in range(CALLS // 4):
        batch = small_batch(producer_id=1)
        scan.stamp_producer(batch, 1, 0, sequence)
        batches.append(batch)
    remaining = iter(batches)
    figures.add(
        "append, idempotent producer",
        "µs",
        "sparklog",
        microseconds(len(batches), lambda: log.append(next(remaining), EPOCH, NOW)),
    )


def measure_reads(figures: harness.Figures, log: PartitionLog) -> None:
    """Slices at the tail, onward through the log in 64 KiB steps, and at random offsets."""
    end = log.log_end_offset
    start = Offset(end - 1)
    figures.add(
        "read at the tail",
        "µs",
        "sparklog",
        microseconds(CALLS, lambda: log.read(start, end, 1 << 20, at_least_one=True)),
        bound="<= 2",
    )
    offsets = [Offset(random.randrange(end)) for _ in range(CALLS // 10)]
    chosen = iter(offsets)
    figures.add(
        "read at a random offset",
        "µs",
        "sparklog",
        microseconds(len(offsets), lambda: log.read(next(chosen), end, 65_536, at_least_one=True)),
    )


def measure_large_appends(figures: harness.Figures, disk: OsDisk, directory: Path) -> None:
    """Batches of 16 KiB, 150 records of 100 B, and the bare system call beside them; microseconds of this
    thread's processor.
    """
    path = directory / "large-0"
    path.mkdir()
    log = PartitionLog.open(disk, str(path), TopicPartition("large", 0), ZERO_UUID, LogConfig(), now=NOW)
    batch = memoryview(bytearray(raw.batch(value_bytes=100, records=150, timestamp_ms=NOW.wall_ms)))
    bare = os.open(directory / "large", os.O_RDWR | os.O_CREAT)
    appending, writing = [], []
    position = 0
    for _ in range(BLOCKS):
        started_ns = time.thread_time_ns()
        for _ in range(CALLS_PER_BLOCK):
            batch[:8] = b"\0\0\0\0\0\0\0\0"
            log.append(batch, EPOCH, NOW)
        between_ns = time.thread_time_ns()
        for _ in range(CALLS_PER_BLOCK):
            position += os.pwrite(bare, batch, position)
        writing.append((time.thread_time_ns() - between_ns) / CALLS_PER_BLOCK / 1e3)
        appending.append((between_ns - started_ns) / CALLS_PER_BLOCK / 1e3)
    os.close(bare)
    log.close()
    above = [whole - call for whole, call in zip(appending, writing, strict=True)]
    figures.add("append, 16 KiB batch: CPU", "µs", "sparklog", harness.percentile(appending, 50))
    figures.add("pwrite of 16 KiB beside it: CPU", "µs", "sparklog", harness.percentile(writing, 50))
    figures.add(
        "append, 16 KiB batch: CPU above the system call",
        "µs",
        "sparklog",
        harness.percentile(above, 50),
        bound="<= 15",
    )


def main() -> None:
    """Measure and report."""
    options = harness.options(__doc__)
    figures = harness.Figures("log")
    figures.note(f"kernels: {scan.__name__.rpartition('_')[2]}; nothing is synced while measuring")
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as scratch:
            log = measure_appends(figures, OsDisk(), Path(scratch))
            measure_idempotent_appends(figures, log)
            measure_reads(figures, log)
            log.close()
            measure_large_appends(figures, OsDisk(), Path(scratch))
    figures.report(options)


if __name__ == "__main__":
    main()
