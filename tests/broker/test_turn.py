"""The fixed cost of a turn of the broker's loop: how many functions of the server a request of each kind
calls.

`python -m benchmarks.turn` measures the time. These bounds are a little above what is needed: what is
rarely true is for a turn to read in an attribute, not to ask for in a call.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import sparklog_server
from sparklog.model import NodeId
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.schema import Message
from sparklog_server import simulation
from sparklog_server.broker.broker import Broker
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.clusters import Cluster
from tests.broker.groups import ask_coordinator, join_alone, started
from tests.broker.world import FETCH_BY_NAME, PRODUCE_BY_NAME, World, fetch, produce

SERVER, SIMULATION = (str(Path(package.__file__ or "").parent) for package in (sparklog_server, simulation))
REQUESTS = {"produce": 28, "fetch": 27, "heartbeat": 52}
REPLICATED = 250


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
    calls = calls_of(lambda: client.send(*request), monkeypatch)
    assert len(client.replies) == 1
    assert len(calls) <= REQUESTS[kind], " ".join(calls)


def test_a_record_reaches_two_followers_and_its_client_with_few_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster().start()
    cluster.run_until(lambda: cluster.is_ready)
    assert cluster.create(cluster.nodes[NodeId(1)], "t", replicas=3) == 0
    cluster.run_until(lambda: len(cluster.isr()) == 3)
    assert cluster.write(b"earlier") == 0
    leader = cluster.leading()
    assert leader is not None
    clients: list[SimulatedConnection] = []

    def write() -> None:
        clients.append(cluster.send(leader, b"new"))
        cluster.clock.run(until_us=cluster.clock.now.mono_us + 2_000)

    write()
    calls = min((calls_of(write, monkeypatch) for _ in range(5)), key=len)  # others do rarer work too
    assert all(client.replies for client in clients)
    assert len(calls) <= REPLICATED, " ".join(calls)


def calls_of(act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions of the server that `act` calls, without those of the simulation."""
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
        act()
        sys.setprofile(earlier)
    return calls
