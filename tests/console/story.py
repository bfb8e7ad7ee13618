"""The main act of each page, the same in front of our broker and of a real Kafka."""

import json
import time
from typing import Final

import sparklog
from sparklog.client.admin.admin import Admin
from sparklog.model import TopicPartition
from tests.console.browser import Browser

SEEN_S_MAX: Final = 20


def topics(browser: Browser) -> None:
    """Create, look at, change and delete a topic."""
    created = browser.post("/new-topic", name="birds", partitions="2", **{"config.retention.ms": "3600000"})
    assert "Topic birds is created." in created.text
    assert "already exists" in browser.post("/new-topic", 400, name="birds").text
    listed = browser.get("/topics", q="BIR")
    assert "1 topic with “BIR” in the name" in listed.text
    assert "/topics/birds" in listed.links
    topic = browser.get("/topics/birds")
    assert "retention.ms 3600000" in topic.text
    edited = browser.get("/topics/birds", edit="retention.ms")
    assert {"key": "retention.ms", "value": "3600000"}.items() <= edited.fields("/topics/birds/settings")[
        0
    ].items()
    assert "time" in edited.text.lower()  # the documentation of the broker stands beside each setting
    changed = browser.post("/topics/birds/settings", key="retention.ms", value="7200000", act="set")
    assert "retention.ms 7200000" in changed.text
    back = browser.post("/topics/birds/settings", key="retention.ms", value="", act="delete")
    assert "Every setting has the default of the cluster." in back.text
    assert "birds has 3 partitions." in browser.post("/topics/birds/partitions", count="3").text
    assert "not the name" in browser.post("/topics/birds/delete", 400, name="bird").text
    assert "Topic birds is deleted." in browser.post("/topics/birds/delete", name="birds").text
    browser.get("/topics/birds", 404)


def records(browser: Browser, topic: str = "flights") -> None:
    """Produce, browse from several positions, filter, and open one record."""
    browser.post("/new-topic", name=topic, partitions="2")
    for delay in range(0, 60, 10):
        written = browser.post(
            f"/topics/{topic}/produce",
            partition="1",
            key=f"UA{delay}",
            value=f'{{"delay": {delay}}}',
            headers="trace: a1\nempty",
            **{"value.encoding": "json"},
        )
    assert f"Written to {topic}-1, offset 5." in written.text
    assert "UA50" in written.text
    page = f"/topics/{topic}/records"
    assert offsets(browser.get(page), topic) == [5, 4, 3, 2, 1, 0]
    assert offsets(browser.get(page, **{"from": "beginning", "limit": "2"}), topic) == [0, 1]
    assert offsets(browser.get(page, **{"from": "3", "partition": "1"}), topic) == [3, 4, 5]
    assert offsets(browser.get(page, **{"from": "-2"}), topic) == [4, 5]
    assert offsets(browser.get(page, **{"from": "-1h"}), topic) == [0, 1, 2, 3, 4, 5]
    assert offsets(browser.get(page, filter="value.delay > 15 && key != 'UA50'"), topic) == [4, 3, 2]
    for field, text in (("filter", "value.["), ("from", "soon"), ("partition", "7")):
        refused = browser.get(page, 400, **{field: text, "limit": "7"})
        assert refused.wrong(field)
        assert {"limit": "7"}.items() <= refused.fields(page)[0].items()
    older = browser.get(page, limit="4").link("Older")
    assert offsets(browser.get(older), topic) == [1, 0]
    newer = browser.get(page, **{"from": "beginning", "limit": "4"}).link("Newer")
    assert offsets(browser.get(newer), topic) == [4, 5]
    lines = browser.client.get(browser.get(page, limit="2").link("JSON lines")).text.splitlines()
    assert [json.loads(one)["offset"] for one in lines] == [4, 5]
    table = browser.client.get(browser.get(page, filter="value.delay < 15").link("CSV")).text.splitlines()
    assert [one.split(",")[2] for one in table] == ["offset", "0", "1"]
    record = browser.get(f"{page}/1/3")
    assert '"delay": 30' in record.text
    assert "trace a1" in record.text
    raw = browser.client.get(f"{page}/1/3/raw")
    assert (raw.content, raw.headers["content-type"]) == (b'{"delay": 30}', "application/octet-stream")
    browser.get(f"{page}/1/6", 400)
    assert (
        "not json"
        in browser.post(f"/topics/{topic}/produce", 400, value="{", **{"value.encoding": "json"}).text
    )


def groups(browser: Browser, admin: Admin) -> None:
    """Look at a group, move its offsets after a preview, and delete it."""
    browser.post("/new-topic", name="grouped", partitions="1")
    for number in range(3):
        browser.post("/topics/grouped/produce", value=str(number))
    admin.alter_group_offsets("readers", {TopicPartition("grouped", 0): 1})
    assert "readers" in browser.get("/groups", q="read").text
    assert "grouped 0 1 3 2" in browser.get("/group", name="readers").text
    told = browser.client.get("/group/lag", params={"name": "readers"}).json()
    assert told["series"] == {"grouped-0": [2]}
    preview = browser.get("/group/reset", name="readers", way="position", value="beginning")
    assert "grouped 0 0 3 1 -1" in preview.text
    assert admin.list_group_offsets(["readers"])["readers"][TopicPartition("grouped", 0)].offset == 1
    (fields,) = preview.fields("/group/reset")
    assert fields["offset"] == "0"
    for text in ("4", "-1", "many"):  # beyond the log, or no offset
        refused = browser.post("/group/reset?name=readers", 400, at=fields["at"], offset=text)
        assert refused.wrong("offset.grouped:0")
        assert refused.fields("/group/reset")[0]["offset"] == text
    browser.post("/group/reset?name=readers", at=fields["at"], offset="2")
    assert admin.list_group_offsets(["readers"])["readers"][TopicPartition("grouped", 0)].offset == 2
    for wrong in ({"way": "shift", "value": "many"}, {"way": "position", "value": "soon"}):
        refused = browser.get("/group/reset", 400, name="readers", **wrong)
        assert refused.wrong("value")
        assert refused.fields("/group/reset")[0]["value"] == wrong["value"]
    refused = browser.get("/group/reset", 400, name="readers", topic="groupd", way="position", value="end")
    assert "did you mean 'grouped'?" in refused.wrong("topic")
    assert browser.post("/group/delete?name=readers", 400).wrong("confirm")
    browser.post("/group/delete?name=readers", confirm="yes")
    browser.get("/group", 404, name="readers")


def transactions(browser: Browser, servers: str) -> None:
    """An open transaction, and its end by fencing the producer."""
    browser.post("/new-topic", name="paid", partitions="1")
    with sparklog.Producer(bootstrap_servers=servers, transactional_id="payer") as producer:
        producer.init()
        producer.begin()
        producer.send("paid", b"1").result()
        assert "payer Ongoing" in browser.get("/transactions", q="pay").text
        assert "paid-0" in browser.get("/transaction", id="payer").text
        assert "There are none." in browser.get("/transactions", hanging="1").text
        assert "1" in browser.get("/topics/paid/records", committed="0").text
        assert offsets(browser.get("/topics/paid/records", committed="1"), "paid") == []
        browser.post("/transaction/fence?id=payer", confirm="yes")
        assert "Ongoing" not in browser.get("/transaction", id="payer").text
        producer.close(0)
    browser.get("/transaction", 404, id="unknown")


def quotas(browser: Browser) -> None:
    """Set and remove a quota."""
    told = browser.post("/quotas", user="alice", key="producer_byte_rate", value="1000")
    assert "is set" in told.text
    seen(browser, "/quotas", "user 'alice' producer_byte_rate")
    fields = {"key": "producer_byte_rate"}
    assert "is removed" in browser.post("/quotas?user=alice", act="delete", **fields).text
    seen(browser, "/quotas", "'alice' producer", is_there=False)
    browser.post("/quotas", 400, key="producer_byte_rate", value="1000")
    browser.post("/quotas", 400, user="alice", key="producer_byte_rate", value="-1")


def users(browser: Browser) -> None:
    """Add and remove a user."""
    told = browser.post("/users", user="bob", password="p", again="p", mechanism="SCRAM-SHA-512")
    assert "The password of bob is set." in told.text
    seen(browser, "/users", "bob SCRAM-SHA-512")
    assert (
        "differ"
        in browser.post("/users", 400, user="bob", password="p", again="q", mechanism="SCRAM-SHA-512").text
    )
    removed = browser.post("/users/remove?user=bob", mechanism="SCRAM-SHA-512")
    assert "is removed" in removed.text
    seen(browser, "/users", "bob SCRAM", is_there=False)


def cluster(browser: Browser) -> None:
    """Overview, settings and quorum."""
    seen(browser, "/", "free of")
    overview = browser.get("/").text
    assert "1 broker " in overview
    assert "controller" in overview
    settings = browser.get("/settings")
    assert "differ from their default" in settings.text
    found = browser.get("/settings", q="num.io.threads").text
    assert "num.io.threads" in found
    changed = browser.post("/settings", broker="", shown="1", key="log.cleaner.threads", value="2", act="set")
    assert "log.cleaner.threads of all brokers is changed." in changed.text
    seen(browser, "/settings", "log.cleaner.threads 2")
    browser.post("/settings", broker="", shown="1", key="log.cleaner.threads", act="delete")
    quorum = browser.get("/quorum").text
    assert "leader" in quorum
    assert "metadata.version" in quorum


def seen(browser: Browser, path: str, text: str, *, is_there: bool = True) -> None:
    """Wait until a page has a text, or has it no more: a broker learns of a change a moment later."""
    until_s = time.monotonic() + SEEN_S_MAX
    while (text in browser.get(path).text) is not is_there:
        assert time.monotonic() < until_s, text


def offsets(page: object, topic: str) -> list[int]:
    """The offsets of the records on a page, in their order."""
    links: list[str] = page.links  # type: ignore[attr-defined]
    start = f"/topics/{topic}/records/"
    return [int(one.rpartition("/")[2]) for one in links if one.startswith(start)]
