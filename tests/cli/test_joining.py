"""`sparklog start --join`: the settings and the directory of a broker that joins, and what is refused."""

import pytest

from sparklog.client.admin.cluster import Cluster, Node, Quorum, QuorumEndpoint, QuorumReplica
from sparklog.errors import SettingsError
from sparklog.model import LeaderEpoch, NodeId, Offset
from sparklog_server.cli.joining import prepare
from sparklog_server.config.load import Loaded
from sparklog_server.log.directory.identity import DirectoryRefused
from sparklog_server.simulation.disk import SimulatedDisk

CLUSTER_ID = "a-cluster"
DATA = "log.dirs=/data"


def cluster(*nodes: int, cluster_id: str = CLUSTER_ID) -> Cluster:
    return Cluster(cluster_id, NodeId(1), tuple(Node(NodeId(n), "127.0.0.1", 9091 + n) for n in nodes))


def quorum(*observers: int, port: int = 9393) -> Quorum:
    def replica(node: int) -> QuorumReplica:
        return QuorumReplica(NodeId(node), Offset(5), 0, 0)

    endpoint = QuorumEndpoint(NodeId(1), "CTL", "127.0.0.1", port)
    return Quorum(
        NodeId(1), LeaderEpoch(1), Offset(5), (replica(1),), tuple(map(replica, observers)), (endpoint,)
    )


def joined(
    disk: SimulatedDisk, *given: str, of: Cluster | None = None, observers: tuple[int, ...] = ()
) -> Loaded:
    return prepare(
        disk, "127.0.0.1:9092", of or cluster(1, *observers), quorum(*observers), None, [DATA, *given]
    )


def test_a_broker_gets_a_free_id_the_cluster_id_and_the_controllers() -> None:
    disk = SimulatedDisk()
    settings = joined(disk, observers=(2, 5)).settings
    assert (settings.node_id, settings.process_roles) == (6, ("broker",))
    assert settings.quorum.bootstrap_servers == (("127.0.0.1", 9393),)
    assert settings.controller_listener_names == ("CTL",)
    meta = disk.read("/data/meta.properties") or b""
    assert {b"cluster.id=a-cluster", b"node.id=6"} <= set(meta.splitlines())
    assert disk.list("/data/__cluster_metadata-0") == []


def test_a_broker_keeps_its_id_when_it_joins_again() -> None:
    disk = SimulatedDisk()
    assert joined(disk).settings.node_id == 2
    assert joined(disk, observers=(2, 3)).settings.node_id == 2


def test_a_broker_may_choose_its_id() -> None:
    assert joined(SimulatedDisk(), "node.id=40").settings.node_id == 40


def test_an_id_in_use_is_refused() -> None:
    with pytest.raises(SettingsError, match="node id 2 is in use in cluster a-cluster"):
        joined(SimulatedDisk(), "node.id=2", observers=(2,))
    with pytest.raises(SettingsError, match="node 1 is a voter"):
        joined(SimulatedDisk(), "node.id=1")


def test_a_directory_of_another_cluster_is_refused() -> None:
    disk = SimulatedDisk()
    joined(disk, of=cluster(1, cluster_id="other"))
    with pytest.raises(
        DirectoryRefused, match=r"belongs to cluster other, but 127\.0\.0\.1:9092 is cluster a"
    ):
        joined(disk)


def test_controllers_without_a_listener_for_nodes_cannot_be_joined() -> None:
    with pytest.raises(SettingsError, match="have no listener for other nodes: add CONTROLLER://"):
        prepare(SimulatedDisk(), "127.0.0.1:9092", cluster(1), quorum(port=9092), None, [DATA])
