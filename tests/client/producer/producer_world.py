"""A producer's threads without threads: the steps of `turns.py` are performed on virtual time, in an order
that a seed draws each time a thread releases the lock.

`World.thread` starts a thread from a generator of steps, `World.run` performs steps until a moment. A
thread that is woken too late shows in the time at which it ends.
"""

import random
from collections.abc import Callable, Generator
from contextlib import nullcontext
from dataclasses import dataclass, field
from inspect import GEN_CREATED, getgeneratorstate

from sparklog.client.cluster import Cluster
from sparklog.client.failures import ClientClosed
from sparklog.client.logs import Reports
from sparklog.client.producer.accumulator import Gathering
from sparklog.client.producer.sending import Sending
from sparklog.client.producer.turns import WITHOUT_LIMIT, Action, Step, Steps, Turns
from sparklog.client.transport.connection import Answer
from sparklog.errors import ErrorCode, SparklogError
from sparklog.model import Micros, NodeId, TopicPartition
from sparklog.record.batch import HEADER_SIZE, record_size_max
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.metadata import MetadataResponse
from sparklog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from sparklog.wire.schema import Message
from tests.client.producer.transaction_world import Broker
from tests.client.wire import START, TOPIC_ID, metadata, ms, no_chance, settings

RTT_MS = 10
BACKGROUND = 1


def known() -> MetadataResponse:
    """Partition 7 has a leader of its own."""
    return metadata({"t": [1] * 7 + [2], "u": [1]}, nodes=[(1, 9092), (2, 9093)])


class FakeNetwork:
    """Brokers that answer after `RTT_MS`; `muted` partitions are never acknowledged, the partitions in
    `refused` once with that error.
    """

    def __init__(self, cluster: Cluster, clock: Callable[[], Micros]) -> None:
        self._cluster = cluster
        self.now = clock
        self.reports = Reports("test")
        self.trouble: SparklogError | None = None
        self.last_error: SparklogError | None = None
        self.refusal: SparklogError | None = None
        self.is_woken = False
        self.is_in_use = False
        """Whether a thread is in a SHIP or TURN."""
        self.sent: list[tuple[TopicPartition, Micros]] = []
        self.muted: set[TopicPartition] = set()
        self.refused: dict[TopicPartition, ErrorCode] = {}
        self.has_metadata = True
        self._coordinator = Broker()
        self._coordinator.coordinator = 1
        self._answers: list[tuple[Micros, Answer | None]] = []  # None: metadata

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    def next_answer(self) -> Micros | None:
        return min((when for when, _ in self._answers), default=None)

    def anyone(self) -> NodeId:
        return NodeId(1)

    def is_ready(self, node: NodeId) -> bool:
        return True

    def send(
        self,
        node: NodeId,
        message: Message,
        token: object,
        *,
        timeout_us: int | None = None,
        version_max: int | None = None,
        expects_reply: bool = True,
    ) -> None:
        answer = self._answer(message)
        if answer is not None and expects_reply:
            self._answers.append((Micros(self.now() + ms(RTT_MS)), Answer(token, answer)))

    def poll(self, deadline: Micros) -> list[Answer]:
        now = self.now()
        if self.cluster.request(now) is not None and self.has_metadata:
            self._answers.append((Micros(now + ms(RTT_MS)), None))
        due = [answer for when, answer in self._answers if when <= now]
        self._answers = [(when, answer) for when, answer in self._answers if when > now]
        if None in due:
            self.cluster.replied(known(), now)
        return [answer for answer in due if answer is not None]

    def next_event(self, until: Micros, now: Micros) -> Micros:
        assert not self.is_in_use
        deadline = self.cluster.deadline()
        return until if deadline is None else min(until, deadline)

    def wake(self) -> None:
        self.is_woken = True

    def _answer(self, message: Message) -> Message | None:
        if isinstance(message, InitProducerIdRequest) and message.transactional_id is None:
            return InitProducerIdResponse(producer_id=7, producer_epoch=0)
        if not isinstance(message, ProduceRequest):
            return self._coordinator.answer(message, 0, 99)
        partitions = [
            TopicPartition(topic.name, data.index)
            for topic in message.topic_data
            for data in topic.partition_data
        ]
        self.sent += [(partition, self.now()) for partition in partitions]
        if self.muted.intersection(partitions):
            return None
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    topic_id=TOPIC_ID,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=one.partition, error_code=self.refused.pop(one, ErrorCode.NONE)
                        )
                        for one in partitions
                    ],
                )
            ]
        )


@dataclass(slots=True)
class Thread:
    """`performed` is whether the step of `action` has run, and only its end under the lock is left."""

    me: int
    stack: list[Generator[Action, Micros, object]]
    action: Action | None = None
    performed: Micros | None = None
    ended: Micros | None = None
    result: object = None
    is_notified: bool = False


@dataclass
class World:
    seed: int
    given: dict[str, object] = field(default_factory=dict)
    clock: Micros = START

    def __post_init__(self) -> None:
        chosen = settings(**self.given)
        self._random = random.Random(self.seed)
        cluster = Cluster(chosen, no_chance)
        cluster.want(["t"])
        cluster.request(ms(0))
        cluster.replied(known(), ms(0))
        self.linger = ms(chosen.linger_ms)
        self.network = FakeNetwork(cluster, lambda: self.clock)
        self.sending = Sending(chosen, self.network, no_chance, nullcontext(True), self._notify)
        self.turns = Turns(self.sending, lambda: self.clock, sends_full_batches=chosen.linger_ms > 0)
        self.threads: list[Thread] = []
        self._current: Thread | None = None
        self.is_network_closed = False
        self.turn_us_max = 0
        self.thread(self.turns.background)

    # -- the calls of a user's threads -----------------------------------------------------------------------

    def append(
        self, me: int, partition: int = 0, size: int = 10, callback: Callable[[], None] | None = None
    ) -> Generator[Action, Micros, Gathering]:
        """As `Producer.send`."""
        topic_partition = TopicPartition("t", partition)
        value = bytes(size)
        taken = self.sending.accumulator.append(
            topic_partition, None, value, (), 0, self.clock, record_size_max(None, value, ())
        )
        if taken is None:
            self.sending.accumulator.is_short = True
            self.turns.wanted()
            has_memory = self.sending.accumulator.has_memory
            needed = HEADER_SIZE + record_size_max(None, value, ())
            assert (yield from self.turns.wait(me, lambda: has_memory(needed), WITHOUT_LIMIT))
            self.sending.accumulator.is_short = False
            return (yield from self.append(me, partition, size, callback))
        batch, _ = taken
        if callback is not None:
            batch.callbacks.append(callback)
        accumulator = self.sending.accumulator
        if accumulator.has_changed or not self.linger:
            accumulator.has_changed = False
            if not self.linger or accumulator.has_full:
                yield from self.turns.send(me)
            else:
                self.turns.due_at(Micros(self.clock + self.linger))
        return batch

    def result(self, me: int, batch: Gathering, deadline: Micros = WITHOUT_LIMIT) -> Steps[bool]:
        """As `Delivery.result`."""
        return (yield from self.turns.wait(me, lambda: batch.done is not None, deadline))

    def send_and_wait(
        self, partition: int = 0, deadline: Micros = WITHOUT_LIMIT
    ) -> Callable[[int], Steps[bool]]:
        def steps(me: int) -> Steps[bool]:
            batch = yield from self.append(me, partition)
            return (yield from self.result(me, batch, deadline))

        return steps

    def flush(self, me: int) -> Steps[None]:
        """As `Producer.flush`."""
        self.sending.accumulator.flush()
        self.turns.wanted()
        for batch in list(self.sending.accumulator.incomplete):
            yield from self.result(me, batch)

    def tell(self, me: int, fact: Callable[[], object]) -> Steps[None]:
        """As `Sender.tell`."""
        yield from self.turns.alone(me)
        fact()
        self.turns.wanted()
        self._publish(me)
        yield from self.turns.send(me)

    def close(self, me: int) -> Steps[None]:
        """As `Sender.close`; a join is left to `run`."""
        self.turns.closed()
        yield from self.turns.alone(me)
        self.sending.give_up(ClientClosed("closed"))
        self._publish(me)
        assert not self._sleeping()
        self.is_network_closed = True

    def call(self, steps: Callable[[int], Steps[object]]) -> None:
        """Run steps in the thread that runs the callback."""
        assert self._current is not None
        self._current.stack.append(steps(self._current.me))

    # -- the scheduler ---------------------------------------------------------------------------------------

    def thread(self, steps: Callable[[int], Steps[object]]) -> Thread:
        started = Thread(len(self.threads) + BACKGROUND, [])
        started.stack.append(steps(started.me))
        self.threads.append(started)
        return started

    def run(self, until: Micros) -> None:
        """Perform all that is due until that moment."""
        for _ in range(100_000):
            if runnable := [thread for thread in self.threads if self._is_runnable(thread)]:
                self._advance(self._random.choice(runnable))
                continue
            times = [thread.action[1] for thread in self.threads if thread.action and thread.ended is None]
            answer = self.network.next_answer()
            is_heard = any(thread.action and thread.action[0] is Step.SLEEP for thread in self.threads)
            if answer is not None and answer > self.clock and is_heard:
                times.append(answer)
            self.clock = min([until, *(time for time in times if time > self.clock)])
            if self.clock >= until:
                return
        raise AssertionError("a thread spins")

    def _is_runnable(self, thread: Thread) -> bool:
        if thread.ended is not None:
            return False
        if thread.action is None or thread.performed is not None:
            return True
        step, until = thread.action
        if step is Step.SLEEP:
            answer = self.network.next_answer()
            is_answered = answer is not None and answer <= self.clock
            return self.network.is_woken or is_answered or until <= self.clock
        if step is Step.WAIT:
            return thread.is_notified or until <= self.clock
        return step is not Step.REST or until <= self.clock

    def _advance(self, thread: Thread) -> None:
        """Perform the step of a thread; or end it, and go on to the next step with the lock held."""
        self._current = thread
        if thread.action is not None and thread.performed is None:
            thread.performed = self._perform(thread.action)
            return
        if thread.action is not None and thread.action[0] in (Step.SHIP, Step.TURN):
            self.network.is_in_use = False
            self._publish(thread.me)
        performed, thread.performed, thread.is_notified = thread.performed, None, False
        try:
            generator = thread.stack[-1]
            is_new = getgeneratorstate(generator) == GEN_CREATED
            thread.action = next(generator) if is_new else generator.send(performed or Micros(0))
            assert len(self._sleeping()) <= 1, "two threads sleep at the sockets"
        except StopIteration as end:
            thread.stack.pop()
            thread.action = None
            thread.result = end.value
            if self.sending.has_callbacks:
                self.sending.call(lambda callback: callback())
            if not thread.stack:
                thread.ended = self.clock

    def _sleeping(self) -> list[Thread]:
        """The threads that are at the sockets."""
        return [one for one in self.threads if one.action and one.action[0] is Step.SLEEP]

    def _perform(self, action: Action) -> Micros:
        step, until = action
        if step in (Step.SHIP, Step.TURN):
            assert not self.is_network_closed
            assert not self.network.is_in_use, "two threads work"
            self.network.is_in_use = True
            return self._lasting(self.sending.ship() if step is Step.SHIP else self.sending.turn())
        if step is Step.SLEEP:
            self.network.is_woken = False
        elif step is Step.CALL:
            self.sending.call(lambda callback: callback())
        return until

    def _lasting(self, now: Micros) -> Micros:
        self.clock = Micros(self.clock + self._random.randint(0, self.turn_us_max))
        return now

    def _publish(self, me: int) -> None:
        if self.sending.publish():
            self.turns.published(me)

    def _notify(self) -> None:
        for thread in self.threads:
            if thread.action is not None and thread.action[0] is Step.WAIT:
                thread.is_notified = True
