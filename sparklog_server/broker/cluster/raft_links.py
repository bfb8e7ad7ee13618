"""The quorum of a node that has other nodes, as its settings describe it, and the port of the raft node to
its peers: each pair of peer and purpose is a link of its own.

    raft node ── send ──► links.ask ──► the peer
    raft node ◄── replied, lost ── `then` of each request ◄──┘

A link that ends loses every request on it, each of which is told; the node is told once, because it may send
again at once.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from sparklog.effects import Loss
from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID, Instant, NodeId, Uuid
from sparklog.record.control import VoterEndpoint
from sparklog.wire.messages.api_versions import ApiVersionsRequest
from sparklog.wire.messages.vote import VoteRequest, VoteResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.links import PROBE, Links
from sparklog_server.broker.cluster.quorum import Quorum, QuorumSetup
from sparklog_server.config.roles import CONTROLLER
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.raft.peers import Endpoint, Peer, Purpose
from sparklog_server.raft.quorum_config import QuorumConfig
from sparklog_server.raft.voters import VoterSet

_GRACE_US: Final = 500_000
"""The raft node gives a request up before its link does, so that its own timers decide."""


class RaftLinks:
    """Invariant: `serve` is called before the first response comes."""

    def __init__(self, links: Links, *, timeout_us: int) -> None:
        self._links = links
        self._timeout_us = timeout_us + _GRACE_US
        self._addresses: dict[NodeId, Endpoint] = {}
        self._sent: dict[tuple[Peer, Purpose], dict[int, None]] = {}

    def serve(self, quorum: Quorum) -> None:
        """Give responses to this quorum."""
        self._quorum = quorum

    def send(self, peer: Peer, purpose: Purpose, correlation: int, request: Message, now: Instant) -> None:
        """Send a request; `replied` or `lost` follows, in a later turn. A request to a node whose address is
        not known gets no response.
        """
        address = peer if isinstance(peer, Endpoint) else self._addresses.get(peer)
        if address is None:
            return
        self._sent.setdefault((peer, purpose), {})[correlation] = None
        answered = partial(self._answered, peer, purpose, correlation, request)
        self._links.ask(address, purpose.value, request, answered, now, timeout_us=self._timeout_us)

    def located(self, node: NodeId, endpoint: Endpoint) -> None:
        """A node is reached at this endpoint from now on."""
        self._addresses[node] = endpoint

    def probe(
        self, address: tuple[str, int], then: Callable[[Loss | None, Instant], None], now: Instant
    ) -> None:
        """Connect to a broker; `then` takes None if a process answers there, else the loss."""

        def probed(answer: Message | Loss, now: Instant) -> None:
            self._links.close(address, PROBE)  # the next probe is to be another connection
            then(answer if isinstance(answer, Loss) else None, now)
            self._quorum.turned(now)

        request = ApiVersionsRequest(client_software_name="sparklog", client_software_version="probe")
        self._links.ask(address, PROBE, request, probed, now, timeout_us=self._timeout_us)

    def _answered(
        self,
        peer: Peer,
        purpose: Purpose,
        correlation: int,
        request: Message,
        answer: Message | Loss,
        now: Instant,
    ) -> None:
        sent = self._sent[peer, purpose]
        if correlation not in sent:
            return  # the link was lost, which the node knows
        if answer is Loss.UNSUPPORTED and isinstance(request, VoteRequest):
            # A voter of an old release knows no pre-vote, which is no reason to lose its link.
            answer = VoteResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if isinstance(answer, Loss):
            sent.clear()
            self._quorum.raft.lost(peer, purpose, answer, now)
        else:
            del sent[correlation]
            self._quorum.raft.replied(correlation, answer, now)
        self._quorum.turned(now)


def quorum_setup(settings: BrokerSettings, directory_id: Uuid, links: Links) -> QuorumSetup:
    """The voters are those of the settings, this node alone, or none: then the log or a bootstrap snapshot
    names them. `directory_id` is that of the metadata log.
    """
    own = NodeId(settings.node_id)
    # A listener that is not advertised is reached where it listens.
    reached = {one.name: one for one in (*settings.listeners, *settings.advertised_listeners)}
    endpoints = tuple(
        VoterEndpoint(name, reached[name].host or "localhost", reached[name].port)
        for name in settings.controller_listener_names
        if name in reached
    )
    named = settings.quorum.voters
    listener = next(iter(settings.controller_listener_names), "CONTROLLER")
    voters = VoterSet(
        {NodeId(one.node_id): ZERO_UUID for one in named},  # their directories are not known
        {NodeId(one.node_id): (VoterEndpoint(listener, one.host, one.port),) for one in named},
    )
    kraft_version = int(settings.is_alone and not named)
    if settings.is_alone:
        voters = VoterSet({own: directory_id}, {own: endpoints})
    quorum = settings.quorum
    config = QuorumConfig(
        election_timeout_us=quorum.election_timeout_ms * 1000,
        fetch_timeout_us=quorum.fetch_timeout_ms * 1000,
        request_timeout_us=quorum.request_timeout_ms * 1000,
        backoff_us_max=quorum.election_backoff_ms_max * 1000,
        retry_us=quorum.retry_backoff_ms * 1000,
        fetch_bytes_max=quorum.fetch_bytes_max,
        snapshot_bytes_max=quorum.fetch_snapshot_bytes_max,
        is_joining=quorum.auto_join_enable and CONTROLLER in settings.process_roles,
    )
    bootstrap = tuple(Endpoint(host, port) for host, port in quorum.bootstrap_servers)
    port = RaftLinks(links, timeout_us=config.request_timeout_us)
    return QuorumSetup(voters, endpoints, bootstrap, port, config, kraft_version)
