"""The page /metrics: rendered in pieces between the turns of the loop, once for all scrapes that wait for it.

    asked ─► the next rendering of its format ─► figures of the system, by a job ─► pieces ─► answered
                 ▲                                                                     │
                 └── requests that come meanwhile: their numbers are not older than they ┘

A piece takes the loop for some tenths of a millisecond at most. What slow readers hold is bounded: the oldest
rendering gives way, and its readers are closed.
"""

import gc
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Final, NamedTuple

from sparklog.kernels import implementation
from sparklog_server import metrics
from sparklog_server.broker.metrics.report import BrokerReport
from sparklog_server.broker.metrics.report_requests import WINDOW_US
from sparklog_server.daemon.http_connection import HttpConnection
from sparklog_server.daemon.jobs import Jobs
from sparklog_server.daemon.pump import Pump, read_clock
from sparklog_server.daemon.reactor import Reactor
from sparklog_server.histogram import Histogram, Window, merged, quantiles_us
from sparklog_server.metrics import QUANTILES
from sparklog_server.metrics_text import Text
from sparklog_server.replica.directory import ReplicaDirectory

STEP_NS: Final = 300_000
"""The time after which the pieces of one turn end; the last piece may add a tenth of a millisecond."""
CHUNK_CHARS: Final = 65_536
UNREAD_BYTES_MAX: Final = 64 << 20
"""What renderings hold that are not read yet, beyond the newest one."""
IDLE_SPAN_NS: Final = 10_000_000_000
_REASONS_MAX: Final = 32


class Refusals:
    """The refused requests and connections by reason."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def count(self, reason: str) -> None:
        """Count one; the reasons of h11 are few."""
        self.counts[reason if reason in self.counts or len(self.counts) < _REASONS_MAX else "other"] += 1


class _Figures(NamedTuple):
    """What only the system knows."""

    process: dict[metrics.Metric, float]
    disks: dict[str, tuple[int, int]]  # total and free bytes by log directory
    version: str


class _Rendering:
    """One text, and the connections that wait for it or read it."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.waiting: list[HttpConnection] = []
        self.readers: list[tuple[HttpConnection, int]] = []  # each with the number of its request
        self.chunks: list[bytes] = []
        self.spent_ns = 0
        self._gathered: list[str] = []
        self._chars = 0

    def add(self, piece: str) -> None:
        self._gathered.append(piece)
        self._chars += len(piece)
        if self._chars >= CHUNK_CHARS:
            self.flush()

    def flush(self) -> None:
        if self._chars:
            self.chunks.append("".join(self._gathered).encode("utf-8", "replace"))
        self._gathered.clear()
        self._chars = 0

    @property
    def is_read(self) -> bool:
        return not any(_reads(*one) for one in self.readers)


def _reads(connection: HttpConnection, request: int) -> bool:
    """Whether the response to that request is still on its way."""
    return connection.is_open and connection.is_answering and connection.requests == request


class MetricsPage:
    """Invariant: at most one rendering is under way; `_next` has those that have not begun, by format."""

    def __init__(
        self,
        report: BrokerReport,
        pump: Pump,
        reactor: Reactor,
        jobs: Jobs,
        refusals: Refusals,
        directories: Sequence[ReplicaDirectory],
    ) -> None:
        self._report = report
        self._pump = pump
        self._reactor = reactor
        self._jobs = jobs
        self._refusals = refusals
        self._directories = directories
        self._is_rendering = False
        self._next: dict[bool, _Rendering] = {}
        self._unread: list[_Rendering] = []
        self._scrapes = 0
        self._spent_ns = 0
        self._syncs = Window(WINDOW_US)
        self._idle = _Idle(reactor)
        self._gil: GilWaits | None = None

    def measure(self, after: Callable[[float, Callable[[], None]], None]) -> None:
        """Measure the turns of the loop, and its waits for the GIL, from now on."""
        self._reactor.turns = Histogram()
        self._idle.begin()
        self._gil = GilWaits(self._reactor.wake_descriptor, after)
        self._gil.sample()

    def asked(self, connection: HttpConnection, *, is_openmetrics: bool) -> None:
        """Answer a connection with the next rendering."""
        rendering = self._next.get(is_openmetrics)
        if rendering is None:
            rendering = self._next[is_openmetrics] = _Rendering(Text(is_openmetrics=is_openmetrics))
        rendering.waiting.append(connection)
        if not self._is_rendering:
            self._begin()

    def _begin(self) -> None:
        """Begin the next rendering: ask the system first, in a job, because a disk may be slow to answer."""
        rendering = self._next.pop(next(iter(self._next)))
        self._is_rendering = True
        self._make_room()
        paths = [one.log_dir.path for one in self._directories if one.error is None]
        self._jobs.run(partial(_figures, paths), partial(self._measured, rendering))

    def _make_room(self) -> None:
        self._unread = [one for one in self._unread if not one.is_read]
        unread_bytes = sum(len(chunk) for one in self._unread for chunk in one.chunks)
        while self._unread and unread_bytes > UNREAD_BYTES_MAX:
            oldest = self._unread.pop(0)
            unread_bytes -= sum(map(len, oldest.chunks))
            for connection, request in oldest.readers:
                if _reads(connection, request):
                    self._refusals.count("slow")
                    connection.close()

    def _measured(self, rendering: _Rendering, result: object) -> None:
        figures = result if isinstance(result, _Figures) else _Figures({}, {}, "unknown")
        self._step(rendering, self._pieces(rendering.text, figures))

    def _step(self, rendering: _Rendering, pieces: Iterator[str]) -> None:
        """Take pieces for a moment, and the others in later turns."""
        if not any(one.is_open for one in rendering.waiting):
            self._ended(rendering)  # every scraper has left
            return
        began_cpu_ns = time.thread_time_ns()
        began_ns = now_ns = time.monotonic_ns()
        while now_ns - began_ns < STEP_NS:
            piece = next(pieces, None)
            if piece is None:
                rendering.add(rendering.text.end)
                rendering.flush()
                rendering.spent_ns += time.thread_time_ns() - began_cpu_ns
                self._scrapes += 1
                self._spent_ns = rendering.spent_ns
                self._reactor.post(partial(self._ended, rendering))
                return
            if piece:
                rendering.add(piece)
            now_ns = time.monotonic_ns()
        rendering.spent_ns += time.thread_time_ns() - began_cpu_ns
        self._reactor.post(partial(self._step, rendering, pieces))

    def _ended(self, rendering: _Rendering) -> None:
        """Answer a connection in each turn; the last turn begins the next rendering."""
        if rendering.waiting:
            connection = rendering.waiting.pop()
            rendering.readers.append((connection, connection.requests))
            now_us, text = read_clock().mono_us, rendering.text
            connection.respond(200, rendering.chunks, content_type=text.content_type, now_us=now_us)
            self._reactor.post(partial(self._ended, rendering))
            return
        self._unread.append(rendering)
        self._is_rendering = False
        self._report.ended(read_clock())
        self._pump.turn()
        if self._next:
            self._begin()

    # -- what is told

    def _pieces(self, text: Text, figures: _Figures) -> Iterator[str]:
        idle = self._idle.part()
        yield from self._report.render(text, idle, read_clock())
        yield text.several(metrics.BUILD_INFO, [((figures.version, implementation()), 1)])
        yield from self._daemon(text, idle)
        for metric, value in figures.process.items():
            yield text.one(metric, value)
        yield text.several(
            metrics.DIRECTORY_SIZE, [((path,), disk[0]) for path, disk in figures.disks.items()]
        )
        yield text.several(
            metrics.DIRECTORY_FREE, [((path,), disk[1]) for path, disk in figures.disks.items()]
        )
        collections = [((str(number),), one["collections"]) for number, one in enumerate(gc.get_stats())]
        yield text.several(metrics.GC_COLLECTIONS, collections)

    def _daemon(self, text: Text, idle: float) -> Iterator[str]:
        pump, pools = self._pump, self._pump.pools
        yield text.one(metrics.NETWORK_IDLE, idle) + text.one(metrics.HANDLER_IDLE, idle)
        yield text.several(metrics.CONNECTIONS, [((name, "0"), pump.counts[name]) for name in pump.begun])
        yield text.several(
            metrics.CONNECTIONS_BEGUN, [((name, "0"), count) for name, count in pump.begun.items()]
        )
        yield text.several(metrics.JOBS_WAITING, [((name,), pool.waiting) for name, pool in pools.items()])
        yield text.several(metrics.JOBS_RUNNING, [((name,), pool.running) for name, pool in pools.items()])
        yield text.several(metrics.JOBS_DONE, [((name,), pool.done) for name, pool in pools.items()])
        turns = self._reactor.turns
        if turns is not None:
            yield text.histogram(metrics.TURN_SECONDS, [((), turns.buckets, turns.total_us)])
        if self._gil is not None:
            waits = self._gil.times
            yield text.histogram(metrics.GIL_WAIT_SECONDS, [((), waits.buckets, waits.total_us)])
        yield text.one(metrics.LOOP_WAITED, self._reactor.waited_ns / 1e9)
        syncs = list(pump.sync_times.items())
        yield text.histogram(
            metrics.SYNC_SECONDS, [((path,), one.buckets, one.total_us) for path, one in syncs]
        )
        buckets = merged([one for _, one in syncs])
        recent = self._syncs.recent(buckets, read_clock().mono_us)
        yield text.quantiles(
            metrics.LOG_FLUSH_MS, metrics.LOG_FLUSHES, [((), quantiles_us(recent, QUANTILES), sum(buckets))]
        )
        yield text.one(metrics.SCRAPES, self._scrapes) + text.one(
            metrics.SCRAPE_SECONDS, self._spent_ns / 1e9
        )
        refused = list(self._refusals.counts.items())
        yield text.several(metrics.HTTP_REFUSED, [((reason,), count) for reason, count in refused])


class _Idle:
    """The part of the time that the loop waits, over the last seconds."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._before = self._between = (0, 0)

    def begin(self) -> None:
        self._before = self._between = time.monotonic_ns(), self._reactor.waited_ns

    def part(self) -> float:
        now = time.monotonic_ns(), self._reactor.waited_ns
        if now[0] - self._between[0] > IDLE_SPAN_NS:
            self._before, self._between = self._between, now
        passed_ns = now[0] - self._before[0]
        return min(1.0, (now[1] - self._before[1]) / passed_ns) if passed_ns else 1.0


@cache
def _version() -> str:
    """The release; the first call takes some tens of milliseconds."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sparklog")
    except PackageNotFoundError:  # it runs from its sources
        return "unknown"


def _figures(paths: Sequence[str]) -> _Figures:
    """A job: ask the system about this process and the disks."""
    disks = {}
    for path in paths:
        try:
            disk = os.statvfs(path)
        except OSError:
            continue
        disks[path] = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    return _Figures(_process(), disks, _version())


def _process() -> dict[metrics.Metric, float]:
    times = os.times()
    found: dict[metrics.Metric, float] = {metrics.PROCESS_CPU: times.user + times.system}
    for part in (_from_stat, _from_io, _from_limits):
        try:
            found |= part()
        except (OSError, ValueError, IndexError):
            continue  # there is no /proc, or it is not readable
    return found


def _read(path: str) -> str:
    with open(path) as file:  # noqa: PTH123 - pathlib is not imported here
        return file.read()


def _from_stat() -> dict[metrics.Metric, float]:
    fields = _read("/proc/self/stat").rpartition(")")[2].split()
    boot_s = next(
        int(line.split()[1]) for line in _read("/proc/stat").splitlines() if line.startswith("btime")
    )
    return {
        metrics.PROCESS_THREADS: int(fields[17]),
        metrics.PROCESS_START: boot_s + int(fields[19]) / os.sysconf("SC_CLK_TCK"),
        metrics.PROCESS_VIRTUAL: int(fields[20]),
        metrics.PROCESS_RESIDENT: int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
    }


def _from_io() -> dict[metrics.Metric, float]:
    figures = dict(line.split(": ") for line in _read("/proc/self/io").splitlines())
    return {
        metrics.DISK_READS: int(figures["read_bytes"]),
        metrics.DISK_WRITES: int(figures["write_bytes"]),
    }


def _from_limits() -> dict[metrics.Metric, float]:
    return {
        metrics.PROCESS_OPEN_FDS: len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        metrics.PROCESS_MAX_FDS: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }


SAMPLED_EVERY_S: Final = 0.1


class GilWaits:
    """`times` has the durations of the call; `after` runs something on the loop later."""

    def __init__(self, descriptor: int, after: Callable[[float, Callable[[], None]], None]) -> None:
        self.times = Histogram()
        self._descriptor = descriptor
        self._after = after

    def sample(self) -> None:
        """Time one call, and the next ones later."""
        began_ns = time.perf_counter_ns()
        os.fstat(self._descriptor)
        self.times.add((time.perf_counter_ns() - began_ns) // 1000)
        self._after(SAMPLED_EVERY_S, self.sample)
