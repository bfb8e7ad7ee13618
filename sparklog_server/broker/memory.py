"""The memory that requests and replies hold between turns.

Requests: incomplete frames, frames behind a muted session, and the copies that jobs use.

    total ≤ limit       the broker reads every session
    total > limit       it stops reading sessions with an incomplete frame, except the oldest of them: that
                        frame completes, or the session is closed when the frame has not grown for 10 s
    total > 2 × limit   the session that adds memory is closed, or, if that one has the oldest frame, the
                        session with the youngest frame

A frame that arrives whole and is served at once holds no memory, so the memory of other sessions never delays
it.

Replies: those made over several turns, those behind an earlier request, those that the client has not read.

    total ≤ limit / 2   the broker serves every session
    total > limit / 2   a session that holds replies is neither read nor served until its client has read
                        them; of the replies made over several turns only the oldest continues; a session
                        whose client has replies to read and reads nothing for 10 s is closed
    total > limit       while sessions hold more than limit / 2, the one whose last read is oldest is closed,
                        except the one that read last; replies made over several turns do not count here

A session whose client reads its replies holds no memory, so the memory of other sessions never delays it. The
exception lets one reply that is larger than the limit reach a client that reads it. A session whose replies
all wait behind an earlier request has nothing to read.
"""

import sys
from collections.abc import Callable
from typing import Final

from sparklog.model import Instant, Micros
from sparklog_server.broker.session import Session

_CLOSED_BEYOND: Final = 2
STALLED_US: Final = 10_000_000
"""The time without progress after which a session counts as stalled. The buffer of a frame grows by the size
of the bytes that arrived, at most by 4 MiB, so a session that sends single bytes also stalls.
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


class ReplyMemory:
    """The memory of the replies of all sessions. Invariants: `total_bytes` is the sum of `reply_bytes` over
    the sessions and of `built_bytes`; `_holders` has the sessions that hold replies, ordered by their last
    read or response, oldest first; `_unread` maps those whose clients have replies to read to the time of
    their last read, oldest first; `starved` has the sessions that are to be served again later, `fed` those
    of them that no longer hold replies. While `is_short`, sessions that hold replies are not served. The
    broker reads these at each turn, so they are attributes.
    """

    __slots__ = ("_holders", "_limit", "_unread", "built_bytes", "fed", "is_short", "starved", "total_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._limit = bytes_max if bytes_max > 0 else sys.maxsize
        self.total_bytes = 0
        self.is_short = False
        self.built_bytes = 0
        self._holders: dict[Session, None] = {}
        self._unread: dict[Session, Micros] = {}
        self.starved: dict[Session, None] = {}
        self.fed: list[Session] = []

    def build(self, size: int) -> None:
        """A reply under construction has grown by `size` bytes."""
        self.built_bytes += size
        self._grow(size)

    def _grow(self, size: int) -> None:
        self.total_bytes += size
        self.is_short = 2 * self.total_bytes > self._limit

    def unread(self, session: Session, size: int, now: Instant, *, has_read: bool) -> None:
        """Record the bytes of replies that the client of the session has not read; returns whether it has
        read some since the last call.
        """
        grown = size - session.unread_bytes
        session.unread_bytes = size
        if has_read or not size:
            self._unread.pop(session, None)
        if size:
            self._unread.setdefault(session, now.mono_us)
        self._count(session, grown, is_read=has_read)

    def owed(self, session: Session, grown: int) -> None:
        """The replies of a session that wait behind an earlier request have grown by this many bytes."""
        session.owed_bytes += grown
        self._count(session, grown, is_read=grown < 0)

    def _count(self, session: Session, grown: int, *, is_read: bool) -> None:
        self._grow(grown)
        if is_read or not session.reply_bytes:
            self._holders.pop(session, None)
        if session.reply_bytes:
            self._holders.setdefault(session)
        elif session in self.starved:
            del self.starved[session]
            self.fed.append(session)

    def starves(self, session: Session) -> bool:
        """Whether the session must not be served now; if so, `take_readable` returns it when it may."""
        if not session.reply_bytes or not self.is_short:
            return False
        self.starved[session] = None
        return True

    def forget(self, session: Session) -> None:
        """The session has ended."""
        self.starved.pop(session, None)
        self._unread.pop(session, None)
        grown, session.unread_bytes, session.owed_bytes = -session.reply_bytes, 0, 0
        self._count(session, grown, is_read=False)

    def take_readable(self) -> list[Session]:
        """The starved sessions that may be served again."""
        readable, self.fed = self.fed, []
        if not self.is_short:
            readable += self.starved
            self.starved = {}
        return readable

    def take_excess(self, now: Instant) -> list[Session]:
        """The sessions to close while memory `is_short`; each is counted until `forget`."""
        closed: dict[Session, None] = {}
        for session, read_us in self._unread.items():
            if read_us + STALLED_US > now.mono_us:
                break
            closed[session] = None
        rest = self.total_bytes - sum(session.reply_bytes for session in closed)
        limit = max(self._limit, self.built_bytes + self._limit // 2)
        spared = next(reversed(self._holders), None)
        for session in self._holders:
            if rest <= limit or session is spared:
                break
            if session not in closed:
                closed[session] = None
                rest -= session.reply_bytes
        return list(closed)

    def deadline(self) -> Micros | None:
        """The time of the next check for sessions to close."""
        if not self._unread or not self.is_short:
            return None
        return Micros(next(iter(self._unread.values())) + STALLED_US)
