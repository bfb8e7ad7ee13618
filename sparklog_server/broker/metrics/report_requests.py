"""The metrics of requests: counts, and the parts of their time by API."""

from collections.abc import Iterator
from typing import Final

from sparklog.model import Instant
from sparklog.wire.api_keys import API_BY_KEY
from sparklog_server import metrics
from sparklog_server.broker.metrics.api_times import ApiTimes
from sparklog_server.broker.metrics.request_errors import RequestErrors
from sparklog_server.broker.metrics.request_times import RequestTimes
from sparklog_server.histogram import BUCKETS, Histogram, Window, merged, quantiles_us
from sparklog_server.metrics import QUANTILES
from sparklog_server.metrics_text import Text

WINDOW_US: Final = 300_000_000
"""The quantiles are those of the last five to ten minutes."""
_PARTS: Final = ("total", "queue", "local", "remote", "throttle", "send")


class RequestReport:
    """Invariant: `_windows` has one for each API and part that was reported."""

    def __init__(self, times: RequestTimes, errors: RequestErrors) -> None:
        self._times = times
        self._errors = errors
        self._windows: dict[tuple[str, str], Window] = {}

    def render(self, text: Text, now: Instant) -> Iterator[str]:
        """The counts, then each part of the time, then the histograms."""
        counted = [(times, _name_of(times)) for times in list(self._times.by_key.values())]
        yield text.several(
            metrics.REQUESTS, [((name, str(times.version)), times.count) for times, name in counted]
        )
        yield text.several(
            metrics.REQUEST_ERRORS,
            [
                ((API_BY_KEY[api_key].name, code.name), count)
                for (api_key, code), count in list(self._errors.counts.items())
            ],
        )
        by_name: dict[str, list[ApiTimes]] = {}
        for times, name in counted:
            by_name.setdefault(name, []).append(times)
        summed: list[tuple[str, str, list[int], int]] = []
        for part in _PARTS:
            rows = []
            for name, several in by_name.items():
                buckets, total_us = _summed(several, part)
                summed.append((name, part, buckets, total_us))
                window = self._windows.get((name, part))
                if window is None:
                    window = self._windows[name, part] = Window(WINDOW_US)
                recent = window.recent(buckets, now.mono_us)
                rows.append(((name,), quantiles_us(recent, QUANTILES), sum(buckets)))
                yield ""
            yield text.quantiles(*metrics.REQUEST_PARTS[part], rows)
        metric = metrics.REQUEST_SECONDS
        yield text.head(metric)
        for name, part, buckets, total_us in summed:
            if sum(buckets) > buckets[0] or total_us:
                yield text.buckets(metric, (name, part), buckets, total_us)


def _summed(several: list[ApiTimes], part: str) -> tuple[list[int], int]:
    """The buckets of one part over the versions of an API. A request that was not parked, throttled or held
    up by its socket took no time there.
    """
    histograms: list[Histogram] = [getattr(times, part) for times in several]
    buckets = merged(histograms)
    assert len(buckets) == BUCKETS
    buckets[0] += max(0, sum(times.count for times in several) - sum(buckets))
    return buckets, sum(one.total_us for one in histograms)


def _name_of(times: ApiTimes) -> str:
    """As Kafka names the API: a Fetch by who sends it."""
    name = API_BY_KEY[times.api_key].name
    if name != "Fetch":
        return name
    return "FetchFollower" if times.is_of_follower else "FetchConsumer"
