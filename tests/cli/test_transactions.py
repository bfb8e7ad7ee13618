"""`sparklog transactions`: the open ones, their producers, and how they are ended."""

from collections.abc import Iterator

import pytest

from sparklog.client.producer.writer import BatchWriter
from sparklog.client.settings import ClientSettings
from sparklog.local_broker import EmbeddedBroker
from sparklog.record.batch import build_batch
from tests.cli.conftest import Tell


@pytest.fixture
def open_transaction(shared_broker: EmbeddedBroker, tell: Tell, topic: str) -> Iterator[BatchWriter]:
    """The transactional id `topic.open` has written one record."""
    assert tell("topics", "create", topic).code == 0
    settings = ClientSettings.from_kafka(
        {"bootstrap.servers": shared_broker.bootstrap_servers, "transactional.id": f"{topic}.open"}
    )
    with BatchWriter(settings) as writer:
        writer.init()
        writer.begin()
        writer.add(topic, 0, build_batch([(None, b"v", (), 0)]), 1)
        writer.flush()
        yield writer


def test_an_open_transaction_is_listed_and_described(
    tell: Tell, open_transaction: BatchWriter, topic: str
) -> None:
    name, producer_id, epoch = open_transaction.identity
    row = [name, "1", str(producer_id), "Ongoing"]
    for options in (
        (),
        ("--prefix", topic),
        ("--pattern", f"{topic}[.]open"),
        ("--state", "Ongoing"),
        ("--producer-id", str(producer_id)),
    ):
        assert row in tell("transactions", "list", *options).rows
    assert row not in tell("transactions", "list", "--longer-than", "600000").rows
    assert tell("transactions", "list", "--prefix", topic, "--json").json == [
        {"transactional_id": name, "coordinator": 1, "producer_id": producer_id, "state": "Ongoing"}
    ]
    (described,) = tell("transactions", "describe", name).rows
    assert described[:6] == [name, "1", str(producer_id), str(epoch), "Ongoing", "60000"]
    assert described[8] == f"{topic}-0"
    (told,) = tell("transactions", "describe", name, "--json").json
    assert (told["state"], told["partitions"]) == ("Ongoing", [{"topic": topic, "partition": 0}])


def test_what_somebody_will_end_does_not_hang(tell: Tell, open_transaction: BatchWriter, topic: str) -> None:
    assert open_transaction.identity.producer_epoch == 0
    told = tell("transactions", "find-hanging", "--topic", topic, "--older-than", "0")
    assert (told.code, told.out) == (0, "")
    assert tell("transactions", "find-hanging", "--topic", topic, "--older-than", "0", "--json").json == []


def test_a_transaction_is_terminated_by_force_and_its_producer_fenced(
    tell: Tell, open_transaction: BatchWriter, topic: str
) -> None:
    name = open_transaction.identity.transactional_id
    assert tell("transactions", "force-terminate", name).code == 0
    assert tell("transactions", "list", "--prefix", topic).rows[0][3] != "Ongoing"


def test_one_partition_is_freed_by_the_offset_at_which_its_transaction_begins(
    tell: Tell, open_transaction: BatchWriter, topic: str
) -> None:
    assert open_transaction.identity.producer_epoch == 0
    told = tell("transactions", "abort", f"{topic}:0", "--start-offset", "5")
    assert told.code == 1
    assert "no open transaction that begins at offset 5" in told.err
    assert tell("transactions", "abort", f"{topic}:0", "--start-offset", "0").code == 0
    (row,) = tell("producers", topic).rows
    assert row[6] == "", "nothing is open any more"


def test_what_cannot_be_meant_is_told(tell: Tell, topic: str) -> None:
    assert tell("topics", "create", topic, "--partitions", "2").code == 0
    for arguments, reason in (
        (("list", "--prefix", "a", "--pattern", "b"), "leave one out"),
        (("abort", f"{topic}:0"), "select the transaction with --start-offset"),
        (("abort", f"{topic}:0", "--producer-id", "1"), "needs --producer-epoch"),
        (("abort", topic, "--start-offset", "0"), "has 2 partitions"),
    ):
        told = tell("transactions", *arguments)
        assert (told.code, reason in told.err) == (2, True), told.err
    told = tell("transactions", "describe", "nobody")
    assert (told.code, "TRANSACTIONAL_ID_NOT_FOUND" in told.err) == (1, True)
