"""The port of a raft node to the other nodes: it takes requests, and responses and losses come back.

    node ── send(peer, purpose, correlation, request) ──► links ──► the peer
    node ◄── replied(correlation, response, now) ─────────┤
    node ◄── lost(peer, purpose, loss, now) ──────────────┘   every request of that link is lost

The node never sees a socket. Each pair of peer and purpose is one link, on which responses come in order:
a Fetch that waits at the leader must not hold up a vote.
"""

from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

from sparklog.model import Instant, Micros, NodeId
from sparklog.wire.schema import Message


class Purpose(Enum):
    """What a link of a raft node carries."""

    ELECTION = "election"  # Vote, BeginQuorumEpoch, EndQuorumEpoch
    REPLICATION = "replication"  # Fetch, FetchSnapshot


class Endpoint(NamedTuple):
    """An address at which a node accepts raft requests."""

    host: str
    port: int


Peer = NodeId | Endpoint
"""A node by its id, or a bootstrap server by its address."""


class Peers(Protocol):
    """The links of a raft node."""

    def send(self, peer: Peer, purpose: Purpose, correlation: int, request: Message, now: Instant) -> None:
        """Send a request; `replied` or `lost` follows, in a later turn."""

    def located(self, node: NodeId, endpoint: Endpoint) -> None:
        """A node is reached at this endpoint from now on."""


class NoPeers:
    """The port of the only node of a cluster."""

    def send(self, peer: Peer, purpose: Purpose, correlation: int, request: Message, now: Instant) -> None:
        """Never called."""
        raise AssertionError(f"request {correlation} to {peer} for {purpose.value}: {type(request).__name__}")

    def located(self, node: NodeId, endpoint: Endpoint) -> None:
        """Ignored: no request is sent."""


class Sent(msgspec.Struct, frozen=True):
    """A request without a response yet."""

    peer: Peer
    purpose: Purpose
    request: Message
    expires_us: Micros


class InFlight:
    """The requests without a response, by correlation. Invariant: a correlation is used once."""

    def __init__(self, peers: Peers, timeout_us: Micros) -> None:
        self._peers = peers
        self._timeout_us = timeout_us
        self._sent: dict[int, Sent] = {}
        self._last = 0

    def __contains__(self, correlation: int) -> bool:
        return correlation in self._sent

    def send(self, peer: Peer, purpose: Purpose, request: Message, now: Instant) -> int:
        """Send a request; returns its correlation."""
        self._last += 1
        self._sent[self._last] = Sent(peer, purpose, request, Micros(now.mono_us + self._timeout_us))
        self._peers.send(peer, purpose, self._last, request, now)
        return self._last

    def replied(self, correlation: int) -> Sent | None:
        """The request that a response belongs to; None if it was given up."""
        return self._sent.pop(correlation, None)

    def lost(self, peer: Peer, purpose: Purpose) -> list[tuple[int, Sent]]:
        """Give up the requests of a link."""
        return self._give_up(
            [number for number, sent in self._sent.items() if (sent.peer, sent.purpose) == (peer, purpose)]
        )

    def expired(self, now: Instant) -> list[tuple[int, Sent]]:
        """Give up the requests that got no response in time."""
        return self._give_up([n for n, sent in self._sent.items() if sent.expires_us <= now.mono_us])

    def deadline(self) -> Micros | None:
        """When the next request expires: the oldest one, since all have the same timeout."""
        return next(iter(self._sent.values())).expires_us if self._sent else None

    def _give_up(self, numbers: list[int]) -> list[tuple[int, Sent]]:
        return [(number, self._sent.pop(number)) for number in numbers]
