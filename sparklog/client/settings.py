"""Every setting of a client, under Kafka's names: a field of `ClientSettings` defines its type, default and
bounds.

`linger.ms` in a mapping (Spark's `kafka.*` options without the prefix) is `linger_ms` as a keyword
argument. The three option dictionaries list the settings of each role. Keys of Kafka's clients that have
no effect here warn once; unknown keys are errors that name the nearest known key.
"""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self, TypedDict, get_args, get_origin

import msgspec
from msgspec import Meta

from sparklog.durations import iso_duration_ms
from sparklog.errors import SettingsError
from sparklog.tls.keys import PROTOCOLS, TlsKeys, check_store_type

if TYPE_CHECKING:
    from sparklog.client.sasl.grants import AssertionKeys

_LZ4_FAST: Final = 9
"""Kafka's default for lz4, which means the fast compressor and not the level 9 of the thorough one."""
INT32_MAX: Final = (1 << 31) - 1

Count = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INT32_MAX)]
LongMillis = Annotated[int, Meta(ge=0, le=(1 << 63) // 1000 - 1)]
SocketBytes = Annotated[int, Meta(ge=-1, le=INT32_MAX)]

CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
OffsetReset = str
"""What to do without a position: `earliest`, `latest`, `none`, or `by_duration:PT1H30M` to go back by that
long (KIP-1106).
"""
GroupProtocol = Literal["classic", "consumer"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
ISOLATION_LEVELS: Final[Mapping[IsolationLevel, int]] = {"read_uncommitted": 0, "read_committed": 1}

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
TokenCallback = Callable[[], str | tuple[str, float]]
"""Returns a token of OAUTHBEARER, or the token and the time at which it ends, in seconds since 1970."""

_WITHOUT_EFFECT = """
auto.include.jmx.reporter bootstrap.controllers client.dns.lookup config.providers
default.list.key.serde.inner default.list.key.serde.type default.list.value.serde.inner
default.list.value.serde.type enable.metrics.push interceptor.classes key.deserializer key.serializer
metadata.max.idle.ms metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
rebalance.timeout.ms sasl.client.callback.handler.class sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
security.providers share.acknowledgement.mode share.acquire.mode ssl.engine.factory.class
ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm transaction.two.phase.commit.enable value.deserializer value.serializer
"""
WITHOUT_EFFECT: Final = frozenset(_WITHOUT_EFFECT.split())
"""Keys that Kafka's clients know and that change nothing here."""
MEMBERS_ONLY: Final = frozenset(
    {
        *(
            "group.id",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "partition.assignment.strategy",
        ),
        *(
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
            "enable.auto.commit",
            "auto.commit.interval.ms",
        ),
    }
)
"""Keys that change something only for who joins a group."""

_warned: set[str] = set()


def has_no_effect(key: str) -> bool:
    """Whether the setting of that key changes nothing here; warns once."""
    if key not in WITHOUT_EFFECT and not key.startswith("metrics.context."):
        return False
    warn_without_effect(key)
    return True


def warn_without_effect(key: str) -> None:
    """Warn once for each setting of Kafka's clients that has no effect here."""
    if key not in _warned:
        _warned.add(key)
        warnings.warn(f"the setting {key} is known, but has no effect in sparklog", UserWarning, stacklevel=4)


class SecurityOptions(TypedDict, total=False):
    """Kafka's `security.protocol`, `ssl.*` and `sasl.*`."""

    security_protocol: SecurityProtocol
    ssl_keystore_type: str
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_key_password: str | None
    ssl_truststore_type: str
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    ssl_enabled_protocols: str | Sequence[str]
    ssl_cipher_suites: str | Sequence[str]
    ssl_endpoint_identification_algorithm: str
    sparklog_ssl_crl_location: str | None
    sasl_mechanism: str
    sasl_jaas_config: str
    sasl_username: str
    sasl_password: str
    sasl_oauthbearer_token_callback: TokenCallback
    sasl_oauthbearer_token_endpoint_url: str
    sasl_oauthbearer_scope: str
    sasl_oauthbearer_client_credentials_client_id: str
    sasl_oauthbearer_client_credentials_client_secret: str
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_jwt_retriever_class: str
    sasl_oauthbearer_assertion_file: str
    sasl_oauthbearer_assertion_algorithm: str
    sasl_oauthbearer_assertion_private_key_file: str
    sasl_oauthbearer_assertion_private_key_passphrase: str
    sasl_oauthbearer_assertion_template_file: str
    sasl_oauthbearer_assertion_claim_aud: str
    sasl_oauthbearer_assertion_claim_iss: str
    sasl_oauthbearer_assertion_claim_sub: str
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_login_connect_timeout_ms: int
    sasl_login_read_timeout_ms: int


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that have an effect; milliseconds and bytes. Defaults are those of Kafka 4.3, except for
    `batch.size`.
    """

    # every role
    bootstrap_servers: tuple[str, ...] = ("127.0.0.1:9092",)
    client_id: str = "sparklog"
    request_timeout_ms: Count = 30_000
    default_api_timeout_ms: Count = 60_000
    reconnect_backoff_ms: Count = 50
    reconnect_backoff_max_ms: Count = 1_000
    retry_backoff_ms: Count = 100
    retry_backoff_max_ms: Count = 1_000
    metadata_max_age_ms: LongMillis = 300_000
    metadata_recovery_strategy: Literal["rebootstrap", "none"] = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: Count = 300_000
    socket_connection_setup_timeout_ms: Positive = 10_000
    socket_connection_setup_timeout_max_ms: Positive = 30_000
    connections_max_idle_ms: LongMillis = 540_000
    send_buffer_bytes: SocketBytes = -1
    receive_buffer_bytes: SocketBytes = -1
    """-1 leaves the size to the system, whose own tuning beats Kafka's fixed defaults."""
    retries: Count = INT32_MAX
    security_protocol: SecurityProtocol = "PLAINTEXT"
    ssl_keystore_type: str = "JKS"
    ssl_keystore_location: str | None = None
    ssl_keystore_password: str | None = None
    ssl_keystore_certificate_chain: str | None = None
    ssl_keystore_key: str | None = None
    ssl_key_password: str | None = None
    ssl_truststore_type: str = "JKS"
    ssl_truststore_location: str | None = None
    ssl_truststore_password: str | None = None
    ssl_truststore_certificates: str | None = None
    ssl_enabled_protocols: tuple[str, ...] = PROTOCOLS
    ssl_cipher_suites: tuple[str, ...] = ()
    ssl_endpoint_identification_algorithm: str = "https"
    sparklog_ssl_crl_location: str | None = None

    # SASL; `sasl/logins.py` makes a login of them
    sasl_mechanism: str = "GSSAPI"
    sasl_jaas_config: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = None
    sasl_oauthbearer_token_callback: TokenCallback | None = None
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: str | None = None
    sasl_oauthbearer_header_urlencode: bool = False
    sasl_oauthbearer_jwt_retriever_class: str = "DefaultJwtRetriever"
    sasl_oauthbearer_assertion_file: str | None = None
    sasl_oauthbearer_assertion_algorithm: str = "RS256"
    sasl_oauthbearer_assertion_private_key_file: str | None = None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = None
    sasl_oauthbearer_assertion_template_file: str | None = None
    sasl_oauthbearer_assertion_claim_aud: str | None = None
    sasl_oauthbearer_assertion_claim_iss: str | None = None
    sasl_oauthbearer_assertion_claim_sub: str | None = None
    sasl_oauthbearer_assertion_claim_exp_seconds: Annotated[int, Meta(ge=0, le=86_400)] = 300
    sasl_oauthbearer_assertion_claim_nbf_seconds: Annotated[int, Meta(ge=0, le=3_600)] = 60
    sasl_oauthbearer_assertion_claim_jti_include: bool = False
    sasl_login_connect_timeout_ms: Count = 10_000
    sasl_login_read_timeout_ms: Count = 10_000

    # producers
    acks: Literal["all", "-1", "0", "1"] = "all"
    enable_idempotence: bool = True
    max_in_flight_requests_per_connection: Positive = 5
    batch_size: Count = 262_144
    """Kafka's 16384 costs a factor of two at 100 bytes and of five at 1 KB (`benchmarks.client_paired`). A
    batch that its topic refuses as too large is sent in parts.
    """
    linger_ms: LongMillis = 5
    buffer_memory: LongMillis = 32 << 20
    max_block_ms: LongMillis = 60_000
    max_request_size: Count = 1 << 20
    delivery_timeout_ms: Count = 120_000
    compression_type: CompressionName = "none"
    compression_gzip_level: Annotated[int, Meta(ge=-1, le=9)] = -1
    compression_lz4_level: Annotated[int, Meta(ge=1, le=17)] = 9
    compression_zstd_level: Annotated[int, Meta(ge=-131_072, le=22)] = 3
    partitioner_ignore_keys: bool = False
    transactional_id: str | None = None
    transaction_timeout_ms: Positive = 60_000

    # consumers
    auto_offset_reset: OffsetReset = "latest"
    isolation_level: IsolationLevel = "read_uncommitted"
    allow_auto_create_topics: bool = False
    check_crcs: bool = True
    fetch_min_bytes: Count = 1
    fetch_max_wait_ms: Count = 500
    fetch_max_bytes: Count = 50 << 20
    max_partition_fetch_bytes: Count = 1 << 20
    max_poll_records: Positive = 500
    client_rack: str = ""
    exclude_internal_topics: bool = True

    # members of groups
    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: GroupProtocol = "classic"
    group_remote_assignor: str | None = None
    partition_assignment_strategy: tuple[str, ...] = ("range", "cooperative-sticky")
    session_timeout_ms: Positive = 45_000
    heartbeat_interval_ms: Positive = 3_000
    max_poll_interval_ms: Positive = 300_000
    enable_auto_commit: bool = True
    auto_commit_interval_ms: Count = 5_000

    def __repr__(self) -> str:
        given = ", ".join(
            f"{name}={'[hidden]' if is_secret(name) else repr(value)}"
            for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True)
            if (value := getattr(self, name)) != default
        )
        return f"ClientSettings({given})"

    @property
    def tls(self) -> TlsKeys:
        """The keys of TLS."""
        return TlsKeys(
            keystore_location=self.ssl_keystore_location or None,
            keystore_password=self.ssl_keystore_password or None,
            keystore_certificate_chain=self.ssl_keystore_certificate_chain or None,
            keystore_key=self.ssl_keystore_key or None,
            key_password=self.ssl_key_password or None,
            truststore_location=self.ssl_truststore_location or None,
            truststore_password=self.ssl_truststore_password or None,
            truststore_certificates=self.ssl_truststore_certificates or None,
            crl_location=self.sparklog_ssl_crl_location or None,
            enabled_protocols=self.ssl_enabled_protocols,
            cipher_suites=self.ssl_cipher_suites,
            endpoint_identification_algorithm=self.ssl_endpoint_identification_algorithm,
        )

    @property
    def assertion(self) -> "AssertionKeys":
        """The keys of assertions for the provider of tokens."""
        from sparklog.client.sasl.grants import AssertionKeys  # most clients use none

        prefix = "sasl_oauthbearer_assertion_"
        names = [name for name in self.__struct_fields__ if name.startswith(prefix)]
        return AssertionKeys.of({name.removeprefix(prefix): getattr(self, name) for name in names})

    @property
    def reset_duration_ms(self) -> int | None:
        """The duration of `auto.offset.reset=by_duration:…`; None for the other values."""
        return _duration_ms(self.auto_offset_reset)

    @property
    def batch_bytes_max(self) -> int:
        """The bytes of a batch before compression: a request can have it, so a record in it can be sent."""
        return min(self.batch_size, self.max_request_size)

    @property
    def required_acks(self) -> int:
        """0, 1, or -1 for all in-sync replicas, as in requests."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def compression_level(self) -> int | None:
        """The level of the selected codec; None is the codec's own default."""
        if self.compression_type == "gzip" and self.compression_gzip_level >= 0:
            return self.compression_gzip_level
        if self.compression_type == "lz4" and self.compression_lz4_level != _LZ4_FAST:
            return self.compression_lz4_level
        if self.compression_type == "zstd":
            return self.compression_zstd_level
        return None

    def without_group(self) -> Self:
        """These settings for a consumer that is in no group."""
        return msgspec.structs.replace(self, group_id=None)

    @classmethod
    def from_kafka(cls, mapping: Mapping[str, str]) -> Self:
        """Settings from Kafka's dotted keys and text values; SettingsError for an unknown key or an invalid
        value.
        """
        return cls._of(
            {key.replace(".", "_"): value for key, value in mapping.items() if not has_no_effect(key)}
        )

    @classmethod
    def for_role(cls, role: Literal["producer", "consumer", "admin"], given: Mapping[str, object]) -> Self:
        """Settings from the keyword arguments of a client, as `linger_ms` or, by `**`, as `linger.ms`."""
        taken = _ROLES[role].__annotations__
        kept: dict[str, object] = {}
        for given_name, value in given.items():
            name = given_name.replace(".", "_")
            if name not in taken and name in cls.__struct_fields__:
                raise SettingsError(f"{name} is not a setting of a {role}")
            if name in kept or (name != given_name and name in given):
                raise SettingsError(f"{given_name} is given twice, as {name} too")
            if not has_no_effect(name.replace("_", ".")):
                kept[name] = value
        return cls._of(kept)

    @classmethod
    def _of(cls, given: Mapping[str, object]) -> Self:
        values = dict(given)
        for name in values:
            if name not in cls.__struct_fields__:
                raise SettingsError(f"unknown setting {name.replace('_', '.')!r} ({name}); {_nearest(name)}")
        servers = values.get("bootstrap_servers")
        if servers is not None:
            values["bootstrap_servers"] = _servers(servers)
        for name in _LISTS:
            if values.get(name) is not None:
                values[name] = _listed(values[name])
        if "acks" in values:
            values["acks"] = str(values["acks"])
        settings = cls(**{name: _value(cls, name, value) for name, value in values.items()})  # type: ignore[arg-type]
        _check(settings, values)
        return settings


_LISTS: Final = ("partition_assignment_strategy", "ssl_enabled_protocols", "ssl_cipher_suites")


class CommonOptions(SecurityOptions, total=False):
    """Settings of every role."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    metadata_recovery_rebootstrap_trigger_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    retries: int


class AdminOptions(CommonOptions, total=False):
    """Settings of an Admin."""


class ProducerOptions(CommonOptions, total=False):
    """Settings of a Producer."""

    acks: Literal["all", "-1", "0", "1", -1, 0, 1]
    enable_idempotence: bool
    max_in_flight_requests_per_connection: int
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    delivery_timeout_ms: int
    compression_type: CompressionName
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    partitioner_ignore_keys: bool
    transactional_id: str | None
    transaction_timeout_ms: int


class ConsumerOptions(CommonOptions, total=False):
    """Settings of a Consumer."""

    auto_offset_reset: OffsetReset
    isolation_level: IsolationLevel
    allow_auto_create_topics: bool
    check_crcs: bool
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    client_rack: str
    exclude_internal_topics: bool
    group_id: str | None
    group_instance_id: str | None
    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    partition_assignment_strategy: str | Sequence[str]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int


_ROLES: Final = {"producer": ProducerOptions, "consumer": ConsumerOptions, "admin": AdminOptions}

_SECRET: Final = re.compile(r"password|passphrase|secret|jaas|keystore_key$|callback")


def is_secret(name: str) -> bool:
    """Whether the value of this field must not be shown."""
    return _SECRET.search(name.replace(".", "_")) is not None


def _value(cls: type[ClientSettings], name: str, value: object) -> object:
    """A value as the field's type, from that type or from text."""
    if name == "sasl_oauthbearer_token_callback":
        if not callable(value):
            raise SettingsError(
                "sasl.oauthbearer.token.callback must be a function: it can be given in Python only"
            )
        return value
    try:
        return msgspec.convert({name: value}, cls, strict=False).__getattribute__(name)
    except msgspec.ValidationError as error:
        shown = "[hidden]" if is_secret(name) else value
        raise SettingsError(
            f"{name.replace('_', '.')}={shown}: {_demand(cls.__annotations__[name], str(error))}"
        ) from None


def _demand(kind: object, refusal: str) -> str:
    """The requirement of a field, in words; `refusal` is the message of msgspec for a value that does not
    meet it.
    """
    if get_origin(kind) is Literal:
        words = get_args(kind)
        return f"must be {'one of ' if len(words) > 1 else ''}{', '.join(words)}"
    reason = refusal.partition(" - at")[0].partition(", got")[0].lower().replace("`", "")
    return reason.replace("expected int", "must be a whole number").replace(
        "expected bool", "must be true or false"
    )


def _listed(given: object) -> tuple[str, ...]:
    texts = given.split(",") if isinstance(given, str) else [str(one) for one in given]  # type: ignore[attr-defined]
    return tuple(text.strip() for text in texts if text.strip())


def _duration_ms(reset: str) -> int | None:
    """The milliseconds of an ISO 8601 duration of days, hours, minutes and seconds behind `by_duration:`."""
    if not reset.startswith("by_duration:"):
        return None
    duration = iso_duration_ms(reset.removeprefix("by_duration:"))
    if duration is None:
        raise SettingsError(f"auto.offset.reset={reset}: a duration is written like P1DT12H or PT90.5S")
    return duration


def _servers(given: object) -> tuple[str, ...]:
    servers = _listed(given)
    if not servers:
        raise SettingsError("bootstrap.servers is empty: name at least one broker as host:port")
    for server in servers:
        address_of(server)
    return servers


PORT_DEFAULT: Final = 9092
"""Kafka's port."""


def address_of(server: str) -> tuple[str, int]:
    """The host and port of `host:port`, `[v6]:port` or `PROTOCOL://host:port`; 9092 without a port.
    SettingsError for any other text.
    """
    address = server.rpartition("://")[2]
    if ":" not in address.rpartition("]")[2]:
        address = f"{address}:{PORT_DEFAULT}"
    host, _, port = address.rpartition(":")
    if not host.strip("[] ") or " " in host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise SettingsError(f"bootstrap.servers: {server!r} is not host:port")
    return host.strip("[]"), int(port)


def _check(settings: ClientSettings, given: Mapping[str, object]) -> None:
    """Check Kafka's rules between settings."""
    if settings.enable_idempotence and "enable_idempotence" in given:
        if settings.required_acks != -1:
            raise SettingsError(f"enable.idempotence=true needs acks=all, not acks={settings.acks}")
        if settings.max_in_flight_requests_per_connection > 5:
            raise SettingsError(
                "enable.idempotence=true allows max.in.flight.requests.per.connection of at most 5"
            )
        if settings.retries == 0:
            raise SettingsError("enable.idempotence=true needs retries")
    if (
        settings.delivery_timeout_ms < settings.linger_ms + settings.request_timeout_ms
        and "delivery_timeout_ms" in given
    ):
        raise SettingsError("delivery.timeout.ms must be at least linger.ms + request.timeout.ms")
    _check_transactions(settings)
    _check_group(settings, given)
    _check_security(settings)


def _check_security(settings: ClientSettings) -> None:
    if settings.security_protocol.startswith("SASL_"):
        from sparklog.client.sasl.logins import check_login  # most clients use none

        check_login(settings)
    for store_type in (settings.ssl_keystore_type, settings.ssl_truststore_type):
        check_store_type(store_type)
    settings.tls.check()


def _check_transactions(settings: ClientSettings) -> None:
    if settings.transactional_id is None:
        return
    if not settings.transactional_id:
        raise SettingsError(
            "transactional.id is empty: name the producer, or leave it out to write without transactions"
        )
    if (
        settings.required_acks != -1
        or not settings.enable_idempotence
        or settings.max_in_flight_requests_per_connection > 5
    ):
        raise SettingsError(
            f"transactional.id={settings.transactional_id} needs acks=all, enable.idempotence=true "
            "and max.in.flight.requests.per.connection of at most 5"
        )


def _check_group(settings: ClientSettings, given: Mapping[str, object]) -> None:
    reset = settings.auto_offset_reset
    if reset not in ("earliest", "latest", "none") and _duration_ms(reset) is None:
        raise SettingsError(
            f"auto.offset.reset={reset}: there are earliest, latest, none and by_duration:PT1H"
        )
    if settings.group_id == "":
        raise SettingsError("group.id is empty: name a group, or leave it out to read without one")
    if settings.group_instance_id == "":
        raise SettingsError("group.instance.id is empty: name the member, or leave it out")
    if settings.group_id is None and settings.enable_auto_commit and "enable_auto_commit" in given:
        raise SettingsError("enable.auto.commit=true needs a group.id to commit for")
    if settings.group_protocol == "consumer":
        for name in ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms"):
            if name in given:
                raise SettingsError(
                    f"{name.replace('_', '.')} is the broker's to set when group.protocol=consumer: leave it "
                    f"out"
                )
    elif settings.heartbeat_interval_ms >= settings.session_timeout_ms:
        raise SettingsError("heartbeat.interval.ms must be below session.timeout.ms")


def _nearest(name: str) -> str:
    import difflib

    known = [*ClientSettings.__struct_fields__, *(key.replace(".", "_") for key in sorted(WITHOUT_EFFECT))]
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0].replace('_', '.')}?" if near else "no client of Kafka has one like it"
