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
from sparklog.wire.header import encode_request
from sparklog_server.broker.broker import Broker
from sparklog_server.broker.dispatch import HANDLERS, SERVED, import_handler
from sparklog_server.config.access_settings import STANDARD_AUTHORIZER
from tests.broker.largest import Largest, largest, served
from tests.broker.world import World

BOUND: Final = "<= 20"
RIGHTS: Final[dict[str, dict[str, str]]] = {
    "without rights": {},
    "with all rights": {"super.users": "User:ANONYMOUS"},
}
_WAIT_MS: Final = 60_000
_STEP_MS: Final = 500
_TURNS: Final = ("receive", "tick", "finished", "unread", "disconnected")


class Timed(Broker):
    """Has the time of its longest turn."""

    longest_ms = 0.0


def _timed(name: str) -> Callable[..., Any]:
    def turn(self: Broker, *given: Any, **more: Any) -> Any:
        began_ns = time.thread_time_ns()
        try:
            return getattr(Broker, name)(self, *given, **more)
        finally:
            Timed.longest_ms = max(Timed.longest_ms, (time.thread_time_ns() - began_ns) / 1e6)

    return turn


for _name in _TURNS:
    setattr(Timed, _name, _timed(_name))


def longest_turn_ms(one: Largest, rights: str) -> float:
    """The longest turn of a new node that gets this request."""
    world = World(
        1,
        broker_class=Timed,
        **{
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
            **RIGHTS[rights],
        },
    )
    world.node.work_clock = time.perf_counter_ns
    world.node.start()
    world.settle()
    client = world.node.connect()
    client.expects_anything = True
    frame = b"".join(bytes(chunk) for chunk in encode_request(one.request, one.version, 1, ""))
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
    for key in SERVED:
        import_handler(HANDLERS, key)
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
