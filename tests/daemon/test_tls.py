"""A live broker whose listener has TLS: who may connect, and how a handshake fails."""

import contextlib
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog import Admin, Consumer, Producer, TopicPartition
from sparklog.client.admin.configs import ConfigChange, ConfigResource
from sparklog.errors import BrokerError, SparklogError
from tests.certificates import LOCAL, Issued, authority, issued, server_settings
from tests.daemon.broker_process import (
    API_VERSIONS,
    BrokerProcess,
    is_answered,
    is_served,
    receive_until_closed,
    wait_until,
)

Address = tuple[str, int]


def started(directory: Path, served: Issued | None = None, **more: str) -> BrokerProcess:
    """A broker with a listener SSL."""
    settings = server_settings(directory, served or issued("CN=broker"), **more)
    arguments = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return BrokerProcess("--data-dir", str(directory / "data"), *arguments)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def served(directory: Path) -> Iterator[Address]:
    with started(directory, sparklog_ssl_handshake_timeout_ms="1000") as broker:
        yield broker.address()


def trusting(*, by: str = "authority") -> ssl.SSLContext:
    """A client's context that trusts an authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority(by).pem)
    return context


def presenting(directory: Path, client: Issued) -> ssl.SSLContext:
    """A client's context with a certificate."""
    context = trusting()
    context.load_cert_chain(client.write_pem(directory / "client.pem"))
    return context


def connected(address: Address, context: ssl.SSLContext, name: str = "localhost") -> ssl.SSLSocket:
    return context.wrap_socket(socket.create_connection(address, timeout=20), server_hostname=name)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", LOCAL)
def test_a_client_is_served_by_each_version_and_under_each_name(
    served: Address, version: ssl.TLSVersion, name: str
) -> None:
    context = trusting()
    context.minimum_version = context.maximum_version = version
    with connected(served, context, name) as client:
        assert client.version() == version.name.replace("_", ".")
        assert is_served(client)


def test_a_client_refuses_another_authority_another_name_and_an_expired_certificate(
    served: Address, tmp_path: Path
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate in"):
        connected(served, trusting(by="another"))
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for 'elsewhere'"):
        connected(served, trusting(), "elsewhere")
    with (
        started(tmp_path, issued("CN=broker", days_old=3)) as old,
        pytest.raises(ssl.SSLCertVerificationError, match="expired"),
    ):
        connected(old.address(), trusting())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="Python's ssl cannot renegotiate")
def test_a_renegotiation_is_refused(served: Address) -> None:
    client = subprocess.run(
        ["openssl", "s_client", "-tls1_2", "-connect", f"{served[0]}:{served[1]}"],
        input="R\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "RENEGOTIATING" in client.stderr + client.stdout
    assert "no renegotiation" in client.stderr


def test_tls_1_0_and_1_1_are_refused(served: Address) -> None:
    for version in (0x0301, 0x0302):
        with socket.create_connection(served, timeout=20) as client:
            client.sendall(hello_of(version))
            # an alert: fatal, protocol_version
            assert receive_until_closed(client)[-2:] == bytes((2, 70))


def hello_of(version: int) -> bytes:
    """A ClientHello of that version with one suite, as an old client sends it."""
    body = struct.pack(">H", version) + bytes(32) + b"\0" + struct.pack(">HH", 2, 0xC013) + b"\x01\0"
    message = b"\x01" + len(body).to_bytes(3) + body
    return struct.pack(">BHH", 22, 0x0301, len(message)) + message


@pytest.mark.parametrize("content", [API_VERSIONS, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", bytes(64)])
def test_plain_bytes_close_the_connection_and_no_other_one(served: Address, content: bytes) -> None:
    with connected(served, trusting()) as other, socket.create_connection(served, timeout=20) as client:
        client.sendall(content)
        assert len(receive_until_closed(client)) < 16  # at most an alert
        assert is_served(other)


def test_a_handshake_that_ends_or_stays_half_open_is_closed_in_time(served: Address) -> None:
    with socket.create_connection(served, timeout=20) as client:
        client.sendall(hello_of(0x0303)[:10])
        assert receive_until_closed(client) == b""
    with socket.create_connection(served, timeout=20) as client:
        assert receive_until_closed(client) == b""


def test_a_client_that_sends_one_byte_at_a_time_is_served(served: Address) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(served, timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send_all() -> None:
            for byte in outgoing.read():
                connection.sendall(bytes((byte,)))

        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                send_all()
                incoming.write(connection.recv(1))
        client.write(API_VERSIONS)
        send_all()
        received = b""
        while len(received) < 8:
            try:
                received += client.read(8)
            except ssl.SSLWantReadError:
                incoming.write(connection.recv(1))
        assert received[4:8] == struct.pack(">i", 7)


def test_a_client_without_a_trusted_certificate_is_refused_where_one_is_required(tmp_path: Path) -> None:
    stranger = issued("CN=stranger", by="another")
    with started(tmp_path, ssl_client_auth="required") as broker:
        address = broker.address()
        for context in (trusting(), presenting(tmp_path, stranger)):
            # In TLS 1.3, a client learns after its own part that the broker has refused its certificate.
            with connected(address, context) as client, pytest.raises(ssl.SSLError, match="alert"):
                client.recv(1)
        with connected(address, presenting(tmp_path, issued("CN=app"))) as client:
            assert is_served(client)
        _, _, log = broker.end(None) if broker.child.poll() is not None else (0, "", "")
        broker.child.terminate()
        log += broker.stderr.read()
    assert "tls-handshake-failed" in log
    assert "the client has no certificate, and ssl.client.auth=required" in log
    assert "the client's certificate is not accepted: unable to get local issuer certificate" in log


def test_a_revoked_certificate_is_refused(tmp_path: Path) -> None:
    revoked, other = authority().issue("CN=gone"), issued("CN=app")
    (tmp_path / "crl.pem").write_text(authority().revocation_list(revoked))
    with started(
        tmp_path, ssl_client_auth="required", sparklog_ssl_crl_location=str(tmp_path / "crl.pem")
    ) as broker:
        address = broker.address()
        with (
            connected(address, presenting(tmp_path, revoked)) as client,
            pytest.raises(ssl.SSLError, match="revoked"),
        ):
            client.recv(1)
        with connected(address, presenting(tmp_path, other)) as client:
            assert is_served(client)


def test_the_principal_of_a_change_is_the_subject_by_the_rules(tmp_path: Path) -> None:
    client = issued("O=Example,OU=ops,CN=App")
    rules = "RULE:^CN=(.*?),OU=ops.*$/$1/L,DEFAULT"
    with started(tmp_path, ssl_client_auth="requested", ssl_principal_mapping_rules=rules) as broker:
        servers = broker.bootstrap_servers()
        for name, more in (("named", {"ssl_keystore_location": str(tmp_path / "key.pem")}), ("unnamed", {})):
            client.write_pem(tmp_path / "key.pem")
            with Admin(
                bootstrap_servers=servers,
                security_protocol="SSL",
                ssl_truststore_location=str(tmp_path / "ca.pem"),
                **more,  # type: ignore[arg-type]
            ) as admin:
                admin.create_topics({name: 1})
        _, _, log = broker.end(None) if broker.child.poll() is not None else (0, "", "")
        broker.child.terminate()
        log += broker.stderr.read()
    assert "command=CreateTopicsRequest principal=User:app " in log
    assert "command=CreateTopicsRequest principal=User:ANONYMOUS " in log


def test_records_pass_by_our_client_over_tls(directory: Path, served: Address) -> None:
    tls: dict[str, str] = {
        "security_protocol": "SSL",
        "ssl_truststore_location": str(directory / "ca.pem"),
    }
    servers = f"localhost:{served[1]}"
    values = [bytes((number % 256,)) * 20_000 for number in range(200)]
    with Producer(bootstrap_servers=servers, **tls) as producer:  # type: ignore[arg-type]
        for value in values:
            producer.send("t", value=value)
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **tls) as consumer:  # type: ignore[arg-type]
        consumer.assign([TopicPartition("t", 0)])
        received: list[bytes | None] = []
        while len(received) < len(values):
            received += [record.value for record in consumer.poll(timeout_ms=5_000)]
    assert received == values


def test_a_client_says_why_it_does_not_connect(directory: Path, served: Address, tmp_path: Path) -> None:
    authority("another").write(tmp_path / "another.pem")
    with (
        pytest.raises(SparklogError, match="not accepted: self-signed certificate in"),
        Admin(
            bootstrap_servers=f"127.0.0.1:{served[1]}",
            security_protocol="SSL",
            ssl_truststore_location=str(tmp_path / "another.pem"),
            default_api_timeout_ms=300,
        ) as admin,
    ):
        admin.list_topics()


def test_an_empty_identification_algorithm_accepts_any_name(tmp_path: Path) -> None:
    with started(tmp_path, issued("CN=broker", ("elsewhere",))) as broker:
        servers = broker.bootstrap_servers()
        given = {
            "security_protocol": "SSL",
            "ssl_truststore_location": str(tmp_path / "ca.pem"),
            "default_api_timeout_ms": 1000,
        }
        with (
            pytest.raises(SparklogError, match="certificate is not accepted"),
            Admin(bootstrap_servers=servers, **given) as admin,  # type: ignore[arg-type]
        ):
            admin.list_topics()
        with Admin(
            bootstrap_servers=servers,
            **given,  # type: ignore[arg-type]
            ssl_endpoint_identification_algorithm="",
        ) as admin:
            assert list(admin.list_topics()) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ssl.keystore.location": "/nowhere"}, "ssl.keystore.location=/nowhere cannot be read"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.1 is not offered"),
        ({"ssl.client.auth": "required", "ssl.truststore.location": ""}, "needs the authorities"),
    ],
)
def test_a_broker_whose_keys_cannot_be_used_does_not_start(
    tmp_path: Path, more: dict[str, str], said: str
) -> None:
    settings = server_settings(tmp_path, issued("CN=broker")) | more
    arguments = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with BrokerProcess("--data-dir", str(tmp_path / "data"), *arguments) as broker:
        code, _, log = broker.end()
    assert code != 0
    assert said in log
    assert "Traceback" not in log


def test_a_full_set_of_unfinished_handshakes_keeps_no_client_out(tmp_path: Path) -> None:
    with started(tmp_path, **{"max.connections": "8"}) as broker:
        address = broker.address()
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(socket.create_connection(address))
            client = stack.enter_context(connected(address, trusting()))
            client.sendall(API_VERSIONS)
            assert is_answered(client)


def test_a_new_certificate_is_used_when_the_file_changes_and_a_bad_one_is_not(tmp_path: Path) -> None:
    first, second = issued("CN=broker"), authority().issue("CN=broker")
    with started(tmp_path, first, sparklog_ssl_reload_interval_ms="50") as broker:
        address = broker.address()

        def shown() -> bytes | None:
            with connected(address, trusting()) as client:
                return client.getpeercert(binary_form=True)

        with connected(address, trusting()) as connection:
            before = shown()
            (tmp_path / "server.pem").write_text("-----BEGIN nothing")
            second.write_pem(tmp_path / "next.pem").replace(tmp_path / "server.pem")
            wait_until(lambda: shown() != before)
            assert is_served(connection)
            for bad, reason in (
                (authority().issue("CN=another"), "has the subject CN=another instead of CN=broker"),
                (authority().issue("CN=broker", ("localhost",)), "lacks the names 127.0.0.1"),
                (authority().issue("CN=broker", days_old=2), "is valid from"),
            ):
                bad.write_pem(tmp_path / "next.pem").replace(tmp_path / "server.pem")
                assert any("certificates-refused" in line and reason in line for line in broker.stderr)
            assert shown() == second.certificate.public_bytes(encoding())


def encoding() -> object:
    from cryptography.hazmat.primitives.serialization import Encoding

    return Encoding.DER


def test_a_certificate_is_changed_for_one_broker_while_a_connection_stays_open(tmp_path: Path) -> None:
    second = authority().issue("CN=broker")
    second.write_pkcs12(tmp_path / "second.p12", "secret")
    (tmp_path / "mixed.pem").write_text(authority().issue("CN=broker").key_pem() + second.chain_pem)
    with started(tmp_path) as broker:
        address = broker.address()
        with (
            connected(address, trusting()) as connection,
            Admin(
                bootstrap_servers=f"localhost:{address[1]}",
                security_protocol="SSL",
                ssl_truststore_location=str(tmp_path / "ca.pem"),
            ) as admin,
        ):
            prefix = "listener.name.ssl.ssl.keystore"

            def alter(changes: dict[str, str]) -> None:
                changed = [ConfigChange(f"{prefix}.{name}", value) for name, value in changes.items()]
                admin.alter_configs({ConfigResource("broker", "1"): changed})

            for changes, reason in (
                ({"location": str(tmp_path / "second.p12")}, "needs ssl.keystore.password"),
                ({"location": str(tmp_path / "second.p12"), "password": "hunter2"}, "password"),
                ({"location": str(tmp_path / "absent.pem")}, "absent.pem"),
                ({"location": str(tmp_path / "mixed.pem")}, "key"),
            ):
                with pytest.raises(BrokerError, match=reason) as refused:
                    alter(changes)
                assert "INVALID_REQUEST" in str(refused.value)
                assert "hunter2" not in str(refused.value)
                assert f"{prefix}.location" not in admin.describe_configs(brokers=[1])["1"]
            alter({"location": str(tmp_path / "second.p12"), "password": "secret"})
            line = next(line for line in broker.stderr if "certificates-" in line)
            assert "certificates-changed listener=SSL" in line
            with connected(address, trusting()) as client:
                assert client.getpeercert(binary_form=True) == second.certificate.public_bytes(encoding())
            assert is_served(connection)
            shown = admin.describe_configs(brokers=[1])["1"]
            assert shown[f"{prefix}.password"].value is None
            assert shown[f"{prefix}.location"].value == str(tmp_path / "second.p12")
