"""The smallest client there can be: prepared Produce and Fetch frames over a socket, so that the clock
sees the broker.

Frames are made here by `struct`, apart from sparklog's own codec: the same bytes go to every broker.
Produce v7 and Fetch v4 are spoken by every broker since 2018, ours and Kafka 4.3 included.
"""

import socket
import struct
import time
from collections.abc import Iterable, Mapping

from crc32c import crc32c

from benchmarks.harness import Subject

CLIENT_ID = b"bench"
_NO_LEADER_YET = (3, 5, 6)  # unknown topic or partition, leader not available, not leader or follower


def connect(subject: Subject) -> socket.socket:
    """A connection without Nagle's delay, to the only broker there is."""
    connection = socket.create_connection((subject.host, subject.port), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def request(api_key: int, version: int, body: bytes) -> bytes:
    """A whole frame with request header v1 and correlation id 7."""
    header = struct.pack(">hhih", api_key, version, 7, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


def batch(*, value_bytes: int, records: int = 1, timestamp_ms: int | None = None) -> bytes:
    """A record batch v2, uncompressed, of records without keys."""
    now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    crc_covered = struct.pack(">hiqqqhii", 0, records - 1, now_ms, now_ms, -1, -1, -1, records)
    for number in range(records):
        record = (
            b"\0"
            + varint(0)
            + varint(number)
            + varint(-1)
            + varint(value_bytes)
            + b"x" * value_bytes
            + varint(0)
        )
        crc_covered += varint(len(record)) + record
    return struct.pack(">qiibI", 0, 9 + len(crc_covered), -1, 2, crc32c(crc_covered)) + crc_covered


def produce_request(topic: str, *, value_bytes: int, acks: int = 1) -> bytes:
    """A Produce of one batch with one record, for partition 0."""
    return produce_batches(topic, {0: batch(value_bytes=value_bytes)}, acks=acks)


def produce_batches(topic: str, batches: Mapping[int, bytes], *, acks: int = 1) -> bytes:
    """A Produce of one batch for each of these partitions."""
    body = [struct.pack(">hhii", -1, acks, 30_000, 1), _string(topic), struct.pack(">i", len(batches))]
    for partition, one in batches.items():
        body += [struct.pack(">ii", partition, len(one)), one]
    return request(0, 7, b"".join(body))


def pour(connection: socket.socket, topic: str, frames: Iterable[bytes], *, in_flight: int = 16) -> int:
    """Send Produce frames of one partition each, `in_flight` unanswered at most; how many there were.
    Raises RuntimeError at an error.
    """
    reply_bytes = produce_reply_bytes(topic)
    sent, answered, received = 0, 0, b""
    source = iter(frames)
    is_more = True
    while is_more or answered < sent:
        while is_more and sent - answered < in_flight:
            frame = next(source, None)
            if frame is None:
                is_more = False
                break
            connection.sendall(frame)
            sent += 1
        if answered == sent:
            break
        more = connection.recv(65536)
        _received(len(more))
        received += more
        while len(received) >= reply_bytes:
            if error := produce_error(received, topic):
                raise RuntimeError(f"produce to {topic} answered with error {error}")
            received = received[reply_bytes:]
            answered += 1
    return sent


def produce_reply_bytes(topic: str) -> int:
    """The length of the whole answer to `produce_request`, length prefix included."""
    return 4 + 4 + 4 + 2 + len(topic) + 4 + (4 + 2 + 8 + 8 + 8) + 4


def produce_error(reply: bytes, topic: str) -> int:
    """The error code in the answer to `produce_request`."""
    (code,) = struct.unpack_from(">h", reply, 4 + 4 + 4 + 2 + len(topic) + 4 + 4)
    return int(code)


def reply(connection: socket.socket) -> bytes:
    """The next whole reply, length prefix included."""
    content = b""
    while len(content) < 4 or len(content) < 4 + int(struct.unpack_from(">i", content)[0]):
        more = connection.recv(1 << 20)
        _received(len(more))
        content += more
    return content


def check_produced(content: bytes, topic: str) -> int:
    """How many partitions the reply to `produce_batches` answers for. Raises RuntimeError at the first
    error.
    """
    at = 4 + 4 + 4 + 2 + len(topic)
    (count,) = struct.unpack_from(">i", content, at)
    for partition, error, _, _, _ in struct.iter_unpack(">ihqqq", content[at + 4 : at + 4 + 30 * count]):
        if error:
            raise RuntimeError(f"produce to {topic}-{partition} answered with error {error}")
    return int(count)


def log_end_offset(connection: socket.socket, topic: str, partition: int) -> int:
    """ListOffsets v1 of the latest offset."""
    offset = _log_end_offset(connection, topic, partition)
    if offset is None:
        raise RuntimeError(f"{topic}-{partition} has no leader")
    return offset


def wait_for_leaders(connection: socket.socket, topic: str, partitions: int) -> None:
    """Until each of the partitions answers as its leader: a new topic is known a moment before all of its
    logs are there.
    """
    deadline = time.monotonic() + 60
    for partition in range(partitions):
        while _log_end_offset(connection, topic, partition) is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic}-{partition} has no leader after a minute")
            time.sleep(0.02)


def _log_end_offset(connection: socket.socket, topic: str, partition: int) -> int | None:
    body = struct.pack(">ii", -1, 1) + _string(topic) + struct.pack(">iiq", 1, partition, -1)
    connection.sendall(request(2, 1, body))
    _, error, _, offset = struct.unpack_from(">ihqq", reply(connection), 4 + 4 + 4 + 2 + len(topic) + 4)
    if error not in (0, *_NO_LEADER_YET):
        raise RuntimeError(f"list offsets of {topic}-{partition} answered with error {error}")
    return None if error else int(offset)


def fetch_request(topic: str, *, offset: int, max_bytes: int) -> bytes:
    """A Fetch of partition 0 from `offset`, waiting up to half a second for one byte."""
    partition = struct.pack(">iqi", 0, offset, max_bytes)
    body = (
        struct.pack(">iiiibi", -1, 500, 1, max_bytes, 0, 1)
        + _string(topic)
        + struct.pack(">i", 1)
        + partition
    )
    return request(1, 4, body)


class FetchedTo:
    """The buffer of a Fetch reply, and the fields of its last batch header; the records are never
    copied again.
    """

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


def varint(value: int) -> bytes:
    """A zig-zag varint, as in records."""
    zigzag = ((value << 1) ^ (value >> 63)) & (2**64 - 1)
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)
