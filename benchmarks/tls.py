"""The cost of TLS: processor time of the broker per gigabyte and MB/s of Produce and Fetch, the latency of
one request at a time, handshakes per second of processor time, the latency of a connected producer meanwhile,
and the memory of idle connections.

The listener has a certificate of RSA 2048, or of ECDSA P-256 where it says so. Load comes from librdkafka,
and handshakes from `openssl s_time -new`, which also measures `openssl s_server` with the same certificate.
Clients and broker share the machine.
"""

import argparse
import re
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import psutil

from benchmarks import cpu, harness, raw, rdkafka

SIZE: Final = 1_024
HANDSHAKES_S: Final = 5
QUIET_S: Final = 2
REQUESTS: Final = 4_000
REQUESTS_A_TURN: Final = 200
CREDENTIALS: Final = b"\0app\0secret"
API_VERSIONS: Final = raw.request(18, 0, b"")
KEYS: Final = {
    "RSA 2048": ("-newkey", "rsa:2048"),
    "ECDSA P-256": ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
}


def main() -> None:
    options = harness.options(__doc__, against=True, more=_arguments)
    figures = harness.Figures("TLS")
    with tempfile.TemporaryDirectory(prefix="sparklog-tls-") as directory:
        stores = {kind: _store(Path(directory), kind) for kind in KEYS}
        if options.only != "kafka":
            for kind, store in stores.items():
                with _secure_sparklog(store) as (subject, address, authenticated):
                    if kind == "RSA 2048" and not options.handshakes_only:
                        _loads(figures, options, subject, address, store)
                        _plain(figures, options, subject)
                        _one_at_a_time(figures, options, subject, authenticated)
                        _memory(figures, options, subject, address)
                    _handshakes(figures, options, subject, address, kind, store)
        if "kafka" in (options.against, options.only):
            for kind, store in stores.items():
                with _secure_kafka(store) as (subject, address):
                    if kind == "RSA 2048" and not options.handshakes_only:
                        _loads(figures, options, subject, address, store)
                        _plain(figures, options, subject)
                    _handshakes(figures, options, subject, address, kind, store)
    figures.report(options)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--handshakes-only", action="store_true", help="leave out the loads")
    parser.add_argument("--records", type=int, default=500_000, help="records of 1 KB a load")
    parser.add_argument("--connections", type=int, default=1_000, help="idle connections for the memory")


# -- brokers with a second listener


def _store(directory: Path, kind: str) -> Path:
    """A PEM file with a new key and its own certificate."""
    path = directory / f"{kind.replace(' ', '-')}.pem"
    key, certificate = path.with_suffix(".key"), path.with_suffix(".crt")
    subprocess.run(
        [
            *("openssl", "req", "-x509", *KEYS[kind], "-nodes", "-keyout", key, "-out", certificate),
            *("-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    path.write_text(key.read_text() + certificate.read_text())
    return path


def _settings(store: Path) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}


@contextmanager
def _secure_sparklog(store: Path) -> Iterator[tuple[harness.Subject, tuple[str, int], tuple[str, int]]]:
    """The addresses of its listeners SSL and SASL_SSL follow it."""
    port, authenticated_port = harness.free_port(), harness.free_port()
    settings = {
        "sparklog.ack.flush": "never",
        "listeners": ",".join(
            (
                "PLAINTEXT://127.0.0.1:0",
                f"SSL://127.0.0.1:{port}",
                f"SASL_SSL://127.0.0.1:{authenticated_port}",
            )
        ),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required user_app=secret;"
        ),
        **_settings(store),
    }
    with harness.sparklog(settings) as subject:
        yield subject, ("127.0.0.1", port), ("127.0.0.1", authenticated_port)


@contextmanager
def _secure_kafka(store: Path) -> Iterator[tuple[harness.Subject, tuple[str, int]]]:
    port = harness.free_port()
    # Kafka assumes PLAINTEXT for a controller only where no listener is secure.
    protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"}
    with harness.kafka(_settings(store) | protocols, more_listeners=[f"SSL://127.0.0.1:{port}"]) as subject:
        yield subject, ("127.0.0.1", port)


class _Address:
    """The listener with TLS, as the load takes it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.bootstrap_servers = f"{address[0]}:{address[1]}"


# -- loads


def _loads(
    figures: harness.Figures,
    options: argparse.Namespace,
    subject: harness.Subject,
    address: tuple[str, int],
    store: Path,
) -> None:
    tls = ("security.protocol=ssl", f"ssl.ca.location={store.with_suffix('.crt')}")
    _load(figures, options, subject, _Address(address), "TLS", tls)


def _plain(figures: harness.Figures, options: argparse.Namespace, subject: harness.Subject) -> None:
    _load(figures, options, subject, subject, "plain", ())


def _load(
    figures: harness.Figures,
    options: argparse.Namespace,
    subject: harness.Subject,
    address: rdkafka.Addressed,
    kind: str,
    settings: tuple[str, ...],
) -> None:
    for repeat in range(options.repeats):
        topic = f"{kind}-{repeat}"
        harness.create_topic(subject, topic)
        with cpu.Stopwatch(subject) as watch:
            load = rdkafka.produce(address, topic, count=options.records, size=SIZE, settings=settings)
        _add_load(figures, subject, f"{kind}, produce 1 KB", load, watch)
        with cpu.Stopwatch(subject) as watch:
            load = rdkafka.consume(address, topic, count=options.records, partitions=1, settings=settings)
        _add_load(figures, subject, f"{kind}, fetch 1 KB", load, watch)


def _add_load(
    figures: harness.Figures, subject: harness.Subject, what: str, load: rdkafka.Load, watch: cpu.Stopwatch
) -> None:
    figures.add(f"{what}: broker CPU", "s/GB", subject.name, watch.cpu_s / (load["bytes"] / 1e9))
    figures.add(f"{what}: values", "MB/s", subject.name, load["bytes"] / 1e6 / load["seconds"])


# -- one request at a time


def _one_at_a_time(
    figures: harness.Figures, options: argparse.Namespace, subject: harness.Subject, address: tuple[str, int]
) -> None:
    """The latency of a Produce of 1 KB over SASL_SSL and without TLS, in turns, and their ratio."""
    harness.create_topic(subject, "one-at-a-time")
    frame = raw.produce_request("one-at-a-time", value_bytes=SIZE)
    with raw.connect(subject) as plain, _authenticated(address) as secure:
        for _ in range(options.repeats):
            found_us: dict[str, list[float]] = {"plain": [], "SASL_SSL": []}
            for _ in range(REQUESTS // REQUESTS_A_TURN):
                for kind, connection in (("plain", plain), ("SASL_SSL", secure)):
                    for _ in range(REQUESTS_A_TURN):
                        sent = time.perf_counter_ns()
                        connection.sendall(frame)
                        raw.reply(connection)
                        found_us[kind].append((time.perf_counter_ns() - sent) / 1e3)
            for percent, bound in ((50, "<= 1.4"), (99, "<= 1.5")):
                plain_us, secure_us = (harness.percentile(found_us[kind], percent) for kind in found_us)
                what = f"one request at a time: p{percent}"
                figures.add(f"{what} plain", "µs", subject.name, plain_us)
                figures.add(f"{what} SASL_SSL", "µs", subject.name, secure_us)
                figures.add(f"{what} SASL_SSL / plain", "", subject.name, secure_us / plain_us, bound=bound)


def _authenticated(address: tuple[str, int]) -> ssl.SSLSocket:
    connection = _connected(address)
    connection.sendall(raw.request(17, 1, struct.pack(">h5s", 5, b"PLAIN")))
    raw.reply(connection)
    connection.sendall(raw.request(36, 0, struct.pack(">i", len(CREDENTIALS)) + CREDENTIALS))
    assert raw.reply(connection)[8:10] == bytes(2), "not authenticated"
    return connection


# -- handshakes


def _handshakes(
    figures: harness.Figures,
    options: argparse.Namespace,
    subject: harness.Subject,
    address: tuple[str, int],
    kind: str,
    store: Path,
) -> None:
    topic = f"latency-{kind.replace(' ', '-')}"
    harness.create_topic(subject, topic)
    for _ in range(options.repeats):
        with _Producer(address, topic) as producer, cpu.Stopwatch(subject) as watch:
            # The processor time of the producer's own requests is known from the time before.
            before_s = subject.cpu_s()
            time.sleep(QUIET_S)
            idle_s = subject.cpu_s() - before_s
            quiet_us = list(producer.latencies_us)
            producer.latencies_us.clear()
            count, seconds = _s_time(address)
            latencies_us = list(producer.latencies_us)
        used_s = watch.cpu_s - idle_s * (seconds / QUIET_S + 1)
        figures.add(f"{kind}: handshakes per CPU second", "1/s", subject.name, count / used_s)
        figures.add(f"{kind}: handshakes", "1/s", subject.name, count / seconds)
        for when, found_us in (("before", quiet_us), ("meanwhile", latencies_us)):
            p50, p99 = (harness.percentile(found_us, percent) for percent in (50, 99))
            figures.add(f"{kind}: p50 of a connected producer {when}", "ms", subject.name, p50 / 1e3)
            figures.add(f"{kind}: p99 of a connected producer {when}", "ms", subject.name, p99 / 1e3)
        if subject.name == "sparklog":
            with _s_server(store) as (process, server_address):
                before = sum(process.cpu_times()[:2])
                count, seconds = _s_time(server_address)
                used_s = sum(process.cpu_times()[:2]) - before
            figures.add(f"{kind}: handshakes per CPU second", "1/s", "s_server", count / used_s)
            figures.add(f"{kind}: handshakes", "1/s", "s_server", count / seconds)


def _s_time(address: tuple[str, int]) -> tuple[int, float]:
    """Full handshakes one after the other: how many, and in how many seconds."""
    run = subprocess.run(
        ["openssl", "s_time", "-connect", f"{address[0]}:{address[1]}", "-new", "-time", str(HANDSHAKES_S)],
        capture_output=True,
        text=True,
        check=False,
    )
    match = re.search(r"(\d+) connections in (\d+) real seconds", run.stdout)
    if match is None:
        raise RuntimeError(f"openssl s_time: {run.stdout}{run.stderr}")
    return int(match[1]), float(match[2])


@contextmanager
def _s_server(store: Path) -> Iterator[tuple[psutil.Process, tuple[str, int]]]:
    port = harness.free_port()
    with subprocess.Popen(
        ["openssl", "s_server", "-accept", str(port), "-cert", store, "-key", store, "-quiet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as child:
        try:
            time.sleep(0.5)
            yield psutil.Process(child.pid), ("127.0.0.1", port)
        finally:
            child.kill()


class _Producer:
    """One producer that sends a request, waits for its reply, and sends the next, on a thread."""

    def __init__(self, address: tuple[str, int], topic: str) -> None:
        self.latencies_us: list[float] = []
        self._frame = raw.produce_request(topic, value_bytes=100)
        self._reply_bytes = raw.produce_reply_bytes(topic)
        self._connection = _connected(address)
        self._is_ending = False
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._is_ending:
            sent = time.perf_counter_ns()
            self._connection.sendall(self._frame)
            received = 0
            while received < self._reply_bytes:
                received += len(self._connection.recv(4096))
            self.latencies_us.append((time.perf_counter_ns() - sent) / 1e3)
            time.sleep(0.001)

    def __enter__(self) -> "_Producer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending = True
        self._thread.join()
        self._connection.close()


def _connected(address: tuple[str, int]) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = socket.create_connection(address, timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(connection)


# -- memory


def _memory(
    figures: harness.Figures,
    options: argparse.Namespace,
    subject: harness.Subject,
    address: tuple[str, int],
) -> None:
    before = subject.resident_bytes()
    with ExitStack() as stack:
        for _ in range(options.connections):
            connection = stack.enter_context(_connected(address))
            connection.sendall(API_VERSIONS)
            connection.recv(4096)
        used = subject.resident_bytes() - before
    figures.add("memory of one idle connection", "KB", subject.name, used / options.connections / 1e3)


if __name__ == "__main__":
    main()
