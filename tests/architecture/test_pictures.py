"""The pictures that scripts draw: the moving one of a killed leader, and the chart of figures."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from docs import figures, kill_picture
from docs.kill_picture import Run, View, picture

BYTES_MAX = 300_000
SVG = "{http://www.w3.org/2000/svg}"


def run() -> Run:
    """Node 2 leads and is killed at 2 s; node 1 leads from 2.1 s on; node 2 is in sync again at 4 s."""
    views = [
        View(0.1, 2, (1, 2, 3)),
        View(2.05, 2, (1, 2, 3)),
        View(2.1, 1, (1, 3)),
        View(4.0, 1, (1, 2, 3)),
    ]
    return Run(2, 2.0, [0.5, 1.0, 1.99, 2.12, 3.0], views, lost=0)


def test_the_moving_picture_shows_each_state_of_each_node() -> None:
    root = ET.fromstring(picture(run()))
    fills = [
        box.find(f"{SVG}animate[@attributeName='fill']").get("values")  # type: ignore[union-attr]
        for box in root.findall(f"{SVG}rect[@width='210']")
    ]
    leads, follows, killed = kill_picture.LEADER, kill_picture.SOFT, kill_picture.DOWN
    assert fills == [f"{follows};{leads}", f"{leads};{killed};{follows}", follows]
    assert "5 records acknowledged; lost or stored twice: 0; longest pause: 0.99 s" in picture(run())


def test_a_picture_that_moves_begins_again_in_all_of_its_parts_at_once() -> None:
    durations = re.findall(r'dur="([^"]+)"', picture(run()))
    assert len(durations) > 5
    assert set(durations) == {f"{kill_picture.RUN_S + kill_picture.HOLD_S}s"}


@pytest.mark.parametrize("path", [kill_picture.PICTURE, figures.PICTURE], ids=lambda path: path.name)
def test_a_drawn_picture_is_small_and_well_formed(path: Path) -> None:
    text = path.read_text()
    ET.fromstring(text)
    assert len(text) < BYTES_MAX


def test_the_chart_has_the_figures_of_readme() -> None:
    shown = figures.PICTURE.read_text()
    for title, row in figures.charted():
        assert all(f">{text}<" in shown for text in (title, f"sparklog {row.sparklog}", f"Kafka {row.kafka}"))


def test_readme_has_eight_figures_that_the_page_has_too() -> None:
    rows = figures.figures()
    page = (figures.PROJECT / "docs" / "performance.md").read_text()
    assert len(rows) == 8
    for row in rows:
        for value in (row.sparklog, row.kafka):
            assert re.search(rf"(?<![\d.]){re.escape(value.split(' ')[0])}\b", page), value
