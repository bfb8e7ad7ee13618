"""The planning of streams against a broker, by the calls that Spark makes, without Spark's JVM."""

import json
from typing import Any

import pytest

from sparklog import Admin, Producer
from sparklog.errors import SettingsError
from sparklog.model import Micros, TopicPartition
from tests.spark.conftest import MakeTopic

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs Spark 4.2")

from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sparklog.arrow.ranges import DataLoss
from sparklog.client.clock import now_us
from sparklog.client.consumer.standing_fetch import StandingFetch
from sparklog.client.failures import UnknownTopic
from sparklog.spark import stream_reader
from sparklog.spark.offsets import OffsetUnreadable
from sparklog.spark.options import Options
from sparklog.spark.source import SparklogSource
from sparklog.spark.stream_reader import StreamReader

CALLS_UNTIL_SEEN = 60
"""Idle calls within which a change of the topics is noticed; each takes up to 50 ms, and one is due every
400 ms.
"""


def send(servers: str, topic: str, count: int, partition: int = 0, size: int = 10) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for _ in range(count):
            producer.send(topic, value=b"x" * size, partition=partition)


def step(reader: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """One answer to Spark, through the JSON that Spark keeps."""
    return json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))


def changed(reader: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """The first answer that is another one."""
    answers = (step(reader, start) for _ in range(CALLS_UNTIL_SEEN))
    return next(end for end in answers if end != start)


def ranges(
    reader: StreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[list[tuple[int, int, int]]]:
    """Each task's (partition, start, limit)."""
    return [
        [(r.partition.partition, r.start, r.limit) for r in task.value]
        for task in reader.partitions(start, end)
    ]


def to_the_end(reader: StreamReader, start: dict[str, Any]) -> list[dict[str, Any]]:
    """The ends of the micro-batches of a run with AvailableNow."""
    reader.prepareForTriggerAvailableNow()
    ends = [start]
    while (end := step(reader, ends[-1])) != ends[-1]:
        ends.append(end)
    return ends[1:]


def test_a_stream_starts_where_it_is_told(servers: str, make_topic: MakeTopic, make_reader: Any) -> None:
    topic = make_topic()
    send(servers, topic, 5)

    def start(**options: Any) -> int:
        return make_reader(topic, **options).initialOffset()["off"][topic]["0"]

    assert start() == 0
    assert start(startingOffsets="latest") == 5
    assert start(startingOffsets="latest-2") == 3
    assert start(startingOffsets="latest-99") == 0
    assert start(startingOffsets="-1h") == 0
    assert start(startingOffsets="2999-01-01T00:00:00Z") == 5
    assert start(startingOffsets=json.dumps({topic: 4})) == 4
    assert start(startingTimestamp=1, startingOffsets="latest") == 0
    late = {"startingOffsetsByTimestamp": json.dumps({topic: {"0": 32_000_000_000_000}})}
    assert start(**late, startingOffsetsByTimestampStrategy="latest") == 5
    with pytest.raises(
        SettingsError,
        match=f"option 'startingOffsetsByTimestamp': no record of {topic}-0 is at or after that time",
    ):
        start(**late)


def test_a_start_beyond_the_end_is_refused_or_becomes_the_end(
    servers: str, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic()
    beyond = {"startingOffsets": json.dumps({topic: {"0": 7}})}
    with pytest.raises(
        SettingsError,
        match=f"'startingOffsets' lies beyond the end of the log: {topic}-0 ends at offset 0, not 7",
    ):
        make_reader(topic, **beyond).initialOffset()
    with pytest.warns(UserWarning, match="reading starts at the end"):
        assert make_reader(topic, **beyond, failOnDataLoss="warn").initialOffset()["off"] == {topic: {"0": 0}}


def test_what_is_new_is_answered_and_what_is_not_is_the_same_text(
    servers: str, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic(2)
    reader = make_reader(topic)
    start = reader.initialOffset()
    assert json.dumps(step(reader, start)) == json.dumps(start)
    send(servers, topic, 3, partition=1)
    end = changed(reader, start)
    assert ranges(reader, start, end) == [[(1, 0, 3)]]
    assert json.dumps(step(reader, end)) == json.dumps(end)
    assert reader.reportLatestOffset() == {
        "behind": {"avg": 0.0, "max": 0, "min": 0},
        "lag": {},
        "off": {topic: {"0": 0, "1": 3}},
        "perSecond": {},
        "source": f"sparklog subscribe={topic} at {servers}",
    }


def test_lag_is_reported_where_a_limit_leaves_something(
    servers: str, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic()
    send(servers, topic, 10)
    reader = make_reader(topic, maxOffsetsPerTrigger=4)
    step(reader, reader.initialOffset())
    reported = reader.reportLatestOffset()
    assert reported is not None
    assert reported["behind"] == {"avg": 6.0, "max": 6, "min": 6}
    assert (reported["lag"], reported["off"]) == ({topic: {"0": 6}}, {topic: {"0": 10}})


def test_partitions_and_topics_that_appear_are_read_from_their_earliest_record(
    servers: str, admin: Admin, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic(prefix="appear-a")
    reader = make_reader(subscribePattern="appear-.*", startingOffsets="latest")
    start = reader.initialOffset()
    admin.create_partitions({topic: 2})
    other = make_topic(prefix="appear-b")
    send(servers, topic, 2, partition=1)
    send(servers, other, 3)
    end = start
    while end["off"].get(topic, {}).get("1") != 2 or end["off"].get(other) != {"0": 3}:
        end = changed(reader, end)
    assert sorted(r for task in ranges(reader, start, end) for r in task) == [(0, 0, 3), (1, 0, 2)]


def test_available_now_reads_up_to_what_was_there_in_as_many_batches_as_the_limit_makes(
    servers: str, admin: Admin, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic(2)
    send(servers, topic, 10)
    reader = make_reader(topic, maxOffsetsPerTrigger=4, minOffsetsPerTrigger=3)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    send(servers, topic, 5)
    admin.create_partitions({topic: 3})
    send(servers, topic, 5, partition=2)
    ends = [start]
    while (end := step(reader, ends[-1])) != ends[-1]:
        ends.append(end)
    assert [end["off"][topic] for end in ends[1:]] == [{"0": 4, "1": 0}, {"0": 8, "1": 0}, {"0": 10, "1": 0}]
    assert [end["off"][topic] for end in to_the_end(make_reader(topic), ends[-1])] == [
        {"0": 15, "1": 0, "2": 5}
    ]


def test_a_trigger_that_wants_everything_is_not_limited(
    servers: str, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic()
    send(servers, topic, 10)
    reader = make_reader(topic, maxOffsetsPerTrigger=4)
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["off"] == {topic: {"0": 10}}


def test_a_micro_batch_waits_for_enough_after_the_first(
    servers: str, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic()
    reader = make_reader(topic, minOffsetsPerTrigger=5, maxOffsetsPerTrigger=6)
    start = reader.initialOffset()
    send(servers, topic, 1)
    first = changed(reader, start)
    send(servers, topic, 4)
    assert [step(reader, first) for _ in range(3)] == [first] * 3
    send(servers, topic, 4)
    assert changed(reader, first)["off"] == {topic: {"0": 7}}


def test_an_idle_stream_waits_once_at_most_50_ms_and_with_available_now_not_at_all(
    servers: str, make_topic: MakeTopic, make_reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []

    class Counted(StandingFetch):
        def wait(self, until: Micros) -> bool:
            waits.append(until - now_us())
            return super().wait(until)

    monkeypatch.setattr(stream_reader, "StandingFetch", Counted)
    topic = make_topic()
    reader = make_reader(topic)
    start = reader.initialOffset()
    for calls in (1, 2, 3):
        assert step(reader, start) == start
        assert (
            len(waits) == calls
        )  # so a neighbour in a union or a join is held up once, and no longer than this
    assert all(0 < wait <= 50_000 for wait in waits)
    send(servers, topic, 3)
    waits.clear()
    assert to_the_end(make_reader(topic), start)[-1]["off"] == {topic: {"0": 3}}
    assert waits == []


def test_a_limit_in_bytes_makes_batches_and_tasks_of_about_that_size(
    servers: str, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic()
    send(servers, topic, 200, size=1000)
    reader = make_reader(topic, maxBytesPerTrigger=100_000, maxBytesPerPartition=20_000)
    start = reader.initialOffset()
    end = step(reader, start)
    assert 80 <= end["off"][topic]["0"] <= 100
    tasks = ranges(reader, start, end)
    assert 5 <= len(tasks) <= 6
    assert max(limit - first for [(_, first, limit)] in tasks) <= 20


def test_a_tiny_batch_is_one_task_and_a_large_one_has_a_task_for_each_partition(
    servers: str, make_topic: MakeTopic, make_reader: Any
) -> None:
    tiny, large = make_topic(2), make_topic(2)
    for partition in (0, 1):
        send(servers, tiny, 3, partition)
        send(servers, large, 20, partition, size=100_000)
    reader = make_reader(tiny)
    start = reader.initialOffset()
    assert ranges(reader, start, step(reader, start)) == [[(0, 0, 3), (1, 0, 3)]]
    reader = make_reader(large)
    start = reader.initialOffset()
    assert ranges(reader, start, step(reader, start)) == [[(0, 0, 20)], [(1, 0, 20)]]


def test_records_deleted_before_they_were_read_are_a_loss_that_is_counted(
    servers: str, admin: Admin, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic()
    send(servers, topic, 10)
    start = make_reader(topic).initialOffset()
    admin.delete_records({TopicPartition(topic, 0): 4})
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 0 to 3 are gone, the log starts at 4"):
        step(make_reader(topic), start)
    with pytest.warns(UserWarning, match="because failOnDataLoss is warn"):
        warned = step(make_reader(topic, failOnDataLoss="warn"), start)
    reader = make_reader(topic, failOnDataLoss="skip")
    end = step(reader, start)
    assert end == warned
    assert (end["from"], end["lost"]) == ({topic: {"0": 4}}, {topic: {"0": 4}})
    assert ranges(reader, start, end) == [[(0, 4, 10)]]
    assert step(reader, end) == end


def test_a_topic_made_anew_while_the_query_runs_is_told_from_the_old_one(
    servers: str, admin: Admin, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic()
    send(servers, topic, 3)
    strict, lenient = make_reader(topic), make_reader(topic, failOnDataLoss="skip")
    end = step(lenient, lenient.initialOffset())
    assert step(strict, end) == end
    admin.delete_topics([topic])
    admin.create_topics({topic: 1})
    send(servers, topic, 9)
    with pytest.raises(
        DataLoss, match=f"topic '{topic}' was deleted and recreated; {topic}-0 was read up to offset 3 before"
    ):
        changed(strict, end)
    anew = changed(lenient, end)
    while anew["off"] != {topic: {"0": 9}}:
        anew = changed(lenient, anew)
    assert ranges(lenient, end, anew) == [[(0, 0, 9)]]
    assert anew["lost"] == {topic: {"0": 0}}


def test_a_topic_that_vanishes_is_a_loss_or_left_out(
    servers: str, admin: Admin, make_topic: MakeTopic, make_reader: Any
) -> None:
    topics = sorted([make_topic(), make_topic()])
    options = {"subscribe": ",".join(topics)}
    strict, lenient = make_reader(**options), make_reader(**options, failOnDataLoss="skip")
    start = strict.initialOffset()
    assert step(strict, start) == step(lenient, start) == start
    admin.delete_topics(topics[:1])
    with pytest.raises(DataLoss, match=f"{topics[0]}-0 is gone, read up to offset 0"):
        changed(strict, start)
    assert changed(lenient, start)["off"] == {topics[1]: {"0": 0}}


def test_a_topic_that_never_was_is_named(make_topic: MakeTopic, make_reader: Any) -> None:
    topic = make_topic()
    start = make_reader(topic).initialOffset()
    with pytest.raises(UnknownTopic, match="never-was"):
        step(make_reader(f"{topic},never-was"), start)
    with pytest.raises(UnknownTopic, match=f"partitions that do not exist: {topic}-7"):
        make_reader(assign=json.dumps({topic: [0, 7]})).initialOffset()


def test_an_offset_of_sparks_kafka_connector_is_carried_on(
    servers: str, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic(2)
    send(servers, topic, 4)
    send(servers, topic, 2, partition=1)
    start = {topic: {"0": 1}}
    [end] = to_the_end(make_reader(topic), start)
    assert ranges(make_reader(topic), start, end) == [[(0, 1, 4), (1, 0, 2)]]
    assert ranges(make_reader(topic), start, {topic: {"0": 3, "1": 2}}) == [[(0, 1, 3), (1, 0, 2)]]


def test_a_first_batch_that_sparks_kafka_connector_left_unfinished_needs_its_start_named(
    servers: str, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic()
    send(servers, topic, 9)
    planned = {topic: {"0": 7}}
    reader = make_reader(topic, startingOffsets="latest")
    with pytest.raises(
        OffsetUnreadable, match=r"was never finished, .* give that place as JSON in startingOffsets"
    ):
        reader.partitions(reader.initialOffset(), planned)
    reader = make_reader(topic, startingOffsets=json.dumps({topic: {"0": 2}}))
    assert ranges(reader, reader.initialOffset(), planned) == [[(0, 2, 7)]]


def test_a_group_hears_how_far_the_query_is_and_nothing_starts_from_it(
    servers: str, admin: Admin, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic()
    group, at = f"group-of-{topic}", TopicPartition(topic, 0)
    send(servers, topic, 3)

    def committed() -> int | None:
        found = admin.list_group_offsets([group])[group].get(at)
        return None if found is None else found.offset

    reader = make_reader(topic, groupId=group)
    start = reader.initialOffset()
    assert committed() is None
    end = step(reader, start)
    assert committed() == 0
    reader.commit(end)
    assert committed() == 3
    send(servers, topic, 1)
    later = changed(reader, end)
    assert step(reader, later) == later
    assert committed() == 4
    assert make_reader(topic, groupId=group).initialOffset() == start


def test_a_group_that_refuses_is_a_warning(servers: str, make_topic: MakeTopic, make_reader: Any) -> None:
    from sparklog import Consumer

    topic = make_topic()
    with Consumer(bootstrap_servers=servers, group_id=f"group-of-{topic}") as member:
        member.subscribe([topic])
        while not member.assignment():
            member.poll(timeout_ms=100)
        reader = make_reader(topic, groupId=f"group-of-{topic}")
        start = reader.initialOffset()
        with pytest.warns(UserWarning, match="the progress of this query: .*UNKNOWN_MEMBER_ID"):
            assert step(reader, start) == start


def test_an_older_spark_that_tells_neither_start_nor_limit_is_served(
    servers: str, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic()
    send(servers, topic, 5)
    reader = make_reader(topic, maxOffsetsPerTrigger=3)
    start = reader.initialOffset()
    first = reader.latestOffset()
    assert first["off"] == {topic: {"0": 3}}
    reader.partitions(start, first)
    assert reader.latestOffset()["off"] == {topic: {"0": 5}}


def test_a_reader_travels_to_executors_whatever_it_has_open(
    servers: str, make_topic: MakeTopic, make_reader: Any
) -> None:
    reader = make_reader(make_topic())
    step(reader, reader.initialOffset())
    assert isinstance(cloudpickle.loads(cloudpickle.dumps(reader)), StreamReader)


def test_a_batch_frame_bound_late_sees_what_came_after_it_was_planned(
    servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic}

    def rows(**options: str) -> list[int]:
        source = SparklogSource({**given, **options})
        reader = source.reader(source.schema())
        planned = list(reader.partitions())
        send(servers, topic, 2)
        return [batch.num_rows for task in planned for batch in reader.read(task)]

    assert sum(rows()) == 0
    assert sum(rows(lateBinding="true")) == 4
    assert sum(rows(lateBinding="true", startingOffsets="latest-1")) == 1


def test_a_batch_reads_between_moments(servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    with Producer(bootstrap_servers=servers) as producer:
        for timestamp in (1000, 2000, 3000):
            producer.send(topic, value=b"v", partition=0, timestamp_ms=timestamp)

    def planned(**options: Any) -> list[tuple[int, int, int]]:
        given = {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            **{name: str(value) for name, value in options.items()},
        }
        source = SparklogSource(given)
        tasks = source.reader(source.schema()).partitions()
        return [(r.partition.partition, r.start, r.limit) for task in tasks for r in task.value]

    assert planned(
        startingTimestamp=0, endingTimestamp=2500, startingOffsetsByTimestampStrategy="latest"
    ) == [(0, 0, 2)]
    assert planned(endingOffsetsByTimestamp=json.dumps({topic: {"0": 1500, "1": 5}})) == [(0, 0, 1)]
    assert planned(maxRecordsPerPartition=1) == [(0, 0, 1), (0, 1, 2), (0, 2, 3)]
    with pytest.raises(SettingsError, match=f"no record of {topic}-1 is at or after that time"):
        planned(startingTimestamp=1500)
    with pytest.raises(SettingsError, match="lies beyond the end of the read"):
        planned(startingTimestamp=2500, endingTimestamp=500, startingOffsetsByTimestampStrategy="latest")


def test_client_settings_reach_the_client(servers: str) -> None:
    given = {
        "kafka.bootstrap.servers": servers,
        "subscribe": "t",
        "kafka.isolation.level": "read_committed",
        "kafka.client.id": "me",
    }
    client = Options.parse(given).client
    assert (client.isolation_level, client.client_id) == ("read_committed", "me")


def in_transactions(servers: str, topic: str, *transactions: tuple[list[str], bool]) -> None:
    """Values written in transactions, each committed or aborted."""
    confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs a transactional producer")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": f"writer-of-{topic}"}
    )
    producer.init_transactions(30)
    for values, is_committed in transactions:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        producer.flush(30)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(30)


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_committed_records_are_read_once_wherever_a_batch_ends_among_markers(
    servers: str, make_topic: MakeTopic, make_reader: Any, limit: int
) -> None:
    topic = make_topic()
    in_transactions(servers, topic, (["a", "b"], True), (["c"], False), (["d"], True))
    reader = make_reader(topic, **{"kafka.isolation.level": "read_committed"}, maxOffsetsPerTrigger=limit)
    start = reader.initialOffset()
    ends = to_the_end(reader, start)
    assert ends[-1]["off"] == {topic: {"0": 7}}
    assert len(ends) == -(-7 // limit)
    batches = zip([start, *ends], ends, strict=False)
    tasks = [task for first, last in batches for task in reader.partitions(first, last)]
    values = [
        value for task in tasks for rows in reader.read(task) for value in rows.column("value").to_pylist()
    ]
    assert values == [b"a", b"b", b"d"]
