"""The memory that requests hold between turns: incomplete frames, frames behind a muted session, and the
copies that jobs use.

    total ≤ limit       the broker reads every session
    total > limit       it stops reading sessions with an incomplete frame, except the oldest of them: that
                        frame completes, or the session is closed when the frame has not grown for 10 s
    total > 2 × limit   the session that adds memory is closed, or, if that one has the oldest frame, the
                        session with the youngest frame

A frame that arrives whole and is served at once holds no memory, so the memory of other sessions never delays
it.
"""

import sys
from collections.abc import Callable
from typing import Final

from sparklog.model import Instant, Micros
from sparklog_server.broker.session import Session

_CLOSED_BEYOND: Final = 2
STALLED_US: Final = 10_000_000
"""The buffer of a frame grows by the size of the bytes that arrived, at most by 4 MiB, so a session that
sends single bytes also stalls.
"""


class RequestMemory:
    """The memory of the requests of all sessions. Invariants: `held_bytes` is the sum over the sessions' own;
    `_partial` maps the sessions with an incomplete frame, oldest first, to the time at which the buffer last
    grew or reading resumed; `starved` is the subset that is not read, empty in nearly every turn.
    """

    __slots__ = ("_partial", "bytes_max", "copied_bytes", "held_bytes", "starved")

    def __init__(self, bytes_max: int) -> None:
        """Zero or less is without limit."""
        self.bytes_max = bytes_max if bytes_max > 0 else sys.maxsize
        self.held_bytes = 0
        self.copied_bytes = 0  # used by jobs
        self._partial: dict[Session, Micros] = {}
        self.starved: dict[Session, None] = {}

    @property
    def total_bytes(self) -> int:
        """All memory held."""
        return self.held_bytes + self.copied_bytes

    @property
    def is_beyond(self) -> bool:
        """Whether the session that adds memory is to be closed."""
        return self.total_bytes > _CLOSED_BEYOND * self.bytes_max

    def excess(self, session: Session) -> Session | None:
        """The session to close because `session` adds memory beyond twice the limit: itself, or the one with
        the youngest frame if `session` has the oldest; None if it has the only incomplete frame.
        """
        if not self.is_beyond:
            return None
        if session not in self._partial or next(iter(self._partial)) is not session:
            return session
        youngest = next(reversed(self._partial))
        return None if youngest is session else youngest

    def bound(
        self,
        session: Session,
        now: Instant,
        close: Callable[[Session, str], None],
        mute: Callable[[Session], None],
    ) -> None:
        """Count the memory of a session that has sent bytes; close a session that exceeds its share, and stop
        reading this one if the total exceeds the limit.
        """
        self.count(session, now)
        if not session.held_bytes or session.is_closing:
            return
        while (excess := self.excess(session)) is not None and not excess.is_closing:
            held = (
                f"requests hold {self.total_bytes} bytes, where queued.max.request.bytes is {self.bytes_max}"
            )
            close(excess, f"{held}: above twice the limit")
        if not session.is_closing and not session.is_muted and self.starves(session):
            mute(session)

    def close_stalled(self, now: Instant, close: Callable[[Session, str], None]) -> None:
        """Close the session with the oldest frame if it has stalled while others wait for it; if the broker
        has paused that session for another reason, it becomes the youngest instead.
        """
        deadline = self.deadline()
        if deadline is None or deadline > now.mono_us:
            return
        eldest = next(iter(self._partial))
        if eldest.is_muted:
            del self._partial[eldest]
            self._partial[eldest] = now.mono_us
            return
        held = f"requests hold {self.total_bytes} bytes, where queued.max.request.bytes is {self.bytes_max}"
        close(eldest, f"{held}: the oldest incomplete frame has not grown for {STALLED_US // 1_000_000} s")

    def deadline(self) -> Micros | None:
        """The time at which the oldest frame counts as stalled; None while no session waits for it."""
        if not self.starved or self.total_bytes <= self.bytes_max:
            return None
        return Micros(next(iter(self._partial.values())) + STALLED_US)

    def count(self, session: Session, now: Instant) -> None:
        """Record the memory that the session holds now."""
        framed = session.framer.held_bytes
        held = framed + session.backlog_bytes
        if held == session.held_bytes:
            return
        self.held_bytes += held - session.held_bytes
        session.held_bytes = held
        if framed:
            self._partial[session] = now.mono_us
        else:
            self._partial.pop(session, None)

    def released(self, session: Session) -> None:
        """The session has ended."""
        session.framer.release()
        session.backlog.clear()
        session.backlog_bytes = 0
        self.held_bytes -= session.held_bytes
        session.held_bytes = 0
        self._partial.pop(session, None)
        self.starved.pop(session, None)

    def starves(self, session: Session) -> bool:
        """Whether the session must not be read now; if so, `take_readable` returns it when it may."""
        if (
            self.total_bytes <= self.bytes_max
            or session not in self._partial
            or next(iter(self._partial)) is session
        ):
            return False
        self.starved[session] = None
        return True

    @property
    def has_readable(self) -> bool:
        """Whether some starved session may be read again."""
        return bool(self.starved) and (
            self.total_bytes <= self.bytes_max or next(iter(self._partial)) in self.starved
        )

    def take_readable(self, now: Instant) -> list[Session]:
        """The starved sessions that may be read again."""
        if self.total_bytes <= self.bytes_max:
            readable, self.starved = list(self.starved), {}
        else:
            readable = [next(iter(self._partial))]
            del self.starved[readable[0]]
        self._partial |= dict.fromkeys(readable, now.mono_us)
        return readable
