"""The smallest client there can be: prepared Produce and Fetch frames over a socket, so that the clock sees the broker.

Frames are made here by `struct`, apart from sparklog's own codec: the same bytes go to every broker. Produce v7 and Fetch v4 are spoken by
every broker since 2018, ours and Kafka 4.3 included.
"""

import socket
import struct
import time

from crc32c import crc32c

from benchmarks.harness import Subject

CLIENT_ID = b"bench"


def connect(subject: Subject) -> socket.socket:
    """A connection without Nagle's delay, to the only broker there is."""
    connection = socket.create_connection((subject.host, subject.port), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def request(api_key: int, version: int, body: bytes) -> bytes:
    """A whole frame with request header v1 and correlation id 7."""
    header = struct.pack(">hhih", api_key, version, 7, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


def produce_request(topic: str, *, value_bytes: int, acks: int = 1) -> bytes:
    """A Produce of one batch with one record, for partition 0."""
    record = b"\0" + _varint(0) + _varint(0) + _varint(-1) + _varint(value_bytes) + b"x" * value_bytes + _varint(0)
    record = _varint(len(record)) + record
    now_ms = int(time.time() * 1000)
    crc_covered = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    batch = struct.pack(">qiibI", 0, 9 + len(crc_covered), -1, 2, crc32c(crc_covered)) + crc_covered
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + _string(topic) + struct.pack(">iii", 1, 0, len(batch)) + batch
    return request(0, 7, body)


def produce_reply_bytes(topic: str) -> int:
    """The length of the whole answer to `produce_request`, length prefix included."""
    return 4 + 4 + 4 + 2 + len(topic) + 4 + (4 + 2 + 8 + 8 + 8) + 4


def produce_error(reply: bytes, topic: str) -> int:
    """The error code in the answer to `produce_request`."""
    (code,) = struct.unpack_from(">h", reply, 4 + 4 + 4 + 2 + len(topic) + 4 + 4)
    return int(code)


def fetch_request(topic: str, *, offset: int, max_bytes: int) -> bytes:
    """A Fetch of partition 0 from `offset`, waiting up to half a second for one byte."""
    partition = struct.pack(">iqi", 0, offset, max_bytes)
    body = struct.pack(">iiiibi", -1, 500, 1, max_bytes, 0, 1) + _string(topic) + struct.pack(">i", 1) + partition
    return request(1, 4, body)


class FetchedTo:
    """Where a Fetch reply is received into, and what its last batch header says; the records are never copied again."""

    def __init__(self, room_bytes: int) -> None:
        self._buffer = memoryview(bytearray(room_bytes))

    def receive(self, connection: socket.socket, topic: str) -> tuple[int, int]:
        """Receive one whole reply; `(record bytes, next offset)`, the second -1 if there were no records."""
        view = self._buffer
        got = 0
        while got < 4:
            got += _received(connection.recv_into(view[got:]))
        end = 4 + int(struct.unpack_from(">i", view, 0)[0])
        while got < end:
            got += _received(connection.recv_into(view[got:end]))
        at = 4 + 4 + 4 + 4 + 2 + len(topic) + 4
        _, error, _, _, aborted = struct.unpack_from(">ihqqi", view, at)
        if error:
            raise RuntimeError(f"fetch answered with error {error}")
        at += 26 + 16 * max(0, aborted)
        record_bytes = int(struct.unpack_from(">i", view, at)[0])
        return record_bytes, _next_offset(view[at + 4 : at + 4 + max(0, record_bytes)])


def _next_offset(records: memoryview) -> int:
    """After the last whole batch; headers alone are looked at."""
    at, reached = 0, -1
    while at + 61 <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            break
        reached = base_offset + struct.unpack_from(">i", records, at + 23)[0] + 1
        at += 12 + length
    return reached


def _received(count: int) -> int:
    if count == 0:
        raise ConnectionError("the broker closed the connection")
    return count


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _varint(value: int) -> bytes:
    zigzag = ((value << 1) ^ (value >> 63)) & (2**64 - 1)
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)
