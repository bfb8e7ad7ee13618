"""Clients that push their metrics (KIP-714) by default: librdkafka and Java, once Kafka's own tools or ours
have created a subscription. /metrics shows what the clients did.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sparklog_server.cli.main import main
from tests.compatibility.clients import PATIENCE_S
from tests.compatibility.kafka_tools import CONFIGS, CONSOLE_PRODUCER, java_command, kafka_tool
from tests.daemon.broker_process import wait_until
from tests.daemon.http_nodes import HttpNode, http_broker
from tests.metrics.scraping import scrape

pytestmark = pytest.mark.compat

CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
COUNTER, GAUGE = "sparklog_client_counter_total", "sparklog_client_gauge"
Values = dict[tuple[str, str], float]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HttpNode]:
    with http_broker(tmp_path / "data") as process:
        node = HttpNode(process)
        admin = AdminClient({"bootstrap.servers": node.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(timeout=PATIENCE_S)
        yield node


def subscribe(node: HttpNode, *values: str) -> None:
    """Create a subscription by our own command."""
    arguments = ["configs", "set", "-b", node.bootstrap_servers, "--client-metrics", "all", *values]
    assert main(arguments) == 0


def values(node: HttpNode, family: str, client_id: str) -> Values:
    """What a client has pushed: by metric and topic."""
    found: Values = {}
    for labels, value in scrape(node.url).samples.get(family, {}).items():
        named = dict(labels)
        if named["client_id"] == client_id:
            found[named["metric"], named.get("topic", "")] = value
    return found


@contextmanager
def java_producer(node: HttpNode) -> Iterator["subprocess.Popen[str]"]:
    """A console producer that writes the lines of its input, and lives until that ends."""
    arguments = ("--bootstrap-server", node.bootstrap_servers, "--topic", "t")
    command = java_command(CONSOLE_PRODUCER, *arguments, "--command-property", "client.id=java")
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(PATIENCE_S)


def test_a_java_producer_pushes_what_it_has_sent(node: HttpNode) -> None:
    subscribe(node, "interval.ms=200", "metrics=org.apache.kafka.producer.")
    sent = ("org.apache.kafka.producer.topic.record.send.total", "t")
    with java_producer(node) as process:
        assert process.stdin is not None
        for total in (25, 60):
            before = scrape(node.url).value("kafka_server_brokertopicmetrics_messagesin_total", topic="t")
            process.stdin.write("a line\n" * (total - int(before)))
            process.stdin.flush()
            wait_until(lambda total=total: values(node, COUNTER, "java").get(sent) == total)  # type: ignore[misc]
        told = values(node, COUNTER, "java")
        assert told["org.apache.kafka.producer.record.send.total", ""] == 60
        assert told["org.apache.kafka.producer.record.error.total", ""] == 0
        assert values(node, GAUGE, "java")["org.apache.kafka.producer.connection.count", ""] >= 1
    found = scrape(node.url)
    assert found.value("kafka_server_brokertopicmetrics_messagesin_total", topic="t") == 60
    errors = {dict(labels)["error"] for labels in found.samples["sparklog_client_pushes_total"]}
    assert errors <= {"NONE", "THROTTLING_QUOTA_EXCEEDED"}


def test_librdkafka_pushes_what_it_is_asked_for(node: HttpNode) -> None:
    subscribe(node, "interval.ms=200", "metrics=*", "match=client_software_name=confluent-kafka-python")
    address = {"bootstrap.servers": node.bootstrap_servers}
    producer = confluent_kafka.Producer({**address, "client.id": "rd-producer"})
    consumer = confluent_kafka.Consumer(
        {**address, "client.id": "rd-consumer", "group.id": "g", "auto.offset.reset": "earliest"}
    )
    silent = confluent_kafka.Producer({**address, "client.id": "rd-silent", "enable.metrics.push": False})
    consumer.subscribe(["t"])

    def has_pushed() -> bool:
        for one in (producer, silent):
            one.produce("t", b"v")
            one.poll(0)
        consumer.poll(0.1)
        return values(node, GAUGE, "rd-producer").get(
            ("org.apache.kafka.producer.node.request.latency.max", ""), 0
        ) > 0 and ("org.apache.kafka.consumer.poll.idle.ratio.avg", "") in values(node, GAUGE, "rd-consumer")

    wait_until(has_pushed)
    assert ("org.apache.kafka.producer.connection.creation.total", "") in values(node, COUNTER, "rd-producer")
    assert not values(node, GAUGE, "rd-silent")
    consumer.close()
    producer.flush(PATIENCE_S)
    silent.flush(PATIENCE_S)
    assert scrape(node.url).value("sparklog_client_pushes_total", error="NONE") >= 2


def test_the_tools_of_kafka_work_on_subscriptions(node: HttpNode, capsys: pytest.CaptureFixture[str]) -> None:
    def client_metrics(*arguments: str) -> list[str]:
        printed = kafka_tool(CLIENT_METRICS, "--bootstrap-server", node.bootstrap_servers, *arguments)
        return [line.strip() for line in printed.splitlines() if line.strip()]

    altered = client_metrics(
        *("--alter", "--name", "basic", "--interval", "5000"),
        *("--metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer."),
        *("--match", "client_id=a.*,client_software_name=apache-kafka-java"),
    )
    assert altered == ["Altered client metrics config for basic."]
    assert client_metrics("--list") == ["basic"]
    described = client_metrics("--describe", "--name", "basic")
    assert described == [
        "Client metrics configs for basic are:",
        "interval.ms=5000",
        "match=client_id=a.*,client_software_name=apache-kafka-java",
        "metrics=org.apache.kafka.producer.,org.apache.kafka.consumer.",
    ]
    configs = ("--bootstrap-server", node.bootstrap_servers, "--entity-type", "client-metrics")
    by_configs = kafka_tool(CONFIGS, *configs, "--describe", "--entity-name", "basic")
    assert "interval.ms=5000 sensitive=false" in by_configs
    assert main(["configs", "describe", "-b", node.bootstrap_servers, "--client-metrics", "basic"]) == 0
    assert "5000" in capsys.readouterr().out
    assert client_metrics("--delete", "--name", "basic") == ["Deleted client metrics config for basic."]
    assert client_metrics("--list") == []
