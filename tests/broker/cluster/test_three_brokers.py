"""Three brokers that make one cluster: one image, whoever leads, and commands at any node."""

from random import Random

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID, Uuid
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
        assert [(voter.replica_id, Uuid(voter.replica_directory_id)) for voter in part.current_voters] == [
            (1, ZERO_UUID),  # static voters are told without their directories, the leader too, as by Kafka
            (2, ZERO_UUID),
            (3, ZERO_UUID),
        ]
        assert [one.listeners[0].host for one in answer.nodes] == [
            "127.0.0.1",
            "127.0.0.2",
            "127.0.0.3",
        ]


@pytest.mark.parametrize("seed", range(6))
def test_images_stay_equal_and_created_topics_stay_through_kills_and_pauses(seed: int) -> None:
    cluster = Cluster(seed, metadata_log_max_record_bytes_between_snapshots="2000").start()
    cluster.run_until(lambda: cluster.leader is not None and cluster.is_ready)
    random = Random(f"{seed} faults")
    created: set[str] = set()
    for number in range(12):
        victim = random.choice(list(cluster.nodes.values()))
        is_paused = random.random() < 0.4
        if is_paused:
            victim.pause()
        else:
            victim.kill(is_power_cut=random.random() < 0.5)
        if cluster.create(random.choice(cluster.others(victim)), f"t{number}") == ErrorCode.NONE:
            created.add(f"t{number}")
        cluster.run(random.randrange(3000))
        if is_paused:
            victim.resume()
        else:
            victim.start()
        cluster.run(random.randrange(1000))
    cluster.run_until(lambda: cluster.is_ready and cluster.leader is not None)
    cluster.run_until(lambda: all(created <= topics(node) for node in cluster.nodes.values()))
    assert len(created) > 6
    assert not any(node.halted for node in cluster.nodes.values())


def test_a_leader_that_stops_resigns_and_is_followed_at_once() -> None:
    cluster, leader = formed()
    leader.begin_stop()
    stopping = leader.running
    cluster.run_until(lambda: stopping.is_stopped, 5000)
    assert cluster.run_until(lambda: any(quorum.is_leader for quorum in cluster.quorums), 300) < 300
    assert cluster.create(cluster.others(leader)[0], "t") == ErrorCode.NONE
