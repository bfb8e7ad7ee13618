"""The longest turn of a broker for the largest requests of each API that its bounds allow.

Requests are made from the message classes (`tests/broker/largest.py`): one for each array with as many
elements as the bounds allow, one with all arrays filled alike, one with long strings. A simulated node serves
them; the time is that of the broker's calls on the thread's clock, without sockets. Each is sent by a client
without rights, and by one with all. `--apis` chooses.

    python -m benchmarks.largest_requests --apis FindCoordinator Produce
"""

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks import harness
from sparklog.wire.api_keys import Api
from sparklog_server.broker.broker import Broker
from tests.broker.largest import RIGHTS, Largest, connected, frame_of, in_turns, largest, served, started

BOUND: Final = "<= 20"
_WAIT_MS: Final = 60_000
_STEP_MS: Final = 500


class Timed(Broker):
    """Has the time of its longest turn."""

    longest_ms = 0.0


def _timed(turn: Callable[[], Any]) -> Any:
    began_ns = time.thread_time_ns()
    try:
        return turn()
    finally:
        Timed.longest_ms = max(Timed.longest_ms, (time.thread_time_ns() - began_ns) / 1e6)


in_turns(Timed, _timed)


def longest_turn_ms(one: Largest, rights: str) -> float:
    """The longest turn of a new node that gets this request."""
    world = started(Timed, rights, time.perf_counter_ns)
    client = connected(world)
    frame = frame_of(one)
    gc.collect()
    gc.freeze()
    Timed.longest_ms = 0.0
    client.send_bytes(frame)
    for _ in range(0, _WAIT_MS, _STEP_MS):
        world.settle(_STEP_MS)
    assert world.node.halted is None, one.name
    return Timed.longest_ms


def main() -> None:
    options = harness.options(__doc__, repeats=1, more=_arguments)
    gc.disable()  # as the daemon runs
    figures = harness.Figures("largest_requests")
    apis: list[Api] = [one for one in served() if not options.apis or one.name in options.apis]
    for api in apis:
        for one in largest(api, api.until):
            for rights in RIGHTS:
                for _ in range(options.repeats):
                    figures.add(one.name, "ms", rights, longest_turn_ms(one, rights), bound=BOUND)
    figures.report(options)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--apis", nargs="*", help="the APIs, by name; all by default")


if __name__ == "__main__":
    main()
