"""Refusals when a frame is loaded, and at the first request to brokers. No Spark session here."""

import json
import os
import sys
from typing import Any

import pytest

from sparklog import Admin, Producer
from sparklog.client.failures import UnknownTopic
from sparklog.errors import SettingsError
from tests.spark.conftest import MakeTopic

pytest.importorskip("pyspark", reason="needs pyspark")

from pyspark.sql.streaming import python_streaming_source_runner as runner

from sparklog.spark.source import SparklogSource
from sparklog.spark.stream_reader import HIDE_TRACEBACK

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_what_needs_no_broker_is_refused_when_a_frame_is_loaded() -> None:
    trigger = {**SERVERS, "subscribe": "t", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}
    backwards = {
        **SERVERS,
        "subscribe": "t",
        "startingOffsets": '{"t":{"0":9,"1":1}}',
        "endingOffsets": '{"t":{"0":8,"1":-1}}',
    }
    refused_at_once = {
        r"'minOffsetsPerTrigger' \(9\) is higher": trigger,
        r"'startingOffsets' lies beyond 'endingOffsets': t-0 from 9 to 8$": backwards,
        "'endingOffsets' cannot be earliest": {**SERVERS, "subscribe": "t", "endingOffsets": "earliest"},
        "'subscribe' and 'assign' exclude each other": {**SERVERS, "subscribe": "t", "assign": '{"t":[0]}'},
        "did you mean 'subscribe'": {**SERVERS, "subscribed": "t"},
    }
    for said, given in refused_at_once.items():
        with pytest.raises(SettingsError, match=said):
            SparklogSource(given)
    with pytest.raises(SettingsError, match="nothing to read"):
        SparklogSource(dict(SERVERS)).schema()
    assert "value" in SparklogSource({**SERVERS, "topic": "t"}).schema().names


def test_a_use_of_a_table_checks_its_options_without_brokers() -> None:
    SparklogSource({"startingOffsets": "earliest"})
    with pytest.raises(SettingsError, match="did you mean 'startingOffsets'"):
        SparklogSource({"startingOfsets": "earliest"})


def test_a_batch_puts_many_tiny_partitions_into_one_task_unless_tasks_were_asked_for(
    servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(12)
    with Producer(bootstrap_servers=servers) as producer:
        for partition in range(12):
            for _ in range(2):
                producer.send(topic, value=b"x" * (700_000 if partition == 5 else 10), partition=partition)

    def tasks(**options: str) -> list[int]:
        source = SparklogSource({"kafka.bootstrap.servers": servers, "subscribe": topic, **options})
        planned = source.reader(source.schema()).partitions()
        return [len(task.value) for task in planned]

    assert tasks() == [5, 1, 6]
    assert (
        tasks(minPartitions="12")
        == tasks(maxRecordsPerPartition="100")
        == tasks(maxBytesPerPartition="10000000")
        == [1] * 12
    )
    assert tasks(lateBinding="true") == [1] * 12


@pytest.mark.parametrize("loss", ["true", "warn", "skip"])
def test_an_unknown_topic_is_an_error_whatever_is_done_about_lost_data(
    servers: str, make_topic: MakeTopic, make_reader: Any, loss: str
) -> None:
    topic = make_topic()
    given = {"kafka.bootstrap.servers": servers, "failOnDataLoss": loss}
    for choice, named in (
        (
            {"subscribe": f"{topic},mispelt"},
            "'subscribe' names a topic that does not exist: .*'mispelt'",
        ),
        (
            {"assign": json.dumps({topic: [0, 7]})},
            f"'assign' names partitions that do not exist: .*{topic}-7",
        ),
    ):
        source = SparklogSource({**given, **choice})
        with pytest.raises(UnknownTopic, match=named):
            source.reader(source.schema()).partitions()
        with pytest.raises(UnknownTopic, match=named):
            make_reader(**choice, failOnDataLoss=loss).initialOffset()
    start = make_reader(topic).initialOffset()
    with pytest.raises(UnknownTopic, match="mispelt"):
        make_reader(f"{topic},mispelt", failOnDataLoss=loss).latestOffset(start)


def test_a_topic_that_vanished_is_loss_and_stays_so_after_a_restart(
    admin: Admin, make_topic: MakeTopic, make_reader: Any
) -> None:
    stays, gone = make_topic(), make_topic()
    options = {"subscribe": f"{stays},{gone}", "failOnDataLoss": "skip"}
    start = make_reader(**options).initialOffset()
    admin.delete_topics([gone])
    end = make_reader(**options).latestOffset(start)
    assert end["off"] == {stays: {"0": 0}}
    again = make_reader(**options).latestOffset(json.loads(json.dumps(end)))
    assert again["lost"] == {gone: {"0": 0}}


def test_the_process_of_a_stream_tells_spark_the_cause_of_an_error_without_a_traceback(
    make_reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HIDE_TRACEBACK, "")
    with pytest.raises(UnknownTopic):
        make_reader("never-was").initialOffset()
    assert os.environ[HIDE_TRACEBACK] == "", "another process than that of a stream"
    monkeypatch.setattr(sys.modules["__main__"], "partitions_func", runner.partitions_func, raising=False)
    with pytest.raises(UnknownTopic):
        make_reader("never-was").initialOffset()
    assert os.environ[HIDE_TRACEBACK] == "1"
