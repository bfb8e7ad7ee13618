"""The line of each request that took longer than `sparklog.slow.request.ms`, with the parts of its time.

    answered ─┬─ soon ──────────────────────────► kept as the last of its session ── sent late ─► a line
              └─ late ─► pending ─┬─ taken by the socket at once ───────────────────────────────► a line
                                  └─ held up by it ─► sent, or the connection ends ─────────────► a line

The time for which a Fetch asks to wait does not count. Nothing here is imported, and no request is timed by
itself, unless the setting is on.
"""

from collections.abc import Callable
from typing import Final

from sparklog.model import SessionId
from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.messages.fetch import FetchRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.metrics.api_times import Timed
from sparklog_server.broker.session import Call

PENDING_MAX: Final = 1_000
"""Of one turn. The log writes fewer lines at once."""


class SlowRequests:
    """Invariants: `_last` has the last request of each session that has one; each of `_held_up` is a session
    whose socket has not taken its last response.
    """

    def __init__(self, limit_us: int, trace: Callable[..., None]) -> None:
        self.limit_us = limit_us
        self.pending: list[Call] = []
        self._trace = trace
        self._last: dict[SessionId, Call] = {}
        self._held_up: dict[SessionId, Call | None] = {}  # with the request whose line waits, if one does
        self._throttled: tuple[Call, int] | None = None

    def served(self, call: Call, request: Message, size: int, queue_us: int, local_us: int) -> None:
        """A request of `size` bytes was served, or was parked."""
        asked_us = request.max_wait_ms * 1000 if isinstance(request, FetchRequest) else 0
        call.timed = Timed(size, queue_us, local_us, max(0, asked_us))

    def throttled(self, call: Call, delay_us: int) -> None:
        """The client of this request, which is answered now, rests for so long."""
        self._throttled = call, delay_us

    def ended(self, call: Call, remote_us: int = 0) -> None:
        """A request has its response, after it was parked for `remote_us`."""
        timed = call.timed
        if timed is None:
            return
        timed.remote_us = max(0, remote_us)
        if self._throttled is not None:
            throttled, delay_us = self._throttled
            self._throttled = None
            if throttled is call:
                timed.throttle_us = delay_us
        self._last[call.session.id] = call
        if timed.slow_us >= self.limit_us and len(self.pending) < PENDING_MAX:
            self.pending.append(call)

    def held_up(self, session_id: SessionId) -> None:
        """The socket has not taken the responses of this session at once."""
        self._held_up[session_id] = None

    def settle(self) -> None:
        """After the turn: write the lines, except of a response that its socket holds up."""
        pending, self.pending = self.pending, []
        for call in pending:
            session_id = call.session.id
            if session_id in self._held_up and self._last.get(session_id) is call:
                self._held_up[session_id] = call
            else:
                self._tell(call, 0)

    def sent(self, session_id: SessionId, duration_us: int) -> None:
        """The socket has taken the responses of a session."""
        waiting, last = self._held_up.pop(session_id, None), self._last.get(session_id)
        if waiting is not None and waiting is not last:
            self._tell(waiting, duration_us)
        if last is None or last.timed is None:
            return
        if waiting is last or last.timed.slow_us + duration_us >= self.limit_us:
            self._tell(last, duration_us)

    def disconnected(self, session_id: SessionId) -> None:
        """The connection has ended."""
        waiting = self._held_up.pop(session_id, None)
        self._last.pop(session_id, None)
        if waiting is not None:
            self._tell(waiting, None)

    def abandoned(self, call: Call, remote_us: int) -> None:
        """The connection has ended before the response."""
        if call.timed is None:
            return
        call.timed.remote_us = max(0, remote_us)
        if call.timed.slow_us >= self.limit_us:
            self._tell(call, None)

    def _tell(self, call: Call, send_us: int | None) -> None:
        timed = call.timed
        assert timed is not None
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
