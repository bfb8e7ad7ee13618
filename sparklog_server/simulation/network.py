"""A network of byte streams between machines, with the properties of TCP.

    open ── SYN ──► accepted ── bytes, in order, in pieces ──► close ── FIN ──► ENDED
             │                     │
             └► REFUSED            └► cut path, machine off: retransmitted, at last TIMED_OUT

Bytes in flight arrive even if their sender has died and its successor has connected. A machine without power
sends nothing: the other end stays half-open until it sends, and gets RESET once the machine is up again. A
path is one direction between two machines, so a cut may be one-way: bytes then arrive, but their
acknowledgement does not.
"""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from sparklog.effects import LinkId, Loss
from sparklog.model import NodeId, SessionId
from sparklog_server.simulation.clock import VirtualClock
from sparklog_server.simulation.randomness import random_for

_DELAY_US = 150
_JITTER_US = 350
_BYTES_PER_US = 100
_PIECES = 0.05  # of all sends arrive in two pieces
_SLOW_CONNECTIONS = 0.02
_SLOW_DELAY_US = 300_000
_RETRANSMIT_US = 200_000
_RETRANSMIT_US_MAX = 1_600_000
_TIMEOUT_US = 4_000_000
"""TCP_USER_TIMEOUT: an end is lost when its bytes are not acknowledged for so long."""


class Host(Protocol):
    """One machine, for the network."""

    node: NodeId

    @property
    def is_up(self) -> bool:
        """Whether the machine has power."""

    @property
    def is_listening(self) -> bool:
        """Whether a process of the machine listens."""

    def accepted(self, end: "End") -> None:
        """A connection to this machine was established; the host sets `end.key`."""

    def arrived(self, end: "End", data: bytes) -> None:
        """Bytes for this machine."""

    def lost(self, end: "End", loss: Loss) -> None:
        """The connection of `end` is lost; called once, and not for an end that the machine closed."""


class End:
    """One end of a connection. `key` identifies it on its machine.

    Invariant: an end receives a prefix of the bytes sent to it, and none after it is closed.
    """

    __slots__ = (
        "arrives_us",
        "extra_delay_us",
        "held",
        "host",
        "is_established",
        "is_open",
        "key",
        "path",
        "peer",
        "retry_us",
        "stalled_us",
    )

    def __init__(self, host: Host, path: "Path", key: LinkId | SessionId | None, extra_delay_us: int) -> None:
        self.host = host
        self.path = path
        self.key = key
        self.extra_delay_us = extra_delay_us
        self.is_open = False
        self.is_established = False
        self.peer: End
        self.arrives_us = 0  # the arrival time of the last bytes sent
        self.held: list[bytes | None] = []  # to be sent later, or again; None is the FIN
        self.stalled_us: int | None = None  # the time since which bytes have not been acknowledged
        self.retry_us = 0


class Path:
    """The path from one machine to another. Each fault has a counter, because faults overlap."""

    __slots__ = ("back", "cuts", "extra_delay_us", "random", "refusals")

    def __init__(self, seed: int, source: NodeId, target: NodeId) -> None:
        self.random = random_for(seed, f"network {source} to {target}").random
        self.back: Path
        self.cuts = 0
        self.refusals = 0
        self.extra_delay_us = 0

    @property
    def delay_us(self) -> int:
        """The delay of the next packet."""
        return _DELAY_US + self.extra_delay_us + int(_JITTER_US * self.random())


class Network:
    """The paths between `hosts`, and the connections on them."""

    def __init__(self, clock: VirtualClock, seed: int, nodes: Sequence[NodeId]) -> None:
        self._clock = clock
        self._hosts: dict[NodeId, Host] = {}
        self.paths = {(a, b): Path(seed, a, b) for a in nodes for b in nodes}
        for (a, b), path in self.paths.items():
            path.back = self.paths[b, a]

    def attach(self, host: Host) -> None:
        """Add a machine."""
        self._hosts[host.node] = host

    def open(self, host: Host, target: NodeId, key: LinkId) -> End:
        """Open a connection to a machine. Bytes may be sent at once; they leave when it is established."""
        path = self.paths[host.node, target]
        is_slow = path.random() < _SLOW_CONNECTIONS
        extra_us = int(_SLOW_DELAY_US * path.random()) if is_slow else 0
        end = End(host, path, key, extra_us)
        end.peer = End(self._hosts[target], path.back, None, extra_us)
        end.peer.peer = end
        end.is_open = True
        at_us = self._clock.us + path.delay_us
        self._clock.at(at_us, partial(self._connecting, end, at_us))
        return end

    def send(self, end: End, data: bytes) -> None:
        """Send bytes; those to a closed end are dropped."""
        if not end.is_open:
            return
        path = end.path
        if end.held or path.cuts or not end.is_established:
            end.held.append(data)
            if end.is_established:
                self._stall(end)
            return
        if path.back.cuts:
            self._stall(end)
        self._transmit(end, data)

    def close(self, end: End) -> None:
        """Close an end: its peer gets the bytes sent before, then ENDED."""
        if not end.is_open:
            return
        end.is_open = False
        if not end.is_established:
            end.held.clear()
        elif end.held or end.path.cuts:
            end.held.append(None)
            self._stall(end)
        else:
            self._transmit(end, None)

    def vanish(self, end: End) -> None:
        """Remove the ends of a machine that has lost power; their peers are not informed."""
        end.is_open = False
        end.held.clear()

    # -- inside

    def _transmit(self, end: End, data: bytes | None) -> None:
        path, clock = end.path, self._clock
        at_us = clock.us + path.delay_us + end.extra_delay_us
        if at_us < end.arrives_us:
            at_us = end.arrives_us
        if data is None:
            clock.at(at_us, partial(self._ended, end.peer))
            return
        if path.random() < _PIECES and len(data) > 1:
            first = 1 + int(path.random() * (len(data) - 1))
            clock.at(at_us, partial(self._arrived, end.peer, data[:first]))
            data = data[first:]
            at_us += path.delay_us
        end.arrives_us = at_us = at_us + len(data) // _BYTES_PER_US
        clock.at(at_us, partial(self._arrived, end.peer, data))

    def _connecting(self, end: End, since_us: int) -> None:
        """The SYN arrives, or is sent again."""
        path, peer, clock = end.path, end.peer, self._clock
        if not end.is_open:
            return
        if path.cuts or path.back.cuts or not peer.host.is_up:
            if clock.us - since_us >= _TIMEOUT_US:
                self._lose(end, Loss.TIMED_OUT if peer.host.is_up else Loss.UNREACHABLE)
            else:
                clock.after(_RETRANSMIT_US, partial(self._connecting, end, since_us))
        elif path.refusals or not peer.host.is_listening:
            clock.after(path.back.delay_us, partial(self._lose, end, Loss.REFUSED))
        else:
            peer.is_open = peer.is_established = True
            clock.after(path.back.delay_us, partial(self._established, end))
            peer.host.accepted(peer)

    def _established(self, end: End) -> None:
        end.is_established = True
        if not end.is_open and end.host.is_up:
            self._transmit(end, None)  # closed meanwhile
        elif end.path.cuts:
            self._stall(end)
        else:
            self._send_held(end)

    def _arrived(self, end: End, data: bytes) -> None:
        if end.is_open:
            end.host.arrived(end, data)
        else:
            self._unknown(end)

    def _unknown(self, end: End) -> None:
        """Bytes for an unknown end: send a reset, if the machine has power."""
        sender = end.peer
        if not end.host.is_up:
            self._stall(sender)
        elif sender.is_open and not end.path.cuts:
            self._clock.after(end.path.delay_us, partial(self._lose, sender, Loss.RESET))

    def _ended(self, end: End) -> None:
        self._lose(end, Loss.ENDED)

    def _lose(self, end: End, loss: Loss) -> None:
        if end.is_open:
            end.is_open = False
            end.held.clear()
            end.host.lost(end, loss)

    def _stall(self, end: End) -> None:
        """Bytes of `end` are not acknowledged: retransmit them until they are, or time out."""
        if end.stalled_us is None:
            end.stalled_us = self._clock.us
            end.retry_us = _RETRANSMIT_US
            self._clock.after(_RETRANSMIT_US, partial(self._retransmit, end))

    def _retransmit(self, end: End) -> None:
        since_us, end.stalled_us = end.stalled_us, None
        assert since_us is not None
        path, peer = end.path, end.peer
        if not end.is_open and not end.held:
            return
        if (path.cuts or path.back.cuts or not peer.host.is_up) and self._clock.us - since_us >= _TIMEOUT_US:
            end.held.clear()
            self._lose(end, Loss.TIMED_OUT)
            return
        if path.cuts or path.back.cuts or not peer.host.is_up:
            end.stalled_us = since_us
            end.retry_us = min(2 * end.retry_us, _RETRANSMIT_US_MAX)
            self._clock.after(end.retry_us, partial(self._retransmit, end))
        elif not end.held and not peer.is_open:
            self._unknown(peer)
        if not path.cuts:
            self._send_held(end)

    def _send_held(self, end: End) -> None:
        held, end.held = end.held, []
        for data in held:
            self._transmit(end, data)
