"""Records gathered into batches, and the partition they go to."""

from collections import Counter

import pytest

from sparklog.client.cluster import Cluster, Entropy
from sparklog.client.failures import RecordTooLarge
from sparklog.client.producer.accumulator import Accumulator
from sparklog.client.producer.intake import Intake, partition_for
from sparklog.model import Micros, TopicPartition
from sparklog.record.batch import build_batch, decode_records, record_size_max
from sparklog.record.columns import PartitionBatch
from tests.client.wire import START, metadata, ms, no_chance, settings

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def put(
    accumulator: Accumulator, partition: TopicPartition = T0, size: int = 100, now: Micros = START
) -> bool:
    value = bytes(size)
    return (
        accumulator.append(partition, None, value, (), 0, now, record_size_max(None, value, ())) is not None
    )


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


def intake(accumulator: Accumulator, *leaders: int, entropy: Entropy = bytes) -> Intake:
    world = Cluster(settings(), no_chance)
    world.want(["t"])
    world.request(START, allow_auto_create=False)
    nodes = sorted({(leader, 9092) for leader in leaders if leader > 0})
    world.replied(metadata({"t": list(leaders)}, nodes=nodes), START)
    return Intake(accumulator, world, lambda: START, entropy)


def sent_to(into: Intake, key: bytes | None = None, value: bytes = bytes(87)) -> int:
    """The partition of a record of 100 bytes in its batch."""
    taken = into.add("t", key, value, (), None, 0)
    assert taken is not None
    return taken[0].topic_partition.partition


def test_a_key_goes_where_murmur2_says() -> None:
    into = intake(Accumulator(settings()), 1, 1, 1, 1, 1)
    for number in range(50):
        key = b"key-%d" % number
        assert sent_to(into, key) == sent_to(into, key) == partition_for(key, 5)


def test_without_a_key_a_partition_gets_a_batch_then_another_and_all_get_their_share() -> None:
    numbers = iter(range(10_000))
    into = intake(
        Accumulator(settings(batch_size=1100)),
        *(1, 1, 1),
        entropy=lambda size: b"".join(next(numbers).to_bytes(2) for _ in range(size // 2)),
    )
    chosen = [sent_to(into) for _ in range(300)]
    assert chosen[:30] == [0] * 10 + [1] * 10 + [2] * 10
    assert Counter(chosen) == {0: 100, 1: 100, 2: 100}


def test_small_batches_that_linger_go_to_one_partition_until_it_has_the_bytes_of_a_full_one() -> None:
    numbers = iter(range(10_000))
    accumulator = Accumulator(settings(batch_size=1100, linger_ms=0))
    into = intake(
        accumulator, 1, 1, entropy=lambda size: b"".join(next(numbers).to_bytes(2) for _ in range(size // 2))
    )
    chosen = []
    for _ in range(24):
        chosen.append(sent_to(into))
        accumulator.take(ms(1), lambda _: True)
    assert chosen == [0] * 7 + [1] * 7 + [0] * 7 + [1] * 3, "each batch has 61 bytes more, its header"


def test_a_partition_without_leader_gets_nothing_while_others_have_one() -> None:
    into = intake(
        Accumulator(settings(batch_size=100)),
        *(-1, 1, -1),
        entropy=lambda size: bytes(range(256)) * (size // 256),
    )
    assert {sent_to(into) for _ in range(20)} == {1}


def test_a_record_that_no_request_can_have_is_refused_also_by_a_batch_with_room() -> None:
    into = intake(Accumulator(settings(batch_size=100_000, max_request_size=2_000)), 1)
    for _ in range(15):
        sent_to(into)
    with pytest.raises(RecordTooLarge):
        sent_to(into, value=bytes(3_000))


def test_records_of_one_call_fill_batches_in_order_and_stop_when_memory_is_short() -> None:
    accumulator = Accumulator(settings(batch_size=1100, buffer_memory=2200, linger_ms=1000))
    into = intake(accumulator, 1)
    (rows,) = into.rows("t", None, [b"%87d" % number for number in range(30)], None, 0)
    runs = []
    while (run := rows.add()) is not None:
        runs.append(run)
    assert [(run.first, run.record_count) for run in runs] == [(0, 10), (0, 10)]
    assert not rows.is_done
    for batch in accumulator.take(ms(0), lambda _: True):
        accumulator.released(batch)
    run = rows.add()
    assert run is not None
    built = run.batch.builder.build()
    assert decode_records(built)[0].value == b"%87d" % 20


def test_a_refused_value_leaves_those_before_it_in_their_batch() -> None:
    into = intake(Accumulator(settings()), 1)
    (rows,) = into.rows("t", None, [b"a", b"b", 3, b"d"], None, 0)  # type: ignore[list-item]
    run = rows.add()
    assert run is not None
    assert run.record_count == 2
    with pytest.raises(TypeError, match="int is neither bytes nor text"):
        rows.add()


def test_a_whole_batch_follows_the_records_before_it() -> None:
    accumulator = Accumulator(settings(linger_ms=1000))
    into = intake(accumulator, 1)
    sent_to(into)
    whole = build_batch([(None, b"whole", (), 0)])
    assert into.add_whole("t", PartitionBatch(0, whole, 1, 0, 0)) is not None
    first, second = (accumulator.take(ms(0), lambda _: True)[0] for _ in range(2))
    assert (first.builder.record_count, second.builder.build()) == (1, whole)
