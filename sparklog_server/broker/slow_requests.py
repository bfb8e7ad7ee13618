"""The line of each request that took longer than `sparklog.slow.request.ms`, with the parts of its time.

    answered ─┬─ soon ──────────────────────────► kept as the last of its session ── sent late ─► a line
              └─ late ─► pending ─┬─ taken by the socket at once ───────────────────────────────► a line
                                  └─ held up by it ─► sent, or the connection ends ─────────────► a line

The time for which a Fetch asks to wait does not count. Nothing here is imported, and no request is timed by
itself, unless the setting is on.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from sparklog.model import SessionId
from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.messages.fetch import FetchRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.session import Call

PENDING_MAX: Final = 1_000
"""Of one turn. The log writes fewer lines at once."""


class Timed(msgspec.Struct, eq=False):
    """A request and the parts of its time in µs. `asked_us` is the part of `remote_us` that it asked for."""

    call: Call
    bytes: int
    queue_us: int
    local_us: int
    asked_us: int
    remote_us: int = 0
    throttle_us: int = 0

    @property
    def slow_us(self) -> int:
        """Its time without the wait that it asked for."""
        return self.queue_us + self.local_us + max(0, self.remote_us - self.asked_us)


class SlowRequests:
    """Invariants: `_last` has the last request of each session that has one; each of `_held_up` is a session
    whose socket has not taken its last response.
    """

    def __init__(self, limit_us: int, trace: Callable[..., None]) -> None:
        self.limit_us = limit_us
        self.pending: list[Timed] = []
        self._trace = trace
        self._last: dict[SessionId, Timed] = {}
        self._held_up: dict[SessionId, Timed | None] = {}  # with the line that waits, if one does
        self._throttled: tuple[Call, int] | None = None

    def served(self, call: Call, request: Message, size: int, queue_us: int, local_us: int) -> Timed:
        """A request of `size` bytes was served, or was parked."""
        asked_us = request.max_wait_ms * 1000 if isinstance(request, FetchRequest) else 0
        return Timed(call, size, queue_us, local_us, max(0, asked_us))

    def throttled(self, call: Call, delay_us: int) -> None:
        """The client of this request, which is answered now, rests for so long."""
        self._throttled = call, delay_us

    def ended(self, timed: Timed, remote_us: int = 0) -> None:
        """A request has its response, after it was parked for `remote_us`."""
        timed.remote_us = max(0, remote_us)
        if self._throttled is not None:
            call, delay_us = self._throttled
            self._throttled = None
            if call is timed.call:
                timed.throttle_us = delay_us
        self._last[timed.call.session.id] = timed
        if timed.slow_us >= self.limit_us and len(self.pending) < PENDING_MAX:
            self.pending.append(timed)

    def held_up(self, session_id: SessionId) -> None:
        """The socket has not taken the responses of this session at once."""
        self._held_up[session_id] = None

    def settle(self) -> None:
        """After the turn: write the lines, except of a response that its socket holds up."""
        pending, self.pending = self.pending, []
        for timed in pending:
            session_id = timed.call.session.id
            if session_id in self._held_up and self._last.get(session_id) is timed:
                self._held_up[session_id] = timed
            else:
                self._tell(timed, 0)

    def sent(self, session_id: SessionId, duration_us: int) -> None:
        """The socket has taken the responses of a session."""
        waiting, last = self._held_up.pop(session_id, None), self._last.get(session_id)
        if waiting is not None and waiting is not last:
            self._tell(waiting, duration_us)
        if last is not None and (waiting is last or last.slow_us + duration_us >= self.limit_us):
            self._tell(last, duration_us)

    def disconnected(self, session_id: SessionId) -> None:
        """The connection has ended."""
        waiting = self._held_up.pop(session_id, None)
        self._last.pop(session_id, None)
        if waiting is not None:
            self._tell(waiting, None)

    def abandoned(self, timed: Timed, remote_us: int) -> None:
        """The connection has ended before the response."""
        timed.remote_us = max(0, remote_us)
        if timed.slow_us >= self.limit_us:
            self._tell(timed, None)

    def _tell(self, timed: Timed, send_us: int | None) -> None:
        call = timed.call
        end = {"end": "disconnected"} if send_us is None else {}
        spent_us = timed.queue_us + timed.local_us + timed.remote_us
        self._trace(
            "slow-request",
            api=API_BY_KEY[call.api_key].name,
            version=call.version,
            client=call.client_id or "",
            principal=call.principal,
            peer=call.session.peer_address,
            listener=call.session.listener,
            correlation=call.correlation_id,
            bytes=timed.bytes,
            total_ms=_ms(spent_us + (send_us or 0)),
            queue_ms=_ms(timed.queue_us),
            local_ms=_ms(timed.local_us),
            remote_ms=_ms(timed.remote_us),
            asked_ms=_ms(min(timed.asked_us, timed.remote_us)),
            throttle_ms=_ms(timed.throttle_us),
            send_ms=_ms(send_us or 0),
            **end,
        )


def _ms(duration_us: int) -> float:
    return duration_us / 1000
