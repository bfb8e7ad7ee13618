"""The page of nodes, in front of three of them: states, what is left, and moves that are cancelled."""

from collections.abc import Iterator

import pytest

import sparklog
from sparklog import Producer
from sparklog.client.admin.admin import Admin
from sparklog.client.admin.cluster import Node
from sparklog.client.admin.configs import ConfigChange, ConfigResource
from sparklog.client.admin.topics import NewTopic, Partition
from sparklog.local_broker import EmbeddedBroker
from sparklog.model import LeaderEpoch, NodeId, TopicPartition
from sparklog_server.console.ask import Console
from sparklog_server.console.clusters import Target
from sparklog_server.console.pages.nodes import left_by_node, node_rows
from sparklog_server.operations.moves import ClusterFacts
from tests.console import story
from tests.console.browser import Browser, browsing


@pytest.fixture(scope="module")
def three() -> Iterator[EmbeddedBroker]:
    with sparklog.embedded(nodes=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def pages(three: EmbeddedBroker) -> Iterator[Browser]:
    with browsing(Console(Target({"bootstrap.servers": three.bootstrap_servers}))) as browser:
        yield browser


@pytest.fixture(scope="module")
def topic(three: EmbeddedBroker) -> str:
    with Admin(bootstrap_servers=three.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("wide", assignment=[(3, 1, 2)])])
    return "wide"


def test_a_node_is_cordoned_drained_and_activated(pages: Browser) -> None:
    assert "Node 2 is cordoned: it gets no new replicas." in pages.post("/nodes", node="2", act="cordon").text
    assert pages.post("/nodes", node="2", act="drain").text.count("drained") >= 2
    assert "Node 2 is active" in pages.post("/nodes", node="2", act="activate").text


def test_a_node_is_decommissioned_after_a_tick_and_what_is_left_says_why(pages: Browser, topic: str) -> None:
    assert "tick that all replicas" in pages.post("/nodes", 400, node="3", act="decommission").text
    pages.post("/nodes", node="3", act="decommission", sure="1")
    story.seen(pages, "/nodes", f"{topic} 0 no room elsewhere: a replication factor of 3 needs 3 open nodes")
    assert "Node 3 is active" in pages.post("/nodes", node="3", act="activate").text
    story.seen(pages, "/nodes", "no room elsewhere", is_there=False)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"node": "9", "act": "drain"}, "no node 9; the cluster has 1,2,3"),
        ({"node": "x", "act": "drain"}, "'x' is no node id"),
        ({"node": "1", "act": "explode"}, "choose one of the buttons"),
    ],
)
def test_a_state_that_cannot_be_asked_is_refused(pages: Browser, fields: dict[str, str], reason: str) -> None:
    assert reason in pages.post("/nodes", 400, **fields).text


def test_a_move_that_does_not_go_on_is_not_there_to_be_cancelled(pages: Browser, topic: str) -> None:
    assert "0 reassignments cancelled" in pages.post("/nodes/cancel").text
    assert "NO_REASSIGNMENT_IN_PROGRESS" in pages.post(f"/nodes/cancel?topic={topic}&partition=0", 400).text
    assert "is no partition" in pages.post("/nodes/cancel?topic=wide&partition=x", 400).text


def test_a_move_in_progress_is_shown_with_what_it_waits_for_and_cancelled(
    pages: Browser, three: EmbeddedBroker
) -> None:
    with Admin(bootstrap_servers=three.bootstrap_servers) as admin:
        settings = {"leader.replication.throttled.replicas": "*"}
        admin.create_topics([NewTopic("held", assignment=[(1, 2)], configs=settings)])
        with Producer(bootstrap_servers=three.bootstrap_servers) as producer:
            producer.send("held", bytes(10_000), partition=0)
        cluster_wide, rate = ConfigResource("broker", ""), "leader.replication.throttled.rate"
        admin.alter_configs({cluster_wide: [ConfigChange(rate, "0")]})
        try:
            admin.alter_reassignments({TopicPartition("held", 0): [1, 3]})
            story.seen(
                pages,
                "/nodes",
                "held 0 1, 3 3 2 9.8\u202fKiB a new replica has not caught up: node 3 is less than",
            )
            told = pages.post("/nodes/cancel?topic=held&partition=0").text
            assert "1 reassignment cancelled." in told
            assert not admin.list_reassignments()
        finally:
            admin.alter_configs({cluster_wide: [ConfigChange(rate, operation="delete")]})


def test_a_node_that_only_partitions_list_is_shown_and_what_is_left_is_one_line() -> None:
    nodes = (Node(NodeId(1), "h", 9092), Node(NodeId(2), "h", 9093))
    at = TopicPartition("t", 0)
    both = Partition(0, NodeId(1), LeaderEpoch(0), (NodeId(1), NodeId(3)), (NodeId(1),))
    states = {NodeId(1): "drained", NodeId(2): "decommissioned", NodeId(3): "decommissioned"}
    facts = ClusterFacts(nodes, states, {at: both}, {}, {})
    rows = node_rows(facts, left_by_node(facts))
    assert [(row.node, row.is_registered, row.leaders, row.replicas) for row in rows] == [
        (1, True, 1, 1),
        (2, True, 0, 0),
        (3, False, 0, 1),
    ]
    assert [row.left for row in rows] == [
        "1 leadership left; 1 cannot leave",
        "it has no replicas: the cluster forgets it once it has stopped",
        "1 replica left; 1 cannot leave",
    ]


def test_the_only_node_is_not_drained(browser: Browser) -> None:
    refused = browser.post("/nodes", 400, node="1", act="drain")
    assert "no other node would take replicas and leaderships" in refused.text
