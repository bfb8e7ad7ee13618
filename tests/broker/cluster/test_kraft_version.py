"""kraft.version of a cluster of three: raised by UpdateFeatures, told by ApiVersions."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from sparklog_server.simulation.cluster import SimulatedNode
from tests.broker.clusters import Cluster


def raised(cluster: Cluster, node: SimulatedNode) -> UpdateFeaturesResponse:
    """Raise kraft.version by a client of `node`."""
    client = node.connect()
    updates = [FeatureUpdateKey("kraft.version", 1, upgrade_type=1)]
    client.send(UpdateFeaturesRequest(feature_updates=updates), 2, UpdateFeaturesResponse)
    cluster.run_until(lambda: bool(client.replies))
    answer = client.replies[0]
    assert isinstance(answer, UpdateFeaturesResponse)
    return answer


def told(cluster: Cluster, node: SimulatedNode) -> dict[str, int]:
    """The finalized features that a node tells its clients."""
    client = node.connect()
    client.send(ApiVersionsRequest("a-client", "1"), 4, ApiVersionsResponse)
    cluster.run_until(lambda: bool(client.replies))
    answer = client.replies[0]
    assert isinstance(answer, ApiVersionsResponse)
    return {feature.name: feature.max_version_level for feature in answer.finalized_features}


def registered(cluster: Cluster, count: int = 3) -> bool:
    return cluster.is_ready and all(len(quorum.image.controllers) == count for quorum in cluster.quorums)


@pytest.mark.parametrize("seed", range(3))
def test_any_node_raises_the_level_of_a_quorum_with_static_voters(seed: int) -> None:
    cluster = Cluster(seed).start()
    cluster.run_until(lambda: registered(cluster))
    for node in cluster.nodes.values():
        assert "kraft.version" not in told(cluster, node)
    assert raised(cluster, cluster.nodes[min(cluster.nodes)]).error_code == ErrorCode.NONE
    cluster.run_until(lambda: all(quorum.kraft_version == 1 for quorum in cluster.quorums))
    for node in cluster.nodes.values():
        assert told(cluster, node)["kraft.version"] == 1
    (voters,) = {str(quorum.raft.state.voters) for quorum in cluster.quorums}
    for quorum in cluster.quorums:
        state = quorum.raft.state
        assert state.voters.directories[state.me.node_id] == quorum.directory_id != ZERO_UUID
        assert state.is_voter
    assert cluster.leader is not None
    cluster.leader.kill()
    cluster.run_until(lambda: cluster.leader is not None)
    for node in cluster.nodes.values():
        if node.broker is None:
            node.start()
    cluster.run_until(lambda: registered(cluster))
    assert {str(quorum.raft.state.voters) for quorum in cluster.quorums} == {voters}
    assert cluster.create(cluster.others(cluster.leader or node)[0], "after") == ErrorCode.NONE


def test_a_level_with_a_voter_that_has_never_registered_is_refused() -> None:
    cluster = Cluster()
    first, second, _ = cluster.nodes.values()
    first.start()
    second.start()
    cluster.run_until(lambda: registered(cluster, 2))
    answer = raised(cluster, first)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "controller 3 has not registered" in (answer.error_message or "")


def test_a_level_with_a_voter_that_has_not_fetched_from_the_leader_is_refused() -> None:
    cluster = Cluster().start()
    cluster.run_until(lambda: registered(cluster))
    leader = cluster.leader
    assert leader is not None
    one, other = cluster.others(leader)
    one.kill()
    leader.kill()
    leader.start()
    cluster.run_until(lambda: cluster.leader is not None and cluster.is_ready)
    answer = raised(cluster, other)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "it has not fetched from this leader" in (answer.error_message or "")
    one.start()
    cluster.run_until(lambda: registered(cluster))
    cluster.run(1000)
    assert raised(cluster, other).error_code == ErrorCode.NONE
