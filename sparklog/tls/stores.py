"""Key stores and trust stores: files and inline values, read into PEM text.

first bytes of a file     kind
-----BEGIN (anywhere)     PEM: a private key and its chain, or trusted certificates
30                        PKCS12, also under Java's default type JKS
FE ED FE ED               a true JKS file, which only Java reads: refused, with the command that converts it
"""

import re
from typing import TYPE_CHECKING, Final

import msgspec

from sparklog.errors import SettingsError

from .keys import TlsKeys

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

STORE_BYTES_MAX: Final = 16 << 20
_JAVA_MAGICS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE: Final = 64


class Material(msgspec.Struct, frozen=True):
    """What the stores hold, as PEM text; `key` is followed by the certificate chain in `identity`. Equal
    materials give equal contexts.
    """

    identity: str | None
    password: str
    trusted: str | None
    revoked: str | None

    def __repr__(self) -> str:
        return "Material([hidden])"


def read_material(keys: TlsKeys) -> Material:
    """Read the stores; raises SettingsError with the key, the file and the remedy."""
    identity, password = _identity(keys)
    return Material(identity, password, _trusted(keys), _revoked(keys))


def blocks(pem: str, *labels: str) -> list[str]:
    """The PEM blocks whose label ends with one of these, each in lines: in a properties file a block may
    stand in one line.
    """
    found = []
    for label, body in _BLOCK.findall(pem):
        if label.endswith(labels):
            # An old encrypted key has headers, which are lines of their own.
            text = body.strip("\r\n") if ":" in body else _wrapped("".join(body.split()))
            found.append(f"-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    return found


def _identity(keys: TlsKeys) -> tuple[str | None, str]:
    """The private key and its chain, and the password that decrypts the key."""
    if keys.keystore_key is not None:
        assert keys.keystore_certificate_chain is not None
        return (
            _key_and_chain(keys.keystore_key, keys.keystore_certificate_chain, "ssl.keystore.key"),
            keys.key_password or "",
        )
    if keys.keystore_location is None:
        return None, ""
    where = f"ssl.keystore.location={keys.keystore_location}"
    content = _read(keys.keystore_location, where)
    if _is_pem(content):
        if keys.keystore_password is not None:
            raise SettingsError(
                f"{where} is a PEM file, to which ssl.keystore.password does not apply: set ssl.key.password "
                f"if its key is encrypted"
            )
        text = content.decode(errors="replace")
        return _key_and_chain(text, text, where), keys.key_password or ""
    if keys.keystore_password is None:
        raise SettingsError(f"{where} is a PKCS12 file, which needs ssl.keystore.password")
    return _of_pkcs12(content, keys.keystore_password, where, "ssl.keystore.password"), ""


def _key_and_chain(key: str, chain: str, where: str) -> str:
    private, certificates = blocks(key, "PRIVATE KEY"), blocks(chain, "CERTIFICATE")
    if len(private) != 1:
        raise SettingsError(f"{where} has {len(private)} private keys in PEM, and one is needed")
    if not certificates:
        raise SettingsError(f"{where} has no certificate in PEM beside the private key")
    return "".join([*private, *certificates])


def _trusted(keys: TlsKeys) -> str | None:
    if keys.truststore_certificates is not None:
        return _certificates(keys.truststore_certificates, "ssl.truststore.certificates")
    if keys.truststore_location is None:
        return None
    where = f"ssl.truststore.location={keys.truststore_location}"
    content = _read(keys.truststore_location, where)
    if _is_pem(content):
        return _certificates(content.decode(errors="replace"), where)
    store = _pkcs12(content, keys.truststore_password, where, "ssl.truststore.password")
    found = [one.certificate for one in store.additional_certs]
    if store.cert is not None:
        found.append(store.cert.certificate)
    if not found:
        raise SettingsError(f"{where} holds no trusted certificate")
    return "".join(map(_pem_of, found))


def _certificates(pem: str, where: str) -> str:
    found = blocks(pem, "CERTIFICATE")
    if not found:
        raise SettingsError(f"{where} holds no certificate in PEM")
    return "".join(found)


def _revoked(keys: TlsKeys) -> str | None:
    if keys.crl_location is None:
        return None
    where = f"sparklog.ssl.crl.location={keys.crl_location}"
    found = blocks(_read(keys.crl_location, where).decode(errors="replace"), "X509 CRL")
    if not found:
        raise SettingsError(f"{where} holds no revocation list in PEM (BEGIN X509 CRL)")
    return "".join(found)


def _read(path: str, where: str) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(STORE_BYTES_MAX)
    except OSError as error:
        raise SettingsError(f"{where} cannot be read: {error.strerror or error}") from None
    if not content.strip():
        raise SettingsError(f"{where} is empty: name a file in PEM or PKCS12")
    if content.startswith(_JAVA_MAGICS):
        raise SettingsError(
            f"{where} is a Java key store (JKS), which only Java reads: convert it by keytool "
            f"-importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
        )
    return content


def _is_pem(content: bytes) -> bool:
    return b"-----BEGIN" in content


def _wrapped(body: str) -> str:
    return "\n".join(body[start : start + _LINE] for start in range(0, len(body), _LINE))


# -- PKCS12


def _pkcs12(
    content: bytes, password: str | None, where: str, password_key: str
) -> "PKCS12KeyAndCertificates":
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise SettingsError(
            f"{where} is not PEM: a PKCS12 file needs the package cryptography (pip install cryptography), "
            f"or convert it by openssl pkcs12 -in {where.partition('=')[2]} -out store.pem -nodes"
        ) from None
    try:
        return load_pkcs12(content, None if password is None else password.encode())
    except ValueError:
        raise SettingsError(
            f"{where} cannot be opened as PKCS12: the password of {password_key} is wrong, or the file is "
            f"damaged"
        ) from None


def _of_pkcs12(content: bytes, password: str, where: str, password_key: str) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _pkcs12(content, password, where, password_key)
    if store.key is None or store.cert is None:
        raise SettingsError(f"{where} holds no private key with its certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    chain = _chain(store.cert.certificate, [one.certificate for one in store.additional_certs])
    return key + "".join(map(_pem_of, chain))


def _chain(leaf: "Certificate", others: "list[Certificate]") -> "list[Certificate]":
    """The certificate, its issuer, the issuer of that, as far as they are here."""
    chain = [leaf]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((one for one in others if one.subject == chain[-1].issuer and one not in chain), None)
        if issuer is None:
            break
        chain.append(issuer)
    return chain


def _pem_of(certificate: "Certificate") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()
