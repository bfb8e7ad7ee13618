"""The page of the flights demo: what happened in the log, in the stream and in the table, as a picture and as
a page that needs nothing beside it.
"""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import matplotlib as mpl
import pandas as pd

from examples.flights_watch import Sample, rates
from examples.flights_writer import PARTITIONS, TOPIC, Killed
from sparklog import Admin, TopicPartition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql.streaming.listener import StreamingQueryProgress

AIRPORTS = {
    "EWR": ("Newark", "#d1495b"),
    "JFK": ("John F. Kennedy", "#00798c"),
    "LGA": ("LaGuardia", "#edae49"),
}
_LATEST = -1


class Counts(NamedTuple):
    """What was counted back: the flights of the year, committed records and distinct flights in the topic,
    records of aborted transactions, flights in the table, and the hours that the table has.
    """

    expected: int
    committed: int
    distinct: int
    aborted: int
    in_table: int
    hours: int


class PartitionOfLog(NamedTuple):
    """A partition of the topic at the end."""

    number: int
    log_end_offset: int
    size_bytes: int


class Story(NamedTuple):
    """All that the page tells. `began_s` is the monotonic time of the first sample's second 0."""

    samples: Sequence[Sample]
    began_s: float
    killed: Killed
    batches: Sequence["StreamingQueryProgress"]
    partitions: Sequence[PartitionOfLog]
    counts: Counts
    by_hour: pd.DataFrame
    """origin, hour, mean_delay, flights."""


def partitions_of(admin: Admin) -> list[PartitionOfLog]:
    """Each partition of the topic, with the size of a replica."""
    names = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    ends = admin.list_offsets(dict.fromkeys(names, _LATEST))
    directories = [one for node in admin.describe_log_dirs(partitions=names).values() for one in node]
    sizes = {name: replica.size_bytes for one in directories for name, replica in one.replicas.items()}
    return [PartitionOfLog(name.partition, ends[name].offset, sizes.get(name, 0)) for name in names]


def write_chart(story: Story, path: Path) -> None:
    """Throughput, lag and memory over the time of the demo, and the delays by the hour of the day."""
    mpl.use("Agg")  # no display is needed, nor looked for
    from matplotlib import pyplot as plt

    figure, ((rate, lag), (memory, delay)) = plt.subplots(2, 2, figsize=(13, 8), constrained_layout=True)
    at_s = [sample.at_s for sample in story.samples]
    rate.step(at_s, rates(story.samples, "written"), where="pre", color="#00798c", label="into the log")
    rate.step(at_s, rates(story.samples, "read"), where="pre", color="#edae49", label="through the stream")
    rate.legend(frameon=False)
    lag.fill_between(at_s, [sample.lag for sample in story.samples], color="#d1495b", alpha=0.6)
    memory.plot(at_s, [sample.memory_mb for sample in story.samples], color="#00798c")
    for axes, title in (
        (rate, "records per second"),
        (lag, "lag of the stream, records"),
        (memory, "memory of the broker, MB"),
    ):
        axes.set(title=title, xlabel="seconds")
        axes.set_ylim(bottom=0)
        killed_s = story.killed.at_s - story.began_s
        axes.axvline(killed_s, color="#666", linestyle="--", linewidth=1)
        axes.annotate("kill -9", (killed_s, 0.94), xycoords=("data", "axes fraction"), color="#666")
    _draw_delays(delay, story.by_hour)
    for axes in (rate, lag, memory, delay):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_delays(axes: "Axes", by_hour: pd.DataFrame) -> None:
    for origin, hours in by_hour.groupby("origin"):
        name, colour = AIRPORTS[str(origin)]
        axes.plot(hours["hour"], hours["mean_delay"], marker="o", color=colour, label=f"{origin} {name}")
    axes.set(title="mean departure delay, minutes", xlabel="scheduled hour, New York time")
    axes.set_xticks(range(5, 24, 2))
    axes.legend(frameon=False)


def write_page(story: Story, chart: Path, path: Path) -> None:
    """The chart, carried inside the page, and the numbers of the log, the stream and the table."""
    picture = base64.b64encode(chart.read_bytes()).decode()
    counts, killed = story.counts, story.killed
    verdict = "none missing, none doubled" if _is_whole(counts) else "flights are missing or doubled"
    log = _table(
        ("partition", "log end offset", "size"),
        (
            (one.number, f"{one.log_end_offset:,}", f"{one.size_bytes / 2**20:.1f} MiB")
            for one in story.partitions
        ),
    )
    stream = _table(
        ("micro-batch", "flights", "seconds", "flights/s"),
        (
            (
                one.batchId,
                f"{one.numInputRows:,}",
                f"{one.batchDuration / 1000:.1f}",
                f"{one.processedRowsPerSecond:,.0f}",
            )
            for one in story.batches
        ),
    )
    path.write_text(
        f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Flights from New York, 2013</title>
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }}
 img {{ width: 100% }} table {{ border-collapse: collapse; margin: 1rem 0 }}
 td, th {{ padding: .2rem 1rem; text-align: right; border-bottom: 1px solid #ddd }}
</style>
<h1>A year of flights through one broker and Spark</h1>
<p><b>{counts.expected:,} flights: {verdict}.</b> The writer was killed with SIGKILL after
{killed.at_s - story.began_s:.1f} s, with {killed.uncommitted:,} flights in an open transaction. The next
writer continued {killed.back_s:.2f} s later.</p>
<img alt="Throughput, lag, memory and delays" src="data:image/png;base64,{picture}">
<h2>The log</h2>
<p>The topic <code>{TOPIC}</code> has {counts.committed:,} committed records of {counts.distinct:,} flights,
and {counts.aborted:,} records of aborted transactions, which read_committed consumers skip.</p>
{log}
<h2>The stream</h2>
{stream}
<h2>The table</h2>
<p>The table has {counts.hours:,} rows, one for each hour and airport, of {counts.in_table:,} flights. Mean
departure delay in minutes, by scheduled hour (New York time):</p>
{_delays(story.by_hour)}
</html>
"""
    )


def _is_whole(counts: Counts) -> bool:
    return counts.committed == counts.distinct == counts.in_table == counts.expected


def _delays(by_hour: pd.DataFrame) -> str:
    origins = sorted(by_hour["origin"].unique())
    delays = by_hour.pivot_table(index="hour", columns="origin", values="mean_delay")
    return _table(
        ("hour", *origins),
        (
            (f"{hour:02d}:00", *("–" if pd.isna(delay) else f"{delay:.1f}" for delay in row))
            for hour, *row in delays[origins].itertuples()
        ),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{titles}</tr>{body}</table>"
