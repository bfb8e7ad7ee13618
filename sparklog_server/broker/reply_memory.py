"""The memory that replies hold between turns: those made over several turns, those behind an earlier request,
those that the client has not read.

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
from typing import Final

from sparklog.model import Instant, Micros
from sparklog_server.broker.session import Session

STALLED_US: Final = 10_000_000


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
