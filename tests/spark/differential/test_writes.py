"""Writes, batch and streaming: what lands in the log, read back by a client of neither side, and what is
refused.
"""

from collections import defaultdict
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from tests.spark.differential.conftest import Bench, Sent
from tests.spark.differential.programs import Side, new_name

pytestmark = [
    pytest.mark.spark,
    pytest.mark.compat,
    pytest.mark.timeout(300),
]  # the first of them starts two kinds of workers

Content = dict[int, list[tuple[object, ...]]]
PARTITIONS = 4
HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def content(servers: str, topic: str) -> Content:
    """Key, value and headers of every record, by partition, in the order of offsets; the last offset may
    be a transaction's marker.
    """
    settings = {
        "bootstrap.servers": servers,
        "group.id": new_name("g"),
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    found: Content = defaultdict(list)
    try:
        for partition in sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions):
            place = TopicPartition(topic, partition)
            reached, high = consumer.get_watermark_offsets(place, timeout=10)
            consumer.assign([TopicPartition(topic, partition, reached)])
            while high > reached:
                record = consumer.poll(10)
                assert record is not None, f"{topic}-{partition}: nothing after {reached} of {high}"
                error = record.error()
                if error is None:
                    found[partition].append((record.key(), record.value(), tuple(record.headers() or ())))
                    reached = record.offset() + 1
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    reached = record.offset()
    finally:
        consumer.close()
    return dict(found)


def written(
    bench: Bench, write: Callable[[Side, str], None], *, partitions: int = PARTITIONS, **settings: str
) -> Content:
    """The result of `write` on a topic of its own for each format; the same for both."""

    def program(side: Side) -> object:
        topic = bench.topic(partitions=partitions, **settings)
        write(side, topic)
        return content(bench.servers, topic)

    result = bench.alike(program)
    assert isinstance(result, dict)
    return result


def frame(spark: SparkSession, rows: list[tuple[object, ...]], schema: str) -> DataFrame:
    """The rows in one task, in order."""
    return spark.createDataFrame(rows, schema).coalesce(1)


def test_keys_go_to_the_partitions_that_the_java_client_chooses(bench: Bench) -> None:
    keyed = bench.spark.range(0, 400, 1, 1).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(id * id AS STRING) AS value"
    )
    result = written(bench, lambda side, topic: side.write(keyed, topic=topic), partitions=7)
    assert sum(map(len, result.values())) == 400


def test_nulls_empty_strings_and_headers_are_kept(bench: Bench) -> None:
    rows = [
        (b"k", b"v", [("h", b"x"), ("h", b""), ("", None)], 0),
        (b"", b"", [], 0),
        (None, None, None, 1),
        (b"key", None, [("only", None)], 1),
    ]
    result = written(
        bench,
        lambda side, topic: side.write(
            frame(side.spark, rows, f"key BINARY, value BINARY, {HEADERS}, partition INT"), topic=topic
        ),
    )
    assert result[0] == [(b"k", b"v", (("h", b"x"), ("h", b""), ("", None))), (b"", b"", ())]
    assert result[1] == [(None, None, ()), (b"key", None, (("only", None),))]


def test_the_option_is_stronger_than_the_column(bench: Bench) -> None:
    other = bench.topic(partitions=1)
    rows = [("1", other), ("2", None)]
    result = written(
        bench,
        lambda side, topic: side.write(frame(side.spark, rows, "value STRING, topic STRING"), topic=topic),
        partitions=1,
    )
    assert result == {0: [(None, b"1", ()), (None, b"2", ())]}
    assert content(bench.servers, other) == {}


@pytest.mark.long
def test_each_row_goes_to_the_topic_that_it_names(bench: Bench) -> None:
    def program(side: Side) -> object:
        topics = [bench.topic(partitions=3), bench.topic(partitions=1)]
        rows = [(f"k{n}", f"v{n}", topics[n % 2], n % 3 if n % 2 == 0 else 0) for n in range(40)]
        side.write(frame(side.spark, rows, "key STRING, value STRING, topic STRING, partition INT"))
        return [content(bench.servers, topic) for topic in topics]

    bench.alike(program)


@pytest.mark.long
def test_a_topic_that_is_not_there_is_made(bench: Bench) -> None:
    def program(side: Side) -> object:
        topic = new_name("made")
        side.write(frame(side.spark, [("k", "v")], "key STRING, value STRING"), topic=topic)
        return content(bench.servers, topic)

    bench.alike(program)


@pytest.mark.long
def test_a_null_partition_leaves_it_to_the_key(bench: Bench) -> None:
    rows = [(f"k{n}", f"v{n}", n % 4 if n % 3 == 0 else None) for n in range(60)]
    written(
        bench,
        lambda side, topic: side.write(
            frame(side.spark, rows, "key STRING, value STRING, partition INT"), topic=topic
        ),
    )


@pytest.mark.long
def test_columns_that_no_record_has_are_left_out(bench: Bench) -> None:
    rows = [("k", "v", 7, "x")]
    written(
        bench,
        lambda side, topic: side.write(
            frame(side.spark, rows, "key STRING, value STRING, offset LONG, note STRING"), topic=topic
        ),
    )


@pytest.mark.long
def test_records_without_keys_all_arrive(bench: Bench) -> None:
    def program(side: Side) -> object:
        topic = bench.topic(partitions=3)
        side.write(side.spark.range(0, 5000, 1, 3).selectExpr("CAST(id AS STRING) AS value"), topic=topic)
        return sorted(record for records in content(bench.servers, topic).values() for record in records)

    bench.alike(program)


@pytest.mark.long
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_can_be_asked_for(bench: Bench, codec: str) -> None:
    rows = [(f"k{n}", "v" * n) for n in range(300)]
    text = "key STRING, value STRING"
    written(
        bench,
        lambda side, topic: side.write(
            frame(side.spark, rows, text), topic=topic, **{"kafka.compression.type": codec}
        ),
    )


CLIENT_SETTINGS = {
    "acks of the leader": {"kafka.acks": "1", "kafka.enable.idempotence": "false"},
    "no idempotence": {"kafka.enable.idempotence": "false"},
    "a linger and a batch size": {"kafka.linger.ms": "20", "kafka.batch.size": "1000"},
    "a name": {"kafka.client.id": "me"},
    "timeouts": {"kafka.request.timeout.ms": "20000", "kafka.delivery.timeout.ms": "60000"},
    "one in flight": {"kafka.max.in.flight.requests.per.connection": "1"},
    "headers, which a sink always writes": {"includeHeaders": "true"},
}


@pytest.mark.long
@pytest.mark.parametrize("case", CLIENT_SETTINGS)
def test_settings_of_the_client_are_understood(bench: Bench, case: str) -> None:
    rows = [(f"k{n}", f"v{n}") for n in range(100)]
    text = "key STRING, value STRING"
    written(
        bench,
        lambda side, topic: side.write(frame(side.spark, rows, text), topic=topic, **CLIENT_SETTINGS[case]),
    )


@pytest.mark.long
def test_a_record_larger_than_a_batch_is_written(bench: Bench) -> None:
    rows = [("a", "x"), ("a", "y" * 900_000), ("a", "z")]
    written(
        bench,
        lambda side, topic: side.write(frame(side.spark, rows, "key STRING, value STRING"), topic=topic),
    )


@pytest.mark.long
def test_a_record_larger_than_the_default_is_written_where_topic_and_client_allow_it(bench: Bench) -> None:
    rows = [("a", "x"), ("a", "y" * 3_000_000), ("a", "z")]
    options = {"kafka.max.request.size": "5000000"}
    text = "key STRING, value STRING"
    settings = {"max.message.bytes": "5000000"}
    written(
        bench,
        lambda side, topic: side.write(frame(side.spark, rows, text), topic=topic, **options),
        **settings,
    )


@pytest.mark.long
def test_a_topic_that_takes_small_batches_only_gets_small_batches(bench: Bench) -> None:
    rows = [(f"k{n}", "v" * 100) for n in range(3000)]
    text = "key STRING, value STRING"
    written(
        bench,
        lambda side, topic: side.write(frame(side.spark, rows, text), topic=topic),
        **{"max.message.bytes": "20000"},
    )


STREAM_MODES = {
    "append": "SELECT key, value FROM {0}",
    "complete": "SELECT key, CAST(count(*) AS STRING) AS value FROM {0} GROUP BY key",
}


@pytest.mark.parametrize("mode", ["append", pytest.param("complete", marks=pytest.mark.long)])
def test_a_stream_writes_batch_after_batch(bench: Bench, mode: str) -> None:
    source = bench.topic(*[Sent(b"v%d" % n, b"k%d" % (n % 3)) for n in range(10)])

    def write(side: Side, topic: str) -> None:
        read = side.stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="4")
        view = f"source_{side.format}"
        read.createOrReplaceTempView(view)
        result = side.spark.sql(STREAM_MODES[mode].format(view))
        side.run_into_topic(
            result if mode == "append" else result.coalesce(1).orderBy("key"),
            new_name("checkpoint"),
            mode=mode,
            topic=topic,
        )

    result = written(bench, write)
    assert sum(map(len, result.values())) == (10 if mode == "append" else 9)


def test_a_topic_is_copied_with_keys_and_headers(bench: Bench, records: str) -> None:
    written(
        bench,
        lambda side, topic: side.run_into_topic(
            side.stream(subscribe=records, startingOffsets="earliest", includeHeaders="true").drop("topic"),
            "copy",
            topic=topic,
        ),
    )


# Without them the connector's producer waits two minutes, in `close`, for a record that no transaction can
# ever send.
SOON_GIVEN_UP = {
    "kafka.delivery.timeout.ms": "3000",
    "kafka.request.timeout.ms": "2000",
    "kafka.linger.ms": "0",
}

# The columns, the subject of the refusal, and the options.
REFUSED: dict[str, tuple[list[str], str, dict[str, str]]] = {
    "no value": (["'a' AS key"], "value", {"topic": "t"}),
    "no topic": (["'a' AS value"], "topic", {}),
    "a number as value": (["1 AS value"], "value", {"topic": "t"}),
    "a number as key": (["'a' AS value", "1 AS key"], "key", {"topic": "t"}),
    "a number as topic": (["'a' AS value", "1 AS topic"], "topic", {}),
    "text as partition": (["'a' AS value", "'x' AS partition"], "partition", {"topic": "t"}),
    "a long partition": (["'a' AS value", "1L AS partition"], "partition", {"topic": "t"}),
    "text as headers": (["'a' AS value", "'x' AS headers"], "headers", {"topic": "t"}),
    "a map as headers": (["'a' AS value", "map('a', binary('b')) AS headers"], "headers", {"topic": "t"}),
    "a partition below zero": (["'a' AS value", "-1 AS partition"], "partition", {"topic": "t"}),
    "a null topic": (["'a' AS value", "CAST(NULL AS STRING) AS topic"], "null", {}),
    "a serializer": (["'a' AS value"], "value.serializer", {"topic": "t", "kafka.value.serializer": "x"}),
    "a key serializer": (["'a' AS value"], "key.serializer", {"topic": "t", "kafka.key.serializer": "x"}),
    "a transactional id": (
        ["'a' AS value"],
        "transaction",
        {"topic": "t", "kafka.transactional.id": "mine", **SOON_GIVEN_UP},
    ),
    "acks of nobody": (["'a' AS value"], "acks", {"topic": "t", "kafka.acks": "7"}),
    "a codec that is none": (
        ["'a' AS value"],
        "compression.type",
        {"topic": "t", "kafka.compression.type": "rar"},
    ),
}


QUICKLY_REFUSED = ("no value", "no topic", "a null topic")


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case in QUICKLY_REFUSED else pytest.mark.long) for case in REFUSED],
)
def test_what_cannot_be_written_is_refused(bench: Bench, case: str) -> None:
    columns, about, options = REFUSED[case]
    bench.refused(lambda side: side.write(side.spark.range(1).selectExpr(*columns), **options), about)


@pytest.mark.long
@pytest.mark.parametrize("case", REFUSED)
def test_what_a_stream_cannot_write_is_refused(bench: Bench, records: str, case: str) -> None:
    columns, about, options = REFUSED[case]

    def program(side: Side) -> object:
        source = side.stream(subscribe=records, startingOffsets="earliest").selectExpr(*columns)
        side.run_into_topic(source, new_name("checkpoint"), **options)
        return None

    bench.refused(program, about)


@pytest.mark.long
def test_a_partition_that_the_topic_does_not_have_is_refused(bench: Bench) -> None:
    topic = bench.topic(partitions=2)
    options = {"topic": topic, "kafka.max.block.ms": "3000", "kafka.delivery.timeout.ms": "40000"}
    bench.refused(
        lambda side: side.write(frame(side.spark, [("v", 5)], "value STRING, partition INT"), **options),
        "partition",
    )


@pytest.mark.long
@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
def test_other_modes_are_refused_with_the_one_to_use(bench: Bench, mode: str) -> None:
    topic = bench.topic()
    bench.refused(
        lambda side: side.write(frame(side.spark, [("v",)], "value STRING"), mode=mode, topic=topic), "append"
    )


@pytest.mark.long
def test_a_record_too_large_for_the_topic_is_refused(bench: Bench) -> None:
    topic = bench.topic()
    bench.refused(
        lambda side: side.write(frame(side.spark, [("v" * 2_000_000,)], "value STRING"), topic=topic), "large"
    )


@pytest.mark.long
def test_a_failure_of_the_frame_is_no_success(bench: Bench) -> None:
    topic = bench.topic()
    failing = "IF(id < 900, CAST(id AS STRING), CAST(raise_error('the frame failed') AS STRING)) AS value"
    bench.refused(
        lambda side: side.write(side.spark.range(0, 1000, 1, 1).selectExpr(failing), topic=topic),
        "the frame failed",
    )
