"""Transactions whose coordinator dies, stops or is no longer elected, with three replicas of
`__transaction_state`: an open transaction is committed or aborted as its producer says, or times out.
"""

from collections.abc import Callable
from random import Random

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from sparklog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.broker.coordinators.coordinator_moves import (
    MOVES,
    OFFSETS,
    TRANSACTIONS,
    Kept,
    Move,
    replicated,
    unelected,
)
from tests.broker.coordinators.test_coordinators_of_nodes import Producer

NONE = ErrorCode.NONE
ID, GROUP = "id", "g"
_READ_COMMITTED = 1
_PARTITIONS = 6
_AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NETWORK_EXCEPTION,
)
"""Codes after which every client repeats its request."""


def started(*, timeout_ms: int = 60_000, **given: str) -> tuple[Kept, Producer]:
    """A cluster, the partition of the transactional id, and its producer."""
    _, client = replicated(**given)
    one = Kept(client, TRANSACTIONS, ID)
    return one, Producer(client, ID, one.coordinator, timeout_ms=timeout_ms)


def repeated(one: Kept, ask: Callable[[], ErrorCode]) -> ErrorCode:
    """Ask as a client does: again while the response says so."""
    for _ in range(200):
        one.cluster.run_until(lambda: all(is_led(one, index) for index in range(_PARTITIONS)))
        code = ask()
        if code not in _AGAIN:
            return code
        one.cluster.run(50)
    raise AssertionError(code)


def is_led(one: Kept, index: int) -> bool:
    """Whether a running node leads the partition of `t`, and the first image says so."""
    return one.client.leader_number("t", index) == one.cluster.leading("t", index)


def produce(one: Kept, producer: Producer, *indexes: int, value: bytes = b"v") -> None:
    for index in indexes:
        assert repeated(one, lambda index=index: producer.produce("t", index, value)) is NONE  # type: ignore[misc]


def end(one: Kept, producer: Producer, *, commit: bool) -> ErrorCode:
    producer.by = one.coordinator
    return repeated(one, lambda: producer.end(commit=commit))


def is_stable(one: Kept, index: int) -> bool:
    """Whether no transaction is open in a partition."""
    ends = [one.client.end_offset("t", index, isolation) for isolation in (0, _READ_COMMITTED)]
    return ends[0] == ends[1]


def settle(one: Kept, ms: int = 20_000) -> None:
    """Run until each partition is led, and no transaction is open in one."""
    one.cluster.run_until(lambda: all(is_led(one, index) for index in range(_PARTITIONS)))
    for _ in range(ms // 100):
        if all(is_stable(one, index) for index in range(_PARTITIONS)):
            return
        one.cluster.run(100)
    raise AssertionError("a transaction is open")


def aborted(one: Kept, index: int) -> int:
    """How many aborted transactions a partition has."""
    client = one.client
    topic_id = one.cluster.quorums[0].image.topics_by_name["t"].topic_id
    asked = FetchTopic(
        topic_id=topic_id, partitions=[FetchPartition(partition=index, partition_max_bytes=1 << 20)]
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        max_bytes=1 << 20,
        isolation_level=_READ_COMMITTED,
        session_epoch=-1,
        topics=[asked],
    )
    answer = client.ask(client.leader("t", index), request, 17, FetchResponse)
    assert isinstance(answer, FetchResponse)
    part = answer.responses[0].partitions[0]
    assert part.error_code == NONE
    return len(part.aborted_transactions or [])


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("move", MOVES)
def test_an_open_transaction_goes_on_with_another_coordinator(move: Move, *, commit: bool) -> None:
    one, producer = started()
    produce(one, producer, 0, 1, 2)
    one.move(move)
    produce(one, producer, 2, 3, 4, 5)
    assert not any(is_stable(one, index) for index in range(_PARTITIONS))
    assert end(one, producer, commit=commit) is NONE
    settle(one)
    assert [aborted(one, index) for index in range(_PARTITIONS)] == [0 if commit else 1] * _PARTITIONS
    produce(one, producer, 0)
    assert end(one, producer, commit=True) is NONE
    settle(one)


@pytest.mark.parametrize("move", MOVES)
def test_an_open_transaction_times_out_with_another_coordinator(move: Move) -> None:
    one, producer = started(timeout_ms=5_000)
    produce(one, producer, 0, 1, 2)
    one.cluster.run(3_000)
    one.move(move)
    settle(one, 20_000)
    assert [aborted(one, index) for index in range(3)] == [1, 1, 1]
    assert end(one, producer, commit=True) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("move", MOVES)
def test_the_epoch_of_a_producer_is_known_to_another_coordinator(move: Move) -> None:
    one, first = started()
    second = Producer(one.client, ID, one.coordinator)
    one.move(move)
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 1)
    assert end(one, first, commit=True) is ErrorCode.PRODUCER_FENCED
    third = Producer(one.client, ID, one.coordinator)
    assert (third.producer_id, third.epoch) == (first.producer_id, first.epoch + 2)


def test_a_fenced_coordinator_decides_nothing_and_names_itself_no_coordinator() -> None:
    one, producer = started(broker_session_timeout_ms="3000")
    produce(one, producer, *range(_PARTITIONS))
    old = one.coordinator
    late = old.connect()
    one.move(lambda _: old.pause())
    request = EndTxnRequest(producer.id, producer.producer_id, producer.epoch, committed=True)
    late.send(request, 5, EndTxnResponse)
    assert end(one, producer, commit=False) is NONE
    settle(one)
    old.resume()
    one.cluster.run_until(lambda: bool(late.replies), 60_000)
    answer = late.replies[0]
    assert isinstance(answer, EndTxnResponse)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    one.cluster.run_until(lambda: one.cluster.isr(*one.at) == {1, 2, 3})
    one.cluster.run(1_000)
    assert [aborted(one, index) for index in range(_PARTITIONS)] == [1] * _PARTITIONS
    logs = one.logs()
    assert len(logs) == 3
    assert logs[0] == logs[1] == logs[2]


def test_a_coordinator_that_is_still_loading_says_so_and_serves_afterwards() -> None:
    one, producer = started()
    produce(one, producer, 0)
    for node in one.cluster.nodes.values():
        node.job_delay_us = (2_000_000, 2_000_000)
    one.move(unelected)
    request = EndTxnRequest(producer.id, producer.producer_id, producer.epoch, committed=True)
    answer = one.client.ask(one.coordinator, request, 5, EndTxnResponse)
    assert isinstance(answer, EndTxnResponse)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert end(one, producer, commit=True) is NONE
    settle(one)


def test_the_next_coordinator_writes_the_markers_that_are_missing() -> None:
    # The partitions of `t` have one replica each, so that those of a dead node take no marker.
    _, client = replicated(replicas=1, transaction_state_log_min_isr="1")
    one = Kept(client, TRANSACTIONS, ID)
    producer = Producer(client, ID, one.coordinator)
    for index in range(_PARTITIONS):
        assert producer.produce("t", index, b"v") is NONE
    spare = one.cluster.nodes[NodeId((one.number + 1) % 3 + 1)]  # not the one that is elected next
    spare.kill(is_power_cut=False)
    producer.by = one.coordinator
    assert producer.end(commit=True) is NONE
    one.move(unelected)
    spare.start()
    one.cluster.run_until(lambda: one.cluster.is_ready)
    settle(one, 60_000)
    assert [aborted(one, index) for index in range(_PARTITIONS)] == [0] * _PARTITIONS


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("topic", [OFFSETS, TRANSACTIONS])
def test_offsets_of_a_transaction_count_once_it_is_committed_though_a_coordinator_moves(
    topic: str, move: Move
) -> None:
    one, producer = started()
    group = Kept(one.client, OFFSETS, GROUP)
    produce(one, producer, 0)
    added = producer.ask(
        AddOffsetsToTxnRequest(producer.id, producer.producer_id, producer.epoch, GROUP),
        4,
        AddOffsetsToTxnResponse,
    )
    assert isinstance(added, AddOffsetsToTxnResponse)
    assert added.error_code == NONE
    told = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 41)])]
    request = TxnOffsetCommitRequest(
        transactional_id=producer.id,
        group_id=GROUP,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=told,
    )
    answer = one.client.ask(group.coordinator, request, 4, TxnOffsetCommitResponse)
    assert isinstance(answer, TxnOffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == NONE

    (group if topic == OFFSETS else one).move(move)

    assert offset(group) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert end(one, producer, commit=True) is NONE
    one.cluster.run(1_000)
    assert offset(group) == (NONE, 41)


def offset(group: Kept) -> tuple[int, int]:
    """The error code and the stable offset of partition 0."""
    asked = [
        OffsetFetchRequestGroup(group.key, topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])
    ]
    node = group.client.coordinator(group.key, 0, group.coordinator)
    answer = group.client.ask(
        node, OffsetFetchRequest(groups=asked, require_stable=True), 8, OffsetFetchResponse
    )
    assert isinstance(answer, OffsetFetchResponse)
    part = answer.groups[0].topics[0].partitions[0]
    return part.error_code, part.committed_offset


@pytest.mark.parametrize("seed", range(4))
def test_transactions_end_whole_while_their_coordinator_moves(seed: int) -> None:
    one, producer = started()
    random = Random(f"{seed} moves")
    expected = 0
    for _ in range(6):
        commit = random.random() < 0.6
        strike = random.choice(MOVES)
        first = random.randrange(_PARTITIONS + 1)
        produce(one, producer, *range(first))
        old = one.move(strike)
        produce(one, producer, *range(first, _PARTITIONS))
        assert end(one, producer, commit=commit) is NONE
        if one.cluster.nodes[old].broker is None:
            one.cluster.nodes[old].start()
        one.cluster.run_until(lambda: one.cluster.is_ready and one.cluster.isr(*one.at) == {1, 2, 3})
        settle(one)
        expected += not commit
        assert [aborted(one, index) for index in range(_PARTITIONS)] == [expected] * _PARTITIONS
