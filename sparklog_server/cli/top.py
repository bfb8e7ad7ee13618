"""`sparklog top`: a cluster live in a terminal, or its figures for programs."""

import contextlib
import socket
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from sparklog.client.settings import ClientSettings, address_of
from sparklog.errors import BrokerError, ConnectionFailed, RequestTimeout
from sparklog_server.cli.node_pages import addresses
from sparklog_server.cli.options import client_settings, reaches_cluster
from sparklog_server.cli.printing import as_json, print_json, print_line
from sparklog_server.cli.top_figures import Figures, Sampler
from sparklog_server.operations.inert_text import inert_name

if TYPE_CHECKING:
    from sparklog_server.cli.top_screen import Screen

API_TIMEOUT_MS: Final = "5000"
PROBE_S_MAX: Final = 1.0
ROWS_MAX: Final = 50
"""Rows of each kind in the output for programs."""
SLEEP_S_MIN: Final = 0.1
"""Even where a sample takes longer than the interval."""


@click.command()
@click.option(
    "--http",
    "http",
    metavar="URL",
    multiple=True,
    help="Read the metrics of a node, such as http://127.0.0.1:9464, for bytes, readers and the time of "
    "requests. https takes certificates and user of the client settings. Repeatable, or separated by commas.",
)
@click.option(
    "--interval",
    "interval_s",
    metavar="SECONDS",
    type=click.FloatRange(0.2, 60.0),
    default=2.0,
    show_default=True,
    help="Set the interval between samples.",
)
@click.option("--once", "is_once", is_flag=True, help="Print the rates of one interval, then end.")
@reaches_cluster
@as_json
def top(http: tuple[str, ...], interval_s: float, is_once: bool, is_json: bool) -> int:
    """Show rates by topic, the slowest requests, the lag of groups, and disks, until Ctrl-C.

    An unreachable cluster is shown as such and asked again. If the output is not a terminal, --once is the
    default, except with --json, which prints a line for each interval.
    """
    try:
        nodes = addresses(http)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--http") from None
    settings = client_settings(default_api_timeout_ms=API_TIMEOUT_MS)
    with Sampler(settings, nodes) as sampler:
        if is_once or not (is_json or sys.stdout.isatty()):
            sampler.sample()
            time.sleep(interval_s)
            _print_once(sampler.sample(), is_json=is_json)
            return 0
        with contextlib.suppress(KeyboardInterrupt):
            _follow(settings, sampler, interval_s, is_json=is_json)
    return 0


def _follow(settings: ClientSettings, sampler: Sampler, interval_s: float, *, is_json: bool) -> None:
    """Show a sample in each interval, for ever. Raises SparklogError for what time does not mend."""
    figures: Figures | None = None
    away_since_s: float | None = None
    with contextlib.nullcontext() if is_json else _screen() as screen:
        while True:
            begun_s = time.monotonic()
            reason = ""
            try:
                if away_since_s is not None:
                    _probe([*map(address_of, settings.bootstrap_servers), *sampler.known])
                figures, away_since_s = sampler.sample(), None
            except Exception as error:
                if not _is_passing(error):
                    raise
                reason, away_since_s = str(error), away_since_s or time.time()
            if screen is not None:
                screen.show(figures, reason, away_since_s)
            else:
                print_json(_as_json(figures) if figures is not None and not reason else {"away": reason})
                sys.stdout.flush()
            time.sleep(max(SLEEP_S_MIN, begun_s + interval_s - time.monotonic()))


def _screen() -> "Screen":
    from sparklog_server.cli.top_screen import Screen  # rich takes 25 ms, and programs need none of it

    return Screen()


def _is_passing(error: Exception) -> bool:
    """Whether the cluster may answer again by itself."""
    is_away = isinstance(error, ConnectionFailed | RequestTimeout | OSError)
    return is_away or (isinstance(error, BrokerError) and error.is_retriable)


def _probe(addresses: Sequence[tuple[str, int]]) -> None:
    """Raise at once while no broker accepts a connection: a client would try until its timeout."""
    reasons = {}
    for host, port in addresses:
        try:
            socket.create_connection((host, port), timeout=PROBE_S_MAX).close()
            return
        except OSError as error:
            reasons[f"{host}:{port}"] = (error.strerror or str(error)).lower()
    raise ConnectionFailed("no broker at " + ", ".join(f"{at} ({why})" for at, why in reasons.items()))


# -- for programs


def _print_once(figures: Figures, *, is_json: bool) -> None:
    if is_json:
        print_json(_as_json(figures))
        return
    if sys.stdout.isatty():
        from sparklog_server.cli.top_screen import print_figures

        print_figures(figures, ROWS_MAX)
        return

    def line(*cells: object) -> None:
        print_line(*(None if cell is None else inert_name(str(_plain(cell))) for cell in cells))

    line(
        "cluster",
        f"id={figures.cluster}",
        f"records_s={_plain(figures.records_in)}",
        f"partitions={figures.partitions}",
        f"offline={figures.offline}",
        f"under_replicated={figures.under_replicated}",
    )
    for kind, rows in (
        ("topic", figures.topics),
        ("request", figures.requests),
        ("group", figures.groups),
        ("broker", figures.brokers),
    ):
        for row in rows[:ROWS_MAX]:
            line(kind, *row)
    for note in figures.notes:
        line("note", note)


def _as_json(figures: Figures) -> dict[str, object]:
    return {name: _plain(value) for name, value in figures._asdict().items()} | {
        name: [{key: _plain(value) for key, value in one._asdict().items()} for one in rows[:ROWS_MAX]]
        for name, rows in (
            ("topics", figures.topics),
            ("requests", figures.requests),
            ("groups", figures.groups),
            ("brokers", figures.brokers),
        )
    }


def _plain(value: object) -> object:
    """A figure to three decimals."""
    return round(value, 3) if isinstance(value, float) else value
