"""A log directory of one broker of three fails: the controller is told, leaderships move, and clients learn
which replicas are offline.
"""

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, TopicPartition
from sparklog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog_server.metadata.entries import PartitionImage
from tests.broker.clusters import Cluster
from tests.broker.world import FETCH_BY_NAME, fetch

PARTITIONS = 6
NODES = (1, 2, 3)


def filled() -> Cluster:
    """Three brokers with two data directories each, and six partitions on all of them with a record each."""
    cluster = Cluster(log_dirs="/data,/more", metadata_log_dir="/data", min_insync_replicas="2")
    cluster.start()
    cluster.run_until(lambda: cluster.is_ready and cluster.leader is not None)
    cluster.run_until(lambda: all(len(one.image.brokers) == 3 for one in cluster.quorums))
    assert cluster.create(cluster.nodes[NodeId(1)], "t", PARTITIONS, 3) == ErrorCode.NONE
    for index in range(PARTITIONS):
        cluster.run_until(lambda index=index: cluster.leading("t", index) is not None)
        assert cluster.write(b"x", partition=index) == ErrorCode.NONE
    return cluster


def partition(cluster: Cluster, index: int) -> PartitionImage:
    image = max((one.image for one in cluster.quorums), key=lambda one: one.offset)
    found = image.partition(TopicPartition("t", index))
    assert found is not None
    return found


def offline(cluster: Cluster, node: int) -> list[list[int]]:
    """The offline replicas of each partition in Metadata and DescribeTopicPartitions of a node."""
    client = cluster.nodes[NodeId(node)].connect()
    client.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12, MetadataResponse)
    described = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
    client.send(described, 0, DescribeTopicPartitionsResponse)
    cluster.run_until(lambda: len(client.replies) == 2)
    metadata, description = client.replies
    assert isinstance(metadata, MetadataResponse)
    assert isinstance(description, DescribeTopicPartitionsResponse)
    told = [sorted(part.offline_replicas) for part in metadata.topics[0].partitions]
    assert [sorted(part.offline_replicas) for part in description.topics[0].partitions] == told
    return told


def test_the_replicas_in_a_failed_directory_are_offline_and_others_lead() -> None:
    cluster = filled()
    node = cluster.nodes[NodeId(1)]
    lying = [index for index in range(PARTITIONS) if node.disk.list(f"/more/t-{index}")]
    assert len(lying) == PARTITIONS // 2
    assert any(partition(cluster, index).leader == 1 for index in lying)
    led = [index for index in range(PARTITIONS) if partition(cluster, index).leader == 1]
    node.disk.fault = lambda call, path: "I/O error" if path.startswith("/more/") and call != "read" else None
    failed_us = cluster.clock.now.mono_us
    for index in lying:
        assert cluster.write(b"y", partition=index) in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
    cluster.run_until(lambda: all(1 not in partition(cluster, index).isr for index in lying))
    cluster.run(200)
    for other in NODES:
        assert offline(cluster, other) == [[1] if index in lying else [] for index in range(PARTITIONS)]
    for index in range(PARTITIONS):
        assert cluster.write(b"z", partition=index) == ErrorCode.NONE
        leader = cluster.leading("t", index)
        assert (leader == 1) == (index in led and index not in lying)
        assert leader is not None
        values = cluster.values(leader, "t", index)
        assert values[0] == b"x"
        assert values[-1] == b"z"
    assert cluster.clock.now.mono_us - failed_us < 2_000_000, "the high watermark waits for a failed replica"
    node.kill(is_power_cut=False)
    node.disk.fault = None
    node.start()
    cluster.run_until(lambda: all(len(partition(cluster, index).isr) == 3 for index in range(PARTITIONS)))
    cluster.run(200)
    assert offline(cluster, 2) == [[]] * PARTITIONS


def test_another_replica_leads_a_partition_whose_file_its_leader_cannot_read() -> None:
    cluster = filled()
    led = [index for index in range(PARTITIONS) if partition(cluster, index).leader == 1]
    unreadable, *readable = led
    node = cluster.nodes[NodeId(1)]
    directory = next(one for one in ("/data", "/more") if node.disk.list(f"{one}/t-{unreadable}"))
    before = partition(cluster, unreadable).directory_of(NodeId(1))
    node.disk.fault = lambda call, path: (
        "I/O error" if call == "read" and path.startswith(f"{directory}/t-{unreadable}/") else None
    )
    node.connect().send(fetch("t", 0, partition=unreadable, max_wait_ms=0), FETCH_BY_NAME, FetchResponse)
    cluster.run_until(lambda: partition(cluster, unreadable).leader not in (1, -1))
    cluster.run(200)
    assert cluster.write(b"z", partition=unreadable) == ErrorCode.NONE
    assert [partition(cluster, index).leader for index in readable] == [1] * len(readable)
    for other in NODES:
        assert offline(cluster, other) == [[1] if index == unreadable else [] for index in range(PARTITIONS)]
    node.kill(is_power_cut=False)
    node.disk.fault = None
    node.start()
    cluster.run_until(lambda: len(partition(cluster, unreadable).isr) == 3)
    assert partition(cluster, unreadable).directory_of(NodeId(1)) == before
    cluster.run_until(lambda: cluster.values(1, "t", unreadable) == [b"x", b"z"])
