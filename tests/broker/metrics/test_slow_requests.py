"""The lines of slow requests: which requests have one, and what it tells."""

import pytest

from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.find_coordinator import FindCoordinatorResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.configuring import BROKER, set_to
from tests.broker.groups import find
from tests.broker.world import FETCH_BY_NAME, PRODUCE_BY_NAME, World, fetch, produce

LIMIT_MS = 100


class Slow:
    """A broker whose requests take `cost_ms` of its processor, and its lines of slow requests."""

    def __init__(self, **given: str) -> None:
        self.cost_ms = 0
        settings = {name.replace("_", "."): value for name, value in given.items()}
        self.world = World(seed=1, **{"sparklog.slow.request.ms": str(LIMIT_MS), **settings})
        self.world.node.work_clock = self._clock_ns
        self.world.node.start()
        self.world.settle()
        self.client = self.world.node.connect("a-client")
        assert self.world.create(self.client, "t", partitions=1) == 0
        self.world.settle()

    def _clock_ns(self) -> int:
        return self.world.clock.now.mono_us * 1000 + self.cost_ms * 1_000_000

    @property
    def lines(self) -> list[dict[str, str]]:
        found = [line.split(" ")[1:] for line in self.world.node.trace if "slow-request " in line]
        return [dict(word.partition("=")[::2] for word in words if "=" in word) for words in found]

    def produce(self, cost_ms: int, acks: int = 1) -> None:
        self.cost_ms = cost_ms
        request = produce("t", self.world.batch(b"v"), acks=acks)
        self.client.send(request, PRODUCE_BY_NAME, ProduceResponse if acks else None)
        self.cost_ms = 0
        self.world.settle()

    def fetch(self, offset: int, *, max_wait_ms: int, connection: SimulatedConnection | None = None) -> None:
        (connection or self.client).send(
            fetch("t", offset, max_wait_ms=max_wait_ms), FETCH_BY_NAME, FetchResponse
        )


@pytest.fixture
def slow() -> Slow:
    return Slow()


def test_a_slow_request_has_one_line_with_its_split(slow: Slow) -> None:
    slow.produce(LIMIT_MS - 1)
    assert slow.lines == []
    slow.produce(LIMIT_MS)
    (line,) = slow.lines
    assert (line["api"], line["client"], line["principal"]) == ("Produce", "a-client", "User:ANONYMOUS")
    assert (line["listener"], line["version"]) == ("PLAINTEXT", str(PRODUCE_BY_NAME))
    assert int(line["bytes"]) > 50
    parts = ("queue_ms", "local_ms", "remote_ms", "asked_ms", "throttle_ms", "send_ms")
    assert [float(line[part]) for part in parts] == [0, LIMIT_MS, 0, 0, 0, 0]
    assert float(line["total_ms"]) == LIMIT_MS


def test_a_request_without_a_response_is_told_too(slow: Slow) -> None:
    slow.produce(LIMIT_MS, acks=0)
    assert [line["local_ms"] for line in slow.lines] == ["100.0"]


def test_a_fetch_is_not_slow_for_as_long_as_it_asked_to_wait(slow: Slow) -> None:
    slow.fetch(0, max_wait_ms=30_000)
    slow.world.settle(31_000)
    assert len(slow.client.replies) == 2  # of CreateTopics, and of the Fetch
    assert slow.lines == []


def test_a_fetch_that_is_answered_later_than_it_asked_is_slow(slow: Slow) -> None:
    slow.fetch(0, max_wait_ms=500)
    slow.world.node.pause()
    slow.world.settle(700)
    slow.world.node.resume()
    slow.world.settle()
    (line,) = slow.lines
    assert (line["api"], line["asked_ms"]) == ("Fetch", "500.0")
    assert float(line["remote_ms"]) >= 600


def test_a_client_that_leaves_before_its_response_has_a_line_as_well() -> None:
    slow = Slow(group_initial_rebalance_delay_ms="3000")
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    for waits_ms in (50, 200):
        client = slow.world.node.connect("gone")
        slow.world.ask(client, find("g"), 4, FindCoordinatorResponse)
        slow.world.settle()
        client.send(join, 2, JoinGroupResponse)
        slow.world.settle(waits_ms)
        slow.world.node.disconnect(client)
        slow.world.settle(0)
    (line,) = [line for line in slow.lines if line["api"] == "JoinGroup"]
    assert (line["end"], line["asked_ms"]) == ("disconnected", "0.0")
    assert float(line["remote_ms"]) >= 150


def test_the_limit_changes_while_the_broker_runs(slow: Slow) -> None:
    assert set_to(slow.world, slow.client, BROKER, "1", sparklog_slow_request_ms="1000")[0] == 0
    slow.produce(LIMIT_MS)
    assert slow.lines == []
    assert set_to(slow.world, slow.client, BROKER, "1", sparklog_slow_request_ms="50")[0] == 0
    slow.produce(LIMIT_MS)
    assert len(slow.lines) == 1
    assert set_to(slow.world, slow.client, BROKER, "1", sparklog_slow_request_ms="0")[0] == 0
    slow.produce(LIMIT_MS)
    assert len(slow.lines) == 1
    assert set_to(slow.world, slow.client, BROKER, "1", sparklog_slow_request_ms="50")[0] == 0
    slow.produce(LIMIT_MS)
    assert len(slow.lines) == 2


def test_off_nothing_is_measured() -> None:
    slow = Slow(sparklog_slow_request_ms="0")
    assert slow.world.node.running.observed[1].observers.times is None
    slow.produce(LIMIT_MS)
    assert slow.lines == []


def test_pipelined_requests_are_timed_one_by_one(slow: Slow) -> None:
    slow.cost_ms = 150
    requests = [produce("t", slow.world.batch(b"v")) for _ in range(3)]
    slow.client.send_together(requests, PRODUCE_BY_NAME, ProduceResponse)
    slow.cost_ms = 0
    slow.world.settle()
    # The clock stands still after the first: the others took no time, but waited for it.
    assert [(line["queue_ms"], line["local_ms"]) for line in slow.lines] == [
        ("0.0", "150.0"),
        ("150.0", "0.0"),
        ("150.0", "0.0"),
    ]


def test_the_time_of_a_socket_that_holds_a_response_up_is_told(slow: Slow) -> None:
    _, sessions, _ = slow.world.node.running.observed
    session_id = slow.client.session_id
    slow.cost_ms = LIMIT_MS
    request = produce("t", slow.world.batch(b"v"))
    slow.client.send(request, PRODUCE_BY_NAME, ProduceResponse)
    slow.cost_ms = 0
    sessions.held_up(session_id)
    slow.world.settle()
    assert slow.lines == []
    sessions.sent(session_id, 30_000)
    (line,) = slow.lines
    assert (line["send_ms"], line["total_ms"]) == ("30.0", "130.0")


def test_a_quick_request_whose_response_leaves_late_is_slow(slow: Slow) -> None:
    _, sessions, _ = slow.world.node.running.observed
    slow.produce(1)
    sessions.held_up(slow.client.session_id)
    sessions.sent(slow.client.session_id, 98_000)
    assert slow.lines == []
    sessions.held_up(slow.client.session_id)
    sessions.sent(slow.client.session_id, 99_000)
    assert [line["send_ms"] for line in slow.lines] == ["99.0"]
