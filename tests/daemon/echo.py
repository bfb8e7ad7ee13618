"""The smallest replacement of the broker: each frame contains the command for its reply.

A frame is a word and arguments: `echo TEXT`, `slice POSITION LENGTH` (of its file, after a header),
`mute`, `close`, `sync`, `job TEXT`, `steps COUNT`.
"""

from functools import partial

from sparklog.effects import Disconnect, Effect, FileSlice, Reply, Run, Sliceable, Steps, Sync
from sparklog.model import Instant, Micros, SessionId, Ticket
from sparklog_server.broker.access.client_quotas import ClientQuotas
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.disk.door import DiskFile, StorageError
from sparklog_server.loggers import Loggers

HEADER = b"header:"


class Echo:
    """Broker enough for a pump."""

    def __init__(self, file: DiskFile | None = None) -> None:
        self.is_ready = True
        self.is_stopping = False
        self.is_stopped = False
        self.needs_authentication = False
        self.authenticated: set[SessionId] = set()
        self.is_busy = False  # whether every session has a request in flight
        self.settings = BrokerSettings()
        self.loggers = Loggers()
        self.quotas = ClientQuotas(self.settings, lambda: 0)
        self.sessions: list[SessionId] = []
        self.principals: list[tuple[str, tuple[str, ...]]] = []
        self.gone: list[SessionId] = []
        self.held: list[SessionId] = []  # those whose socket has not taken a reply at once
        self.finished_results: list[object] = []
        self.answered = 0
        self.unread_bytes: dict[SessionId, int] = {}
        self.reads = 0  # how often it was told that a client has read
        self._file = file
        self.room = bytearray(1 << 18)
        self.mute_changes: dict[SessionId, bool] = {}
        self._waiting: dict[Ticket, SessionId] = {}

    def start(self, now: Instant) -> list[Effect]:
        return []

    def unreadable(self, file: Sliceable, error: StorageError, now: Instant) -> list[Effect]:
        return []

    def connected(
        self,
        session_id: SessionId,
        listener: str,
        peer_address: str,
        now: Instant,
        principal: str = "",
        groups: tuple[str, ...] = (),
    ) -> list[Effect]:
        self.principals.append((principal, groups))
        self.sessions.append(session_id)
        return []

    def buffer(self, session_id: SessionId) -> memoryview:
        return memoryview(self.room)

    def receive(self, session_id: SessionId, size: int, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for line in bytes(self.room[:size]).split(b"\n")[:-1]:
            effects += self._answer(session_id, *line.split(b" "))
        return effects

    def held_up(self, session_id: SessionId) -> None:
        self.held.append(session_id)

    def sent(self, session_id: SessionId, duration_us: int) -> None:
        self.held.remove(session_id)

    def unread(self, session_id: SessionId, size: int, now: Instant, *, has_read: bool) -> list[Effect]:
        self.unread_bytes[session_id] = size
        self.reads += has_read
        return []

    def disconnected(self, session_id: SessionId, now: Instant) -> list[Effect]:
        self.gone.append(session_id)
        return []

    def has_request_in_flight(self, session_id: SessionId) -> bool:
        return self.is_busy

    def is_authenticated(self, session_id: SessionId) -> bool:
        return not self.needs_authentication or session_id in self.authenticated

    def finished(self, ticket: Ticket, result: object, now: Instant) -> list[Effect]:
        self.finished_results.append(result)
        return [Reply(self._waiting.pop(ticket), [b"finished"])]

    def tick(self, now: Instant) -> list[Effect]:
        return []

    def deadline(self) -> Micros | None:
        return None

    def stop(self, now: Instant) -> list[Effect]:
        self.is_stopping = self.is_stopped = True
        return []

    def unmute(self, session_id: SessionId) -> None:
        self.mute_changes[session_id] = False

    def _answer(self, session: SessionId, word: bytes, *arguments: bytes) -> list[Effect]:
        self.answered += 1
        ticket = Ticket(len(self.finished_results) + len(self._waiting))
        match word:
            case b"slice":
                assert self._file is not None
                self._file.retain()
                return [Reply(session, [HEADER, FileSlice(self._file, *map(int, arguments))])]
            case b"mute":
                self.mute_changes[session] = True
                return []
            case b"close":
                return [Reply(session, [b"bye"]), Disconnect(session, "asked to")]
            case b"sync":
                self._waiting[ticket] = session
                return [Sync(ticket, [self._file], "somewhere")]
            case b"job":
                self._waiting[ticket] = session
                return [Run(lambda: arguments[0], ticket)]
            case b"steps":
                self._waiting[ticket] = session
                return [Run(partial(_count, int(arguments[0])), ticket, in_steps=True, is_background=True)]
        return [Reply(session, [arguments[0]])]


def _count(steps: int) -> Steps[int]:
    """A background job, whose result is the number of its steps; of none at all it fails."""
    count = 0
    for _ in range(steps):
        yield
        count += 1
    return count // min(steps, 1)
