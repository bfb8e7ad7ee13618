"""The text of metrics: Prometheus' format 0.0.4, and OpenMetrics 1.0.

A family is a head and its lines. The two formats differ in the head of a counter, and in the end.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

from sparklog import escapes
from sparklog_server.histogram import limit_of
from sparklog_server.metrics import QUANTILE_TEXTS, Kind, Metric

PROMETHEUS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_TOTAL: Final = "_total"
_VALUE_CHARS_MAX: Final = 249
"""As long as a topic's name may be."""
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
BOUNDS_US: Final = tuple(4**power * 16 for power in range(11))
"""The bounds of native histograms: 16 us, 64 us, … 16.8 s."""


def escaped(value: str) -> str:
    """A label value, safe to show: a name with control characters, or one that is longer than a topic's may
    be, is shortened and gets a digest, so that two names stay two.
    """
    if len(value) <= _VALUE_CHARS_MAX and value.isprintable() and not re.search(escapes.ACTING, value):
        return value.translate(_ESCAPED) if '"' in value or "\\" in value else value
    digest = sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    cut = re.sub(escapes.ACTING, "\ufffd", value[: _VALUE_CHARS_MAX - 13])
    shown = "".join(one if one.isprintable() else "\ufffd" for one in cut)
    return f"{shown.translate(_ESCAPED)}~{digest}"


class Text:
    """Writes one of the formats."""

    def __init__(self, *, is_openmetrics: bool) -> None:
        self.is_openmetrics = is_openmetrics
        self.content_type = OPENMETRICS_TYPE if is_openmetrics else PROMETHEUS_TYPE
        self.end = "# EOF\n" if is_openmetrics else ""

    def head(self, metric: Metric) -> str:
        """The lines that begin a family."""
        name, kind = metric.name, str(metric.kind)
        if self.is_openmetrics:
            if metric.kind is Kind.COUNTER and name.endswith(_TOTAL):
                name = name.removesuffix(_TOTAL)
            elif metric.kind in (Kind.COUNTER, Kind.UNTYPED):
                kind = "unknown"  # a counter's samples end in _total there
        return f"# HELP {name} {metric.doc.translate(_HELP)}\n# TYPE {name} {kind}\n"

    def one(self, metric: Metric, value: float) -> str:
        """A family of one sample without labels."""
        return f"{self.head(metric)}{metric.name} {number(value)}\n"

    def several(self, metric: Metric, samples: Iterable[tuple[Sequence[str], float]]) -> str:
        """A family; each sample has a value for each label, or for none."""
        lines = [sample(metric.name, metric.labels, values, value) for values, value in samples]
        return self.head(metric) + "".join(lines)

    def quantiles(
        self, metric: Metric, counts: Metric, rows: Iterable[tuple[Sequence[str], Sequence[float], int]]
    ) -> str:
        """Two families: the quantiles of durations in us, in ms, and their counts."""
        shown, counted = [], []
        for values, found_us, count in rows:
            shown += [
                sample(metric.name, metric.labels, (*values, text), found / 1000)
                for text, found in zip(QUANTILE_TEXTS, found_us, strict=True)
            ]
            counted.append(sample(counts.name, counts.labels, values, count))
        return self.head(metric) + "".join(shown) + self.head(counts) + "".join(counted)

    def histogram(self, metric: Metric, rows: Iterable[tuple[Sequence[str], Sequence[int], int]]) -> str:
        """A family of classic histograms."""
        return self.head(metric) + "".join([self.buckets(metric, *row) for row in rows])

    def buckets(self, metric: Metric, values: Sequence[str], buckets: Sequence[int], total_us: int) -> str:
        """The lines of one classic histogram in seconds, from buckets of `Histogram` and the sum in us."""
        labels = labels_of(metric.labels, values)
        ahead, lines = f"{labels}," if labels else "", []
        cumulative, bucket = 0, 0
        for bound_us in BOUNDS_US:
            while bucket < len(buckets) and limit_of(bucket) <= bound_us:
                cumulative += buckets[bucket]
                bucket += 1
            lines.append(f'{metric.name}_bucket{{{ahead}le="{bound_us / 1e6!r}"}} {cumulative}\n')
        count = cumulative + sum(buckets[bucket:])
        lines.append(f'{metric.name}_bucket{{{ahead}le="+Inf"}} {count}\n')
        braced = f"{{{labels}}}" if labels else ""
        lines.append(f"{metric.name}_sum{braced} {total_us / 1e6!r}\n{metric.name}_count{braced} {count}\n")
        return "".join(lines)


_HELP: Final = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def number(value: float) -> str:
    """A value: an integer without a point."""
    return str(value) if isinstance(value, int) else repr(value)


def labels_of(names: Sequence[str], values: Sequence[str]) -> str:
    """The labels of a sample between its braces."""
    return ",".join([f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True)])


def sample(name: str, labels: Sequence[str], values: Sequence[str], value: float) -> str:
    """One line."""
    if not values:
        return f"{name} {number(value)}\n"
    return f"{name}{{{labels_of(labels, values)}}} {number(value)}\n"
