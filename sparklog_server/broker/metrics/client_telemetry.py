"""The clients that push their metrics (KIP-714): which metrics they are asked for, and when.

    GetTelemetrySubscriptions ─► instance ─► id of the subscription ─► PushTelemetry, once in an interval
                                    │
         a change of a subscription ┴► another id: UNKNOWN_SUBSCRIPTION_ID, and the client asks again

As in Kafka, an instance ends with the connection that began it, and after a silence of three intervals. It is
soft state: a client whose broker has forgotten its instance, or which asks another broker, keeps its id.

`ShownClients` are the pushed metrics as /metrics shows them: bounded for each client and in total, and
dropped when their client has been silent.
"""

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Final, NamedTuple

from crc32c import crc32c

from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID, Instant, Micros, Uuid
from sparklog.record.compression import Codec
from sparklog.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from sparklog.wire.messages.push_telemetry import PushTelemetryRequest
from sparklog_server.broker.metrics.pushed_metrics import LABELS_BYTES_MAX, Point, Pushed
from sparklog_server.broker.session import SOFTWARE_CHARS_MAX, Call
from sparklog_server.config.client_metrics import DEFAULTS, Subscription, subscription_of
from sparklog_server.config.http_settings import TelemetrySettings
from sparklog_server.controller.resources import CLIENT_METRICS_RESOURCE
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metrics_text import escaped

INSTANCES_MAX: Final = 1_024
"""Beyond, the instance that was used least recently is forgotten: it may then ask and push early once."""
INSTANCE_BYTES: Final = 3_400
"""With a client id whose characters have four bytes."""
SILENCE_MIN_US: Final = 60_000_000
ALL: Final = "*"
RESERVED: Final = frozenset((ZERO_UUID, Uuid(bytes(15) + b"\x01")))
ACCEPTED: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""In the order of preference."""
_CODECS: Final = frozenset(Codec)
_GET_AGAIN: Final = frozenset((ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))
"""After these errors of a push, the client asks for its subscription at once."""
_NEVER_US: Final = -1 << 62
_Key = tuple[int, str]


class Requested(NamedTuple):
    """What one client is asked for: the union of the subscriptions that mean it."""

    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int


class ClientInstance:
    """A client, in the table of its broker until the connection that began it is closed."""

    __slots__ = (
        "attributes",
        "expires_us",
        "got_us",
        "id",
        "is_terminating",
        "labels",
        "last_error",
        "pushed_us",
        "requested",
        "table",
        "version",
    )

    def __init__(
        self,
        instance_id: Uuid,
        client_id: str,
        attributes: Mapping[str, str | None],
        table: "dict[Uuid, ClientInstance]",
    ) -> None:
        self.id = instance_id
        self.table = table
        self.attributes = attributes
        self.labels = (
            f'client_id="{escaped(client_id)}",client_instance_id="{attributes["client_instance_id"]}"'
        )
        self.expires_us = Micros(0)
        self.version = -1

    def end(self) -> None:
        """Its connection is closed."""
        if self.table.get(self.id) is self:
            del self.table[self.id]

    def begin(self, requested: Requested, version: int) -> None:
        """Begin with a subscription."""
        self.requested = requested
        self.version = version
        self.got_us = self.pushed_us = _NEVER_US
        self.is_terminating = False
        self.last_error = ErrorCode.NONE

    def may_get(self, now: Instant) -> bool:
        """Whether an interval has passed since its last request; notes this one if so."""
        if now.mono_us - max(self.got_us, self.pushed_us) < self.requested.interval_ms * 1000:
            return False
        self.got_us = now.mono_us
        return True

    def may_push(self, now: Instant) -> bool:
        """Whether it may push: once after it has asked for its subscription, and then once in an interval."""
        is_early = now.mono_us - self.pushed_us < self.requested.interval_ms * 1000
        if is_early and self.got_us <= self.pushed_us:
            return False
        self.pushed_us = now.mono_us
        return True


class ClientTelemetry:
    """The instances, the subscriptions of the image that was last seen, and the values that are shown."""

    def __init__(self, settings: TelemetrySettings, entropy: Callable[[int], bytes]) -> None:
        self._settings = settings
        self._entropy = entropy
        self._instances: dict[Uuid, ClientInstance] = {}  # the one that was used last is at the end
        self._configs: Mapping[_Key, Mapping[str, str]] | None = None
        self._texts: dict[_Key, Mapping[str, str]] = {}
        self._subscriptions: list[Subscription] = []
        self._version = 0
        self.shown = ShownClients(settings)
        self.pushes: Counter[str] = Counter()
        """Pushes by the name of their error code."""

    def instances(self, now: Instant) -> int:
        """How many clients the broker knows; forgets those that have been silent for longest."""
        while self._instances:
            instance = next(iter(self._instances.values()))
            if instance.expires_us > now.mono_us:
                break
            instance.end()
        return len(self._instances)

    def subscription(
        self, instance_id: Uuid, call: Call, image: MetadataImage, now: Instant
    ) -> GetTelemetrySubscriptionsResponse:
        """What this client is asked for."""
        if instance_id == ZERO_UUID:
            instance_id = self._new_id()
        instance = self._instance(instance_id, call, image, now)
        if not instance.may_get(now) and instance.last_error not in _GET_AGAIN:
            return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        requested = instance.requested
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=requested.subscription_id,
            accepted_compression_types=list(ACCEPTED),
            push_interval_ms=requested.interval_ms,
            telemetry_max_bytes=self._settings.max_bytes,
            delta_temporality=True,
            requested_metrics=list(requested.metrics),
        )

    def begin_push(
        self, request: PushTelemetryRequest, call: Call, image: MetadataImage, now: Instant
    ) -> ClientInstance | ErrorCode:
        """The client of a push that is accepted; else the error."""
        instance_id = Uuid(request.client_instance_id)
        if instance_id in RESERVED:
            return ErrorCode.INVALID_REQUEST
        instance = self._instance(instance_id, call, image, now)
        error = self._refusal(request, instance, now)
        instance.is_terminating = request.terminating
        instance.last_error = error
        return error or instance

    def end_push(self, instance: ClientInstance, pushed: Pushed | None, now: Instant) -> ErrorCode:
        """Show what was pushed; None is content that is invalid."""
        if pushed is None:
            instance.last_error = ErrorCode.INVALID_RECORD
            return ErrorCode.INVALID_RECORD
        self.shown.dropped.update(pushed.dropped)
        self.shown.taken(instance.id, instance.labels, pushed.points, _silent_at(instance, now), now)
        return ErrorCode.NONE

    def _refusal(self, request: PushTelemetryRequest, instance: ClientInstance, now: Instant) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.INVALID_REQUEST
        if not instance.may_push(now) and not request.terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != instance.requested.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if request.compression_type not in _CODECS:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics) > self._settings.max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    # -- instances

    def _instance(self, instance_id: Uuid, call: Call, image: MetadataImage, now: Instant) -> ClientInstance:
        """The instance of that id, with the subscriptions of the image."""
        self._follow(image)
        instance = self._instances.pop(instance_id, None)
        if instance is None or instance.expires_us <= now.mono_us:
            instance = ClientInstance(
                instance_id, call.client_id or "", _attributes(instance_id, call), self._instances
            )
            call.session.telemetry = instance
        if instance.version != self._version:
            instance.begin(self._requested(instance), self._version)
        instance.expires_us = _silent_at(instance, now)
        if len(self._instances) >= INSTANCES_MAX:
            del self._instances[next(iter(self._instances))]
        self._instances[instance_id] = instance
        return instance

    def _new_id(self) -> Uuid:
        """A random UUID of version 4, which Kafka's tools take for no option: its text has no - in front."""
        while True:
            drawn = bytearray(self._entropy(16))
            drawn[6] = drawn[6] & 0x0F | 0x40
            drawn[8] = drawn[8] & 0x3F | 0x80
            if not _text(Uuid(bytes(drawn))).startswith("-") and bytes(drawn) not in self._instances:
                return Uuid(bytes(drawn))

    # -- subscriptions

    def _follow(self, image: MetadataImage) -> None:
        """Take the subscriptions of an image that has other settings than the last one."""
        if image.configs is self._configs:
            return
        self._configs = image.configs
        texts = {key: given for key, given in image.configs.items() if key[0] == CLIENT_METRICS_RESOURCE}
        if texts != self._texts:
            self._texts = texts
            valid = (subscription_of(given) for given in texts.values())
            self._subscriptions = [one for one in valid if one is not None]
            self._version += 1

    def _requested(self, instance: ClientInstance) -> Requested:
        metrics: set[str] = set()
        interval_ms = int(DEFAULTS["interval.ms"])
        for one in self._subscriptions:
            if one.matches(instance.attributes):
                metrics.update(one.metrics)
                interval_ms = min(interval_ms, one.interval_ms)
        named = (ALL,) if ALL in metrics else tuple(sorted(metrics))
        return Requested(named, interval_ms, _subscription_id(named, interval_ms, instance.id))


def _silent_at(instance: ClientInstance, now: Instant) -> Micros:
    return Micros(now.mono_us + max(SILENCE_MIN_US, 3_000 * instance.requested.interval_ms))


def _subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: Uuid) -> int:
    """As in Kafka, from a CRC over the names and the interval, and Java's hash of the id."""
    crc = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    for begin in range(0, 16, 4):
        crc ^= int.from_bytes(instance_id[begin : begin + 4], "big")
    return crc - (1 << 32) if crc >> 31 else crc


def _attributes(instance_id: Uuid, call: Call) -> dict[str, str | None]:
    """What a pattern of a subscription may match; of a longer client id, its beginning."""
    software_name, software_version = call.session.software
    return {
        "client_instance_id": _text(instance_id),
        "client_id": None if call.client_id is None else call.client_id[:SOFTWARE_CHARS_MAX],
        "client_software_name": software_name,
        "client_software_version": software_version,
        "client_source_address": call.session.host,
        "client_source_port": call.session.peer_address.rpartition(":")[2],
    }


def _text(instance_id: Uuid) -> str:
    return urlsafe_b64encode(instance_id).decode().rstrip("=")


SERIES_BYTES: Final = LABELS_BYTES_MAX + 160
"""The memory of one series."""


class ClientValues:
    """The values of one client instance by the text of their labels; gone at `expires_us`."""

    __slots__ = ("expires_us", "gauges", "labels", "totals")

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.expires_us = Micros(0)
        self.totals: dict[bytes, float] = {}
        self.gauges: dict[bytes, float] = {}

    @property
    def size(self) -> int:
        """The number of series."""
        return len(self.totals) + len(self.gauges)


class ShownClients:
    """The values of all clients by instance; `dropped` counts the points that are not shown, by reason.

    Invariant: `series` is the sum of the sizes.
    """

    def __init__(self, settings: TelemetrySettings) -> None:
        self._settings = settings
        self._by_instance: dict[Uuid, ClientValues] = {}
        self.series = 0
        self.dropped: Counter[str] = Counter()

    def taken(
        self, instance: Uuid, labels: str, points: Sequence[Point], expires_us: Micros, now: Instant
    ) -> None:
        """Take the points of a push; new series only while there is room."""
        settings = self._settings
        if len(self._by_instance) >= settings.clients_max or self.series >= settings.series_max:
            self.current(now)  # without scrapes, those that are silent are still there
        values = self._by_instance.get(instance)
        if values is None:
            if len(self._by_instance) >= settings.clients_max:
                self.dropped["clients"] += len(points)
                return
            values = self._by_instance[instance] = ClientValues(labels)
        values.expires_us = expires_us
        for point in points:
            series = values.totals if point.is_total else values.gauges
            before = series.get(point.labels)
            if before is None:
                if values.size >= settings.client_series_max:
                    self.dropped["client"] += 1
                    continue
                if self.series >= settings.series_max:
                    self.dropped["series"] += 1
                    continue
                self.series += 1
            value = point.value
            if point.is_delta and before is not None and isfinite(before + value):
                value += before  # beyond what a float holds, the sum begins anew
            series[point.labels] = value

    def current(self, now: Instant) -> list[ClientValues]:
        """The clients that are shown; those that have been silent are dropped."""
        for instance, values in list(self._by_instance.items()):
            if values.expires_us <= now.mono_us:
                del self._by_instance[instance]
                self.series -= values.size
        return list(self._by_instance.values())
