"""Batches on their way: order, idempotence and time limits, against a leader that checks sequences as
Kafka's does.
"""

import random
from dataclasses import dataclass, field
from types import NoneType

import pytest

from sparklog.client.cluster import Cluster
from sparklog.client.failures import DeliveryFailed, RecordTooLarge
from sparklog.client.producer.outbound import Outbound
from sparklog.client.producer.outbound_batch import Done, OutboundBatch, Shipment
from sparklog.errors import BrokerError, ConnectionFailed, ErrorCode
from sparklog.model import Micros, NodeId, TopicPartition
from sparklog.record.batch import build_batch, decode_records, read_header
from sparklog.record.compression import Codec
from sparklog.wire.messages.init_producer_id import InitProducerIdResponse
from sparklog.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.wire import LATER, START, TOPIC_ID, metadata, ms, no_chance, settings

T0 = TopicPartition("t", 0)


def everyone(_: NodeId) -> bool:
    return True


def outbound(leaders: tuple[int, ...] = (1,), **given: object) -> tuple[Outbound, Cluster]:
    chosen = settings(**given)
    cluster = Cluster(chosen, no_chance)
    cluster.want(["t"])
    cluster.request(ms(0))
    cluster.replied(metadata({"t": leaders}, nodes=[(1, 9092), (2, 9093)]), ms(0))
    machine = Outbound(chosen, cluster, no_chance)
    return machine, cluster


def with_id(machine: Outbound, now: Micros = START) -> Outbound:
    assert machine.wants_producer_id(now)
    machine.producer_id_request()
    assert machine.producer_id_replied(InitProducerIdResponse(producer_id=7, producer_epoch=0), now) == []
    return machine


def known(machine: Outbound, partitions: tuple[int, ...] = (0,)) -> Outbound:
    """The broker has the sequences 0 and 1 of the producer."""
    for partition in partitions:
        machine.add(batch(partition=partition))
    for shipment in drain(with_id(machine)):
        machine.replied(shipment, reply(shipment), START)
    return machine


def batch(name: int = 0, partition: int = 0, deadline: Micros = LATER, count: int = 2) -> OutboundBatch:
    records = build_batch([(None, b"%d" % name, (), 0)] * count)
    return OutboundBatch(TopicPartition("t", partition), records, count, deadline, name)


def reply(shipment: Shipment, code: int = 0, base_offset: int = 0) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                topic_id=TOPIC_ID,
                partition_responses=[
                    PartitionProduceResponse(
                        index=b.topic_partition.partition, error_code=code, base_offset=base_offset
                    )
                    for b in shipment.batches
                ],
            )
        ]
    )


def sequences(shipments: list[Shipment]) -> list[int]:
    return [read_header(b.records).base_sequence for shipment in shipments for b in shipment.batches]


def drain(machine: Outbound, now: Micros = START) -> list[Shipment]:
    shipments: list[Shipment] = []
    while more := machine.requests(now, everyone):
        shipments += more
    return shipments


def test_nothing_leaves_before_there_is_a_producer_id() -> None:
    machine, _ = outbound()
    machine.add(batch())
    assert drain(machine) == []
    assert len(drain(with_id(machine))) == 1


def test_at_most_five_batches_of_a_partition_are_in_flight_and_their_sequences_follow() -> None:
    machine, _ = outbound()
    known(machine)
    for name in range(7):
        machine.add(batch(name))
    shipments = drain(machine)
    assert sequences(shipments) == [2, 4, 6, 8, 10]
    machine.replied(shipments[0], reply(shipments[0]), ms(1))
    assert sequences(drain(machine, ms(1))) == [12]


def test_the_second_batch_waits_until_the_broker_knows_the_producer() -> None:
    machine, _ = outbound()
    for name in range(3):
        machine.add(batch(name))
    (first,) = drain(with_id(machine))
    assert not machine.has_room(T0)
    machine.replied(first, reply(first, ErrorCode.NOT_LEADER_OR_FOLLOWER), ms(1))
    (again,) = drain(machine, ms(500))
    assert sequences([again]) == [0]
    machine.replied(again, reply(again), ms(500))
    assert sequences(drain(machine, ms(500))) == [2, 4]


def test_a_request_carries_one_batch_of_each_partition_of_a_leader() -> None:
    machine, _ = outbound(leaders=(1, 2, 1))
    for partition in (0, 1, 2, 0):
        machine.add(batch(partition=partition))
    with_id(machine)
    first = machine.requests(ms(0), everyone)
    assert {s.node: [b.topic_partition.partition for b in s.batches] for s in first} == {1: [0, 2], 2: [1]}


def test_a_request_stays_within_its_size_unless_one_batch_is_larger() -> None:
    machine, _ = outbound(leaders=(1, 1, 1), max_request_size=250)
    for partition, count in enumerate((5, 5, 100)):
        machine.add(batch(partition=partition, count=count))
    with_id(machine)
    assert [len(shipment.batches) for shipment in drain(machine)] == [2, 1]


def test_the_answer_tells_offset_and_time() -> None:
    machine, _ = outbound()
    machine.add(batch(3))
    (shipment,) = drain(with_id(machine))
    (done,) = machine.replied(shipment, reply(shipment, base_offset=42), ms(1))
    assert (done.batch.context, done.base_offset, done.error) == (3, 42, None)
    assert machine.unfinished == 0


def test_after_not_leader_everything_goes_again_in_order_with_the_same_sequences() -> None:
    machine, cluster = outbound()
    known(machine)
    for name in range(3):
        machine.add(batch(name))
    shipments = drain(machine)
    machine.replied(shipments[0], reply(shipments[0], ErrorCode.NOT_LEADER_OR_FOLLOWER), ms(1))
    assert cluster.deadline() is not None
    assert drain(machine, ms(500)) == [], "while later batches are in flight, nothing goes"
    for shipment in shipments[1:]:
        machine.replied(shipment, reply(shipment, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), ms(2))
    cluster.request(ms(600))
    cluster.replied(metadata({"t": [2]}, nodes=[(1, 9092), (2, 9093)], epoch=1), ms(600))
    again: list[Shipment] = []
    for step in range(3):
        (shipment,) = drain(machine, ms(600 + step))
        again.append(shipment)
        machine.replied(shipment, reply(shipment), ms(600 + step))
    assert [shipment.node for shipment in again] == [2, 2, 2]
    assert sequences(again) == [2, 4, 6]
    assert [read_header(s.batches[0].records).producer_epoch for s in again] == [0, 0, 0]


def test_a_new_leader_named_in_the_reply_is_sent_the_batch_at_once_without_a_metadata_request() -> None:
    machine, cluster = outbound(retry_backoff_ms=100)
    due = cluster.deadline()
    machine.add(batch())
    (shipment,) = drain(with_id(machine))
    refused = reply(shipment, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    refused.responses[0].partition_responses[0].current_leader = LeaderIdAndEpoch(9, 1)
    refused.node_endpoints = [NodeEndpoint(9, "127.0.0.1", 9099)]
    assert machine.replied(shipment, refused, ms(1)) == []
    (again,) = drain(machine, ms(1))
    assert (again.node, sequences([again])) == (9, [0])
    assert cluster.brokers[NodeId(9)].port == 9099
    assert cluster.deadline() == due


def test_batches_in_flight_when_the_leader_moves_go_to_the_new_one_at_once_and_in_order() -> None:
    machine, cluster = outbound(retry_backoff_ms=100)
    due = cluster.deadline()
    known(machine)
    for name in range(3):
        machine.add(batch(name))
    for shipment in drain(machine):
        refused = reply(shipment, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        refused.responses[0].partition_responses[0].current_leader = LeaderIdAndEpoch(2, 1)
        assert machine.replied(shipment, refused, ms(1)) == []
    sent = []
    while shipments := drain(machine, ms(1)):
        sent += [(shipment.node, *sequences([shipment])) for shipment in shipments]
        for shipment in shipments:
            machine.replied(shipment, reply(shipment), ms(1))
    assert sent == [(2, 2), (2, 4), (2, 6)]
    assert cluster.deadline() == due


def test_metadata_with_a_new_leader_ends_the_back_off_of_a_batch() -> None:
    machine, cluster = outbound(retry_backoff_ms=100)
    machine.add(batch())
    (shipment,) = drain(with_id(machine))
    assert machine.failed(shipment, ConnectionFailed("gone"), ms(0)) == []
    assert drain(machine, ms(10)) == []
    cluster.refresh_now()
    cluster.request(ms(10))
    cluster.replied(metadata({"t": [2]}, nodes=[(1, 9092), (2, 9093)], epoch=1), ms(10))
    (again,) = drain(machine, ms(10))
    assert (again.node, sequences([again])) == (2, [0])


def test_a_lost_connection_is_retried_after_the_back_off() -> None:
    machine, _ = outbound(retry_backoff_ms=100)
    machine.add(batch())
    (shipment,) = drain(with_id(machine))
    assert machine.failed(shipment, ConnectionFailed("gone"), ms(10)) == []
    assert drain(machine, ms(100)) == []
    assert machine.deadline(ms(10)) == pytest.approx(ms(110), abs=10)
    assert sequences(drain(machine, ms(111))) == [0]


def test_a_duplicate_counts_as_delivered() -> None:
    machine, _ = outbound()
    machine.add(batch())
    (shipment,) = drain(with_id(machine))
    (done,) = machine.replied(shipment, reply(shipment, ErrorCode.DUPLICATE_SEQUENCE_NUMBER), ms(1))
    assert (done.error, done.base_offset) == (None, -1)


def test_when_the_broker_lost_our_state_the_line_begins_with_the_next_epoch() -> None:
    machine, _ = outbound()
    machine.add(batch(0))
    (first,) = drain(with_id(machine))
    machine.replied(first, reply(first), ms(1))
    machine.add(batch(1))
    (second,) = drain(machine, ms(1))
    assert machine.replied(second, reply(second, ErrorCode.UNKNOWN_PRODUCER_ID), ms(2)) == []
    (again,) = drain(machine, ms(500))
    header = read_header(again.batches[0].records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 0)


def test_other_partitions_keep_their_epoch() -> None:
    machine, _ = outbound(leaders=(1, 1))
    known(machine, (0, 1))
    for partition in (0, 1):
        machine.add(batch(partition=partition))
    (both,) = drain(machine)
    answer = reply(both)
    answer.responses[0].partition_responses[0].error_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    machine.replied(both, answer, ms(1))
    for partition in (0, 1):
        machine.add(batch(partition=partition))
    headers = [read_header(b.records) for s in drain(machine, ms(500)) for b in s.batches]
    assert {(header.producer_epoch, header.base_sequence) for header in headers} == {(1, 0), (1, 2), (0, 4)}


def test_a_batch_refused_for_good_fails_alone() -> None:
    machine, _ = outbound()
    known(machine)
    for name in range(2):
        machine.add(batch(name))
    first, second = drain(machine)
    (done,) = machine.replied(first, reply(first, ErrorCode.INVALID_RECORD), ms(1))
    assert isinstance(done.error, BrokerError)
    assert machine.replied(second, reply(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), ms(1)) == []
    (again,) = drain(machine, ms(500))
    assert read_header(again.batches[0].records).base_sequence == 0
    assert read_header(again.batches[0].records).producer_epoch == 1
    (done,) = machine.replied(again, reply(again), ms(500))
    assert done.error is None


def sized(*sizes: int, codec: Codec = Codec.NONE) -> OutboundBatch:
    """A batch of values of these sizes, the first of them 0, 0, …, the second 1, 1, …"""
    records = [(b"k", b"%d" % number * size, [("h", None)], number) for number, size in enumerate(sizes)]
    return OutboundBatch(T0, build_batch(records, codec=codec), len(sizes), LATER)


def parts(shipments: list[Shipment]) -> list[tuple[int, list[int]]]:
    """The first sequence of each batch, and the sizes of its values."""
    return [
        (read_header(b.records).base_sequence, [len(r.value or b"") for r in decode_records(b.records)])
        for shipment in shipments
        for b in shipment.batches
    ]


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_batch_too_large_for_its_topic_is_sent_in_parts_before_the_ones_behind_it(
    code: ErrorCode, codec: Codec
) -> None:
    machine, _ = outbound()
    known(machine)
    machine.add(sized(10, 10, 10, 10, codec=codec))
    machine.add(batch(9))
    first, second = drain(machine)
    assert machine.replied(first, reply(first, code), ms(1)) == []
    assert machine.replied(second, reply(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), ms(1)) == []
    upper, lower = drain(machine, ms(500))
    assert parts([upper, lower]) == [(2, [10, 10]), (4, [10, 10])]
    (record,) = decode_records(lower.batches[0].records)[1:]
    assert (record.key, record.value, record.headers, record.timestamp) == (
        b"k",
        b"3" * 10,
        (("h", None),),
        3,
    )
    assert {read_header(shipment.batches[0].records).attributes for shipment in (upper, lower)} == {codec}
    assert machine.replied(upper, reply(upper, base_offset=70), ms(500)) == []
    (done,) = machine.replied(lower, reply(lower, base_offset=90), ms(500))
    assert (done.batch.record_count, done.error, done.base_offset) == (4, None, 70)
    assert [(part.base_offset, first, count) for part, first, count in done.among(1, 3)] == [
        (70, 1, 1),
        (90, 0, 2),
    ]
    assert parts(drain(machine, ms(500))) == [(6, [1, 1])]
    assert machine.unfinished == 1


def test_a_part_too_large_is_split_again_and_only_the_record_that_stays_too_large_fails() -> None:
    machine, _ = outbound()
    known(machine)
    machine.add(sized(10, 10, 900, 10))
    results: list[Done] = []
    accepted: list[int] = []
    for step in range(20):
        for shipment in drain(machine, ms(500 * step)):
            (sent,) = shipment.batches
            is_large = len(sent.records) > 500
            code = ErrorCode.MESSAGE_TOO_LARGE if is_large else ErrorCode.NONE
            accepted += [] if is_large else [record.timestamp for record in decode_records(sent.records)]
            results += machine.replied(shipment, reply(shipment, code, base_offset=step), ms(500 * step))
    (done,) = results
    errors = [part.error for index in range(4) for part, _, _ in done.among(index, 1)]
    assert [type(error) for error in errors] == [NoneType, NoneType, RecordTooLarge, NoneType]
    assert accepted == [0, 1, 3]


def test_without_idempotence_parts_have_no_sequences() -> None:
    machine, _ = outbound(acks=1, enable_idempotence="false")
    machine.add(sized(10, 10))
    (shipment,) = drain(machine)
    machine.replied(shipment, reply(shipment, ErrorCode.MESSAGE_TOO_LARGE), ms(1))
    assert parts(drain(machine, ms(1))) == [(-1, [10]), (-1, [10])]


def test_a_batch_is_given_up_at_its_deadline_and_the_next_begins_an_epoch() -> None:
    machine, _ = outbound()
    machine.add(batch(0, deadline=ms(1000)))
    (shipment,) = drain(with_id(machine))
    assert shipment.deadline == ms(1000), "the request waits no longer than its batch may"
    (done,) = machine.failed(shipment, ConnectionFailed("gone"), ms(1000))
    assert isinstance(done.error, DeliveryFailed)
    assert "gone" in str(done.error)
    machine.add(batch(1))
    (shipment,) = drain(machine, ms(1001))
    assert read_header(shipment.batches[0].records).producer_epoch == 1


def test_a_batch_without_a_leader_expires() -> None:
    machine, _ = outbound(leaders=(-1,))
    machine.add(batch(deadline=ms(1000)))
    with_id(machine)
    assert drain(machine) == []
    assert machine.expire(ms(999)) == []
    (done,) = machine.expire(ms(1000), lambda: ConnectionFailed("refused"))
    assert isinstance(done.error, DeliveryFailed)
    assert "refused" in str(done.error), "a batch that was never sent has no error of its own"
    assert machine.unfinished == 0


def test_a_reply_that_leaves_a_batch_out_is_no_acknowledgement() -> None:
    machine, _ = outbound()
    machine.add(batch())
    (shipment,) = drain(with_id(machine))
    (done,) = machine.replied(shipment, ProduceResponse(), ms(1))
    assert done.error is not None


def test_without_idempotence_no_id_is_asked_for_and_batches_carry_none() -> None:
    machine, _ = outbound(acks=1)
    machine.add(batch())
    assert not machine.wants_producer_id(ms(0))
    (shipment,) = drain(machine)
    assert shipment.request.acks == 1
    assert read_header(shipment.batches[0].records).producer_id == -1


def test_a_fatal_answer_to_the_question_for_an_id_fails_everything() -> None:
    machine, _ = outbound()
    machine.add(batch())
    machine.producer_id_request()
    (done,) = machine.producer_id_replied(
        InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ms(0)
    )
    assert isinstance(done.error, BrokerError)


@dataclass
class Leader:
    """A partition that keeps sequences as Kafka does: five remembered, gaps refused, new epochs begin at 0, a
    producer that it does not know with any. A batch has at most `bytes_max`.
    """

    written: list[int] = field(default_factory=list)
    epoch: int = -1
    expected: int = 0
    remembered: list[tuple[int, int]] = field(default_factory=list)
    bytes_max: int = 1 << 20

    def append(self, sent: OutboundBatch) -> ErrorCode:
        header = read_header(sent.records)
        place = (header.base_sequence, header.record_count)
        if len(sent.records) > self.bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE
        if header.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.producer_epoch > self.epoch:
            if header.base_sequence != 0 and self.epoch >= 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self.epoch, self.remembered = header.producer_epoch, []
        elif place in self.remembered:
            return ErrorCode.NONE
        elif header.base_sequence != self.expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.expected = header.base_sequence + header.record_count
        self.remembered = [*self.remembered[-4:], place]
        self.written += [int(record.value or b"") for record in decode_records(sent.records)]
        return ErrorCode.NONE


@pytest.mark.parametrize("bytes_max", [1 << 20, 80])
@pytest.mark.parametrize("seed", range(60))
def test_whatever_breaks_every_batch_is_written_once_and_in_order(seed: int, bytes_max: int) -> None:
    chance = random.Random(seed)
    machine, cluster = outbound()
    leader, now, finished = Leader(bytes_max=bytes_max), ms(0), list[Done]()
    wire: list[tuple[Shipment, ErrorCode | None]] = []  # the request, and the leader's result
    total, added, count = 40, 0, 5
    while machine.unfinished or added < total:
        now = Micros(now + chance.randrange(1, 40_000))
        cluster.request(now)
        cluster.replied(metadata({"t": [1]}, nodes=[(1, 9092), (2, 9093)]), now)
        if added < total and chance.random() < 0.5:
            machine.add(batch(added, count=count))
            added += 1
        if machine.wants_producer_id(now):
            with_id(machine, now)
        for shipment in machine.requests(now, everyone):
            fate = chance.random()
            refused = ErrorCode.NOT_LEADER_OR_FOLLOWER if fate < 0.15 else None
            # The request may be lost before the leader sees it.
            code = refused or (leader.append(shipment.batches[0]) if fate < 0.9 else None)
            wire.append((shipment, code))
        if wire and chance.random() < 0.1:
            # The connection breaks: the leader's writes stay, without an acknowledgement.
            for shipment, _ in wire:
                finished += machine.failed(shipment, ConnectionFailed("gone"), now)
            wire.clear()
        elif wire and chance.random() < 0.6:
            shipment, code = wire.pop(0)
            if code is None:
                for lost, _ in [(shipment, code), *wire]:
                    finished += machine.failed(lost, ConnectionFailed("gone"), now)
                wire.clear()
            else:
                finished += machine.replied(shipment, reply(shipment, code), now)
    assert [done.error for done in finished] == [None] * total
    assert leader.written == [name for name in range(total) for _ in range(count)]
