"""How much one micro-batch reads, and the estimated size of logs. No broker here."""

import pytest

from sparklog.model import Offset, TopicPartition
from sparklog.spark.limits import Limits
from sparklog.spark.offsets import StreamOffset
from sparklog.spark.options import Options
from sparklog.spark.sizes import BYTES_UNKNOWN, Observed, SizeEstimates

limits_of_spark = pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs Spark 4.2")

T = TopicPartition("t", 0)
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}


def limits(**options: str) -> Limits:
    return Limits(Options.parse({**SERVERS, **options}))


def observed(start: int, end: int, size: int) -> Observed:
    return Observed(Offset(start), Offset(end), size)


def test_spark_is_told_the_foremost_limit() -> None:
    s = limits_of_spark
    assert limits().for_spark() == s.ReadAllAvailable()
    assert limits(minOffsetsPerTrigger="3").for_spark() == s.ReadMinRows(3)
    assert limits(maxBytesPerTrigger="5", minOffsetsPerTrigger="3").for_spark() == s.ReadMaxBytes(5)
    assert limits(maxOffsetsPerTrigger="7", maxBytesPerTrigger="5").for_spark() == s.ReadMaxRows(7)


def test_every_limit_holds_though_spark_hands_back_one() -> None:
    both = limits(maxOffsetsPerTrigger="50", maxBytesPerTrigger="200")
    start, end = {T: Offset(0)}, {T: Offset(100)}
    assert both.limited(start, end, both.for_spark(), lambda _: 10.0) == {T: 20}
    assert both.limited(start, end, None, lambda _: 1.0) == {T: 50}


def test_a_trigger_that_wants_everything_gets_everything() -> None:
    both = limits(maxOffsetsPerTrigger="50", minOffsetsPerTrigger="40")
    start, end = {T: Offset(0)}, {T: Offset(100)}
    assert both.limited(start, end, limits_of_spark.ReadAllAvailable(), None) == end
    both.began(10.0)
    current = StreamOffset.beginning(start)
    assert not both.puts_off(
        current, StreamOffset(began=start, reached={T: Offset(1)}), limits_of_spark.ReadAllAvailable(), 10.0
    )


def test_the_first_micro_batch_never_waits_and_later_ones_until_the_delay_is_over() -> None:
    waiting = limits(minOffsetsPerTrigger="40", maxTriggerDelay="2s")
    current, end = (
        StreamOffset.beginning({T: Offset(0)}),
        StreamOffset(began={T: Offset(0)}, reached={T: Offset(39)}),
    )
    assert not waiting.puts_off(current, end, None, 5.0)
    waiting.began(5.0)
    assert waiting.puts_off(current, end, None, 6.9)
    assert not waiting.puts_off(current, end, None, 7.0)


def test_a_log_nobody_told_of_is_estimated_on_the_large_side() -> None:
    sizes = SizeEstimates()
    assert (sizes.per_offset(T), sizes.knows([T])) == (BYTES_UNKNOWN, False)
    sizes.observe(T, observed(0, 0, 0))
    assert (sizes.per_offset(T), sizes.knows([T])) == (BYTES_UNKNOWN, True)


def test_what_was_written_last_tells_more_than_the_average() -> None:
    sizes = SizeEstimates()
    sizes.observe(T, observed(0, 1000, 100_000))
    assert sizes.bytes_of(T, 7) == 700
    sizes.observe(T, observed(0, 1100, 600_000))
    assert sizes.per_offset(T) == 5000.0
    # Of a few offsets little can be told, and a log that lost its beginning tells nothing of its end.
    sizes.observe(T, observed(0, 1101, 600_001))
    assert sizes.per_offset(T) == 5000.0
    sizes.observe(T, observed(1000, 1200, 400_000))
    assert sizes.per_offset(T) == 2000.0
