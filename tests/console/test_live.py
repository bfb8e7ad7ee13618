"""Live tail: events as they come, a limit, positions to resume at."""

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from sparklog.client.admin.admin import Admin
from sparklog.client.consumer.records import ConsumerRecord
from sparklog.client.producer.producer import Producer
from sparklog.local_broker import EmbeddedBroker
from sparklog_server.console.ask import TAILS_MAX, Console
from sparklog_server.console.clusters import Target
from sparklog_server.console.pages.live import fair_share
from tests.console.browser import Browser, browsing

TOPIC = "followed"


@pytest.fixture(scope="module", autouse=True)
def topic(admin: Admin) -> None:
    admin.create_topics({TOPIC: 2})


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[Producer]:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        yield producer


def events(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """The events of a stream: name and data."""
    name, data = "", []
    for line in lines:
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            data.append(line[6:])
        elif not line and name:
            yield name, "\n".join(data)
            name, data = "", []


def test_records_arrive_as_rows_with_counts(browser: Browser, admin: Admin, producer: Producer) -> None:
    topic = "arriving"
    admin.create_topics({topic: 2})
    with browser.client.stream("GET", f"/topics/{topic}/tail") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        told = events(response.iter_lines())
        assert next(told)[0] == "counts"
        producer.send(topic, b"<b0ld>\x1b two\nlines", b"k", partition=1).result()
        name, rows = next(told)
        assert name == "rows"
        assert f"/topics/{topic}/records/1/0" in rows
        assert "&lt;b0ld&gt;\\x1b two\nlines" in rows
        name, counts = next(told)
        assert json.loads(counts) == {"seen": 1, "shown": 1, "skipped": 0, "at": "0:0,1:1"}


def test_a_tail_resumes_where_a_pause_began(browser: Browser, producer: Producer) -> None:
    first = producer.send(TOPIC, b"during the pause", partition=0).result().offset
    with browser.client.stream(
        "GET", f"/topics/{TOPIC}/tail", params={"at": f"0:{first},9:x,", "partition": "0"}
    ) as response:
        told = events(response.iter_lines())
        assert next(told)[0] == "rows"
        assert json.loads(next(told)[1])["at"] == f"0:{first + 1}"


def test_records_beyond_the_limit_are_counted_and_not_shown(browser: Browser, producer: Producer) -> None:
    with browser.client.stream(
        "GET", f"/topics/{TOPIC}/tail", params={"rate": "8", "partition": "0"}
    ) as response:
        told = events(response.iter_lines())
        next(told)
        for number in range(100):
            producer.send(TOPIC, b"%d" % number, partition=0)
        producer.flush()
        counts = {"seen": 0}
        while counts["seen"] < 100:
            name, text = next(told)
            counts = json.loads(text) if name == "counts" else counts
        assert 0 < counts["shown"] < 50
        assert counts["shown"] + counts["skipped"] == 100


def record(partition: int, offset: int) -> ConsumerRecord:
    return ConsumerRecord(TOPIC, partition, offset, 0, None, b"", ())


def test_each_partition_has_a_fair_share_of_the_rows() -> None:
    shown: Counter[int] = Counter()
    busy = [record(partition, offset) for partition in (0, 1, 2) for offset in range(100)]
    taken = fair_share(busy, 12, shown)
    assert sorted((one.partition, one.offset) for one in taken) == [
        (partition, offset) for partition in (0, 1, 2) for offset in range(96, 100)
    ]
    # What one partition does not need goes to the others, and one that was left out comes first.
    few = [
        record(0, 0),
        *(record(1, offset) for offset in range(9)),
        *(record(2, offset) for offset in range(9)),
    ]
    assert Counter(one.partition for one in fair_share(few, 9, shown)) == {0: 1, 1: 4, 2: 4}
    assert [one.partition for one in fair_share([record(0, 1), record(1, 9), record(2, 9)], 1, shown)] == [0]


def test_a_filter_selects_what_is_shown(browser: Browser, producer: Producer) -> None:
    with browser.client.stream("GET", f"/topics/{TOPIC}/tail", params={"filter": "value.a > 1"}) as response:
        told = events(response.iter_lines())
        next(told)
        for number in (1, 2):
            producer.send(TOPIC, b'{"a": %d}' % number).result()
        rows = next(text for name, text in told if name == "rows")
        assert "2" in rows
        assert rows.count("<tr>") == 1


def test_the_number_of_tails_is_bounded(broker: EmbeddedBroker) -> None:
    with browsing(Console(Target({"bootstrap.servers": broker.bootstrap_servers}))) as browser:
        _fill(browser)


def _fill(browser: Browser) -> None:
    streams = [browser.client.stream("GET", f"/topics/{TOPIC}/tail") for _ in range(TAILS_MAX)]
    # An iterator that is freed closes its response.
    told = [events(stream.__enter__().iter_lines()) for stream in streams]
    try:
        assert [next(one)[0] for one in told] == ["counts"] * TAILS_MAX
        with browser.client.stream("GET", f"/topics/{TOPIC}/tail") as refused:
            assert next(events(refused.iter_lines()))[0] == "gone"
    finally:
        for stream in streams:
            stream.__exit__(None, None, None)


def test_a_tail_of_no_topic_or_a_bad_filter_is_refused(browser: Browser) -> None:
    assert browser.client.get("/topics/nowhere/tail").status_code == 404
    assert browser.client.get(f"/topics/{TOPIC}/tail", params={"filter": "["}).status_code == 400
    assert browser.client.get(f"/topics/{TOPIC}/tail", params={"partition": "7"}).status_code == 400
