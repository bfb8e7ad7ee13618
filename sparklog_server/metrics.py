"""Every metric, declared once: its name, its kind, its labels and what it counts.

The numbers themselves are plain integers on the objects that own them. Whoever shows them (the HTTP edge,
a test) gathers samples and renders them here, in the text format of Prometheus.

    # HELP sparklog_connections Connections that are open now.
    # TYPE sparklog_connections gauge
    sparklog_connections{listener="PLAINTEXT"} 3
"""

from collections.abc import Iterable
from enum import Enum

import msgspec


class Kind(Enum):
    """A counter only grows, from 0 at the start; a gauge says how it is now."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Metric(msgspec.Struct, frozen=True):
    """One metric; units last in the name, and `_total` behind them in a counter's."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str


class Sample(msgspec.Struct, frozen=True):
    """What one owner has counted; `labels` in the order of the metric's."""

    metric: Metric
    value: int
    labels: tuple[str, ...] = ()


def _counter(name: str, doc: str, *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, labels, doc)


def _gauge(name: str, doc: str, *labels: str) -> Metric:
    return Metric(name, Kind.GAUGE, labels, doc)


CONNECTIONS = _gauge("sparklog_connections", "Connections that are open now.", "listener")
REQUESTS = _counter("sparklog_requests_total", "Requests answered, by API.", "api")
REQUESTS_PARKED = _gauge(
    "sparklog_requests_parked", "Requests that wait for a high watermark, a commit or their time."
)
BYTES_RECEIVED = _counter("sparklog_received_bytes_total", "Bytes of requests received.")
BYTES_SENT = _counter("sparklog_sent_bytes_total", "Bytes of replies sent.")
RECORDS_APPENDED = _counter("sparklog_appended_records_total", "Records that producers appended.", "topic")
BYTES_APPENDED = _counter(
    "sparklog_appended_bytes_total", "Bytes of record batches that producers appended.", "topic"
)
BYTES_FETCHED = _counter(
    "sparklog_fetched_bytes_total", "Bytes of record batches given to consumers.", "topic"
)
BATCHES_REFUSED = _counter("sparklog_refused_batches_total", "Record batches refused, by error.", "error")
SYNCS = _counter("sparklog_syncs_total", "Rounds of making files durable.", "log_dir")
SYNC_MICROSECONDS = _counter("sparklog_sync_us_total", "Time spent in those rounds.", "log_dir")
UNSYNCED_BYTES = _gauge("sparklog_unsynced_bytes", "Bytes appended and not yet durable.", "log_dir")
LOG_DIRS_OFFLINE = _gauge("sparklog_offline_log_dirs", "Data directories that failed.")
PARTITIONS = _gauge("sparklog_partitions", "Partitions with a replica on this broker.")
PARTITIONS_LED = _gauge("sparklog_led_partitions", "Partitions that this broker leads.")
PARTITIONS_UNDER_MIN_ISR = _gauge(
    "sparklog_under_min_isr_partitions", "Led partitions with fewer replicas in sync than acks=all needs."
)
METADATA_OFFSET = _gauge("sparklog_metadata_offset", "The offset up to which the metadata log is committed.")
METADATA_EPOCH = _gauge("sparklog_metadata_epoch", "The epoch of the metadata quorum.")

METRICS: tuple[Metric, ...] = (
    CONNECTIONS,
    REQUESTS,
    REQUESTS_PARKED,
    BYTES_RECEIVED,
    BYTES_SENT,
    RECORDS_APPENDED,
    BYTES_APPENDED,
    BYTES_FETCHED,
    BATCHES_REFUSED,
    SYNCS,
    SYNC_MICROSECONDS,
    UNSYNCED_BYTES,
    LOG_DIRS_OFFLINE,
    PARTITIONS,
    PARTITIONS_LED,
    PARTITIONS_UNDER_MIN_ISR,
    METADATA_OFFSET,
    METADATA_EPOCH,
)


def render(samples: Iterable[Sample]) -> str:
    """The samples as text, metric by metric in the order of `METRICS`; a metric without samples is left
    out.
    """
    by_metric: dict[str, list[Sample]] = {}
    for sample in samples:
        assert len(sample.labels) == len(sample.metric.labels), (
            f"{sample.metric.name} has the labels {sample.metric.labels}"
        )
        by_metric.setdefault(sample.metric.name, []).append(sample)
    lines: list[str] = []
    for metric in METRICS:
        if found := by_metric.get(metric.name):
            lines += [f"# HELP {metric.name} {metric.doc}", f"# TYPE {metric.name} {metric.kind.value}"]
            lines += [f"{metric.name}{_labels(sample)} {sample.value}" for sample in found]
    return "\n".join([*lines, ""])


def _labels(sample: Sample) -> str:
    if not sample.labels:
        return ""
    pairs = zip(sample.metric.labels, sample.labels, strict=True)
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
