"""Transactional producers and a broker: from FindCoordinator to the markers in the partitions, across
restarts.
"""

from collections.abc import Iterator

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from sparklog.wire.messages.list_transactions import ListTransactionsRequest
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.coordinator.txn.events import Answer
from tests.broker.groups import ask_coordinator
from tests.broker.transactions import CLIENTS, SETTINGS, Producer, add_many, describe, listed, log_end, ready
from tests.broker.world import World

NONE = ErrorCode.NONE


@pytest.fixture
def world() -> Iterator[World]:
    world = started()
    yield world
    assert world.node.halted is None


def started(**settings: str) -> World:
    """A node with a topic of three partitions."""
    world = World(1, **(SETTINGS | settings))
    world.node.start()
    world.settle()
    world.create(world.node.connect(), "t", partitions=3)
    return world


def test_clients_are_told_that_the_cluster_speaks_the_second_version_of_transactions(world: World) -> None:
    client = world.node.connect()
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    for version in (3, 4):
        answer = world.ask(client, request, version, ApiVersionsResponse)
        assert isinstance(answer, ApiVersionsResponse)
        finalized = {one.name: one.max_version_level for one in answer.finalized_features}
        assert finalized["transaction.version"] == 2
        # KAFKA-17011: what may be 0 is not told to clients that stumble over it.
        assert ("transaction.version" in {one.name for one in answer.supported_features}) is (version == 4)


def test_the_topic_of_transactions_is_made_when_the_first_producer_asks(world: World) -> None:
    producer = Producer(world, "a")
    assert producer.init() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert producer.find() is NONE
    assert producer.init() is NONE
    assert (producer.producer_id, producer.epoch) == (0, 0)


@pytest.mark.parametrize("end_version", [3, 5])
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_puts_a_marker_into_every_partition(world: World, end_version: int, *, commit: bool) -> None:
    producer = ready(world, "a", end_version=end_version)
    assert producer.add(0, 2) == [NONE, NONE]
    assert producer.state() == "Ongoing"
    assert producer.end(commit=commit) is NONE
    assert producer.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert [log_end(world, producer.client, index) for index in range(3)] == [1, 0, 1]
    assert producer.epoch == (1 if end_version == 5 else 0)


def test_a_producer_goes_on_with_the_next_transaction_at_once(world: World) -> None:
    producer = ready(world, "a")
    for count in range(1, 6):
        assert producer.add(0) == [NONE]
        assert producer.end(commit=True) is NONE
        assert (producer.epoch, log_end(world, producer.client)) == (count, count)


def test_a_newer_producer_ends_what_the_older_had_open_and_fences_it(world: World) -> None:
    old = ready(world, "a")
    assert old.add(0) == [NONE]
    new = Producer(world, "a")
    assert new.init() is NONE
    assert (new.producer_id, new.epoch) == (old.producer_id, 2)
    assert log_end(world, new.client) == 1
    assert old.add(1) == [ErrorCode.PRODUCER_FENCED]
    assert old.add(1, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert old.add_offsets("g") is ErrorCode.PRODUCER_FENCED
    assert old.add_offsets("g", version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.end(commit=True) is ErrorCode.PRODUCER_FENCED
    assert old.end(commit=True, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.init(keep=True) is ErrorCode.PRODUCER_FENCED
    assert old.init(keep=True, version=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert new.add(0) == [NONE]


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_are_added_before_the_topic_of_groups_exists(world: World, commit: bool) -> None:
    """As in Kafka: kafkajs asks for the group's coordinator afterwards, and takes a refusal for final."""
    producer = ready(world, "a")
    assert producer.add_offsets("g") is NONE
    assert producer.end(commit=commit) is NONE
    assert ask_coordinator(world, producer.client, "g") is NONE
    assert producer.add_offsets("g") is NONE
    assert producer.end(commit=commit) is NONE
    assert producer.state() == ("CompleteCommit" if commit else "CompleteAbort")


def test_one_partition_that_is_not_there_keeps_the_others_out(world: World) -> None:
    producer = ready(world, "a")
    assert producer.add(0, 7) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.add(0, topic="nowhere") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.add(0, topic="__transaction_state") == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert producer.state() == "Empty"


def test_brokers_ask_for_many_transactions_at_once_and_may_only_verify(world: World) -> None:
    first, second = ready(world, "a"), ready(world, "b")
    assert first.add(0) == [NONE]
    verified = add_many(
        world, first.client, first.part(0, 1, verify_only=True), second.part(0, verify_only=True)
    )
    assert verified == {"a": [NONE, ErrorCode.TRANSACTION_ABORTABLE], "b": [ErrorCode.TRANSACTION_ABORTABLE]}
    assert add_many(world, first.client, second.part(2), first.part(9)) == {
        "a": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        "b": [NONE],
    }
    assert add_many(world, first.client) == {}
    assert [one.topics[0].partitions for one in describe(world, first.client, "a", "b")] == [[0], [2]]


def test_offsets_of_a_group_become_part_of_a_transaction(world: World) -> None:
    producer = ready(world, "a")
    assert producer.add_offsets("g") is NONE  # and the topic is on its way
    assert producer.add_offsets("g") is NONE
    assert [topic.topic for topic in describe(world, producer.client, "a")[0].topics] == [
        "__consumer_offsets"
    ]
    assert producer.end(commit=True) is NONE
    assert producer.state() == "CompleteCommit"


def test_a_transaction_ends_though_a_topic_of_it_is_gone(world: World) -> None:
    producer = ready(world, "a")
    world.create(producer.client, "doomed")
    assert producer.add(0, topic="doomed") == [NONE]
    assert producer.add(1) == [NONE]
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="doomed")], topic_names=["doomed"], timeout_ms=1000
    )
    world.ask(producer.client, request, 6, DeleteTopicsResponse)
    assert producer.end(commit=True) is NONE
    assert producer.state() == "CompleteCommit"
    assert log_end(world, producer.client, 1) == 1


def test_what_is_open_for_too_long_is_aborted(world: World) -> None:
    producer = ready(world, "a", timeout_ms=5_000)
    assert producer.add(0) == [NONE]
    world.settle(16_000)
    assert producer.state() == "CompleteAbort"
    assert log_end(world, producer.client) == 1
    assert producer.end(commit=True) is ErrorCode.INVALID_TXN_STATE
    assert producer.init(keep=True) is NONE


def test_ids_that_nobody_uses_are_forgotten(world: World) -> None:
    world = started(
        **{
            "transactional.id.expiration.ms": "100000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
            "sparklog.transactional.sink.id.expiration.ms": "10000",
        }
    )
    kept, finished = ready(world, "a"), ready(world, "sl.b")
    world.settle(20_000)
    assert (kept.state(), finished.state()) == ("Empty", "TRANSACTIONAL_ID_NOT_FOUND")
    world.settle(100_000)
    assert kept.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    assert kept.init() is NONE


class Knows:
    """A resolver with one answer, that remembers the questions."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.deadline_us = None

    def tick(self, now: Instant) -> None:
        """It needs no time."""

    def verdict(self, transactional_id: str, producer_id: int, producer_epoch: int, now: Instant) -> Answer:
        self.asked.append(transactional_id)
        return self.answer


@pytest.mark.parametrize(
    ("answer", "state"), [(Answer.COMMIT, "CompleteCommit"), (Answer.ABORT, "CompleteAbort")]
)
def test_a_transaction_of_the_sink_ends_as_the_resolver_says(
    world: World, answer: Answer, state: str
) -> None:
    resolver = Knows(Answer.ASK_AGAIN)
    world.node.running._context.transactions.resolver = resolver
    sink, other = ready(world, "sl.a", timeout_ms=5_000), ready(world, "a", timeout_ms=5_000)
    assert (sink.add(0), other.add(1)) == ([NONE], [NONE])
    world.settle(30_000)
    assert (sink.state(), other.state()) == ("Ongoing", "CompleteAbort")
    resolver.answer = answer
    world.settle(11_000)
    assert sink.state() == state
    assert len(resolver.asked) > 2
    assert set(resolver.asked) == {"sl.a"}
    assert log_end(world, sink.client) == 1


def test_a_transaction_of_the_sink_without_a_verdict_is_kept_as_long_as_any_may_be_open(
    world: World,
) -> None:
    world = started(**{"transaction.max.timeout.ms": "60000"})
    world.node.running._context.transactions.resolver = Knows(Answer.ASK_AGAIN)
    sink = ready(world, "sl.a", timeout_ms=5_000)
    assert sink.add(0) == [NONE]
    world.settle(40_000)
    assert sink.state() == "Ongoing"
    world.settle(30_000)
    assert sink.state() == "CompleteAbort"
    assert any("transaction-abandoned" in line and "sl.a" in line for line in world.node.trace)


@pytest.mark.parametrize("is_power_cut", [True, False])
def test_what_is_open_outlives_the_broker_and_what_was_about_to_end_ends(
    world: World, *, is_power_cut: bool
) -> None:
    opened, ending = ready(world, "a"), ready(world, "b")
    assert (opened.add(0), ending.add(1)) == ([NONE], [NONE])
    world.node.kill(is_power_cut=is_power_cut)
    world.node.start()
    world.settle()
    for producer in (opened, ending):
        producer.client = world.node.connect()
        assert producer.find() is NONE
        assert producer.state() == "Ongoing"
    assert opened.end(commit=True) is NONE
    ending.client.send_bytes(b"")
    assert ending.end(commit=False) is NONE
    assert (opened.state(), ending.state()) == ("CompleteCommit", "CompleteAbort")
    assert [log_end(world, opened.client, index) for index in range(2)] == [1, 1]


def test_transactions_are_listed_over_all_shards(world: World) -> None:
    client = world.node.connect()
    assert listed(world, client, ListTransactionsRequest()).transaction_states == []
    producers = [ready(world, f"id-{number}") for number in range(7)]
    assert producers[3].add(0) == [NONE]
    found = listed(world, client, ListTransactionsRequest())
    assert sorted(one.transactional_id for one in found.transaction_states) == [
        f"id-{number}" for number in range(7)
    ]
    found = listed(
        world,
        client,
        ListTransactionsRequest(state_filters=["Ongoing", "Odd"], transactional_id_pattern="id-[0-5]"),
    )
    assert [one.transactional_id for one in found.transaction_states] == ["id-3"]
    assert found.unknown_state_filters == ["Odd"]
    assert (
        listed(world, client, ListTransactionsRequest(transactional_id_pattern="(")).error_code
        == ErrorCode.INVALID_REGULAR_EXPRESSION
    )
    unknown = describe(world, client, "nobody", "")
    assert [one.error_code for one in unknown] == [
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    ]


class Rights:
    """Every operation is allowed except denied ones."""

    def __init__(self) -> None:
        self.denied: set[tuple[Operation, Resource, str]] = set()

    def allow(self, principal: str, operation: Operation, resource: Resource, name: str) -> bool:
        return (operation, resource, name) not in self.denied


def test_who_may_not_write_to_an_id_gets_nowhere_with_it() -> None:
    rights = Rights()
    world = World(1, allow=rights.allow, **SETTINGS)
    world.node.start()
    world.settle()
    world.create(world.node.connect(), "t", partitions=3)
    producer = ready(world, "a")
    assert ask_coordinator(world, producer.client, "g") is NONE

    rights.denied = {(Operation.WRITE, Resource.TOPIC, "t"), (Operation.READ, Resource.GROUP, "g")}
    assert producer.add(0) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert producer.add_offsets("g") is ErrorCode.GROUP_AUTHORIZATION_FAILED

    rights.denied = {(Operation.WRITE, Resource.TRANSACTIONAL_ID, "a")}
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (producer.init(), producer.add(0), producer.add_offsets("g"), producer.end(commit=True)) == (
        refused,
        [refused],
        refused,
        refused,
    )

    rights.denied = {(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, "a")}
    assert (producer.find(), producer.state()) == (refused, refused.name)
    assert listed(world, producer.client, ListTransactionsRequest()).transaction_states == []

    rights.denied = set()
    assert producer.add(0, version=CLIENTS) == [NONE]
    rights.denied = {(Operation.DESCRIBE, Resource.TOPIC, "t")}
    assert describe(world, producer.client, "a")[0].topics == []
