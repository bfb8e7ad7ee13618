"""The bar chart of figures: `python -m docs.figures` draws five rows of the table in README.md into
docs/images/figures.svg.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

PROJECT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = PROJECT / "docs" / "images" / "figures.svg"
CHARTED: Final = {
    "start to the first response": "Start to the first response",
    "memory after 1 GB": "Memory after 1 GB produced and consumed",
    "end to end": "End to end at 1 000 records/s, p99",
    "three replicas": "Three replicas, acks=all (more is better)",
    "kill -9": "kill -9 of a leader to the next acknowledgement",
}
"""The beginning of a measurement in README, and its title in the chart."""
OURS, THEIRS = "#1d4e4a", "#e7a08f"


class Figure(NamedTuple):
    """A row of the table: what was measured, and the values with their unit as they are written."""

    measurement: str
    sparklog: str
    kafka: str


def figures() -> list[Figure]:
    """The rows of the table in README."""
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", (PROJECT / "README.md").read_text(), re.MULTILINE
    )
    return [Figure(*row) for row in rows if row[0] != "measurement"]


def charted() -> list[tuple[str, Figure]]:
    """The rows of the chart with their titles."""
    return [
        (title, next(row for row in figures() if row.measurement.startswith(begin)))
        for begin, title in CHARTED.items()
    ]


def value_of(written: str) -> float:
    """The number of `1 824 ms`; both values of a row have the same unit."""
    return float(re.sub(r"[^\d.].*$", "", re.sub(r"(?<=\d) (?=\d{3}\b)", "", written)))


def draw(path: Path) -> None:
    """Write the chart: a panel for each row, whose longer bar has the full width."""
    # Imported here: a test reads the rows without it.
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "sparklog", "font.family": "sans-serif"})
    canvas = Canvas(figsize=(7.7, 4.6), layout="constrained")
    panels = canvas.subplots(len(CHARTED), 1)
    for panel, (title, row) in zip(panels, charted(), strict=True):
        values = [value_of(row.sparklog), value_of(row.kafka)]
        bars = panel.barh([1, 0], values, color=[OURS, THEIRS], height=0.78)
        panel.bar_label(
            bars, labels=[f"sparklog {row.sparklog}", f"Kafka {row.kafka}"], padding=4, fontsize=9
        )
        panel.set_title(title, loc="left", fontsize=10)
        panel.set_xlim(0, max(values) * 1.3)
        panel.axis("off")
    canvas.savefig(path, metadata={"Date": None, "Title": "Figures of sparklog and Kafka"})


if __name__ == "__main__":
    draw(PICTURE)
    print(PICTURE)
