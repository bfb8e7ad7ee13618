"""The quorum of a node with other nodes, as its settings describe it."""

from sparklog.model import NodeId, Uuid
from sparklog.record.control import VoterEndpoint
from sparklog_server.broker.cluster.links import Links
from sparklog_server.broker.cluster.quorum import QuorumSetup
from sparklog_server.broker.cluster.raft_links import quorum_setup
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.raft.quorum_config import QuorumConfig

DIRECTORY = Uuid(b"D" * 16)
NODE = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,RAFT://127.0.0.1:9093",
    "controller.listener.names": "RAFT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,RAFT:PLAINTEXT",
}


def setup(**given: str) -> QuorumSetup:
    settings = BrokerSettings.of(NODE | {key.replace("_", "."): value for key, value in given.items()})
    return quorum_setup(settings, DIRECTORY, Links([], "a-node"))


def test_a_quorum_has_the_times_and_sizes_of_its_settings() -> None:
    assert setup().config == QuorumConfig()
    given = setup(
        controller_quorum_election_timeout_ms="1",
        controller_quorum_fetch_timeout_ms="2",
        controller_quorum_request_timeout_ms="3",
        controller_quorum_election_backoff_max_ms="4",
        controller_quorum_retry_backoff_ms="5",
        controller_quorum_fetch_max_bytes="6",
        controller_quorum_fetch_snapshot_max_bytes="7",
    )
    assert given.config == QuorumConfig(1000, 2000, 3000, 4000, 5000, 6, 7)


def test_a_node_alone_begins_with_kraft_version_1_and_static_voters_with_0() -> None:
    alone = setup()
    assert alone.kraft_version == 1
    assert alone.voters.directories == {1: DIRECTORY}
    assert alone.voters.endpoints[NodeId(1)] == (VoterEndpoint("RAFT", "127.0.0.1", 9093),)
    static = setup(controller_quorum_voters="1@127.0.0.1:9093,2@b.example:9093")
    assert static.kraft_version == 0
    assert static.voters.endpoints[NodeId(2)] == (VoterEndpoint("RAFT", "b.example", 9093),)
