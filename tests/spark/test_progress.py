"""The metrics of a stream's progress beside its offsets. No Spark here."""

from sparklog.model import Offset, TopicPartition
from sparklog.spark.options import Options
from sparklog.spark.progress import WINDOW_S, Growth, by_topic, description

A, B = TopicPartition("a", 0), TopicPartition("b", 10)


def test_growth_is_told_per_second_after_a_window_and_kept_until_the_next_one() -> None:
    growth = Growth()
    assert growth.per_second({A: Offset(10), B: Offset(0)}, 100.0) == {}
    assert growth.per_second({A: Offset(90), B: Offset(0)}, 100.0 + WINDOW_S / 2) == {}
    assert growth.per_second({A: Offset(110), B: Offset(0)}, 100.0 + WINDOW_S) == {A: 100 / WINDOW_S}
    assert growth.per_second({A: Offset(999), B: Offset(9)}, 101.0 + WINDOW_S) == {A: 100 / WINDOW_S}
    assert growth.per_second({B: Offset(5)}, 100.0 + 2 * WINDOW_S) == {B: 5 / WINDOW_S}


def test_numbers_stand_by_topic_and_partition() -> None:
    assert by_topic({B: 1, A: 2, TopicPartition("b", 9): 3}) == {"a": {"0": 2}, "b": {"9": 3, "10": 1}}


def test_a_source_is_described_by_what_it_reads_and_where() -> None:
    at = {"kafka.bootstrap.servers": "x:1"}
    assert description(Options.parse({**at, "subscribe": "a,b"})) == "sparklog subscribe=a,b at x:1"
    assert (
        description(Options.parse({**at, "subscribePattern": "a.*"}))
        == "sparklog subscribePattern=a.* at x:1"
    )
    assert description(Options.parse({**at, "assign": '{"a":[0,1]}'})) == "sparklog assign=a-0,a-1 at x:1"
