"""The page of nodes, in front of three of them: states, what is left, and moves that are cancelled."""

from collections.abc import Iterator

import pytest

import sparklog
from sparklog.client.admin.admin import Admin
from sparklog.client.admin.topics import NewTopic
from sparklog.local_broker import EmbeddedBroker
from sparklog_server.console.ask import Console
from sparklog_server.console.clusters import Target
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


def test_the_only_node_is_not_drained(browser: Browser) -> None:
    refused = browser.post("/nodes", 400, node="1", act="drain")
    assert "no other node would take replicas and leaderships" in refused.text
