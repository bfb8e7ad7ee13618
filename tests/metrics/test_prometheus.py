"""A real Prometheus (Debian's package, unpacked by `make setup`) scrapes a live broker: every query of our
boards and alerts, and of published boards, returns data.
"""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness import free_port
from docs.boards import BOARDS
from sparklog import Admin, Consumer, Producer, TopicPartition
from sparklog.client.admin.admin import NewTopic
from tests.daemon.http_nodes import HttpNode, http_broker
from tests.metrics.test_published_names import ELSEWHERE, published
from tests.tools import PROJECT, require_debian

CONF = PROJECT / "conf"
PATIENCE_S = 90
SCRAPED_MIN = 4
VARIABLES = {
    "$kubernetes_namespace": "sparklog",
    "$strimzi_cluster_name": "local",
    "$kafka_broker": "kafka-1",
    "$kraft_node": "kafka-1",
    "$kafka_topic": ".+",
    "$kafka_partition": ".+",
    "$consumergroup": ".+",
    "$topic": ".+",
    "$__rate_interval": "1m",
}


class Prometheus:
    """Asks a running Prometheus."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/query?query="

    def ask(self, query: str) -> list[object]:
        """The series of an instant query, its variables replaced."""
        for variable, value in VARIABLES.items():
            query = query.replace(variable, value)
        with urllib.request.urlopen(self._url + urllib.parse.quote(query), timeout=30) as answer:
            result: list[object] = json.load(answer)["data"]["result"]
        return result

    def wait_for_scrapes(self) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            try:
                if self.ask(f"count_over_time(up[5m]) >= {SCRAPED_MIN}"):
                    return
            except OSError:
                pass  # it does not listen yet
            time.sleep(0.2)
        raise AssertionError(f"not scraped {SCRAPED_MIN} times within {PATIENCE_S} s")


def under_load(node: HttpNode) -> None:
    """Every kind of series exists: records, a group with a lag, a refused batch."""
    with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", partition_count=2)])
    with Producer(bootstrap_servers=node.bootstrap_servers) as producer:
        for number in range(100):
            producer.send("t", b"%d" % number, partition=number % 2)
        producer.flush()
    with Consumer(
        bootstrap_servers=node.bootstrap_servers, group_id="g", enable_auto_commit=False
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 0)
        consumer.poll(timeout_ms=2_000)
        consumer.commit({TopicPartition("t", 0): 1})


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    program = require_debian("prometheus")
    directory = tmp_path_factory.mktemp("prometheus")
    with http_broker(directory / "data") as process:
        node = HttpNode(process)
        under_load(node)
        config = (CONF / "prometheus.yml").read_text()
        config = config.replace("127.0.0.1:9464", f"{node.http_address[0]}:{node.http_address[1]}")
        config = config.replace("scrape_interval: 15s", "scrape_interval: 1s")
        config = config.replace("alerts.yml", str(CONF / "alerts.yml"))
        (directory / "prometheus.yml").write_text(config)
        port = free_port()
        with (directory / "log").open("wb") as log:
            child = subprocess.Popen(
                [
                    str(program),
                    f"--config.file={directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={directory / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            asked = Prometheus(port)
            asked.wait_for_scrapes()
            yield asked
        finally:
            child.kill()
            child.wait()


@pytest.mark.compat
@pytest.mark.parametrize("name", BOARDS)
def test_every_query_of_our_boards_returns_data(prometheus: Prometheus, name: str) -> None:
    queries = [query for panel in BOARDS[name][1] for query in panel.queries]
    assert [query for query in queries if not prometheus.ask(query)] == []


@pytest.mark.compat
def test_every_query_of_published_boards_returns_data(prometheus: Prometheus) -> None:
    assert [
        f"{board}, {panel}: {query}"
        for board, panel, query in published()
        if not any(metric in query for metric in ELSEWHERE)
        and not prometheus.ask(re.sub(r"^(?:query_result|label_values)\((.*?)(?:, \w+)?\)$", r"\1", query))
    ] == []


@pytest.mark.compat
def test_every_alert_watches_series_that_exist(prometheus: Prometheus) -> None:
    queries = re.findall(r"^ +expr: (.*)$", (CONF / "alerts.yml").read_text(), re.MULTILINE)
    assert len(queries) == 14
    queries = [re.sub(r" (?:==|!=|>|<) [0-9.]+", "", query).replace(":1m]", ":1s]") for query in queries]
    assert [query for query in queries if not prometheus.ask(query)] == []


@pytest.mark.compat
def test_promtool_accepts_the_alerts_and_their_cases(tmp_path: Path) -> None:
    promtool = str(require_debian("promtool"))
    checked = subprocess.run(
        [promtool, "check", "rules", str(CONF / "alerts.yml")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    cases = tmp_path / "alerts.test.yml"
    text = (Path(__file__).parent / "alerts.test.yml").read_text()
    cases.write_text(text.replace("[ALERTS]", f"[{CONF / 'alerts.yml'}]"))
    tested = subprocess.run(
        [promtool, "test", "rules", str(cases)], capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.compat
@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_promtool_accepts_the_text(tmp_path: Path, accept: str) -> None:
    promtool = str(require_debian("promtool"))
    with http_broker(tmp_path / "data") as process:
        node = HttpNode(process)
        under_load(node)
        request = urllib.request.Request(f"{node.url}/metrics", headers={"Accept": accept} if accept else {})
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read().decode()
    if accept:
        assert text.endswith("# EOF\n")
        return
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    # Other lines are advice on names, which are Kafka's.
    assert "error" not in checked.stderr.lower(), checked.stderr
