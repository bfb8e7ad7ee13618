"""The socket of a supervisor, `DIR/supervisor.sock` in the directory of its cluster: by it, a command on this
machine learns of the nodes, or has one restarted.

    {"restart": 2}  ─►  {"cluster_id": …, "nodes": [{"node_id": 1, "pid": 2101, …}, …], "refusal": ""}

A connection carries one request and one reply, each a line of JSON. The socket has mode 0600: only the user
of the supervisor may connect. Later releases keep reading these requests, since a command of the new release
restarts nodes under a supervisor of the old one.
"""

import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import chdir, closing, suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from sparklog.errors import SparklogError
from sparklog_server.daemon.reactor import Reactor

SOCKET_FILE: Final = "supervisor.sock"
_CONNECTIONS_MAX: Final = 8
_REQUEST_BYTES_MAX: Final = 256
_REPLY_BYTES_MAX: Final = 1 << 16
_TIMEOUT_S: Final = 5.0


class SupervisorRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Restart this node; with None, only tell of the nodes."""

    restart: int | None = None


class NodeProcess(msgspec.Struct, frozen=True):
    """The process of a node: its pid, 0 while none runs; whether it accepts clients; how often it was
    started.
    """

    node_id: int
    pid: int
    is_ready: bool
    starts: int


class SupervisorReply(msgspec.Struct, frozen=True):
    """The nodes, and why a request was refused."""

    cluster_id: str
    nodes: tuple[NodeProcess, ...]
    refusal: str = ""


class NoSupervisor(SparklogError):
    """No supervisor answers in a directory, or it answers what this release does not read."""


class SupervisorSocket:
    """The supervisor's end. Raises SparklogError where another supervisor answers, OSError where the socket
    cannot be made.
    """

    def __init__(
        self,
        directory: str,
        reactor: Reactor,
        answer: Callable[[SupervisorRequest], SupervisorReply],
    ) -> None:
        self._path = Path(directory).absolute() / SOCKET_FILE
        self._reactor = reactor
        self._answer = answer
        self._connections: deque[socket.socket] = deque()
        with suppress(NoSupervisor):
            ask_supervisor(self._path.parent, SupervisorRequest())
            raise SparklogError(
                f"another `sparklog cluster start` runs the cluster in {directory}: stop it first"
            )
        self._path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            with chdir(self._path.parent):  # the path of a Unix socket has at most 107 bytes
                self._listening.bind(SOCKET_FILE)
            self._listening.listen(_CONNECTIONS_MAX)
        except OSError:
            self._listening.close()
            raise
        finally:
            os.umask(before)
        self._listening.setblocking(False)
        reactor.watch(self._listening.fileno(), self._accept)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Those that a forked node closes."""
        return self._listening.fileno(), *(one.fileno() for one in self._connections)

    def close(self) -> None:
        """Answer no longer, and remove the file."""
        while self._connections:
            self._end(self._connections[0])
        self._reactor.forget(self._listening.fileno())
        self._listening.close()
        self._path.unlink(missing_ok=True)

    def _accept(self, _events: int) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:  # the client has gone, or this process has no descriptor left
            return
        if len(self._connections) == _CONNECTIONS_MAX:
            self._end(self._connections[0])
        connection.setblocking(False)
        self._connections.append(connection)
        self._reactor.watch(connection.fileno(), partial(self._readable, connection, bytearray()))

    def _readable(self, connection: socket.socket, request: bytearray, _events: int) -> None:
        try:
            received = connection.recv(_REQUEST_BYTES_MAX)
            request += received
            if received and b"\n" not in request and len(request) < _REQUEST_BYTES_MAX:
                return
            if b"\n" in request:
                asked = msgspec.json.decode(request, type=SupervisorRequest)
                connection.send(msgspec.json.encode(self._answer(asked)) + b"\n")
        except (OSError, msgspec.MsgspecError):
            pass  # the client sees the end of the connection
        self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        self._connections.remove(connection)
        self._reactor.forget(connection.fileno())
        connection.close()


def ask_supervisor(directory: Path, request: SupervisorRequest) -> SupervisorReply:
    """The answer of the supervisor in a directory; raises NoSupervisor."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_TIMEOUT_S)
    with closing(connection):
        try:
            with chdir(directory):
                connection.connect(SOCKET_FILE)
            connection.sendall(msgspec.json.encode(request) + b"\n")
            reply = bytearray()
            while not reply.endswith(b"\n") and len(reply) < _REPLY_BYTES_MAX:
                received = connection.recv(_REPLY_BYTES_MAX)
                if not received:
                    break
                reply += received
            return msgspec.json.decode(reply, type=SupervisorReply)
        except (OSError, msgspec.MsgspecError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise NoSupervisor(
                f"no supervisor answers at {directory / SOCKET_FILE}: {reason.lower()}"
            ) from error
