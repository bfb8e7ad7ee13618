"""The figures of `sparklog top` as tables on a terminal; every name and message is inert."""

import time
from collections.abc import Sequence
from typing import Final, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sparklog_server.cli.printing import bytes_text
from sparklog_server.cli.top_figures import Figures
from sparklog_server.operations.inert_text import inert_name

ROWS_MIN: Final = 3
LINES_AROUND: Final = 19
"""Lines of the screen that are no rows of topics, requests or groups: headings, frames, brokers, notes."""
NAME_WIDTH: Final = 60


class Screen:
    """The whole terminal, given back at the end."""

    def __init__(self) -> None:
        self._console = Console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, figures: Figures | None, reason: str, away_since_s: float | None) -> None:
        """Draw the last figures, and that the cluster is away if it is."""
        rows = max(ROWS_MIN, (self._console.height - LINES_AROUND) // 3)
        self._live.update(drawn(figures, rows, reason, away_since_s), refresh=True)


def drawn(
    figures: Figures | None, rows: int, reason: str = "", away_since_s: float | None = None
) -> RenderableType:
    """The screen: at most `rows` of each kind; every name and message inert."""
    parts: list[RenderableType] = []
    if away_since_s is not None:
        since = time.strftime("%H:%M:%S", time.localtime(away_since_s))
        parts.append(
            Text(
                f"The cluster does not answer since {since}; trying again. {inert_name(reason)}",
                style="bold red",
            )
        )
    if figures is not None:
        is_stale = away_since_s is not None
        parts += _tables(figures, rows, style="dim" if is_stale else "")
    return Group(*parts)


def _tables(figures: Figures, rows: int, *, style: str) -> list[RenderableType]:
    at = time.strftime("%H:%M:%S", time.localtime(figures.time_s))
    parts: list[RenderableType] = [
        Text(
            f"{at}  {inert_name(figures.cluster)}  {_rate(figures.records_in)} records/s  "
            f"{figures.partitions} partitions, {figures.offline} offline, "
            f"{figures.under_replicated} under-replicated",
            style=style or ("bold red" if figures.offline else "bold"),
        ),
        _table(
            ("topic", "records/s", "in B/s", "out B/s"),
            [
                (one.topic, _rate(one.records_in), _size(one.bytes_in), _size(one.bytes_out))
                for one in figures.topics[:rows]
            ],
            style,
        ),
    ]
    if figures.requests:
        parts.append(
            _table(
                (
                    "request, p99 in ms",
                    "node",
                    "per s",
                    "total",
                    "queue",
                    "local",
                    "remote",
                    "throttle",
                    "send",
                ),
                [
                    (one.request, one.node, _rate(one.per_s), *(f"{value:.2f}" for value in one[3:]))
                    for one in figures.requests[:rows]
                ],
                style,
            )
        )
    parts += [
        _table(
            ("group", "state", "members", "lag", "lag/s"),
            [
                (one.group, one.state, _whole(one.members), _whole(one.lag), _signed(one.lag_growth))
                for one in figures.groups[:rows]
            ],
            style,
        ),
        _table(
            ("broker", "address", "state", "leads", "used", "free", "disk"),
            [
                (
                    str(one.broker),
                    one.address,
                    one.state,
                    str(one.leaders),
                    *map(_size, (one.used, one.usable, one.total)),
                )
                for one in figures.brokers[:rows]
            ],
            style,
        ),
        *(Text(inert_name(note), style="dim") for note in figures.notes[:ROWS_MIN]),
    ]
    return parts


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], style: str) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, expand=True, style=style, pad_edge=False)
    for number, column in enumerate(columns):
        is_text = number == 0 or column in ("node", "state", "address")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    for row in rows:
        # Plain text, because names may contain brackets, which are markup otherwise.
        table.add_row(*(Text(inert_name(cell)[:NAME_WIDTH]) for cell in row), style=style)
    return table


def print_figures(figures: Figures, rows: int) -> None:
    """Print at most `rows` of each kind, once."""
    Console().print(drawn(figures, rows))


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _size(value: float | None) -> str:
    return "-" if value is None else str(bytes_text(int(value)))


def _whole(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+,.0f}"
