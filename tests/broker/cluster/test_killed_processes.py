"""All brokers of a cluster die at once: killed, they have every record; without power, as in Kafka
(docs/decisions/0018).
"""

from random import Random

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, TopicPartition, Uuid
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest
from sparklog_server.broker.opening.directories import registration
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.log.directory.identity import BOOT_FILE
from sparklog_server.log.directory.log_dir import LogDir
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.simulation.disk import SimulatedDisk
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


FIRST, SECOND, THIRD = (Uuid(bytes([number]) * 16) for number in (1, 2, 3))


def claimed(disk: SimulatedDisk, incarnation: Uuid) -> tuple[list[LogDir], BrokerRegistrationRequest]:
    """A process with two data directories, and its registration, of which the directories are told."""
    disk.restart()
    settings = BrokerSettings.of({"log.dirs": "/a,/b"})
    log_dirs = [
        LogDir.claim(disk, path, node_id=NodeId(1), cluster_id=None, entropy=Random(path).randbytes)
        for path in settings.log_dirs
    ]
    request = registration(settings, log_dirs, "c", incarnation_id=incarnation)
    return log_dirs, request


def told(log_dirs: list[LogDir], request: BrokerRegistrationRequest) -> None:
    for log_dir in log_dirs:
        log_dir.registers(Uuid(request.incarnation_id))


def registered(disk: SimulatedDisk) -> None:
    """The first process is registered with the epoch 17."""
    log_dirs, _ = claimed(disk, FIRST)
    for log_dir in log_dirs:
        log_dir.registered(17)


def test_a_process_continues_the_incarnation_that_was_killed_before_it_knew_its_epoch() -> None:
    registered(disk := SimulatedDisk())
    told(*claimed(disk, SECOND))
    _, again = claimed(disk, THIRD)
    assert (again.incarnation_id, again.previous_broker_epoch) == (SECOND, 17)


def test_an_incarnation_of_which_not_every_directory_was_told_was_never_sent() -> None:
    registered(disk := SimulatedDisk())
    log_dirs, request = claimed(disk, SECOND)
    told(log_dirs[:1], request)
    _, again = claimed(disk, THIRD)
    assert (again.incarnation_id, again.previous_broker_epoch) == (THIRD, 17)


def test_no_incarnation_is_continued_after_a_failure_of_a_disk_or_a_loss_of_power() -> None:
    registered(disk := SimulatedDisk())
    log_dirs, request = claimed(disk, SECOND)
    told(log_dirs, request)
    log_dirs[1].failed()
    _, again = claimed(disk, THIRD)
    assert (again.incarnation_id, again.previous_broker_epoch) == (THIRD, -1)
    registered(disk)
    told(*claimed(disk, SECOND))
    disk.crash(Random(0))
    _, again = claimed(disk, THIRD)
    assert (again.incarnation_id, again.previous_broker_epoch) == (THIRD, -1)
