"""The result of a run as a page that needs no other file: curves as SVG, and tables."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from sparklog_server.demo.flights import AIRPORTS, Totals, by_airport
from sparklog_server.demo.spark import Batch
from sparklog_server.demo.watch import Sample, lags, rates

WIDTH, HEIGHT = 900, 180
COLOURS: Final = ("#00798c", "#d1495b", "#edae49")
_RATE_SAMPLES: Final = 5


class Kill(NamedTuple):
    """What was killed, at a second of the samples, and after how many seconds each client continued."""

    what: str
    at_s: float
    back_s: Mapping[str, float]


class Story(NamedTuple):
    """All that the page tells; `counted` has the records and the distinct flights of each reader."""

    samples: Sequence[Sample]
    kills: Sequence[Kill]
    batches: Sequence[Batch]
    counted: Mapping[str, tuple[int, int]]
    totals: Totals


def write_page(story: Story, path: Path) -> None:
    """Write the page."""
    at_s = [one.at_s for one in story.samples]
    smooth = story.samples[::_RATE_SAMPLES]
    marks = {f"kill -9 {kill.what}": kill.at_s for kill in story.kills}
    readers = {"Python": lags(story.samples, "python")}
    if story.batches:
        readers["Spark"] = lags(story.samples, "spark")
    rate = {"records/s": rates(smooth, "written")}
    hours = range(5, 24)
    delays = {
        airport: [
            one.mean_delay if (one := story.totals.get((airport, hour))) is not None else 0.0
            for hour in hours
        ]
        for airport in AIRPORTS
    }
    kills = "".join(
        f"<li>After {kill.at_s:.1f} s the {kill.what} was killed with SIGKILL. "
        + ", ".join(f"The {name} continued {seconds:.1f} s later" for name, seconds in kill.back_s.items())
        + ".</li>"
        for kill in story.kills
    )
    counted = _table(
        ("", "records", "distinct flights"),
        ((name, f"{rows:,}", f"{distinct:,}") for name, (rows, distinct) in story.counted.items()),
    )
    airports = _table(
        ("airport", "flights", "cancelled", "mean delay, minutes"),
        (
            (f"{name} {AIRPORTS[name]}", f"{one.flights:,}", f"{one.cancelled:,}", f"{one.mean_delay:.1f}")
            for name, one in by_airport(story.totals).items()
        ),
    )
    batches = _table(
        ("micro-batch", "flights", "seconds"),
        ((one.number, f"{one.flights:,}", f"{one.seconds:.2f}") for one in story.batches),
    )
    stream = f"<h2>The micro-batches</h2><details><summary>{len(story.batches)}</summary>{batches}</details>"
    path.write_text(
        f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Flights from New York, 2013</title>
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
 svg {{ width: 100%; font-size: 12px }} table {{ border-collapse: collapse }}
 td, th {{ padding: .2rem 1rem; text-align: right; border-bottom: 1px solid #ddd }}
</style>
<h1>A year of flights through a broker, Python and Spark</h1>
<ul>{kills}</ul>
{counted}
<h2>Records per second into the log</h2>
{_curves([one.at_s for one in smooth[1:]], rate, "s", marks)}
<h2>Lag of the readers, records</h2>
{_curves(at_s, readers, "s", marks)}
<h2>Mean departure delay by scheduled hour, minutes</h2>
{_curves([*map(float, hours)], delays, "h", {})}
{airports}
{stream if story.batches else ""}
</html>
""",
        encoding="utf-8",
    )


def _curves(
    at: Sequence[float], lines: Mapping[str, Sequence[float]], unit: str, marks: Mapping[str, float]
) -> str:
    """An SVG: each line from 0 to the greatest value of all, and marks at places of the horizontal axis."""
    first, last = (at[0], at[-1]) if at else (0.0, 1.0)
    top = max((value for line in lines.values() for value in line), default=0.0) or 1.0

    def x(place: float) -> float:
        return 60 + (WIDTH - 70) * (place - first) / (last - first or 1.0)

    def y(value: float) -> float:
        return HEIGHT - 20 - (HEIGHT - 40) * value / top

    parts = [
        f'<line x1="60" x2="{WIDTH}" y1="{y(0)}" y2="{y(0)}" stroke="#999"/>',
        f'<text x="55" y="{y(top) + 4:.0f}" text-anchor="end">{top:,.0f}</text>',
        f'<text x="55" y="{y(0):.0f}" text-anchor="end">0</text>',
        f'<text x="60" y="{HEIGHT - 5}">{first:.0f} {unit}</text>',
        f'<text x="{WIDTH}" y="{HEIGHT - 5}" text-anchor="end">{last:.0f} {unit}</text>',
    ]
    for number, (name, values) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(at, values, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{70 + 80 * number}" y="12" fill="{colour}">{escape(name)}</text>')
    for text, place in marks.items():
        parts.append(f'<path d="M{x(place):.1f} 20V{y(0)}" stroke="#666" stroke-dasharray="4" fill="none"/>')
        parts.append(f'<text x="{x(place) + 4:.1f}" y="30" fill="#666">{escape(text)}</text>')
    return f'<svg viewBox="0 0 {WIDTH + 10} {HEIGHT}" role="img">{"".join(parts)}</svg>'


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{titles}</tr>{body}</table>"
