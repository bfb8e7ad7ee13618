"""The driver of a query fetches a delegation token, and its tasks get only that."""

import pickle
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from sparklog.client.admin.calls import Caller
from sparklog.client.admin.credentials import DelegationToken
from sparklog.client.failures import AuthenticationFailed
from sparklog.client.producer.producer import Producer
from sparklog.client.sasl.jaas import parse_jaas
from sparklog.client.settings import ClientSettings
from sparklog.errors import BrokerError, ErrorCode, SettingsError
from sparklog.local_broker import EmbeddedBroker, embedded
from sparklog.spark.client_options import TokenMechanism
from sparklog.spark.options import Options
from sparklog.spark.source import SparklogSource
from sparklog.spark.stream_reader import StreamReader
from sparklog.spark.task_clients import TaskTokens, TokenPartition
from sparklog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

pytestmark = pytest.mark.spark

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = "hunter2"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    users = f'{PLAIN} required username="n" password="n" user_n="n" user_alice="{PASSWORD}";'
    with embedded(
        listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-512",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        listener_name_plaintext_plain_sasl_jaas_config=users,
        delegation_token_secret_key="secret",
        delegation_token_expiry_time_ms=3_600_000,
    ) as one:
        with Producer(**settings_of(one)) as producer:
            producer.send("t", value=b"a").result(20)
        yield one


def settings_of(broker: EmbeddedBroker) -> Any:
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": PASSWORD,
    }


def options_of(broker: EmbeddedBroker, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{PLAIN} required username="alice" password="{PASSWORD}";',
        "kafka.sasl.token.mechanism": "SCRAM-SHA-512",
        **more,
    }


def shipped(one: object) -> Any:
    """What an executor gets; it holds no password."""
    pickled = cloudpickle.dumps(one)
    assert PASSWORD.encode() not in pickled
    assert b"PlainLoginModule" not in pickled
    return pickle.loads(pickled)


def expire(broker: EmbeddedBroker, partition: InputPartition) -> None:
    """End the token of a task."""
    assert isinstance(partition, TokenPartition)
    module = parse_jaas(partition.client.sasl_jaas_config or "", "")
    caller = Caller(ClientSettings.for_role("admin", settings_of(broker)))
    request = ExpireDelegationTokenRequest(b64decode(module.options["password"]), -1)
    told = caller.call(request, ExpireDelegationTokenResponse, caller.deadline())
    caller.network.close()
    assert told.error_code == 0


def rows(batches: Any) -> list[bytes]:
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.mark.parametrize("late", ["true", "false"])
def test_a_batch_reads_by_the_token_in_its_partitions(broker: EmbeddedBroker, late: str) -> None:
    source = SparklogSource(options_of(broker, subscribe="t", lateBinding=late))
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    assert "ScramLoginModule" not in repr(partition)
    assert rows(shipped(reader).read(shipped(partition))) == [b"a"]


def test_a_stream_reads_by_the_token_in_its_partitions(broker: EmbeddedBroker) -> None:
    source = SparklogSource(options_of(broker, subscribe="t", startingOffsets="earliest"))
    reader = source.streamReader(source.schema())
    assert isinstance(reader, StreamReader)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (partition,) = reader.partitions(start, end)
    assert rows(shipped(reader).read(shipped(partition))) == [b"a"]
    reader.stop()


@pytest.mark.parametrize(("lifetime_s", "kept_s"), [(1000, 500), (86_400, 600)])
def test_a_token_is_replaced_in_the_first_half_of_its_life(lifetime_s: int, kept_s: int) -> None:
    now_s = 10.0
    made = []

    def fetch(settings: ClientSettings) -> DelegationToken:
        made.append(settings.client_id)
        return DelegationToken(str(len(made)), b"mac", lifetime_s * 1000)

    tokens = TaskTokens(lambda: now_s, fetch)
    one, two = (ClientSettings(client_id=name, sasl_password=PASSWORD) for name in ("one", "two"))
    mechanism = TokenMechanism.SCRAM_SHA_256
    first = tokens.settings(one, mechanism)
    assert (first.sasl_mechanism, first.sasl_password, first.client_id) == ("SCRAM-SHA-256", None, "one")
    assert tokens.settings(two, mechanism).client_id == "two"
    now_s += kept_s - 1
    assert tokens.settings(one, mechanism) == first
    now_s += 1
    assert tokens.settings(one, mechanism) != first
    assert made == ["one", "two", "one"]


def test_a_writer_holds_the_token_alone(broker: EmbeddedBroker, spark: SparkSession) -> None:
    source = SparklogSource(options_of(broker, topic="w"))
    for writer in (
        source.writer(spark.createDataFrame([("a",)], "value string").schema, overwrite=False),
        source.streamWriter(spark.createDataFrame([("a",)], "value string").schema, overwrite=False),
    ):
        shipped(writer)


def test_spark_writes_and_reads_by_a_token(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    options = options_of(broker)
    frame = spark.createDataFrame([("b",), ("c",)], "value string")
    frame.write.format("sparklog").options(**options, topic="spark").mode("append").save()
    read = spark.read.format("sparklog").options(**options, subscribe="spark").load()
    assert sorted(bytes(row.value) for row in read.select("value").collect()) == [b"b", b"c"]
    copied = (
        spark.readStream.format("sparklog")
        .options(**options, subscribe="spark", startingOffsets="earliest", earlyRows="off")
        .load()
        .writeStream.format("sparklog")
        .options(**options, topic="copy", checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    copied.awaitTermination()
    read = spark.read.format("sparklog").options(**options, subscribe="copy").load()
    assert sorted(bytes(row.value) for row in read.select("value").collect()) == [b"b", b"c"]


def test_a_token_that_has_expired_fails_the_task(broker: EmbeddedBroker) -> None:
    source = SparklogSource(options_of(broker, subscribe="t") | {"kafka.client.id": "with its own token"})
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    expire(broker, partition)
    with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-512"):
        rows(shipped(reader).read(shipped(partition)))


def test_a_broker_without_tokens_is_told(tmp_path: Path) -> None:
    users = f'{PLAIN} required username="n" password="n" user_n="n" user_alice="{PASSWORD}";'
    with embedded(
        listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        listener_name_plaintext_plain_sasl_jaas_config=users,
    ) as one:
        with Producer(**settings_of(one)) as producer:
            producer.send("t", value=b"a").result(20)
        source = SparklogSource(options_of(one, subscribe="t"))
        with pytest.raises(BrokerError) as refused:
            source.reader(source.schema()).partitions()
        assert refused.value.code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_the_option_needs_a_listener_with_sasl() -> None:
    given = {"kafka.bootstrap.servers": "one:1", "subscribe": "t", "kafka.sasl.token.mechanism": "PLAIN"}
    with pytest.raises(SettingsError, match="must be one of scram-sha-256, scram-sha-512"):
        Options.parse(given)
    with pytest.raises(SettingsError, match=r"'kafka.sasl.token.mechanism' needs .*SASL_SSL"):
        Options.parse(given | {"kafka.sasl.token.mechanism": "SCRAM-SHA-256"})
