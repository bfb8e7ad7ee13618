"""What a client tells in the logger `sparklog.client`: connects, disconnects, retries, rebalances, time-outs.

One line per event, `event key=value …`; a line that repeats is held back for `REPEAT_US`, and the next one
says how many were. `logging` is imported by the application, or for the first warning: a command that only
lists topics does not pay for it. Names of loggers and events are stable.
"""

import sys
from types import ModuleType
from typing import Final

from sparklog import escapes
from sparklog.model import Micros

REPEAT_US: Final = 10_000_000
AWAY_US: Final = 4_000_000
"""The time without any broker after which a client says so, and again every `REPEAT_US`."""
_LINES_MAX: Final = 1_000
_INFO: Final = 20
_WARNING: Final = 30


class Reports:
    """The lines of one client. Invariant: at most `_LINES_MAX` kinds of lines are remembered."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._suppressed: dict[tuple[str, str], tuple[Micros, int]] = {}
        self._away_since: Micros | None = None
        self._away_logged = Micros(0)

    def connecting(self, now: Micros, *, has_others: bool) -> None:
        """A connection is begun."""
        if self._away_since is None and not has_others:
            self._away_since = now
            self._away_logged = Micros(now + AWAY_US - REPEAT_US)

    def connected(self, address: str, now: Micros) -> None:
        """A connection is ready."""
        self._away_since = None
        self._line(_INFO, now, "connected", address, broker=address)

    def failed(self, address: str, reason: object, now: Micros, *, was_ready: bool) -> None:
        """A connection could not be opened, broke, or was given up after a time-out."""
        event = "disconnected" if was_ready else "connection_failed"
        self._line(_WARNING, now, event, address, broker=address, reason=reason)

    def closed(self, address: str, now: Micros) -> None:
        """An idle connection was closed, by this side or the other."""
        self._line(_INFO, now, "idle_connection_closed", address, broker=address)

    def retried(self, partition: object, reason: object, now: Micros) -> None:
        """A batch is sent again."""
        self._line(_WARNING, now, "batch_retried", str(partition), partition=partition, reason=reason)

    def rebalanced(self, kind: str, group_id: str | None, partitions: object, now: Micros) -> None:
        """The group has given, or taken, partitions."""
        self._line(_INFO, now, f"partitions_{kind}", str(partitions), group=group_id, partitions=partitions)

    def looked(self, trouble: object, servers: tuple[str, ...], now: Micros) -> None:
        """Called after each turn: tells that no broker could be reached for some seconds."""
        if self._away_since is None or now < self._away_logged + REPEAT_US:
            return
        self._away_logged = now
        waited_s = (now - self._away_since) // 1_000_000
        self._write(
            _WARNING,
            f"brokers_unreachable for_s={waited_s} bootstrap_servers={','.join(servers)} "
            f"last={_words(trouble)}",
        )

    def deadline(self) -> Micros | None:
        """The time of the next `looked`, without an event."""
        return None if self._away_since is None else Micros(self._away_logged + REPEAT_US)

    # -- inside ----------------------------------------------------------------------------------------------

    def _line(self, level: int, now: Micros, event: str, about: str, **fields: object) -> None:
        if _logging(level) is None:
            return
        until, suppressed = self._suppressed.get((event, about), (Micros(0), 0))
        if now < until:
            self._suppressed[event, about] = (until, suppressed + 1)
            return
        if len(self._suppressed) >= _LINES_MAX:
            self._suppressed.clear()
        self._suppressed[event, about] = (Micros(now + REPEAT_US), 0)
        words = [f"{name}={_words(value)}" for name, value in fields.items()]
        self._write(level, " ".join([event, *words, *([f"held_back={suppressed}"] if suppressed else [])]))

    def _write(self, level: int, line: str) -> None:
        logging = _logging(level)
        if logging is not None:
            logging.getLogger("sparklog.client").log(level, "%s client_id=%s", line, self._client_id)


def _words(value: object) -> str:
    """A value on one line. A reason may have the words of a broker."""
    return escapes.terminal(" ".join(str(value).split()))


def _logging(level: int) -> ModuleType | None:
    """The module, if it is loaded or a warning is to be told."""
    logging = sys.modules.get("logging")
    if logging is None and level >= _WARNING:
        import logging
    return logging
