"""The broker under attack, and the registry of attacks.

An attack is a function in a module of this package:

    @attack
    def gzip_bombs(target: Target) -> None:
        payload = ...                  # preparation is not measured
        with target.connect() as connection:
            target.begin()             # the measurement starts here
            while not target.is_over:
                connection.sendall(payload)

It runs in a process of its own and is measured from `begin` until it returns, which it does soon after
`is_over`. Its connections close with its process. An attack that raises fails the benchmark.
"""

import importlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

CONNECT_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Target:
    """The broker under attack; `topic` belongs to the attack and has `partitions` partitions."""

    host: str
    port: int
    pid: int
    topic: str
    partitions: int
    seconds: float
    """How long the attack lasts, from `begin` on."""
    begun: Event
    ends_s: float = float("inf")

    def connect(self) -> socket.socket:
        """A blocking connection without Nagle's delay."""
        return connect(self.host, self.port)

    def begin(self) -> None:
        """Start the measurement."""
        self.ends_s = time.monotonic() + self.seconds
        self.begun.set()

    @property
    def is_over(self) -> bool:
        """Whether the attack has lasted `seconds`."""
        return time.monotonic() >= self.ends_s


Attack = Callable[[Target], None]
_attacks: dict[str, Attack] = {}


def attack(function: Attack) -> Attack:
    """Register an attack under the name of its function."""
    name = function.__name__.replace("_", "-")
    assert name not in _attacks, f"two attacks are called {name}"
    _attacks[name] = function
    return function


def load_attacks() -> list[str]:
    """The names of all attacks, after every module of the package was imported."""
    for module in sorted(path.stem for path in Path(__file__).parent.glob("*.py")):
        if not module.startswith("_"):
            importlib.import_module(f"{__package__}.{module}")
    return list(_attacks)


def run_attack(name: str, target: Target) -> None:
    """The process of an attack."""
    load_attacks()
    _attacks[name](target)


def connect(host: str, port: int) -> socket.socket:
    """A blocking connection without Nagle's delay."""
    connection = socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
