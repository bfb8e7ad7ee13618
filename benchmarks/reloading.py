"""The responses of a restarted broker to a client while it loads a shard of a coordinator."""

import re
import socket
import time
from pathlib import Path

from benchmarks import harness, raw

PATIENCE_S = 60
_API_VERSIONS = raw.request(18, 0, b"")


def while_loading(connection: socket.socket, log: Path, partition: str) -> tuple[int, list[float]]:
    """Milliseconds that the load of a shard took by the broker's own `log`, and that each answer took
    until then.
    """
    held_ms = answers_ms(connection, seconds=PATIENCE_S, until=(log, partition))
    elapsed_ms = loaded_ms(log, partition)
    assert elapsed_ms is not None, "the shard was not loaded within a minute"
    return elapsed_ms, held_ms


def answers_ms(
    connection: socket.socket, *, seconds: float, until: tuple[Path, str] | None = None
) -> list[float]:
    """How long each answer took, for so long, or until the broker has told in a log that a partition's
    shard is loaded.
    """
    elapsed = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        started = time.perf_counter()
        connection.sendall(_API_VERSIONS)
        raw.reply(connection)
        elapsed.append((time.perf_counter() - started) * 1000)
        if until is not None and len(elapsed) % 50 == 0 and loaded_ms(*until) is not None:
            break
    return elapsed


def loaded_ms(log: Path, partition: str) -> int | None:
    """How long the load took, by the broker's own log; None if it is not done."""
    found = re.search(
        rf"\bcoordinator-loaded partition={re.escape(partition)} .*elapsed_ms=(\d+)", log.read_text()
    )
    return int(found[1]) if found else None


def tell_answers(figures: harness.Figures, held_ms: list[float]) -> None:
    """The figures of another client's answers while the shard was loaded."""
    figures.add(
        "another client's answers meanwhile: p99",
        "ms",
        "sparklog",
        harness.percentile(held_ms, 99),
        bound="<= 1",
    )
    figures.add("another client's answers meanwhile: max", "ms", "sparklog", max(held_ms))
    figures.add("another client's answers meanwhile: count", "", "sparklog", len(held_ms))
