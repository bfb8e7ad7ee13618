"""Random histories of transactions: the invariants hold for any sequence of producers, clocks and markers,
and a reload restores the same shard.
"""

from random import Random

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import TopicPartition
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog_server.coordinator.shard import Decision
from sparklog_server.coordinator.txn.events import AddOffsets, Answer, MarkersWritten, Verdict
from sparklog_server.coordinator.txn.records import decode_record
from sparklog_server.coordinator.txn.states import ENDING, EPOCH_MAX, LEGAL, State, Transaction
from sparklog_server.coordinator.txn.transaction_config import TransactionConfig
from tests.coordinator.transactions import TxnWorld

IDS = ("a", "b", "sl.c")
STEPS = 150
SETTINGS = TransactionConfig(
    timeout_max_ms=60_000, expiration_ms=300_000, resolved_expiration_ms=60_000, expiry_interval_ms=40_000
)


class History:
    """Producers with the ids and epochs that they got, older ones among them, and random events."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = TxnWorld(SETTINGS, level=self.random.choice((0, 1, 2, 2)))
        self.known: dict[str, list[tuple[int, int, int]]] = {
            one: [] for one in IDS
        }  # (producer id, epoch, client version) as assigned
        self.before: dict[str, Transaction | None] = dict.fromkeys(IDS)
        self.tokens = 0

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()

    def step(self) -> None:
        """One event; then the durable state satisfies the invariants, and a reload restores it."""
        random, world = self.random, self.world
        transactional_id = random.choice(IDS)
        action = random.choice(
            (
                "init",
                "init",
                "add",
                "add",
                "add",
                "end",
                "end",
                "end",
                "written",
                "written",
                "time",
                "verdict",
                "reload",
            )
        )
        appended_before = len(world.log)
        if action == "init":
            self._init(transactional_id)
        elif action in ("add", "end"):
            self._produce(transactional_id, action)
        elif action == "written" and transactional_id in world.due:
            due = world.due[transactional_id]
            failed = tuple(one for one in due.partitions if random.random() < 0.2)
            done = tuple(one for one in due.partitions if one not in failed)
            world.decide(
                MarkersWritten(transactional_id, due.producer_id, due.producer_epoch, done, failed), 0
            )
        elif action == "verdict" and transactional_id in world.verdicts:
            asked = world.verdicts[transactional_id]
            world.decide(
                Verdict(
                    transactional_id, asked.producer_id, asked.producer_epoch, random.choice(tuple(Answer))
                ),
                0,
            )
        elif action == "time":
            for _, decision in world.advance(random.choice((0.0, 0.1, 1.0, 30.0, 120.0))):
                self._learn(decision)
        elif action == "reload":
            world.reload()
        self._check_moves(appended_before)
        if random.random() < 0.1:
            self._exhaust(transactional_id)
        replayed = world.make_shard()
        assert replayed.transactions == world.shard.transactions

    def _token(self, transactional_id: str, version: int) -> tuple[str, int, int]:
        self.tokens += 1
        return transactional_id, version, self.tokens

    def _init(self, transactional_id: str) -> None:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=self.random.choice((5_000, 60_000))
        )
        version = 2 if self.world.level == 2 and self.random.random() < 0.7 else 0
        if self.known[transactional_id] and self.random.random() < 0.4:
            request.producer_id, request.producer_epoch, version = self.random.choice(
                self.known[transactional_id]
            )
        self._learn(self.world.decide(request, 5, self._token(transactional_id, version)))

    def _produce(self, transactional_id: str, action: str) -> None:
        if not self.known[transactional_id]:
            return
        random, world = self.random, self.world
        pair = (
            self.known[transactional_id][-1]
            if random.random() < 0.8
            else random.choice(self.known[transactional_id])
        )
        producer_id, epoch, client_version = pair
        token = self._token(transactional_id, client_version)
        before = world.shard.transactions.get(transactional_id)
        if action == "end":
            request = EndTxnRequest(transactional_id, producer_id, epoch, random.random() < 0.6)
            decision = world.decide(request, 5 if client_version == 2 else 3, token)
        elif random.random() < 0.2:
            decision = world.decide(
                AddOffsets(transactional_id, producer_id, epoch, TopicPartition("__consumer_offsets", 1)),
                4,
                token,
            )
        else:
            topics = [AddPartitionsToTxnTopic("t", random.sample(range(4), random.randint(1, 3)))]
            asked = AddPartitionsToTxnTransaction(
                transactional_id, producer_id, epoch, random.random() < 0.2, topics
            )
            decision = world.decide(
                AddPartitionsToTxnRequest(transactions=[asked]), 5 if client_version == 2 else 4, token
            )
        if decision.records:
            # Only the newest producer changes a transaction.
            assert before is not None
            assert (producer_id, epoch) == (before.producer_id, before.producer_epoch)
        self._learn(decision)

    def _learn(self, decision: Decision) -> None:
        for answer in decision.answers:
            reply, token = answer.reply, answer.token
            if isinstance(reply, (InitProducerIdResponse, EndTxnResponse)) and isinstance(token, tuple):
                transactional_id, version, _ = token
                if reply.error_code == ErrorCode.NONE and reply.producer_id >= 0:
                    assert 0 <= reply.producer_epoch < EPOCH_MAX  # one epoch is left to fence it by
                    self.known[transactional_id].append((reply.producer_id, reply.producer_epoch, version))

    def _exhaust(self, transactional_id: str) -> None:
        transaction = self.world.shard.transactions.get(transactional_id)
        if (
            transaction is not None
            and transaction.state in (State.EMPTY, State.ONGOING)
            and transaction.producer_epoch < EPOCH_MAX - 3
        ):
            self.world.run(f"exhaust {transactional_id} {self.random.randint(EPOCH_MAX - 3, EPOCH_MAX - 1)}")
            known = self.world.producers[transactional_id]
            self.known[transactional_id].append((*known, 2 if self.world.level == 2 else 0))
            self.before[transactional_id] = self.world.shard.transactions[transactional_id]

    def _check_moves(self, appended_before: int) -> None:
        for record in self.world.log[appended_before:]:
            transactional_id, after = decode_record(record.key, record.value)
            before = self.before[transactional_id]
            self.before[transactional_id] = after
            if after is None:
                assert before is not None
                assert State.DEAD in LEGAL[before.state]
                continue
            if before is None:
                assert after.state is State.EMPTY
                continue
            is_fence = before.state is State.ONGOING and after.state is State.PREPARE_ABORT
            assert is_fence or after.state in LEGAL[before.state], (before.state, after.state)
            # A producer id never decreases, nor does an epoch of it.
            assert (after.producer_id, after.producer_epoch) >= (before.producer_id, before.producer_epoch)
            if after.state in ENDING:
                assert after.partitions == before.partitions
                assert (after.producer_id, after.producer_epoch) > (
                    before.producer_id,
                    before.producer_epoch,
                ) or after.client_version < 2


@pytest.mark.parametrize("seed", range(40))
def test_every_move_is_legal_and_every_reload_finds_the_same(seed: int) -> None:
    History(seed).run()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_every_move_is_legal_and_every_reload_finds_the_same_at_length(seed: int) -> None:
    History(seed).run()


def test_what_is_about_to_end_goes_on_after_a_reload_at_every_point() -> None:
    """A log truncated after any record is the log of a crash: missing markers are due again, and no other
    action is.
    """
    history = History(7)
    history.run()
    log = history.world.log
    for length in range(len(log)):
        world = TxnWorld(SETTINGS)
        world.log = log[:length]
        world.reload()
        told = {answer.token.transactional_id for decision in world.took for answer in decision.answers}  # type: ignore[attr-defined]
        waiting = {
            one
            for one, transaction in world.shard.transactions.items()
            if transaction.state in ENDING and transaction.partitions
        }
        assert told == waiting
        for transactional_id in sorted(told):
            world.run(f"written {transactional_id}")
        assert not [one for one in world.shard.transactions.values() if one.state in ENDING]


def test_every_unused_id_is_forgotten_however_many_there_are() -> None:
    world = TxnWorld(SETTINGS)
    for number in range(250):
        world.run(f"init id-{number}")
    world.advance(320)
    assert list(world.shard.transactions) == []
    world.reload()
    assert list(world.shard.transactions) == []


def test_many_that_time_out_at_once_are_all_aborted_and_each_tells_its_markers() -> None:
    world = TxnWorld(SETTINGS)
    for number in range(250):
        world.run(f"init id-{number} timeout=5")
        world.run(f"add id-{number} t-{number} v=5")
    world.advance(20)
    assert len(world.due) == 250
    assert {one.state for one in world.shard.transactions.values()} == {State.PREPARE_ABORT}
