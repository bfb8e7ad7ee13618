"""The main act of each page against a broker of its own."""

import json

import pytest

import sparklog
from sparklog.client.admin import Admin
from sparklog.client.admin_groups import SPARK_METADATA, GroupOffset
from sparklog.client.consumer import Consumer
from sparklog.local_broker import EmbeddedBroker
from sparklog.model import Offset, TopicPartition
from sparklog_server.console.pages import topics as topics_page
from tests.console import story
from tests.console.browser import Browser


def test_topics_are_created_changed_and_deleted_behind_their_name(browser: Browser) -> None:
    story.topics(browser)


def test_records_are_written_browsed_filtered_and_opened(browser: Browser) -> None:
    story.records(browser)


def test_offsets_of_a_group_move_after_a_preview(browser: Browser, admin: Admin) -> None:
    story.groups(browser, admin)


def test_a_producer_is_fenced(browser: Browser, broker: EmbeddedBroker) -> None:
    story.transactions(browser, broker.bootstrap_servers)


def test_quotas_are_set_and_removed(browser: Browser) -> None:
    story.quotas(browser)


def test_users_are_added_and_removed(browser: Browser) -> None:
    story.users(browser)


def test_overview_settings_and_quorum(browser: Browser) -> None:
    story.cluster(browser)


def test_a_group_with_members_is_shown_and_not_moved(
    browser: Browser, broker: EmbeddedBroker, admin: Admin
) -> None:
    admin.create_topics({"busy": 1})
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="members", client_id="reader-7"
    ) as consumer:
        consumer.subscribe(["busy"])
        while not consumer.assignment():
            consumer.poll(50)
        page = browser.get("/group", name="members")
        assert "reader-7" in page.text
        assert "busy-0" in page.text
        refused = browser.post("/group/reset?name=members", 400, offset="busy:0=0")
        assert "stop them" in refused.text


def test_a_group_of_a_spark_query_is_shown_as_such(browser: Browser, admin: Admin) -> None:
    admin.create_topics({"sparked": 1})
    at = GroupOffset(Offset(0), metadata=SPARK_METADATA)
    admin.alter_group_offsets("query", {TopicPartition("sparked", 0): at})
    admin.alter_group_offsets("plain", {TopicPartition("sparked", 0): 0})
    assert "query Spark query" in browser.get("/groups", q="query").text
    assert "Spark" not in browser.get("/groups", q="plain").text
    assert "checkpoint" in browser.get("/group", name="query").text


def test_many_topics_are_paged_and_searched(browser: Browser, admin: Admin) -> None:
    admin.create_topics({f"paged-{number:03}": 1 for number in range(topics_page.PER_PAGE + 3)})
    first, second = browser.get("/topics", q="paged-"), browser.get("/topics", q="paged-", page="2")
    assert "Page 1 of 2" in first.text
    assert "/topics/paged-049" in first.links
    assert "/topics/paged-050" not in first.links
    assert "/topics/paged-052" in second.links
    assert "Page 2 of 2" in browser.get("/topics", q="paged-", page="99999999").text


def test_rates_are_those_of_the_end_offsets(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog_server.console.sampling.EVERY_S", 0.0)
    browser.post("/new-topic", name="rated")
    browser.client.get("/rates", params={"topic": "rated"})
    browser.post("/topics/rated/produce", value="1")
    told = browser.client.get("/rates", params={"topic": "rated"}).json()
    assert told["series"]["records/s"][-1] > 0
    assert browser.client.get("/rates").json()["series"]["records/s"][-1] >= 0


def test_without_an_authorizer_the_page_of_access_rules_says_so(browser: Browser) -> None:
    assert "every client may do everything" in browser.get("/acls").text


def test_pages_name_only_files_of_the_console(browser: Browser) -> None:
    page = browser.get("/")
    files = [
        attributes.get("src") or attributes.get("href", "")
        for tag, attributes in page.tags
        if tag in ("script", "link", "img")
    ]
    assert len(files) >= 6
    assert all(browser.client.get(file).status_code == 200 and file.startswith("/static/") for file in files)


def test_the_configuration_of_htmx_evaluates_nothing(browser: Browser) -> None:
    (content,) = (
        attributes["content"]
        for tag, attributes in browser.get("/").tags
        if tag == "meta" and attributes.get("name") == "htmx-config"
    )
    settings = json.loads(content)
    assert (settings["allowEval"], settings["includeIndicatorStyles"], settings["selfRequestsOnly"]) == (
        False,
        False,
        True,
    )


def test_the_newest_records_are_shown_though_a_page_has_no_room_for_all(
    browser: Browser, broker: EmbeddedBroker, admin: Admin
) -> None:
    admin.create_topics({"heavy": 1})
    with sparklog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(15):
            producer.send("heavy", b"x" * 900_000).result()
    links = browser.get("/topics/heavy/records").links
    assert "/topics/heavy/records/0/14" in links
    assert "/topics/heavy/records/0/0" not in links


def test_a_reset_that_fails_in_part_says_what_was_done(browser: Browser, admin: Admin) -> None:
    admin.create_topics({"half": 1})
    admin.alter_group_offsets("halves", {TopicPartition("half", 0): 0})
    page = browser.post("/group/reset", 400, name="halves", offset=["half:0=0", "half:7=0"])
    assert "1 of 2 partitions were not changed" in page.text
    assert "The offsets of the other 1 are committed." in page.text
