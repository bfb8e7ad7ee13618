"""Verifying a stopped directory: one segment of 1 GiB, in batches of 16 KiB and of 1 KiB, its index beside
it.

The file is in the page cache, so this is the tool's cost, not the disk's. `deep` walks every record too.
Peak memory is that of the whole process. On a machine with other work the processor time says more than
the clock.
"""

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import harness
from sparklog.model import Instant, LeaderEpoch, Micros, Millis, NodeId, TopicPartition, Uuid
from sparklog.record.batch import build_batch
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.directory.log_dir import LogDir
from sparklog_server.log.log_config import LogConfig

GIB = 1 << 30
NOW = Instant(Micros(0), Millis(1_700_000_000_000))
RECORD_BYTES = 1000


def fill(path: Path, batch_records: int, size: int) -> None:
    """A log directory with one partition of one segment."""
    settings = LogConfig(segment_bytes=size + (1 << 20))
    log_dir = LogDir.open(
        OsDisk(), str(path), node_id=NodeId(1), cluster_id="A" * 22, entropy=bytes, defaults=settings, now=NOW
    )
    log = log_dir.create(TopicPartition("t", 0), Uuid(bytes(16)), settings, NOW)
    batch = bytes(build_batch([(b"key", b"v" * RECORD_BYTES, (), NOW.wall_ms)] * batch_records))
    for _ in range(size // len(batch)):
        log.append(memoryview(bytearray(batch)), LeaderEpoch(0), NOW)
    log_dir.close({}, NOW)


def verify(path: Path, *options: str) -> tuple[float, float]:
    """(seconds, seconds of processor time) of one `sparklog log verify`, the start of the program
    included.
    """
    command = [sys.executable, "-m", "sparklog_server.cli.main", "log", "verify", str(path), *options]
    used, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    end, now = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    return end - begin, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def main() -> None:
    """Fill, verify, report."""
    options = harness.options(__doc__)
    figures = harness.Figures("log verify")
    for records, name in ((16, "16 KiB"), (1, "1 KiB")):
        directory = Path(tempfile.mkdtemp(prefix="sparklog-verify-"))
        try:
            fill(directory / "d", records, GIB)
            for _ in range(options.repeats):
                for more in ((), ("--deep",)):
                    what = f"1 GiB in batches of {name}{', deep' if more else ''}"
                    seconds, processor_seconds = verify(directory / "d", *more)
                    figures.add(what, "MB/s", "sparklog", GIB / 1e6 / seconds)
                    bound = "" if more else ">= 500"
                    figures.add(
                        f"{what}, per processor second",
                        "MB",
                        "sparklog",
                        GIB / 1e6 / processor_seconds,
                        bound=bound,
                    )
        finally:
            shutil.rmtree(directory)
    figures.add(
        "peak memory", "MB", "sparklog", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    )
    figures.report(options)


if __name__ == "__main__":
    main()
