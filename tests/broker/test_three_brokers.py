"""Three brokers that make one cluster: one image, whoever leads, and commands at any node."""

from sparklog.errors import ErrorCode
from sparklog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from sparklog_server.simulation.cluster import SimulatedNode
from tests.broker.clusters import Cluster


def formed(**given: str) -> tuple[Cluster, SimulatedNode]:
    cluster = Cluster(**given).start()
    cluster.run_until(lambda: cluster.leader is not None and cluster.is_ready)
    assert cluster.leader is not None
    return cluster, cluster.leader


def topics(node: SimulatedNode) -> set[str]:
    return set(node.running._quorum.image.topics_by_name)


def test_three_brokers_elect_one_and_are_ready() -> None:
    cluster, _ = formed()
    assert sum(quorum.is_leader for quorum in cluster.quorums) == 1
    cluster.run_until(lambda: all(len(quorum.image.brokers) == 3 for quorum in cluster.quorums))
    cluster.run_until(
        lambda: all(not one.is_fenced for quorum in cluster.quorums for one in quorum.image.brokers.values())
    )


def test_a_topic_that_any_node_creates_shows_on_all() -> None:
    cluster, _ = formed()
    for number, node in cluster.nodes.items():
        assert cluster.create(node, f"t{number}", 3) == ErrorCode.NONE
    cluster.run_until(lambda: all(topics(node) == {"t1", "t2", "t3"} for node in cluster.nodes.values()))


def test_another_node_takes_over_when_the_leader_is_killed() -> None:
    cluster, leader = formed()
    assert cluster.create(leader, "before") == ErrorCode.NONE
    leader.kill()
    assert cluster.run_until(lambda: cluster.leader is not None, 500) < 500
    other = cluster.others(leader)[0]
    assert cluster.create(other, "after") == ErrorCode.NONE
    leader.start()
    cluster.run_until(lambda: all(topics(node) == {"before", "after"} for node in cluster.nodes.values()))
    cluster.run_until(lambda: cluster.is_ready)
    cluster.run_until(lambda: len({quorum.image.offset for quorum in cluster.quorums}) == 1)


def test_a_broker_that_is_no_voter_follows() -> None:
    cluster = Cluster(count=3, voters=1).start()
    cluster.run_until(lambda: cluster.is_ready)
    assert cluster.create(cluster.nodes[3], "t") == ErrorCode.NONE
    cluster.run_until(lambda: all(topics(node) == {"t"} for node in cluster.nodes.values()))


def test_every_node_describes_the_quorum() -> None:
    cluster, leader = formed()
    told = [DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])]
    for node in cluster.nodes.values():
        client = node.connect()
        client.send(DescribeQuorumRequest(topics=told), 2, DescribeQuorumResponse)
        cluster.run_until(lambda replies=client.replies: bool(replies))
        answer = client.replies[0]
        assert isinstance(answer, DescribeQuorumResponse)
        part = answer.topics[0].partitions[0]
        assert part.leader_id == leader.running._quorum.raft.leader_id
        assert [voter.replica_id for voter in part.current_voters] == [1, 2, 3]
        assert [one.listeners[0].host for one in answer.nodes] == [
            "127.0.0.1",
            "127.0.0.2",
            "127.0.0.3",
        ]
