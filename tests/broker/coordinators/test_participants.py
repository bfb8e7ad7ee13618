"""Transactions in partitions and groups: proof before the first batch, markers, the view of
readers, and the state after a crash.
"""

import pytest

from sparklog.errors import ErrorCode, code_of
from sparklog.model import Micros
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from sparklog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.broker.access.authorization import Operation, Resource
from tests.broker import transactions
from tests.broker.coordinators.participants import READ_COMMITTED, Writer, mark, offset_of, read, started
from tests.broker.groups import ask_commit, ask_offsets
from tests.broker.transactions import log_end
from tests.broker.world import PRODUCE_BY_NAME, produce, produced

NONE = ErrorCode.NONE
OFFSETS = ("__consumer_offsets", 0)


def latest(producer: Writer, *, is_committed_only: bool) -> int:
    asked = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    level = READ_COMMITTED if is_committed_only else 0
    answer = producer.world.ask(
        producer.one.client, ListOffsetsRequest(isolation_level=level, topics=asked), 7, ListOffsetsResponse
    )
    assert isinstance(answer, ListOffsetsResponse)
    return answer.topics[0].partitions[0].offset


# -- whole transactions


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_read_once_their_transaction_is_committed_and_never_when_aborted(version: int) -> None:
    world = started()
    one = Writer(world, "one", version=version)
    for is_commit, expected in ((False, [b"a", b"b"]), (True, [b"a", b"b", b"c"])):
        if version == 1:
            assert one.add(0) is NONE
        first = 0 if not is_commit else 3
        if is_commit:
            assert one.send(b"c") == (NONE, first)
        else:
            assert one.send(b"a", b"b") == (NONE, first)
        assert latest(one, is_committed_only=True) == first
        assert latest(one, is_committed_only=False) > first
        assert read(world)[2] == first
        assert one.end(is_commit=is_commit) is NONE
        world.settle()
        values, aborted, stable = read(world)
        assert (values, stable) == (expected, first + len(expected) - (2 if is_commit else 0) + 1)
        assert [offset for _, offset in aborted] == [0]
    assert read(world, offset=3) == ([b"c"], [], 5)


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_goes_on_in_a_partition_without_another_question(version: int) -> None:
    world = started()
    one = Writer(world, "one", version=version)
    if version == 1:
        one.add(0)
    assert [one.send(b"%d" % number) for number in range(4)] == [(NONE, number) for number in range(4)]
    assert one.end(is_commit=True) is NONE


# -- proof


def test_a_batch_of_a_partition_that_the_transaction_does_not_know_is_refused() -> None:
    world = started()
    one = Writer(world, "one", version=1)
    assert one.send(b"x")[0] in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
    assert one.add(0) is NONE
    assert one.send(b"x", partition=1)[0] is ErrorCode.TRANSACTION_ABORTABLE
    assert one.send(b"x") == (NONE, 0)


@pytest.mark.parametrize(
    ("produce_version", "expected"), [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_only_clients_that_know_it_hear_that_a_transaction_must_be_aborted(
    produce_version: int, expected: ErrorCode
) -> None:
    world = started()
    one = Writer(world, "one", version=1)
    one.add(1)
    assert one.ask(one.batch(b"x"), version=produce_version)[0] is expected


@pytest.mark.parametrize("version", [1, 2])
def test_a_late_batch_of_a_transaction_that_is_over_does_not_land(version: int) -> None:
    world = started()
    one = Writer(world, "one", version=version)
    if version == 1:
        one.add(0)
    assert one.send(b"x") == (NONE, 0)
    late = one.batch(b"late")
    assert one.end(is_commit=True) is NONE
    world.settle()
    assert one.ask(late)[0] is (
        ErrorCode.INVALID_PRODUCER_EPOCH if version == 2 else ErrorCode.TRANSACTION_ABORTABLE
    )
    assert read(world)[0] == [b"x"]


def test_a_fenced_producer_writes_nothing_more() -> None:
    world = started()
    old = Writer(world, "one", version=1)
    old.add(0)
    assert old.send(b"x") == (NONE, 0)
    new = Writer(world, "one", version=1)
    world.settle()
    assert old.send(b"y")[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert new.add(0) is NONE
    assert new.send(b"z") == (NONE, 2)
    assert new.end(is_commit=True) is NONE
    world.settle()
    assert read(world)[1] == [(old.identity[0], 0)]


def test_a_transactional_batch_without_a_transactional_id_or_its_right_is_refused_whole() -> None:
    world = started()
    client = world.node.connect()
    batch = world.batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert produced(world.ask(client, produce("t", batch), PRODUCE_BY_NAME, ProduceResponse)) == (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        -1,
    )


def test_who_may_not_use_a_transactional_id_writes_nothing_with_it() -> None:
    def allow(principal: str, operation: Operation, resource: Resource, name: str) -> bool:
        return (resource, name) != (Resource.TRANSACTIONAL_ID, "theirs")

    world = started(allow=allow)
    one = Writer(world, "one", version=2)
    one.named = "theirs"
    assert one.send(b"x")[0] is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert one.commit_offset("g", 3) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_batches_of_two_producers_in_one_request_are_refused_whole() -> None:
    world = started()
    one, other = Writer(world, "one", version=2), Writer(world, "other", version=2)
    request = one.batch(b"x")
    request.topic_data[0].partition_data += other.batch(b"y", partition=1).topic_data[0].partition_data
    answer = world.ask(one.one.client, request, 12, ProduceResponse)
    assert isinstance(answer, ProduceResponse)
    assert [code_of(part.error_code) for part in answer.responses[0].partition_responses] == [
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    ] * 2


def test_while_a_batch_waits_for_its_proof_the_next_ones_of_the_connection_keep_their_order() -> None:
    world = started()
    one = Writer(world, "one", version=2)
    before = len(one.one.client.replies)
    for value in (b"a", b"b", b"c"):
        one.one.client.send(one.batch(value), 12, ProduceResponse)
    world.settle()
    assert [produced(answer) for answer in one.one.client.replies[before:]] == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("acks", [0, -1])
def test_a_batch_counts_though_its_connection_closes_while_it_waits_and_nothing_else_is_left_behind(
    version: int, acks: int
) -> None:
    world = started()
    one = Writer(world, "one", version=2 if version == 12 else 1)
    if version == 11:
        one.add(0)
    request = one.batch(b"x")
    request.acks = acks
    one.one.client.send(request, version, ProduceResponse)
    world.clock.run(until_us=Micros(world.clock.now.mono_us + 1))
    world.node.disconnect(one.one.client)
    world.settle()
    assert world.node.running.request_bytes == 0
    assert log_end(world, world.node.connect()) == 1


# -- markers


def test_markers_of_an_older_epoch_or_coordinator_are_refused() -> None:
    world = started()
    one = Writer(world, "one", version=2)
    assert one.send(b"x") == (NONE, 0)
    producer = one.identity
    assert mark(world, (producer[0], producer[1] - 1), ("t", 0)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert mark(world, producer, ("t", 0), version=2) == [ErrorCode.INVALID_PRODUCER_EPOCH], (
        "version 2 bumps the epoch"
    )
    bumped = (producer[0], producer[1] + 1)
    assert mark(world, bumped, ("t", 0), version=2, coordinator_epoch=3) == [NONE]
    assert mark(world, bumped, ("t", 0), version=2, coordinator_epoch=3) == [NONE], "the same once more"
    assert mark(world, bumped, ("t", 0), coordinator_epoch=2) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert mark(world, bumped, ("t", 7), ("none", 0)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


def test_who_may_not_write_markers_is_told_so_by_partition() -> None:
    def allow(principal: str, operation: Operation, resource: Resource, name: str) -> bool:
        return operation not in (Operation.ALTER, Operation.CLUSTER_ACTION)

    world = started(allow=allow)
    assert mark(world, (1, 0), ("t", 0), ("t", 1)) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_topic_that_holds_no_transactions_takes_no_marker(*, is_commit: bool) -> None:
    world = started()
    one = Writer(world, "one", version=2)
    assert mark(world, one.identity, ("__transaction_state", 0), ("t", 0), is_commit=is_commit) == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        NONE,
    ]
    assert one.one.add(0, topic="__transaction_state") == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    asked = transactions.add_many(world, one.one.client, one.one.part(0, topic="__transaction_state"))
    assert asked == {"one": [ErrorCode.TOPIC_AUTHORIZATION_FAILED]}
    assert one.one.init() is NONE
    world.node.stop()
    world.node.start()
    world.settle()
    one.reconnect()
    assert one.one.init() is NONE
    assert world.node.halted is None


# -- offsets


def test_offsets_take_a_marker_for_a_transaction_that_hangs_and_for_no_other() -> None:
    world = started(**{"transaction.partition.verification.enable": "false"})
    hanging, known = Writer(world, "hanging", version=1), Writer(world, "known", version=1)
    at = ("__consumer_offsets", 0)
    assert mark(world, hanging.identity, at, is_commit=False) == [ErrorCode.INVALID_TXN_STATE], (
        "nothing is open"
    )
    assert hanging.commit_offset("g", 9, version=3) is NONE, (
        "without AddOffsetsToTxn no coordinator will end it"
    )
    assert known.one.add_offsets("h") is NONE
    assert known.commit_offset("h", 9, version=3) is NONE
    assert mark(world, known.identity, at, is_commit=True) == [ErrorCode.CONCURRENT_TRANSACTIONS], (
        "its coordinator ends it"
    )
    assert mark(world, hanging.identity, at, is_commit=False) == [NONE]
    assert mark(world, hanging.identity, at, is_commit=False) == [ErrorCode.INVALID_TXN_STATE]
    assert offset_of(world, "g", is_stable=True) == (NONE, -1)
    assert offset_of(world, "h", is_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert known.end(is_commit=True) is NONE
    assert offset_of(world, "h", is_stable=True) == (NONE, 9)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_of_a_transaction_count_once_it_is_committed(version: int, is_commit: bool) -> None:
    world = started()
    client = world.node.connect()
    assert ask_commit(world, client, "g", 5) is NONE
    one = Writer(world, "one", version=version)
    if version == 1:
        assert one.one.add_offsets("g") is NONE
    assert one.commit_offset("g", 9) is NONE
    assert offset_of(world, "g") == (NONE, 5)
    assert offset_of(world, "g", is_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert one.end(is_commit=is_commit) is NONE
    world.settle()
    assert offset_of(world, "g", is_stable=True) == (NONE, 9 if is_commit else 5)


def test_offsets_are_refused_where_the_transaction_does_not_know_of_the_group() -> None:
    world = started()
    one = Writer(world, "one", version=1)
    assert one.commit_offset("g", 9, version=3) is ErrorCode.INVALID_TXN_STATE
    assert one.commit_offset("g", 9, version=4) in (
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    )
    assert offset_of(world, "g", is_stable=True) == (NONE, -1)


def test_a_commit_outside_overtakes_what_a_transaction_holds() -> None:
    world = started()
    client = world.node.connect()
    one = Writer(world, "one", version=2)
    assert one.commit_offset("g", 9) is NONE
    assert ask_commit(world, client, "g", 12) is NONE
    assert offset_of(world, "g", is_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert one.end(is_commit=True) is NONE
    world.settle()
    assert offset_of(world, "g", is_stable=True) == (NONE, 12)


def test_of_two_transactions_the_later_record_counts_whichever_was_committed_last() -> None:
    world = started()
    one, other = Writer(world, "one", version=2), Writer(world, "other", version=2)
    assert one.commit_offset("g", 1) is NONE
    assert other.commit_offset("g", 2) is NONE
    assert other.end(is_commit=True) is NONE
    assert one.end(is_commit=True) is NONE
    world.settle()
    assert offset_of(world, "g", is_stable=True) == (NONE, 2)


def test_offsets_that_are_deleted_do_not_come_back_with_the_marker() -> None:
    world = started()
    client = world.node.connect()
    one = Writer(world, "one", version=2)
    assert one.commit_offset("g", 9) is NONE
    topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
    answer = world.ask(client, OffsetDeleteRequest(group_id="g", topics=topics), 0, OffsetDeleteResponse)
    assert isinstance(answer, OffsetDeleteResponse)
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    assert one.end(is_commit=True) is NONE
    world.settle()
    assert offset_of(world, "g", is_stable=True) == (NONE, -1)


def test_topics_that_are_not_there_are_refused_each_for_itself() -> None:
    world = started()
    one = Writer(world, "one", version=2)
    assert one.commit_offset("", 9) is ErrorCode.INVALID_GROUP_ID


# -- crashes


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_power_cut", [True, False])
def test_open_transactions_live_through_a_crash(version: int, is_power_cut: bool) -> None:
    world = started()
    one = Writer(world, "one", version=version)
    if version == 1:
        one.add(0)
        one.one.add_offsets("g")
    assert one.send(b"x") == (NONE, 0)
    assert one.commit_offset("g", 9) is NONE
    world.node.kill(is_power_cut=is_power_cut)
    world.node.start()
    world.settle(3000)
    one.reconnect()
    assert read(world) == ([], [], 0)
    assert offset_of(world, "g", is_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert one.send(b"y") == (NONE, 1), "open here: no proof is asked for"
    assert one.end(is_commit=True) is NONE
    world.settle()
    assert read(world) == ([b"x", b"y"], [], 3)
    assert ask_offsets(world, world.node.connect(), "g") == [9]


@pytest.mark.parametrize("version", [1, 2])
def test_what_was_decided_stays_decided_through_a_crash(version: int) -> None:
    world = started()
    one = Writer(world, "one", version=version)
    for is_commit in (True, False):
        if version == 1:
            one.add(0)
            one.one.add_offsets("g")
        assert one.send(b"%d" % is_commit)[0] is NONE
        assert one.commit_offset("g", 9 if is_commit else 11) is NONE
        if not is_commit:
            late = one.batch(b"late")
        assert one.end(is_commit=is_commit) is NONE
        world.settle()
    world.node.kill(is_power_cut=True)
    world.node.start()
    world.settle(3000)
    one.reconnect()
    values, aborted, stable = read(world)
    assert (values, [offset for _, offset in aborted], stable) == ([b"1", b"0"], [2], 4)
    assert offset_of(world, "g", is_stable=True) == (NONE, 9)
    assert one.ask(late)[0] is (
        ErrorCode.INVALID_PRODUCER_EPOCH if version == 2 else ErrorCode.TRANSACTION_ABORTABLE
    )
