"""No request holds the loop: the largest ones of each API, by a client without rights and by one with all.

Work is counted in calls, which are the same on every machine: 60 000 take about 15 ms.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from sparklog.wire.api_keys import Api
from sparklog_server.broker.broker import Broker
from tests.broker.largest import RIGHTS, Largest, connected, frame_of, in_turns, largest, served, started

ELEMENTS = 4_000
CALLS_MAX = 60_000
HEAVY_CALLS_MAX = 40_000
CALL_NS = 250
HEAVY = {
    "AlterClientQuotas": ("entries", "entries.entity"),
    "CreateAcls": ("creations",),
    "CreateTopics": ("topics", "topics.configs"),
    "DeleteAcls": ("filters",),
    "DescribeQuorum": ("topics.partitions",),
    "UpdateFeatures": ("feature_updates",),
    "WriteTxnMarkers": ("markers.topics.partition_indexes",),
}
"""Requests of few calls an element, of which only the bound of elements makes a long turn."""


class Counted(Broker):
    """Counts its calls, and those of its longest turn."""

    calls = 0
    longest = 0


def _counted(turn: Callable[[], Any]) -> Any:
    began = Counted.calls

    def called(frame: FrameType, event: str, argument: object) -> None:
        Counted.calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        return turn()
    finally:
        sys.setprofile(before)
        Counted.longest = max(Counted.longest, Counted.calls - began)


in_turns(Counted, _counted)


def calls_of(requests: list[Largest], rights: str) -> dict[str, int]:
    """The calls of the longest turn of one node, by the shape of the request."""
    world = started(Counted, rights, lambda: Counted.calls * CALL_NS)
    longest: dict[str, int] = {}
    for one in requests:
        client = connected(world)
        Counted.longest = 0
        client.send_bytes(frame_of(one))
        world.settle(10_000)
        longest[one.shape] = Counted.longest
        world.node.disconnect(client)
        world.settle()
    assert world.node.halted is None
    return longest


@pytest.mark.parametrize("rights", RIGHTS)
@pytest.mark.parametrize("api", served(), ids=lambda api: api.name)
def test_the_largest_requests_of_an_api_leave_turns_to_others(api: Api, rights: str) -> None:
    longest = calls_of(list(largest(api, api.until, at_most=ELEMENTS)), rights)
    assert {shape: calls for shape, calls in longest.items() if calls > CALLS_MAX} == {}


@pytest.mark.parametrize("name", HEAVY)
def test_as_many_elements_as_a_request_may_have_leave_turns_to_others(name: str) -> None:
    api = next(one for one in served() if one.name == name)
    shapes = [f"{shape} x" for shape in HEAVY[name]]
    requests = [one for one in largest(api, api.until) if one.shape.startswith(tuple(shapes))]
    assert len(requests) == len(shapes)
    longest = calls_of(requests, "with all rights")
    assert {shape: calls for shape, calls in longest.items() if calls > HEAVY_CALLS_MAX} == {}
