"""The service manager that started this process, as systemd's sd_notify(3) defines it: datagrams of lines to
the socket that NOTIFY_SOCKET names. Not imported where there is none.

    READY=1 ─► RELOADING=1 ─► READY=1 … ─► STOPPING=1        WATCHDOG=1 at half of its interval
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

SEND_S_MAX: Final = 1.0


class ServiceManager:
    """Tells the manager the state of this process; a manager that is gone is ignored."""

    def __init__(self, environment: Mapping[str, str], pid: int) -> None:
        address = environment["NOTIFY_SOCKET"]
        # "@" begins the name of an abstract socket.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        is_watched = environment.get("WATCHDOG_PID", str(pid)) == str(pid)
        interval = environment.get("WATCHDOG_USEC", "") if is_watched else ""
        self._interval_us = int(interval) if interval.isdecimal() and len(interval) < 20 else 0

    def ready(self, status: str) -> None:
        """The broker serves, for the first time or after a reload."""
        self._tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """The settings are read again: `ready` follows."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """A clean stop has begun."""
        self._tell("STOPPING=1", "STATUS=stopping")

    def watch(self, after: Callable[[float, Callable[[], None]], None]) -> None:
        """Tell from now on, by `after` on the loop, that the loop turns; if the manager wants to know."""
        if self._interval_us:
            self._tell("WATCHDOG=1")
            after(self._interval_us / 2e6, lambda: self.watch(after))

    def _tell(self, *lines: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SEND_S_MAX)
            with suppress(OSError):  # the manager is gone; the broker continues
                sender.sendto("\n".join(lines).encode(), self._address)


def of_environment() -> ServiceManager:
    """The manager of this process's environment, which names one."""
    return ServiceManager(os.environ, os.getpid())
