"""The other end of a connection, for tests: requests decoded, replies encoded, and a broker that follows a
script.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from sparklog.client.settings import ClientSettings
from sparklog.effects import Chunk, FileSlice
from sparklog.model import Micros
from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.codec import decode
from sparklog.wire.header import RequestHeader, decode_request_header, encode_reply
from sparklog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from sparklog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sparklog.wire.schema import Message

TOPIC_ID = bytes(range(16))


def settings(**given: object) -> ClientSettings:
    return ClientSettings.from_kafka({name.replace("_", "."): str(value) for name, value in given.items()})


def no_chance(size: int) -> bytes:
    """Entropy that is always in the middle: back-offs have exactly their length."""
    return b"\x80" + bytes(size - 1) if size != 2 else b"\x7f\xff"


def ms(number: float) -> Micros:
    return Micros(int(number * 1000))


START = ms(0)
LATER = ms(120_000)


def joined(chunks: Sequence[Chunk]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks if not isinstance(chunk, FileSlice))


def requests_in(output: Sequence[Chunk]) -> list[tuple[RequestHeader, Message]]:
    """The requests in the bytes of a client."""
    stream, found = joined(output), []
    while stream:
        length = int.from_bytes(stream[:4], "big")
        found.append(request_of(stream[4 : 4 + length]))
        stream = stream[4 + length :]
    return found


def request_of(frame: bytes) -> tuple[RequestHeader, Message]:
    header, body = decode_request_header(frame)
    return header, decode(API_BY_KEY[header.api_key].request(), header.api_version, body)


def reply_to(header: RequestHeader, message: Message) -> bytes:
    return joined(encode_reply(message, header.api_key, header.api_version, header.correlation_id))


def versions(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    """A broker's API versions: everything in the table, with exceptions by API name."""
    by_name = {api.name: (api.since, api.until) for api in API_BY_KEY.values()} | ranges
    keys = {api.name: api.key for api in API_BY_KEY.values()}
    return ApiVersionsResponse(api_keys=[ApiVersion(keys[name], *span) for name, span in by_name.items()])


def metadata(
    topics: dict[str, Sequence[int]] | None = None,
    *,
    nodes: Sequence[tuple[int, int]] = ((1, 9092),),
    epoch: int = 0,
) -> MetadataResponse:
    """A cluster on 127.0.0.1: (node id, port), and per topic the leaders of its partitions."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node, "127.0.0.1", port) for node, port in nodes],
        cluster_id="c",
        controller_id=nodes[0][0],
        topics=[
            MetadataResponseTopic(
                name=name,
                topic_id=TOPIC_ID,
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
                    for index, leader in enumerate(leaders)
                ],
            )
            for name, leaders in (topics or {}).items()
        ],
    )


Handler = Callable[[Message], "Message | bytes | None"]
"""What to answer: a reply, raw bytes in its place, or None to break the connection."""


class ScriptedBroker:
    """Listens on loopback and answers by script; APIs without a handler are never answered. `seen` holds
    the requests in order.
    """

    def __init__(self, handlers: dict[str, Handler] | None = None) -> None:
        self.handlers: dict[str, Handler] = {"ApiVersions": lambda _: versions(), **(handlers or {})}
        self.seen: list[tuple[str, Message]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._serving: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def reset_connections(self) -> None:
        """Reset each connection, by the time it returns; more are accepted."""
        for sock in self._sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.shutdown(socket.SHUT_RD)  # its thread closes it
        for thread in self._serving:
            thread.join(5)
        self._sockets.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Close every connection and accept no more; a second call has no effect."""
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # ends a read of its thread
            sock.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            serving = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._serving.append(serving)
            serving.start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, sock.makefile("rb") as stream:
            try:
                while len(length := stream.read(4)) == 4:
                    header, request = request_of(stream.read(int.from_bytes(length, "big")))
                    name = API_BY_KEY[header.api_key].name
                    self.seen.append((name, request))
                    if name not in self.handlers:
                        continue
                    answer = self.handlers[name](request)
                    if answer is None:
                        return
                    sock.sendall(answer if isinstance(answer, bytes) else reply_to(header, answer))
            except (OSError, ValueError):
                return
