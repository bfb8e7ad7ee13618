"""The timeouts of parked requests."""

import msgspec

from sparklog.model import Instant, Micros, Millis, SessionId
from sparklog.wire.frame import RECEIVE_BUFFER_BYTES, Framer, spare_buffers
from sparklog_server.broker.request_timers import RequestTimers
from sparklog_server.broker.session import Call, Session


class Parked(msgspec.Struct, eq=False):
    """A request that is parked for a time."""

    call: Call

    def expired(self, now: Instant) -> None:
        """No answer."""

    def abandoned(self) -> None:
        """Holds nothing."""


FRAMER = Framer(frame_bytes_max=100, shared=bytearray(RECEIVE_BUFFER_BYTES), spares=spare_buffers())
"""No test receives a frame, so all sessions have the same one: its buffers take 8 MiB."""


def parked() -> Parked:
    session = Session(SessionId(1), FRAMER, listener="PLAINTEXT", peer_address="127.0.0.1:1")
    return Parked(Call(session, 0, 9, 1, None, session.principal))


def at(ms: int) -> Instant:
    return Instant(Micros(ms * 1000), Millis(ms))


def test_requests_expire_in_the_order_of_their_timeouts() -> None:
    timers, late, early = RequestTimers(), parked(), parked()
    timers.park(late, 20, at(0))
    timers.park(early, 10, at(0))
    assert (timers.next_us, timers.deadline()) == (10_000, 10_000)
    assert list(timers.expired(at(9))) == []
    assert list(timers.expired(at(20))) == [early, late]
    assert timers.next_us is timers.deadline() is None


def test_an_answered_request_neither_expires_nor_has_a_deadline() -> None:
    timers, answered, closed, awaited = RequestTimers(), parked(), parked(), parked()
    for ms, waiting in enumerate((answered, closed, awaited)):
        timers.park(waiting, ms, at(0))
    answered.call.answer = []
    closed.call.session.is_closing = True
    assert timers.deadline() == 2_000
    assert list(timers.expired(at(2))) == [awaited]


def test_requests_parked_while_others_expire_all_expire() -> None:
    timers = RequestTimers()
    first = [parked() for _ in range(1100)]
    for waiting in first:
        timers.park(waiting, 1, at(0))
    again = [parked() for _ in range(1100)]
    expired = []
    for waiting in timers.expired(at(1)):
        expired.append(waiting)
        if len(expired) <= len(again):
            timers.park(again[len(expired) - 1], 0, at(1))
    assert expired == first + again
