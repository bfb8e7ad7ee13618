"""A node of a cluster recovers its data logs by jobs, while its controller votes and its broker is fenced."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from sparklog.record.batch import build_batch
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.disk.checkpoint import parse_offsets
from sparklog_server.disk.door import StorageError
from sparklog_server.simulation.cluster import SimulatedNode
from tests.broker.clusters import Cluster
from tests.broker.world import (
    ACKS_ALL,
    FETCH_BY_NAME,
    PRODUCE_BY_NAME,
    fetch,
    fetched,
    produce,
    produced,
)

MARK = "/data/.kafka_cleanshutdown"
NEVER_US = (3_600_000_000, 3_600_000_000)


def led(cluster: Cluster, topic: str) -> SimulatedNode:
    [partition] = cluster.quorums[0].image.topics_by_name[topic].partitions
    return cluster.nodes[NodeId(partition.leader if partition.leader >= 0 else partition.replicas[0])]


def append(cluster: Cluster, topic: str, value: bytes) -> int:
    client = led(cluster, topic).connect()
    batch = bytes(build_batch([(None, value, (), cluster.clock.now.wall_ms)]))
    client.send(produce(topic, batch, acks=ACKS_ALL), PRODUCE_BY_NAME, ProduceResponse)
    cluster.run_until(lambda: bool(client.replies))
    return produced(client.replies[0])[0]


def read(cluster: Cluster, topic: str) -> list[bytes]:
    client = led(cluster, topic).connect()
    client.send(fetch(topic, 0), FETCH_BY_NAME, FetchResponse)
    cluster.run_until(lambda: bool(client.replies))
    code, values = fetched(client.replies[0])
    assert code == ErrorCode.NONE
    return values


def filled(**given: str) -> tuple[Cluster, SimulatedNode, SimulatedNode]:
    """A cluster, the node that leads the topic "t" of one record, and another."""
    cluster = Cluster(**given).start()
    cluster.run_until(lambda: cluster.leader is not None and cluster.is_ready)
    assert cluster.create(cluster.nodes[NodeId(1)], "t") == ErrorCode.NONE
    cluster.run_until(lambda: all("t" in quorum.image.topics_by_name for quorum in cluster.quorums))
    node = led(cluster, "t")
    assert append(cluster, "t", b"x") == ErrorCode.NONE
    return cluster, node, cluster.others(node)[0]


def recovering(*, is_clean: bool) -> tuple[Cluster, SimulatedNode, SimulatedNode]:
    """The node of "t" was stopped, and runs again for a second; its jobs do not end."""
    cluster, node, other = filled()
    node.stop() if is_clean else node.kill()
    node.job_delay_us = NEVER_US
    node.start()
    cluster.run(1_000)
    return cluster, node, other


def restarted(cluster: Cluster, node: SimulatedNode) -> None:
    """The node, whose job is under way, is killed and recovers."""
    node.kill()
    node.job_delay_us = (50, 20_000)
    node.start()
    cluster.run_until(lambda: cluster.is_ready and cluster.leading() is not None)


def test_a_node_votes_and_stays_fenced_while_it_recovers() -> None:
    cluster, node, other = recovering(is_clean=False)
    third = next(one for one in cluster.others(node) if one is not other)
    third.kill()
    cluster.run_until(lambda: cluster.leader is not None)
    assert cluster.create(other, "u") == ErrorCode.NONE  # the votes and the log of both were needed
    own = next(number for number, one in cluster.nodes.items() if one is node)
    assert not node.running.is_ready
    assert other.running._quorum.image.brokers[own].is_fenced
    assert "u" in node.running._quorum.image.topics_by_name


def test_topics_of_the_time_of_recovery_are_served_after_it() -> None:
    cluster, node, other = filled()
    node.kill()
    node.job_delay_us = (3_000_000, 3_000_000)
    node.start()
    cluster.run(1_000)
    others = [f"u{number}" for number in range(3)]
    for topic in others:
        assert cluster.create(other, topic) == ErrorCode.NONE
    assert not node.running.is_ready
    cluster.run_until(lambda: node.running.is_ready, 4_000)
    cluster.run(1_000)
    for topic in ("t", *others):
        assert append(cluster, topic, b"y") == ErrorCode.NONE
    assert read(cluster, "t") == [b"x", b"y"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_stop_during_recovery_leaves_the_files_as_they_are(is_clean: bool) -> None:
    cluster, node, _ = recovering(is_clean=is_clean)
    checkpoint = node.disk.read("/data/replication-offset-checkpoint")
    node.begin_stop()
    cluster.run(1_000)
    assert not node.running.is_stopped  # the job has the files
    assert (node.disk.read(MARK) is not None) is is_clean
    assert node.disk.read("/data/replication-offset-checkpoint") == checkpoint
    restarted(cluster, node)
    assert read(cluster, "t") == [b"x"]


def test_a_stop_after_recovery_without_a_controller_keeps_the_high_watermarks() -> None:
    cluster, node, _ = filled()
    assert append(cluster, "t", b"y") == ErrorCode.NONE
    node.stop()
    for one in cluster.others(node):
        one.kill()
    node.start()
    cluster.run(1_000)
    assert not node.running.is_ready
    node.stop()
    checkpoint = node.disk.read("/data/replication-offset-checkpoint")
    assert checkpoint is not None
    assert [(str(at), offset) for at, offset in parse_offsets(checkpoint).items()] == [("t-0", 2)]
    assert node.disk.read(MARK) is not None
    for one in (node, *cluster.others(node)):
        one.start()
    cluster.run_until(lambda: cluster.is_ready and cluster.leading() is not None)
    assert read(cluster, "t") == [b"x", b"y"]


def test_a_disk_that_fails_during_recovery_ends_the_start_of_its_node() -> None:
    cluster, node, _ = filled()
    node.kill()
    node.disk.fault = lambda call, path: "EIO" if call == "list" and path == "/data/t-0" else None
    node.start()
    with pytest.raises(StorageError, match="EIO"):
        cluster.run(1_000)
    node.kill()
    node.disk.fault = None
    restarted(cluster, node)
    assert read(cluster, "t") == [b"x"]


def test_a_second_directory_that_fails_during_recovery_takes_only_its_partitions() -> None:
    cluster, node, other = filled(log_dirs="/data,/more")
    names = [f"u{number}" for number in range(8)]
    for name in names:
        assert cluster.create(other, name) == ErrorCode.NONE
    cluster.run(1_000)
    mine = [name for name in names if led(cluster, name) is node]
    lost = [name for name in mine if f"{name}-0" in node.disk.list("/more")]
    kept = [name for name in mine if name not in lost]
    assert lost
    assert kept
    node.kill()
    node.disk.fault = lambda call, path: "EIO" if call == "list" and path.startswith("/more/u") else None
    node.start()
    cluster.run_until(lambda: node.running.is_ready)
    cluster.run(2_000)
    assert [append(cluster, name, b"y") for name in kept] == [ErrorCode.NONE] * len(kept)
    topics = cluster.quorums[0].image.topics_by_name
    assert [topics[name].partitions[0].leader for name in lost] == [-1] * len(lost)
    assert node.halted is None
