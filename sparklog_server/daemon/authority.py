"""The authority of a secure cluster, and the certificates of its nodes: ECDSA P-256, in PEM.

    ca-key.pem ─ signs ─► ca.pem, and node-<id>.pem: the private key of the node, then its certificate

The first certificate in ca.pem is that of ca-key.pem; the others are of earlier authorities, still trusted.

Importing this imports cryptography.
"""

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sparklog.errors import SettingsError
from sparklog_server.config.listeners import WILDCARD_HOSTS

AUTHORITY_DAYS: Final = 3650
NODE_DAYS: Final = 397
SKEW: Final = timedelta(hours=1)
"""Clocks of other machines may be behind by this."""
OWN_NAMES: Final = ("localhost", "127.0.0.1", "::1")


class Certificate(NamedTuple):
    """What a file says of a certificate."""

    path: Path
    subject: str
    names: tuple[str, ...]
    ends: datetime

    @property
    def days_left(self) -> int:
        """The whole days until it ends; negative when it has ended."""
        return (self.ends - datetime.now(UTC)).days


class Authority:
    """A certificate that signs others, and its private key."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @staticmethod
    def new(name: str) -> "Authority":
        """A new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        certificate = (
            _builder(subject, subject, key, datetime.now(UTC) + timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(is_authority=True), critical=True)
            .sign(key, SHA256())
        )
        return Authority(certificate, key)

    @staticmethod
    def read(certificate_path: Path, key_path: Path) -> "Authority":
        """The authority of these files; raises SettingsError."""
        try:
            certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
            key = load_pem_private_key(key_path.read_bytes(), None)
        except OSError as error:
            raise SettingsError(
                f"{error.filename} cannot be read: {error.strerror}; the key of the authority is where "
                f"`sparklog init` ran"
            ) from None
        except (ValueError, TypeError) as error:
            raise SettingsError(f"{certificate_path} or {key_path} is damaged: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise SettingsError(f"{key_path} is not the private key of {certificate_path}")
        return Authority(certificate, key)

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key."""
        return _key_pem(self._key)

    def issue(self, subject: str, names: Sequence[str]) -> bytes:
        """A new private key with its certificate, for a common name and these hosts and addresses; as a
        server and as a client. It ends with the authority at the latest.
        """
        return self._issued(_name(subject), [_general(name) for name in dict.fromkeys(names)])

    def renew(self, pem: bytes) -> bytes:
        """A new private key and certificate for the subject and names of this one; raises ValueError."""
        old = x509.load_pem_x509_certificate(pem)
        return self._issued(old.subject, list(_names(old)))

    def has_signed(self, path: Path) -> bool:
        """Whether the certificate in a PEM file is by this authority; raises SettingsError."""
        try:
            _read(path)[0].verify_directly_issued_by(self._certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    def _issued(self, subject: x509.Name, names: Sequence[x509.GeneralName]) -> bytes:
        key = ec.generate_private_key(ec.SECP256R1())
        ends = min(datetime.now(UTC) + timedelta(days=NODE_DAYS), self._certificate.not_valid_after_utc)
        certificate = (
            _builder(subject, self._certificate.subject, key, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(is_authority=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, SHA256())
        )
        return _key_pem(key) + certificate.public_bytes(Encoding.PEM)


def certificates_in(path: Path) -> list[Certificate]:
    """The certificates of a PEM file, at least one; raises SettingsError."""
    return [
        Certificate(
            path,
            one.subject.rfc4514_string(),
            tuple(str(name.value) for name in _names(one)),
            one.not_valid_after_utc,
        )
        for one in _read(path)
    ]


def joined_authorities(fresh: Authority, path: Path) -> bytes:
    """The certificate of a new authority, and behind it those of the file; raises SettingsError."""
    return fresh.pem + b"".join(one.public_bytes(Encoding.PEM) for one in _read(path))


def _read(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"{path} holds no certificate in PEM: {error}") from None


def checked_host(host: str) -> str:
    """A host or address that a certificate can have; raises SettingsError."""
    if host in WILDCARD_HOSTS:
        raise SettingsError(f"--host {host!r} is no name that clients can connect to")
    try:
        _general(host)
    except ValueError:
        raise SettingsError(f"--host {host!r} is neither a host name nor an IP address") from None
    return host


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file in one step by one that only its owner reads and writes."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    write_file(fresh, content)
    fresh.replace(path)


def write_file(path: Path, content: bytes) -> None:
    """Write a new file that only its owner reads and writes, and sync it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - SKEW)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        labels = name.encode("idna").decode()
        if not labels or not all(part.replace("-", "").isalnum() for part in labels.rstrip(".").split(".")):
            raise ValueError(name) from None
        return x509.DNSName(labels)


def _names(certificate: x509.Certificate) -> x509.SubjectAlternativeName | tuple[()]:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
