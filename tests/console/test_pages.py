"""The main act of each page against a broker of its own."""

import json
import re
import time

import pytest

import sparklog
from sparklog.client.admin.admin import Admin
from sparklog.client.admin.groups import SPARK_METADATA, GroupOffset
from sparklog.client.consumer.consumer import Consumer
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
        warned = browser.get("/group/reset", name="members", topic="busy", way="position", value="end")
        assert "The group has 1 member." in warned.text
        refused = browser.post("/group/reset?name=members", 400, at="busy:0", offset="0")
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


def test_rates_of_records_and_bytes_are_sampled_without_a_page_that_waits(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog_server.console.sampling.EVERY_S", 0.0)
    browser.post("/new-topic", name="rated")
    for query in ({}, {"topic": "rated"}):
        until_s = time.monotonic() + story.SEEN_S_MAX
        series: dict[str, list[float]] = {}
        while not any(series.get("records/s", ())) or not any(series.get("bytes/s", ())):
            assert time.monotonic() < until_s, series
            browser.post("/topics/rated/produce", value="1")
            series = browser.client.get("/rates", params=query).json()["series"]
        assert len(series["records/s"]) == len(series["bytes/s"])


def test_topics_and_partitions_are_counted_alike(browser: Browser, admin: Admin) -> None:
    admin.create_topics({"counted": 2, "counted-too": 3})
    admin.alter_group_offsets("counting", {TopicPartition("counted", 0): 0})
    topics = admin.list_topics()  # without the internal ones, which the broker has for groups
    assert len(admin.list_topics(include_internal=True)) > len(topics)
    counted = sum(len(topic.partitions) for topic in topics.values())
    text = browser.get("/").text.replace("\N{NARROW NO-BREAK SPACE}", "")
    assert f" {len(topics)} topics {counted} partitions" in re.sub(r" +", " ", text)


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
    page = browser.post("/group/reset", 400, name="halves", at=["half:0", "half:7"], offset=["0", "0"])
    assert "1 of 2 partitions were not changed" in page.text
    assert "The offsets of the other 1 are committed." in page.text


@pytest.mark.parametrize(
    ("path", "fields", "field"),
    [
        ("/new-topic", {"name": "a b"}, "name"),
        ("/new-topic", {"name": "never-created", "partitions": "none"}, "partitions"),
        ("/new-topic", {"name": "never-created", "replication": "3"}, "replication"),
        ("/new-topic", {"name": "never-created", "config.retention.ms": "7 days"}, "config.retention.ms"),
        ("/new-topic", {"name": "never-created", "config.retention.ms": "7x"}, "config.retention.ms"),
        ("/topics/forms/settings", {"key": "retention.ms", "value": "soon", "act": "set"}, "value"),
        ("/topics/forms/partitions", {"count": "many"}, "count"),
        ("/topics/forms/partitions", {"count": "1"}, "count"),
        ("/topics/forms/produce", {"key": "k", "value": "{", "value.encoding": "json"}, "value"),
        ("/topics/forms/produce", {"key": "k", "value": "1", "partition": "9"}, "partition"),
        ("/topics/forms/delete", {"name": "form"}, "name"),
        ("/settings", {"key": "log.cleaner.threads", "value": "many", "act": "set", "shown": "1"}, "value"),
        ("/quotas", {"user": "a", "key": "producer_byte_rate", "value": "much"}, "value"),
        ("/quotas", {"user": "", "key": "producer_byte_rate", "value": "1"}, "user"),
        ("/quotas", {"user": "a", "ip": "10.0.0.1", "key": "producer_byte_rate", "value": "1"}, "ip"),
        ("/users", {"user": "carl", "password": "p", "again": "q", "mechanism": "SCRAM-SHA-512"}, "again"),
    ],
)
def test_a_form_that_is_refused_stays_as_it_was_sent_with_the_error_beside_the_field(
    browser: Browser, admin: Admin, path: str, fields: dict[str, str], field: str
) -> None:
    if "forms" not in admin.list_topics():
        admin.create_topics({"forms": 1})
    page = browser.post(path, 400, **fields)
    assert page.wrong(field)
    # A choice that does not exist, a name that confirms nothing and passwords are not kept.
    lost = {"act", "shown", "password", "again", *([field] if path.endswith(("/delete", "/produce")) else ())}
    assert [one for one in fields.keys() - lost if fields[one] and not page.has_sent(one, fields[one])] == []


def test_an_error_that_is_about_no_field_stands_above_the_form(browser: Browser) -> None:
    page = browser.post("/acls", 400, principal="alice", operation="read", type="topic", name="flights")
    assert "SECURITY_DISABLED" in page.text


def test_a_name_that_does_not_exist_is_answered_with_similar_ones(browser: Browser, admin: Admin) -> None:
    admin.create_topics({"departures": 1})
    admin.alter_group_offsets("board", {TopicPartition("departures", 0): 0})
    for path in ("/topics/departurs", "/topics/departurs/records", "/topics/departurs/live"):
        assert "/topics/departures" in browser.get(path, 404).links
    assert "/group?name=board" in browser.get("/group", 404, name="bord").links


def test_times_and_sizes_are_written_as_people_write_them(browser: Browser, admin: Admin) -> None:
    units = {"config.retention.ms": "7d", "config.segment.bytes": "1GiB", "config.retention.bytes": "-1"}
    browser.post("/new-topic", name="united", **units)
    entries = admin.describe_configs(["united"])["united"]
    found = [entries[name.removeprefix("config.")].value for name in units]
    assert found == ["604800000", "1073741824", "-1"]
    browser.post("/topics/united/settings", key="segment.ms", value="36h", act="set")
    assert admin.describe_configs(["united"])["united"]["segment.ms"].value == "129600000"


def test_the_groups_of_a_topic_are_those_that_read_it(browser: Browser, admin: Admin) -> None:
    admin.create_topics({"read-by": 2, "read-by-others": 1})
    admin.alter_group_offsets("its-reader", {TopicPartition("read-by", 0): 0})
    admin.alter_group_offsets("other-reader", {TopicPartition("read-by-others", 0): 0})
    page = browser.get("/topics/read-by/groups")
    assert "its-reader Empty 0 1 0" in page.text
    assert "other-reader" not in page.text
    assert "every client may do everything" in browser.get("/topics/read-by/acls").text
    for tab in ("groups", "acls"):
        browser.get(f"/topics/nowhere/{tab}", 404)
