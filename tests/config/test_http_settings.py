"""The HTTP listener in the settings: how it is written, and where it may be."""

import pytest

from sparklog.errors import SettingsError
from sparklog_server.config.http_settings import LISTENER_KEY, of_node
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.config.tls_settings import needs_certificates, tls_of

KEYSTORE = {"ssl.keystore.location": "/node.pem", "ssl.keystore.type": "PEM", "ssl.client.auth": "required"}


def of(text: str, *, is_insecure_allowed: bool = False, **more: str) -> BrokerSettings:
    return BrokerSettings.of({LISTENER_KEY: text, **more}, is_insecure_allowed=is_insecure_allowed)


def test_without_the_key_there_is_no_listener() -> None:
    assert BrokerSettings.of({}).http_listener is None


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("http://127.0.0.1:9464", "127.0.0.1", 9464),
        ("http://[::1]:0", "::1", 0),
        ("HTTP://localhost:1", "localhost", 1),
    ],
)
def test_a_loopback_address_may_be_plain(text: str, host: str, port: int) -> None:
    listener = of(text).http_listener
    assert listener is not None
    assert (listener.host, listener.port, listener.is_encrypted) == (host, port, False)


@pytest.mark.parametrize(
    "text", ["127.0.0.1:9464", "http://127.0.0.1", "ftp://127.0.0.1:1", "http://127.0.0.1:99999"]
)
def test_what_is_no_address_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(SettingsError, match=r"http://HOST:PORT or https://HOST:PORT"):
        of(text)


@pytest.mark.parametrize("text", ["http://0.0.0.0:9464", "http://node:9464", "http://:9464"])
def test_an_address_that_others_reach_needs_tls_or_trust(text: str) -> None:
    with pytest.raises(SettingsError, match="--insecure"):
        of(text)
    listener = of(text, is_insecure_allowed=True).http_listener
    assert listener is not None
    assert not listener.is_loopback


def test_https_needs_a_certificate_and_asks_clients_for_one_without_requiring_it() -> None:
    with pytest.raises(SettingsError, match=r"ssl\.keystore\.location"):
        of("https://127.0.0.1:9464")
    settings = BrokerSettings.of({LISTENER_KEY: "https://127.0.0.1:9464", **KEYSTORE})
    assert needs_certificates(settings)
    assert tls_of(settings, "HTTP").ssl_client_auth == "requested"
    own = {"listener.name.http.ssl.client.auth": "required"}
    assert tls_of(
        BrokerSettings.of({LISTENER_KEY: "https://127.0.0.1:1", **KEYSTORE, **own}), "HTTP"
    ).ssl_client_auth == ("required")


def test_its_name_is_not_that_of_another_listener() -> None:
    with pytest.raises(SettingsError, match="choose another"):
        BrokerSettings.of(
            {
                LISTENER_KEY: "http://127.0.0.1:1",
                "listeners": "HTTP://127.0.0.1:9092",
                "listener.security.protocol.map": "HTTP:PLAINTEXT",
                "inter.broker.listener.name": "HTTP",
            }
        )


def test_the_nodes_of_one_machine_have_a_port_each() -> None:
    reserved: list[int] = []

    def reserve(port: int) -> int:
        reserved.append(port)
        return port or 40_000 + len(reserved)

    given = ["a=b", f"{LISTENER_KEY}=http://127.0.0.1:9464"]
    assert [of_node(given, index, reserve) for index in range(2)] == [
        [f"{LISTENER_KEY}=http://127.0.0.1:9464"],
        [f"{LISTENER_KEY}=http://127.0.0.1:9465"],
    ]
    assert of_node([f"{LISTENER_KEY}=http://127.0.0.1:0"], 1, reserve) == [
        f"{LISTENER_KEY}=http://127.0.0.1:40003"
    ]
    assert reserved == [9464, 9465, 0]
    assert of_node(["a=b"], 1, reserve) == of_node([f"{LISTENER_KEY}=nonsense"], 1, reserve) == []
