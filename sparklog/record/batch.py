"""Record batches of format v2: the unit that is produced, stored and fetched.

`sparklog.kernels.batch_header` draws the header of 61 bytes. Only the bytes after it are compressed. A record
is

    length, attributes (1 byte), timestamp delta, offset delta, key length, key, value length, value,
    header count, {key length, key, value length, value} …

with zig-zag varints; a length of -1 is null. After compaction deltas have gaps and the last offset stays:
the offset after a batch comes from its header, not from its record count.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import error, pack_into

import msgspec

from sparklog.errors import DecodeError
from sparklog.kernels import gather, scan
from sparklog.kernels.batch_header import (
    CODEC_BITS,
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    CREATE_TIME,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    SEQUENCE_MAX,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    sequence_after,
)
from sparklog.record.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress

__all__ = [
    "CODEC_BITS",
    "CONTROL_BIT",
    "CRC_POSITION",
    "CRC_START",
    "CREATE_TIME",
    "DELETE_HORIZON_BIT",
    "HEADER_SIZE",
    "LENGTH_OVERHEAD",
    "LOG_APPEND_TIME",
    "MAGIC",
    "NO_TIMESTAMP",
    "SEQUENCE_MAX",
    "TIMESTAMP_TYPE_BIT",
    "TRANSACTIONAL_BIT",
    "BatchBuilder",
    "BatchHeader",
    "Buffer",
    "Content",
    "Headers",
    "Record",
    "WholeBatch",
    "build_batch",
    "codec_of",
    "decode_error",
    "decode_records",
    "iterate_headers",
    "read_header",
    "record_size_max",
    "sequence_after",
    "unpack_header",
]

Buffer = bytes | bytearray | memoryview
Content = bytes | bytearray | memoryview | str | None
Headers = Sequence[tuple[str, bytes | None]]

_VARINT_SIZE_MAX = 5
_RECORD_OVERHEAD_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5


class Record(msgspec.Struct, gc=False, frozen=True):
    """One record; the timestamp is in milliseconds of Unix time, -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def codec_of(header: BatchHeader) -> Codec:
    """The codec of a batch; DecodeError for one that Kafka does not have."""
    try:
        return Codec(header.attributes & CODEC_BITS)
    except ValueError:
        raise DecodeError(f"unknown codec {header.attributes & CODEC_BITS}") from None


def unpack_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The fields of the 61 bytes at `position`, without a check. `struct.error` if there are fewer bytes."""
    return BatchHeader(*HEADER.unpack_from(buffer, position))


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`, whose records may be missing. DecodeError if the batch is not of
    format v2.
    """
    try:
        header = unpack_header(buffer, position)
    except error:
        raise DecodeError("no room for the header of a record batch", position) from None
    if header.magic != MAGIC:
        raise DecodeError(f"magic {header.magic} is not {MAGIC}", position + 16)
    if header.length < HEADER_SIZE - LENGTH_OVERHEAD:
        raise DecodeError(f"batch length {header.length} is shorter than a header", position + 8)
    return header


def iterate_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """The position and header of every whole batch; an incomplete one at the end is left out."""
    size = len(buffer)
    while size - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        if position + header.size > size:
            return
        yield position, header
        position += header.size


def decode_records(
    buffer: Buffer,
    start: int = 0,
    *,
    include_control: bool = False,
    verify_crc: bool = True,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[Record]:
    """The records of all whole batches from offset `start` on. DecodeError for bytes that do not follow
    the format.

    `decompressed_bytes_max` bounds each batch.
    """
    view = memoryview(buffer)
    records: list[Record] = []
    try:
        for position, header in scan.headers(view, False):
            if header.next_offset <= start or (header.is_control and not include_control):
                continue
            end = position + header.size
            if verify_crc and scan.crc(view[position + CRC_START : end]) != header.crc:
                raise DecodeError("CRC-32C does not match", position)
            body: Buffer = view[position + HEADER_SIZE : end]
            if header.is_compressed:
                body = decompress(codec_of(header), body, decompressed_bytes_max)
            append_timestamp = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
            records += scan.records(
                body,
                0,
                header.record_count,
                header.base_offset,
                header.base_timestamp,
                append_timestamp,
                start,
                Record,
            )
    except ValueError as refused:
        raise decode_error(refused) from refused
    return records


def decode_error(refused: ValueError) -> DecodeError:
    """The DecodeError for a ValueError of a kernel."""
    if len(refused.args) == 3:
        _, position, reason = refused.args
        return DecodeError(reason, position)
    return DecodeError(str(refused))


class BatchBuilder:
    """A batch that grows record by record.

    Invariants: the base timestamp is that of the first record; offset deltas are 0, 1, 2 …; nothing is
    appended after `build`. `records` gathers them: its `limit` bounds the batch.
    """

    __slots__ = ("append", "records")

    def __init__(self) -> None:
        self.records = gather.Records(HEADER_SIZE)
        self.append: Callable[[Content, Content, Headers, int], int] = self.records.append
        """Add a record (key, value, headers, timestamp in ms); returns its index, -1 if it does not fit."""

    @property
    def size(self) -> int:
        """Bytes of the batch so far, before compression."""
        return self.records.size

    @property
    def record_count(self) -> int:
        """The number of records."""
        return self.records.record_count

    def build(
        self,
        *,
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        base_offset: int = 0,
        leader_epoch: int = -1,
        is_transactional: bool = False,
        is_control: bool = False,
        timestamp_type: int = CREATE_TIME,
        compression_level: int | None = None,
    ) -> bytearray:
        """The whole batch, ready to be sent; records keep their order.

        One function, because each parameter but the level is a field or a bit of the batch's header.
        """
        records = self.records
        batch = records.take()
        if codec:
            compressed = compress(codec, memoryview(batch)[HEADER_SIZE:], compression_level)
            batch = bytearray(HEADER_SIZE)
            batch += compressed
        attributes = codec | (TIMESTAMP_TYPE_BIT if timestamp_type else 0)
        attributes |= (TRANSACTIONAL_BIT if is_transactional else 0) | (CONTROL_BIT if is_control else 0)
        HEADER.pack_into(
            batch,
            0,
            base_offset,
            len(batch) - LENGTH_OVERHEAD,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            records.record_count - 1,
            records.base_timestamp,
            records.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            records.record_count,
        )
        pack_into(">I", batch, CRC_POSITION, scan.crc(memoryview(batch)[CRC_START:]))
        return batch


class WholeBatch:
    """A batch that is built already, in the place of a `BatchBuilder`."""

    __slots__ = ("_batch", "record_count", "records", "size")

    def __init__(self, batch: bytearray, record_count: int) -> None:
        self._batch = batch
        self.record_count = record_count
        self.size = len(batch)
        self.records = gather.Records(0, 0)

    def build(self, *, codec: Codec = Codec.NONE, compression_level: int | None = None) -> bytearray:
        """The batch, as it was given."""
        return self._batch


def record_size_max(key: Content, value: Content, headers: Headers) -> int:
    """An upper bound of the bytes that `append` will add for this record."""
    size = _RECORD_OVERHEAD_MAX + _size(key) + _size(value)
    for name, header_value in headers:
        size += 2 * _VARINT_SIZE_MAX + 4 * len(name) + len(header_value or b"")
    return size


def _size(content: Content) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return len(content.encode())
    if isinstance(content, memoryview):
        return content.nbytes
    if isinstance(content, bytes | bytearray):
        return len(content)
    raise TypeError(f"{type(content).__name__} is neither bytes nor text: give the producer a serializer")


def build_batch(
    records: Iterable[tuple[bytes | None, bytes | None, Headers, int]],
    *,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    timestamp_type: int = CREATE_TIME,
) -> bytearray:
    """One whole batch of (key, value, headers, timestamp in ms).

    One function, because each parameter is a field or a bit of the batch's header.
    """
    builder = BatchBuilder()
    for key, value, headers, timestamp_ms in records:
        builder.append(key, value, headers, timestamp_ms)
    return builder.build(
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        is_transactional=is_transactional,
        is_control=is_control,
        timestamp_type=timestamp_type,
    )
