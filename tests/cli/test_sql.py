"""`sparklog sql`: rows as lines, JSON and CSV, values in their formats, and a query that is repeated."""

import json
import os
import signal
import subprocess
import sys

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.local_broker import EmbeddedBroker
from tests.cli.conftest import PROGRAM, Tell


@pytest.fixture
def flights(shared_broker: EmbeddedBroker, tell: Tell, topic: str) -> str:
    tell("topics", "create", topic, "--partitions", "2")
    with Producer(bootstrap_servers=shared_broker.bootstrap_servers) as producer:
        for number in range(6):
            value = {"carrier": "AUD"[number % 3] + "A", "delay": number / 2}
            producer.send(topic, json.dumps(value).encode(), partition=number % 2)
    return topic


def test_a_query_counts_and_averages_the_fields_of_values(tell: Tell, flights: str) -> None:
    query = (
        f'SELECT carrier, avg(delay) AS "late", count(*) AS n FROM "{flights}" '
        "WHERE timestamp > now() - INTERVAL 1 HOUR GROUP BY 1 ORDER BY 1"
    )
    assert tell("sql", query) == (0, "AA\t0.75\t2\nDA\t1.75\t2\nUA\t1.25\t2\n", "")
    assert tell("sql", query, "--csv").out == "carrier,late,n\nAA,0.75,2\nDA,1.75,2\nUA,1.25,2\n"
    lines = tell("sql", query, "--json").out.splitlines()
    assert json.loads(lines[0]) == {"carrier": "AA", "late": 0.75, "n": 2}
    assert tell("sql", f'SELECT count(*) FROM "{flights}"', "--start", "-1", "--end", "2").out == "0\n"


def test_values_that_are_no_json_are_bytes(tell: Tell, topic: str, shared_broker: EmbeddedBroker) -> None:
    tell("topics", "create", topic)
    query = f'SELECT key, value, "offset" FROM "{topic}" ORDER BY 3'
    assert tell("sql", query).out == ""
    with Producer(bootstrap_servers=shared_broker.bootstrap_servers) as producer:
        producer.send(topic, b"\xff\n", b"key")
    assert tell("sql", query, "--json").json == {"key": "key", "value": {"base64": "/wo="}, "offset": 0}


def test_what_cannot_be_run_is_told_in_a_line(
    tell: Tell, flights: str, shared_broker: EmbeddedBroker
) -> None:
    assert "Parser Error" in tell("sql", "selec 1").err
    assert "there is no topic 'no_topic'" in tell("sql", "SELECT * FROM no_topic").err
    assert tell("sql", "SELECT 1", "--csv", "--json").code == 2
    with Producer(bootstrap_servers=shared_broker.bootstrap_servers) as producer:
        producer.send(flights, b"?", partition=0)
    failed = tell("sql", f'SELECT sum(delay) FROM "{flights}"')
    assert failed.code == 1
    assert failed.err.startswith(
        f"sparklog: the value of offset 3 in {flights}-0 cannot be decoded: not JSON"
    )
    assert failed.err.count("\n") == 1
    assert tell("sql", f'SELECT sum(delay) FROM "{flights}"', "--mode", "permissive").out == "7.5\n"


def test_a_query_that_follows_prints_each_new_result(flights: str, shared_broker: EmbeddedBroker) -> None:
    query = f'SELECT count(*) AS n FROM "{flights}"'
    command = [sys.executable, "-c", PROGRAM, "sql", query, "--follow", "--interval-ms", "20", "--json"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "SPARKLOG_BOOTSTRAP_SERVER": shared_broker.bootstrap_servers,
    }
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == {"n": 6}
        with Producer(bootstrap_servers=shared_broker.bootstrap_servers) as producer:
            producer.send(flights, b'{"carrier":"AA"}')
        assert json.loads(child.stdout.readline()) == {"n": 7}
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 130


def test_a_query_imports_no_pandas(flights: str, shared_broker: EmbeddedBroker) -> None:
    """Its import took a quarter of the CPU time of a small query."""
    program = (
        "import sys; from sparklog_server.cli.main import main; code = main(sys.argv[1:]); "
        "sys.exit(code or 'pandas' in sys.modules)"
    )
    query = f'SELECT count(*), max("timestamp") FROM "{flights}"'
    command = ["sql", query, "--bootstrap-server", shared_broker.bootstrap_servers]
    done = subprocess.run([sys.executable, "-P", "-c", program, *command], capture_output=True, check=False)
    assert (done.returncode, done.stdout[:2]) == (0, b"6\t"), done.stderr
