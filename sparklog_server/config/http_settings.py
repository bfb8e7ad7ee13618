"""Parts of `settings`, of what operators see: each field is the definition of a broker key."""

from collections.abc import Callable, Iterable
from typing import Annotated, Final

import msgspec

from sparklog.errors import SettingsError

from .keys import Key, Kind, Update, invalid
from .keys import integer as _int
from .keys import long as _long
from .keys import text as _text
from .listeners import Listener, parse_listeners

LISTENER_KEY: Final = "sparklog.http.listener"
OTLP_KEY: Final = "sparklog.otlp.endpoint"
_ENDPOINT_FORM: Final = "it is written http://HOST:PORT or https://HOST:PORT, without a user or a query"
LISTENER_NAME: Final = "HTTP"
"""The name by which keys such as `listener.name.http.ssl.keystore.location` mean the HTTP listener."""
_PROTOCOLS: Final = {"HTTP": "PLAINTEXT", "HTTPS": "SSL"}


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP listener and the bounds of its metrics."""

    listener: Annotated[
        str | None,
        _text(
            LISTENER_KEY,
            "The address that serves /metrics, /healthz and /readyz, as http://HOST:PORT or "
            "https://HOST:PORT. With port 0, the system chooses a port. An address that other machines reach "
            "needs https, and /metrics then asks for a user of the cluster. When not set, nothing is served.",
        ),
    ] = None
    metrics_topics_max: Annotated[
        int,
        _int(
            "sparklog.metrics.topics.max",
            "The maximum number of topics with series of their own. The others are summed under "
            'topic="(others)" until they leave the node.',
            0,
        ),
    ] = 1_000
    metrics_partitions_max: Annotated[
        int,
        _int(
            "sparklog.metrics.partitions.max",
            "The maximum number of partitions with series of their own. Those of further topics are summed "
            'under topic="(others)".',
            0,
        ),
    ] = 10_000
    metrics_groups_max: Annotated[
        int,
        _int(
            "sparklog.metrics.groups.max",
            "The maximum number of groups with series of their own on each coordinator. The others are "
            'summed under consumergroup="(others)".',
            0,
        ),
    ] = 1_000


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics that clients push (KIP-714), and traces of requests."""

    max_bytes: Annotated[
        int,
        _int(
            "telemetry.max.bytes",
            "The maximum size of the metrics that a client pushes at once, as sent and decompressed.",
            1,
        ),
    ] = 1_048_576
    clients_max: Annotated[
        int,
        _int(
            "sparklog.telemetry.clients.max",
            "The maximum number of clients whose pushed metrics are shown.",
            0,
            10_000,
        ),
    ] = 1_000
    client_series_max: Annotated[
        int,
        _int(
            "sparklog.telemetry.client.series.max",
            "The maximum number of series that one client may push.",
            0,
            2_000,
        ),
    ] = 500
    series_max: Annotated[
        int,
        _int(
            "sparklog.telemetry.series.max",
            "The maximum number of series that all clients together may push.",
            0,
            100_000,
        ),
    ] = 5_000
    otlp_endpoint: Annotated[
        str | None,
        _text(
            OTLP_KEY,
            "The collector of OpenTelemetry that spans of sampled requests are sent to, as http://HOST:PORT "
            "or https://HOST:PORT; /v1/traces is added. The system must trust the certificate of https. "
            "When not set, no request is sampled. Needs the package opentelemetry-proto.",
        ),
    ] = None
    otlp_sample_ratio: Annotated[
        float,
        Key(
            "sparklog.otlp.sample.ratio",
            Kind.DOUBLE,
            "The part of the requests of which spans are sent.",
            0,
            1,
        ),
    ] = 0.01


class Collector(msgspec.Struct, frozen=True):
    """Where spans are sent to."""

    host: str
    port: int
    path: str
    is_encrypted: bool


def collector_of(settings: TelemetrySettings) -> Collector | None:
    """The collector of the settings; None without one. Raises SettingsError."""
    endpoint = settings.otlp_endpoint
    if endpoint is None:
        return None
    from urllib.parse import urlsplit  # most nodes have no collector

    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError:
        raise invalid(OTLP_KEY, endpoint, _ENDPOINT_FORM) from None
    is_plain = endpoint.isascii() and endpoint.isprintable() and " " not in endpoint
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise invalid(OTLP_KEY, endpoint, _ENDPOINT_FORM)
    if parts.username is not None or parts.query or parts.fragment:
        raise invalid(OTLP_KEY, endpoint, _ENDPOINT_FORM)
    is_encrypted = parts.scheme == "https"
    path = f"{parts.path.rstrip('/')}/v1/traces"
    return Collector(parts.hostname, port or (443 if is_encrypted else 80), path, is_encrypted)


class LineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of the broker's log."""

    format: Annotated[
        str,
        Key(
            "sparklog.log.format",
            Kind.STRING,
            "The form of the log on standard error: lines of text, or JSON, one object per line.",
            choices=("text", "json"),
        ),
    ] = "text"
    slow_request_ms: Annotated[
        int,
        _long(
            "sparklog.slow.request.ms",
            "A request that takes at least this long is a line of the log, with the parts of its time. The "
            "time that a Fetch asks to wait does not count. 0 means none.",
            0,
            update=Update.PER_BROKER,
        ),
    ] = 0


def http_listener_of(
    settings: HttpSettings, listeners: tuple[Listener, ...], *, is_insecure_allowed: bool
) -> Listener | None:
    """The HTTP listener beside these; None if there is none. Raises SettingsError."""
    if settings.listener is None:
        return None
    try:
        (told,) = parse_listeners(LISTENER_KEY, (settings.listener,), dict(_PROTOCOLS))
    except SettingsError:
        raise invalid(
            LISTENER_KEY, settings.listener, "it is written http://HOST:PORT or https://HOST:PORT"
        ) from None
    if any(one.name == LISTENER_NAME for one in listeners):
        raise SettingsError(f"the listener name {LISTENER_NAME} is that of {LISTENER_KEY}: choose another")
    host = told.host or "0.0.0.0"  # noqa: S104 - refused below
    listener = Listener(LISTENER_NAME, host, told.port, told.protocol)
    if not (listener.is_loopback or listener.is_encrypted or is_insecure_allowed):
        raise SettingsError(
            f"{LISTENER_KEY}={settings.listener} shows the metrics to all who can reach this machine: use "
            f"https://, or listen on 127.0.0.1, or start with --insecure if the network itself is trusted"
        )
    return listener


def of_node(assignments: Iterable[str], index: int, reserve: Callable[[int], int]) -> list[str]:
    """The assignment of the HTTP listener for the node at `index` of several on one machine, which all have
    these assignments: the port goes up from node to node. `reserve` reserves a port, or a free one for 0.
    """
    told = [one.partition("=")[2] for one in assignments if one.partition("=")[0].strip() == LISTENER_KEY]
    if not told:
        return []
    address, _, port = told[-1].strip().rpartition(":")
    if not port.isdigit():
        return []  # refused with the other settings
    return [f"{LISTENER_KEY}={address}:{reserve(int(port) and int(port) + index)}"]
