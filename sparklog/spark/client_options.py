"""The client of a query: its settings from the `kafka.*` options; `task_clients` has those of its tasks."""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from sparklog.client.settings import MEMBERS_ONLY, AdminOptions, ClientSettings, warn_without_effect
from sparklog.errors import SettingsError

CLIENT_PREFIX: Final = "kafka."
TOKEN_MECHANISM: Final = "kafka.sasl.token.mechanism"  # noqa: S105 - the name of an option
"""Spark's Kafka connector has `spark.kafka.clusters.<name>.sasl.token.mechanism`."""

_CONNECTION: Final = "max_in_flight_requests_per_connection"
OF_READS: Final = frozenset(
    {"check_crcs", "client_rack", "fetch_max_wait_ms", "isolation_level", _CONNECTION}
)
OF_WRITES: Final = frozenset(
    {
        *("acks", "buffer_memory", "compression_gzip_level", "compression_lz4_level", "compression_type"),
        *("compression_zstd_level", "delivery_timeout_ms", "enable_idempotence", "max_block_ms"),
        *(_CONNECTION, "max_request_size", "transaction_timeout_ms"),
        "transactional_id",  # writes refuse it, with the reason
    }
)
"""The settings of consumers that reads use, and those of producers that writes use. Both use all settings
that every client has.
"""

_NO_BROKERS: Final = (
    "option 'kafka.bootstrap.servers' is missing, as host:port,host:port. Only a table created without "
    "columns stores its OPTIONS, and a stream that writes into a table does not read them: set the option at "
    "each use, FROM name WITH (…) or .options(…), and replace AS SELECT by INSERT INTO such a table"
)


class TokenMechanism(Enum):
    """The mechanisms that authenticate by a delegation token."""

    SCRAM_SHA_256 = "scram-sha-256"
    SCRAM_SHA_512 = "scram-sha-512"


def without_effect(settings: ClientSettings, used: frozenset[str]) -> list[str]:
    """The settings with another value than their default that neither every client nor one that uses these
    settings uses.
    """
    used |= AdminOptions.__annotations__.keys()
    defaults = zip(settings.__struct_fields__, settings.__struct_defaults__, strict=True)
    return [name for name, default in defaults if name not in used and getattr(settings, name) != default]


def client_settings(given: Mapping[str, str], servers: object, *, is_by_token: bool) -> ClientSettings:
    """The settings of a query's client from its `kafka.*` options; raises SettingsError."""
    if servers is None:
        raise SettingsError(_NO_BROKERS)
    client = {"bootstrap.servers": str(servers)}
    for key, value in given.items():
        name = key.removeprefix(CLIENT_PREFIX)
        if name in MEMBERS_ONLY:
            warn_without_effect(name)  # a query stores its own offsets and joins no group
        else:
            client[name] = value
    try:
        settings = ClientSettings.from_kafka(client)
    except SettingsError as error:
        raise SettingsError(f"among the kafka.* options: {error}") from None
    if is_by_token and not settings.security_protocol.startswith("SASL_"):
        raise SettingsError(
            f"option {TOKEN_MECHANISM!r} needs kafka.security.protocol=SASL_SSL: a delegation token "
            f"authenticates by SASL"
        )
    return settings
