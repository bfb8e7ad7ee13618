"""Spans of sampled requests reach a collector by OTLP, and a collector that is away or hangs costs the
clients nothing.
"""

import signal
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from sparklog import Producer
from sparklog.model import Instant, Micros, Millis, SessionId
from sparklog.wire.frame import Framer
from sparklog.wire.header import encode_request
from sparklog.wire.messages.api_versions import ApiVersionsRequest
from sparklog_server.broker.metrics.request_spans import WAITING_MAX, RequestSpans
from sparklog_server.broker.session import Call, Session
from sparklog_server.config import http_settings
from sparklog_server.daemon import span_exporter
from sparklog_server.daemon.reactor import Reactor
from tests.certificates import authority, issued
from tests.daemon.broker_process import BrokerProcess, wait_until
from tests.daemon.collector import Collector, attributes
from tests.daemon.http_nodes import HttpNode
from tests.metrics.scraping import scrape

RESULTS = "sparklog_spans_total"


def traced(directory: Path, url: str, *more: str, **environment: str) -> BrokerProcess:
    """A node that samples every request."""
    settings = (
        f"sparklog.otlp.endpoint={url}",
        "sparklog.otlp.sample.ratio=1",
        "sparklog.http.listener=http://127.0.0.1:0",
        *more,
    )
    assigned = [word for one in settings for word in ("--set", one)]
    return BrokerProcess(
        *("--data-dir", str(directory / "data"), "--listen", "127.0.0.1:0", *assigned),
        environment=environment,
    )


def total(node: HttpNode, result: str) -> float:
    """How many spans have ended so."""
    return scrape(node.url).samples.get(RESULTS, {}).get(frozenset({("result", result)}), 0)


def ask_versions(node: HttpNode, count: int) -> None:
    """So many requests on one connection, each answered."""
    request = ApiVersionsRequest(client_software_name="n", client_software_version="1")
    frames = b"".join(
        bytes(chunk) for number in range(count) for chunk in encode_request(request, 3, number, "asker")
    )
    with (
        closing(socket.create_connection(node.kafka_address)) as connection,
        connection.makefile("rb") as got,
    ):
        connection.sendall(frames)
        for number in range(count):
            size = int.from_bytes(got.read(4), "big")
            assert int.from_bytes(got.read(size)[:4], "big") == number


def test_a_span_for_each_request_with_its_parts(tmp_path: Path) -> None:
    with Collector().serving() as collector, traced(tmp_path, collector.url) as process:
        node = HttpNode(process)
        with Producer(bootstrap_servers=node.bootstrap_servers, client_id="the-client") as producer:
            for _ in range(3):
                producer.send("t", b"v").result()
        ask_versions(node, 5)
        wait_until(lambda: sum(one.name == "ApiVersions" for one in collector.spans) >= 5)
        wait_until(lambda: any(one.name == "Produce" for one in collector.spans))
        assert set(collector.paths) == {"/v1/traces"}
        resource = attributes(collector.requests[0].resource_spans[0].resource)
        assert (resource["service.name"], resource["service.instance.id"]) == ("sparklog", "1")
        spans = collector.spans
        assert len({one.trace_id for one in spans}) == len({one.span_id for one in spans}) == len(spans)
        for span in spans:
            told = attributes(span)
            assert (len(span.trace_id), len(span.span_id), span.parent_span_id) == (16, 8, b"")
            parts = [told[f"sparklog.{part}_us"] for part in ("queue", "local", "remote")]
            assert all(isinstance(part, int) and part >= 0 for part in parts)
            lasted_us = (span.end_time_unix_nano - span.start_time_unix_nano) // 1000
            assert sum(parts) == lasted_us  # type: ignore[arg-type]
        produced = attributes(next(one for one in spans if one.name == "Produce"))
        assert produced["kafka.client_id"] == "the-client"
        assert (produced["kafka.api_key"], produced["sparklog.listener"]) == (0, "PLAINTEXT")
        assert produced["client.address"] == "127.0.0.1"
        wait_until(lambda: total(node, "sent") >= 8)
        assert total(node, "failed") == total(node, "dropped") == 0


def test_a_clean_stop_sends_the_spans_that_wait(tmp_path: Path) -> None:
    with Collector().serving() as collector, traced(tmp_path, collector.url) as process:
        ask_versions(HttpNode(process), 5)
        process.end(signal.SIGTERM)
        assert sum(one.name == "ApiVersions" for one in collector.spans) == 5


@pytest.mark.parametrize("status", [302, 404, 503])
def test_a_collector_that_refuses_is_said_once(tmp_path: Path, status: int) -> None:
    with Collector(status).serving() as collector, traced(tmp_path, collector.url) as process:
        node = HttpNode(process)
        for _ in range(2):
            before = total(node, "failed")
            ask_versions(node, 2)
            wait_until(lambda before=before: total(node, "failed") >= before + 2)  # type: ignore[misc]
        assert "/elsewhere" not in collector.paths
        process.child.terminate()
        _, _, log = process.end()
        assert log.count("otlp-export-failed") == 1
        assert f"the collector answers {status}" in log


def test_a_collector_that_hangs_costs_spans_alone(tmp_path: Path) -> None:
    collector = Collector()
    collector.goes_on.clear()
    with collector.serving(), traced(tmp_path, collector.url) as process:
        node = HttpNode(process)
        ask_versions(node, 1)
        assert collector.asked.wait(20)
        ask_versions(node, WAITING_MAX + 100)
        assert total(node, "dropped") >= 90
        ask_versions(node, 100)
        assert total(node, "dropped") >= 190
        collector.goes_on.set()
        wait_until(lambda: total(node, "sent") >= WAITING_MAX)


def test_a_collector_that_is_away_costs_spans_alone(tmp_path: Path) -> None:
    with closing(socket.socket()) as nothing:
        nothing.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nothing.getsockname()[1]}"
        with traced(tmp_path, url) as process:
            node = HttpNode(process)
            ask_versions(node, 10)
            wait_until(lambda: total(node, "failed") >= 10)


def test_a_post_that_the_collector_draws_out_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_exporter, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(span_exporter, "INTERVAL_S", 0.01)
    reactor, told = Reactor(), []
    chores: list[Callable[[], None]] = []
    spans = RequestSpans(1, lambda: 0, bytes)
    session = Session(SessionId(1), Framer(frame_bytes_max=64), listener="L", peer_address="h:1")
    call = Call(session, 3, 12, 1, "c", session.principal)
    spans.ended(spans.begin(call, 1, Instant(Micros(0), Millis(0))), None)
    is_over = threading.Event()

    def drip(listening: socket.socket) -> None:
        connected, _ = listening.accept()
        with connected, suppress(OSError):
            connected.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not is_over.wait(0.02):
                connected.sendall(b"x")

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        collector = http_settings.Collector("127.0.0.1", listening.getsockname()[1], "/v1/traces", False)
        dripping = threading.Thread(target=drip, args=(listening,))
        dripping.start()
        span_exporter.SpanExporter(
            spans,
            collector,
            span_exporter.Node(1, "cluster"),
            reactor,
            after=lambda _delay_s, chore: chores.append(chore),
            trace=lambda event, **_: told.append(event),
        )

        def has_failed() -> bool:
            for chore in [chores.pop(0) for _ in range(len(chores))]:
                chore()
            reactor.turn(0.01)
            return spans.counts["failed"] == 1

        wait_until(has_failed)
        is_over.set()
        dripping.join()
    reactor.close()
    assert told == ["otlp-export-failed"]


def https(directory: Path) -> Collector:
    served = issued("CN=collector")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(served.write_pem(directory / "collector.pem"))
    return Collector(tls=context)


def test_the_certificate_of_the_collector_is_verified(tmp_path: Path) -> None:
    with https(tmp_path).serving() as collector:
        with traced(tmp_path, collector.url) as process:
            node = HttpNode(process)
            ask_versions(node, 1)
            wait_until(lambda: total(node, "failed") >= 1)
            assert collector.requests == []
        authority().write(tmp_path / "ca.pem")
        with traced(tmp_path, collector.url, SSL_CERT_FILE=str(tmp_path / "ca.pem")) as process:
            node = HttpNode(process)
            ask_versions(node, 3)
            wait_until(lambda: len(collector.spans) >= 3)


@pytest.mark.parametrize(
    "endpoint",
    [
        "localhost:4318",
        "ftp://localhost",
        "http://",
        "http://user:secret@host:4318",
        "http://host:4318/?a=b",
        "http://host:99999",
        "http://ho st",
        "http://host/\r\nX-Header: 1",
    ],
)
def test_an_endpoint_that_is_none_is_refused(tmp_path: Path, endpoint: str) -> None:
    with traced(tmp_path, endpoint) as process:
        code, out, log = process.end()
    assert (code, out) == (2, "")
    assert "sparklog.otlp.endpoint" in log
