"""In which of batch and streaming reads and writes each option has an effect: what the table says is what the
readers and writers use, and nothing that a user sets is ignored silently.
"""

import warnings
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

pytest.importorskip("pyspark.sql", reason="needs pyspark")

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from sparklog.client.settings import AdminOptions, ClientSettings
from sparklog.errors import SettingsError
from sparklog.spark.batch_reader import BatchReader
from sparklog.spark.client_options import OF_READS, OF_WRITES
from sparklog.spark.connections import close_idle
from sparklog.spark.delivery import NO_BATCH
from sparklog.spark.early_rows import stream_reader
from sparklog.spark.option_values import READS, Definition, Use
from sparklog.spark.options import Options, definitions
from sparklog.spark.schema import source_schema
from sparklog.spark.source import SparklogSource
from sparklog.spark.task_clients import options_of_writer
from sparklog.spark.writers import BatchSink, StreamSink
from tests.spark.conftest import MakeTopic

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
OFFSETS = StructType([StructField("offset", LongType())])
VALUES = StructType([StructField("value", BinaryType())])
ROUTED = StructType([StructField("topic", StringType()), StructField("value", BinaryType())])
SAMPLES: dict[str, dict[str, str]] = {
    "subscribe": {"subscribe": "t"},
    "subscribePattern": {"subscribePattern": "t.*"},
    "assign": {"assign": '{"t":[0]}'},
    "startingTimestamp": {"startingTimestamp": "5"},
    "startingOffsetsByTimestamp": {"startingOffsetsByTimestamp": '{"t":5}'},
    "startingOffsets": {"startingOffsets": '{"t":{"0":0}}'},
    "startingOffsetsByTimestampStrategy": {
        "startingOffsetsByTimestampStrategy": "latest",
        "startingTimestamp": "5",
    },
    "endingTimestamp": {"endingTimestamp": "9"},
    "endingOffsetsByTimestamp": {"endingOffsetsByTimestamp": '{"t":9}'},
    "endingOffsets": {"endingOffsets": '{"t":{"0":9}}'},
    "lateBinding": {"lateBinding": "true"},
    "maxOffsetsPerTrigger": {"maxOffsetsPerTrigger": "7"},
    "minOffsetsPerTrigger": {"minOffsetsPerTrigger": "7"},
    "maxTriggerDelay": {"maxTriggerDelay": "1m", "minOffsetsPerTrigger": "7"},
    "maxBytesPerTrigger": {"maxBytesPerTrigger": "7"},
    "minPartitions": {"minPartitions": "7"},
    "maxRecordsPerPartition": {"maxRecordsPerPartition": "7"},
    "maxBytesPerPartition": {"maxBytesPerPartition": "7"},
    "earlyRows": {"earlyRows": "off"},
    "includeHeaders": {"includeHeaders": "true"},
    "failOnDataLoss": {"failOnDataLoss": "skip"},
    "groupId": {"groupId": "g"},
    "fetchOffset.numRetries": {"fetchOffset.numRetries": "7"},
    "fetchOffset.retryIntervalMs": {"fetchOffset.retryIntervalMs": "7"},
    "valueFormat": {"valueFormat": "string"},
    "valueSchema": {"valueSchema": "a INT", "valueFormat": "json"},
    "valueMessage": {"valueMessage": "M", "valueFormat": "string"},
    "keyFormat": {"keyFormat": "string"},
    "keySchema": {"keySchema": "a INT", "keyFormat": "json"},
    "keyMessage": {"keyMessage": "M", "keyFormat": "string"},
    "schemaIdPrefix": {"schemaIdPrefix": "never", "valueFormat": "json"},
    "mode": {"mode": "failfast", "valueFormat": "string"},
    "topic": {"topic": "t"},
    "delivery": {"delivery": "exactly_once"},
    "sinkId": {"sinkId": "s"},
    "txnAppId": {"txnAppId": "a", "txnVersion": "7"},
    "txnVersion": {"txnAppId": "a", "txnVersion": "7"},
    "txnConflict": {"txnConflict": "fail", "txnAppId": "a", "txnVersion": "7"},
}
"""A value of each option that is not its default, with the options that it needs."""
EVERYWHERE = ("kafka.bootstrap.servers", "kafka.sasl.token.mechanism")
SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")


def make(use: Use, **given: str) -> object:
    """What Spark asks the source for."""
    source = SparklogSource({**SERVERS, **given})
    match use:
        case Use.BATCH_READ:
            return source.reader(OFFSETS)
        case Use.STREAM_READ:
            return source.streamReader(OFFSETS)
        case Use.BATCH_WRITE:
            return source.writer(ROUTED, False)
    return source.streamWriter(ROUTED, False)


def outcome(use: Use, **given: str) -> str:
    """The refusal, else the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            make(use, **given)
        except SettingsError as refused:
            return str(refused)
    return "; ".join(str(one.message) for one in caught)


@pytest.mark.parametrize("use", Use)
def test_an_option_without_effect_is_refused_or_warned_of_by_name(use: Use) -> None:
    for definition in definitions():
        if definition.name in EVERYWHERE or use in definition.uses.where:
            continue
        if use in READS.where and definition.name == "topic":
            continue  # a topic to read and one to write to make it a table for both
        given = {definition.name: SAMPLES[definition.name][definition.name]}
        told = outcome(use, **base(use, definition), **given)
        assert f"option {definition.name!r} " in told
        assert f" is for {definition.uses.name}" in told


@pytest.mark.parametrize("use", Use)
def test_an_option_with_an_effect_is_not_warned_of(use: Use) -> None:
    for definition in definitions():
        if definition.name not in EVERYWHERE and use in definition.uses.where:
            told = outcome(use, **base(use, definition), **SAMPLES[definition.name])
            assert f"option {definition.name!r} has no effect" not in told
            assert f"option {definition.name!r} is for" not in told


def base(use: Use, definition: Definition) -> dict[str, str]:
    """What every use needs, unless the option is that."""
    if use is Use.BATCH_WRITE and definition.name == "sinkId":
        return {"txnAppId": "a", "txnVersion": "7"}
    return {"subscribe": "t"} if use in READS.where and definition.name not in SUBSCRIPTIONS else {}


@pytest.mark.parametrize(
    ("use", "given", "told"),
    [
        (
            Use.BATCH_WRITE,
            {"valueFormat": "json"},
            "option 'valueFormat' is for reads; a write takes keys and values as they are: encode them "
            "first, as to_json and to_avro do",
        ),
        (
            Use.STREAM_READ,
            {"subscribe": "t", "endingTimestamp": "5"},
            "option 'endingTimestamp' is for batch reads; a stream reads new records by itself; one that "
            "ends has .trigger(availableNow=True)",
        ),
        (
            Use.STREAM_WRITE,
            {"txnAppId": "a", "txnVersion": "1"},
            "option 'txnAppId' is for batch writes; a stream counts its own batches; foreachBatch passes "
            "their numbers",
        ),
        (
            Use.BATCH_READ,
            {"subscribe": "t", "maxOffsetsPerTrigger": "1"},
            "option 'maxOffsetsPerTrigger' has no effect in a batch read: it is for streaming reads",
        ),
        (
            Use.STREAM_READ,
            {"subscribe": "t", "maxTriggerDelay": "1m"},
            "option 'maxTriggerDelay' has no effect without minOffsetsPerTrigger",
        ),
        (
            Use.BATCH_READ,
            {"subscribe": "t", "minPartitions": "4", "lateBinding": "true"},
            "option 'minPartitions' has no effect with lateBinding, where each partition is one task",
        ),
        (
            Use.STREAM_WRITE,
            {"sinkId": "s", "delivery": "at_least_once"},
            "option 'sinkId' has no effect in a write whose delivery is at_least_once",
        ),
        (
            Use.BATCH_WRITE,
            {"sinkId": "s"},
            "option 'sinkId' has no effect without txnAppId",
        ),
        (
            Use.STREAM_READ,
            {"subscribe": "t", "checkpointLocation": "/ck"},
            "option 'checkpointLocation' has no effect in a streaming read: it is for streaming writes",
        ),
    ],
)
def test_the_message_says_what_the_option_is_for(use: Use, given: dict[str, str], told: str) -> None:
    assert outcome(use, **given) == told


@pytest.mark.parametrize("use", [Use.BATCH_READ, Use.BATCH_WRITE])
def test_the_options_of_a_table_for_both_directions_cause_no_warning(use: Use) -> None:
    given = {"subscribe": "t", "startingOffsets": "earliest", "topic": "t", "delivery": "exactly_once"}
    assert outcome(use, **given) == ""


@pytest.mark.parametrize(
    ("use", "name", "value"),
    [
        (Use.BATCH_WRITE, "kafka.linger.ms", "7"),
        (Use.STREAM_WRITE, "kafka.batch.size", "7"),
        (Use.STREAM_WRITE, "kafka.isolation.level", "read_committed"),
        (Use.BATCH_READ, "kafka.compression.type", "zstd"),
        (Use.STREAM_READ, "kafka.max.poll.records", "7"),
    ],
)
def test_a_setting_of_the_client_without_effect_is_warned_of(use: Use, name: str, value: str) -> None:
    given = {"subscribe": "t"} if use in READS.where else {}
    assert outcome(use, **given, **{name: value}) == f"option {name!r} has no effect in {use.value}"


# -- what the readers and writers use ------------------------------------------------------------------------

AFTER_A_FAILURE = {"data_loss", "fetch_retries", "fetch_retry_ms"}
"""Used where records are lost or a leader reports an older end."""
WITH_A_CODEC = {"compression_gzip_level", "compression_lz4_level", "compression_zstd_level"}
OF_THE_DECISIONS = {"fetch_max_wait_ms", "client_rack"}
"""Used by a write that reads the decisions of a partition in which other sinks have some."""
OF_THE_CLIENT = {"bootstrap_servers"}
"""`client` has it, too."""


def watched(servers: str, given: dict[str, str]) -> tuple[Options, set[str], set[str]]:
    """Options, and the names of the options and of the client's settings that are used from then on.

    Each call has sets of its own: a client of an earlier test may still be ending in another thread.
    """
    used: set[str] = set()
    used_by_client: set[str] = set()

    class Watched(Options):
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            used.add(name)
            return super().__getattribute__(name)

    class WatchedSettings(ClientSettings, frozen=True):
        def __getattribute__(self, name: str) -> Any:
            used_by_client.add(name)
            return super().__getattribute__(name)

    settings = WatchedSettings(bootstrap_servers=(servers,))
    options = replace(Watched.parse({"kafka.bootstrap.servers": servers, **given}), client=settings)
    used.clear()
    used_by_client.clear()
    return options, used, used_by_client


@pytest.fixture
def _closed() -> Iterator[None]:
    yield
    close_idle()


@pytest.mark.usefixtures("_closed")
@pytest.mark.parametrize("use", Use)
def test_the_readers_and_writers_use_the_options_that_are_said_to_have_an_effect(
    servers: str, make_topic: MakeTopic, sink: str, use: Use
) -> None:
    topic = make_topic()
    write_batch(Options.parse({"kafka.bootstrap.servers": servers, "topic": topic}))
    given = {
        # Rows that are read early are stored with a pickle of the reader, which has all of its options.
        Use.STREAM_READ: {"subscribe": topic, "startingOffsets": "earliest", "earlyRows": "off"},
        Use.BATCH_READ: {"subscribe": topic, "startingOffsets": "earliest"},
        Use.BATCH_WRITE: {"topic": topic, "txnAppId": sink, "txnVersion": "1"},
        Use.STREAM_WRITE: {"topic": topic},
    }[use]
    options, used, used_by_client = watched(servers, given)
    RUNS[use](options)
    table = {f.name: f.metadata["definition"] for f in fields(Options) if "definition" in f.metadata}
    said = {name for name, definition in table.items() if use in definition.uses.where}
    assert used & table.keys() <= said | OF_THE_CLIENT
    assert said - used <= AFTER_A_FAILURE | OF_THE_CLIENT
    of_some = set(ClientSettings.__struct_fields__) - AdminOptions.__annotations__.keys()
    of_use = OF_READS if use in READS.where else OF_WRITES
    assert used_by_client & of_some <= of_use | (OF_THE_DECISIONS if use is Use.BATCH_WRITE else set())
    if use is not Use.STREAM_WRITE:  # whose driver is all that runs here
        assert of_use - used_by_client <= WITH_A_CODEC


def read_batch(options: Options) -> None:
    reader = BatchReader(options, source_schema(options))
    for partition in reader.partitions():
        assert list(reader.read(partition))


def read_stream(options: Options) -> None:
    reader = stream_reader(options, source_schema(options))
    try:
        start = reader.initialOffset()
        reader.getDefaultReadLimit()
        reader.latestOffset(start, None)
        end = reader.latestOffset(start, None)  # only the second micro-batch may wait for more
        for partition in reader.partitions(start, end):
            assert list(reader.read(partition))
        reader.commit(end)
    finally:
        reader.stop()


def write_batch(options: Options) -> None:
    writer = BatchSink(options_of_writer(options), VALUES)
    writer.commit([writer.write(iter([pa.RecordBatch.from_pydict({"value": [b"x"]})]))])


def write_stream(options: Options) -> None:
    StreamSink(options_of_writer(options), VALUES).abort([None], NO_BATCH)


RUNS = {
    Use.BATCH_READ: read_batch,
    Use.STREAM_READ: read_stream,
    Use.BATCH_WRITE: write_batch,
    Use.STREAM_WRITE: write_stream,
}
