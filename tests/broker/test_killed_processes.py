"""All brokers of a cluster die at once: killed, they have every record; without power, as in Kafka
(docs/decisions/0018).
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, TopicPartition
from sparklog_server.log.identity import BOOT_FILE
from sparklog_server.metadata.entries import PartitionImage
from tests.broker.clusters import Cluster

BOOT = f"/data/{BOOT_FILE}"


def written(seed: int, **given: str) -> tuple[Cluster, list[bytes]]:
    """A cluster with a partition of three replicas, and the acknowledged values in it."""
    cluster = Cluster(seed, min_insync_replicas="2", **given).start()
    cluster.run_until(lambda: cluster.is_ready and cluster.leader is not None)
    cluster.run_until(lambda: all(len(one.image.brokers) == 3 for one in cluster.quorums))
    assert cluster.create(cluster.nodes[NodeId(1)], "t", replicas=3) == ErrorCode.NONE
    cluster.run_until(lambda: cluster.leading() is not None)
    values = [b"%d" % number for number in range(40)]
    for value in values:
        assert cluster.write(value) == ErrorCode.NONE
    return cluster, values


def partition(cluster: Cluster) -> PartitionImage | None:
    """The partition in the newest image; None before a node has read it."""
    image = max((one.image for one in cluster.quorums), key=lambda one: one.offset)
    return image.partition(TopicPartition("t", 0))


def recoveries(cluster: Cluster) -> int:
    """Start all brokers; returns how many ms the leader was one that recovers from an unclean election."""
    cluster.start()
    passed = 0
    for _ in range(5_000):
        cluster.run(1)
        found = partition(cluster)
        passed += found is not None and found.is_recovering
    found = partition(cluster)
    assert found is not None
    assert not found.is_recovering
    return passed


@pytest.mark.parametrize("seed", range(4))
def test_brokers_that_are_killed_at_once_elect_cleanly_and_have_every_acknowledged_record(seed: int) -> None:
    cluster, values = written(seed)
    for node in cluster.nodes.values():
        node.kill(is_power_cut=False)
    assert recoveries(cluster) == 0
    assert cluster.isr() == {1, 2, 3}
    assert cluster.write(b"last") == ErrorCode.NONE
    leader = cluster.leading()
    assert leader is not None
    assert cluster.values(leader) == [*values, b"last"]


@pytest.mark.parametrize("seed", range(4))
def test_brokers_that_lose_power_at_once_elect_the_last_known_leader_uncleanly(seed: int) -> None:
    cluster, values = written(seed, sparklog_ack_flush="always")
    for node in cluster.nodes.values():
        node.kill(is_power_cut=True)
    assert recoveries(cluster) > 0
    leader = cluster.leading()
    assert leader is not None
    assert cluster.values(leader) == values


def test_brokers_whose_boot_id_is_unknown_elect_the_last_known_leader_uncleanly() -> None:
    cluster, values = written(0)
    for node in cluster.nodes.values():
        node.disk.remove(BOOT)
        node.kill(is_power_cut=False)
    assert recoveries(cluster) > 0
    leader = cluster.leading()
    assert leader is not None
    assert cluster.values(leader) == values


def test_a_broker_whose_disk_failed_does_not_claim_to_have_every_record() -> None:
    cluster, _ = written(0)
    node = cluster.nodes[NodeId(3)]
    assert node.disk.size(BOOT) > 0
    node.disk.fault = lambda call, path: "I/O error" if call == "append" and "/t-0/" in path else None
    cluster.write(b"more")
    cluster.run_until(lambda: node.disk.size(BOOT) == 0)
