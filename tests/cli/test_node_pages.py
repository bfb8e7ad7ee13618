"""Pages of nodes: what is sent where, what is refused, and how samples are read."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sparklog.client.settings import ClientSettings
from sparklog_server.cli import node_pages
from sparklog_server.cli.client_files import read_client_file
from sparklog_server.cli.main import main
from sparklog_server.cli.node_pages import Address, NodePages, PageFailed, addresses, login_of, samples
from tests.daemon.broker_process import BrokerProcess
from tests.daemon.http_nodes import HttpNode

SETTINGS = {"bootstrap.servers": "h:1", "sasl.username": "ann", "sasl.password": "opensesame"}
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def server(answer: Answer) -> Iterator[tuple[Address, list[dict[str, str]]]]:
    """A server on loopback that answers each GET by `answer`; the headers that it got."""
    got: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(dict(self.headers))
            answer(self)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Address(False, "127.0.0.1", site.server_port), got
        finally:
            site.shutdown()
            thread.join()


def replied(status: int, body: bytes = b"", **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


def pages() -> NodePages:
    return NodePages(ClientSettings.from_kafka(SETTINGS))


def test_addresses_are_urls_without_a_path() -> None:
    assert addresses(
        ["http://127.0.0.1:9464,https://a.b:1", " http://[::1]:65535/ ", "http://127.0.0.1:9464"]
    ) == (
        Address(False, "127.0.0.1", 9464),
        Address(True, "a.b", 1),
        Address(False, "::1", 65535),
    )
    assert str(Address(False, "::1", 9)) == "http://[::1]:9"


@pytest.mark.parametrize(
    "text",
    ["", "127.0.0.1:9464", "ftp://h:1", "http://h", "http://h:0", "http://h:65536", "http://u:p@h:1",
     "http://h:1/metrics", "http://h:1/?x", "http://h\r\nX: y:1", "http://h:1\x1b[31m"],
)  # fmt: skip
def test_other_texts_are_refused_without_acting(text: str) -> None:
    with pytest.raises(ValueError, match="is no address such as") as refused:
        addresses([text])
    assert str(refused.value).isprintable()


def test_a_page_is_read_and_the_password_does_not_travel_in_the_clear() -> None:
    with server(replied(200, b"a 1\n")) as (address, got):
        assert pages().read(address, "/metrics") == "a 1\n"
    assert "Authorization" not in got[0]
    assert "opensesame" not in str(got)


def test_a_redirect_is_not_followed_and_other_errors_are_told() -> None:
    with server(replied(302, Location="http://127.0.0.1:1/")) as (address, got):
        with pytest.raises(PageFailed, match="HTTP 302"):
            pages().read(address, "/metrics")
        assert len(got) == 1
    with (
        server(replied(503, b"not ready\n")) as (address, _),
        pytest.raises(PageFailed, match="503: not ready"),
    ):
        pages().read(address, "/readyz")
    with pytest.raises(PageFailed, match="refused"):
        pages().read(address, "/metrics")


def test_a_page_without_end_and_one_that_stalls_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_pages, "PAGE_BYTES_MAX", 10_000)
    with (
        server(replied(200, b"x" * 70_000)) as (address, _),
        pytest.raises(PageFailed, match="more than 10000"),
    ):
        pages().read(address, "/metrics")
    monkeypatch.setattr(node_pages, "TIMEOUT_S", 0.2)
    goes_on = threading.Event()

    def stall(request: BaseHTTPRequestHandler) -> None:
        goes_on.wait()

    def drip(request: BaseHTTPRequestHandler) -> None:
        with contextlib.suppress(OSError):
            request.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
            while not goes_on.wait(0.01):
                request.wfile.write(b"x")

    with server(drip) as (address, _), pytest.raises(PageFailed, match=r"within 0\.2 s"):
        pages().read(address, "/metrics")
    with server(stall) as (address, _):
        try:
            with pytest.raises(PageFailed, match=r"within 0\.2 s"):
                pages().read(address, "/metrics")
        finally:
            goes_on.set()


def test_what_is_no_http_is_told() -> None:
    def garble(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"\x16\x03\x01 nonsense\r\n\r\n")

    with server(garble) as (address, _), pytest.raises(PageFailed, match=r"127\.0\.0\.1"):
        pages().read(address, "/metrics")


def test_the_login_is_that_of_the_client() -> None:
    jaas = 'x.ScramLoginModule required username="bob" password="p:w";'
    assert login_of(ClientSettings.from_kafka({"sasl.jaas.config": jaas})) == ("bob", "p:w")
    assert login_of(ClientSettings.from_kafka(SETTINGS)) == ("ann", "opensesame")
    assert login_of(ClientSettings.from_kafka({})) is None


def test_samples_are_read_and_nonsense_is_skipped() -> None:
    text = (
        "# HELP a b\n# TYPE a counter\n"
        'a{topic="t\\"\\\\\\n",x="1"} 2.5\n'
        "a 7\n"
        'a{topic="u"} NaN\na{topic="u"} +Inf\na{topic="u"} 1e999\na{topic="u"} 1.2.3\na{topic="u"}\na {} 1\n'
        'a{topic="late"} 3 1395066363000\n'
        "ab 1\n" + "a" * 1_000_000 + " 1\n"
    )
    assert samples(text, ["a", "none"]) == {
        "a": [({"topic": 't"\\\n', "x": "1"}, 2.5), ({}, 7.0), ({"topic": "late"}, 3.0)],
        "none": [],
    }


def test_a_secure_node_is_asked_with_certificate_and_login_of_the_client(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    assert main(["init", "--secure", str(directory), "--base-port", "0"]) == 0
    node_file = directory / "node-1.properties"
    node_file.write_text(node_file.read_text() + "\nsparklog.http.listener=https://0.0.0.0:0\n")
    given = read_client_file(str(directory / "client.properties"))
    with BrokerProcess("--config", str(node_file)) as process:
        address = Address(True, "127.0.0.1", HttpNode(process).http_address[1])
        known = NodePages(ClientSettings.from_kafka(given))
        assert "kafka_brokers 1" in known.read(address, "/metrics")
        assert "Server.run" in known.read(address, "/stacks")
        jaas = given["sasl.jaas.config"]
        password = jaas.partition('password="')[2].partition('"')[0]
        wrong = given | {"sasl.jaas.config": jaas.replace(password, "wrong")}
        with pytest.raises(PageFailed, match="HTTP 401") as refused:
            NodePages(ClientSettings.from_kafka(wrong)).read(address, "/stacks")
        assert "wrong" not in str(refused.value)
        strange = {name: value for name, value in given.items() if "truststore" not in name}
        with pytest.raises(PageFailed, match="certificate"):
            NodePages(ClientSettings.from_kafka(strange)).read(address, "/metrics")
