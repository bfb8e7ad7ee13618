"""Each event that a producer's threads wait for ends their sleep at its time, in every order of the threads
that is tried.
"""

from collections.abc import Callable

import pytest

from sparklog.client.producer.transaction import Transaction
from sparklog.client.producer.turns import ATTENDED_US, WITHOUT_LIMIT, Step, Steps
from sparklog.errors import ErrorCode
from sparklog.model import Micros, TopicPartition
from tests.client.producer.producer_world import RTT_MS, World
from tests.client.wire import START, ms

SEEDS = range(12)
SILENT, OTHER = 7, 1
REST = Micros(ATTENDED_US)
RTT = ms(RTT_MS)

every_order = pytest.mark.parametrize("seed", SEEDS)


def world(seed: int, **given: object) -> World:
    """A producer that has its producer id, with a thread in the background."""
    made = World(seed, {"linger_ms": 5, "request_timeout_ms": 20_000} | given)
    made.network.muted = {TopicPartition("t", SILENT)}
    first = made.thread(made.send_and_wait())
    made.run(Micros(made.linger + ms(1000)))
    assert first.result is True
    made.network.sent.clear()
    return made


def watched(seed: int, **given: object) -> World:
    """The same, with a thread that watches for a record that is never acknowledged."""
    made = world(seed, **given)
    made.thread(made.send_and_wait(SILENT))
    made.run(Micros(made.clock + made.linger + ms(1000)))
    assert made.threads[-1].ended is None
    made.network.sent.clear()
    return made


def sent_at(made: World, partition: int) -> list[Micros]:
    return [when for to, when in made.network.sent if to.partition == partition]


@every_order
@pytest.mark.parametrize("begin", [world, watched])
@pytest.mark.parametrize("linger_ms", [0, 1, 5])
def test_an_appended_record_leaves_when_it_has_lingered(
    seed: int, begin: Callable[..., World], linger_ms: int
) -> None:
    made = begin(seed, linger_ms=linger_ms)
    since = made.clock
    made.thread(lambda me: made.append(me, OTHER))
    made.run(Micros(since + ms(1000)))
    (when,) = sent_at(made, OTHER)
    assert ms(linger_ms) <= when - since <= ms(linger_ms) + REST


@every_order
@pytest.mark.parametrize("begin", [world, watched])
def test_a_batch_that_becomes_due_during_a_turn_leaves_after_it(
    seed: int, begin: Callable[..., World]
) -> None:
    made = begin(seed)
    since, made.turn_us_max = made.clock, 20_000
    made.thread(lambda me: made.append(me, OTHER))
    made.run(Micros(since + ms(4)))
    made.thread(made.send_and_wait(2))
    made.run(Micros(since + ms(1000)))
    (when,) = sent_at(made, OTHER)
    assert when - since <= ms(5) + REST + 3 * made.turn_us_max


@every_order
@pytest.mark.parametrize("begin", [world, watched])
def test_a_full_batch_leaves_at_once(seed: int, begin: Callable[..., World]) -> None:
    made = begin(seed, linger_ms=3_000, batch_size=100)
    since = made.clock
    for _ in range(2):
        made.thread(lambda me: made.append(me, OTHER, size=50))
    made.run(Micros(since + ms(1000)))
    assert sent_at(made, OTHER) == [since]


@every_order
@pytest.mark.parametrize("begin", [world, watched])
@pytest.mark.parametrize("linger_ms", [0, 5])
def test_an_answer_ends_the_wait_of_each_thread(
    seed: int, begin: Callable[..., World], linger_ms: int
) -> None:
    made = begin(seed, linger_ms=linger_ms)
    since = made.clock
    waiting = [made.thread(made.send_and_wait(partition)) for partition in (1, 2, 2)]
    made.run(Micros(since + ms(1000)))
    for one in waiting:
        assert one.result is True
        assert one.ended is not None
        assert one.ended - since <= ms(linger_ms) + REST + 2 * RTT


@every_order
def test_callbacks_run_when_no_thread_waits(seed: int) -> None:
    made = world(seed, linger_ms=0)
    since, called = made.clock, list[Micros]()
    made.thread(lambda me: made.append(me, OTHER, callback=lambda: called.append(made.clock)))
    made.run(Micros(since + ms(1000)))
    assert [when - since <= RTT + REST for when in called] == [True]


@every_order
def test_the_next_thread_watches_when_the_first_gives_up(seed: int) -> None:
    made = world(seed)
    since = made.clock
    first = made.thread(made.send_and_wait(SILENT, Micros(since + ms(8))))
    second = made.thread(made.send_and_wait(OTHER))
    made.run(Micros(since + ms(1000)))
    assert (first.result, first.ended) == (False, since + ms(8))
    assert second.ended is not None
    assert second.ended - since <= ms(5) + REST + RTT


@every_order
@pytest.mark.parametrize("begin", [world, watched])
def test_a_batch_is_sent_again_when_its_back_off_is_over(seed: int, begin: Callable[..., World]) -> None:
    made = begin(seed, linger_ms=0)
    made.network.refused[TopicPartition("t", OTHER)] = ErrorCode.NOT_ENOUGH_REPLICAS
    since = made.clock
    made.thread(lambda me: made.append(me, OTHER))
    made.run(Micros(since + ms(1000)))
    first, second = sent_at(made, OTHER)
    assert ms(99) <= second - first - RTT <= ms(100) + 2 * REST


@every_order
@pytest.mark.parametrize("begin", [world, watched])
def test_metadata_ends_the_wait_for_a_topic(seed: int, begin: Callable[..., World]) -> None:
    made = begin(seed)
    since, cluster = made.clock, made.network.cluster

    def partitions_for(me: int) -> Steps[bool]:
        yield from made.tell(me, lambda: cluster.want(["u"]))
        return (yield from made.turns.wait(me, lambda: "u" in cluster.topics, WITHOUT_LIMIT))

    asking = [made.thread(partitions_for) for _ in range(2)]
    made.run(Micros(since + ms(1000)))
    assert [one.ended is not None and one.ended - since <= 2 * RTT for one in asking] == [True, True]


@every_order
@pytest.mark.parametrize("begin", [world, watched])
def test_a_flush_sends_at_once(seed: int, begin: Callable[..., World]) -> None:
    made = begin(seed, linger_ms=3_000)
    since = made.clock
    made.thread(lambda me: made.append(me, OTHER))
    made.run(Micros(since + ms(100)))
    assert sent_at(made, OTHER) == []
    made.thread(made.flush)
    made.run(Micros(since + ms(1000)))
    assert sent_at(made, OTHER) == [since + ms(100)]


@every_order
def test_memory_that_an_answer_frees_lets_a_thread_append(seed: int) -> None:
    made = world(seed, linger_ms=3_000, buffer_memory=200, max_request_size=200)
    since = made.clock
    made.thread(lambda me: made.append(me, 1, 100))
    second = made.thread(lambda me: made.append(me, 2, 100))
    made.run(Micros(since + ms(1000)))
    assert (second.ended or 0) - since <= RTT + REST


@every_order
def test_a_wait_ends_at_its_deadline(seed: int) -> None:
    made = watched(seed)
    until = Micros(made.clock + ms(300))
    late = [made.thread(made.send_and_wait(SILENT, until)) for _ in range(3)]
    made.run(Micros(until + ms(100)))
    assert [(one.result, one.ended) for one in late] == [(False, until)] * 3


@every_order
def test_a_batch_that_cannot_leave_fails_at_its_delivery_deadline(seed: int) -> None:
    made = world(seed, delivery_timeout_ms=30_000)
    since = made.clock
    made.network.cluster.brokers.clear()  # no leader is known
    made.network.has_metadata = False
    lost = made.thread(made.send_and_wait(OTHER))
    made.run(Micros(since + ms(60_000)))
    assert (lost.ended or 0) - since - ms(30_000) <= REST


@every_order
@pytest.mark.parametrize("linger_ms", [0, 5])
def test_a_close_ends_every_thread(seed: int, linger_ms: int) -> None:
    made = watched(seed, linger_ms=linger_ms)
    since = made.clock
    for partition in (SILENT, OTHER):
        made.thread(made.send_and_wait(partition))
    made.thread(lambda me: made.append(me, OTHER))
    made.thread(made.close)
    made.run(Micros(since + ms(1000)))
    assert all(one.ended is not None and one.ended - since <= REST for one in made.threads)


@every_order
@pytest.mark.parametrize("begin", [world, watched])
@pytest.mark.parametrize("linger_ms", [0, 5])
@pytest.mark.parametrize("is_waited_for", [True, False])
def test_a_callback_closes_the_producer(
    seed: int, begin: Callable[..., World], linger_ms: int, *, is_waited_for: bool
) -> None:
    made = begin(seed, linger_ms=linger_ms)
    since = made.clock

    def steps(me: int) -> Steps[None]:
        batch = yield from made.append(me, OTHER, callback=lambda: made.call(made.close))
        if is_waited_for:
            yield from made.result(me, batch)

    made.thread(steps)
    made.run(Micros(since + ms(1000)))
    assert made.is_network_closed
    limit = ms(linger_ms) + 2 * REST + RTT
    assert all(one.ended is not None and one.ended - since <= limit for one in made.threads)


@every_order
@pytest.mark.parametrize("begin", [world, watched])
def test_a_callback_waits_for_a_record(seed: int, begin: Callable[..., World]) -> None:
    made = begin(seed)
    since, done = made.clock, list[Micros]()

    def again(me: int) -> Steps[None]:
        yield from made.send_and_wait(2)(me)
        done.append(made.clock)

    made.thread(lambda me: made.append(me, OTHER, callback=lambda: made.call(again)))
    made.run(Micros(since + ms(1000)))
    assert [when - since <= 2 * (ms(5) + REST + RTT) for when in done] == [True]


@every_order
@pytest.mark.parametrize("end", [Transaction.commit, Transaction.abort])
def test_the_end_of_a_transaction_is_waited_for_beside_other_threads(
    seed: int, end: Callable[[Transaction], object]
) -> None:
    made = World(seed, {"linger_ms": 5, "transactional_id": "x"})
    transaction = made.sending.transaction
    assert transaction is not None
    ended: list[Micros] = []

    def operation(me: int, call: Callable[[Transaction], object]) -> Steps[bool]:
        before = transaction.ended
        yield from made.tell(me, lambda: call(transaction))
        return (yield from made.turns.wait(me, lambda: transaction.ended > before, WITHOUT_LIMIT))

    def steps(me: int) -> Steps[None]:
        yield from operation(me, Transaction.init)
        yield from made.tell(me, lambda: transaction.begin())
        made.thread(made.send_and_wait(2))
        batch = yield from made.append(me, OTHER)
        yield from made.result(me, batch)
        before = transaction.ended
        yield from made.tell(me, lambda: end(transaction))
        yield from made.flush(me)
        yield from made.tell(me, lambda: transaction.flushed())
        yield from made.turns.wait(me, lambda: transaction.ended > before, WITHOUT_LIMIT)
        ended.append(made.clock)

    made.thread(steps)
    made.run(ms(2000))
    assert [when <= 8 * RTT + 2 * ms(5) + 4 * REST for when in ended] == [True]


@every_order
@pytest.mark.parametrize("linger_ms", [0, 1, 5])
def test_many_threads_send_flush_and_wait(seed: int, linger_ms: int) -> None:
    made = world(seed, linger_ms=linger_ms, batch_size=200, max_in_flight_requests_per_connection=2)
    since = made.clock

    def steps(me: int) -> Steps[None]:
        for number in range(6):
            batch = yield from made.append(me, (me + number) % 3)
            if (me + number) % 2:
                yield from made.result(me, batch)
        yield from made.flush(me)

    threads = [made.thread(steps) for _ in range(4)]
    made.run(Micros(since + ms(5000)))
    limit = 20 * (ms(linger_ms) + RTT + REST)
    assert [one.ended is not None and one.ended - since <= limit for one in threads] == [True] * 4


@every_order
@pytest.mark.parametrize("linger_ms", [0, 5])
def test_the_first_record_of_an_idle_producer_leaves_when_it_has_lingered(seed: int, linger_ms: int) -> None:
    made = World(seed, {"linger_ms": linger_ms})
    made.run(Micros(START + ms(1000)))
    since = made.clock
    made.thread(lambda me: made.append(me, OTHER))
    made.run(Micros(since + ms(1000)))
    (when,) = sent_at(made, OTHER)
    assert when - since <= ms(linger_ms) + RTT + REST  # the producer id is requested first


@every_order
def test_the_first_record_asks_for_a_producer_id_though_another_thread_watches(seed: int) -> None:
    made = World(seed, {"linger_ms": 0})
    made.thread(lambda me: made.turns.wait(me, lambda: False, WITHOUT_LIMIT))
    made.run(Micros(START + ms(1000)))
    since = made.clock
    made.thread(lambda me: made.append(me, OTHER))
    made.run(Micros(since + ms(1000)))
    (when,) = sent_at(made, OTHER)
    assert when - since <= RTT


@every_order
@pytest.mark.parametrize("begin", [world, watched])
def test_a_flush_during_a_callback_sends_at_once(seed: int, begin: Callable[..., World]) -> None:
    made = begin(seed, linger_ms=3_000)
    since = made.clock

    def slow(_: int) -> Steps[None]:
        yield Step.REST, Micros(made.clock + ms(20))

    made.thread(lambda me: made.append(me, OTHER, callback=lambda: made.call(slow)))
    made.run(Micros(since + ms(3_000) + RTT + ms(10)))
    asked = made.clock

    def flush(me: int) -> Steps[None]:
        yield from made.append(me, 2)
        yield from made.flush(me)

    made.thread(flush)
    made.run(Micros(since + ms(5_000)))
    (when,) = sent_at(made, 2)
    assert when - asked <= ms(20)


@every_order
@pytest.mark.parametrize("begin", [world, watched])
@pytest.mark.parametrize("count", [1, 3])
def test_records_are_sent_while_a_callback_ends(seed: int, begin: Callable[..., World], count: int) -> None:
    made = begin(seed, linger_ms=0)
    since = made.clock
    until = Micros(since + RTT + ms(20))

    def slow(_: int) -> Steps[None]:
        yield Step.REST, until

    def late(partition: int) -> Callable[[int], Steps[None]]:
        def steps(me: int) -> Steps[None]:
            yield Step.REST, until
            yield from made.append(me, partition)

        return steps

    made.thread(lambda me: made.append(me, OTHER, callback=lambda: made.call(slow)))
    for partition in range(2, 2 + count):
        made.thread(late(partition))
    made.run(Micros(since + ms(1000)))
    assert {when for _, when in made.network.sent[1:]} == {until}


@every_order
def test_a_record_that_needs_no_reply_ends_the_wait_for_it(seed: int) -> None:
    made = world(seed, linger_ms=3_000, batch_size=100, acks="0", enable_idempotence=False)
    since = made.clock
    waiting = made.thread(made.send_and_wait(OTHER))
    made.run(Micros(since + ms(100)))
    made.thread(lambda me: made.append(me, OTHER, size=50))  # fills the batch
    made.run(Micros(since + ms(1000)))
    assert waiting.ended == since + ms(100)


@every_order
@pytest.mark.parametrize("begin", [world, watched])
def test_a_record_without_a_known_leader_requests_metadata(seed: int, begin: Callable[..., World]) -> None:
    made = begin(seed, linger_ms=0)
    since = made.clock
    made.network.cluster.brokers.clear()
    made.thread(lambda me: made.append(me, OTHER))
    made.run(Micros(since + ms(1000)))
    (when,) = sent_at(made, OTHER)
    assert when - since <= RTT + REST


@every_order
@pytest.mark.parametrize("begin", [world, watched])
def test_metadata_is_requested_again_when_its_back_off_is_over(
    seed: int, begin: Callable[..., World]
) -> None:
    made = begin(seed, linger_ms=0)
    since, cluster = made.clock, made.network.cluster
    made.thread(lambda me: made.tell(me, lambda: cluster.want(["u"])))
    made.run(Micros(since + RTT + 2 * REST))
    cluster.brokers.clear()
    made.thread(lambda me: made.append(me, OTHER))
    made.run(Micros(since + ms(1000)))
    (when,) = sent_at(made, OTHER)
    assert when - since <= ms(100) + 2 * RTT + REST


@every_order
def test_one_thread_watches_while_a_callback_waits_for_a_record(seed: int) -> None:
    made = world(seed)
    since = made.clock

    def again(me: int) -> Steps[bool]:
        return (yield from made.send_and_wait(2)(me))

    made.thread(lambda me: made.append(me, OTHER, callback=lambda: made.call(again)))
    made.run(Micros(since + ms(5) + REST + RTT))
    late = [made.thread(made.send_and_wait(partition)) for partition in (SILENT, 3)]
    made.run(Micros(since + ms(100)))
    late.append(made.thread(made.send_and_wait(4)))
    made.run(Micros(since + ms(1000)))
    assert [one.ended is not None for one in late] == [False, True, True]


@every_order
@pytest.mark.parametrize("begin", [world, watched])
def test_records_of_two_threads_leave_at_once_without_linger(seed: int, begin: Callable[..., World]) -> None:
    made = begin(seed, linger_ms=0)
    since = made.clock

    def appends(partition: int) -> Callable[[int], Steps[object]]:
        return lambda me: made.append(me, partition)

    for partition in range(7):
        made.thread(appends(partition))
    made.run(Micros(since + ms(1000)))
    assert [when for _, when in made.network.sent] == [since] * 7
