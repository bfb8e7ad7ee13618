"""The options of the data source: what is understood, and what a user is told who gets one wrong. No Spark
here.
"""

import inspect
import warnings

import pytest

from sparklog.errors import SettingsError
from sparklog.model import TopicPartition
from sparklog.spark.foreign_keys import refused, without_effect
from sparklog.spark.option_values import Use, WhenLost
from sparklog.spark.options import Options, definitions
from sparklog.spark.positions import LATEST, AtTime, ByOffset, ByTimestamp
from sparklog.spark.uses import checked

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def refusal(**options: str) -> str:
    with pytest.raises(SettingsError) as caught:
        Options.parse({**SERVERS, **options})
    return str(caught.value)


def test_every_option_is_understood_whatever_its_case() -> None:
    given = {
        "SUBSCRIBE": "b, a,b",
        "startingoffsets": '{"a":{"0":-2,"1":7}}',
        "endingOffsets": "latest",
        "maxoffsetspertrigger": "1000",
        "minpartitions": "8",
        "includeheaders": "TRUE",
        "failondataloss": "false",
        "topic": "out",
        "Kafka.Linger.Ms": "5",
    }
    options = Options.parse({**SERVERS, **given})
    assert options.bootstrap_servers == "127.0.0.1:9092"
    assert options.subscribe == ("b", "a")
    assert options.starting_offsets == ByOffset({TopicPartition("a", 0): -2, TopicPartition("a", 1): 7})
    assert options.ending_offsets == LATEST
    assert (options.max_offsets_per_trigger, options.min_partitions) == (1000, 8)
    assert (options.include_headers, options.data_loss, options.topic) == (True, WhenLost.WARN, "out")
    assert (options.client.linger_ms, options.client.bootstrap_servers) == (5, ("127.0.0.1:9092",))


def test_every_option_has_a_sentence_and_a_name_of_its_own() -> None:
    names = [name.lower() for d in definitions() for name in (d.name, *d.aliases)]
    assert len(names) == len(set(names))
    assert all(d.doc for d in definitions())


def test_a_misspelt_option_is_refused_with_the_nearest_one() -> None:
    assert (
        refusal(startingofsets="earliest")
        == "unknown option 'startingofsets'; did you mean 'startingOffsets'?"
    )


@pytest.mark.parametrize("name", ["sparklog.zzz", "kafkaConsumer.zzz", "fetchOffset.zzz"])
def test_an_unknown_option_with_a_prefix_of_ours_or_of_kafkas_is_refused_with_all_that_exist(
    name: str,
) -> None:
    assert "known are kafka.bootstrap.servers, subscribe," in refusal(**{name: "1"})


@pytest.mark.parametrize(
    "name",
    ["vendor.query.tag", "__platform_token", "pipelineid", "badrecordspath", "rescuedDataColumn", "user"],
)
def test_a_key_that_a_platform_adds_warns_once_and_fails_nothing(name: str) -> None:
    with pytest.warns(UserWarning, match=f"option '{name}' is not one of sparklog and has no effect"):
        Options.parse({**SERVERS, name: "x"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Options.parse({**SERVERS, name: "x"})


DELTA = """
    cloudFiles.format cloudFiles.maxBytesPerTrigger cloudFiles.maxFilesPerTrigger
    cloudFiles.schemaLocation dataChange endingTimestamp endingVersion excludeRegex failOnDataLoss
    ignoreChanges ignoreDeletes maxBytesPerTrigger maxFilesPerTrigger maxRecordsPerFile mergeSchema
    optimizeWrite overwriteSchema partitionOverwriteMode readChangeFeed replaceWhere responseFormat
    schemaTrackingLocation skipChangeCommits startingTimestamp startingVersion timestampAsOf txnAppId
    txnVersion userMetadata versionAsOf
"""


def options_of_sparks_formats() -> set[str]:
    """The parameters of Spark's readers and writers of each format that are options of the format."""
    readwriter = pytest.importorskip("pyspark.sql.readwriter", reason="needs pyspark")
    found: set[str] = set()
    for kind in (readwriter.DataFrameReader, readwriter.DataFrameWriter):
        for name in ("csv", "jdbc", "json", "orc", "parquet", "text", "xml"):
            if hasattr(kind, name):
                found |= inspect.signature(getattr(kind, name)).parameters.keys()
    return found - {"self", "path", "paths", "schema", "mode", "partitionBy", "properties"}


def test_an_option_of_delta_or_of_another_format_is_no_misspelt_one_of_ours() -> None:
    ours = {definition.name for definition in definitions()}
    theirs = options_of_sparks_formats() | set(DELTA.split())
    assert {"mergeSchema", "inferSchema", "maxFilesPerTrigger", "numPartitions"} <= theirs
    for name in sorted(theirs - ours):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert Options.parse({**SERVERS, name: "1"}) == Options.parse(SERVERS), name


def test_tls_options_reach_the_client_without_their_secret_in_a_text() -> None:
    given = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.ssl.keystore.location": "/etc/client.p12",
        "kafka.ssl.keystore.password": "hunter2",
    }
    options = Options.parse({**SERVERS, **given})
    assert options.client.tls.truststore_location == "/etc/ca.pem"
    assert options.client.tls.keystore_password == "hunter2"
    assert "hunter2" not in repr(options)


def test_sasl_options_reach_the_client_as_spark_users_write_them() -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="hunter2";'
    given = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": jaas,
    }
    options = Options.parse({**SERVERS, **given})
    assert options.client.sasl_jaas_config == jaas
    assert "hunter2" not in repr(options)


def test_an_invalid_login_is_refused_without_its_secret() -> None:
    given = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    told = refusal(**given, **{"kafka.sasl.jaas.config": 'X required password="hunter2";'})
    assert "among the kafka.* options" in told
    assert "hunter2" not in told


def test_a_partitioner_is_refused_and_the_column_named() -> None:
    for name in ("kafka.partitioner.class", "kafka.partitioner.ignore.keys"):
        assert refusal(**{name: "x"}) == (
            f"option {name!r} cannot be set: it would not affect partitions: write a column `partition`"
        )


@pytest.mark.parametrize(
    "name",
    [
        "kafka.auto.offset.reset",
        "kafka.key.serializer",
        "kafka.value.serializer",
        "kafka.key.deserializer",
        "kafka.value.deserializer",
        "kafka.enable.auto.commit",
        "kafka.interceptor.classes",
    ],
)
def test_settings_that_would_change_what_a_query_reads_are_refused_with_the_reason(name: str) -> None:
    message = refusal(**{name: "x"})
    assert message.startswith(f"option {name!r} cannot be set: ")


def test_of_three_ways_to_start_and_end_the_strongest_wins() -> None:
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":5}', "startingTimestamp": "7"}
    assert Options.parse({**SERVERS, **given}).start == AtTime(7)
    assert Options.parse({**SERVERS, **given}).start_option == "startingTimestamp"
    del given["startingTimestamp"]
    assert Options.parse({**SERVERS, **given}).start == ByTimestamp(topics={"t": 5})
    ends = {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"t":{"0":5}}', "endingTimestamp": "9"}
    assert Options.parse({**SERVERS, **ends}).end == AtTime(9)
    del ends["endingTimestamp"]
    assert Options.parse({**SERVERS, **ends}).end_option == "endingOffsetsByTimestamp"


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("true", WhenLost.FAIL),
        ("false", WhenLost.WARN),
        ("WARN", WhenLost.WARN),
        ("skip", WhenLost.SKIP),
        ("fail", WhenLost.FAIL),
    ],
)
def test_data_loss_fails_warns_or_is_skipped(value: str, meant: WhenLost) -> None:
    assert Options.parse({**SERVERS, "failOnDataLoss": value}).data_loss is meant


def test_keys_that_spark_adds_pass() -> None:
    assert Options.parse({**SERVERS, "path": "x", "queryName": "q"}) == Options.parse(SERVERS)


def test_an_option_of_the_connector_without_effect_warns_with_the_reason() -> None:
    told = r"'kafkaConsumer.pollTimeoutMs' has no effect: `kafka.default.api.timeout.ms` limits"
    with pytest.warns(UserWarning, match=told):
        options = Options.parse({**SERVERS, "kafkaconsumer.polltimeoutms": "1"})
    assert options == Options.parse(SERVERS)


def test_where_the_checkpoint_is_names_a_sink() -> None:
    assert Options.parse({**SERVERS, "checkpointLocation": "y"}).checkpoint == "y"


def test_a_client_setting_without_effect_warns_and_an_unknown_one_is_refused() -> None:
    with pytest.warns(UserWarning, match=r"group\.id is known, but has no effect"):
        Options.parse({**SERVERS, "kafka.group.id": "g"})
    assert refusal(**{"kafka.lnger.ms": "1"}) == (
        "among the kafka.* options: unknown setting 'lnger.ms' (lnger_ms); did you mean linger.ms?"
    )


def test_one_meaning_given_twice_is_refused() -> None:
    assert (
        refusal(bootstrapservers="a:1")
        == "options 'kafka.bootstrap.servers' and 'bootstrapservers' are the same option: set one"
    )


def test_the_brokers_must_be_named() -> None:
    with pytest.raises(SettingsError, match=r"'kafka\.bootstrap\.servers' is missing"):
        Options.parse({"subscribe": "t"})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "maxoffsetspertrigger",
            "0",
            "option 'maxOffsetsPerTrigger' has the value '0': must be a whole number from 1",
        ),
        ("minpartitions", "-1", "must be a whole number from 1 to 2147483647"),
        ("minpartitions", "9" * 5000, "must be a whole number"),
        ("includeheaders", "yes", "must be true or false"),
        ("subscribe", " , ", "must name at least one topic"),
        ("subscribepattern", "(", "must be a regular expression"),
        ("assign", '{"t":0}', 'must be JSON such as {"topic":[0,1]}'),
        ("assign", "[]", 'must be JSON such as {"topic":[0,1]}'),
        ("assign", '{"t":[-1]}', "-1 is not a partition number of topic 't'"),
        ("assign", '{"t":[true]}', "True is not a partition number"),
        ("startingoffsets", "newest", "must be earliest, latest, latest-1000, -10m"),
        ("startingoffsets", '{"t":{"0":-3}}', "-3 is no offset of t-0; -2 means earliest, -1 latest"),
        ("startingoffsets", '{"t":{"0":1.5}}', "1.5 is no offset of t-0"),
        ("startingoffsets", '{"t":', "or JSON such as"),
        ("startingoffsets", '{"t":[1]}', "must be earliest, latest, latest-1000"),
        ("startingoffsets", "2026-13-01T00:00:00Z", "no such day"),
        ("startingtimestamp", "soon", "milliseconds since 1970"),
        ("endingtimestamp", "-5", "-5 is no timestamp"),
        ("startingoffsetsbytimestamp", '{"t":{"0":-3}}', "-3 is no timestamp for t-0"),
        ("startingoffsetsbytimestampstrategy", "guess", "must be error or latest"),
        ("failondataloss", "maybe", "must be true, false, warn or skip"),
        ("maxtriggerdelay", "a while", "must be a length of time such as 500ms"),
        ("maxrecordsperpartition", "0", "must be a whole number from 1"),
        ("maxbytespertrigger", "1k", "must be a whole number from 1"),
        ("fetchoffset.numretries", "-1", "must be a whole number from 0"),
        ("topic", " ", "must not be empty"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_name_value_and_reason(
    name: str, value: str, said: str
) -> None:
    message = refusal(**{name: value})
    assert said in message
    assert repr(value) in message


def refusal_in(use: Use, **given: str) -> str:
    with pytest.raises(SettingsError) as caught:
        checked(Options.parse({**SERVERS, **given}), use)
    return str(caught.value)


def test_exactly_one_way_to_choose_topics_is_wanted() -> None:
    assert "nothing to read: set one of" in refusal_in(Use.BATCH_READ)
    assert "'subscribe' and 'assign' exclude each other" in refusal(subscribe="t", assign='{"t":[0]}')


@pytest.mark.parametrize("position", ["latest", '{"t":{"0":-1}}'])
def test_a_batch_cannot_start_at_latest(position: str) -> None:
    assert "cannot be latest" in refusal_in(Use.BATCH_READ, subscribe="t", startingOffsets=position)


@pytest.mark.parametrize("position", ["earliest", '{"t":{"0":-2}}'])
def test_a_batch_cannot_end_at_earliest(position: str) -> None:
    assert "cannot be earliest" in refusal(subscribe="t", endingOffsets=position)


def test_the_least_of_a_trigger_cannot_be_above_its_most() -> None:
    told = refusal(subscribe="t", minOffsetsPerTrigger="9", maxOffsetsPerTrigger="8")
    assert "'minOffsetsPerTrigger' (9) is higher than 'maxOffsetsPerTrigger' (8)" in told


def test_late_binding_is_for_batches_that_end_at_latest() -> None:
    told = refusal(subscribe="t", lateBinding="true", endingTimestamp="5")
    assert "'lateBinding' needs a read that ends at latest" in told
    options = Options.parse({**SERVERS, "subscribe": "t", "lateBinding": "true"})
    assert checked(options, Use.BATCH_READ).late_binding


def test_what_is_refused_or_does_nothing_is_told_with_a_reason() -> None:
    assert all(reason for reason in (*refused().values(), *without_effect().values()))
