"""The metrics that published boards query are declared, with the labels they select by."""

import re
from pathlib import Path

import pytest

from sparklog_server.metrics import METRICS

QUERIES = Path(__file__).parent / "published_queries.tsv"
ELSEWHERE = ("container_", "kubelet_", "jvm_")
"""Of Kubernetes, and of a Java process."""
ADDED = {"namespace", "strimzi_io_cluster", "strimzi_io_name", "kubernetes_pod_name", "container", "pod"}
"""Labels that the scrape configuration adds."""


def published() -> list[tuple[str, str, str]]:
    rows = [line.split("\t") for line in QUERIES.read_text().splitlines() if not line.startswith("#")]
    return [(board, panel, query) for board, panel, query in rows]


@pytest.mark.parametrize(("board", "panel", "query"), published())
def test_a_query_names_metrics_and_labels_that_are_declared(board: str, panel: str, query: str) -> None:
    selectors = re.findall(r"((?:kafka|process|sparklog|container|kubelet|jvm)_\w+)(?:\{([^}]*)\})?", query)
    assert selectors, query
    for name, labels in selectors:
        if name.startswith(ELSEWHERE):
            continue
        assert name in METRICS, f"{board}, {panel}"
        used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", labels)) - ADDED
        assert used <= set(METRICS[name].labels), f"{board}, {panel}: {used}"


def test_the_list_has_the_three_boards() -> None:
    boards = {board for board, _, _ in published()}
    assert {"Strimzi Kafka", "Strimzi Kafka Exporter", "Strimzi KRaft"} <= boards
