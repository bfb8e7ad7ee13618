"""A pump over real sockets and a real disk, with an echo where the broker stands; turned by hand, so
nothing waits.
"""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog_server.daemon.pump import Pump
from sparklog_server.daemon.reactor import Reactor
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.loggers import EVENTS, INFO
from tests.daemon.echo import Echo


class Rig:
    """`client()` connects; `turn` lets the daemon work until nothing is ready."""

    def __init__(self, directory: Path) -> None:
        self.disk = OsDisk()
        self.file = self.disk.open(str(directory / "file"), create=True)
        self.broker = Echo(self.file)
        self.lines: list[str] = []
        self.reactor = Reactor()
        self.pump = Pump(self.broker, self.disk, self.reactor, self._trace, unsent_bytes_max=1 << 20)
        self.clients: list[socket.socket] = []

    def client(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.clients.append(theirs)
        self.pump.accepted(ours, "PLAINTEXT", ("peer", 2))
        return theirs

    def turn(self, *, wait_s: float = 0.0) -> None:
        self.reactor.turn(wait_s)

    def exchange(self, client: socket.socket, request: bytes, size: int) -> bytes:
        """Send a request and let the daemon work until `size` bytes have come back, or the connection is
        closed.
        """
        client.sendall(request)
        received = bytearray()
        while len(received) < size:
            self.turn(wait_s=0.02)
            try:
                part = client.recv(1 << 20)
            except BlockingIOError:
                continue
            if not part:
                break
            received += part
        return bytes(received)

    def _trace(self, event: str, **fields: object) -> None:
        if EVENTS[event].level >= INFO:
            self.lines.append(event)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    for client in rig.clients:
        client.close()
    for connection in list(rig.pump.connections.values()):
        connection.close()
    rig.reactor.close()
