"""Which requests become spans, and what a span says of one that waits, is throttled or has no answer."""

from random import Random

import pytest

from sparklog.model import Instant, Micros, Millis, SessionId
from sparklog.wire.frame import Framer
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.metadata import MetadataResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.broker.metrics import otlp
from sparklog_server.broker.metrics.request_spans import WAITING_MAX, RequestSpans, Span
from sparklog_server.broker.session import Call, Session
from tests.broker.world import World, fetch, latest, produce


class Clock:
    def __init__(self) -> None:
        self.us = 1_000

    def ns(self) -> int:
        return self.us * 1000

    @property
    def now(self) -> Instant:
        return Instant(Micros(self.us), Millis(1_700_000_000_000 + self.us // 1000))


def sampled(ratio: float, clock: Clock | None = None) -> RequestSpans:
    return RequestSpans(ratio, (clock or Clock()).ns, Random(1).randbytes)


def call() -> Call:
    framer = Framer(frame_bytes_max=64)
    session = Session(SessionId(1), framer, listener="PLAINTEXT", peer_address="10.0.0.1:5")
    return Call(session, 3, 12, 1, "c" * 1_000, session.principal)


def drawn(spans: RequestSpans, requests: int) -> int:
    """How many of so many requests are sampled."""
    found = 0
    for _ in range(requests):
        spans.left -= 1
        if spans.left < 0:
            spans.begin(call(), 1, Instant(Micros(0), Millis(0)))
            found += 1
    return found


@pytest.mark.parametrize("ratio", [0.01, 0.3, 0.9])
def test_requests_are_sampled_by_the_ratio(ratio: float) -> None:
    assert drawn(sampled(ratio), 50_000) == pytest.approx(50_000 * ratio, rel=0.1)


def test_all_requests_or_none() -> None:
    assert drawn(sampled(1), 1_000) == 1_000
    assert drawn(sampled(0), 1_000) == 0
    assert drawn(sampled(1e-12), 1_000) == 0


def parts(span: Span) -> tuple[int, int, int, int]:
    return span.queue_us, span.local_us, span.remote_us, span.total_us


def test_the_parts_of_a_request_that_is_answered_at_once() -> None:
    clock = Clock()
    spans = sampled(1, clock)
    spans.received_us = clock.us
    clock.us += 10
    span = spans.begin(call(), 77, clock.now)
    clock.us += 5
    spans.ended(span, MetadataResponse(error_code=3), throttle_us=9)
    assert parts(span) == (10, 5, 0, 15)
    assert (span.throttle_us, span.error_code, span.request_bytes) == (9, 3, 77)
    assert (span.name, span.address, len(span.client_id)) == ("Metadata", "10.0.0.1", 255)
    assert span.wall_ns == 1_700_000_000_001_000_000 - 10_000
    assert (len(span.trace_id), len(span.span_id)) == (16, 8)


def test_the_parts_of_a_request_that_waits() -> None:
    clock = Clock()
    spans = sampled(1, clock)
    spans.received_us = clock.us
    span = spans.begin(call(), 1, clock.now)
    clock.us += 7
    spans.served(span)
    clock.us += 100
    spans.ended(span, None)
    assert parts(span) == (0, 7, 100, 107)


def test_the_spans_that_wait_are_bounded() -> None:
    spans = sampled(1)
    for _ in range(WAITING_MAX + 5):
        spans.ended(spans.begin(call(), 1, Instant(Micros(0), Millis(0))), None)
    assert (spans.waiting, spans.counts["dropped"]) == (WAITING_MAX, 5)
    assert len(spans.take(100)) == 100
    assert spans.waiting == WAITING_MAX - 100


def traced(**given: str) -> World:
    settings = {"sparklog.otlp.endpoint": "http://127.0.0.1:1", "sparklog.otlp.sample.ratio": "1"}
    world = World(seed=1, **settings, **given)
    world.node.start()
    world.settle()
    return world


def taken(world: World) -> list[str]:
    _, sessions, _ = world.node.running.observed
    assert sessions.observers.spans is not None
    return [span.name for span in sessions.observers.spans.take(1_000)]


def test_every_request_of_a_broker_ends_in_one_span() -> None:
    world = traced()
    client = world.node.connect()
    world.create(client, "t")
    taken(world)
    client.send(produce("t", world.batch(b"v")), 9, ProduceResponse)
    world.settle()
    client.send(produce("t", world.batch(b"v"), acks=0), 9, None)
    world.settle()
    client.send(fetch("t", 2, max_wait_ms=100), 12, FetchResponse)
    world.settle()
    client.send(latest("t"), 7, ListOffsetsResponse)
    world.settle()
    assert taken(world) == ["Produce", "Produce", "Fetch", "ListOffsets"]


def test_a_session_that_ends_leaves_no_span_of_what_it_waits_for() -> None:
    world = traced()
    client = world.node.connect()
    world.create(client, "t")
    taken(world)
    client.send(fetch("t", 0, max_wait_ms=10_000), 12, FetchResponse)
    world.settle(50)
    world.node.disconnect(client)
    world.settle(20_000)
    assert taken(world) == []


def test_nothing_is_sampled_without_a_collector_or_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(seed=1)
    world.node.start()
    assert world.node.running.observed[1].observers.spans is None
    monkeypatch.setattr(otlp, "PACKAGE", "no_package_of_that_name.proto")
    otlp.is_installed.cache_clear()
    try:
        assert traced().node.running.observed[1].observers.spans is None
    finally:
        otlp.is_installed.cache_clear()
