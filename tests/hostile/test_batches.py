"""Batches whose header lies, and compressed records that are none or grow without end: each is refused with
Kafka's error, and nothing is stored.
"""

import gzip
import itertools
import struct
import time
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard

from sparklog.errors import ErrorCode
from sparklog.kernels import scan
from sparklog.record.batch import CRC_POSITION, CRC_START, HEADER_SIZE, build_batch
from sparklog.record.compression import Codec
from sparklog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog.wire.schema import Message
from tests.broker.world import latest, listed, produce
from tests.hostile.conftest import MIB, SERVED, Client, Door, Target, doors

WALL_MS = 1_700_000_000_000
LENGTH, LEADER_EPOCH, MAGIC, ATTRIBUTES, LAST_OFFSET_DELTA = 8, 12, 16, 21, 23
FIRST_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE, COUNT = 27, 35, 43, 51, 53, 57
BOMB_BYTES = 96 * MIB
_topics = itertools.count(1)


def batch(*values: bytes) -> bytearray:
    return build_batch([(b"key", value, (), WALL_MS) for value in values or (b"one", b"two")])


def sealed(content: bytearray) -> bytes:
    """With the checksum of the bytes as they are."""
    struct.pack_into(">I", content, CRC_POSITION, scan.crc(memoryview(content)[CRC_START:]))
    return bytes(content)


def lying(at: int, form: str, value: int) -> Callable[[], bytes]:
    """A batch with another value in one field of its header."""

    def make() -> bytes:
        content = batch()
        struct.pack_into(form, content, at, value)
        return sealed(content)

    return make


def with_bad_crc() -> bytes:
    content = bytearray(batch())
    content[CRC_POSITION] ^= 1
    return bytes(content)


def two_batches() -> bytes:
    return bytes(batch() + batch())


def cut_short() -> bytes:
    return bytes(batch()[:-3])


def trailing_bytes() -> bytes:
    return bytes(batch()) + b"\0\0\0"


def with_records(body: bytes, codec: Codec = Codec.NONE, count: int = 2) -> bytes:
    """A batch whose records are these bytes."""
    content = bytearray(batch()[:HEADER_SIZE]) + body
    struct.pack_into(">i", content, LENGTH, len(content) - 12)
    struct.pack_into(">h", content, ATTRIBUTES, codec)
    struct.pack_into(">i", content, LAST_OFFSET_DELTA, count - 1)
    struct.pack_into(">i", content, COUNT, count)
    return sealed(content)


def records() -> bytes:
    return bytes(batch()[HEADER_SIZE:])


LIES = {
    "a length beyond the bytes": lying(LENGTH, ">i", 1 << 30),
    "a length of less than a header": lying(LENGTH, ">i", 12),
    "a negative length": lying(LENGTH, ">i", -1),
    "magic 0": lying(MAGIC, ">b", 0),
    "magic 1": lying(MAGIC, ">b", 1),
    "magic 3": lying(MAGIC, ">b", 3),
    "magic -1": lying(MAGIC, ">b", -1),
    "a false checksum": with_bad_crc,
    "a count of 0": lying(COUNT, ">i", 0),
    "a count of 2^31-1": lying(COUNT, ">i", 2**31 - 1),
    "a negative count": lying(COUNT, ">i", -1),
    "one record too few": lying(COUNT, ">i", 1),
    "a last offset of 2^31-1": lying(LAST_OFFSET_DELTA, ">i", 2**31 - 1),
    "a negative last offset": lying(LAST_OFFSET_DELTA, ">i", -1),
    "an unknown codec": lying(ATTRIBUTES, ">h", 7),
    "a codec that the records do not have": lying(ATTRIBUTES, ">h", 4),
    "a control batch": lying(ATTRIBUTES, ">h", 0x20),
    "a producer id without a sequence": lying(PRODUCER_ID, ">q", 4711),
    "two batches": two_batches,
    "bytes that end too early": cut_short,
    "bytes behind the batch": trailing_bytes,
    "no records": lambda: with_records(b""),
    "records of zeros": lambda: with_records(bytes(64)),
    "a record of 2^31 bytes": lambda: with_records(b"\xfe\xff\xff\xff\x0f" + bytes(64)),
    "varints that never end": lambda: with_records(b"\xff" * 64),
}


def at_time(base_ms: int, *, second_ms: int = 0) -> Callable[[], bytes]:
    """Two records of this time, the second so much later."""
    return lambda: sealed(
        build_batch([(b"key", b"one", (), base_ms), (b"key", b"two", (), base_ms + second_ms)])
    )


def with_offset_delta() -> bytes:
    """The second record says that it is the sixth."""
    content = batch()
    place = content.rindex(b"\x02\x06key")  # the delta 1 and the length 3, as zigzag varints
    content[place] = 10
    return sealed(content)


LONG_MAX = (1 << 63) - 1
HOUR_MS = 3_600_000
UNUSUAL: dict[str, Callable[[], bytes]] = {
    "an offset of 7": lying(0, ">q", 7),
    "an offset of -5": lying(0, ">q", -5),
    "a leader epoch of 2^31-1": lying(LEADER_EPOCH, ">i", 2**31 - 1),
    "a first time of 2^63-1": lying(FIRST_TIMESTAMP, ">q", LONG_MAX),
    "a first time of -2^63": lying(FIRST_TIMESTAMP, ">q", -LONG_MAX - 1),
    "a first time of -1": lying(FIRST_TIMESTAMP, ">q", -1),
    "a first time of -5": lying(FIRST_TIMESTAMP, ">q", -5),
    "a last time of 2^63-1": lying(MAX_TIMESTAMP, ">q", LONG_MAX),
    "a last time of -2^63": lying(MAX_TIMESTAMP, ">q", -LONG_MAX - 1),
    "a last time before the first": lying(MAX_TIMESTAMP, ">q", 1),
    "a last time of -1": lying(MAX_TIMESTAMP, ">q", -1),
    "records of tomorrow": lambda: at_time(int(time.time() * 1000) + 24 * HOUR_MS)(),
    "a record of tomorrow": lambda: at_time(int(time.time() * 1000), second_ms=24 * HOUR_MS)(),
    "a record long before the first": at_time(WALL_MS, second_ms=-WALL_MS - 3),
    "the time of the broker": lying(ATTRIBUTES, ">h", 0x08),
    "a transaction without a producer": lying(ATTRIBUTES, ">h", 0x10),
    "a delete horizon": lying(ATTRIBUTES, ">h", 0x40),
    "attributes that have no meaning": lying(ATTRIBUTES, ">h", 0x7F80),
    "codec 5": lying(ATTRIBUTES, ">h", 5),
    "a producer id of -2": lying(PRODUCER_ID, ">q", -2),
    "a producer epoch without an id": lying(PRODUCER_EPOCH, ">h", 3),
    "a sequence without a producer": lying(SEQUENCE, ">i", 3),
    "a last offset beyond the count": lying(LAST_OFFSET_DELTA, ">i", 5),
    "a last offset below the count": lying(LAST_OFFSET_DELTA, ">i", 0),
    "a record with a false offset": with_offset_delta,
}
"""Batches that Kafka refuses or stores; `tests/compatibility/test_lying_batches.py` says which."""


COMPRESS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: gzip.compress,
    Codec.LZ4: lambda records: lz4.frame.compress(records, block_linked=False),
    Codec.ZSTD: zstandard.compress,
}
OF_ZEROS: dict[Codec, Callable[[int], bytes]] = {
    Codec.GZIP: lambda size: gzip.compress(bytes(size)),
    Codec.SNAPPY: lambda size: snappy_of_zeros(size),
    Codec.LZ4: lambda size: lz4.frame.compress(bytes(size)),
    Codec.ZSTD: lambda size: zstandard.compress(bytes(size)),
}


def snappy_of_zeros(size: int) -> bytes:
    """One literal zero, then copies of 64 bytes from one byte before."""
    return varint(size) + b"\0\0" + b"\xfe\x01\0" * ((size - 1) // 64)


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes((value & 127 | 128,)), value >> 7
    return out + bytes((value,))


def one_record(size: int) -> bytes:
    """One valid record whose value has so many zeros."""
    return bytes(build_batch([(b"key", bytes(size), (), WALL_MS)])[HEADER_SIZE:])


def bomb_of_one_record(codec: Codec, size: int) -> bytes:
    """A valid batch that is far smaller than its one record."""
    records = one_record(size)
    packed = snappy_of_one_record(records) if codec is Codec.SNAPPY else COMPRESS[codec](records)
    return with_records(packed, codec, count=1)


def snappy_of_one_record(records: bytes) -> bytes:
    """The head of the record as a literal, its zeros as copies, the rest as a literal."""
    copies = (len(records) - 64) // 64
    head, tail = records[:32], records[32 + copies * 64 :]
    assert records[31] == 0
    first, last = (bytes((0xF0, len(part) - 1)) + part for part in (head, tail))
    return varint(len(records)) + first + b"\xfe\x01\0" * copies + last


def zstd_frame_of(size: int) -> bytes:
    """A frame that claims a content of so many bytes and has an empty block."""
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", size) + b"\x01\0\0"


STREAMS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip that ends too early": (Codec.GZIP, lambda: gzip.compress(records())[:-12]),
    "gzip with a false checksum": (Codec.GZIP, lambda: gzip.compress(records())[:-8] + bytes(8)),
    "deflate without its header": (Codec.GZIP, lambda: zlib.compress(records())),
    "lz4 that ends too early": (Codec.LZ4, lambda: lz4.frame.compress(records())[:-8]),
    "lz4 of random bytes": (Codec.LZ4, lambda: b"\x04\x22\x4d\x18" + bytes(range(60))),
    "zstd that ends too early": (Codec.ZSTD, lambda: zstandard.compress(records())[:-4]),
    "zstd that claims 2^60 bytes": (Codec.ZSTD, lambda: zstd_frame_of(1 << 60)),
    "snappy that claims 4 GiB": (Codec.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + records()),
    "snappy that claims nothing": (Codec.SNAPPY, lambda: b"\0" + records()),
    "snappy that claims more than it has": (Codec.SNAPPY, lambda: varint(1000) + b"\0\0"),
    "snappy that copies from before its begin": (Codec.SNAPPY, lambda: varint(64) + b"\xfe\xff\xff"),
    "xerial blocks of 2^31 bytes": (
        Codec.SNAPPY,
        lambda: b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 2**31 - 1) + records(),
    ),
    "xerial blocks of -1 bytes": (
        Codec.SNAPPY,
        lambda: b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -1) + records(),
    ),
}
REFUSED = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.MESSAGE_TOO_LARGE,
}


def a_topic(client: Client, **configs: str) -> str:
    name = f"hostile-{next(_topics)}"
    topic = CreatableTopic(name, 1, 1, configs=[CreatableTopicConfig(*one) for one in configs.items()])
    told = client.ask(CreateTopicsRequest([topic], 10_000), 7, CreateTopicsResponse)
    assert isinstance(told, CreateTopicsResponse)
    assert told.topics[0].error_code == 0
    return name


def outcome(told: Message) -> ErrorCode:
    assert isinstance(told, ProduceResponse)
    return ErrorCode(told.responses[0].partition_responses[0].error_code)


def refusal(client: Client, topic: str, content: bytes) -> ErrorCode:
    """The error of a batch, of which nothing is stored."""
    code = outcome(client.ask(produce(topic, content, acks=-1), 9, ProduceResponse))
    told = client.ask(latest(topic), 5, ListOffsetsResponse)
    assert listed(told) == (0, 0), code
    return code


@SERVED
def test_a_batch_whose_header_lies_is_refused(target: Target, door: Door) -> None:
    with target.client(door) as client:
        topic = a_topic(client)
        told = {name: refusal(client, topic, make()) for name, make in LIES.items()}
    assert {name: code for name, code in told.items() if code not in REFUSED} == {}


@SERVED
def test_a_stream_that_is_none_is_refused(target: Target, door: Door) -> None:
    with target.client(door) as client:
        topic = a_topic(client)
        told = {
            name: refusal(client, topic, with_records(make(), codec))
            for name, (codec, make) in STREAMS.items()
        }
    assert {name: code for name, code in told.items() if code not in REFUSED} == {}


@doors(Door.TLS_AFTER)
@pytest.mark.parametrize("codec", OF_ZEROS, ids=lambda one: one.name)
def test_a_compression_bomb_holds_bounded_memory(target: Target, door: Door, codec: Codec) -> None:
    """96 MiB of zeros, in 4 KiB to 5 MiB; the fixture bounds the memory."""
    with target.client(door) as client:
        topic = a_topic(client)
        bomb = with_records(OF_ZEROS[codec](BOMB_BYTES), codec)
        code = refusal(client, topic, bomb)
    assert code in REFUSED, code


@SERVED
def test_an_unusual_batch_is_answered(target: Target, door: Door) -> None:
    with target.client(door) as client:
        for name, make in UNUSUAL.items():
            code = outcome(client.ask(produce(a_topic(client), make(), acks=-1), 9, ProduceResponse))
            assert code in REFUSED | {ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}, name


@doors(Door.TLS_AFTER)
@pytest.mark.parametrize(
    ("codec", "size", "expected"),
    [
        (Codec.GZIP, BOMB_BYTES, ErrorCode.MESSAGE_TOO_LARGE),  # by sparklog.decompress.ratio.max
        (Codec.SNAPPY, BOMB_BYTES // 2, ErrorCode.NONE),
        (Codec.SNAPPY, BOMB_BYTES, ErrorCode.MESSAGE_TOO_LARGE),  # it is decompressed as a whole
        (Codec.LZ4, BOMB_BYTES, ErrorCode.NONE),
        (Codec.ZSTD, BOMB_BYTES, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_a_bomb_of_one_valid_record_holds_bounded_memory(
    target: Target, door: Door, codec: Codec, size: int, expected: ErrorCode
) -> None:
    """One record, which is checked in pieces, and stored if the limits allow its batch."""
    with target.client(door) as client:
        topic = a_topic(client, **{"max.message.bytes": str(8 * MIB)})
        bomb = bomb_of_one_record(codec, size)
        assert outcome(client.ask(produce(topic, bomb, acks=-1), 9, ProduceResponse)) == expected
        end = int(expected == ErrorCode.NONE)
        assert listed(client.ask(latest(topic), 5, ListOffsetsResponse)) == (0, end)
