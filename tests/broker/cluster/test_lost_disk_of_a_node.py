"""A broker of three comes back with an empty disk: its partitions are lost, and nothing else."""

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from sparklog.record.batch import build_batch
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog_server.simulation.disk import SimulatedDisk
from tests.broker.clusters import CLUSTER_ID, Cluster
from tests.broker.coordinators.test_coordinators_of_nodes import Client

_PARTITIONS = 6


def produce(client: Client, partition: int) -> ErrorCode:
    batch = build_batch([(None, b"v", (), client.cluster.clock.now.wall_ms)])
    data = [PartitionProduceData(index=partition, records=batch)]
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    answer = client.ask(client.leader("t", partition), request, 9, ProduceResponse)
    assert isinstance(answer, ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def test_a_lost_disk_loses_its_partitions_and_nothing_else() -> None:
    cluster = Cluster(count=3, voters=1).start()
    client = Client(cluster)

    def all_are_in_service() -> bool:
        return cluster.is_ready and all(
            [one.is_fenced for one in quorum.image.brokers.values()] == [False] * 3
            for quorum in cluster.quorums
        )

    cluster.run_until(all_are_in_service)
    assert cluster.create(cluster.nodes[NodeId(2)], "t", _PARTITIONS) == ErrorCode.NONE
    cluster.run_until(lambda: all("t" in quorum.image.topics_by_name for quorum in cluster.quorums))
    victim = cluster.nodes[NodeId(3)]
    kept = [index for index in range(_PARTITIONS) if client.leader("t", index) is not victim]
    assert 0 < len(kept) < _PARTITIONS
    for index in range(_PARTITIONS):
        assert produce(client, index) is ErrorCode.NONE

    victim.kill()
    victim.disk = SimulatedDisk()
    victim.disk.make_directory("/data")
    victim.disk.write("/data/meta.properties", f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=3\n".encode())
    victim.start()
    cluster.run_until(all_are_in_service)

    assert [client.end_offset("t", index, 0) for index in kept] == [1] * len(kept)
    assert all(produce(client, index) is ErrorCode.NONE for index in kept)
    assert cluster.create(victim, "u", 3) == ErrorCode.NONE
    cluster.run_until(lambda: len({quorum.image.offset for quorum in cluster.quorums}) == 1)
    assert all({"t", "u"} <= set(quorum.image.topics_by_name) for quorum in cluster.quorums)
    lost = [index for index in range(_PARTITIONS) if index not in kept]
    assert [client.end_offset("t", index, 0) for index in lost] == [0] * len(lost)
    assert all(produce(client, index) is ErrorCode.NONE for index in lost)


def test_a_lost_disk_of_a_leader_loses_no_record_that_other_replicas_have() -> None:
    cluster = Cluster(count=4, voters=1, is_split=True, min_insync_replicas="2").start()
    cluster.run_until(lambda: cluster.is_ready and len(cluster.quorums[0].image.brokers) == 3)
    assert cluster.create(cluster.nodes[NodeId(2)], "t", replicas=3) == ErrorCode.NONE
    cluster.run_until(lambda: cluster.isr() == {2, 3, 4} and cluster.leading() is not None)
    values = [b"%d" % number for number in range(3)]
    for count, value in enumerate(values, 1):
        assert cluster.write(value) == ErrorCode.NONE
        lost = cluster.leading() or 0
        node = cluster.nodes[NodeId(lost)]
        node.kill(is_power_cut=True)
        node.disk.wipe()
        node.disk.make_directory("/data")
        node.disk.write(
            "/data/meta.properties", f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={lost}\n".encode()
        )
        node.start()
        cluster.run_until(
            lambda count=count: (
                cluster.isr() == {2, 3, 4}
                and [one.high_watermark for one in cluster.replicas().values()] == [count] * 3
            ),
            60_000,
        )
    assert [cluster.values(node) for node in (2, 3, 4)] == [values] * 3
