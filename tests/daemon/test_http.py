"""The HTTP listener of a live broker: its numbers are those that clients counted, and hostile requests cost
the clients of Kafka nothing.
"""

import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sparklog import Admin, Consumer, Producer, TopicPartition
from sparklog.client.admin.admin import NewTopic
from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.daemon.broker_process import BrokerProcess, is_served
from tests.daemon.http_nodes import HttpNode, get, http_broker, response
from tests.metrics.scraping import scrape

TOPIC = "brokertopicmetrics"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[HttpNode]:
    with http_broker(tmp_path / "data") as process:
        yield HttpNode(process)


def test_records_bytes_and_offsets_are_those_of_the_client(node: HttpNode) -> None:
    with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", partition_count=2), NewTopic("u", partition_count=1)])
    with Producer(bootstrap_servers=node.bootstrap_servers) as producer:
        for number in range(30):
            producer.send("t", b"value %d" % number, partition=number % 2)
        producer.send("u", b"one", partition=0)
        producer.flush()
    found = scrape(node.url)
    records = f"kafka_server_{TOPIC}_messagesin_total"
    assert found.value(records, topic="t") == 30
    assert found.value(records, topic="u") == 1
    assert found.value(records) == 31
    for partition in ("0", "1"):
        where = {"topic": "t", "partition": partition}
        assert found.value("kafka_topic_partition_current_offset", **where) == 15
        assert found.value("kafka_topic_partition_oldest_offset", **where) == 0
        assert found.value("kafka_log_log_logendoffset", **where) == 15
        assert found.value("kafka_topic_partition_leader", **where) == 1
        assert found.value("kafka_topic_partition_leader_is_preferred", **where) == 1
        assert found.value("kafka_topic_partition_in_sync_replica", **where) == 1
        assert found.value("kafka_topic_partition_under_replicated_partition", **where) == 0
    # Without compaction and deletion, what was appended is what the segments have.
    sizes = sum(found.value("kafka_log_log_size", topic="t", partition=one) for one in ("0", "1"))
    assert found.value(f"kafka_server_{TOPIC}_bytesin_total", topic="t") == sizes > 0
    assert found.value("kafka_topic_partitions", topic="t") == 2
    assert found.value("kafka_brokers") == 1
    assert found.value("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert found.value("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert found.value("kafka_server_replicamanager_leadercount") == 3
    assert found.value("kafka_server_kafkaserver_brokerstate") == 3


def test_requests_are_counted_by_api_and_version_and_so_is_their_time(node: HttpNode) -> None:
    with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", partition_count=1)])
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    with closing(socket.create_connection(node.kafka_address)) as client:
        for number in range(20):
            client.sendall(b"".join(encode_request(ListOffsetsRequest(topics=[asked]), 7, number, "c")))
        stream = client.makefile("rb")
        for number in range(20):
            reply = stream.read(int.from_bytes(stream.read(4)))
            correlation, answer = decode_reply(ListOffsetsResponse, 7, reply)
            assert (correlation, answer.topics[0].partitions[0].offset) == (number, 0)
    found = scrape(node.url)
    assert (
        found.value("kafka_network_requestmetrics_requests_total", request="ListOffsets", version="7") == 20
    )
    for part in (
        "totaltime",
        "requestqueuetime",
        "localtime",
        "remotetime",
        "throttletime",
        "responsesendtime",
    ):
        count = f"kafka_network_requestmetrics_{part}ms_count"
        assert found.value(count, request="ListOffsets") == 20, part
    buckets = {"request": "ListOffsets", "part": "local"}
    assert found.value("sparklog_request_seconds_count", **buckets) == 20
    assert 0 < found.value("sparklog_request_seconds_sum", **buckets) < 20
    quantile = {"request": "ListOffsets", "quantile": "0.50"}
    local = found.value("kafka_network_requestmetrics_localtimems", **quantile)
    assert 0 < local <= found.value("kafka_network_requestmetrics_totaltimems", **quantile) * 1.25


def test_the_lag_of_a_group_and_the_bytes_that_it_read_are_those_of_its_consumer(node: HttpNode) -> None:
    with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", partition_count=1)])
    with Producer(bootstrap_servers=node.bootstrap_servers) as producer:
        for number in range(10):
            producer.send("t", b"%d" % number, partition=0)
            producer.flush()
    with Consumer(
        bootstrap_servers=node.bootstrap_servers, group_id="g", enable_auto_commit=False
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 0)
        read = 0
        while read < 10:
            read += len(consumer.poll(timeout_ms=1000))
        consumer.commit({TopicPartition("t", 0): 4})
    found = scrape(node.url)
    where = {"consumergroup": "g", "topic": "t", "partition": "0"}
    assert found.value("kafka_consumergroup_current_offset", **where) == 4
    assert found.value("kafka_consumergroup_lag", **where) == 6
    assert found.value("kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == 6
    assert found.value("kafka_consumergroup_members", consumergroup="g") == 0
    assert found.value("kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
    size = found.value("kafka_log_log_size", topic="t", partition="0")
    assert found.value(f"kafka_server_{TOPIC}_bytesout_total", topic="t") == size


def test_topics_and_groups_beyond_the_bounds_are_summed(tmp_path: Path) -> None:
    bounds = ("--set", "sparklog.metrics.topics.max=1", "--set", "sparklog.metrics.groups.max=0")
    with http_broker(tmp_path / "data", *bounds) as process:
        node = HttpNode(process)
        with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
            for name in ("a", "b", "c"):
                admin.create_topics([NewTopic(name, partition_count=1)])
        with Producer(bootstrap_servers=node.bootstrap_servers) as producer:
            for name in ("a", "b", "b", "c"):
                producer.send(name, b"x")
            producer.flush()
        with Consumer(
            bootstrap_servers=node.bootstrap_servers, group_id="g", enable_auto_commit=False
        ) as consumer:
            consumer.assign([TopicPartition("b", 0)])
            consumer.commit({TopicPartition("b", 0): 1})
        found = scrape(node.url)
    records = f"kafka_server_{TOPIC}_messagesin_total"
    assert found.value(records, topic="a") == 1
    assert found.value(records, topic="(others)") >= 3  # and the internal topic of the groups
    assert frozenset({("topic", "b")}) not in found.samples[records]
    assert found.value("sparklog_series_summed", of="topics") == 3
    others = {"consumergroup": "(others)", "topic": "(others)"}
    assert found.value("kafka_consumergroup_lag_sum", **others) == 1


def test_health_and_readiness_and_openmetrics(node: HttpNode) -> None:
    with closing(socket.create_connection(node.http_address)) as client:
        assert get(client, "/healthz") == (200, b"the loop turns\n")
        assert get(client, "/readyz") == (200, b"ready\n")
        status, body = get(client, "/elsewhere")
        assert (status, b"/metrics" in body) == (404, True)
        client.sendall(b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head = b""
        while part := client.recv(65_536):
            head += part
        assert head.startswith(b"HTTP/1.1 200")
        assert head.endswith(b"\r\n\r\n")
    found = scrape(node.url, accept="application/openmetrics-text; version=1.0.0")
    assert found.kinds["kafka_server_brokertopicmetrics_messagesin"] == "counter"
    assert found.value("sparklog_scrapes_total") == 1


def test_stacks_are_not_served_in_the_clear_beyond_loopback(tmp_path: Path) -> None:
    elsewhere = ("--insecure", "--set", "sparklog.http.listener=http://0.0.0.0:0")
    with http_broker(tmp_path / "data", *elsewhere) as process:
        port = HttpNode(process).http_address[1]
        with closing(socket.create_connection(("127.0.0.1", port))) as client:
            assert get(client, "/stacks")[0] == 404
            assert get(client, "/events")[0] == 404
            assert get(client, "/metrics")[0] == 200


def test_the_stacks_of_the_threads_name_functions_and_no_values(node: HttpNode) -> None:
    with closing(socket.create_connection(node.http_address)) as client:
        status, body = get(client, "/stacks")
    assert status == 200
    lines = body.decode().splitlines()
    assert lines[0].startswith("thread '")
    assert any("HttpListener.asked" in line for line in lines)
    assert any("Server.run" in line for line in lines)
    assert all(re.fullmatch(r"thread '.*'|  \S+:\d+ \S+|", line) for line in lines)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="a TLS hello"),
        pytest.param(b"GARBAGE\r\n\r\n", id="garbage"),
        pytest.param(b"\x00" * 100 + b"\r\n\r\n", id="zeros"),
        pytest.param(b"GET /metrics HTTP/1.1\nHost: ::1\n\n", id="bare newlines"),
        pytest.param(b"GET /metrics HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost: ::1\r\nHost: m\r\n\r\n", id="two hosts"),
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost: ::1\r\n folded: 1\r\n\r\n", id="a folded line"),
        pytest.param(
            b"GET /metrics HTTP/1.1\r\nHost: ::1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            id="two lengths",
        ),
        pytest.param(
            b"POST /metrics HTTP/1.1\r\nHost: ::1\r\nContent-Length: 4\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: ::1\r\n\r\n",
            id="a length and chunks",
        ),
        pytest.param(
            b"GET /metrics HTTP/1.1\r\nHost: ::1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            id="chunks",
        ),
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost: ::1\r\nContent-Length: 3\r\n\r\nabc", id="a body"),
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost : n\r\n\r\n", id="a space before the colon"),
        pytest.param(b"POST /metrics HTTP/1.1\r\nHost: ::1\r\n\r\n", id="another method"),
        pytest.param(
            b"GET /metrics HTTP/1.1\r\nHost: ::1\r\nX: " + b"y" * (1 << 20) + b"\r\n\r\n", id="1 MB"
        ),
        pytest.param(b"GET /" + b"y" * (1 << 20) + b" HTTP/1.1\r\nHost: ::1\r\n\r\n", id="a target of 1 MB"),
    ],
)
def test_what_is_not_plain_http_is_refused_and_its_connection_closed(node: HttpNode, sent: bytes) -> None:
    with (
        closing(socket.create_connection(node.kafka_address)) as bystander,
        closing(socket.create_connection(node.http_address)) as offender,
    ):
        try:
            offender.sendall(sent)
            status, _ = response(offender)
            assert status in (0, 400, 405, 431)
            assert offender.recv(1) == b""
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert is_served(bystander)
        with closing(socket.create_connection(node.http_address)) as client:
            assert get(client, "/healthz")[0] == 200
            assert b"sparklog_http_refused_total{" in get(client, "/metrics")[1]
    code, _, err = node.process.end(signal.SIGTERM)
    assert (code, "Traceback" in err) == (0, False)


@pytest.mark.parametrize("path", ["/metrics", "/events", "/stacks", "/healthz"])
def test_a_name_that_another_site_points_to_loopback_gets_nothing(node: HttpNode, path: str) -> None:
    with closing(socket.create_connection(node.http_address)) as client:
        for host in ("attacker.example", "127.0.0.1.attacker.example:9464", "localhost.attacker.example", ""):
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            status, body = response(client)
            assert (status, body[:15]) == (400, b"the Host header")
        for host in ("localhost", "LOCALHOST:9464", "127.0.0.1", "127.3.2.1:1", "[::1]:9464"):
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert response(client)[0] == 200
    with closing(socket.create_connection(node.http_address)) as old:
        old.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        assert response(old)[0] == 200


def test_connections_that_never_end_their_head_give_way(node: HttpNode) -> None:
    silent = [socket.create_connection(node.http_address) for _ in range(100)]
    try:
        for one in silent:
            one.sendall(b"GET /metrics HTTP/1.1\r\n")
        with closing(socket.create_connection(node.http_address)) as client:
            assert get(client, "/metrics")[0] == 200
            assert get(client, "/healthz")[0] == 200
    finally:
        for one in silent:
            one.close()


def test_a_thousand_scrapes_at_once_and_readers_that_do_not_read_are_bounded(node: HttpNode) -> None:
    clients = [socket.create_connection(node.http_address) for _ in range(1_000)]
    try:
        for client in clients:
            client.setblocking(False)
            try:
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            except OSError:
                continue
        with closing(socket.create_connection(node.kafka_address)) as bystander:
            for _ in range(100):
                assert is_served(bystander)
        answered = closed = 0
        for client in clients:
            status, _ = response(client)
            answered += status == 200
            closed += status == 0
        assert answered + closed == 1_000
        assert answered > 0
    finally:
        for client in clients:
            client.close()
    found = scrape(node.url)
    assert found.value("sparklog_scrapes_total") < 1_000
    if closed:  # one that was answered may have been displaced too, and slow ones have their own reason
        assert found.total("sparklog_http_refused_total") >= closed


def test_an_address_that_others_reach_needs_tls(tmp_path: Path) -> None:
    with BrokerProcess(
        "--data-dir",
        str(tmp_path),
        "--listen",
        "127.0.0.1:0",
        "--set",
        "sparklog.http.listener=http://0.0.0.0:0",
    ) as process:
        code, _, err = process.end()
    assert code != 0
    assert "use https://" in err
    assert "--insecure" in err


def test_a_secure_node_asks_for_a_user_of_the_cluster(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    made = subprocess.run(
        [
            *(
                sys.executable,
                "-c",
                "from sparklog_server.cli.main import main; import sys; sys.exit(main())",
            ),
            *("init", "--secure", str(directory), "--base-port", "0"),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    password = next(
        line.partition('password="')[2].partition('"')[0]
        for line in (directory / "client.properties").read_text().splitlines()
        if 'password="' in line
    )
    settings = directory / "node-1.properties"
    settings.write_text(settings.read_text() + "\nsparklog.http.listener=https://0.0.0.0:0\n")
    with BrokerProcess("--config", str(settings)) as process:
        node = HttpNode(process)
        port = node.http_address[1]
        context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
        context.check_hostname = False

        def ask(path: str, credentials: str = "") -> int:
            headers = (
                {"Authorization": "Basic " + b64encode(credentials.encode()).decode()} if credentials else {}
            )
            request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", headers=headers)
            try:
                with urllib.request.urlopen(request, context=context, timeout=20) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return int(error.code)

        assert ask("/healthz") == 200
        assert ask("/stacks") == 401
        assert ask("/events") == 401
        assert ask("/metrics") == 401
        assert ask("/metrics", "admin:wrong") == 401
        assert ask("/metrics", "nobody:x") == 401
        assert ask("/metrics", f"admin:{password}") == 200
        assert ask("/metrics", f"admin:{password}") == 200  # without another computation


def test_a_cluster_on_one_machine_names_the_http_address_of_each_node(tmp_path: Path) -> None:
    with BrokerProcess(
        *("--nodes", "2", "--base-port", "0", "--data-dir", str(tmp_path / "c")),
        *("--set", "sparklog.http.listener=http://127.0.0.1:0"),
        verb=("cluster", "start"),
    ) as process:
        line = process.stdout.readline()
        found = re.fullmatch(r"ready cluster=\S+ nodes=2 listen=\S+ pids=\S+ http=(\S+),(\S+)\n", line)
        assert found is not None, line
        scrapes = [scrape(url) for url in found.groups()]
        assert sum(one.total("kafka_brokers") for one in scrapes) == 2
        assert (
            sum(one.total("kafka_controller_kafkacontroller_activecontrollercount") for one in scrapes) == 1
        )
        assert sum(one.total("kafka_server_raftchannelmetrics_request_total") for one in scrapes) > 0
        code, _, err = process.end(signal.SIGTERM)
    assert (code, "Traceback" in err) == (0, False)
