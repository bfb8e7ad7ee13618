"""The writer of the flights demo: killed within a transaction, it leaves no flight out and doubles none."""

import json
from pathlib import Path

import pytest

import sparklog
from examples import flights_writer as writer
from sparklog import Admin, Consumer, TopicPartition

pytestmark = pytest.mark.compat

DAYS, FLIGHTS_OF_A_DAY = 20, 30


def write_file(directory: Path) -> Path:
    path = directory / "flights.jsonl"
    flights = [
        {"id": number, "time_hour": f"2013-01-{number // FLIGHTS_OF_A_DAY + 1:02}T10:00:00Z", "carrier": "UA"}
        for number in range(DAYS * FLIGHTS_OF_A_DAY)
    ]
    path.write_text("".join(json.dumps(flight) + "\n" for flight in flights))
    return path


def read(servers: str, isolation_level: str) -> list[int]:
    """The numbers of the flights in the log."""
    partitions = [TopicPartition(writer.TOPIC, number) for number in range(writer.PARTITIONS)]
    found: list[int] = []
    with Consumer(bootstrap_servers=servers, isolation_level=isolation_level) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(one) < ends[one] for one in partitions):
            found += [json.loads(record.value or b"")["id"] for record in consumer.poll(timeout_ms=1000)]
    return found


def test_a_writer_that_is_killed_within_a_transaction_is_continued_exactly(tmp_path: Path) -> None:
    path = write_file(tmp_path)
    with sparklog.embedded() as broker:
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({writer.TOPIC: writer.PARTITIONS, writer.PROGRESS: 1})
        killed = writer.write_and_kill_once(servers, path, 600, kill_at=150)
        committed = read(servers, "read_committed")
        everything = read(servers, "read_uncommitted")
        assert writer.next_flight(servers) == DAYS * FLIGHTS_OF_A_DAY
    assert committed == list(range(DAYS * FLIGHTS_OF_A_DAY))
    assert len(everything) == len(committed) + killed.uncommitted
    assert killed.uncommitted == FLIGHTS_OF_A_DAY


def test_a_writer_that_ends_on_its_own_is_an_error(tmp_path: Path) -> None:
    with sparklog.embedded() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics({writer.TOPIC: writer.PARTITIONS, writer.PROGRESS: 1})
        with pytest.raises(writer.WriterEnded, match="ended with 1 before it was killed"):
            writer.write_and_kill_once(broker.bootstrap_servers, tmp_path / "missing", 600, kill_at=1)
