"""The metrics that clients have pushed, at /metrics. Their names are values of a label, so that none can be
taken for a metric of the broker.
"""

from collections.abc import Iterator
from typing import Final

from sparklog.model import Instant
from sparklog_server import metrics
from sparklog_server.broker.client_telemetry import ClientTelemetry
from sparklog_server.metrics_text import Text, number

_AT_ONCE: Final = 16
"""A label may have 249 characters, a line more than a thousand."""


def client_report(text: Text, telemetry: ClientTelemetry, now: Instant) -> Iterator[str]:
    """The clients that push, and their metrics."""
    shown = telemetry.shown
    clients = shown.current(now)
    yield text.one(metrics.CLIENT_INSTANCES, telemetry.instances(now))
    yield text.several(metrics.CLIENT_PUSHES, [((name,), count) for name, count in telemetry.pushes.items()])
    yield text.one(metrics.CLIENT_SERIES, shown.series)
    yield text.several(
        metrics.CLIENT_DROPPED, [((reason,), count) for reason, count in shown.dropped.items()]
    )
    for metric, is_total in ((metrics.CLIENT_COUNTER, True), (metrics.CLIENT_GAUGE, False)):
        yield text.head(metric)
        for client in clients:
            series = list((client.totals if is_total else client.gauges).items())
            for begin in range(0, len(series), _AT_ONCE):
                lines = [
                    f"{metric.name}{{{client.labels},{labels.decode()}}} {number(value)}\n"
                    for labels, value in series[begin : begin + _AT_ONCE]
                ]
                yield "".join(lines)
