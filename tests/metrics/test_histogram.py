"""Bounded histograms: buckets that meet, quantiles within a quarter of the truth, windows that forget."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog_server.histogram import (
    BUCKETS,
    LONGEST_US,
    TABLE,
    Histogram,
    Window,
    bucket_of,
    limit_of,
    merged,
    quantiles_us,
)


@given(st.integers(0, LONGEST_US))
def test_a_duration_lies_in_its_bucket_which_is_at_most_a_quarter_wide(duration_us: int) -> None:
    bucket = bucket_of(duration_us)
    begin = limit_of(bucket - 1) if bucket else 0
    assert begin <= duration_us < limit_of(bucket)
    assert limit_of(bucket) - begin <= max(1, begin // 4)


def test_buckets_are_in_order_and_the_table_has_the_short_ones() -> None:
    assert [limit_of(bucket) for bucket in range(8)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert all(TABLE[duration] == bucket_of(duration) for duration in range(len(TABLE)))
    assert bucket_of(LONGEST_US) == BUCKETS - 1 == bucket_of(LONGEST_US * 1000)
    assert bucket_of(-5) == 0


def test_a_histogram_counts_and_sums_also_after_a_clock_that_steps() -> None:
    histogram = Histogram()
    for duration_us in (3, 5_000, -7, 3):
        histogram.add(duration_us)
    assert (histogram.count, histogram.total_us) == (4, 5_006)
    assert merged([histogram, histogram])[3] == 4


@given(st.lists(st.integers(1, 1_000_000), min_size=20, max_size=300))
def test_a_quantile_is_within_a_quarter_of_that_of_the_values(durations: list[int]) -> None:
    histogram = Histogram()
    for duration_us in durations:
        histogram.add(duration_us)
    (found,) = quantiles_us(histogram.buckets, [0.5])
    low, high = statistics.median_low(durations), statistics.median_high(durations)
    assert 0.8 * low <= found <= 1.25 * high + 1


def test_quantiles_ascend_and_nothing_has_none() -> None:
    histogram = Histogram()
    assert quantiles_us(histogram.buckets, [0.5, 0.99]) == [0.0, 0.0]
    for duration_us in range(1, 1_001):
        histogram.add(duration_us)
    found = quantiles_us(histogram.buckets, [0.5, 0.75, 0.95, 0.999])
    assert found == sorted(found)
    assert found[0] == pytest.approx(500, rel=0.1)


def test_a_window_forgets_what_is_older_than_twice_its_span() -> None:
    window, histogram = Window(100), Histogram()
    histogram.add(1)
    assert sum(window.recent(histogram.buckets, 50)) == 1
    assert sum(window.recent(histogram.buckets, 150)) == 1  # the window before begins at 0
    histogram.add(1)
    assert sum(window.recent(histogram.buckets, 250)) == 1
    assert sum(window.recent(histogram.buckets, 350)) == 0
