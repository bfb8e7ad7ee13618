"""Settings under Kafka's names: text in, types out, and errors that name the remedy."""

import warnings

import pytest

from sparklog.client import settings as module
from sparklog.client.settings import (
    WITHOUT_EFFECT,
    AdminOptions,
    ClientSettings,
    ConsumerOptions,
    ProducerOptions,
    address_of,
)
from sparklog.errors import SettingsError


def test_dotted_keys_with_text_become_typed_fields() -> None:
    parsed = ClientSettings.from_kafka(
        {"bootstrap.servers": "a:1, b:2", "linger.ms": "7", "check.crcs": "false", "acks": "-1"}
    )
    assert parsed.bootstrap_servers == ("a:1", "b:2")
    assert (parsed.linger_ms, parsed.check_crcs, parsed.required_acks) == (7, False, -1)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("linger.mss", "1", "did you mean linger.ms"),
        ("linger.ms", "soon", r"linger\.ms=soon: must be a whole number$"),
        ("linger.ms", "-1", "linger.ms=-1: must be a whole number >= 0"),
        ("fetch.min.bytes", "99999999999", "fetch.min.bytes"),
        ("acks", "3", "acks=3: must be one of all, -1, 0, 1"),
        ("bootstrap.servers", "nowhere:", "host:port"),
        ("bootstrap.servers", " , ", "empty"),
        ("security.protocol", "TLS", "security.protocol=TLS: must be one of PLAINTEXT, SSL"),
        ("compression.type", "brotli", "compression.type=brotli"),
        ("auto.offset.reset", "sometimes", "by_duration"),
        ("auto.offset.reset", "by_duration:1h", "P1DT12H"),
        ("group.id", "", "group.id is empty"),
        ("group.protocol", "streams", "group.protocol=streams: must be one of classic, consumer"),
        ("enable.auto.commit", "true", "needs a group.id"),
        ("enable.auto.commit", "often", "enable.auto.commit=often: must be true or false"),
    ],
)
def test_what_cannot_be_is_refused_with_key_and_reason(key: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        ClientSettings.from_kafka({key: value})


def test_keys_known_without_effect_warn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_warned", set())
    with pytest.warns(UserWarning, match="metric.reporters is known"):
        ClientSettings.from_kafka({"metric.reporters": "x"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ClientSettings.from_kafka({"metric.reporters": "x"})


def test_every_field_belongs_to_a_role_and_every_option_is_a_field() -> None:
    options = {
        *ProducerOptions.__annotations__,
        *ConsumerOptions.__annotations__,
        *AdminOptions.__annotations__,
    }
    assert options == set(ClientSettings.__struct_fields__)


def test_no_key_has_an_effect_and_none() -> None:
    assert {name.replace("_", ".") for name in ClientSettings.__struct_fields__} & WITHOUT_EFFECT == set()


def test_a_setting_of_another_role_is_refused() -> None:
    with pytest.raises(SettingsError, match="linger_ms is not a setting of a consumer"):
        ClientSettings.for_role("consumer", {"linger_ms": 5})


def test_idempotence_asked_for_needs_acks_of_all() -> None:
    with pytest.raises(SettingsError, match="needs acks=all"):
        ClientSettings.from_kafka({"enable.idempotence": "true", "acks": "1"})
    assert ClientSettings.from_kafka({"acks": "1"}).required_acks == 1


def test_what_the_broker_decides_in_the_new_protocol_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"session\.timeout\.ms is the broker's"):
        ClientSettings.from_kafka(
            {"group.id": "g", "group.protocol": "consumer", "session.timeout.ms": "9000"}
        )
    with pytest.raises(SettingsError, match=r"below session\.timeout\.ms"):
        ClientSettings.from_kafka({"group.id": "g", "session.timeout.ms": "3000"})


def test_a_duration_is_read_as_iso_8601_has_it() -> None:
    def told(text: str) -> int | None:
        return ClientSettings.from_kafka({"auto.offset.reset": text}).reset_duration_ms

    assert told("by_duration:P1DT12H") == 36 * 3_600_000
    assert told("by_duration:PT1M0.5S") == 60_500
    assert told("earliest") is None


def test_a_transactional_id_needs_what_transactions_rest_on() -> None:
    for given in (
        {"acks": "1"},
        {"enable.idempotence": "false"},
        {"max.in.flight.requests.per.connection": "6"},
    ):
        with pytest.raises(SettingsError, match=r"transactional\.id=x needs acks=all"):
            ClientSettings.from_kafka({"transactional.id": "x", **given})
    with pytest.raises(SettingsError, match=r"transactional\.id is empty"):
        ClientSettings.from_kafka({"transactional.id": ""})
    assert (
        ClientSettings.from_kafka(
            {"transactional.id": "x", "transaction.timeout.ms": "5000"}
        ).transaction_timeout_ms
        == 5000
    )


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("localhost", ("localhost", 9092)),
        ("SSL://broker.example", ("broker.example", 9092)),
        ("[::1]", ("::1", 9092)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_an_address_without_a_port_has_the_port_of_kafka(server: str, address: tuple[str, int]) -> None:
    assert address_of(server) == address


def test_the_level_of_another_codec_does_not_count() -> None:
    of_gzip = ClientSettings(compression_type="gzip", compression_lz4_level=12)
    of_zstd = ClientSettings(compression_type="zstd", compression_lz4_level=12, compression_zstd_level=5)
    assert (of_gzip.compression_level, of_zstd.compression_level) == (None, 5)
