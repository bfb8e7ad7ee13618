"""Leaderships of a cluster return to the preferred replicas."""

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from tests.broker.clusters import Cluster


def killed_and_in_sync_again(**given: str) -> tuple[Cluster, NodeId]:
    """A cluster whose preferred leader was killed and has come back; its number."""
    cluster = Cluster(**given).start()
    cluster.run_until(lambda: cluster.is_ready and cluster.leader is not None)
    cluster.run_until(lambda: all(len(one.image.brokers) == 3 for one in cluster.quorums))
    assert cluster.create(cluster.nodes[NodeId(1)], "t", replicas=3) == ErrorCode.NONE
    cluster.run_until(lambda: cluster.leading() is not None)
    preferred = NodeId(cluster.leading() or 0)
    node = cluster.nodes[preferred]
    node.kill(is_power_cut=False)
    cluster.run_until(lambda: cluster.leading() not in (None, preferred))
    node.start()
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3})
    assert cluster.leading() != preferred
    return cluster, preferred


def test_leadership_returns_within_seconds_of_the_preferred_replica_being_in_sync() -> None:
    cluster, preferred = killed_and_in_sync_again()
    assert cluster.run_until(lambda: cluster.leading() == preferred, 6_000) > 0
    assert cluster.write(b"x") == ErrorCode.NONE


def test_leadership_stays_where_the_balance_is_off() -> None:
    cluster, preferred = killed_and_in_sync_again(auto_leader_rebalance_enable="false")
    cluster.run(8_000)
    assert cluster.leading() not in (None, preferred)
