"""Rates of topics from the ends of their logs."""

from sparklog.model import TopicPartition
from sparklog_server.operations.rates import GAP_S, Rates

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("c", 0)


def test_a_rate_is_the_sum_over_partitions_between_two_samples() -> None:
    rates = Rates()
    assert rates.sampled({A: 10, B: 0}, 100.0) is None
    assert rates.of_topics(100.0) == {}
    assert rates.sampled({A: 20, B: 30, C: 7}, 104.0) == {"a": 10.0}
    assert rates.sampled({A: 20, B: 30, C: 9}, 105.0) == {"a": 0.0, "c": 2.0}


def test_a_topic_that_began_anew_has_no_negative_rate_and_a_long_pause_ends_the_history() -> None:
    rates = Rates()
    rates.sampled({A: 50}, 0.0)
    assert rates.sampled({A: 0}, 5.0) == {"a": 0.0}
    assert rates.of_topics(5.0 + GAP_S) == {"a": 0.0}
    assert rates.of_topics(5.1 + GAP_S) == {}
    assert rates.sampled({A: 100}, 6.0 + GAP_S) is None
