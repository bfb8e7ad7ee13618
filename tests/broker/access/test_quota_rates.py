"""The rates behind quotas, held against Kafka's own way of sampling, told again in its simplest form."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.model import Millis
from sparklog_server.broker.access.connection_rates import ConnectionRates, Rate, Throttled, TokenBucket

WINDOWS = 4
WINDOW_MS = 1000


class Sampled:
    """SampledStat and Rate as Kafka has them: a ring of samples, each emptied in its place when it is too
    old.
    """

    def __init__(self) -> None:
        self._samples: list[list[int]] = []  # start, last event, value
        self._current = 0

    def record(self, value: int, now_ms: int) -> None:
        if not self._samples:
            self._samples.append([now_ms, now_ms, 0])
        if now_ms - self._samples[self._current][0] >= WINDOW_MS:
            self._current = (self._current + 1) % (WINDOWS + 1)
            if self._current >= len(self._samples):
                self._samples.append([now_ms, now_ms, 0])
            else:
                self._samples[self._current] = [now_ms, now_ms, 0]
        sample = self._samples[self._current]
        sample[1] = now_ms
        sample[2] += value

    def delay_ms(self, per_second: float, now_ms: int) -> int:
        if not self._samples:
            self._samples.append([now_ms, now_ms, 0])
        for sample in self._samples:
            if now_ms - sample[1] >= WINDOWS * WINDOW_MS:
                sample[:] = [now_ms, now_ms, 0]
        elapsed = now_ms - min(sample[0] for sample in self._samples)
        if elapsed // WINDOW_MS < WINDOWS - 1:
            elapsed += (WINDOWS - 1 - elapsed // WINDOW_MS) * WINDOW_MS
        span = max(elapsed, 1)
        rate = sum(sample[2] for sample in self._samples) / (span / 1000)
        return 0 if rate <= per_second else int((rate - per_second) / per_second * span + 0.5)


@given(
    st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 100_000)), max_size=60), st.integers(1, 50_000)
)
def test_a_rate_is_what_kafka_would_measure(events: list[tuple[int, int]], per_second: int) -> None:
    ours, theirs, now_ms = Rate(WINDOWS, WINDOW_MS), Sampled(), 0
    for pause_ms, amount in events:
        now_ms += pause_ms
        theirs.record(amount, now_ms)
        assert abs(ours.charge(amount, per_second, now_ms) - theirs.delay_ms(per_second, now_ms)) <= 1


def test_what_is_taken_back_counts_no_more() -> None:
    rate = Rate(WINDOWS, WINDOW_MS)
    assert rate.charge(1_000_000, 1.0, 0) > 0
    assert rate.charge(-1_000_000, 1.0, 0) == 0


def test_a_delay_fits_the_wire_whatever_the_numbers() -> None:
    rate, bucket = Rate(WINDOWS, WINDOW_MS), TokenBucket(WINDOWS, WINDOW_MS)
    bucket.record(2**40, 1e-300, 0)
    assert rate.charge(2**40, 5e-324, 0) == bucket.delay_ms(1e-300, 0) == 2**31 - 1
    assert rate.delay_ms(float("inf"), 0) == 0


def test_a_bucket_holds_its_windows_and_fills_at_its_rate() -> None:
    bucket = TokenBucket(10, WINDOW_MS)
    bucket.record(10, 1.0, 0)
    assert bucket.delay_ms(1.0, 0) == 0
    bucket.record(3, 1.0, 0)
    assert bucket.delay_ms(1.0, 0) == 3000
    assert bucket.delay_ms(1.0, 2000) == 1000
    bucket.give_back(1, 1.0)
    assert bucket.delay_ms(1.0, 2000) == 0
    bucket.record(10, 1.0, 1_000_000)
    assert bucket.delay_ms(1.0, 1_000_000) == 0


IP_OF = (("ip", "10.0.0.1"),)
ANY_IP = (("ip", None),)
UNLIMITED = 2**31 - 1


def test_an_address_beyond_its_rate_is_held_and_does_not_count() -> None:
    rates = ConnectionRates(WINDOWS, WINDOW_MS)
    rates.published({IP_OF: {"connection_creation_rate": 2.0}})
    over_windows = 2 * (WINDOWS - 1) * WINDOW_MS // 1000
    admitted = [rates.connecting("10.0.0.1", UNLIMITED, Millis(5000)) for _ in range(over_windows + 5)]
    assert admitted[:over_windows] == [Throttled()] * over_windows
    assert all(0 < one.closed_after_ms <= WINDOW_MS for one in admitted[over_windows:])
    assert rates.connecting("10.0.0.2", UNLIMITED, Millis(5000)) == Throttled()
    assert rates.connecting("10.0.0.1", UNLIMITED, Millis(5000 + WINDOWS * WINDOW_MS)) == Throttled()


def test_every_address_has_the_default_rate_for_itself_and_its_own_before_it() -> None:
    rates = ConnectionRates(WINDOWS, WINDOW_MS)
    rates.published(
        {
            ANY_IP: {"connection_creation_rate": 0.0},
            (("ip", "0:0:0:0:0:0:0:1"),): {"connection_creation_rate": 100.0},
        }
    )
    assert rates.connecting("10.0.0.1", UNLIMITED, Millis(0)).closed_after_ms == WINDOW_MS
    assert rates.connecting("::1", UNLIMITED, Millis(0)) == Throttled()
    rates.published({})
    assert rates.connecting("10.0.0.1", UNLIMITED, Millis(0)) == Throttled()


def test_beyond_the_rate_over_all_everybody_waits_but_those_who_are_refused_count_for_nothing() -> None:
    rates = ConnectionRates(WINDOWS, WINDOW_MS)
    rates.published({IP_OF: {"connection_creation_rate": 1.0}})
    for _ in range(100):
        rates.connecting("10.0.0.1", 20, Millis(0))
    told = [
        rates.connecting("10.0.0.2", 20, Millis(0)) for _ in range(20 * (WINDOWS - 1) * WINDOW_MS // 1000)
    ]
    assert told[-1].closed_after_ms == 0
    assert 0 < told[-1].admitted_after_ms <= WINDOW_MS
    assert told[0] == Throttled()


def test_a_name_of_a_host_in_a_directory_of_kafkas_limits_nobody_and_stops_nobody() -> None:
    rates = ConnectionRates(WINDOWS, WINDOW_MS)
    rates.published(
        {(("ip", "localhost"),): {"connection_creation_rate": 1.0}, IP_OF: {"connection_creation_rate": 0.0}}
    )
    assert rates.connecting("127.0.0.1", UNLIMITED, Millis(0)) == Throttled()
    assert rates.connecting("10.0.0.1", UNLIMITED, Millis(0)).closed_after_ms == WINDOW_MS


def test_an_address_of_ipv4_is_the_same_where_a_listener_of_ipv6_hears_it() -> None:
    rates = ConnectionRates(WINDOWS, WINDOW_MS)
    rates.published({IP_OF: {"connection_creation_rate": 0.0}})
    assert rates.connecting("::ffff:10.0.0.1", UNLIMITED, Millis(0)).closed_after_ms == WINDOW_MS
