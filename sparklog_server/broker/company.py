"""The quorum of a node that has other nodes, as its settings describe it."""

from sparklog.model import ZERO_UUID, NodeId, Uuid
from sparklog.record.control import VoterEndpoint
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.raft.peers import Endpoint
from sparklog_server.raft.quorum_config import QuorumConfig
from sparklog_server.raft.voters import VoterSet

from .links import Links
from .quorum import Company
from .raft_links import RaftLinks


def company_of(settings: BrokerSettings, directory_id: Uuid, links: Links) -> Company:
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
    )
    bootstrap = tuple(Endpoint(host, port) for host, port in quorum.bootstrap_servers)
    port = RaftLinks(links, timeout_us=config.request_timeout_us)
    return Company(voters, endpoints, bootstrap, port, config, kraft_version)
