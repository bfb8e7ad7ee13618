"""What keeps a rolling restart from its next node."""

from sparklog.client.admin.cluster import Cluster, Node, Quorum, QuorumReplica
from sparklog.client.admin.topics import Partition
from sparklog.model import LeaderEpoch, NodeId, Offset, TopicPartition
from sparklog_server.operations.rolling import NO_FAULTS, Facts, alone_on, faults_of

NOW_MS = 1_000_000


def replica(node: int, *, caught_up_ms_ago: int = 100) -> QuorumReplica:
    return QuorumReplica(NodeId(node), Offset(50), NOW_MS, NOW_MS - caught_up_ms_ago)


def partition(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> Partition:
    return Partition(0, NodeId(leader), LeaderEpoch(0), tuple(map(NodeId, replicas)), tuple(map(NodeId, isr)))


def facts(
    *partitions: Partition, fenced: tuple[int, ...] = (), behind: tuple[int, ...] = (), adding: int = 0
) -> Facts:
    nodes = tuple(Node(NodeId(node), "h", 9092, is_fenced=node in fenced) for node in (1, 2, 3))
    voters = tuple(replica(node, caught_up_ms_ago=60_000 if node in behind else 100) for node in (1, 2, 3))
    named = {TopicPartition("t", number): one for number, one in enumerate(partitions)}
    moving = frozenset((at, NodeId(adding)) for at in named) if adding else frozenset()
    quorum = Quorum(NodeId(1), LeaderEpoch(1), Offset(50), voters, ())
    return Facts(Cluster("c", NodeId(1), nodes), named, quorum, moving)


def test_a_whole_cluster_has_no_faults() -> None:
    found = faults_of(facts(partition(1, (1, 2, 3), (1, 2, 3)), partition(3, (2, 3), (3, 2))))
    assert found == NO_FAULTS
    assert found.reasons() == []


def test_each_kind_of_fault_is_one_line_that_names_what_it_is_about() -> None:
    found = faults_of(
        facts(
            *(partition(1, (1, 2, 3), (1,)) for _ in range(5)),
            partition(-1, (3,), (3,)),
            fenced=(3,),
            behind=(2, 3),
        )
    )
    assert found.reasons() == [
        "node 3 is not in service: it is fenced",
        "node 2 is behind in the metadata log",
        "1 partition has no leader: t:5",
        "5 partitions have a replica on node 2 that is not in sync: t:0, t:1, t:2 and 2 more",
    ]


def test_faults_that_are_known_are_not_waited_for() -> None:
    before = faults_of(facts(partition(1, (1, 2, 3), (1, 3))))
    after = faults_of(facts(partition(1, (1, 2, 3), (1,))))
    assert after.without(before).reasons() == ["1 partition has a replica on node 3 that is not in sync: t:0"]


def test_a_replica_that_a_reassignment_adds_is_not_waited_for() -> None:
    assert faults_of(facts(partition(1, (1, 2, 3), (1, 2)), adding=3)) == NO_FAULTS


def test_every_node_must_have_caught_up_since_the_node_returned() -> None:
    whole = facts(partition(1, (1, 2), (1, 2)))
    assert faults_of(whole, since_ms=NOW_MS - 100) == NO_FAULTS
    assert faults_of(whole, since_ms=NOW_MS).behind == {2, 3}


def test_partitions_with_one_replica_are_offline_while_its_node_restarts() -> None:
    found = facts(partition(1, (1, 2), (1, 2)), partition(3, (3,), (3,)))
    assert alone_on(found, [1, 2, 3]) == [TopicPartition("t", 1)]
    assert alone_on(found, [1, 2]) == []
