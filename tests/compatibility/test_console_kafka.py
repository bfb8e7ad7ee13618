"""The pages of the console in front of a real Kafka: the same acts as in front of our broker."""

from collections.abc import Iterator

import pytest

from sparklog.client.admin.admin import Admin
from sparklog_server.console.ask import Console
from sparklog_server.console.clusters import Target
from tests.compatibility.kafka_broker import RealKafka
from tests.console import story
from tests.console.browser import Browser, browsing

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    kafka = RealKafka(tmp_path_factory.mktemp("kafka"))
    with kafka.running(is_killed=True):
        yield kafka.bootstrap_servers


@pytest.fixture(scope="module")
def browser(servers: str) -> Iterator[Browser]:
    with browsing(Console(Target({"bootstrap.servers": servers}))) as browser:
        yield browser


def test_topics(browser: Browser) -> None:
    story.topics(browser)


def test_records(browser: Browser) -> None:
    story.records(browser)


def test_groups(browser: Browser, servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        story.groups(browser, admin)


def test_transactions(browser: Browser, servers: str) -> None:
    story.transactions(browser, servers)


def test_quotas(browser: Browser) -> None:
    story.quotas(browser)


def test_users(browser: Browser) -> None:
    story.users(browser)


def test_overview_settings_and_quorum(browser: Browser) -> None:
    story.cluster(browser)


def test_a_cluster_without_an_authorizer_says_so(browser: Browser) -> None:
    assert "every client may do everything" in browser.get("/acls").text


def test_nodes_have_no_states_and_no_buttons(browser: Browser) -> None:
    page = browser.get("/nodes")
    assert "No partition is being reassigned." in page.text
    assert page.fields("/nodes") == []
    browser.post("/nodes", 400, node="1", act="drain")
