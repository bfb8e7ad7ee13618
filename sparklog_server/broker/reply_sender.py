"""Sends the answers of a broker: in order per session, bounded per turn, and no faster than clients read.

Only the network layer knows whether a client reads, and reports it after a turn. A session that got many
bytes of answers in a turn has its further requests served in the next one.
"""

from collections.abc import Callable
from typing import Final

from sparklog.effects import Chunk, Reply
from sparklog.model import Instant, Micros
from sparklog_server.broker.memory import ReplyMemory
from sparklog_server.broker.session import Call, Session

SESSION_TURN_BYTES: Final = 1 << 20
TURN_BYTES: Final = 8 << 20
"""The bytes of answers in one turn, to one session and to all, beyond which the remaining requests wait for
the next turn.
"""
SESSION_TURN_NS: Final = 2_000_000
TURN_NS: Final = 4_000_000
"""The time of the requests in one turn, of one session and of all, beyond which the remaining ones wait for
the next turn.
"""
ANSWER_BYTES_MIN: Final = 16 << 10
"""What a smaller answer counts in a turn: its request takes as long as to send so many bytes."""
_LEFT: list[Chunk] = []
"""Replaces an answer that has been sent, because its chunks may hold files open."""


class ReplySender:
    """Sends the answers of one broker. Invariant: a session that `awaits_reader` is muted, and is in
    `yielding` or starved in `memory`.

    `hold_up` is called when a session begins to hold replies, and when it holds none any more.
    """

    def __init__(
        self, memory: ReplyMemory, mute: Callable[[Session], None], hold_up: Callable[[Session], None]
    ) -> None:
        self.memory = memory
        self._hold_up = hold_up
        self._mute = mute
        self.yielding: list[Session] = []  # have had their share of this turn
        self.turn_bytes = 0  # of answers, since the start of the turn

    def take_excess(self, now: Instant) -> list[tuple[Session, str]]:
        """The sessions to close for the replies that they hold, with the reason."""
        held = f"replies hold {self.memory.total_bytes} bytes of memory"
        closed = [(session, f"{_held_by(session)}, and {held}") for session in self.memory.take_excess(now)]
        for session, _ in closed:
            self.memory.forget(session)
        return closed

    def rest(self, session: Session) -> None:
        """Serve the session no more in this turn."""
        if not session.awaits_reader and not session.is_closing:
            self.yielding.append(session)
            self._await_reader(session)

    def unread(self, session: Session, size: int, now: Instant, *, has_read: bool) -> None:
        """Record the bytes of answers that the client of the session has not read; returns whether it has
        read some since the last call.
        """
        self.memory.unread(session, size, now, has_read=has_read)
        self._changed(session)

    def in_order(self, call: Call, chunks: list[Chunk], size: int) -> list[Reply]:
        """The answers that may be sent now that one of a session with earlier unanswered requests is known;
        it takes `size` bytes of memory.
        """
        session, owed = call.session, call.session.owed
        is_held, owed_before = owed[0] is not call, session.owed_bytes
        if is_held:
            self.memory.owed(session, size)
        call.answer, call.answer_bytes = chunks, size
        call.waiting = None  # it references the call: no cycle for the garbage collector
        if call is session.held_by:
            session.held_by = None
        replies: list[Reply] = []
        while owed and (answer := owed[0].answer) is not None:
            if owed[0] is not call:
                self.memory.owed(session, -owed[0].answer_bytes)
            owed.popleft().answer = _LEFT
            replies.append(Reply(session.id, answer))
        if session.owed_bytes != owed_before:
            self._changed(session)
        return replies

    def _changed(self, session: Session) -> None:
        self._hold_up(session)
        if session.reply_bytes and not session.is_closing and self.memory.starves(session):
            self._await_reader(session)

    def _await_reader(self, session: Session) -> None:
        session.awaits_reader = True
        if not session.is_muted:
            self._mute(session)

    def take_rested(self) -> list[Session]:
        """The sessions that continue after a turn of the others, unless their clients have replies to read
        first.
        """
        if not self.yielding:
            return []
        yielding, self.yielding = self.yielding, []
        rested = [
            session for session in yielding if not session.is_closing and not self.memory.starves(session)
        ]
        return _readable(rested)

    def take_readable(self) -> list[Session]:
        """The starved sessions that may be served again."""
        return _readable(self.memory.take_readable())

    def deadline(self) -> Micros | None:
        """The time of the next check for sessions to resume or to close."""
        return Micros(0) if self.yielding else self.memory.deadline()


def _held_by(session: Session) -> str:
    return (
        "its client has not read its replies"
        if session.unread_bytes
        else "its replies wait behind an earlier request"
    )


def _readable(sessions: list[Session]) -> list[Session]:
    for session in sessions:
        session.awaits_reader = False
    return sessions
