"""How the options say whether writes count once, and by what name their sink is known."""

from collections.abc import Callable

import pytest

pytest.importorskip("pyspark.sql", reason="needs pyspark")

from sparklog.errors import SettingsError
from sparklog.spark.delivery import AtLeastOnce, Task
from sparklog.spark.exactly_once import (
    ExactlyOnce,
    NoSink,
    SinkWritten,
    delivery_for_batch,
    delivery_for_stream,
)
from sparklog.spark.options import Options


def options(**given: str) -> Options:
    return Options.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", **given})


def test_streams_are_written_exactly_once_unless_told_otherwise() -> None:
    assert isinstance(delivery_for_stream(options()), ExactlyOnce)
    assert isinstance(delivery_for_stream(options(delivery="at_least_once")), AtLeastOnce)


def test_batches_are_written_at_least_once_unless_told_otherwise() -> None:
    assert isinstance(delivery_for_batch(options()), AtLeastOnce)
    assert isinstance(delivery_for_batch(options(delivery="exactly_once")), ExactlyOnce)
    assert isinstance(delivery_for_batch(options(txnAppId="a", txnVersion="0")), ExactlyOnce)


@pytest.mark.parametrize(
    ("make", "given", "reason"),
    [
        (delivery_for_batch, {"txnAppId": "a"}, "belong together"),
        (delivery_for_batch, {"txnVersion": "1"}, "belong together"),
        (
            delivery_for_batch,
            {"txnAppId": "a", "txnVersion": "1", "delivery": "at_least_once"},
            "leave out delivery",
        ),
        (delivery_for_stream, {"kafka.transactional.id": "mine"}, "cannot be set"),
        (
            delivery_for_stream,
            {"delivery": "exactly_once", "kafka.acks": "1", "kafka.enable.idempotence": "false"},
            "kafka.acks=all",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    make: Callable[[Options], object], given: dict[str, str], reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        make(options(**given))


def identity(query: str, **given: str) -> str:
    message = delivery_for_stream(options(**given)).nothing_written(Task(0, 0, query, 0))
    assert isinstance(message, SinkWritten)
    return message.identity


def test_the_sink_is_named_by_its_option_else_by_the_query_wherever_its_checkpoint_is() -> None:
    assert identity("query", sinkId="s", checkpointLocation="/ck") == "s"
    assert identity("", sinkId="s") == "s"
    for checkpoint in ("/ck/", "file:/ck", "ck", "s3://b/ck", "s3a://b/ck"):
        assert identity("query", checkpointLocation=checkpoint) == "query"
    assert identity("query") == "query"


@pytest.mark.parametrize(
    ("spellings", "known_as"),
    [
        (("/ck", "/ck/", "/a/../ck/.", "file:/ck", "file:///ck/", "FILE:/ck"), "/ck"),
        (("ck", "./ck", "ck/"), "ck"),
        (("s3://b/ck", "s3a://b/ck/", "s3n://b//ck", "S3://b/ck"), "s3://b/ck"),
        (("hdfs://NAME:8020/ck", "hdfs://name:8020/ck"), "hdfs://name:8020/ck"),
        (("hdfs:///ck", "hdfs:/ck"), "hdfs:/ck"),
        (("abfss://c@a.dfs.core.windows.net/ck/",), "abfss://c@a.dfs.core.windows.net/ck"),
        (("s3://b", "s3a://b/"), "s3://b/"),
    ],
)
def test_where_tasks_are_not_told_the_query_the_checkpoint_names_the_sink_however_it_is_spelled(
    spellings: tuple[str, ...], known_as: str
) -> None:
    for spelled in spellings:
        with pytest.warns(UserWarning, match=r"checkpoint is moved.*Set the option sinkId"):
            assert identity("", checkpointLocation=spelled) == known_as


def test_a_stream_without_any_name_is_refused_with_what_to_do() -> None:
    with pytest.raises(NoSink, match="at_least_once"):
        identity("")
