"""Streams: the same records in the same micro-batches, from the first start over limits, restarts and new
partitions to the end.
"""

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from sparklog import TopicPartition
from tests.spark.differential.conftest import FIRST_MS, Bench, Sent
from tests.spark.differential.programs import Side, new_name, rows_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.compat,
    pytest.mark.timeout(300),
]  # the first of them starts two kinds of workers

T = "$topic"
AFTER_3 = str(FIRST_MS + 3000)


def skewed() -> list[Sent]:
    """A large partition, two small ones and an empty one."""
    return [Sent(b"%d" % n, partition=p) for p, count in ((0, 100), (1, 7), (2, 1)) for n in range(count)]


QUICK = {
    "everything at once": {},
    "at most so many": {"maxOffsetsPerTrigger": "30"},
    "from offsets of each partition": {"startingOffsets": f'{{"{T}":{{"0":95,"1":-2,"2":-1,"3":0}}}}'},
}

MATRIX = {
    "one for each trigger, and at least one of each partition": {"maxOffsetsPerTrigger": "5"},
    "more than there is": {"maxOffsetsPerTrigger": "10000"},
    "as much as can be said": {"maxOffsetsPerTrigger": str(2**63 - 1)},
    "at least so many": {"minOffsetsPerTrigger": "20"},
    "at least and at most": {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "40"},
    "at least more than there is": {"minOffsetsPerTrigger": "100000", "maxTriggerDelay": "1s"},
    "split into tasks": {"minPartitions": "9", "maxOffsetsPerTrigger": "60"},
    "few records for each task": {"maxRecordsPerPartition": "10", "maxOffsetsPerTrigger": "60"},
    "whatever the loss": {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "60"},
    "with headers": {"includeHeaders": "true"},
    "from a timestamp": {"startingTimestamp": AFTER_3, "startingOffsetsByTimestampStrategy": "latest"},
    "from timestamps of each partition": {
        "startingOffsetsByTimestamp": f'{{"{T}":{{"0":{AFTER_3},"1":{AFTER_3},"2":-2,"3":-1}}}}',
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "a timestamp stronger than offsets": {
        "startingTimestamp": AFTER_3,
        "startingOffsetsByTimestampStrategy": "latest",
        "startingOffsets": "earliest",
    },
    "read committed": {"kafka.isolation.level": "read_committed"},
    "a group of one's own": {"kafka.group.id": "mine"},
}


def options_for(topic: str, options: dict[str, str]) -> dict[str, str]:
    """The options of a case for a topic, which is read from its earliest record unless they tell
    otherwise.
    """
    if not any(key.startswith("starting") for key in options):
        options = {"startingOffsets": "earliest", **options}
    return {"subscribe": topic, **{key: value.replace(T, topic) for key, value in options.items()}}


@pytest.mark.parametrize("case", QUICK)
def test_a_stream_cuts_the_same_batches(bench: Bench, case: str) -> None:
    topic = bench.topic(*skewed(), partitions=4)
    bench.alike(lambda side: side.batches(side.stream(**options_for(topic, QUICK[case]))))


@pytest.mark.long
@pytest.mark.parametrize("case", MATRIX)
def test_a_stream_with_any_option_cuts_the_same_batches(bench: Bench, case: str) -> None:
    topic = bench.topic(*skewed(), partitions=4)
    bench.alike(lambda side: side.batches(side.stream(**options_for(topic, MATRIX[case]))))


@pytest.mark.long
@pytest.mark.parametrize("case", ["everything at once", "at most so many"])
def test_a_stream_that_runs_once_takes_the_same(bench: Bench, case: str) -> None:
    topic = bench.topic(*skewed(), partitions=4)
    bench.alike(
        lambda side: side.batches(side.stream(**options_for(topic, QUICK[case])), available_now=False)
    )


def test_a_stream_goes_on_where_it_stopped_and_reads_new_partitions_from_their_start(bench: Bench) -> None:
    def program(side: Side) -> object:
        topic = bench.topic(Sent(b"a"), Sent(b"b"))
        source = side.stream(subscribe=topic, startingOffsets="earliest")
        first = side.batches(source)
        bench.admin.create_partitions({topic: 3})
        bench.fill(topic, [Sent(b"c"), Sent(b"d", partition=2)])
        return places(first), places(side.batches(side.stream(subscribe=topic, startingOffsets="latest")))

    bench.alike(program)


def places(batches: list[list[tuple[object, ...]]]) -> list[list[tuple[object, ...]]]:
    """Without the topics, whose names differ."""
    return [[row[1:] for row in batch] for batch in batches]


@pytest.mark.long
def test_a_stream_from_latest_reads_what_comes_after_its_first_run(bench: Bench) -> None:
    def program(side: Side) -> object:
        topic = bench.topic(Sent(b"a"), Sent(b"b"))
        first = side.batches(side.stream(subscribe=topic))
        bench.fill(topic, [Sent(b"c"), Sent(b"d")])
        return places(first), places(side.batches(side.stream(subscribe=topic)))

    bench.alike(program)


@pytest.mark.long
def test_a_topic_that_begins_to_match_is_read_from_its_start(bench: Bench) -> None:
    def program(side: Side) -> object:
        prefix = new_name("match")
        bench.topic(Sent(b"a"), name=f"{prefix}-a")
        first = side.batches(side.stream(subscribePattern=f"{prefix}-.*", startingOffsets="earliest"))
        bench.topic(Sent(b"b"), Sent(b"c"), name=f"{prefix}-b")
        return places(first), places(
            side.batches(side.stream(subscribePattern=f"{prefix}-.*", startingOffsets="earliest"))
        )

    bench.alike(program)


@pytest.mark.long
def test_assigned_partitions_are_read_alone(bench: Bench) -> None:
    topic = bench.topic(*skewed(), partitions=4)
    assigned = json.dumps({topic: [1, 2]})
    bench.alike(lambda side: side.batches(side.stream(assign=assigned, startingOffsets="earliest")))


@pytest.mark.long
@pytest.mark.parametrize("fails", ["true", "false"])
def test_records_deleted_while_a_stream_was_stopped_are_a_loss(bench: Bench, fails: str) -> None:
    """Refused, or continued with the rest."""

    def program(side: Side) -> object:
        topic = bench.topic(*[Sent(b"%d" % n) for n in range(10)])
        options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": fails}
        side.batches(side.stream(**options, maxOffsetsPerTrigger="4"))
        bench.fill(topic, [Sent(b"more") for _ in range(10)])
        bench.admin.delete_records({TopicPartition(topic, 0): 15})
        return places(side.batches(side.stream(**options)))

    if fails == "true":
        bench.refused(program, "failOnDataLoss")
    else:
        bench.alike(program)


@pytest.mark.long
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_deleted_while_a_stream_was_stopped_is_a_loss(bench: Bench, fails: str) -> None:
    """Of two topics, so that there is something left to read."""

    def program(side: Side) -> object:
        gone, stays = bench.topic(Sent(b"a")), bench.topic(Sent(b"b"))
        options = {
            "subscribePattern": f"{gone}|{stays}",
            "startingOffsets": "earliest",
            "failOnDataLoss": fails,
        }
        side.batches(side.stream(**options))
        bench.admin.delete_topics([gone])
        bench.fill(stays, [Sent(b"c")])
        return places(side.batches(side.stream(**options)))

    if fails == "true":
        bench.refused(program, "failOnDataLoss")
    else:
        bench.alike(program)


@pytest.mark.long
def test_two_streams_can_be_united_and_joined(bench: Bench) -> None:
    one, two = bench.topic(*skewed(), partitions=4), bench.topic(Sent(b"x"), Sent(b"1"), Sent(b"2"))

    def program(side: Side) -> object:
        a, b = (side.stream(subscribe=topic, startingOffsets="earliest") for topic in (one, two))
        united = side.batches(a.union(b), "united")
        own = side.stream(subscribe=one, startingOffsets="earliest").select("value")
        found: list[int] = []
        joined = own.join(b.select("value"), "value")
        side.run(joined.writeStream.foreachBatch(lambda batch, _: found.append(batch.count())), "joined")
        return united, sum(found)

    bench.alike(program)


@pytest.mark.long
def test_a_checkpoint_of_the_kafka_format_is_gone_on_with(bench: Bench, tmp_path: Path) -> None:
    """The word in the program is changed and nothing else."""
    topic = bench.topic(Sent(b"a"), Sent(b"b"), Sent(b"c", partition=1), partitions=2)
    kafka = Side(bench.spark, "kafka", bench.servers, tmp_path)
    assert places(kafka.batches(kafka.stream(subscribe=topic, startingOffsets="earliest"))) == [
        [(0, 0), (0, 1), (1, 0)]
    ]
    bench.fill(topic, [Sent(b"d"), Sent(b"e", partition=1)])
    ours = Side(bench.spark, "sparklog", bench.servers, tmp_path)
    assert places(ours.batches(ours.stream(subscribe=topic, startingOffsets="earliest"))) == [
        [(0, 2), (1, 1)]
    ]


@pytest.mark.long
def test_progress_tells_how_many_rows_were_read(bench: Bench) -> None:
    topic = bench.topic(*skewed(), partitions=4)

    def program(side: Side) -> object:
        source = side.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
        query = side.run(source.writeStream.format("noop"), "progress")
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    bench.alike(program)


@pytest.mark.long
def test_a_stream_has_the_columns_of_a_batch(bench: Bench, records: str) -> None:
    def program(side: Side) -> object:
        collected: list[object] = []

        def collect(batch: DataFrame, _: int) -> None:
            collected.extend(rows_of(batch))

        source = side.stream(subscribe=records, startingOffsets="earliest", includeHeaders="true")
        side.run(source.writeStream.foreachBatch(collect), "columns")
        return source.schema.jsonValue(), collected

    bench.alike(program)
