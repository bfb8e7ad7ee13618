"""What the demo shows while it runs: curves in a terminal, and a line every few seconds elsewhere."""

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType
from typing import Final, NamedTuple, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sparklog import Admin, TopicPartition
from sparklog.errors import SparklogError
from sparklog_server.demo.flights import AIRPORTS, PARTITIONS, TOPIC, Totals, by_airport
from sparklog_server.demo.reader import Reader
from sparklog_server.demo.spark import GROUP
from sparklog_server.demo.writer import last_stable

SAMPLED_EVERY_S: Final = 0.2
SHOWN_EVERY_S: Final = 2.0
"""Where the output is no terminal."""
ASK_MS_MAX: Final = 1000
CURVE_WIDTH: Final = 40
LEVELS: Final = "▁▂▃▄▅▆▇█"


class Sample(NamedTuple):
    """The state at a moment: seconds since the begin, the last stable offsets, the offsets that each reader
    has read, each added up over the partitions, and whether the broker answered.
    """

    at_s: float
    written: int
    python: int
    spark: int
    is_up: bool


def rates(samples: Sequence[Sample], field: str) -> list[float]:
    """Offsets per second between neighbours."""
    return [
        (getattr(after, field) - getattr(before, field)) / (after.at_s - before.at_s)
        for before, after in pairwise(samples)
    ]


def lags(samples: Sequence[Sample], field: str) -> list[float]:
    """Offsets that the reader has not read."""
    return [max(0, one.written - getattr(one, field)) for one in samples]


def behind_s(samples: Sequence[Sample], field: str) -> float:
    """For how long the log has been longer than what the reader has read; at most the time of the samples."""
    if not samples:
        return 0.0
    reached = getattr(samples[-1], field)
    since = next((one.at_s for one in reversed(samples) if one.written <= reached), samples[0].at_s)
    return samples[-1].at_s - since


def curve(values: Sequence[float], width: int = CURVE_WIDTH) -> str:
    """The last values as a line of blocks, from 0 to the greatest."""
    shown = values[-width:]
    top = max(1.0, *shown, 1.0)
    return "".join(LEVELS[round(7 * max(0.0, one) / top)] for one in shown)


class Watch:
    """Samples and draws in a thread, until the block ends. An error of the thread is raised there."""

    def __init__(
        self, servers: str, reader: Reader, console: Console, *, total: int, has_spark: bool
    ) -> None:
        self.samples: list[Sample] = []
        self.began_s = time.monotonic()
        self._servers = servers
        self._reader = reader
        self._console = console
        self._total = total
        self._has_spark = has_spark
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._live = Live(get_renderable=self._drawing, console=console, refresh_per_second=5)

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
        shown_s = -SHOWN_EVERY_S
        try:
            with Admin(bootstrap_servers=self._servers, default_api_timeout_ms=ASK_MS_MAX) as admin:
                is_last = False
                while not is_last:
                    is_last = self._ended.wait(SAMPLED_EVERY_S)
                    self.samples.append(self._sample(admin))
                    newest = self.samples[-1]
                    if (
                        not self._console.is_terminal
                        and newest.at_s - shown_s >= SHOWN_EVERY_S
                        and newest.written
                    ):
                        shown_s = newest.at_s
                        text = line(self.samples, has_spark=self._has_spark)
                        self._console.print(text, highlight=False, soft_wrap=True)
        except Exception as error:  # raised where the block ends
            self._error = error

    def _sample(self, admin: Admin) -> Sample:
        before = self.samples[-1] if self.samples else Sample(0.0, 0, 0, 0, True)
        spark, python = before.spark, self._reader.position
        try:
            if self._has_spark:
                partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
                committed = admin.list_group_offsets({GROUP: partitions})[GROUP]
                spark = sum(max(0, one.offset) for one in committed.values())
            # Asked after the readers, which are then not ahead of it.
            written, is_up = last_stable(admin), True
        except SparklogError:  # the broker is away
            written, is_up = before.written, False
        return Sample(time.monotonic() - self.began_s, written, python, spark, is_up)

    def _drawing(self) -> RenderableType:
        samples = self.samples[:]
        if len(samples) < 2:
            return ""
        newest = samples[-1]
        grid = Table.grid(padding=(0, 2))
        for _ in range(3):
            grid.add_column()
        grid.add_column(justify="right", min_width=32)
        speed = rates(samples, "written")
        rate = sum(speed[-5:]) / len(speed[-5:])
        state = Text(f"{rate:,.0f} records/s") if newest.is_up else Text("the broker is down", "bold red")
        grid.add_row("written", self._bar(newest.written), Text(curve(speed), "cyan"), state)
        for name, field in self._readers():
            lag = lags(samples, field)
            text = f"lag {lag[-1]:,.0f} ({behind_s(samples, field):.1f} s)"
            grid.add_row(name, self._bar(getattr(newest, field)), Text(curve(lag), "yellow"), text)
        return Group("", grid, "", _delays(self._reader.totals), "")

    def _readers(self) -> list[tuple[str, str]]:
        return [("Python", "python"), *([("Spark", "spark")] if self._has_spark else [])]

    def _bar(self, offsets: int) -> ProgressBar:
        return ProgressBar(total=self._total, completed=offsets, width=30)


def _delays(totals: Totals) -> RenderableType:
    """The chart of the Python reader: mean delays by the hour of the day."""
    totals = dict(totals)
    grid = Table.grid(padding=(0, 2))
    for airport, total in by_airport(totals).items():
        means = [
            one.mean_delay if (one := totals.get((airport, hour))) is not None else 0.0
            for hour in range(5, 24)
        ]
        # Two columns for each hour.
        bars = "".join(2 * level for level in curve(means))
        grid.add_row(
            f"{airport} {AIRPORTS[airport]}", Text(f"5h {bars} 23h", "green"), f"{total.mean_delay:.1f} min"
        )
    return Group("mean departure delay by scheduled hour, so far:", grid)


def line(samples: Sequence[Sample], *, has_spark: bool) -> str:
    """The newest sample, for a log."""
    newest = samples[-1]
    recent = rates(samples[-11:], "written")
    rate = sum(recent) / max(1, len(recent))
    told = f"  {newest.at_s:5.1f} s  written {newest.written:>7,} ({rate:>6,.0f}/s)"
    for name, field in (("Python", "python"), ("Spark", "spark"))[: 1 + has_spark]:
        lag, behind = newest.written - getattr(newest, field), behind_s(samples, field)
        told += f"  {name} lag {max(0, lag):>7,} ({behind:4.1f} s)"
    return told
