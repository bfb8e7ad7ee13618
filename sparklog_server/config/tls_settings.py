"""A part of `settings`: the `ssl.*` keys, which every listener with TLS has unless a key with its own prefix
says otherwise.

    listener.name.<name in lower case>.ssl.keystore.location  ─►  ssl.keystore.location  ─►  the default
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec

from sparklog.errors import SettingsError

from .keys import Key, Kind, Update, Value, fields_of
from .keys import boolean as _boolean
from .keys import long as _long
from .keys import several as _list
from .listeners import LISTENER_PREFIX, PROTOCOLS, Listener, is_encrypted

if TYPE_CHECKING:
    from sparklog.tls.keys import TlsKeys

PROTOCOL_KEY = "security.inter.broker.protocol"
_BROKER = Update.PER_BROKER


def _text(name: str, doc: str, choices: tuple[str, ...] = ()) -> Key:
    return Key(name, Kind.STRING, doc, choices=choices, update=_BROKER)


def _secret(name: str, doc: str) -> Key:
    return Key(name, Kind.PASSWORD, doc, update=_BROKER)


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The key and the certificates of this node, and the rules for those of its peers."""

    security_inter_broker_protocol: Annotated[
        str,
        Key(
            PROTOCOL_KEY,
            Kind.STRING,
            "The name of the inter-broker listener when `inter.broker.listener.name` is not set: the "
            "listener that is named after this protocol.",
            choices=PROTOCOLS,
        ),
    ] = "PLAINTEXT"
    ssl_keystore_type: Annotated[
        str,
        _text(
            "ssl.keystore.type",
            "The format of the key store: PEM or PKCS12. The content decides: JKS, Java's default, "
            "stands for either; a true JKS file is refused.",
        ),
    ] = "JKS"
    ssl_keystore_location: Annotated[
        str | None,
        _text(
            "ssl.keystore.location",
            "The file with the private key of this node and its certificate chain, PEM or PKCS12.",
        ),
    ] = None
    ssl_keystore_password: Annotated[
        str | None, _secret("ssl.keystore.password", "The password of a PKCS12 key store.")
    ] = None
    ssl_keystore_certificate_chain: Annotated[
        str | None,
        _secret(
            "ssl.keystore.certificate.chain", "The certificate chain of this node as PEM text, its own first."
        ),
    ] = None
    ssl_keystore_key: Annotated[
        str | None, _secret("ssl.keystore.key", "The private key of this node as PEM text.")
    ] = None
    ssl_key_password: Annotated[
        str | None, _secret("ssl.key.password", "The password of an encrypted PEM key.")
    ] = None
    ssl_truststore_type: Annotated[
        str,
        _text("ssl.truststore.type", "The format of the trust store, as `ssl.keystore.type`."),
    ] = "JKS"
    ssl_truststore_location: Annotated[
        str | None,
        _text("ssl.truststore.location", "The file with the trusted certificates, PEM or PKCS12."),
    ] = None
    ssl_truststore_password: Annotated[
        str | None, _secret("ssl.truststore.password", "The password of a PKCS12 trust store.")
    ] = None
    ssl_truststore_certificates: Annotated[
        str | None, _secret("ssl.truststore.certificates", "The trusted certificates as PEM text.")
    ] = None
    ssl_client_auth: Annotated[
        str,
        _text(
            "ssl.client.auth",
            "Whether clients present a certificate. With SASL_SSL, only the key with the listener's prefix "
            "applies (KIP-684).",
            ("required", "requested", "none"),
        ),
    ] = "none"
    ssl_enabled_protocols: Annotated[
        tuple[str, ...],
        _list("ssl.enabled.protocols", "The versions of TLS: TLSv1.2 and TLSv1.3.", update=_BROKER),
    ] = ("TLSv1.2", "TLSv1.3")
    ssl_cipher_suites: Annotated[
        tuple[str, ...],
        _list(
            "ssl.cipher.suites",
            "The cipher suites, by Java's names. When empty, those that OpenSSL offers by default.",
            update=_BROKER,
        ),
    ] = ()
    ssl_endpoint_identification_algorithm: Annotated[
        str,
        _text(
            "ssl.endpoint.identification.algorithm",
            "How this node verifies the names of the nodes that it connects to: https, or empty for any "
            "name.",
        ),
    ] = "https"
    ssl_principal_mapping_rules: Annotated[
        str,
        Key(
            "ssl.principal.mapping.rules",
            Kind.STRING,
            "How the subject of a client's certificate becomes the name of its principal: "
            "RULE:pattern/replacement/ with L or U at the end for lower or upper case, and DEFAULT, comma "
            "separated. The first rule that matches the whole subject applies.",
        ),
    ] = "DEFAULT"
    ssl_allow_dn_changes: Annotated[
        bool,
        _boolean(
            "ssl.allow.dn.changes", "Accept a new certificate with another subject while the broker runs."
        ),
    ] = False
    ssl_allow_san_changes: Annotated[
        bool,
        _boolean(
            "ssl.allow.san.changes",
            "Accept a new certificate that omits an alternative name of the former while the broker runs.",
        ),
    ] = False
    sparklog_ssl_crl_location: Annotated[
        str | None,
        _text(
            "sparklog.ssl.crl.location",
            "The PEM file with the certificate revocation lists of the authorities in the trust store. When "
            "set, a peer's certificate is refused if its authority has revoked it or has no valid list.",
        ),
    ] = None
    sparklog_ssl_reload_interval_ms: Annotated[
        int,
        _long(
            "sparklog.ssl.reload.interval.ms",
            "The interval between checks whether the files of certificates, keys and revocation lists have "
            "changed. New connections use the new files; connections stay open. 0 disables the checks.",
            0,
        ),
    ] = 10_000
    sparklog_ssl_handshake_timeout_ms: Annotated[
        int,
        _long(
            "sparklog.ssl.handshake.timeout.ms",
            "A connection whose TLS handshake takes longer is closed.",
            1,
        ),
    ] = 10_000

    def __repr__(self) -> str:
        return "TlsSettings([hidden])"


class WithTls(Protocol):
    """The settings that decide about TLS."""

    @property
    def tls(self) -> TlsSettings: ...
    @property
    def of_listeners(self) -> Mapping[str, str]: ...
    @property
    def listeners(self) -> tuple[Listener, ...]: ...
    @property
    def http_listener(self) -> Listener | None: ...


class WithLinks(WithTls, Protocol):
    """The settings that decide about TLS between nodes."""

    @property
    def is_alone(self) -> bool: ...
    @property
    def inter_broker_listener_name(self) -> str: ...
    @property
    def controller_listener_names(self) -> tuple[str, ...]: ...
    @property
    def protocols(self) -> Mapping[str, str]: ...


def listener_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Those of these texts whose key has a listener's prefix."""
    return {name: text for name, text in texts.items() if name.startswith(LISTENER_PREFIX)}


@cache
def tls_keys() -> dict[str, tuple[str, Key]]:
    """(field, key) by key."""
    return {key.name: (field, key) for field, key in fields_of(TlsSettings)}


def tls_of(settings: WithTls, listener: str) -> TlsSettings:
    """The settings of a listener by its name."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    own: dict[str, Value] = {}
    for name, text in settings.of_listeners.items():
        found = tls_keys().get(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if found is not None:
            own[found[0]] = found[1].parse(text)
    is_sasl = any(one.name == listener and one.protocol == "SASL_SSL" for one in settings.listeners)
    if is_sasl:
        own.setdefault("ssl_client_auth", "none")
    elif settings.http_listener is not None and listener == settings.http_listener.name:
        own.setdefault("ssl_client_auth", "requested")  # its users have passwords too
    return msgspec.structs.replace(settings.tls, **own) if own else settings.tls


def stores_of(settings: TlsSettings) -> "TlsKeys":
    """The values that decide about a context."""
    from sparklog.tls.keys import TlsKeys  # most brokers have no listener with TLS

    # An empty location or password is none, as in Java.
    return TlsKeys(
        keystore_location=settings.ssl_keystore_location or None,
        keystore_password=settings.ssl_keystore_password or None,
        keystore_certificate_chain=settings.ssl_keystore_certificate_chain or None,
        keystore_key=settings.ssl_keystore_key or None,
        key_password=settings.ssl_key_password or None,
        truststore_location=settings.ssl_truststore_location or None,
        truststore_password=settings.ssl_truststore_password or None,
        truststore_certificates=settings.ssl_truststore_certificates or None,
        crl_location=settings.sparklog_ssl_crl_location or None,
        enabled_protocols=settings.ssl_enabled_protocols,
        cipher_suites=settings.ssl_cipher_suites,
        client_auth=settings.ssl_client_auth,
        endpoint_identification_algorithm=settings.ssl_endpoint_identification_algorithm,
    )


def linked_listeners(settings: WithLinks) -> set[str]:
    """The listeners of other nodes that this node connects to by TLS."""
    if settings.is_alone:
        return set()
    names = {settings.inter_broker_listener_name, *settings.controller_listener_names[:1]}
    return {name for name in names if is_encrypted(settings.protocols.get(name, "PLAINTEXT"))}


def encrypted_listeners(settings: WithTls) -> list[Listener]:
    """The listeners with TLS, that of HTTP included."""
    http = settings.http_listener
    listeners = settings.listeners if http is None else (*settings.listeners, http)
    return [one for one in listeners if one.is_encrypted]


def needs_certificates(settings: WithLinks) -> bool:
    """Whether the node has a connection with TLS."""
    return bool(encrypted_listeners(settings) or linked_listeners(settings))


def check_tls(settings: WithTls) -> None:
    """Raises SettingsError for a listener whose keys contradict each other or name no certificate."""
    for listener in encrypted_listeners(settings):
        from sparklog.tls.keys import check_store_type

        tls = tls_of(settings, listener.name)
        keys = stores_of(tls)
        try:
            for store_type in (tls.ssl_keystore_type, tls.ssl_truststore_type):
                check_store_type(store_type)
            keys.check()
        except SettingsError as error:
            raise SettingsError(f"{listener}: {error}") from None
        if keys.keystore_location is None and keys.keystore_key is None:
            raise SettingsError(
                f"{listener} encrypts, and has no certificate: set ssl.keystore.location, or "
                f"{LISTENER_PREFIX}{listener.name.lower()}.ssl.keystore.location"
            )
