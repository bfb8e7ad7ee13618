"""The globals of a Databricks notebook: `dbutils` with its widgets, and `display`, which keeps its output."""

import io
from collections.abc import Mapping
from typing import Any, NamedTuple

ROWS_SHOWN = 20


class Shown(NamedTuple):
    """One thing that a cell showed: plain text, and the same as HTML or as a PNG where there is such."""

    text: str
    html: str = ""
    png: bytes = b""


class Widgets:
    """Fields at the head of a notebook; the runner gives their values, or the notebook's defaults
    hold.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = dict(given)
        self._defaults: dict[str, str] = {}

    def text(self, name: str, default: str, label: str = "") -> None:
        self._defaults[name] = default

    def dropdown(self, name: str, default: str, choices: list[str], label: str = "") -> None:
        if self._given.get(name, default) not in choices:
            raise ValueError(
                f"widget {name!r} cannot be {self._given[name]!r}: choose among {', '.join(choices)}"
            )
        self._defaults[name] = default

    def get(self, name: str) -> str:
        if name not in self._defaults:
            raise ValueError(f"no widget {name!r} was made: there are {', '.join(self._defaults) or 'none'}")
        return self._given.get(name, self._defaults[name])

    def unknown(self) -> list[str]:
        """Values that were given for no widget."""
        return sorted(set(self._given) - set(self._defaults))


class Dbutils:
    """As much of Databricks' `dbutils` as the notebooks use."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.widgets = Widgets(given)


class Display:
    """`display(x)`: a frame as a table, a figure as a picture, the rest as text."""

    def __init__(self) -> None:
        self.shown: list[Shown] = []

    def __call__(self, what: Any) -> None:
        self.shown.append(rendered(what))

    def take(self) -> list[Shown]:
        """The output since the last call."""
        shown, self.shown = self.shown, []
        return shown


def rendered(what: Any) -> Shown:
    """A frame of Spark or pandas, a figure of matplotlib, or anything else by its `repr`."""
    if hasattr(what, "savefig"):
        picture = io.BytesIO()
        what.savefig(picture, format="png", dpi=100, bbox_inches="tight")
        return Shown("[figure]", png=picture.getvalue())
    if hasattr(what, "toPandas"):
        if what.isStreaming:
            raise TypeError(
                "a stream has no end to wait for: write it with trigger(availableNow=True) and display what "
                "it wrote"
            )
        what = what.limit(ROWS_SHOWN).toPandas()
    if hasattr(what, "to_html"):
        return Shown(what.to_string(max_rows=ROWS_SHOWN), html=what.to_html(max_rows=ROWS_SHOWN))
    return Shown(repr(what))
