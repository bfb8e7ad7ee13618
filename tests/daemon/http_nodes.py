"""Nodes with an HTTP listener, and plain HTTP over a socket."""

import re
import select
import socket
from pathlib import Path

from tests.daemon.broker_process import PATIENCE_S, BrokerProcess


class HttpNode:
    """A broker process: its Kafka address and the URL of its HTTP listener, once it is ready."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        readable, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        line = process.stdout.readline() if readable else ""
        found = re.fullmatch(r"ready node=\d+ listen=(\S+) pid=\d+ http=(https?://\S+)\n", line)
        assert found is not None, f"{line!r}, then {process.end()}"
        self.bootstrap_servers, self.url = found[1], found[2]

    @property
    def http_address(self) -> tuple[str, int]:
        host, _, port = self.url.partition("://")[2].rpartition(":")
        return host, int(port)

    @property
    def kafka_address(self) -> tuple[str, int]:
        host, _, port = self.bootstrap_servers.rpartition(":")
        return host, int(port)


def http_broker(data_dir: Path, *arguments: str) -> BrokerProcess:
    """A broker whose HTTP listener is on a port of its own."""
    return BrokerProcess(
        "--data-dir",
        str(data_dir),
        "--listen",
        "127.0.0.1:0",
        "--set",
        "sparklog.http.listener=http://127.0.0.1:0",
        *arguments,
    )


def get(connection: socket.socket, path: str) -> tuple[int, bytes]:
    """One request on a connection that is kept: the status and the body."""
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return response(connection)


def response(connection: socket.socket) -> tuple[int, bytes]:
    """The next response; status 0 if the connection is closed instead."""
    connection.settimeout(PATIENCE_S)
    received = b""
    try:
        while b"\r\n\r\n" not in received:
            part = connection.recv(65_536)
            if not part:
                return 0, received
            received += part
        head, _, body = received.partition(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
        while len(body) < length:
            part = connection.recv(1 << 20)
            assert part, "the response is cut"
            body += part
    except ConnectionResetError:
        return 0, received
    return int(head.split(b" ")[1]), body
