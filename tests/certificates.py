"""Authorities and certificates for tests: made once a process, valid for a day."""

import datetime
import ipaddress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

DAY = datetime.timedelta(days=1)
LOCAL: tuple[str, ...] = ("localhost", "127.0.0.1")
OIDS = {
    "CN": NameOID.COMMON_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "C": NameOID.COUNTRY_NAME,
}


@dataclass(frozen=True)
class Issued:
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: PrivateKey

    @property
    def chain_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection(password)).decode()

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        path.write_text(self.key_pem(password) + self.chain_pem)
        return path

    def write_pkcs12(self, path: Path, password: str) -> Path:
        path.write_bytes(
            serialize_key_and_certificates(b"kafka", self.key, self.certificate, None, protection(password))
        )
        return path


class Authority:
    """An authority that issues certificates by ECDSA P-256, or RSA 2048."""

    def __init__(self, name: str) -> None:
        self.key: PrivateKey = new_key()
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = (
            builder(self.name, self.name, self.key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write(self, path: Path) -> Path:
        path.write_text(self.pem)
        return path

    def issue(
        self,
        subject: str,
        names: tuple[str, ...] = LOCAL,
        *,
        days_old: int = 0,
        is_rsa: bool = False,
    ) -> Issued:
        """A certificate for a subject such as `CN=app,OU=ops`, and for these names; `days_old` days ago it
        was valid for a day.
        """
        key = new_key(is_rsa=is_rsa)
        made = (
            builder(named(subject), self.name, key, days_old)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([general(name) for name in names]), critical=False)
        )
        return Issued(made.sign(self.key, hashes.SHA256()), key)

    def revocation_list(self, *revoked: Issued) -> str:
        """The list of revoked certificates, in PEM."""
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.name)
            .last_update(now - DAY)
            .next_update(now + DAY)
        )
        for one in revoked:
            made = made.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(one.certificate.serial_number)
                .revocation_date(now - DAY)
                .build()
            )
        return made.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def authority(name: str = "authority") -> Authority:
    """One authority of this name for the process."""
    return _authority(name)


@cache
def _authority(name: str) -> Authority:
    return Authority(name)


@cache
def issued(
    subject: str,
    names: tuple[str, ...] = LOCAL,
    *,
    by: str = "authority",
    days_old: int = 0,
    is_rsa: bool = False,
) -> Issued:
    """One certificate of this kind for the process."""
    return authority(by).issue(subject, names, days_old=days_old, is_rsa=is_rsa)


def named(subject: str) -> x509.Name:
    parts = (part.partition("=") for part in subject.split(","))
    return x509.Name([x509.NameAttribute(OIDS[kind], value) for kind, _, value in parts])


def general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def new_key(*, is_rsa: bool = False) -> PrivateKey:
    return rsa.generate_private_key(65537, 2048) if is_rsa else ec.generate_private_key(ec.SECP256R1())


def protection(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())


def builder(
    subject: x509.Name, issuer: x509.Name, key: PrivateKey, days_old: int = 0
) -> x509.CertificateBuilder:
    begin = datetime.datetime.now(datetime.UTC) - (days_old + 1) * DAY
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + 2 * DAY if not days_old else begin + DAY)
    )


def server_settings(directory: Path, served: Issued, **more: str) -> dict[str, str]:
    """Settings of a broker that serves TLS with this certificate and trusts the authority's clients; `more`
    by names with `_` for `.`.
    """
    served.write_pem(directory / "server.pem")
    authority().write(directory / "ca.pem")
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        **{name.replace("_", "."): value for name, value in more.items()},
    }
