"""Attacks on decompression and producer state: bombs, empty gzip members, many producer ids."""

import os
import struct
import time
import zlib
from collections.abc import Iterator

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import zstandard
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from crc32c import crc32c

from benchmarks import raw
from benchmarks.attack.target import Target, attack

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
BOMB_BYTES = 250 << 20
LZ4_BYTES = 200 << 20
CONNECTIONS = 4
MEMBERS_BYTES = 1_000_000
PRODUCER_IDS = 300_000
IDS_IN_FLIGHT = 16
DESCRIBED = 10
_ZEROS = bytes(1 << 20)
_RECORD = b"\x0e\0\0\0\x01\x02x\0"  # no key, the value "x"


@attack
def gzip_bombs(target: Target) -> None:
    """Batches that decompress to hundreds of megabytes before they are refused."""
    compressor = zlib.compressobj(9, wbits=31)
    _repeat(target, GZIP, b"".join(map(compressor.compress, _bomb())) + compressor.flush())


@attack
def zstd_bombs(target: Target) -> None:
    """The same in zstd."""
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    _repeat(target, ZSTD, b"".join(map(compressor.compress, _bomb())) + compressor.flush())


@attack
def lz4_bombs(target: Target) -> None:
    """The same in lz4, which cannot do more than 255 times."""
    _repeat(
        target,
        LZ4,
        lz4.frame.compress(
            b"".join(_bomb(LZ4_BYTES, 0)), block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX4MB
        ),
    )


@attack
def snappy_bombs(target: Target) -> None:
    """The same in snappy, which cannot do more than 21 times: as much as fits the largest batch."""
    _repeat(target, SNAPPY, bytes(cramjam.snappy.compress_raw(b"".join(_bomb(20 * MEMBERS_BYTES, 0)))))


@attack
def gzip_members(target: Target) -> None:
    """Batches of nothing but empty gzip members, 20 bytes each."""
    member = zlib.compress(b"", wbits=31)
    _repeat(target, GZIP, member * (MEMBERS_BYTES // len(member)), partitions=8)


@attack
def producer_ids(target: Target) -> None:
    """One record each of very many producer ids in a partition whose segments roll often, then requests
    that list them all.
    """
    name = "producers"
    admin = AdminClient({"bootstrap.servers": f"{target.host}:{target.port}"})
    admin.create_topics([NewTopic(name, 1, 1, config={"segment.bytes": str(1 << 20)})])[name].result(
        timeout=30
    )
    describe = raw.request(
        61, 0, b"\0\2" + bytes([len(name) + 1]) + name.encode() + b"\2" + bytes(4) + b"\0\0"
    )
    with target.connect() as connection:
        raw.wait_for_leaders(connection, name, 1)
        target.begin()
        raw.pour(
            connection,
            name,
            (_of_producer(name, number) for number in range(PRODUCER_IDS)),
            in_flight=IDS_IN_FLIGHT,
        )
        for _ in range(DESCRIBED):
            connection.sendall(describe)
            raw.reply(connection)


def _bomb(size: int = BOMB_BYTES, random: int = BOMB_BYTES // 512) -> Iterator[bytes]:
    """One record with a large value where the batch promises two, so that all of it must be decompressed
    before it is refused.

    The value has enough random bytes to stay within `sparklog.decompress.ratio.max`.
    """
    head = b"\0\0\0\1" + raw.varint(size)
    yield raw.varint(len(head) + size + 1) + head + os.urandom(random)
    for at in range(random, size, len(_ZEROS)):
        yield _ZEROS[: size - at]
    yield b"\0"


def _of_producer(topic: str, number: int) -> bytes:
    """A Produce of one record as the first of a producer id."""
    batch = _batch(0, _RECORD, producer_id=1_000_000 + number, epoch=0, sequence=0)
    return raw.produce_batches(topic, {0: batch})


def _repeat(target: Target, codec: int, body: bytes, *, partitions: int | None = None) -> None:
    """Send the batch to many partitions at once, over several connections, until it is over."""
    one = _batch(codec, body, records=2)
    frame = raw.produce_batches(target.topic, dict.fromkeys(range(partitions or target.partitions), one))
    connections = [target.connect() for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.settimeout(280)
    target.begin()
    while not target.is_over:
        for connection in connections:
            connection.sendall(frame)
        for connection in connections:
            raw.reply(connection)


def _batch(
    codec: int, body: bytes, *, producer_id: int = -1, epoch: int = -1, sequence: int = -1, records: int = 1
) -> bytes:
    """A batch that says it has so many records."""
    now_ms = int(time.time() * 1000)
    covered = (
        struct.pack(">hiqqqhii", codec, records - 1, now_ms, now_ms, producer_id, epoch, sequence, records)
        + body
    )
    return struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, crc32c(covered)) + covered
