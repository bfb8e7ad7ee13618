"""The chart of the flights demo, as a picture and as a page that needs nothing beside it."""

import base64
from html import escape
from pathlib import Path

import matplotlib as mpl
import pandas as pd

AIRPORTS = {
    "EWR": ("Newark", "#d1495b"),
    "JFK": ("John F. Kennedy", "#00798c"),
    "LGA": ("LaGuardia", "#edae49"),
}


def write_chart(by_hour: pd.DataFrame, path: Path) -> None:
    """One line per airport: mean departure delay over the hours of the day. `by_hour` has origin, hour,
    mean_delay, flights.
    """
    mpl.use("Agg")  # no display is needed, nor looked for
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 5))
    for origin, hours in by_hour.groupby("origin"):
        name, colour = AIRPORTS[str(origin)]
        axes.plot(hours["hour"], hours["mean_delay"], marker="o", color=colour, label=f"{origin} {name}")
    axes.set(
        title="The later the hour, the longer the wait",
        xlabel="scheduled hour, New York time",
        ylabel="mean departure delay, minutes",
    )
    axes.set_xticks(range(5, 24, 2))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)


def write_page(by_hour: pd.DataFrame, chart: Path, path: Path) -> None:
    """The chart, carried inside the page, and its numbers."""
    picture = base64.b64encode(chart.read_bytes()).decode()
    origins = sorted(by_hour["origin"].unique())
    delays = by_hour.pivot_table(index="hour", columns="origin", values="mean_delay")
    head = "".join(f"<th>{escape(origin)}</th>" for origin in origins)
    rows = "".join(
        f"<tr><th>{hour:02d}:00</th>"
        + "".join(f"<td>{'–' if pd.isna(row[o]) else f'{row[o]:.1f}'}</td>" for o in origins)
        + "</tr>"
        for hour, row in delays.iterrows()
    )
    path.write_text(
        f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Flights from New York, 2013</title>
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
 img {{ width: 100% }} table {{ border-collapse: collapse; margin: 1rem auto }}
 td, th {{ padding: .2rem 1rem; text-align: right; border-bottom: 1px solid #ddd }}
</style>
<h1>Departures from New York, 2013</h1>
<p>{int(by_hour["flights"].sum()):,} departures, through the topic <code>flights</code> and a Spark stream.
Mean departure delay in minutes, by scheduled hour (New York time).</p>
<img alt="Mean departure delay by hour of the day, one line per airport" src="data:image/png;base64,{picture}">
<table><tr><th>hour</th>{head}</tr>{rows}</table>
</html>
"""  # noqa: E501
    )
