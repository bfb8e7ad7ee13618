"""The two text formats, and label values from hostile names."""

import pytest

from sparklog_server import metrics
from sparklog_server.histogram import Histogram
from sparklog_server.metrics import METRICS, OTHERS, Kind, Metric
from sparklog_server.metrics_text import Text, escaped
from tests.metrics.scraping import parsed
from tests.tools import PROJECT

COUNTER = Metric("a_total", Kind.COUNTER, "Counts a \\ and\nmore.", ("x",))
GAUGE = Metric("b", Kind.GAUGE, "Shows b.", ("x", "y"))


def test_a_family_in_both_formats() -> None:
    plain, open_text = Text(is_openmetrics=False), Text(is_openmetrics=True)
    samples = [(("1",), 7), ((), 8)]
    assert plain.several(COUNTER, samples) == (
        '# HELP a_total Counts a \\\\ and\\nmore.\n# TYPE a_total counter\na_total{x="1"} 7\na_total 8\n'
    )
    assert open_text.several(COUNTER, samples) == (
        '# HELP a Counts a \\\\ and\\nmore.\n# TYPE a counter\na_total{x="1"} 7\na_total 8\n'
    )
    assert (plain.end, open_text.end) == ("", "# EOF\n")


def test_a_counter_whose_name_has_no_total_is_unknown_to_openmetrics() -> None:
    text = Text(is_openmetrics=True)
    assert "# TYPE kafka_network_requestmetrics_localtimems_count unknown\n" in text.head(
        metrics.REQUEST_PARTS["local"][1]
    )


def test_quantiles_are_milliseconds_with_the_labels_of_strimzis_rules() -> None:
    gauge, counter = metrics.REQUEST_PARTS["total"]
    text = Text(is_openmetrics=False).quantiles(gauge, counter, [(("Produce",), [1000.0] * 6, 5)])
    found = parsed(text)
    assert found.value("kafka_network_requestmetrics_totaltimems", request="Produce", quantile="0.50") == 1.0
    assert found.value("kafka_network_requestmetrics_totaltimems_count", request="Produce") == 5
    assert len(found.samples["kafka_network_requestmetrics_totaltimems"]) == 6


def test_a_histogram_has_every_duration_below_its_bound() -> None:
    histogram = Histogram()
    for duration_us in (15, 16, 63, 64, 2_000_000_000):
        histogram.add(duration_us)
    found = parsed(
        Text(is_openmetrics=False).histogram(
            metrics.REQUEST_SECONDS, [(("Produce", "total"), histogram.buckets, histogram.total_us)]
        )
    )
    below = {
        dict(labels)["le"]: count
        for labels, count in found.samples["sparklog_request_seconds_bucket"].items()
    }
    assert (below["1.6e-05"], below["6.4e-05"], below["0.000256"], below["+Inf"]) == (1, 3, 4, 5)
    assert found.value("sparklog_request_seconds_count", request="Produce", part="total") == 5


@pytest.mark.parametrize(
    "name",
    [
        'a"b\\c',
        "line\nfeed",
        "\x00",
        "\x1b[31mred",
        "\u202egnp.exe",
        "<script>alert(1)</script>",
        "x" * 100_000,
        "\ud800",
        OTHERS,
    ],
)
def test_a_hostile_name_is_one_inert_label_value(name: str) -> None:
    line = Text(is_openmetrics=False).several(GAUGE, [((name, "1"), 1)]).splitlines()[-1]
    assert line.isprintable()
    assert len(line) < 400
    line.encode()
    ((labels, value),) = parsed(f"# TYPE b gauge\n{line}\n").samples["b"].items()
    assert (dict(labels)["y"], value) == ("1", 1)


def test_two_names_stay_two() -> None:
    names = ["a\x00", "a\x01", "x" * 300, "x" * 301, "a"]
    assert len({escaped(name) for name in names}) == len(names)
    assert escaped("orders.v2") == "orders.v2"


def test_every_metric_is_declared_as_prometheus_allows() -> None:
    for metric in METRICS.values():
        assert metric.name.replace("_", "a").isalnum()
        assert metric.doc.endswith("."), metric.name
        assert not set(metric.labels) & {"le", "job", "instance"}, metric.name
        if metric.kind is Kind.HISTOGRAM:
            assert metric.name.endswith("_seconds"), metric.name


def test_every_declared_metric_is_written_by_some_report() -> None:
    sources = "".join(path.read_text() for path in (PROJECT / "sparklog_server").rglob("*.py"))
    declared = [name for name, value in vars(metrics).items() if isinstance(value, Metric)]
    assert [name for name in declared if f"metrics.{name}" not in sources] == []
