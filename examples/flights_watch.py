"""What the flights demo shows while it runs: throughput, lag and the broker's memory, as curves on a terminal
and as a line every few seconds elsewhere.
"""

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType
from typing import NamedTuple, Self

import plotext
import psutil
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from examples.flights_writer import PARTITIONS, TOPIC, last_stable
from sparklog import Admin, TopicPartition

GROUP = "delays"
"""The group under which the stream commits how far it has read."""
SAMPLED_EVERY_S, TOLD_EVERY_S = 0.5, 5.0
PLOT_HEIGHT = 9


class Sample(NamedTuple):
    """The state at one moment: seconds since the begin, committed offsets of the log, those that the stream
    has read, and the resident memory of the brokers.
    """

    at_s: float
    written: int
    read: int
    memory_mb: float

    @property
    def lag(self) -> int:
        """Committed offsets that the stream has not read."""
        return self.written - self.read


def rates(samples: Sequence[Sample], field: str) -> list[float]:
    """Offsets per second between neighbours, 0 at first."""
    return [0.0] + [
        (getattr(after, field) - getattr(before, field)) / (after.at_s - before.at_s)
        for before, after in pairwise(samples)
    ]


class Watch:
    """Samples in a thread of its own, and draws, until the block ends.

    `samples` are those so far; an error of the thread is raised at the end of the block.
    """

    def __init__(self, servers: str, pids: Sequence[int], console: Console, *, total: int) -> None:
        self.samples: list[Sample] = []
        self.began_s = time.monotonic()
        self._servers = servers
        self._processes = [psutil.Process(pid) for pid in pids]
        self._console = console
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        columns = (
            TextColumn("{task.description:>8}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=console, auto_refresh=False)
        self._written = self._progress.add_task("written", total=total)
        self._read = self._progress.add_task("streamed", total=total)
        self._live = Live(get_renderable=self._drawing, console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._thread.start()
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if self._console.is_terminal:
            self._live.stop()
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        told_s = 0.0
        try:
            with Admin(bootstrap_servers=self._servers) as admin:
                is_last = False
                while not is_last:
                    is_last = self._ended.wait(SAMPLED_EVERY_S)
                    self.samples.append(self._sample(admin))
                    if not self._console.is_terminal and self.samples[-1].at_s - told_s >= TOLD_EVERY_S:
                        told_s = self.samples[-1].at_s
                        self._console.print(line(self.samples), highlight=False, soft_wrap=True)
        except Exception as error:  # raised where the block ends
            self._error = error

    def _sample(self, admin: Admin) -> Sample:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        committed = admin.list_group_offsets({GROUP: partitions})[GROUP]
        read = sum(one.offset for one in committed.values())
        memory = sum(process.memory_info().rss for process in self._processes)
        # Read after the group's offsets, which are then not ahead of it.
        written = last_stable(admin)
        return Sample(time.monotonic() - self.began_s, written, read, memory / 2**20)

    def _drawing(self) -> RenderableType:
        samples = self.samples[:]
        if len(samples) < 2:
            return self._progress
        self._progress.update(self._written, completed=samples[-1].written)
        self._progress.update(self._read, completed=samples[-1].read)
        grid = Table.grid(expand=False)
        width = max(20, self._console.width // 3 - 1)
        at_s = [one.at_s for one in samples]
        curves = (
            ("records/s into the log", rates(samples, "written"), "cyan"),
            ("lag of the stream, records", [float(one.lag) for one in samples], "orange"),
            ("memory of the broker, MB", [one.memory_mb for one in samples], "green"),
        )
        grid.add_row(*(Text.from_ansi(plot(at_s, *curve, width=width)) for curve in curves))
        return Group(self._progress, grid)


def plot(at_s: list[float], title: str, values: list[float], colour: str, *, width: int) -> str:
    """A curve as lines of a terminal, from 0 up."""
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(width, PLOT_HEIGHT)
    plotext.plot(at_s, values, marker="braille", color=colour)
    plotext.ylim(0, max(1.0, *values) * 1.1)
    plotext.xfrequency(3)
    plotext.yfrequency(3)
    plotext.title(title)
    drawn: str = plotext.build()
    return drawn


def line(samples: Sequence[Sample]) -> str:
    """The newest sample, for a log."""
    newest = samples[-1]
    before = next((one for one in reversed(samples) if newest.at_s - one.at_s >= 2), samples[0])
    rate = (newest.written - before.written) / max(0.001, newest.at_s - before.at_s)
    return (
        f"  {newest.at_s:5.1f} s  written {newest.written:>7,} ({rate:>6,.0f}/s)  "
        f"streamed {newest.read:>7,}  lag {newest.lag:>7,}  broker {newest.memory_mb:.0f} MB"
    )
