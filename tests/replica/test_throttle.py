"""The throttle of one side of a node: what it lets pass in a span of time."""

import pytest

from sparklog.model import Instant, Micros, TopicPartition
from sparklog_server.replica.throttle import Throttle, TokenBucket
from tests.log.logs import NOW

RATE = 1_000_000
LISTED, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def after(us: int) -> Instant:
    return Instant(Micros(NOW.mono_us + us), NOW.wall_ms)


def throttle(listed: int | None = None, outside: int | None = None) -> Throttle:
    """A throttle of a topic that lists its partition 0."""
    made = Throttle(lambda _topic: {0}, lambda: None, NOW)
    made.change(listed, outside, NOW)
    return made


def passed(throttle: Throttle, partition: TopicPartition, *, until_us: int, batch: int = 16_384) -> int:
    """The bytes of a replica with endless records, which asks again whenever there is room."""
    now, count = NOW, 0
    while now.mono_us < NOW.mono_us + until_us:
        throttle.refill(now)
        room = throttle.room(partition)
        if room == 0:
            due_us = throttle.deadline_us
            assert due_us is not None
            assert due_us > now.mono_us
            now = Instant(due_us, NOW.wall_ms)
            continue
        assert room is not None
        size = max(batch, min(room, 1 << 20) // batch * batch)
        throttle.passed(partition, size, is_outside=True)
        count += size
        now = Instant(Micros(now.mono_us + 300), NOW.wall_ms)  # its request and the answer
    return count


@pytest.mark.parametrize("rate", [50_000, RATE, 30_000_000, 500_000_000])
def test_the_rate_is_kept_within_a_tenth_over_ten_seconds(rate: int) -> None:
    assert passed(throttle(outside=rate), OTHER, until_us=10_000_000) / 10 == pytest.approx(rate, rel=0.1)


def test_the_lower_of_the_rates_that_apply_counts() -> None:
    for listed, outside in ((RATE, 3 * RATE), (3 * RATE, RATE)):
        both = throttle(listed, outside)
        assert passed(both, LISTED, until_us=10_000_000) / 10 == pytest.approx(RATE, rel=0.1)
    assert passed(throttle(RATE, 3 * RATE), OTHER, until_us=10_000_000) / 10 == pytest.approx(
        3 * RATE, rel=0.1
    )


def test_a_rate_for_listed_replicas_bounds_no_other() -> None:
    assert throttle(listed=RATE).room(OTHER) is None
    assert throttle(listed=RATE).room(LISTED) == 0
    assert throttle().room(LISTED) is None


def test_after_a_pause_half_a_second_of_the_rate_may_pass_at_once() -> None:
    bucket = TokenBucket(RATE, NOW)
    bucket.refill(after(60_000_000))
    assert bucket.room == RATE // 2


def test_a_batch_larger_than_the_room_is_paid_for_before_the_next() -> None:
    bucket = TokenBucket(RATE, NOW)
    bucket.refill(after(20_000))
    bucket.take(RATE)  # a second's bytes, where there was room for a fiftieth
    assert bucket.room == 0
    assert bucket.ready_us == after(20_000 + 1_000_000).mono_us
    bucket.refill(after(20_000 + 999_999))
    assert bucket.is_empty
    bucket.refill(after(20_000 + 1_000_000))
    assert bucket.room == RATE // 50


def test_what_replicas_in_sync_get_counts_and_leaves_a_bounded_debt() -> None:
    one = throttle(listed=RATE)
    one.refill(after(100_000))
    one.passed(LISTED, 100 * RATE, is_outside=False)
    assert one.room(LISTED) == 0
    assert one.deadline_us is not None
    assert one.deadline_us <= after(1_000_000).mono_us
    assert one.throttled_bytes == 100 * RATE
    unlisted = throttle(outside=RATE)
    unlisted.refill(after(100_000))
    unlisted.passed(OTHER, 100 * RATE, is_outside=False)
    assert unlisted.room(OTHER) == RATE // 10


def test_a_rate_of_0_lets_nothing_pass_and_has_no_deadline() -> None:
    none = throttle(listed=0)
    none.refill(after(60_000_000))
    assert (none.room(LISTED), none.deadline_us) == (0, None)


def test_another_rate_counts_at_once_and_a_debt_stays() -> None:
    one = throttle(outside=1_000)
    one.refill(after(1_000_000))
    one.passed(OTHER, 1_000_500, is_outside=True)  # 1 000 000 more than there was
    assert one.deadline_us == after(1_000_000 + 1_000_020_000).mono_us
    one.change(None, RATE, after(1_000_000))
    assert one.deadline_us == after(1_000_000 + 1_020_000).mono_us
    one.change(None, None, after(1_000_000))
    assert (one.room(OTHER), one.deadline_us, one.is_set) == (None, None, False)


def test_those_that_wait_are_told_once_there_is_room() -> None:
    class Session:
        looks = 0

        def look_again(self) -> None:
            self.looks += 1

    one, session = throttle(outside=RATE), Session()
    one.waiting[session] = None
    one.refill(after(19_999))
    assert session.looks == 0
    one.refill(after(20_000))
    one.refill(after(40_000))
    assert (session.looks, one.waiting) == (1, {})


def test_those_that_wait_for_one_rate_are_told_again_once_the_other_has_room() -> None:
    one, looks = throttle(listed=RATE // 10, outside=RATE), list[int | None]()

    class Session:
        def look_again(self) -> None:
            looks.append(one.room(LISTED))
            if not looks[-1]:
                one.waiting[self] = None

    one.refill(after(20_000))
    one.passed(LISTED, 10_000, is_outside=True)  # a tenth of a second of the one, a hundredth of the other
    one.waiting[Session()] = None
    for us in range(20_000, 200_000, 1_000):
        one.refill(after(us))
    assert looks == [RATE // 10 // 50]
