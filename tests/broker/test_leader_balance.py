"""Leaderships of a cluster return to the preferred replicas."""

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from tests.broker.clusters import Cluster


def test_a_killed_leader_leads_again_after_the_next_check_of_the_balance() -> None:
    cluster = Cluster(leader_imbalance_check_interval_seconds="20").start()
    cluster.run_until(lambda: cluster.is_ready and cluster.leader is not None)
    cluster.run_until(lambda: all(len(one.image.brokers) == 3 for one in cluster.quorums))
    assert cluster.create(cluster.nodes[NodeId(1)], "t", replicas=3) == ErrorCode.NONE
    cluster.run_until(lambda: cluster.leading() is not None)
    preferred = cluster.leading()
    assert preferred is not None
    node = cluster.nodes[NodeId(preferred)]
    node.kill(is_power_cut=False)
    cluster.run_until(lambda: cluster.leading() is not None)
    node.start()
    cluster.run_until(lambda: cluster.isr() == {1, 2, 3})
    assert cluster.leading() != preferred
    assert cluster.run_until(lambda: cluster.leading() == preferred, 41_000) > 0
    assert cluster.write(b"x") == ErrorCode.NONE
