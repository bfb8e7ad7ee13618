"""What `produce` and `consume` tell while no broker answers.

The clients report to the logger `sparklog.client` and retry. `Reach` turns that into a line for a person:
that no broker is reachable, every ten seconds, and that one is again.
"""

import logging
import re
from types import TracebackType
from typing import Final, Self

import click

from sparklog_server.cli.option_values import duration_text
from sparklog_server.cli.options import no_broker, refused_by, retrying

_FIELDS: Final = re.compile(r"bootstrap_servers=(\S+) last=(.*) client_id=")


class Reach(logging.Handler):
    """Whether brokers answer, from what the clients log inside the `with` block."""

    def __init__(self, servers: tuple[str, ...]) -> None:
        super().__init__(logging.INFO)
        self._servers = servers
        self._connected: set[str] = set()
        self._has_failed = self._is_away = False

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line of a client; several threads may call."""
        event, *rest = record.getMessage().split(" ")
        if event == "brokers_unreachable" and (found := _FIELDS.search(record.getMessage())):
            self._is_away = True
            self._connected.clear()
            retrying(*found.groups())
        elif event == "connected":
            self._connected.add(rest[0])
            if self._is_away:
                self._is_away = False
                click.echo("sparklog: a broker is reachable again", err=True)
        elif event in ("connection_failed", "disconnected"):
            self._has_failed = True
            self._connected.discard(rest[0])

    def heard(self) -> None:
        """Note that a broker has answered."""
        self._has_failed = self._is_away = False

    def raise_if_lost(self, timeout_ms: int) -> None:
        """ClickException if no broker is reachable; the clients say so only after some seconds."""
        if self._is_away or (self._has_failed and not self._connected):
            reasons = refused_by(self._servers)
            if reasons:
                raise no_broker(reasons, f" for {duration_text(timeout_ms)}")

    def __enter__(self) -> Self:
        logger = logging.getLogger("sparklog.client")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        logger = logging.getLogger("sparklog.client")
        logger.removeHandler(self)
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
