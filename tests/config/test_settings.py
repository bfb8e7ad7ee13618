"""Settings that bind each other: listeners, directories, defaults of topics."""

import pytest

from sparklog.errors import SettingsError
from sparklog_server.config.client_metrics import CLIENT_METRICS_KEYS
from sparklog_server.config.describe import ConfigRow, Source, describe_broker, describe_topic
from sparklog_server.config.keys import Key, Kind
from sparklog_server.config.layers import Layers
from sparklog_server.config.settings import BrokerSettings, broker_keys, key_of
from sparklog_server.config.tls_settings import tls_of
from sparklog_server.config.topic_settings import TopicSettings, topic_keys, topic_keys_of_broker
from sparklog_server.config.without_effect import KEYS


def of(**given: str) -> BrokerSettings:
    return BrokerSettings.of({name.replace("_", "."): value for name, value in given.items()})


def test_an_open_listener_needs_a_name_that_clients_can_use() -> None:
    with pytest.raises(
        SettingsError, match=r"set advertised\.listeners=PLAINTEXT://<a name clients can resolve>:9092"
    ):
        BrokerSettings.of({"listeners": "PLAINTEXT://0.0.0.0:9092"}, is_insecure_allowed=True)
    given = {
        "listeners": "PLAINTEXT://0.0.0.0:9092",
        "advertised.listeners": "PLAINTEXT://kafka.example:9092",
    }
    assert BrokerSettings.of(given, is_insecure_allowed=True).advertised("PLAINTEXT").host == "kafka.example"


@pytest.mark.parametrize("host", ["10.0.0.1", "example.org", "[::]", "[2001:db8::1]", ""])
def test_nothing_but_loopback_is_open_without_saying_so(host: str) -> None:
    given = {
        "listeners": f"PLAINTEXT://{host}:9092",
        "advertised.listeners": "PLAINTEXT://kafka.example:9092",
    }
    with pytest.raises(SettingsError, match="--insecure"):
        BrokerSettings.of(given)
    assert BrokerSettings.of(given, is_insecure_allowed=True).listeners[0].port == 9092


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_loopback_needs_no_leave(host: str) -> None:
    assert of(listeners=f"PLAINTEXT://{host}:9092").listeners[0].is_loopback


@pytest.mark.parametrize(
    ("listeners", "said"),
    [
        ("127.0.0.1:9092", "NAME://HOST:PORT"),
        ("PLAINTEXT://127.0.0.1", "NAME://HOST:PORT"),
        ("PLAINTEXT://127.0.0.1:99999", "0 to 65535"),
        ("PLAINTEXT://::1:9092", "brackets"),
        ("INTERNAL://127.0.0.1:9092", "INTERNAL is neither a protocol nor in listener.security.protocol.map"),
        ("PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2", "appears twice"),
        ("PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:1", "same port"),
        ("", "no listener is left"),
    ],
)
def test_a_listener_that_makes_no_sense_is_refused(listeners: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        of(listeners=listeners)


def test_each_listener_is_advertised_under_its_own_name() -> None:
    settings = BrokerSettings.of(
        {
            "listeners": "IN://127.0.0.1:1,OUT://127.0.0.1:2",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "advertised.listeners": "OUT://localhost:3",
            "inter.broker.listener.name": "IN",
        }
    )
    assert str(settings.advertised("IN")) == "IN://127.0.0.1:1"
    assert str(settings.advertised("OUT")) == "OUT://localhost:3"
    assert settings.inter_broker_listener_name == "IN"
    with pytest.raises(SettingsError, match=r"no listener named OUT"):
        of(
            **{
                "advertised_listeners": "OUT://localhost:3",
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT",
            }
        )


def test_a_port_the_system_chose_takes_the_place_of_zero() -> None:
    settings = of(listeners="PLAINTEXT://127.0.0.1:0").with_bound_ports({"PLAINTEXT": 40001})
    assert str(settings.listeners[0]) == "PLAINTEXT://127.0.0.1:40001"
    assert str(settings.advertised("PLAINTEXT")) == "PLAINTEXT://127.0.0.1:40001"
    fixed = of(listeners="PLAINTEXT://127.0.0.1:9999").with_bound_ports({"PLAINTEXT": 1})
    assert fixed.listeners[0].port == 9999


def test_directories_are_those_of_log_dirs_or_else_of_log_dir() -> None:
    assert of(log_dir="/a").log_dirs == ("/a",)
    assert of(log_dir="/a", log_dirs="/b, /c").log_dirs == ("/b", "/c")
    assert of(log_dirs="/b,/c").metadata_log_dir == "/b"
    assert BrokerSettings.of({"metadata.log.dir": "/m"}).metadata_log_dir == "/m"
    for wrong in ("", "/a,,/b"):
        with pytest.raises(SettingsError, match=r"log\.dirs"):
            of(log_dirs=wrong)


def test_the_finest_unit_given_wins_and_negative_hours_are_for_ever() -> None:
    assert of(log_retention_hours="2").topics.retention_ms == 7_200_000
    assert of(log_retention_hours="2", log_retention_minutes="1").topics.retention_ms == 60_000
    assert of(log_retention_hours="2", log_retention_ms="5").topics.retention_ms == 5
    assert of(log_retention_hours="-1").topics.retention_ms == -1
    assert of(log_roll_hours="1").topics.segment_ms == 3_600_000


def test_a_topic_overrides_what_the_broker_supplies() -> None:
    defaults = BrokerSettings.of({"log.segment.bytes": "2097152", "sparklog.ack.flush": "never"}).topics
    topic = TopicSettings.of(defaults, {"segment.bytes": "1048576", "cleanup.policy": "compact, delete"})
    assert (topic.segment_bytes, topic.sparklog_ack_flush, topic.cleanup_policy) == (
        1_048_576,
        "never",
        ("compact", "delete"),
    )
    assert TopicSettings.of(defaults, {}) is defaults
    assert TopicSettings.of(defaults, {"internal.segment.bytes": "100"}).segment_bytes_effective == 100


def lists() -> dict[str, Key]:
    """The keys of brokers, client metrics and topics that are lists, but for those of throttled replicas,
    whose entries Kafka takes as they are.
    """
    names = (*broker_keys(), *topic_keys_of_broker(), *KEYS)
    keys = [
        *(key_of(name) for name in names),
        *CLIENT_METRICS_KEYS.values(),
        *(key for _, key in topic_keys().values()),
    ]
    return {key.name: key for key in keys if key.kind is Kind.LIST and not key.name.endswith("replicas")}


@pytest.mark.parametrize("name", sorted(lists()))
def test_an_entry_that_a_list_repeats_counts_once_and_none_is_empty(name: str) -> None:
    key = lists()[name]
    entry = key.choices[0] if key.choices else "x"
    assert key.parse(f"{entry}, {entry}") == (entry,)
    for text in (f"{entry},", f"{entry},,{entry}", ","):
        with pytest.raises(SettingsError) as refused:
            key.parse(text)
        said = f"Invalid value {text} for configuration {name}: values must not be empty"
        assert str(refused.value) == said


def test_the_map_of_listeners_is_refused_with_its_empty_entry() -> None:
    with pytest.raises(SettingsError, match="Invalid value IN:PLAINTEXT, for configuration"):
        BrokerSettings.of({"listener.security.protocol.map": "IN:PLAINTEXT,"})


def row(rows: list[ConfigRow], name: str) -> ConfigRow:
    return next(found for found in rows if found.name == name)


def test_a_topics_rows_tell_where_each_value_comes_from() -> None:
    settings = of(log_retention_hours="2", num_partitions="3")
    rows = describe_topic(
        Layers.of(settings, cluster={"log.segment.bytes": "2097152"}), {"max.message.bytes": "5000"}
    )
    retention = row(rows, "retention.ms")
    # Kafka tells only of places from the first on that has the key's own name at the broker,
    # log.retention.ms.
    assert (retention.value, retention.source, retention.synonyms) == ("7200000", Source.DEFAULT, ())
    size = row(rows, "max.message.bytes")
    assert (size.value, size.source, size.is_default) == ("5000", Source.TOPIC, False)
    assert [synonym.name for synonym in size.synonyms] == ["max.message.bytes", "message.max.bytes"]
    assert row(rows, "cleanup.policy").source is Source.DEFAULT
    segment = row(rows, "segment.bytes")
    assert (segment.value, segment.source) == ("2097152", Source.DYNAMIC_CLUSTER)
    assert [found.name for found in rows] == sorted(found.name for found in rows)
    assert not any(found.name.startswith("internal.") for found in rows)


def test_a_brokers_rows_hide_secrets_and_say_what_may_change() -> None:
    settings = BrokerSettings.of(
        {"ssl.key.password": "secret", "listeners": "PLAINTEXT://127.0.0.1:0"}
    ).with_bound_ports({"PLAINTEXT": 40001})
    rows = describe_broker(Layers.of(settings))
    secret = row(rows, "ssl.key.password")
    assert (secret.value, secret.is_sensitive, secret.source) == (None, True, Source.STATIC_BROKER)
    assert all(value is None for _, value, _ in secret.synonyms)
    assert row(rows, "listeners").value == "PLAINTEXT://127.0.0.1:40001"
    assert row(rows, "node.id").is_read_only
    assert not row(rows, "max.connections").is_read_only
    assert row(rows, "log.retention.hours").value == "168"
    assert row(rows, "log.retention.ms").value is None
    assert len(rows) == len({found.name for found in rows}) > 340


def secure(**more: str) -> BrokerSettings:
    """A broker that other machines reach."""
    given = {
        "listeners": "SSL://0.0.0.0:9093",
        "advertised.listeners": "SSL://kafka1:9093",
        "ssl.keystore.location": "/key.pem",
        "ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }
    return BrokerSettings.of(given | {name.replace("_", "."): value for name, value in more.items()})


def test_an_address_that_others_reach_is_accepted_with_encryption_authentication_and_an_authorizer() -> None:
    assert secure().listeners[0].host == "0.0.0.0"
    for more, said in (
        ({"ssl_client_auth": "requested"}, "ssl.client.auth=required"),
        ({"authorizer_class_name": ""}, "set authorizer.class.name="),
        ({"listener_security_protocol_map": "SSL:PLAINTEXT"}, "use SSL or SASL_SSL"),
    ):
        with pytest.raises(SettingsError, match=said):
            secure(**more)


def test_a_key_with_a_listeners_prefix_is_that_listeners_own() -> None:
    settings = of(
        listeners="SSL://127.0.0.1:1,NODES://127.0.0.1:2",
        **{
            "listener.security.protocol.map": "SSL:SSL,NODES:SSL",
            "ssl.keystore.location": "/key.pem",
            "listener.name.nodes.ssl.keystore.location": "/nodes.pem",
            "listener.name.nodes.ssl.client.auth": "required",
        },
    )
    found = {name: tls_of(settings, name) for name in ("SSL", "NODES")}
    assert {name: tls.ssl_keystore_location for name, tls in found.items()} == {
        "SSL": "/key.pem",
        "NODES": "/nodes.pem",
    }
    assert [tls.ssl_client_auth for tls in found.values()] == ["none", "required"]


def test_a_controller_is_plain_by_default_only_where_no_listener_is_secure() -> None:
    with pytest.raises(SettingsError, match=r"CONTROLLER is neither a protocol nor in"):
        of(
            listeners="SSL://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
            **{"controller.listener.names": "CONTROLLER", "ssl.keystore.location": "/key.pem"},
        )


def test_no_secret_is_in_the_text_of_the_settings() -> None:
    settings = of(
        listeners="SSL://127.0.0.1:1", **{"ssl.keystore.location": "/k", "ssl.key.password": "hush"}
    )
    assert "hush" not in repr(settings)
    assert "hush" not in repr(settings.tls)
