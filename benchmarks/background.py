"""Throughput of background work against the p99 of a producer beside it: retention and compaction, and
fetches of cold segments.

Run as `python -m benchmarks.background [--json FILE] [--against kafka]`. One producer sends 1 KB records,
one in flight, acks=all, the whole time, in a process of its own; idle phases alternate with busy ones. Each
busy phase runs at several rates, which gives the curve: the fetcher paces itself, and
`log.cleaner.io.max.bytes.per.second` bounds compaction, which counts bytes read and written. Logs are filled
beforehand with records whose timestamps make them due for compaction and retention when the busy phase
begins. A cold fetch reads a log whose pages were dropped.

The controls tell the machine's part: the producer beside processes that do as much, at the same rate, but no
broker: one that sends the same cold file to another over a socket; one that burns a core as long as the
compaction took, and writes and syncs as much.
"""

import argparse
import contextlib
import itertools
import multiprocessing
import multiprocessing.process
import os
import random
import socket
import time
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks import harness, raw
from sparklog.record.batch import build_batch

FLUSH = ("never", "auto")
VALUE_BYTES = 1_024
PHASE_S = 4.0
FILL_S = 8.0
BUSY_S_MAX = 30.0
REQUESTS_MIN = 100
COMPACTED_BYTES = 400 << 20
COMPACTED_SEGMENT_BYTES = 32 << 20
KEYS = 100_000
BATCH_RECORDS = 160
AGED_SEGMENTS = 48
AGED_SEGMENT_BYTES = 4 << 20
AGED_APART_MS = 50
AGE_MS = 3_600_000
COLD_BYTES = 400_000_000
COLD_FETCH_BYTES = 1 << 20
COLD_S = 3.0
COLD_RATES = (100e6, 250e6, float("inf"))
CLEANER_RATES = (50_000_000, 200_000_000)
"""In bytes per second, beside a broker without a bound."""
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "0",
    "log.segment.delete.delay.ms": "200",
}


# -- the producer


class Latencies:
    """The samples of the producer's process: when each request was sent, in seconds of the monotonic clock,
    and how long it took.
    """

    def __init__(self, sent_s: "array[float]", took_s: "array[float]") -> None:
        self._sent_s, self._took_s = sent_s, took_s

    def p99_us(self, begin_s: float, end_s: float) -> float:
        """Of the requests sent in `[begin_s, end_s)`."""
        first, limit = bisect_left(self._sent_s, begin_s), bisect_left(self._sent_s, end_s)
        if limit - first < REQUESTS_MIN:
            raise RuntimeError(f"{limit - first} requests in {end_s - begin_s:.1f} s are too few for a p99")
        return harness.percentile(self._took_s[first:limit], 99) * 1e6


def produce(
    subject: harness.Subject, topic: str, is_over: Event, found: "multiprocessing.Queue[tuple[bytes, bytes]]"
) -> None:
    """The producer's process: one request after another until told to end."""
    frame, reply_bytes = (
        raw.produce_request(topic, value_bytes=VALUE_BYTES, acks=-1),
        raw.produce_reply_bytes(topic),
    )
    sent_s, took_s = array("d"), array("d")
    with raw.connect(subject) as connection:
        raw.wait_for_leaders(connection, topic, 1)
        while not is_over.is_set():
            for _ in range(100):
                before = time.monotonic()
                connection.sendall(frame)
                reply = connection.recv(4096)
                while len(reply) < reply_bytes:
                    reply += connection.recv(4096)
                took_s.append(time.monotonic() - before)
                sent_s.append(before)
            assert raw.produce_error(reply, topic) == 0
    found.put((sent_s.tobytes(), took_s.tobytes()))


@contextlib.contextmanager
def producing(subject: harness.Subject, topic: str) -> Iterator[Callable[[], Latencies]]:
    """A producer beside the block; the yielded function ends it and returns its latencies."""
    harness.create_topic(subject, topic)
    context = multiprocessing.get_context("fork")
    is_over, found = context.Event(), context.Queue()
    process = context.Process(target=produce, args=(subject, topic, is_over, found), daemon=True)
    process.start()

    def finish() -> Latencies:
        is_over.set()
        sent_s, took_s = array("d"), array("d")
        for samples, content in zip((sent_s, took_s), found.get(timeout=30), strict=True):
            samples.frombytes(content)
        return Latencies(sent_s, took_s)

    try:
        yield finish
    finally:
        process.terminate()
        process.join(10)


# -- retention and compaction


def fill_compacted(subject: harness.Subject, topic: str, due_ms: int) -> None:
    """Records of 100 B with random keys, that `min.compaction.lag.ms` holds back until then."""
    lag_ms = AGE_MS
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": str(COMPACTED_SEGMENT_BYTES),
        "min.compaction.lag.ms": str(lag_ms),
    }
    harness.create_topic(subject, topic, settings=settings)
    chosen = random.Random(1)

    def frames() -> Iterator[bytes]:
        prepared = []
        for _ in range(256):
            rows = [
                (b"key-%012d" % chosen.randrange(KEYS), b"v" * 76, (), due_ms - lag_ms)
                for _ in range(BATCH_RECORDS)
            ]
            prepared.append(raw.produce_batches(topic, {0: bytes(build_batch(rows))}))
        for number in range(COMPACTED_BYTES // len(prepared[0])):
            yield prepared[number % len(prepared)]

    with raw.connect(subject) as connection:
        raw.wait_for_leaders(connection, topic, 1)
        raw.pour(connection, topic, frames())


def fill_aged(subject: harness.Subject, topic: str, due_ms: int) -> None:
    """Segments that grow too old one after another from then on."""
    settings = {"segment.bytes": str(AGED_SEGMENT_BYTES), "retention.ms": str(AGE_MS)}
    harness.create_topic(subject, topic, settings=settings)

    def frames() -> Iterator[bytes]:
        for number in range(AGED_SEGMENTS):
            batch = raw.batch(
                value_bytes=1_000, records=250, timestamp_ms=due_ms - AGE_MS + number * AGED_APART_MS
            )
            for _ in range(AGED_SEGMENT_BYTES // len(batch)):
                yield raw.produce_batches(topic, {0: batch})

    with raw.connect(subject) as connection:
        raw.wait_for_leaders(connection, topic, 1)
        raw.pour(connection, topic, frames())


def log_bytes(subject: harness.Subject, topic: str) -> int:
    """The size of the `.log` files of partition 0, in bytes."""
    size = 0
    for entry in os.scandir(subject.data_dir / f"{topic}-0"):
        with contextlib.suppress(FileNotFoundError):  # renamed meanwhile
            size += entry.stat().st_size if entry.name.endswith(".log") else 0
    return size


def beside_maintenance(
    figures: harness.Figures, subject: harness.Subject, repeat: int, *, cleaner_rate: int = 0
) -> None:
    """One idle phase, then one that lasts until the log is compacted; at `cleaner_rate` if there is one."""
    compacted, aged = f"compacted-{repeat}", f"aged-{repeat}"
    due_s = time.time() + FILL_S + PHASE_S
    fill_compacted(subject, compacted, int(due_s * 1000))
    fill_aged(subject, aged, int(due_s * 1000))
    os.sync()
    if time.time() > due_s - PHASE_S:
        raise RuntimeError(f"filling the logs took {time.time() - due_s + PHASE_S:.1f} s too long")
    before = {topic: log_bytes(subject, topic) for topic in (compacted, aged)}
    context = multiprocessing.get_context("fork")
    with producing(subject, f"beside-{repeat}") as finish:
        time.sleep(max(0.0, due_s - time.time() - PHASE_S / 2))
        idle_from = time.monotonic()
        time.sleep(max(0.0, due_s - time.time() - 0.1))
        idle_until = time.monotonic()
        time.sleep(max(0.0, due_s - time.time()))
        busy_from = time.monotonic()
        while log_bytes(subject, compacted) > before[compacted] / 2:
            if time.monotonic() > busy_from + BUSY_S_MAX:
                raise RuntimeError(f"{subject.name}: {compacted} is not compacted after {BUSY_S_MAX:.0f} s")
            time.sleep(0.02)
        busy_until = time.monotonic()
        retired = before[aged] - log_bytes(subject, aged)
        time.sleep(PHASE_S / 4)
        # As long as a p99 needs, at the rate at which the broker wrote.
        seconds = max(COLD_S, busy_until - busy_from)
        kept = int(log_bytes(subject, compacted) * seconds / (busy_until - busy_from))
        path = subject.data_dir / "control"
        control = context.Process(target=rewrite_plainly, args=(path, seconds, kept), daemon=True)
        control_from = time.monotonic()
        control.start()
        control.join(2 * BUSY_S_MAX)
        control_until = time.monotonic()
        found = finish()
    idle, busy = found.p99_us(idle_from, idle_until), found.p99_us(busy_from, busy_until)
    plain = found.p99_us(control_from, control_until)
    rate = before[compacted] / 1e6 / (busy_until - busy_from)
    is_promised = not cleaner_rate and subject.name.endswith("never")
    label = f"compaction at {cleaner_rate / 1e6:.0f} MB/s of I/O" if cleaner_rate else "compaction"
    figures.add(f"{label}: compacted", "MB/s", subject.name, rate, bound=">= 100" * is_promised)
    figures.add(f"{label}: produce p99, idle", "µs", subject.name, idle)
    figures.add(f"{label}: produce p99", "µs", subject.name, busy)
    figures.add(f"{label}: p99 / idle", "", subject.name, busy / idle, bound="<= 4" * is_promised)
    figures.add(f"{label}: p99 beside the control / idle", "", subject.name, plain / idle)
    figures.add(f"{label}: retired meanwhile", "MB", subject.name, retired / 1e6)


def rewrite_plainly(path: Path, seconds: float, size: int) -> None:
    """The control's process: a core busy for so long, which meanwhile writes `size` bytes in files synced
    as segments are.
    """
    piece = os.urandom(1 << 20)
    begin_s, pieces = time.monotonic(), max(1, size // len(piece))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        for number in range(pieces):
            while time.monotonic() < begin_s + seconds * number / pieces:
                zlib.crc32(piece)
            at = number * len(piece) % COMPACTED_SEGMENT_BYTES
            if at == 0:
                os.fdatasync(descriptor)
                os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, piece, at)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
        path.unlink()


# -- a cold fetch


def drop_pages(subject: harness.Subject, topic: str) -> None:
    """Have the system forget the pages of the topic's logs."""
    for path in Path(subject.data_dir / f"{topic}-0").glob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def fetch_cold(
    subject: harness.Subject,
    topic: str,
    rate: float,
    found: "multiprocessing.Queue[tuple[float, float, int]]",
) -> None:
    """The fetcher's process: the whole log again and again for `COLD_S`, at no more than `rate` bytes per
    second; tells when it began and ended, and how many bytes came.
    """
    with raw.connect(subject) as connection:
        room = raw.FetchedTo(COLD_FETCH_BYTES + (2 << 20))
        end_offset = raw.log_end_offset(connection, topic, 0)
        begin_s, offset, received = time.monotonic(), end_offset, 0
        while time.monotonic() < begin_s + COLD_S:
            if offset >= end_offset:
                drop_pages(subject, topic)
                offset = 0
            connection.sendall(raw.fetch_request(topic, offset=offset, max_bytes=COLD_FETCH_BYTES))
            size, offset = room.receive(connection, topic)
            received += size
            time.sleep(max(0.0, begin_s + received / rate - time.monotonic()))
        found.put((begin_s, time.monotonic(), received))


def send_plainly(subject: harness.Subject, topic: str, rate: float, listening: socket.socket) -> None:
    """The control's sender: the topic's files to the process that connects, for `COLD_S`, at no more than
    `rate` bytes per second.
    """
    connected, _ = listening.accept()
    begin_s, sent = time.monotonic(), 0
    paths = sorted(Path(subject.data_dir / f"{topic}-0").glob("*.log"))
    with connected:
        for path in itertools.cycle(paths):
            if time.monotonic() > begin_s + COLD_S:
                break
            if path is paths[0]:
                drop_pages(subject, topic)
            with path.open("rb") as file:
                while size := os.sendfile(connected.fileno(), file.fileno(), file.tell(), COLD_FETCH_BYTES):
                    file.seek(size, os.SEEK_CUR)
                    sent += size
                    time.sleep(max(0.0, begin_s + sent / rate - time.monotonic()))


def receive_plainly(port: int, found: "multiprocessing.Queue[tuple[float, float, int]]") -> None:
    """The control's receiver; tells when it began and ended, and how many bytes came."""
    room, received = memoryview(bytearray(COLD_FETCH_BYTES)), 0
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        begin_s = time.monotonic()
        while size := connection.recv_into(room):
            received += size
        found.put((begin_s, time.monotonic(), received))


def beside_cold_fetch(figures: harness.Figures, subject: harness.Subject, repeat: int) -> None:
    """A fetch without a producer; then, at each rate, a phase of the producer alone and a phase beside a
    fetch.
    """
    context = multiprocessing.get_context("fork")
    told: multiprocessing.Queue[tuple[float, float, int]] = context.Queue()

    def run(target: Callable[..., None], *arguments: object) -> multiprocessing.process.BaseProcess:
        process = context.Process(target=target, args=arguments, daemon=True)
        process.start()
        return process

    process = run(fetch_cold, subject, "cold", float("inf"), told)
    begin_s, end_s, received = told.get(timeout=120)
    process.join(10)
    rate_alone = received / 1e6 / (end_s - begin_s)
    figures.add("cold fetch, without a producer", "MB/s", subject.name, rate_alone)
    spans = []
    with producing(subject, f"hot-{repeat}") as finish:
        for rate in COLD_RATES:
            time.sleep(PHASE_S / 4)
            alone = time.monotonic(), time.monotonic() + PHASE_S / 2
            time.sleep(PHASE_S / 2)
            process = run(fetch_cold, subject, "cold", rate, told)
            begin_s, end_s, received = told.get(timeout=120)
            process.join(10)
            reached = received / (end_s - begin_s)
            with socket.create_server(("127.0.0.1", 0)) as listening:
                sender = run(send_plainly, subject, "cold", reached, listening)
                receiver = run(receive_plainly, listening.getsockname()[1], told)
                plain = told.get(timeout=120)
                for control in (sender, receiver):
                    control.join(10)
            spans.append((rate, alone, (begin_s, end_s), reached, plain))
        found = finish()
    for rate, alone, beside, reached, plain in spans:
        label = "cold fetch" if rate == float("inf") else f"cold fetch at {rate / 1e6:.0f} MB/s"
        is_promised = rate == float("inf") and subject.name.endswith("never")
        alone_us, beside_us = found.p99_us(*alone), found.p99_us(*beside)
        figures.add(f"{label}: reached", "MB/s", subject.name, reached / 1e6, bound=">= 250" * is_promised)
        figures.add(f"{label}: produce p99, alone", "µs", subject.name, alone_us)
        figures.add(f"{label}: produce p99", "µs", subject.name, beside_us)
        figures.add(
            f"{label}: p99 / alone", "", subject.name, beside_us / alone_us, bound="<= 4" * is_promised
        )
        plain_us = found.p99_us(plain[0], plain[1])
        figures.add(f"{label}: p99 beside the control / alone", "", subject.name, plain_us / alone_us)


def fill_cold(subject: harness.Subject) -> None:
    """400 MB in segments of 256 MiB."""
    harness.create_topic(subject, "cold", settings={"segment.bytes": str(256 << 20)})
    frame = raw.produce_batches("cold", {0: raw.batch(value_bytes=1_000, records=250)})
    with raw.connect(subject) as connection:
        raw.wait_for_leaders(connection, "cold", 1)
        raw.pour(connection, "cold", (frame for _ in range(COLD_BYTES // len(frame))))


def brokers(options: argparse.Namespace, settings: Mapping[str, str]) -> Iterator[harness.Subject]:
    """Ours under each way to flush, then a real Kafka, all told to look for work often."""
    if options.only != "kafka":
        for flush in FLUSH:
            ours = {"sparklog.ack.flush": flush, **SETTINGS, **settings}
            with harness.sparklog(ours, name=f"sparklog {flush}") as subject:
                yield subject
    if options.against == "kafka" or options.only == "kafka":
        with harness.kafka({**SETTINGS, **settings, "log.cleaner.enable": "true"}) as subject:
            yield subject


def main() -> None:
    options = harness.options(__doc__, against=True)
    figures = harness.Figures("background")
    for subject in brokers(options, {}):
        fill_cold(subject)
        for repeat in range(options.repeats):
            beside_cold_fetch(figures, subject, repeat)
        for repeat in range(options.repeats):
            beside_maintenance(figures, subject, repeat)
    for rate in CLEANER_RATES:
        for subject in brokers(options, {"log.cleaner.io.max.bytes.per.second": str(rate)}):
            for repeat in range(options.repeats):
                beside_maintenance(figures, subject, repeat, cleaner_rate=rate)
    figures.note("producer, fetcher and broker share the machine's cores")
    figures.report(options)


if __name__ == "__main__":
    main()
