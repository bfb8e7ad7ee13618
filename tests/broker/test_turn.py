"""The fixed cost of a turn of the broker's loop: how many functions of the server a request of each kind
calls.

`python -m benchmarks.turn` measures the time. These bounds are a little above what is needed: what is
rarely true is for a turn to read in an attribute, not to ask for in a call.
"""

import sys
from pathlib import Path
from types import FrameType

import pytest

import sparklog_server
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.schema import Message
from sparklog_server import simulation
from sparklog_server.broker.broker import Broker
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.groups import ask_coordinator, join_alone, started
from tests.broker.world import FETCH_BY_NAME, PRODUCE_BY_NAME, World, fetch, produce

SERVER, SIMULATION = (str(Path(package.__file__ or "").parent) for package in (sparklog_server, simulation))
REQUESTS = {"produce": 28, "fetch": 27, "heartbeat": 52}


def request_of(kind: str, world: World, client: SimulatedConnection) -> tuple[Message, int, type[Message]]:
    """A request that is answered at once, its version and the class of its answer."""
    if kind == "produce":
        return produce("t", world.batch(b"new")), PRODUCE_BY_NAME, ProduceResponse
    if kind == "fetch":
        world.ask(client, produce("t", world.batch(b"old")), PRODUCE_BY_NAME, ProduceResponse)
        return fetch("t", 0), FETCH_BY_NAME, FetchResponse
    ask_coordinator(world, client, "g")
    member_id, generation_id = join_alone(world, client, "g")
    return HeartbeatRequest("g", generation_id, member_id), 4, HeartbeatResponse


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_that_is_answered_at_once_calls_few_functions(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = started()
    client = world.node.connect()
    request = request_of(kind, world, client)
    world.settle(ms=10_000)
    client.send(*request)  # a roll of the segment and the room on the disk are looked at rarely
    client.replies.clear()
    calls: list[str] = []

    def called(frame: FrameType, event: str, argument: object) -> None:
        if (
            event == "call"
            and SERVER in frame.f_code.co_filename
            and SIMULATION not in frame.f_code.co_filename
        ):
            calls.append(frame.f_code.co_name)

    earlier = sys.getprofile()
    with monkeypatch.context() as patch:
        patch.setattr(Broker, "forgotten", lambda *_: "")  # it asks all objects, for the simulation alone
        sys.setprofile(called)
        client.send(*request)
        sys.setprofile(earlier)
    assert len(client.replies) == 1
    assert len(calls) <= REQUESTS[kind], " ".join(calls)
