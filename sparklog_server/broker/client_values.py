"""The metrics that clients have pushed, as /metrics shows them: bounded by client and in all, and gone when
their client has been silent.
"""

from collections import Counter
from collections.abc import Sequence
from math import isfinite
from typing import Final

from sparklog.model import Instant, Micros, Uuid
from sparklog_server.broker.pushed_metrics import LABELS_BYTES_MAX, Point
from sparklog_server.config.http_settings import TelemetrySettings

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
