"""Contexts of TLS from the material of the stores.

OpenSSL reads a private key only from a file: it gets a file in memory, or, where the system has none, a
temporary one that only this user can read. Cipher suites have Java's names, as in Kafka's settings:

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 ─► ECDHE-RSA-AES128-GCM-SHA256      TLS 1.2
    TLS_AES_128_GCM_SHA256                ─► the same                          TLS 1.3
"""

import os
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sparklog.errors import SettingsError

from .keys import TlsKeys
from .stores import Material, read_material

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(keys: TlsKeys, material: Material | None = None) -> ssl.SSLContext:
    """The context of a listener; raises SettingsError."""
    material = read_material(keys) if material is None else material
    if material.identity is None:
        raise SettingsError(
            "ssl.keystore.location is not set: a listener with TLS needs a private key and its certificate"
        )
    context = _context(ssl.PROTOCOL_TLS_SERVER, keys, material)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # A client connects to a broker once at a time, and each ticket costs as much as checking its Finished.
    context.num_tickets = 1
    context.verify_mode = _CLIENT_AUTH[keys.client_auth]
    if keys.client_auth != "none" and material.trusted is None:
        raise SettingsError(
            f"ssl.client.auth={keys.client_auth} needs the authorities of the clients: set "
            f"ssl.truststore.location or ssl.truststore.certificates"
        )
    return context


def client_context(keys: TlsKeys, material: Material | None = None) -> ssl.SSLContext:
    """The context of connections to servers; raises SettingsError. Without a trust store, the authorities of
    the system are trusted.
    """
    material = read_material(keys) if material is None else material
    context = _context(ssl.PROTOCOL_TLS_CLIENT, keys, material)
    context.check_hostname = keys.verifies_names
    context.verify_mode = ssl.CERT_REQUIRED
    if material.trusted is None:
        context.load_default_certs()
    return context


def _context(side: int, keys: TlsKeys, material: Material) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    # As in Java, each certificate in a trust store is trusted, also one that another authority has issued.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _restrict(context, keys)
    if material.identity is not None:
        with _file_of(material.identity) as path:
            try:
                # A text, since OpenSSL would otherwise ask for it on the terminal.
                context.load_cert_chain(path, password=material.password)
            except (ssl.SSLError, ValueError) as error:
                raise SettingsError(_reason(error)) from None
    try:
        if material.trusted is not None:
            context.load_verify_locations(cadata=material.trusted)
        if material.revoked is not None:
            with _file_of(material.revoked) as path:
                context.load_verify_locations(cafile=path)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except ssl.SSLError as error:
        raise SettingsError(
            f"a trusted certificate or revocation list cannot be read: {error.reason or error}"
        ) from None
    return context


def _reason(error: ssl.SSLError | ValueError) -> str:
    reason = getattr(error, "reason", None) or str(error)
    if reason == "KEY_VALUES_MISMATCH":
        return "the private key is not that of the first certificate in the key store"
    return (
        f"the private key cannot be read: ssl.key.password is missing or wrong, or it is damaged ({reason})"
    )


def _restrict(context: ssl.SSLContext, keys: TlsKeys) -> None:
    """Set the versions and cipher suites."""
    versions = set(keys.enabled_protocols)
    if keys.cipher_suites:
        old, new = split_suites(keys.cipher_suites)
        # As in Java, a version without an allowed suite is not offered.
        versions -= {"TLSv1.2"} if not old else set()
        versions -= {"TLSv1.3"} if not new else set()
        if not versions:
            raise SettingsError("ssl.cipher.suites and ssl.enabled.protocols leave no suite to offer")
        if old:
            try:
                context.set_ciphers(":".join(old))
            except ssl.SSLError:
                raise SettingsError(
                    f"ssl.cipher.suites={','.join(keys.cipher_suites)}: OpenSSL offers none of the "
                    f"suites for TLS 1.2"
                ) from None
        if "TLSv1.3" in versions:
            _restrict_new(context, new)
    context.minimum_version = min(_VERSIONS[version] for version in versions)
    context.maximum_version = max(_VERSIONS[version] for version in versions)


def _restrict_new(context: ssl.SSLContext, suites: list[str]) -> None:
    if set(suites) == set(TLS_1_3_SUITES):
        return
    choose = getattr(context, "set_ciphersuites", None)  # since Python 3.15
    if choose is None:
        raise SettingsError(
            f"ssl.cipher.suites: this version of Python cannot choose among the suites of TLS 1.3: name all "
            f"of them ({', '.join(TLS_1_3_SUITES)}), or none to offer TLS 1.2 only"
        )
    choose(":".join(suites))


@contextmanager
def _file_of(content: str) -> Iterator[str]:
    """The path of a file with this content, while the block runs."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):  # noqa: PTH112 - a path of the system
        descriptor = os.memfd_create("sparklog-tls")
        try:
            os.write(descriptor, content.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        import tempfile  # a sixth of the imports of a context, and not needed on Linux

        with tempfile.NamedTemporaryFile("w") as file:
            file.write(content)
            file.flush()
            yield file.name


TLS_1_3_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_SUITE: Final = re.compile(
    r"TLS_(ECDHE_RSA|ECDHE_ECDSA|DHE_RSA|RSA)_WITH_"
    r"(?:AES_(128|256)_(GCM|CBC)_(SHA|SHA256|SHA384)|(CHACHA20_POLY1305)_SHA256)"
)


def split_suites(suites: Sequence[str]) -> tuple[list[str], list[str]]:
    """The suites of TLS 1.2, by OpenSSL's names, and those of TLS 1.3; raises SettingsError for an unknown or
    unsafe suite.
    """
    old, new = [], []
    for suite in suites:
        if suite in TLS_1_3_SUITES:
            new.append(suite)
        else:
            old.append(_openssl_name(suite))
    return old, new


def _openssl_name(suite: str) -> str:
    match = _SUITE.fullmatch(suite)
    if match is None:
        raise SettingsError(f"ssl.cipher.suites: {suite} is not a suite that is offered")
    exchange, bits, mode, digest, chacha = match.groups()
    start = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    if chacha:
        return f"{start}CHACHA20-POLY1305"
    return f"{start}AES{bits}-{'GCM-' if mode == 'GCM' else ''}{digest}"
