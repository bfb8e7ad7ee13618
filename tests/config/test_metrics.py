"""Metrics are declared once and rendered as Prometheus reads them."""

import re

from sparklog_server.metrics import CONNECTIONS, METADATA_EPOCH, METRICS, REQUESTS, Kind, Sample, render


def test_samples_are_rendered_by_metric_with_their_labels() -> None:
    samples = [
        Sample(REQUESTS, 5, ("Fetch",)),
        Sample(METADATA_EPOCH, 2),
        Sample(CONNECTIONS, 3, ('a"b\\',)),
        Sample(REQUESTS, 7, ("Produce",)),
    ]
    assert [line for line in render(samples).splitlines() if not line.startswith("#")] == [
        'sparklog_connections{listener="a\\"b\\\\"} 3',
        'sparklog_requests_total{api="Fetch"} 5',
        'sparklog_requests_total{api="Produce"} 7',
        "sparklog_metadata_epoch 2",
    ]


def test_every_name_is_declared_once_and_says_what_it_is() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"sparklog_[a-z_]+", name) for name in names)
    assert all(metric.name.endswith("_total") == (metric.kind is Kind.COUNTER) for metric in METRICS)
    assert all(metric.doc.endswith(".") for metric in METRICS)
