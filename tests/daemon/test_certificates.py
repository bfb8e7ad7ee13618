"""Certificates that a node cannot use: at its start, and in place of those in use."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.errors import SettingsError
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.daemon.certificates import Certificates
from sparklog_server.daemon.jobs import Done, Job
from tests.certificates import Issued, authority, issued, server_settings


def encoded(certificate: bytes, key_pem: str) -> str:
    """A private key and a certificate that no library has made."""
    from base64 import encodebytes

    body = encodebytes(certificate).decode()
    return f"{key_pem}-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"


def der_of(one: Issued) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return one.certificate.public_bytes(Encoding.DER)


def with_an_impossible_time(one: Issued) -> str:
    time = one.certificate.not_valid_before_utc.strftime("%y%m%d%H%M%SZ").encode()
    der = der_of(one)
    assert der.count(time) == 1
    return encoded(der.replace(time, b"991399999999Z"), one.key_pem())


def with_a_repeated_extension(one: Issued) -> str:
    basic_constraints, alternative_names = b"\x06\x03\x55\x1d\x13", b"\x06\x03\x55\x1d\x11"
    der = der_of(one)
    assert der.count(basic_constraints) == der.count(alternative_names) == 1
    return encoded(der.replace(basic_constraints, alternative_names), one.key_pem())


class Node:
    """The certificates of a node, and its log."""

    def __init__(self, directory: Path, **more: str) -> None:
        self.settings = BrokerSettings.of(server_settings(directory, issued("CN=broker"), **more))
        self.lines: list[tuple[str, dict[str, object]]] = []
        self.certificates = Certificates(
            self.settings, lambda event, **fields: self.lines.append((event, fields))
        )

    def refresh(self) -> None:
        def run(job: Job, done: Done) -> None:
            done(job())

        self.certificates.refresh(self.settings, run, is_changed=True)


@pytest.mark.parametrize("spoilt", [with_an_impossible_time, with_a_repeated_extension])
def test_a_certificate_that_one_library_reads_and_another_does_not_leaves_the_old_one_in_use(
    tmp_path: Path, spoilt: Callable[[Issued], str]
) -> None:
    node = Node(tmp_path)
    before = node.certificates.of_listener("SSL")
    (tmp_path / "server.pem").write_text(spoilt(authority().issue("CN=broker")))
    node.refresh()
    assert [event for event, _ in node.lines] == ["certificates-refused"]
    assert node.certificates.of_listener("SSL") is before
    assert "cannot be read" in str(node.certificates.refusal(node.settings))
    authority().issue("CN=broker").write_pem(tmp_path / "server.pem")
    assert node.certificates.refusal(node.settings) is None
    node.refresh()
    assert node.lines[-1][0] == "certificates-changed"


def test_a_path_that_no_file_can_have_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^SSL: the certificate cannot be read"):
        Node(tmp_path, **{"ssl.keystore.location": "a\0b"})
