"""What `sparklog init --secure` writes, started: clients with its files, strangers, and new certificates."""

import re
import select
import signal
import ssl
import tomllib
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from sparklog import Admin, Consumer, Producer, TopicPartition, embedded
from sparklog.client.failures import AuthenticationFailed
from sparklog.local_broker import EmbeddedBroker
from sparklog_server.cli.client_files import read_client_file
from sparklog_server.cli.main import main
from sparklog_server.daemon.authority import Authority
from tests.daemon.broker_process import PATIENCE_S, BrokerProcess, wait_until, wait_until_gone
from tests.daemon.test_tls import connected


def init(directory: Path, *more: str) -> Path:
    assert main(["init", "--secure", str(directory), "--base-port", "0", *more]) == 0
    return directory


def started(directory: Path, *more: str) -> BrokerProcess:
    return BrokerProcess("--config", str(directory / "node-1.properties"), *more)


def python(directory: Path) -> dict[str, Any]:
    return tomllib.loads((directory / "client.toml").read_text())


def rdkafka(directory: Path) -> dict[str, Any]:
    lines = (directory / "client.conf").read_text().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def written_and_read(settings: dict[str, Any], topic: str) -> list[bytes | None]:
    with Producer(**settings) as producer:
        producer.send(topic, value=b"one", partition=0)
    with Consumer(**settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [record.value for record in consumer.poll(timeout_ms=PATIENCE_S * 1000)]


def served_certificate(port: int) -> bytes:
    with connected(("127.0.0.1", port), _any()) as connection:
        found = connection.getpeercert(binary_form=True)
    assert found is not None
    return found


def _any() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_clients_connect_by_each_of_the_files_and_a_wrong_password_is_refused(tmp_path: Path) -> None:
    directory = init(tmp_path / "c")
    with started(directory) as node:
        node.address()
        java = read_client_file(str(directory / "client.properties"))
        by_java = {name.replace(".", "_"): value for name, value in java.items()}
        assert written_and_read(by_java, "java") == [b"one"]
        assert written_and_read(python(directory), "python") == [b"one"]

        producer = confluent_kafka.Producer(rdkafka(directory))
        producer.produce("rdkafka", b"one")
        assert producer.flush(PATIENCE_S) == 0
        consumer = confluent_kafka.Consumer(rdkafka(directory) | {"group.id": "g"})
        consumer.assign([confluent_kafka.TopicPartition("rdkafka", 0, 0)])
        record = consumer.poll(PATIENCE_S)
        assert record is not None
        assert record.value() == b"one"
        consumer.close()

        wrong = python(directory) | {"sasl_password": "wrong", "default_api_timeout_ms": 5_000}
        with pytest.raises(AuthenticationFailed), Admin(**wrong) as admin:
            admin.list_topics()


def test_clients_without_a_certificate_do_not_reach_the_listeners_of_nodes(tmp_path: Path) -> None:
    directory = init(tmp_path / "c")
    with started(directory) as node:
        node.address()
        settings = (directory / "node-1.properties").read_text()
        for listener in ("BROKER", "CONTROLLER"):
            found = re.search(rf"{listener}://127.0.0.1:(\d+)", settings)
            assert found is not None
            with (
                connected(("127.0.0.1", int(found[1])), _any()) as stranger,
                pytest.raises(ssl.SSLError, match="certificate required"),
            ):
                stranger.recv(1)


def test_a_renewed_certificate_is_used_while_clients_stay_connected(tmp_path: Path) -> None:
    directory = init(tmp_path / "c")
    with started(directory, "--set", "sparklog.ssl.reload.interval.ms=50") as node:
        _, port = node.address()
        before = served_certificate(port)
        with Producer(**python(directory)) as producer:
            producer.send("t", value=b"before", partition=0).result()
            assert main(["certificates", "renew", str(directory)]) == 0
            wait_until(lambda: served_certificate(port) != before)
            producer.send("t", value=b"after", partition=0).result()
        assert written_and_read(python(directory), "t")[:2] == [b"before", b"after"]
        _, _, log = node.end(signal.SIGTERM)
    closed = [line for line in log.splitlines() if "session-closed" in line]
    assert (closed, "certificates-changed" in log) == ([], True)


@pytest.mark.timeout(120)
def test_the_nodes_of_a_directory_are_started_as_one_cluster(tmp_path: Path) -> None:
    directory = init(tmp_path / "c", "--nodes", "3")
    with BrokerProcess("--config-dir", str(directory), verb=("cluster", "start")) as nodes:
        readable, _, _ = select.select([nodes.stdout], [], [], PATIENCE_S)
        line = nodes.stdout.readline() if readable else ""
        found = re.match(r"ready cluster=(\S+) nodes=3 listen=(\S+) pids=", line)
        assert found is not None, (line, nodes.end())
        assert found[2] == python(directory)["bootstrap_servers"]
        with Admin(**python(directory)) as admin:
            wait_until(lambda: len(admin.describe_cluster().nodes) == 3)
            assert admin.describe_cluster().cluster_id == found[1]
            admin.create_topics({"t": 3})
            replicas = {part.replicas for part in admin.describe_topics(["t"])["t"].partitions}
        assert {frozenset(one) for one in replicas} == {frozenset({1, 2, 3})}
        assert written_and_read(python(directory), "t") == [b"one"]


def test_a_broker_joins_with_a_certificate_and_the_settings_of_a_client(tmp_path: Path) -> None:
    directory = init(tmp_path / "c")
    authority = Authority.read(directory / "ca.pem", directory / "ca-key.pem")
    (directory / "joins.pem").write_bytes(authority.issue("node-2", ("127.0.0.1",)))
    text = (directory / "node-1.properties").read_text()
    users = "super.users=User:admin;User:CN=node-1;User:CN=node-2"
    joining = (
        ("node-1.pem", "joins.pem"),
        (re.search("listeners=.*", text)[0], "listeners=CLIENT://127.0.0.1:0,BROKER://127.0.0.1:0"),  # type: ignore[index]
        (re.search("super.users=.*", text)[0], users),  # type: ignore[index]
        (f"log.dirs={directory}/node-1", f"log.dirs={directory}/joins"),
        ("node.id=1\n", ""),
        ("process.roles=broker,controller\n", ""),
    )
    for before, after in joining:
        assert before in text
        text = text.replace(before, after)
    (directory / "joins.properties").write_text(text)
    with started(directory, "--set", users) as node:
        servers = node.bootstrap_servers()
        config = ("--config", str(directory / "joins.properties"))
        client = ("--command-config", str(directory / "client.conf"))
        with BrokerProcess("--join", servers, *config, *client) as joins:
            joins.address()
            with Admin(**python(directory)) as admin:
                wait_until(lambda: {one.node_id for one in admin.describe_cluster().nodes} == {1, 2})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--nodes", "2"), "--nodes and --config-dir exclude each other"),
        (("--base-port", "7000"), "--base-port and --config-dir exclude each other"),
        ((), "has no file node-<id>.properties"),
    ],
)
def test_a_directory_without_nodes_and_options_beside_it_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert main(["cluster", "start", "--config-dir", str(tmp_path), *arguments]) in (1, 2)
    assert said in capfd.readouterr().err


@pytest.mark.timeout(120)
def test_three_nodes_use_renewed_certificates_while_a_producer_writes() -> None:
    def ports() -> list[int]:
        return [int(one.rpartition(":")[2]) for one in cluster.bootstrap_servers.split(",")]

    with embedded(secure=True, nodes=3, sparklog_ssl_reload_interval_ms=50) as cluster:
        before = {port: served_certificate(port) for port in ports()}
        with Admin(**cluster.client_settings) as admin:
            admin.create_topics({"t": 3})
        with Producer(**dict(cluster.client_settings), retries=0) as producer:  # type: ignore[arg-type]
            sent = [producer.send("t", value=b"%d" % number) for number in range(100)]
            assert main(["certificates", "renew", str(cluster.data_dir)]) == 0
            wait_until(lambda: all(served_certificate(port) != before[port] for port in ports()))
            sent += [producer.send("t", value=b"%d" % number) for number in range(100)]
            producer.flush()
            assert len([one.result() for one in sent]) == 200
        assert "certificates-refused" not in cluster.log()


# -- for tests


def test_an_embedded_broker_is_secure_and_leaves_nothing_behind() -> None:
    with embedded(secure=True, num_partitions=2) as broker:
        assert written_and_read(dict(broker.client_settings), "t") == [b"one"]
        with Admin(**broker.client_settings) as admin:
            assert len(admin.describe_topics(["t"])["t"].partitions) == 2
        assert broker.client_settings["bootstrap_servers"] == broker.bootstrap_servers
        assert rdkafka(broker.data_dir)["bootstrap.servers"] == broker.bootstrap_servers
    for pid in (broker.pid, *broker.pids):
        wait_until_gone(pid)
    assert not broker.data_dir.parent.exists()


def test_an_embedded_cluster_is_secure_and_opens_again_with_its_users(tmp_path: Path) -> None:
    def opened() -> EmbeddedBroker:
        return embedded(secure=True, nodes=3, data_dir=tmp_path / "mine")

    with opened() as cluster:
        assert written_and_read(dict(cluster.client_settings), "t") == [b"one"]
        cluster.kill()
        for pid in cluster.pids:
            wait_until_gone(pid)
    with opened() as again, Admin(**again.client_settings) as admin:
        assert "t" in admin.list_topics()


def test_a_plain_embedded_broker_has_settings_too() -> None:
    with embedded() as broker:
        assert broker.client_settings == {"bootstrap_servers": broker.bootstrap_servers}
