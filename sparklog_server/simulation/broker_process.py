"""A whole node as a process of a simulated machine: a `Broker`, with the buffers and the muted sessions that
the daemon keeps for it.
"""

from collections.abc import Callable, Mapping

from sparklog.effects import Disconnect, Effect, LinkId, Loss
from sparklog.model import Instant, Micros, SessionId, Ticket
from sparklog_server.broker.broker import Broker
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.simulation.world import Machine

_LOG_DIR = "/data"
_META = f"{_LOG_DIR}/meta.properties"


class BrokerProcess:
    """One process. It formats an empty disk for the cluster. `broker_class` may have a planted fault."""

    def __init__(
        self,
        machine: Machine,
        settings: Mapping[str, str],
        *,
        cluster_id: str,
        broker_class: type[Broker] = Broker,
    ) -> None:
        self._machine = machine
        self._settings = BrokerSettings.of({"log.dirs": _LOG_DIR, **settings}, is_insecure_allowed=True)
        self._listeners = {listener.port: listener.name for listener in self._settings.listeners}
        self._cluster_id = cluster_id
        self._broker_class = broker_class
        self._unread: dict[SessionId, bytes] = {}  # bytes of each session that the broker has not read
        self._muted: set[SessionId] = set()
        self.broker: Broker

    def start(self, now: Instant) -> list[Effect]:
        """Open the directory and register."""
        disk = self._machine.disk
        disk.make_directory(_LOG_DIR)
        if disk.read(_META) is None:
            lines = ("version=1", f"cluster.id={self._cluster_id}", f"node.id={self._machine.node}", "")
            disk.write(_META, "\n".join(lines).encode())
        self.broker = self._broker_class.open(
            self._settings, disk, entropy=self._machine.random.randbytes, trace=self._trace, now=now
        )
        return self._turned(self.broker.start(now), now)

    def connected(self, session: SessionId, port: int, now: Instant) -> list[Effect]:
        """A machine has connected to a port of this one."""
        self._unread[session] = b""
        return self._turned(
            self.broker.connected(session, self._listeners[port], f"machine:{session}", now), now
        )

    def received(self, session: SessionId, data: bytes, now: Instant) -> list[Effect]:
        """Bytes of a session, which stay unread while it is muted."""
        if self.broker.is_stopped or session not in self._unread:
            return []
        self._unread[session] += data
        return self._read(session, now)

    def _read(self, session: SessionId, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        while session not in self._muted and (data := self._unread.get(session)):
            room = self.broker.buffer(session)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self._unread[session] = data[size:]
            effects += self._turned(self.broker.receive(session, size, now), now)
        return effects

    def disconnected(self, session: SessionId, now: Instant) -> list[Effect]:
        """The session has ended."""
        if self.broker.is_stopped or self._unread.pop(session, None) is None:
            return []
        self._muted.discard(session)
        return self._turned(self.broker.disconnected(session, now), now)

    def link_received(self, link: LinkId, data: bytes, now: Instant) -> list[Effect]:
        """Bytes on a link."""
        effects: list[Effect] = []
        while data and not self.broker.is_stopped and (room := self.broker.link_buffer(link)) is not None:
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            effects += self._turned(self.broker.link_received(link, size, now), now)
        return effects

    def link_lost(self, link: LinkId, loss: Loss, now: Instant) -> list[Effect]:
        """The link is lost."""
        return self._call(lambda broker: broker.link_lost(link, loss, now), now)

    def finished(self, ticket: Ticket, result: object, now: Instant) -> list[Effect]:
        """A sync or a job has ended."""
        return self._call(lambda broker: broker.finished(ticket, result, now), now)

    def tick(self, now: Instant) -> list[Effect]:
        """The deadline has passed."""
        return self._call(lambda broker: broker.tick(now), now)

    def deadline(self) -> Micros | None:
        """The time of the next `tick`."""
        return None if self.broker.is_stopped else self.broker.deadline()

    def begin_stop(self, now: Instant) -> list[Effect]:
        """Begin a clean stop."""
        return self._call(lambda broker: broker.stop(now), now)

    def close(self, now: Instant) -> None:
        """The time of a clean stop is over: what is not done by now, ends as by a kill."""

    def _call(self, call: Callable[[Broker], list[Effect]], now: Instant) -> list[Effect]:
        return [] if self.broker.is_stopped else self._turned(call(self.broker), now)

    def _turned(self, effects: list[Effect], now: Instant) -> list[Effect]:
        """Close and unmute the sessions that the turn has named."""
        broker = self.broker
        for effect in list(effects):
            if isinstance(effect, Disconnect) and not isinstance(effect.session, LinkId):
                effects += self.disconnected(effect.session, now)
        changes = dict(broker.mute_changes)
        broker.mute_changes.clear()
        for session, is_muted in changes.items():
            if session not in self._unread:
                continue
            if is_muted:
                self._muted.add(session)
            else:
                self._muted.discard(session)
                effects += self._read(session, now)
        return effects

    def _trace(self, event: str, **fields: object) -> None:
        self._machine.world.told(self._machine, event, fields)
