"""`sparklog cluster status`: what each node is said to be."""

import pytest

from sparklog.client.admin.cluster import Cluster, Node, Quorum, QuorumEndpoint, QuorumReplica
from sparklog.client.admin.topics import Partition, Topic
from sparklog.local_broker import EmbeddedBroker
from sparklog.model import ZERO_UUID, LeaderEpoch, NodeId, Offset
from sparklog_server.cli.cluster_status import NodeStatus, leaving_text, statuses
from tests.cli.conftest import Tell

NOW_MS = 1_000_000


def replica(node: int, end: int, *, fetched_ms_ago: int = 100) -> QuorumReplica:
    fetched_ms = NOW_MS - fetched_ms_ago
    return QuorumReplica(NodeId(node), Offset(end), fetched_ms, fetched_ms)


def topic(*leaders: int) -> Topic:
    partitions = tuple(
        Partition(number, NodeId(leader), LeaderEpoch(0), (NodeId(abs(leader)),), (NodeId(abs(leader)),))
        for number, leader in enumerate(leaders)
    )
    return Topic("t", ZERO_UUID, False, partitions)


def brokers(*fenced: int) -> Cluster:
    nodes = tuple(
        Node(NodeId(node), "127.0.0.1", 9091 + node, is_fenced=node in fenced) for node in (1, 2, 3)
    )
    return Cluster("c", NodeId(1), nodes)


def quorum(*voters: QuorumReplica, observers: tuple[QuorumReplica, ...] = ()) -> Quorum:
    return Quorum(NodeId(1), LeaderEpoch(3), Offset(50), voters, observers)


def test_three_nodes_that_serve_are_ok() -> None:
    told = quorum(replica(1, 50, fetched_ms_ago=0), replica(2, 50), replica(3, 48))
    assert statuses(brokers(), told, [topic(1, 1, 2, 3)]) == [
        NodeStatus(1, "127.0.0.1:9092", ("broker", "controller"), True, "ok", 2, 0, 0, 2),
        NodeStatus(2, "127.0.0.1:9093", ("broker", "controller"), False, "ok", 1, 0, 0, 1),
        NodeStatus(3, "127.0.0.1:9094", ("broker", "controller"), False, "ok", 1, 0, 2, 1),
    ]


@pytest.mark.parametrize(
    ("ago_ms", "state"), [(12_000, "fenced, silent for 12 s"), (NOW_MS + 1, "fenced, never heard")]
)
def test_a_dead_node_is_fenced_and_silent_and_its_partitions_are_offline(ago_ms: int, state: str) -> None:
    told = quorum(replica(1, 50, fetched_ms_ago=0), replica(2, 50), replica(3, 30, fetched_ms_ago=ago_ms))
    third = statuses(brokers(3), told, [topic(1, 2, -3, -3)])[2]
    assert (third.state, third.leaders, third.offline, third.lag) == (state, 0, 2, 20)


def test_brokers_that_joined_are_observers_and_a_lone_controller_has_its_own_row() -> None:
    told = quorum(replica(1, 50, fetched_ms_ago=0), observers=(replica(2, 50), replica(3, -1)))
    assert [(row.roles, row.lag) for row in statuses(brokers(), told, [])] == [
        (("broker", "controller"), 0),
        (("broker",), 0),
        (("broker",), None),
    ]
    alone = Quorum(
        NodeId(9),
        LeaderEpoch(3),
        Offset(50),
        (replica(9, 50),),
        (),
        (QuorumEndpoint(NodeId(9), "CONTROLLER", "127.0.0.1", 9999),),
    )
    last = statuses(brokers(), alone, [])[-1]
    assert (last.node, last.address, last.roles) == (9, "127.0.0.1:9999", ("controller",))


def test_brokers_are_shown_without_a_quorum() -> None:
    assert [(row.state, row.lag, row.is_leader) for row in statuses(brokers(2), None, [])] == [
        ("ok", None, False),
        ("fenced", None, False),
        ("ok", None, False),
    ]


def test_a_node_that_is_left_alone_says_what_is_left_on_it() -> None:
    asked = {NodeId(1): "drained", NodeId(2): "decommissioned", NodeId(3): "cordoned"}
    rows = statuses(brokers(), None, [topic(1, 2, 2)], asked)
    assert [(row.state, row.replicas, row.asked) for row in rows] == [
        ("ok", 1, "drained"),
        ("ok", 2, "decommissioned"),
        ("ok", 0, "cordoned"),
    ]
    assert [leaving_text(row) for row in rows] == [
        "Node 1 is drained. 1 leaderships are left: `sparklog cluster drain 1` shows why.",
        "Node 2 is decommissioned, 2 replicas are left: `sparklog cluster decommission 2` shows why.",
        "Node 3 is cordoned: it gets no new replicas.",
    ]
    empty = statuses(brokers(), None, [], asked | {NodeId(3): "active"})
    assert [leaving_text(row) for row in empty] == [
        "Node 1 is drained.",
        "Node 2 is decommissioned and has no replicas: stop it.",
        None,
    ]


def test_one_node_is_a_table_of_one_row(tell: Tell, shared_broker: EmbeddedBroker) -> None:
    told = tell("cluster", "status")
    head, row = told.rows
    assert (told.code, head[0], head[2:5]) == (0, "cluster", ["nodes=1", "voters=1", "leader=1"])
    assert row[:5] == ["1", shared_broker.bootstrap_servers, "broker,controller", "leader", "ok"]
    assert (row[6:8], row[9]) == (["0", "0"], "active")
    answer = tell("cluster", "status", "--json").json
    assert sorted(answer) == [
        "cluster_id",
        "due_leaders",
        "leader",
        "nodes",
        "offline_partitions",
        "partitions",
        "reassignments",
        "voters",
    ]
    assert sorted(answer["nodes"][0]) == sorted(NodeStatus._fields)
