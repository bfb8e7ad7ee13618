"""Records gathered into batches, and the partition they go to."""

from collections import Counter

from sparklog.client.accumulator import Accumulator, StickyPartitioner
from sparklog.client.cluster import PartitionView, TopicView
from sparklog.model import LeaderEpoch, Micros, NodeId, TopicPartition, Uuid
from sparklog.record.batch import record_size_max
from sparklog.record.partitioner import partition_for
from tests.client.wire import START, TOPIC_ID, ms, settings

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def put(
    accumulator: Accumulator, partition: TopicPartition = T0, size: int = 100, now: Micros = START
) -> bool:
    value = bytes(size)
    return (
        accumulator.append(partition, None, value, (), 0, now, record_size_max(None, value, ())) is not None
    )


def topic(*leaders: int) -> TopicView:
    views = (PartitionView(index, NodeId(leader), LeaderEpoch(0)) for index, leader in enumerate(leaders))
    return TopicView("t", Uuid(TOPIC_ID), tuple(views))


def test_a_batch_leaves_when_it_has_lingered() -> None:
    accumulator = Accumulator(settings(linger_ms=5))
    put(accumulator)
    assert accumulator.deadline(ms(0)) == ms(5)
    assert accumulator.take(ms(4), lambda _: True) == []
    (batch,) = accumulator.take(ms(5), lambda _: True)
    assert batch.builder.record_count == 1


def test_a_full_batch_leaves_at_once_and_batches_stay_below_their_size() -> None:
    accumulator = Accumulator(settings(linger_ms=1000, batch_size=1000))
    for _ in range(30):
        put(accumulator)
    taken = []
    while batches := accumulator.take(ms(0), lambda _: True):
        taken += batches
    assert len(taken) >= 3
    assert all(batch.builder.size <= 1000 for batch in taken)


def test_a_batch_goes_on_growing_while_there_is_no_room_on_its_way() -> None:
    accumulator = Accumulator(settings(linger_ms=5))
    put(accumulator)
    assert accumulator.take(ms(100), lambda _: False) == []
    put(accumulator, now=ms(100))
    (batch,) = accumulator.take(ms(100), lambda _: True)
    assert batch.builder.record_count == 2


def test_partitions_do_not_wait_for_each_other() -> None:
    accumulator = Accumulator(settings(linger_ms=0))
    put(accumulator, T0)
    put(accumulator, T1)
    (batch,) = accumulator.take(ms(0), lambda partition: partition == T1)
    assert batch.topic_partition == T1


def test_memory_is_bounded_and_free_again_when_a_batch_is_done() -> None:
    accumulator = Accumulator(settings(buffer_memory=1000, linger_ms=0))
    while put(accumulator):
        pass
    assert 800 < accumulator.used_bytes <= 1000
    (batch,) = accumulator.take(ms(0), lambda _: True)
    assert not put(accumulator), "a batch under way still takes its memory"
    accumulator.released(batch)
    assert accumulator.used_bytes == 0
    assert put(accumulator)


def test_when_memory_is_short_nothing_lingers() -> None:
    accumulator = Accumulator(settings(linger_ms=1000))
    put(accumulator)
    accumulator.is_short = True
    assert len(accumulator.take(ms(0), lambda _: True)) == 1


def test_a_flush_closes_what_is_open() -> None:
    accumulator = Accumulator(settings(linger_ms=1000))
    put(accumulator)
    accumulator.flush()
    put(accumulator)
    (batch,) = accumulator.take(ms(0), lambda _: True)
    assert batch.builder.record_count == 1


def test_batches_that_never_found_room_expire() -> None:
    accumulator = Accumulator(settings())
    put(accumulator, now=ms(0))
    put(accumulator, T1, now=ms(10))
    assert [batch.topic_partition for batch in accumulator.expired(ms(5))] == [T0]


def test_a_key_goes_where_murmur2_says() -> None:
    sticky = StickyPartitioner(settings(), lambda size: bytes(size))
    for number in range(50):
        key = b"key-%d" % number
        assert sticky.choose(topic(1, 1, 1, 1, 1), key, 100, lambda _: True) == partition_for(key, 5)


def test_without_a_key_a_partition_gets_a_batch_then_another_and_all_get_their_share() -> None:
    numbers = iter(range(10_000))
    sticky = StickyPartitioner(
        settings(batch_size=1000), lambda size: b"".join(next(numbers).to_bytes(2) for _ in range(size // 2))
    )
    chosen = [sticky.choose(topic(1, 1, 1), None, 100, lambda _: True) for _ in range(300)]
    assert chosen[:30] == [0] * 10 + [1] * 10 + [2] * 10
    assert Counter(chosen) == {0: 100, 1: 100, 2: 100}


def test_a_partition_without_leader_gets_nothing_while_others_have_one() -> None:
    sticky = StickyPartitioner(settings(batch_size=100), lambda size: bytes(range(256)) * (size // 256))
    assert {sticky.choose(topic(-1, 1, -1), None, 100, lambda _: True) for _ in range(20)} == {1}
