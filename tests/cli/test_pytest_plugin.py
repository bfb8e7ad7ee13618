"""The fixtures that a project gets by installing sparklog."""

import os
import subprocess
import sys
from pathlib import Path

PROJECT_TESTS = """
from sparklog import Consumer, Producer, TopicPartition

def roundtrip(bootstrap_servers, topic):
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.send(topic, value=b"one")
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [record.value for record in consumer.poll(5000)]

def test_one(sparklog_broker, sparklog_topic):
    assert roundtrip(sparklog_broker.bootstrap_servers, sparklog_topic) == [b"one"]

def test_a_cluster(sparklog_cluster):
    assert len(sparklog_cluster.bootstrap_servers.split(",")) == len(sparklog_cluster.pids) == 3

def test_a_secure_broker(sparklog_secure_broker):
    settings = sparklog_secure_broker.client_settings
    assert settings["security_protocol"] == "SASL_SSL"
    with Producer(**settings) as producer:
        assert producer.send("t", value=b"one").result().offset == 0

def test_a_topic_is_each_tests_own(sparklog_broker, sparklog_topic):
    assert roundtrip(sparklog_broker.bootstrap_servers, sparklog_topic) == [b"one"]
"""


def run(program: str, *arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env=environment,
        timeout=60,
    )


def test_a_projects_tests_get_a_broker_and_topics_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(PROJECT_TESTS)
    program = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'sparklog.testing', '-p', 'no:cacheprovider']))"  # noqa: E501
    done = run(program, directory=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_loading_the_plugin_loads_nothing_else_of_weight(tmp_path: Path) -> None:
    done = run(
        "import pytest, sys; before = set(sys.modules); import sparklog.testing; print(*set(sys.modules) - "
        "before)",
        directory=tmp_path,
    )
    assert set(done.stdout.split()) <= {"sparklog", "sparklog.testing"}, done.stderr
