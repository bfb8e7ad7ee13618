"""No request holds the loop: the largest ones of each API, by a client without rights and by one with all.

Work is counted in calls, which are the same on every machine: 60 000 take about 15 ms.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from sparklog.wire.api_keys import Api
from sparklog.wire.header import encode_request
from sparklog_server.broker.broker import Broker
from sparklog_server.broker.dispatch import HANDLERS, SERVED, import_handler
from sparklog_server.config.access_settings import STANDARD_AUTHORIZER
from tests.broker.largest import largest, served
from tests.broker.world import World

ELEMENTS = 4_000
CALLS_MAX = 60_000
CALL_NS = 250
RIGHTS = {"without rights": {}, "with all": {"super.users": "User:ANONYMOUS"}}


class Counted(Broker):
    """Counts its calls, and those of its longest turn."""

    calls = 0
    longest = 0


def _counted(name: str) -> Callable[..., Any]:
    def turn(self: Broker, *given: Any, **more: Any) -> Any:
        began = Counted.calls

        def called(frame: FrameType, event: str, argument: object) -> None:
            Counted.calls += event == "call"

        before = sys.getprofile()
        sys.setprofile(called)
        try:
            return getattr(Broker, name)(self, *given, **more)
        finally:
            sys.setprofile(before)
            Counted.longest = max(Counted.longest, Counted.calls - began)

    return turn


for _name in ("receive", "tick", "finished", "unread", "disconnected"):
    setattr(Counted, _name, _counted(_name))


@pytest.mark.parametrize("rights", RIGHTS)
@pytest.mark.parametrize("api", served(), ids=lambda api: api.name)
def test_the_largest_requests_of_an_api_leave_turns_to_others(api: Api, rights: str) -> None:
    for key in SERVED:
        import_handler(HANDLERS, key)
    world = World(
        1,
        broker_class=Counted,
        **{
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
            **RIGHTS[rights],
        },
    )
    world.node.work_clock = lambda: Counted.calls * CALL_NS
    world.node.start()
    world.settle()
    longest: dict[str, int] = {}
    for one in largest(api, api.until, at_most=ELEMENTS):
        client = world.node.connect()
        client.expects_anything = True
        Counted.longest = 0
        client.send_bytes(b"".join(bytes(chunk) for chunk in encode_request(one.request, one.version, 1, "")))
        world.settle(10_000)
        longest[one.shape] = Counted.longest
        world.node.disconnect(client)
        world.settle()
    assert world.node.halted is None
    assert {shape: calls for shape, calls in longest.items() if calls > CALLS_MAX} == {}
