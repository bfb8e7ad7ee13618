"""The connections of the console: one that sends or reads nothing ends, and gives way to others before.

    accepted ─► awaits a head ── whole ──► awaits a body ── whole ──► answered ─► awaits a head, kept
                     │ HEAD_S                   │ BODY_S                  │ its client reads nothing: UNREAD_S
                     └──────────────────────────┴─────► closed ◄──────────┘

At CONNECTIONS_MAX a new connection displaces the one that has awaited bytes longest. If all are being
answered, the new one gets 503.
"""

import asyncio
from operator import itemgetter
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX: Final = 200
HEAD_S: Final = 10
BODY_S: Final = 30
UNREAD_S: Final = 30
_AWAITED_S: Final = {h11.IDLE: HEAD_S, h11.SEND_BODY: BODY_S}


class Connection(H11Protocol):
    """A connection with deadlines. uvicorn has one only between two requests (`timeout_keep_alive`)."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Begin, in place of another one if there are too many."""
        self.awaits_since_s: float | None = None  # None while it is answered
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._state: object = None
        self._is_kept = False
        super().connection_made(transport)
        self._follow()
        if len(self.connections) >= CONNECTIONS_MAX:
            others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
            silent = [(one.awaits_since_s, one) for one in others if one.awaits_since_s is not None]
            if silent:
                min(silent, key=itemgetter(0))[1].end()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        if self._is_kept:
            self._is_kept, self._state = False, None
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        """The response was written: await the next request, or that the client has read."""
        super().on_response_complete()
        self._state = None
        self._follow()
        self._is_kept = True

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_S, self.end)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._cancel_unread()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._cancel_unread()
        if self._deadline is not None:
            self._deadline.cancel()

    def end(self) -> None:
        """Close at once: its place is free in this turn already."""
        self.connections.discard(self)
        self.awaits_since_s = None
        self.transport.abort()

    def _follow(self) -> None:
        """Set the deadline of what is awaited from the client now."""
        if self.conn.their_state is self._state:
            return
        self._state = self.conn.their_state
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        # A transport that closes waits until the client has read what was written.
        limit_s = HEAD_S if self.transport.is_closing() else _AWAITED_S.get(self._state)
        self.awaits_since_s = None
        if limit_s is not None:
            self.awaits_since_s = self.loop.time()
            self._deadline = self.loop.call_later(limit_s, self.end)

    def _cancel_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
