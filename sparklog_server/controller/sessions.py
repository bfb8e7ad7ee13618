"""The sessions of brokers, and the proof that a broker's process has ended.

                       the heartbeat connection ended, or no heartbeat
            ┌───────┐  for 300 ms after activation     ┌───────────┐  REFUSED   ┌──────────────┐
    ──────► │ heard │ ───────────────────────────────► │ suspected │ ─────────► │ refused once │
            └───────┘                                  └───────────┘            └──────────────┘
              ▲   ▲            a heartbeat, or an answer    │                     │ 50 ms later: REFUSED
              │   └─────────── other than REFUSED (a) ──────┴─────────────────────┤
              │                                                                   ▼
              └── a heartbeat: the proof was wrong, and for 5 minutes ── fenced as if its session had expired
                  only the session timeout counts for this broker

(a) A connection that ENDED or was RESET may belong to a process that is just ending: probed again, at most
    twice.

A suspicion costs one connection (a probe); only two refused probes are a proof. Sessions are soft state: they
begin anew with every leadership.
"""

import msgspec

from sparklog.effects import Loss
from sparklog.model import Instant, Micros, NodeId, Offset
from sparklog_server.metadata.entries import BrokerImage
from sparklog_server.metadata.image import MetadataImage

PROBE_INTERVAL_US = 50_000
"""A process that restarts refuses connections for a moment: the second probe is this much later."""

UNHEARD_US = 300_000
"""Brokers send a heartbeat to a new leader as soon as they learn of it."""

CUT_SHORT_MAX = 2
"""How many probes of one suspicion may be cut short."""

ORDINARY_AFTER_WRONG_US = 300_000_000
"""A firewall that rejects connections looks like a process that has ended: such a broker is not probed."""


class Probe(msgspec.Struct, frozen=True):
    """A connection attempt to a broker that may have ended; `number` identifies it."""

    node: NodeId
    number: int
    host: str
    port: int


class Session(msgspec.Struct):
    """The last heartbeat of a broker; `shutdown_offset` is the log offset at which its controlled shutdown
    was decided.

    `probe_at_us` is the time of the next probe; `probe_number` is that of the probe in flight.
    """

    epoch: int
    expires_us: Micros
    metadata_offset: Offset
    is_heard: bool = True
    shutdown_offset: Offset | None = None
    probe_at_us: Micros | None = None
    probe_number: int | None = None
    is_refused_once: bool = False
    cut_short_count: int = 0

    def suspect(self, at_us: Micros) -> None:
        """Probe the broker at that time, unless a probe is due or in flight."""
        if self.probe_number is None and self.probe_at_us is None:
            self.probe_at_us = at_us

    def trust(self) -> None:
        """Forget the suspicion, and the answer of a probe in flight."""
        self.probe_at_us = self.probe_number = None
        self.is_refused_once = False
        self.cut_short_count = 0


class Sessions:
    """The session of every unfenced broker, and of every fenced broker that was heard lately.

    `own_node` runs in this process: its session never expires, and it is never probed.
    """

    def __init__(self, own_node: NodeId, listener_name: str, session_timeout_ms: int) -> None:
        self._own_node = own_node
        self._listener_name = listener_name
        self._timeout_us = session_timeout_ms * 1000
        self._by_node: dict[NodeId, Session] = {}
        self._probe_count = 0
        self._proven_dead: dict[NodeId, int] = {}
        """The broker epochs that were fenced because of two refused probes."""
        self._ordinary_until_us: dict[NodeId, Micros] = {}

    def activate(self, image: MetadataImage, now: Instant) -> None:
        """Begin a leadership: every unfenced broker gets a full session, and is probed unless its first
        heartbeat arrives soon.
        """
        self._proven_dead, self._ordinary_until_us = {}, {}
        self._by_node = {
            node: Session(
                broker.epoch, self._expiry(now), broker.registered_at, is_heard=False, probe_at_us=probe_at_us
            )
            for node, broker in image.brokers.items()
            if not broker.is_fenced
            for probe_at_us in (None if node == self._own_node else Micros(now.mono_us + UNHEARD_US),)
        }

    def registered(self, node: NodeId, epoch: int, now: Instant) -> None:
        """Begin the session of a new incarnation."""
        self._by_node[node] = Session(epoch, self._expiry(now), Offset(-1))
        self._proven_dead.pop(node, None)

    def heard(self, broker: BrokerImage, metadata_offset: Offset, now: Instant) -> Session:
        """Extend the session of a broker by its heartbeat."""
        node = broker.node_id
        if self._proven_dead and self._proven_dead.get(node) == broker.epoch:
            del self._proven_dead[node]
            self._ordinary_until_us[node] = Micros(now.mono_us + ORDINARY_AFTER_WRONG_US)
        session = self._by_node.get(node)
        if session is None or session.epoch != broker.epoch:
            session = self._by_node[node] = Session(broker.epoch, self._expiry(now), metadata_offset)
        session.is_heard = True
        session.expires_us = self._expiry(now)
        session.metadata_offset = Offset(max(session.metadata_offset, metadata_offset))
        session.trust()
        return session

    def end(self, node: NodeId) -> None:
        """End the session of a broker that is fenced."""
        self._by_node.pop(node, None)

    def forget(self, node: NodeId) -> None:
        """Forget a broker that is unregistered."""
        self._by_node.pop(node, None)
        self._proven_dead.pop(node, None)
        self._ordinary_until_us.pop(node, None)

    def is_alive(self, broker: BrokerImage, now: Instant) -> bool:
        """Whether that incarnation has a session."""
        session = self._by_node.get(broker.node_id)
        if session is None or session.epoch != broker.epoch:
            return False
        return now.mono_us < session.expires_us or (broker.node_id == self._own_node and session.is_heard)

    def metadata_offset(self, node: NodeId) -> Offset | None:
        """The metadata offset in the last heartbeat of a broker; None without a session."""
        session = self._by_node.get(node)
        return None if session is None else session.metadata_offset

    def heartbeat_lost(self, node: NodeId, now: Instant) -> None:
        """The connection on which a broker sends its heartbeats has ended: probe it now."""
        if node != self._own_node and (session := self._by_node.get(node)) is not None:
            session.suspect(now.mono_us)

    def due_probes(self, image: MetadataImage, now: Instant) -> list[Probe]:
        """The probes that are due, each to be tried over a new connection; `probed` is called with the
        outcome of each.
        """
        probes = []
        for node, session in self._by_node.items():
            if session.probe_at_us is None or now.mono_us < session.probe_at_us:
                continue
            session.probe_at_us = None
            broker = image.brokers.get(node)
            endpoint = broker and (broker.endpoint(self._listener_name) or next(iter(broker.endpoints), None))
            if endpoint and self._ordinary_until_us.get(node, 0) <= now.mono_us:
                self._probe_count += 1
                session.probe_number = self._probe_count
                probes.append(Probe(node, self._probe_count, endpoint.host, endpoint.port))
        return probes

    def probed(self, probe: Probe, loss: Loss | None, now: Instant) -> None:
        """Handle the outcome of a probe; `loss` is None if the broker answered. The second refusal makes
        the session expire.
        """
        session = self._by_node.get(probe.node)
        if session is None or session.probe_number != probe.number:
            return
        session.probe_number = None
        again_at_us = Micros(now.mono_us + PROBE_INTERVAL_US)
        # A process that is killed may leave a TLS handshake of the probe unfinished (UNUSABLE).
        if loss in (Loss.ENDED, Loss.RESET, Loss.UNUSABLE) and session.cut_short_count < CUT_SHORT_MAX:
            session.cut_short_count += 1
            session.probe_at_us = again_at_us
        elif loss is not Loss.REFUSED:
            session.trust()
        elif not session.is_refused_once:
            session.is_refused_once = True
            session.probe_at_us = again_at_us
        else:
            session.expires_us = now.mono_us
            self._proven_dead[probe.node] = session.epoch

    def take_expired(self, now: Instant) -> NodeId | None:
        """A broker whose session has expired, which this call ends; None if there is none."""
        for node, session in self._by_node.items():
            if node != self._own_node and now.mono_us >= session.expires_us:
                del self._by_node[node]
                return node
        return None

    def deadline(self) -> Micros | None:
        """The time at which the next session expires or the next probe is due; None while only this
        process's own broker has a session.
        """
        if len(self._by_node) == 1 and self._own_node in self._by_node:
            return None  # called each turn: the common case builds no list
        earliest: Micros | None = None
        for node, session in self._by_node.items():
            if node == self._own_node:
                continue
            if earliest is None or session.expires_us < earliest:
                earliest = session.expires_us
            if session.probe_at_us is not None and session.probe_at_us < earliest:
                earliest = session.probe_at_us
        return earliest

    def _expiry(self, now: Instant) -> Micros:
        return Micros(now.mono_us + self._timeout_us)
