"""The resolver as a machine: it asks nothing unasked, forgets in time, and a hostile answer costs it no
more than the round.
"""

import pytest

from sparklog.client.exactly_once.decisions import (
    TOPIC,
    About,
    Decision,
    encode_decision,
    key_of,
    partition_of,
    sink_name,
    task_id,
)
from sparklog.client.producer.transaction_states import ProducerIdentity
from sparklog.client.settings import ClientSettings
from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, Millis, NodeId, ProducerEpoch, ProducerId
from sparklog.record.batch import build_batch
from sparklog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from sparklog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.coordinators import resolver
from sparklog_server.broker.coordinators.resolver import KEPT_US, ROUND_US_MAX, ResolverRequest, SinkResolver
from sparklog_server.coordinator.txn.events import Answer

SINK = sink_name("s")
OURS = ProducerIdentity(task_id(SINK, 0, 0, "aa"), ProducerId(7), ProducerEpoch(0))
STRAY = ProducerIdentity(task_id(SINK, 0, 1, "bb"), ProducerId(8), ProducerEpoch(0))
DECIDED = build_batch(
    [(key_of(SINK, About.DECISION), encode_decision(Decision("s", "q", 0, "u", (OURS,))), (), 0)]
)
TOPIC_ID = bytes(range(16))


class Clusterlike:
    """One broker that answers a resolver from `batches`, at offsets from 0; `is_there` is the topic."""

    def __init__(self, *batches: bytearray, is_there: bool = True) -> None:
        self.traced: list[str] = []
        self.now_us = 1_000_000
        self.is_there = is_there
        self.batches = list(batches)
        self.asked: list[Message] = []
        settings = ClientSettings.from_kafka({"bootstrap.servers": "127.0.0.1:1"})
        self.resolver = SinkResolver(
            settings, entropy=bytes, trace=lambda event, **_: self.traced.append(event)
        )

    def verdict(self, one: ProducerIdentity) -> Answer:
        return self.resolver.verdict(*one, Instant(Micros(self.now_us), Millis(0)))

    def settle(self) -> None:
        """Answer until no question is left."""
        for _ in range(50):
            self.now_us += 100_000
            for ask in self.resolver.asks(Micros(self.now_us)):
                self.asked.append(ask.message)
                self.resolver.replied(ask, self.answer(ask), Micros(self.now_us))

    def answer(self, ask: ResolverRequest) -> Message:
        partition = partition_of(SINK, 16)
        if isinstance(ask.message, MetadataRequest):
            there = [
                MetadataResponsePartition(partition_index=number, leader_id=1, leader_epoch=0)
                for number in range(16)
            ]
            topic = MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=there)
            gone = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=TOPIC)
            brokers = [MetadataResponseBroker(node_id=1, host="127.0.0.1", port=1)]
            return MetadataResponse(brokers=brokers, topics=[topic if self.is_there else gone])
        if isinstance(ask.message, ListOffsetsRequest):
            told = ListOffsetsPartitionResponse(partition_index=partition, offset=len(self.batches))
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[told])])
        assert isinstance(ask.message, FetchRequest)
        offset = ask.message.topics[0].partitions[0].fetch_offset
        records = bytearray(self.batches[offset])
        records[:8] = offset.to_bytes(8, "big")
        data = PartitionData(partition_index=partition, records=memoryview(records))
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])])


def test_nothing_is_asked_before_a_question() -> None:
    world = Clusterlike(DECIDED)
    world.settle()
    assert world.asked == []
    assert world.resolver.deadline() is None


def test_what_the_decision_names_is_committed_and_what_it_does_not_is_aborted() -> None:
    world = Clusterlike(DECIDED)
    assert (world.verdict(OURS), world.verdict(STRAY)) == (Answer.ASK_AGAIN, Answer.ASK_AGAIN)
    world.settle()
    assert (world.verdict(OURS), world.verdict(STRAY)) == (Answer.COMMIT, Answer.ABORT)


def test_a_question_that_comes_while_a_round_is_under_way_waits_for_the_next_one() -> None:
    world = Clusterlike(DECIDED)
    world.verdict(OURS)
    world.now_us += 10
    world.verdict(STRAY)
    world.settle()
    assert world.verdict(STRAY) is Answer.ASK_AGAIN
    world.settle()
    assert world.verdict(STRAY) is Answer.ABORT


def test_an_epoch_that_the_decision_does_not_name_is_aborted() -> None:
    world = Clusterlike(DECIDED)
    older = OURS._replace(producer_epoch=ProducerEpoch(1))
    assert world.verdict(older) is Answer.ASK_AGAIN
    world.settle()
    assert world.verdict(older) is Answer.ABORT


def test_without_the_topic_nothing_was_decided() -> None:
    world = Clusterlike(is_there=False)
    assert world.verdict(OURS) is Answer.ASK_AGAIN
    world.settle()
    assert world.verdict(OURS) is Answer.ABORT


def test_a_decision_that_comes_after_the_first_round_is_seen_by_the_next() -> None:
    world = Clusterlike()
    world.verdict(STRAY)
    world.settle()
    world.batches.append(DECIDED)
    assert world.verdict(OURS) is Answer.ASK_AGAIN
    world.settle()
    assert world.verdict(OURS) is Answer.COMMIT


def test_the_coordinator_of_a_sink_and_ids_of_no_sink_are_aborted_at_once() -> None:
    world = Clusterlike(DECIDED)
    for name in (f"sl.{SINK}.coord", "sl.somebody", "sl."):
        assert world.verdict(ProducerIdentity(name, ProducerId(1), ProducerEpoch(0))) is Answer.ABORT
    world.settle()
    assert world.asked == []


@pytest.mark.parametrize(
    "records", [b"\0" * 100, bytes(DECIDED)[:-1], bytes(DECIDED)[:-1] + b"\xff", b"\xff" * 200]
)
def test_bytes_that_are_no_records_end_the_round_and_nothing_else(records: bytes) -> None:
    world = Clusterlike(bytearray(records))
    assert world.verdict(OURS) is Answer.ASK_AGAIN
    world.settle()
    assert "decisions-unread" in world.traced
    assert world.verdict(OURS) is Answer.ASK_AGAIN
    world.batches = [DECIDED]
    world.settle()
    assert world.verdict(OURS) is Answer.COMMIT


def test_a_decision_that_cannot_be_read_is_no_reason_to_abort() -> None:
    world = Clusterlike(build_batch([(key_of(SINK, About.DECISION), b'{"version":9}', (), 0)]))
    for _ in range(3):
        assert world.verdict(OURS) is Answer.ASK_AGAIN
        world.settle()


def test_a_broker_that_does_not_answer_is_asked_again_with_the_next_question() -> None:
    world = Clusterlike(DECIDED)
    world.verdict(OURS)
    (ask,) = world.resolver.asks(Micros(world.now_us + 2))
    world.now_us += ROUND_US_MAX + 10
    assert world.resolver.asks(Micros(world.now_us)) == []
    assert not world.resolver.is_at_work
    world.resolver.failed(ask, Micros(world.now_us))
    assert world.verdict(OURS) is Answer.ASK_AGAIN
    world.settle()
    assert world.verdict(OURS) is Answer.COMMIT


def test_what_was_read_is_forgotten_when_nobody_asks_any_more() -> None:
    world = Clusterlike(DECIDED)
    world.verdict(OURS)
    world.settle()
    assert not world.resolver.forget(Micros(world.now_us))
    assert world.resolver.forget(Micros(world.now_us + KEPT_US))
    assert world.verdict(OURS) is Answer.ASK_AGAIN
    world.settle()
    assert world.verdict(OURS) is Answer.COMMIT


def test_decisions_take_a_bounded_memory_and_one_that_had_to_go_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Sinks that share a partition, so that one world of one partition will do.
    alike = [
        name for name in map(str, range(200)) if partition_of(sink_name(name), 16) == partition_of(SINK, 16)
    ][:6]
    tasks = [
        ProducerIdentity(task_id(sink_name(name), 0, 0, "aa"), ProducerId(7), ProducerEpoch(0))
        for name in alike
    ]
    values = [
        encode_decision(Decision(name, "q", 0, "u", (task,))) for name, task in zip(alike, tasks, strict=True)
    ]
    batches = [
        build_batch([(key_of(sink_name(name), About.DECISION), value, (), 0)])
        for name, value in zip(alike, values, strict=True)
    ]
    monkeypatch.setattr(resolver, "DECISIONS_BYTES_MAX", 2 * max(map(len, values)))
    world = Clusterlike(*batches)
    left, rounds = list(tasks), 0
    while left:
        answers = [world.verdict(task) for task in left]
        assert Answer.ABORT not in answers
        left = [task for task, answer in zip(left, answers, strict=True) if answer is Answer.ASK_AGAIN]
        world.settle()
        rounds += 1
    assert rounds == 4  # a first question, and two of six are in memory each time


def test_answers_of_strangers_change_nothing() -> None:
    world = Clusterlike(DECIDED)
    world.verdict(OURS)
    world.resolver.replied(
        ResolverRequest(NodeId(1), FetchRequest()), FetchResponse(error_code=1), Micros(world.now_us)
    )
    world.settle()
    assert world.verdict(OURS) is Answer.COMMIT
