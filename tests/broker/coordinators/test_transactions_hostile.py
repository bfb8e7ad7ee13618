"""Nonsense about transactions ends in a code or a closed connection, and a cut of the power in nothing
that was acknowledged.
"""

from contextlib import suppress
from random import Random

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from sparklog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from sparklog.wire.schema import Message
from tests.broker.transactions import SETTINGS, Producer, ready
from tests.broker.world import World

LONG = "x" * 32_000
IDS = ("a", "b", "sl.c", "", LONG, "snow☃")
EPOCHS = (-(2**15), -1, 0, 1, 2**15 - 2, 2**15 - 1)
NUMBERS = (-(2**63), -1, 0, 1, 2, 2**63 - 1)
INDEXES = (-(2**31), -1, 0, 1, 2, 7, 2**31 - 1)


def started(seed: int, **settings: str) -> World:
    world = World(seed, **(SETTINGS | settings))
    world.node.start()
    world.settle()
    world.create(world.node.connect(), "t", partitions=3)
    return world


def nonsense(random: Random) -> tuple[Message, int, type[Message]]:
    """A request that a decoder lets pass."""
    who = random.choice(IDS), random.choice(NUMBERS), random.choice(EPOCHS)
    named = random.choice((None, who[0]))
    topics = [
        AddPartitionsToTxnTopic(
            random.choice(("t", "", "__consumer_offsets", "?")),
            [random.choice(INDEXES)] * random.randint(0, 3),
        )
    ]
    parts = [
        AddPartitionsToTxnTransaction(*who, random.random() < 0.5, topics * random.randint(0, 2))
    ] * random.randint(0, 3)
    pattern = random.choice((None, "", "(", "a*" * 100, "[^"))
    return random.choice(
        (
            (InitProducerIdRequest(named, random.choice(INDEXES), who[1], who[2]), random.randint(3, 5), InitProducerIdResponse),  # noqa: E501
            (AddPartitionsToTxnRequest([], *who, topics), random.randint(0, 3), AddPartitionsToTxnResponse),
            (AddPartitionsToTxnRequest(parts), random.randint(4, 5), AddPartitionsToTxnResponse),
            (AddOffsetsToTxnRequest(*who, random.choice(IDS)), random.randint(0, 4), AddOffsetsToTxnResponse),
            (EndTxnRequest(*who, random.random() < 0.5), random.randint(0, 5), EndTxnResponse),
            (DescribeTransactionsRequest([who[0], who[0]]), 0, DescribeTransactionsResponse),
            (ListTransactionsRequest(["Dead", "?", ""], [who[1]], random.choice(NUMBERS), pattern), 2, ListTransactionsResponse),  # noqa: E501
        )
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_nonsense_is_answered_and_leaves_good_producers_alone(seed: int) -> None:
    random, world = Random(seed), started(seed)
    good = ready(world, "good")
    assert good.add(0) == [ErrorCode.NONE]
    client = world.node.connect()
    for _ in range(150):
        request, version, reply = nonsense(random)
        before = len(client.replies)
        client.send(request, version, reply)
        world.settle(random.choice((0, 5, 50)))
        if random.random() < 0.05:
            world.node.disconnect(client)
            client = world.node.connect()
            before = -1
        assert before < 0 or not client.is_closed
    world.settle(2_000)
    assert good.end(commit=True) is ErrorCode.NONE
    assert good.state() == "CompleteCommit"
    assert world.node.halted is None


def test_more_partitions_than_there_may_be_close_the_connection() -> None:
    world = started(1, **{"sparklog.partitions.max": "1000"})
    producer = ready(world, "a")
    parts = [producer.part(*range(600)), producer.part(*range(600))]
    producer.client.send(AddPartitionsToTxnRequest(transactions=parts), 5, AddPartitionsToTxnResponse)
    world.settle()
    assert producer.client.is_closed
    assert ready(world, "a").add(0) == [ErrorCode.NONE]


def test_an_end_pipelined_behind_many_additions_waits_for_none_of_them() -> None:
    world = started(1)
    producer = ready(world, "a")
    for _ in range(50):
        request = AddPartitionsToTxnRequest(transactions=[producer.part(0, 1)])
        producer.client.send(request, 5, AddPartitionsToTxnResponse)
    producer.client.send(EndTxnRequest("a", producer.producer_id, producer.epoch, True), 5, EndTxnResponse)
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction("a", producer.producer_id, 1, False, producer.part(2).topics)
        ]
    )
    producer.client.send(request, 5, AddPartitionsToTxnResponse)
    world.settle(3_000)
    last = producer.client.replies[-1]
    assert isinstance(last, AddPartitionsToTxnResponse)
    assert (
        last.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code
        == ErrorCode.NONE
    )
    assert producer.state() == "Ongoing"


class PowerCut(BaseException):
    """The machine is off."""


class History:
    """A producer that commits and aborts in turns; its replies before the power cut."""

    def __init__(self, seed: int) -> None:
        self.world = started(seed)
        self.producer = ready(self.world, "a")
        self.told: list[bool] = []
        self.asked = 0

    def run(self, cut_at: int | None) -> int:
        """Live until the disk is called for the `cut_at`th time; how often it was called."""
        calls = 0

        def fault(call: str, path: str) -> None:
            nonlocal calls
            calls += 1
            if calls == cut_at:
                raise PowerCut

        self.world.disk.fault = fault
        with suppress(PowerCut):
            for number in range(4):
                assert self.producer.add(0) == [ErrorCode.NONE]
                self.asked += 1
                assert self.producer.end(commit=number % 2 == 0) is ErrorCode.NONE
                self.told.append(number % 2 == 0)
        self.world.disk.fault = None
        return calls

    def after(self) -> None:
        """The power is back: the newest outcome that was told stands, and the producer goes on from there."""
        self.world.node.kill()
        self.world.node.start()
        self.world.settle()
        producer = Producer(self.world, "a")
        assert producer.find() is ErrorCode.NONE
        state = producer.state()
        assert not state.startswith("Prepare"), "markers are missing for ever"
        if len(self.told) == self.asked and self.told and state != "Ongoing":
            assert state == ("CompleteCommit" if self.told[-1] else "CompleteAbort")
        told = (self.producer.producer_id, self.producer.epoch)
        assert producer.init() is ErrorCode.NONE
        assert (producer.producer_id, producer.epoch) > told, "an epoch was given twice"
        assert producer.add(0) == [ErrorCode.NONE]
        assert producer.end(commit=True) is ErrorCode.NONE
        assert producer.state() == "CompleteCommit"


def sweep(seed: int, step: int) -> None:
    calls = History(seed).run(None)
    for cut_at in range(1 + seed % step, calls + 1, step):
        history = History(seed)
        history.run(cut_at)
        history.after()


def test_the_power_may_go_at_any_moment() -> None:
    sweep(1, 3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_the_power_may_go_at_every_moment(seed: int) -> None:
    sweep(seed, 1)
