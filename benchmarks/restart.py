"""How long a broker takes to be ready again: killed or stopped with 1 GB in 4 partitions, and stopped with
2 000 partitions of 3 segments.

Run as `python -m benchmarks.restart [--json FILE] [--against kafka]`. Ready is the first answer to
Metadata that names a broker, for ours the line that says so. The records are uncompressed, in batches of
16 KiB; the files are in the page cache. The rate of scanning is taken from the extra time of a start with the
recovery point at 0 over one after a clean stop.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import harness, raw

GIGABYTE = 1_000_000_000
PARTITIONS = 4
RECORDS_PER_BATCH = 150
TAIL_BATCHES = 64
MANY_PARTITIONS = 2_000
PARTITIONS_PER_REQUEST = 200
SEGMENTS = 3
BATCHES_PER_SEGMENT = 3
HOUR_MS = 3_600_000
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
CHECKPOINT_OFTEN = {
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
}
# Kafka's own default syncs a segment only when it is full; told so, its recovery point comes near the end as
# well.
KAFKA_FLUSHES = {"log.flush.interval.ms": "200", "log.flush.scheduler.interval.ms": "200"}

Start = Callable[[], AbstractContextManager[harness.Subject]]


def started(directory: Path, settings: dict[str, str], *, is_kafka: bool) -> Start:
    """How to start the broker whose data lie in `directory`."""
    if is_kafka:
        return lambda: harness.kafka({**settings, **KAFKA_FLUSHES}, directory=directory)
    return lambda: harness.sparklog(settings, directory=directory)


# -- a gigabyte in four partitions


def fill(subject: harness.Subject, topic: str, size: int) -> None:
    """Batches of 16 KiB, one partition after another."""
    batch = raw.batch(value_bytes=100, records=RECORDS_PER_BATCH)
    frames = [raw.produce_batches(topic, {partition: batch}) for partition in range(PARTITIONS)]
    with raw.connect(subject) as connection:
        raw.wait_for_leaders(connection, topic, PARTITIONS)
        raw.pour(connection, topic, (frames[number % PARTITIONS] for number in range(size // len(batch))))


def wait_for_recovery_points(subject: harness.Subject, topic: str) -> None:
    """Wait until the checkpoint covers the whole topic, which has no producer."""
    path = subject.data_dir / RECOVERY_POINTS
    with raw.connect(subject) as connection:
        ends = {
            partition: raw.log_end_offset(connection, topic, partition) for partition in range(PARTITIONS)
        }
    deadline = time.monotonic() + harness.START_TIMEOUT_S
    while time.monotonic() < deadline:
        rows = [line.rsplit(" ", 2) for line in path.read_text().splitlines()[2:]] if path.exists() else []
        found = {int(row[1]): int(row[2]) for row in rows if row[0] == topic}
        if found == ends:
            return
        time.sleep(0.02)
    raise RuntimeError(
        f"{subject.name}: the recovery points are {found} after a minute, and the logs end at {ends}"
    )


def measure_gigabyte(figures: harness.Figures, repeats: int, *, is_kafka: bool) -> None:
    """Killed with the recovery point near the end and at 0, and stopped cleanly, in turn on the same
    files.
    """
    with TemporaryDirectory(prefix="restart-bench-", ignore_cleanup_errors=True) as directory:
        start = started(Path(directory), CHECKPOINT_OFTEN, is_kafka=is_kafka)
        with start() as subject:
            harness.create_topic(subject, "kept", partitions=PARTITIONS)
            fill(subject, "kept", GIGABYTE)
            kill_behind_recovery_points(subject, "kept")
        for _ in range(repeats):
            with start() as subject:
                figures.add(
                    "1 GB, kill -9, recovery point near the end: ready",
                    "s",
                    subject.name,
                    subject.start_s,
                    bound="<= 0.5",
                )
                kill_behind_recovery_points(subject, "kept")
            (subject.data_dir / RECOVERY_POINTS).unlink()
            with start() as subject:
                at_zero_s = subject.start_s
                scanned = sum(path.stat().st_size for path in subject.data_dir.glob("kept-*/*.log")) / 1e9
            with start() as subject:
                figures.add("1 GB, kill -9, recovery point at 0: ready", "s", subject.name, at_zero_s)
                figures.add(
                    "the same: scanned",
                    "GB/s",
                    subject.name,
                    scanned / (at_zero_s - subject.start_s),
                    bound=">= 1",
                )
                figures.add("1 GB, clean stop: ready", "s", subject.name, subject.start_s)
                kill_behind_recovery_points(subject, "kept")


def kill_behind_recovery_points(subject: harness.Subject, topic: str) -> None:
    """Write a megabyte behind the recovery points, and kill the broker before it checkpoints them."""
    wait_for_recovery_points(subject, topic)
    fill(subject, topic, TAIL_BATCHES * (16 << 10))
    subject.process.kill()


# -- many partitions


def rounds(topic: str) -> Iterator[bytes]:
    """Produce requests: in each partition three times three batches of 5 KB, hours apart, so that
    `segment.ms` closes the segments before.
    """
    begin_ms = int(time.time() * 1000) - 2 * SEGMENTS * HOUR_MS
    for segment in range(SEGMENTS):
        for number in range(BATCHES_PER_SEGMENT):
            batch = raw.batch(
                value_bytes=100, records=48, timestamp_ms=begin_ms + 2 * segment * HOUR_MS + number
            )
            for first in range(0, MANY_PARTITIONS, PARTITIONS_PER_REQUEST):
                yield raw.produce_batches(
                    topic, dict.fromkeys(range(first, first + PARTITIONS_PER_REQUEST), batch)
                )


def measure_many_partitions(figures: harness.Figures, repeats: int, *, is_kafka: bool) -> None:
    """Clean restarts on the same files, and the memory that is resident a moment later."""
    with TemporaryDirectory(prefix="restart-bench-", ignore_cleanup_errors=True) as directory:
        start = started(Path(directory), {}, is_kafka=is_kafka)
        with start() as subject:
            harness.create_topic(
                subject, "many", partitions=MANY_PARTITIONS, settings={"segment.ms": str(HOUR_MS)}
            )
            with raw.connect(subject) as connection:
                raw.wait_for_leaders(connection, "many", MANY_PARTITIONS)
                for frame in rounds("many"):
                    connection.sendall(frame)
                    raw.check_produced(raw.reply(connection), "many")
            segments = len(list(subject.data_dir.glob("many-*/*.log")))
            assert segments == MANY_PARTITIONS * SEGMENTS, segments
        for _ in range(repeats):
            with start() as subject:
                what = f"{MANY_PARTITIONS} partitions of {SEGMENTS} segments, clean stop"
                figures.add(f"{what}: ready", "s", subject.name, subject.start_s, bound="<= 2")
                figures.add(f"{what}: processor until then", "s", subject.name, subject.cpu_s())
                time.sleep(1)
                figures.add(
                    f"{what}: resident memory",
                    "MB",
                    subject.name,
                    subject.resident_bytes() / 1e6,
                    bound="<= 150",
                )


def main() -> None:
    options = harness.options(__doc__, against=True)
    figures = harness.Figures("restart")
    brokers = [False] * (options.only != "kafka") + [True] * (
        options.against == "kafka" or options.only == "kafka"
    )
    for is_kafka in brokers:
        measure_gigabyte(figures, options.repeats, is_kafka=is_kafka)
        measure_many_partitions(figures, 1 if is_kafka else options.repeats, is_kafka=is_kafka)
    figures.note(
        "kafka: log.flush.interval.ms=200, without which its recovery point would stay at 0 until a segment "
        "is full; heap of 1 GB"
    )
    figures.report(options)


if __name__ == "__main__":
    main()
