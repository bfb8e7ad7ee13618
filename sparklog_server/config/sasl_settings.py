"""A part of `settings`: SASL, re-authentication and delegation tokens.

Keys may be given for one listener, `listener.name.<listener>.sasl.jaas.config` and the like. From the most
special to the most general: listener and mechanism, listener, all. The names of listeners and mechanisms are
in lower case.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Final, Protocol

import msgspec

from .keys import Key, Kind, Update
from .keys import integer as _int
from .keys import long as _long
from .keys import several as _list
from .keys import text as _text
from .listeners import LISTENER_PREFIX, Listener, parse_protocol_map

_OF_LISTENERS: Final = ("sasl.", "ssl.", "connections.max.reauth.ms")

_BROKER = Update.PER_BROKER


class SaslSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How clients and other nodes authenticate. Durations in ms unless the name says otherwise."""

    enabled_mechanisms: Annotated[
        tuple[str, ...],
        _list(
            "sasl.enabled.mechanisms",
            "The mechanisms of SASL listeners: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Kerberos "
            "(GSSAPI), which is Kafka's default, is not supported.",
            update=_BROKER,
        ),
    ] = ("GSSAPI",)
    jaas_config: Annotated[
        str | None,
        Key(
            "sasl.jaas.config",
            Kind.PASSWORD,
            "The login module of a listener and mechanism, in the form of Java's JAAS, with the prefix "
            "listener.name.<listener>.<mechanism>. in lower case: the users of PLAIN, and the user that "
            "this node has on other nodes.",
            update=_BROKER,
        ),
    ] = None
    mechanism_inter_broker: Annotated[
        str,
        Key(
            "sasl.mechanism.inter.broker.protocol",
            Kind.STRING,
            "The mechanism by which this broker authenticates with other brokers: PLAIN or SCRAM.",
            update=_BROKER,
        ),
    ] = "GSSAPI"
    mechanism_controller: Annotated[
        str,
        _text(
            "sasl.mechanism.controller.protocol",
            "The mechanism by which this node authenticates with controllers: PLAIN. Credentials of SCRAM "
            "are in the metadata log, which controllers must agree on first.",
        ),
    ] = "GSSAPI"
    server_receive_bytes_max: Annotated[
        int,
        _int(
            "sasl.server.max.receive.size",
            "The maximum size of a request before the session has authenticated. A larger one closes the "
            "connection.",
        ),
    ] = 524_288
    connections_max_reauth_ms: Annotated[
        int,
        _long(
            "connections.max.reauth.ms",
            "The time after which a session must authenticate again, or is closed at its next request "
            "(KIP-368). The session also ends with its token. 0 or less means no limit.",
        ),
    ] = 0
    failed_authentication_delay_ms: Annotated[
        int,
        _int(
            "connection.failed.authentication.delay.ms",
            "The response to a failed authentication, and the close of the connection, are delayed by this "
            "time.",
            0,
        ),
    ] = 100
    clock_skew_seconds: Annotated[
        int,
        _int(
            "sasl.oauthbearer.clock.skew.seconds",
            "The permitted difference between the clocks of the identity provider and the broker.",
        ),
    ] = 30
    expected_audience: Annotated[
        tuple[str, ...],
        _list("sasl.oauthbearer.expected.audience", "A token must name one of these audiences. Empty: any."),
    ] = ()
    expected_issuer: Annotated[
        str | None,
        _text("sasl.oauthbearer.expected.issuer", "A token must name this issuer. When not set, any."),
    ] = None
    jwks_refresh_ms: Annotated[
        int,
        _long(
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "The age at which the keys of the identity provider are read again, with the next token.",
        ),
    ] = 3_600_000
    jwks_retry_backoff_ms_max: Annotated[
        int,
        _long(
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "The maximum pause before the keys are read again after a failure.",
        ),
    ] = 10_000
    jwks_retry_backoff_ms: Annotated[
        int,
        _long(
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "The first pause before the keys are read again after a failure.",
        ),
    ] = 100
    jwks_url: Annotated[
        str | None,
        _text(
            "sasl.oauthbearer.jwks.endpoint.url",
            "The URL of the keys of the identity provider (JWKS): file:///..., or https://... that "
            "sparklog.sasl.oauthbearer.allowed.urls has. OAUTHBEARER needs it.",
        ),
    ] = None
    scope_claim_name: Annotated[
        str, _text("sasl.oauthbearer.scope.claim.name", "The claim of a token that holds its scope.")
    ] = "scope"
    sub_claim_name: Annotated[
        str, _text("sasl.oauthbearer.sub.claim.name", "The claim of a token that becomes the user name.")
    ] = "sub"
    allowed_urls: Annotated[
        tuple[str, ...],
        _list(
            "sparklog.sasl.oauthbearer.allowed.urls",
            "The URLs that this node may request for OAUTHBEARER, each in full. Kafka has the system "
            "property org.apache.kafka.sasl.oauthbearer.allowed.urls.",
        ),
    ] = ()
    groups_claim_name: Annotated[
        str | None,
        _text(
            "sparklog.sasl.oauthbearer.groups.claim.name",
            "The claim of a token that lists the groups of the user, which access rules name as Group:name. "
            "When not set, none.",
        ),
    ] = None
    token_secret_key: Annotated[
        str | None,
        Key(
            "delegation.token.secret.key",
            Kind.PASSWORD,
            "The secret from which the passwords of delegation tokens are computed, the same on every node. "
            "When not set, there are no delegation tokens.",
        ),
    ] = None
    token_max_lifetime_ms: Annotated[
        int,
        _long(
            "delegation.token.max.lifetime.ms",
            "The maximum lifetime of a delegation token, which no renewal extends.",
            1,
        ),
    ] = 604_800_000
    token_expiry_time_ms: Annotated[
        int,
        _long(
            "delegation.token.expiry.time.ms",
            "The time for which a delegation token is valid after it was created or renewed.",
            1,
        ),
    ] = 86_400_000
    tokens_max: Annotated[
        int,
        _int("sparklog.delegation.tokens.max", "The maximum number of delegation tokens in the cluster.", 1),
    ] = 20_000
    tokens_per_owner_max: Annotated[
        int,
        _int(
            "sparklog.delegation.tokens.per.owner.max",
            "The maximum number of delegation tokens of one owner. A stream of Spark with "
            "kafka.sasl.token.mechanism has up to 150 by default.",
            1,
        ),
    ] = 5_000
    token_expiry_check_interval_ms: Annotated[
        int,
        _long(
            "delegation.token.expiry.check.interval.ms",
            "The interval in which the controller removes expired delegation tokens.",
            1,
        ),
    ] = 3_600_000


def key_of_listener(name: str, keys: Mapping[str, tuple[str, Key]]) -> Key | None:
    """The key of `listener.name.x.…`, of those that may be given for a listener; None for any other name."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    parts = name.split(".")
    for first in range(3, len(parts)):
        plain = ".".join(parts[first:])
        if plain in keys and plain.startswith(_OF_LISTENERS):
            return msgspec.structs.replace(keys[plain][1], name=name)
    return None


def text_for(text: Callable[[str], str | None], listener: str, mechanism: str | None, key: str) -> str | None:
    """The value that a key has for a mechanism of a listener, or for the listener; None if it has none of its
    own. `text` looks one name up.
    """
    own = f"{LISTENER_PREFIX}{listener.lower()}."
    names = [f"{own}{key}"] if mechanism is None else [f"{own}{mechanism.lower()}.{key}", f"{own}{key}"]
    return next((found for name in names if (found := text(name)) is not None), None)


class _Listening(Protocol):
    """The settings that name listeners."""

    @property
    def listeners(self) -> tuple[Listener, ...]: ...
    @property
    def controller_listener_names(self) -> tuple[str, ...]: ...
    @property
    def inter_broker_listener_name(self) -> str: ...
    @property
    def listener_security_protocol_map(self) -> str: ...


def uses_sasl(settings: _Listening) -> bool:
    """Whether a listener of this node, or one of other nodes that it connects to, authenticates by SASL."""
    protocols = parse_protocol_map(settings.listener_security_protocol_map)
    reached = (settings.inter_broker_listener_name, *settings.controller_listener_names)
    return any(one.protocol.startswith("SASL_") for one in settings.listeners) or any(
        protocols.get(name, "").startswith("SASL_") for name in reached
    )
