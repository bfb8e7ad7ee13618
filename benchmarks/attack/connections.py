"""Attacks by connections: replies that are not read, frames that do not end, idle connections, and as many
as there are descriptors.
"""

import contextlib
import resource
import select
import socket
import struct

from benchmarks.attack.target import Target, attack
from benchmarks.raw import request, wait_for_leaders
from sparklog import Admin

METADATA = 3
FETCH = 1
PRODUCE = 0
METADATA_OF_ALL = request(METADATA, 1, struct.pack(">i", -1))

READERS = 120
TOPICS = 15_000
TOPICS_PER_REQUEST = 1000
FRAMES = 12
FRAME_BYTES = 90 << 20
IDLE = 10_000
PAUSE_S = 0.01


@attack
def unread_replies(target: Target) -> None:
    """120 connections ask for the metadata of 15 000 topics again and again and read nothing."""
    with Admin(bootstrap_servers=f"{target.host}:{target.port}", default_api_timeout_ms=120_000) as admin:
        for begin in range(0, TOPICS, TOPICS_PER_REQUEST):
            admin.create_topics(
                {f"unread-{number:05}": 1 for number in range(begin, begin + TOPICS_PER_REQUEST)}
            )
    with target.connect() as connection:
        wait_for_leaders(connection, f"unread-{TOPICS - 1:05}", 1)  # the last to be begun
    with contextlib.ExitStack() as connected:
        readers = [connected.enter_context(_connect(target)) for _ in range(READERS)]
        target.begin()
        while not target.is_over:
            readers = [connected.enter_context(_connect(target)) if _is_gone(one) else one for one in readers]
            for reader in readers:
                _send_some(reader, METADATA_OF_ALL * 16)
            select.select([], [], [], PAUSE_S)


@attack
def unfinished_frames(target: Target) -> None:
    """12 connections announce a frame of 90 MiB each and send all of it but the last byte."""
    piece = bytes(1 << 20)
    head = struct.pack(">ihhi", FRAME_BYTES, PRODUCE, 9, 1)
    with contextlib.ExitStack() as connected:
        senders = [connected.enter_context(_connect(target)) for _ in range(FRAMES)]
        rest = dict.fromkeys(senders, FRAME_BYTES - len(head))
        for sender in senders:
            sender.sendall(head)
        target.begin()
        while not target.is_over:
            _, writable, _ = select.select([], [one for one in rest if rest[one] > 0], [], PAUSE_S)
            for sender in writable:
                sent = _send_some(sender, piece[: rest[sender]])
                rest[sender] = rest[sender] - sent if sent >= 0 else 0


@attack
def idle_connections(target: Target) -> None:
    """10 000 connections, or as many as this process may have, are opened and say nothing; each that is
    closed is opened again.
    """
    _hold(target, min(IDLE, _limit() - 64), b"")


@attack
def all_descriptors(target: Target) -> None:
    """As many connections as this process may have, at most twice `max.connections`, each with a fetch
    that waits for a minute.
    """
    topic = target.topic.encode()
    partition = struct.pack(">iiqi", 1, 0, 1 << 40, 1 << 20)
    body = (
        struct.pack(">iiiib", -1, 60_000, 1 << 20, 1 << 20, 0)
        + struct.pack(">ih", 1, len(topic))
        + topic
        + partition
    )
    _hold(target, min(2 * IDLE, _limit() - 64), request(FETCH, 4, body))


def _hold(target: Target, count: int, said: bytes) -> None:
    with contextlib.ExitStack() as connected:
        target.begin()
        while not target.is_over:
            held: list[socket.socket] = []
            while len(held) < count and not target.is_over:
                try:
                    held.append(connected.enter_context(_connect(target)))
                except OSError:
                    select.select([], [], [], PAUSE_S)
                    continue
                _send_some(held[-1], said)
            while held and not target.is_over:
                select.select([], [], [], PAUSE_S)
                if _is_gone(held[0]):
                    break
            connected.close()


def _limit() -> int:
    """Raise the limit of descriptors as far as it goes, and return it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _connect(target: Target) -> socket.socket:
    connected = target.connect()
    connected.setblocking(False)
    return connected


def _send_some(connection: socket.socket, content: bytes) -> int:
    """Send as much as the socket accepts now; -1 if the broker has closed it."""
    try:
        return connection.send(content)
    except BlockingIOError:
        return 0
    except OSError:
        return -1


def _is_gone(connection: socket.socket) -> bool:
    """Whether the broker has reset the connection."""
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0 or connection.fileno() < 0
