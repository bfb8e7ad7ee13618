"""Whether a broker accepts connections, for a person who waits."""

from collections.abc import Mapping, Sequence
from typing import Final

import click

from sparklog.escapes import terminal

CONNECT_S_MAX: Final = 3.0
RETRY_S: Final = 0.5
TOLD_EVERY_S: Final = 10.0


def refused_by(servers: Sequence[str]) -> dict[str, str]:
    """Why each of the servers refuses a connection; empty if one of them accepts it."""
    import socket

    from sparklog.client.settings import address_of

    reasons = {}
    for server in servers:
        try:
            host, port = address_of(server)
            # In bytes: a name as text costs the import of a codec for names that are not ASCII.
            name = host.encode() if host.isascii() else host
            socket.create_connection((name, port), timeout=CONNECT_S_MAX).close()  # type: ignore[arg-type]
        except OSError as error:
            reasons[server] = (error.strerror or str(error)).lower()
        else:
            return {}
    return reasons


def no_broker(reasons: Mapping[str, str], within: str = "") -> click.ClickException:
    """The error of servers that refuse connections."""
    listed = ", ".join(f"{server} ({reason})" for server, reason in reasons.items())
    return click.ClickException(
        f"no broker at {listed}{within}; start one with `sparklog start`, or name one with --bootstrap-server"
    )


def wait_for_broker(servers: tuple[str, ...], timeout_ms: int) -> None:
    """Return once a broker accepts a connection; ClickException after `timeout_ms`."""
    import time

    from sparklog_server.cli.positions import duration_text

    ends_s = time.monotonic() + timeout_ms / 1000
    told_s: float | None = None
    while reasons := refused_by(servers):
        now_s = time.monotonic()
        if now_s >= ends_s:
            raise no_broker(reasons, f" within {duration_text(timeout_ms)}")
        if told_s is None or now_s >= told_s + TOLD_EVERY_S:
            told_s = now_s
            retrying(",".join(reasons), next(iter(reasons.values())))
        time.sleep(min(RETRY_S, ends_s - now_s))


def retrying(servers: str, reason: str) -> None:
    """The line for a broker that does not answer."""
    click.echo(terminal(f"sparklog: broker unreachable, retrying: {servers} ({reason.lower()})"), err=True)
