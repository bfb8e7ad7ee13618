"""The time of requests that come together: exact counts by API and version, and times that add up."""

from itertools import accumulate

from sparklog.model import Instant, Micros, Millis, SessionId
from sparklog.wire.frame import Framer
from sparklog.wire.messages.metadata import MetadataRequest
from sparklog_server.broker.metrics.request_times import RUN_MAX, RequestTimes
from sparklog_server.broker.session import Call, Parked, Session
from sparklog_server.histogram import quantiles_us

PRODUCE, METADATA = 0, 3
RECEIVED_US = 1_000


class Turn:
    """Serves requests as `Sessions` does; each takes `costs_us` of the clock in turn."""

    def __init__(self) -> None:
        self.now_us = RECEIVED_US
        self.times = RequestTimes(lambda: self.now_us * 1000)
        self.session = Session(
            SessionId(1),
            Framer(frame_bytes_max=1, shared=bytearray(1), spares=[]),
            listener="PLAINTEXT",
            peer_address="peer:1",
        )

    def begin(self) -> None:
        self.times.received_us, self.times.at_ns = RECEIVED_US, RECEIVED_US * 1000

    def serve(self, api_key: int, version: int, cost_us: int, answer: Parked | None = None) -> Call:
        call = Call(self.session, api_key, version, 1, "c", "User:ANONYMOUS")
        self.now_us += cost_us
        times, replied = self.times, MetadataRequest() if answer is None else answer
        if answer is None and (api_key, version) == (times.run_api, times.run_version):
            times.run_count += 1
        else:
            times.served(call, MetadataRequest(), replied, 10)
        return call

    def counts(self) -> dict[tuple[int, int], int]:
        return {(one.api_key, one.version): one.count for one in self.times.by_key.values()}


def test_requests_of_several_apis_in_one_turn_are_counted_exactly() -> None:
    turn = Turn()
    turn.begin()
    order = [(PRODUCE, 9)] * 40 + [(METADATA, 12)] * 3 + [(PRODUCE, 9), (PRODUCE, 8), (METADATA, 12)]
    for api_key, version in order:
        turn.serve(api_key, version, 20)
    turn.times.flush()
    assert turn.counts() == {one: order.count(one) for one in set(order)}
    local_us = sum(one.local.total_us for one in turn.times.by_key.values())
    assert abs(local_us - 20 * len(order)) <= len(order)
    assert all(
        one.local.count == one.queue.count == one.total.count == one.count
        for one in turn.times.by_key.values()
    )


def test_a_request_waits_for_those_before_it() -> None:
    turn = Turn()
    turn.begin()
    for _ in range(100):
        turn.serve(PRODUCE, 9, 10)
    turn.times.flush()
    (times,) = turn.times.by_key.values()
    waits = list(accumulate([10] * 99, initial=0))
    assert abs(times.queue.total_us - sum(waits)) < 10 * RUN_MAX * 100 / 2
    (median,) = quantiles_us(times.queue.buckets, [0.5])
    assert 400 <= median <= 640
    assert times.total.total_us == times.queue.total_us + times.local.total_us


def test_a_parked_request_counts_when_it_is_answered() -> None:
    turn = Turn()
    turn.begin()
    turn.serve(METADATA, 12, 10)
    call = turn.serve(PRODUCE, 9, 30, Parked.FLOWING)
    turn.serve(PRODUCE, 9, 10, Parked.SILENT)
    turn.times.flush()
    assert turn.counts() == {(METADATA, 12): 1, (PRODUCE, 9): 1}
    assert call.times is not None
    turn.times.ended(call, call.times, Instant(Micros(turn.now_us + 5_000), Millis(0)))
    assert turn.counts() == {(METADATA, 12): 1, (PRODUCE, 9): 2}
    produced = turn.session.times
    assert produced is not None
    assert produced.remote.count == 1
    assert 5_000 <= produced.remote.total_us <= 5_050
    assert produced.local.count == produced.total.count == 2
