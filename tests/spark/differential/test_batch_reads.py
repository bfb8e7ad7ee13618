"""Batch reads: the same records, columns and types for every way to say where to start and to end."""

import json

import pytest
from pyspark.sql import DataFrame

from sparklog import TopicPartition
from tests.spark.differential.conftest import FIRST_MS, Bench, Sent
from tests.spark.differential.programs import Side, rows_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.compat,
    pytest.mark.timeout(300),
]  # the first of them starts two kinds of workers

T = "$records"
"""Stands for the topic in the options below."""

AFTER_3 = str(FIRST_MS + 3000)
AFTER_4 = str(FIRST_MS + 4000)
AFTER_ALL = str(FIRST_MS + 1_000_000)

QUICK = {
    "all there is": {"subscribe": T},
    "with headers": {"subscribe": T, "includeHeaders": "true"},
    "offsets of each partition": {"subscribe": T, "startingOffsets": f'{{"{T}":{{"0":3,"1":-2,"2":0}}}}'},
    "until offsets of each partition": {"subscribe": T, "endingOffsets": f'{{"{T}":{{"0":7,"1":-1,"2":0}}}}'},
    "partitions that are assigned": {"assign": f'{{"{T}":[0]}}'},
    "a pattern of names": {"subscribePattern": f"{T}.*"},
    "from a timestamp": {
        "subscribe": T,
        "startingTimestamp": AFTER_3,
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "from timestamps of each partition": {
        "subscribe": T,
        "startingOffsetsByTimestamp": f'{{"{T}":{{"0":{AFTER_3},"1":{AFTER_4},"2":-2}}}}',
    },
    "until a timestamp": {"subscribe": T, "endingTimestamp": AFTER_3},
}

MATRIX = {
    "explicitly without headers": {"subscribe": T, "includeHeaders": "false"},
    "earliest to latest": {"subscribe": T, "startingOffsets": "earliest", "endingOffsets": "latest"},
    "words in capitals": {"subscribe": T, "startingOffsets": "EARLIEST", "endingOffsets": "Latest"},
    "options in another case": {"SUBSCRIBE": T, "STARTINGOFFSETS": "earliest"},
    "a space around the name": {"subscribe": f" {T} "},
    "one offset to the next": {
        "subscribe": T,
        "startingOffsets": f'{{"{T}":{{"0":3,"1":1,"2":0}}}}',
        "endingOffsets": f'{{"{T}":{{"0":4,"1":1,"2":0}}}}',
    },
    "two partitions that are assigned": {"assign": f'{{"{T}":[0,2]}}'},
    "an assigned partition from an offset": {
        "assign": f'{{"{T}":[1]}}',
        "startingOffsets": f'{{"{T}":{{"1":2}}}}',
    },
    "a pattern of nothing": {"subscribePattern": "nothing-at-all-.*"},
    "a timestamp stronger than offsets": {
        "subscribe": T,
        "startingTimestamp": AFTER_3,
        "startingOffsetsByTimestampStrategy": "latest",
        "startingOffsets": "earliest",
    },
    "one timestamp stronger than many": {
        "subscribe": T,
        "startingTimestamp": AFTER_4,
        "startingOffsetsByTimestampStrategy": "latest",
        "startingOffsetsByTimestamp": f'{{"{T}":{{"0":{AFTER_3},"1":{AFTER_3},"2":{AFTER_3}}}}}',
    },
    "many timestamps stronger than offsets": {
        "subscribe": T,
        "startingOffsetsByTimestamp": f'{{"{T}":{{"0":{AFTER_4},"1":{AFTER_4},"2":-2}}}}',
        "startingOffsets": "earliest",
    },
    "the ending ones with the same precedence": {
        "subscribe": T,
        "endingTimestamp": AFTER_3,
        "endingOffsetsByTimestamp": f'{{"{T}":{{"0":{AFTER_4},"1":{AFTER_4},"2":{AFTER_4}}}}}',
        "endingOffsets": "latest",
    },
    "until timestamps of each partition": {
        "subscribe": T,
        "endingOffsetsByTimestamp": f'{{"{T}":{{"0":{AFTER_4},"1":{AFTER_ALL},"2":-1}}}}',
    },
    "until a timestamp after all": {"subscribe": T, "endingTimestamp": AFTER_ALL},
    "from a timestamp after all, taken as latest": {
        "subscribe": T,
        "startingTimestamp": AFTER_ALL,
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "from one timestamp until another": {
        "subscribe": T,
        "startingTimestamp": str(FIRST_MS + 1000),
        "endingTimestamp": AFTER_3,
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "read committed": {"subscribe": T, "kafka.isolation.level": "read_committed"},
    "small fetches": {"subscribe": T, "kafka.max.poll.records": "3", "kafka.fetch.max.bytes": "1024"},
    "a prefix for the group": {"subscribe": T, "groupIdPrefix": "mine"},
    "a group of one's own": {"subscribe": T, "kafka.group.id": "mine"},
    "a timeout for polls": {"subscribe": T, "kafkaConsumer.pollTimeoutMs": "30000"},
    "retries of offset fetches": {
        "subscribe": T,
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "100",
    },
    "whatever the loss": {"subscribe": T, "failOnDataLoss": "false"},
    "a limit that is for streams": {"subscribe": T, "maxOffsetsPerTrigger": "3"},
    "lower limits that are for streams": {
        "subscribe": T,
        "minOffsetsPerTrigger": "3",
        "maxTriggerDelay": "1m",
    },
    "an option that nobody knows but the client": {"subscribe": T, "kafka.client.id": "me"},
}


def answer(side: Side, options: dict[str, str], topic: str) -> object:
    """Records and schema."""
    frame = side.read(**{key: value.replace(T, topic) for key, value in options.items()})
    return frame.schema.jsonValue(), rows_of(frame)


@pytest.mark.parametrize("case", QUICK)
def test_a_batch_read_answers_alike(bench: Bench, records: str, case: str) -> None:
    bench.alike(lambda side: answer(side, QUICK[case], records))


@pytest.mark.long
@pytest.mark.parametrize("case", MATRIX)
def test_a_batch_read_with_any_option_answers_alike(bench: Bench, records: str, case: str) -> None:
    bench.alike(lambda side: answer(side, MATRIX[case], records))


SPLITS = {
    "one task for each partition": {},
    "fewer tasks than partitions": {"minPartitions": "1"},
    "as many as there are": {"minPartitions": "2"},
    "many": {"minPartitions": "8"},
    "more than records": {"minPartitions": "40"},
    "tasks at least and records at most": {"minPartitions": "5", "maxRecordsPerPartition": "4"},
    "records at most and tasks at least": {"minPartitions": "12", "maxRecordsPerPartition": "8"},
}


def ranges(frame: DataFrame) -> list[list[tuple[object, ...]]]:
    """The records of each task that had any, in the order of the first of them."""
    tasks: dict[int, list[tuple[object, ...]]] = {}
    for task, *place in frame.selectExpr("spark_partition_id()", "topic", "partition", "offset").collect():
        tasks.setdefault(task, []).append(tuple(place))
    return sorted(tasks.values())


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case == "many" else pytest.mark.long) for case in SPLITS]
)
def test_a_batch_read_is_split_into_the_same_tasks(bench: Bench, records: str, case: str) -> None:
    bench.alike(lambda side: ranges(side.read(subscribe=records, **SPLITS[case])))


def test_several_topics_are_read_at_once(bench: Bench, records: str) -> None:
    other = bench.topic(Sent(b"x"), Sent(b"y"))
    bench.alike(lambda side: rows_of(side.read(subscribe=f"{records},{other}")))


@pytest.mark.long
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read(bench: Bench, codec: str) -> None:
    topic = bench.topic(*[Sent(b"v" * n, b"%d" % n) for n in range(50)], **{"compression.type": codec})
    bench.alike(lambda side: rows_of(side.read(subscribe=topic)))


@pytest.mark.long
def test_a_time_that_the_log_gave_is_told_as_such(bench: Bench) -> None:
    topic = bench.topic(Sent(b"a"), Sent(b"b"), **{"message.timestamp.type": "LogAppendTime"})
    rows = bench.alike(lambda side: rows_of(side.read(subscribe=topic)))
    assert isinstance(rows, list)
    assert [row[-1] for row in rows] == [1, 1]


@pytest.mark.long
@pytest.mark.parametrize("fails", ["true", "false"])
def test_records_that_are_gone_from_a_named_start_are_a_loss(bench: Bench, fails: str) -> None:
    """Refused, or continued with the rest."""
    topic = bench.topic(*[Sent(b"%d" % n) for n in range(10)])
    bench.admin.delete_records({TopicPartition(topic, 0): 6})
    start = json.dumps({topic: {"0": 2}})

    def program(side: Side) -> object:
        return rows_of(side.read(subscribe=topic, startingOffsets=start, failOnDataLoss=fails))

    if fails == "true":
        bench.refused(program, "failOnDataLoss")
    else:
        bench.alike(program)


@pytest.mark.long
def test_two_reads_can_be_joined_and_united(bench: Bench, records: str) -> None:
    def program(side: Side) -> object:
        one, two = side.read(subscribe=records), side.read(subscribe=records, startingOffsets="earliest")
        joined = one.alias("a").join(two.alias("b"), on=["partition", "offset"]).count()
        return joined, one.union(two).count(), one.where("partition = 1").count(), one.limit(2).count()

    bench.alike(program)


@pytest.mark.long
def test_gaps_that_compaction_left_are_no_loss(bench: Bench) -> None:
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "1",
        "min.cleanable.dirty.ratio": "0.0",
        "max.compaction.lag.ms": "1",
    }
    topic = bench.topic(*[Sent(b"%d" % n, b"k%d" % (n % 3)) for n in range(60)], **settings)
    bench.alike(lambda side: len(rows_of(side.read(subscribe=topic))) in range(3, 61))


@pytest.mark.long
def test_a_table_can_be_read_from_sql(bench: Bench, records: str) -> None:
    def program(side: Side) -> object:
        side.spark.sql(f"DROP TABLE IF EXISTS of_{side.format}")
        options = f"'kafka.bootstrap.servers' '{side.servers}', 'subscribe' '{records}'"
        side.spark.sql(f"CREATE TABLE of_{side.format} USING {side.format} OPTIONS ({options})")
        try:
            return side.spark.sql(f"SELECT count(*), max(offset) FROM of_{side.format}").collect()
        finally:
            side.spark.sql(f"DROP TABLE of_{side.format}")

    bench.alike(program)
