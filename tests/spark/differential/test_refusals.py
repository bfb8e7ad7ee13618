"""Reads that make no sense: refused by both formats, before a record is read, with the option or the topic
named.
"""

import pytest

from tests.spark.differential.conftest import FIRST_MS, Bench, Sent
from tests.spark.differential.programs import Side, rows_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.compat,
    pytest.mark.timeout(300),
]  # the first of them starts two kinds of workers

T = "$topic"
LATE = str(FIRST_MS + 10_000_000)

# The options, and the subject of the refusal. Streams and batches.
EVERYWHERE: dict[str, tuple[dict[str, str], str]] = {
    "nothing to read": ({}, "subscribe"),
    "a topic and a pattern": ({"subscribe": T, "subscribePattern": T}, "subscribepattern"),
    "a topic and an assignment": ({"subscribe": T, "assign": f'{{"{T}":[0]}}'}, "assign"),
    "no topic in the list": ({"subscribe": ""}, "subscribe"),
    "no pattern": ({"subscribePattern": " "}, "subscribepattern"),
    "an assignment that is no JSON": ({"assign": "t-0"}, "assign"),
    "a place to start with its own deserializer": (
        {"subscribe": T, "kafka.key.deserializer": "x"},
        "key.deserializer",
    ),
    "a value deserializer": ({"subscribe": T, "kafka.value.deserializer": "x"}, "value.deserializer"),
    "an offset reset": ({"subscribe": T, "kafka.auto.offset.reset": "latest"}, "startingoffsets"),
    "commits by the client": ({"subscribe": T, "kafka.enable.auto.commit": "true"}, "enable.auto.commit"),
    "interceptors": ({"subscribe": T, "kafka.interceptor.classes": "x"}, "interceptor.classes"),
    "offsets that are no JSON": ({"subscribe": T, "startingOffsets": "first"}, "first"),
    "no tasks": ({"subscribe": T, "minPartitions": "0"}, "minpartitions"),
    "a number of tasks that is none": ({"subscribe": T, "minPartitions": "many"}, "many"),
    "no records for a task": ({"subscribe": T, "maxRecordsPerPartition": "0"}, "maxrecordsperpartition"),
    "a strategy that is none": ({"subscribe": T, "startingOffsetsByTimestampStrategy": "guess"}, "guess"),
    "offsets of too few partitions": ({"subscribe": T, "startingOffsets": f'{{"{T}":{{"0":1}}}}'}, T),
    "offsets of too many partitions": (
        {"subscribe": T, "startingOffsets": f'{{"{T}":{{"0":1,"1":1,"2":0,"9":0}}}}'},
        T,
    ),
    "a timestamp after all": ({"subscribe": T, "startingTimestamp": LATE}, T),
    "a timestamp that is none": ({"subscribe": T, "startingTimestamp": "noon"}, "noon"),
    "timestamps after all": (
        {"subscribe": T, "startingOffsetsByTimestamp": f'{{"{T}":{{"0":{LATE},"1":{LATE},"2":{LATE}}}}}'},
        T,
    ),
    "a topic that does not exist": ({"subscribe": "there-is-no-such-topic"}, "topic"),
    "an isolation that is none": ({"subscribe": T, "kafka.isolation.level": "dirty"}, "dirty"),
}
BATCHES: dict[str, tuple[dict[str, str], str]] = {
    "to start at the end": ({"subscribe": T, "startingOffsets": "latest"}, "latest"),
    "a partition that starts at the end": (
        {"subscribe": T, "startingOffsets": f'{{"{T}":{{"0":-1,"1":0,"2":0}}}}'},
        "startingoffsets",
    ),
    "to end at the start": ({"subscribe": T, "endingOffsets": "earliest"}, "earliest"),
    "a partition that ends at the start": (
        {"subscribe": T, "endingOffsets": f'{{"{T}":{{"0":-2,"1":0,"2":0}}}}'},
        "ending",
    ),
    "to start after the end": (
        {
            "subscribe": T,
            "startingOffsets": f'{{"{T}":{{"0":5,"1":0,"2":0}}}}',
            "endingOffsets": f'{{"{T}":{{"0":2,"1":0,"2":0}}}}',
        },
        "offset",
    ),
    "to start after the log": (
        {"subscribe": T, "startingOffsets": f'{{"{T}":{{"0":500,"1":0,"2":0}}}}'},
        "500",
    ),
    "to end after the log": (
        {
            "subscribe": T,
            "endingOffsets": f'{{"{T}":{{"0":500,"1":0,"2":0}}}}',
            "kafkaConsumer.pollTimeoutMs": "3000",
        },
        "500",
    ),
}
STREAMS: dict[str, tuple[dict[str, str], str]] = {
    "an end": ({"subscribe": T, "endingOffsets": "latest"}, "ending"),
    "ends by timestamp": ({"subscribe": T, "endingOffsetsByTimestamp": f'{{"{T}":{{"0":1}}}}'}, "ending"),
    "at least more than at most": (
        {"subscribe": T, "minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"},
        "maxoffsetspertrigger",
    ),
    "no offsets for a trigger": ({"subscribe": T, "maxOffsetsPerTrigger": "none"}, "none"),
}
QUICKLY = ("nothing to read", "an offset reset", "to start after the end", "an end")


def cases(*tables: dict[str, tuple[dict[str, str], str]]) -> list[object]:
    """All cases of the tables; most of them for the long run."""
    return [
        pytest.param(case, marks=() if case in QUICKLY else pytest.mark.long)
        for table in tables
        for case in table
    ]


def filled(case: tuple[dict[str, str], str], topic: str) -> tuple[dict[str, str], str]:
    options, about = case
    return {key: value.replace(T, topic) for key, value in options.items()}, about.replace(T, topic)


@pytest.mark.parametrize("case", cases(EVERYWHERE, BATCHES))
def test_a_batch_read_is_refused(bench: Bench, records: str, case: str) -> None:
    options, about = filled({**EVERYWHERE, **BATCHES}[case], records)
    bench.refused(lambda side: rows_of(side.read(**options)), about)


@pytest.mark.parametrize("case", cases(EVERYWHERE, STREAMS))
def test_a_stream_is_refused(bench: Bench, records: str, case: str) -> None:
    options, about = filled({**EVERYWHERE, **STREAMS}[case], records)
    bench.refused(lambda side: side.batches(side.stream(**options)), about)


@pytest.mark.long
def test_a_read_without_brokers_is_refused(bench: Bench, records: str) -> None:
    def program(side: Side) -> object:
        return rows_of(side.spark.read.format(side.format).option("subscribe", records).load())

    bench.refused(program, "kafka.bootstrap.servers")


@pytest.mark.long
def test_a_time_that_spark_cannot_hold_is_refused_with_its_record(bench: Bench) -> None:
    topic = bench.topic(
        Sent(b"a"), Sent(b"b", timestamp_ms=2**60), **{"message.timestamp.after.max.ms": str(2**63 - 1)}
    )
    bench.refused(lambda side: rows_of(side.read(subscribe=topic)), "offset 1")
