"""The pure-Python counterpart of the `scan` kernel: checks, stamps and walks the bytes of record batches.

`batch_header` and `sparklog.record.batch` draw a batch. The bytes come from peers, so every length is checked
against the remaining bytes. Errors are `ValueError(status, position, reason)`: one of the statuses below, the
byte in the buffer (for MISSING_KEY the index of the record), and a sentence.
"""

from collections.abc import Callable, Sequence
from struct import pack_into, unpack_from
from typing import NamedTuple, TypeVar

from crc32c import crc32c

from sparklog.kernels.batch_header import (
    CODEC_BITS,
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
)

Buffer = bytes | bytearray | memoryview
Made = TypeVar("Made")

CORRUPT = 1
"""The bytes are not those that were written: an impossible length, or a CRC-32C that does not match."""
INVALID = 2
"""The batch is whole, but violates the rules for batches, or its records do not fit their lengths."""
UNSUPPORTED_MAGIC = 3
"""Not a batch of format v2."""
MISSING_KEY = 4
"""A record without a key where every record must have one; the position is the index of the record."""

RECORD_SIZE_MIN = 7
"""The length and six more bytes: attributes, two deltas, and the lengths of key, value and headers."""
_CODEC_MAX = 4
_BATCH_BYTES_MAX = 0x7FFFFFFF
_INT64_SIGN = 1 << 63
_INT64_MASK = (1 << 64) - 1


def crc(buffer: Buffer, seed: int = 0) -> int:
    """CRC-32C (RFC 3720) of the whole buffer, continued from `seed`."""
    return crc32c(buffer, seed)


def check_batch(buffer: Buffer, require_keys: bool) -> tuple[BatchHeader, int, int]:
    """Check produced bytes for a partition: exactly one batch that fills the buffer, with its CRC, counts
    and records.

    Returns the header and the least and greatest timestamp of the records; records without a timestamp do not
    count (-1 if none has one). The records of a compressed batch are not walked, and both timestamps are -1:
    decompress them and call `check_records`. The caller checks the timestamp type and the bounds.
    """
    view = memoryview(buffer)
    size = len(view)
    if size < HEADER_SIZE:
        raise ValueError(INVALID, size, "no whole record batch")
    header = BatchHeader(*HEADER.unpack_from(view))
    length, magic, attributes, last_offset_delta, count = (
        header.length,
        header.magic,
        header.attributes,
        header.last_offset_delta,
        header.record_count,
    )
    if magic != MAGIC:
        raise ValueError(UNSUPPORTED_MAGIC, 16, f"magic {magic} is not {MAGIC}")
    if length < HEADER_SIZE - LENGTH_OVERHEAD:
        raise ValueError(CORRUPT, 8, f"batch length {length} is shorter than a header")
    if length + LENGTH_OVERHEAD != size:
        raise ValueError(
            INVALID, 8, f"one batch of {length + LENGTH_OVERHEAD} bytes must fill the {size} bytes sent"
        )
    if crc32c(view[CRC_START:]) != header.crc:
        raise ValueError(CORRUPT, CRC_POSITION, "CRC-32C does not match")
    if count <= 0 or last_offset_delta != count - 1:
        raise ValueError(INVALID, 57, f"{count} records with a last offset delta of {last_offset_delta}")
    if attributes & CONTROL_BIT:
        raise ValueError(INVALID, 21, "clients may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise ValueError(INVALID, 53, f"producer {header.producer_id} without a sequence")
    codec = attributes & CODEC_BITS
    if codec > _CODEC_MAX:
        raise ValueError(INVALID, 21, f"unknown codec {codec}")
    if codec:
        return header, NO_TIMESTAMP, NO_TIMESTAMP
    least, greatest = check_records(view, count, header.base_timestamp, require_keys, HEADER_SIZE)
    return header, least, greatest


def check_records(
    buffer: Buffer, count: int, base_timestamp: int, require_keys: bool, position: int = 0
) -> tuple[int, int]:
    """Walk the `count` uncompressed records in `[position, end of buffer)`: offset deltas 0, 1, 2 …, and
    every length exact.

    Returns the least and greatest timestamp; records without a timestamp do not count, (-1, -1) if none has
    one.
    """
    view = memoryview(buffer)
    size = len(view)
    if not 0 <= position <= size or count < 0 or count * RECORD_SIZE_MIN > size - position:
        raise ValueError(INVALID, position, f"{count} records cannot stand in {size - position} bytes")
    least = greatest = NO_TIMESTAMP
    for index in range(count):
        record = record_at(view, position, size)
        if record.offset_delta != index:
            raise ValueError(INVALID, position, f"offset deltas must be 0, 1, 2 …; not so at record {index}")
        if require_keys and record.key_length < 0:
            raise ValueError(MISSING_KEY, index, "a record without a key")
        record_headers(view, record, is_wanted=False)
        position = record.end
        timestamp = wrapped(base_timestamp + record.timestamp_delta)
        if timestamp != NO_TIMESTAMP:
            least = timestamp if least == NO_TIMESTAMP else min(least, timestamp)
            greatest = timestamp if greatest == NO_TIMESTAMP else max(greatest, timestamp)
    if position != size:
        raise ValueError(INVALID, position, f"{size - position} bytes after the last record")
    return least, greatest


def timestamps_outside(
    buffer: Buffer, count: int, base_timestamp: int, least: int, greatest: int, most: int, position: int = 0
) -> list[int]:
    """The indexes of the first `most` of `count` uncompressed records with a timestamp outside `[least,
    greatest]`; a timestamp of -1 is never outside.
    """

    def is_outside(record: "RecordPlace") -> bool:
        timestamp = wrapped(base_timestamp + record.timestamp_delta)
        return timestamp != NO_TIMESTAMP and not least <= timestamp <= greatest

    return _indexes(buffer, count, most, position, is_outside)


def keys_missing(buffer: Buffer, count: int, most: int, position: int = 0) -> list[int]:
    """The indexes of the first `most` of `count` uncompressed records without a key."""
    return _indexes(buffer, count, most, position, lambda record: record.key_length < 0)


def _indexes(
    buffer: Buffer, count: int, most: int, position: int, is_found: Callable[["RecordPlace"], bool]
) -> list[int]:
    view = memoryview(buffer)
    size = len(view)
    if not 0 <= position <= size or count < 0 or count * RECORD_SIZE_MIN > size - position:
        raise ValueError(INVALID, position, f"{count} records cannot stand in {size - position} bytes")
    found: list[int] = []
    for index in range(count):
        if len(found) >= most:
            break
        record = record_at(view, position, size)
        position = record.end
        if is_found(record):
            found.append(index)
    return found


def find_timestamp(
    buffer: Buffer,
    position: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None,
    timestamp: int,
    start: int,
) -> tuple[int, int] | None:
    """The timestamp and offset of the first of `count` uncompressed records from `position` on that is at or
    after `timestamp` and at or after offset `start`; None if there is none. All records have
    `append_timestamp` unless that is None.
    """
    view = memoryview(buffer)
    size = len(view)
    if not 0 <= position <= size or count < 0 or count * RECORD_SIZE_MIN > size - position:
        raise ValueError(INVALID, position, f"{count} records cannot stand in {size - position} bytes")
    for _ in range(count):
        record = record_at(view, position, size)
        position = record.end
        at = (
            wrapped(base_timestamp + record.timestamp_delta) if append_timestamp is None else append_timestamp
        )
        offset = wrapped(base_offset + record.offset_delta)
        if at >= timestamp and offset >= start:
            return at, offset
    return None


def stamp(buffer: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch in place; the CRC does not cover them."""
    _check_header_fits(buffer)
    pack_into(">q", buffer, 0, base_offset)
    pack_into(">i", buffer, 12, leader_epoch)


def stamp_timestamps(buffer: bytearray | memoryview, timestamp_type: int, max_timestamp: int) -> None:
    """Write timestamp type (0 CreateTime, 1 LogAppendTime) and greatest timestamp into a batch, and its CRC
    if they changed.
    """
    _check_header_fits(buffer)
    (attributes,) = unpack_from(">h", buffer, 21)
    (before,) = unpack_from(">q", buffer, 35)
    stamped = attributes | TIMESTAMP_TYPE_BIT if timestamp_type else attributes & ~TIMESTAMP_TYPE_BIT
    if (stamped, max_timestamp) == (attributes, before):
        return
    pack_into(">h", buffer, 21, stamped)
    pack_into(">q", buffer, 35, max_timestamp)
    seal_batch(buffer)


def stamp_producer(
    buffer: bytearray | memoryview,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool = False,
) -> None:
    """Write producer id, epoch and sequence into a batch in place, and its CRC."""
    _check_header_fits(buffer)
    (attributes,) = unpack_from(">h", buffer, 21)
    pack_into(
        ">h",
        buffer,
        21,
        attributes | TRANSACTIONAL_BIT if is_transactional else attributes & ~TRANSACTIONAL_BIT,
    )
    pack_into(">qhi", buffer, 43, producer_id, producer_epoch, base_sequence)
    seal_batch(buffer)


def headers(buffer: Buffer, verify_crc: bool, position: int = 0) -> list[tuple[int, BatchHeader]]:
    """The position and header of every whole batch from `position` on; an incomplete batch at the end is left
    out.
    """
    view = memoryview(buffer)
    found: list[tuple[int, BatchHeader]] = []
    size = len(view)
    if position < 0:
        raise ValueError(INVALID, position, "a position before the buffer")
    while size - position >= HEADER_SIZE:
        header = BatchHeader(*HEADER.unpack_from(view, position))
        if header.magic != MAGIC:
            raise ValueError(UNSUPPORTED_MAGIC, position + 16, f"magic {header.magic} is not {MAGIC}")
        if header.length < HEADER_SIZE - LENGTH_OVERHEAD:
            raise ValueError(CORRUPT, position + 8, f"batch length {header.length} is shorter than a header")
        end = position + header.length + LENGTH_OVERHEAD
        if end > size:
            break
        if verify_crc and crc32c(view[position + CRC_START : end]) != header.crc:
            raise ValueError(CORRUPT, position + CRC_POSITION, "CRC-32C does not match")
        found.append((position, header))
        position = end
    return found


def span(buffer: Buffer) -> tuple[int, int, int]:
    """From the headers alone: the size of the whole batches, their attributes or-ed, and the offset after the
    last one (-1 if there is none).
    """
    attributes, size, next_offset = 0, 0, -1
    for position, header in headers(buffer, False):
        attributes |= header.attributes & 0xFFFF
        size = position + header.length + LENGTH_OVERHEAD
        next_offset = wrapped(header.base_offset + header.last_offset_delta + 1)
    return size, attributes, next_offset


def records(
    buffer: Buffer,
    position: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None,
    start: int,
    make: Callable[[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]], Made],
) -> list[Made]:
    """`make(offset, timestamp, key, value, headers)` for each of `count` uncompressed records whose offset
    is `start` or more.

    In a batch with LogAppendTime every record has `append_timestamp`. Header keys that are not UTF-8 get
    replacement characters.
    """
    view = memoryview(buffer)
    size = len(view)
    if not 0 <= position <= size or count < 0 or count * RECORD_SIZE_MIN > size - position:
        raise ValueError(INVALID, position, f"{count} records cannot stand in {size - position} bytes")
    made: list[Made] = []
    for _ in range(count):
        record = record_at(view, position, size)
        offset = wrapped(base_offset + record.offset_delta)
        pairs = record_headers(view, record, is_wanted=offset >= start)
        if offset >= start:
            timestamp = (
                wrapped(base_timestamp + record.timestamp_delta)
                if append_timestamp is None
                else append_timestamp
            )
            key = (
                None
                if record.key_length < 0
                else bytes(view[record.key_at : record.key_at + record.key_length])
            )
            value = (
                None
                if record.value_length < 0
                else bytes(view[record.value_at : record.value_at + record.value_length])
            )
            made.append(make(offset, timestamp, key, value, pairs))
        position = record.end
    return made


def append_encoded(
    target: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[bytes, Buffer | None]],
) -> None:
    """Write one record at the end of `target`; header keys are in UTF-8."""
    body = bytearray(1)  # attributes, none of which is in use
    _append_varint(body, timestamp_delta)
    _append_varint(body, offset_delta)
    _append_bytes(body, key)
    _append_bytes(body, value)
    _append_varint(body, len(headers))
    for name, header_value in headers:
        _append_bytes(body, name)
        _append_bytes(body, header_value)
    _append_varint(target, len(body))
    target += body


class RecordPlace(NamedTuple):
    """The positions of the parts of one record; a length of -1 is null."""

    timestamp_delta: int
    offset_delta: int
    key_at: int
    key_length: int
    value_at: int
    value_length: int
    header_count: int
    headers_at: int
    end: int


_BAD_LENGTH = "a length beyond the end of its record"


class _Unfit(Exception):
    """Invalid bytes; the walk adds the position of the record or header."""


def record_at(view: memoryview, position: int, size: int) -> RecordPlace:
    """The record at `position`, without a walk over its headers."""
    try:
        length, body = _varint(view, position, size)
        end = body + length
        if length < RECORD_SIZE_MIN - 1 or end > size:
            raise _Unfit("a record longer than the bytes that remain, or too short")
        timestamp_delta, at = _varint(view, body + 1, end, bits=64)
        offset_delta, at = _varint(view, at, end)
        key_length, key_at = _length(view, at, end)
        value_length, value_at = _length(view, key_at + max(key_length, 0), end)
        header_count, headers_at = _varint(view, value_at + max(value_length, 0), end)
        if header_count < 0 or header_count > (end - headers_at) // 2:
            raise _Unfit("more headers than the record has room for")
    except _Unfit as unfit:
        raise ValueError(INVALID, position, str(unfit)) from None
    return RecordPlace(
        timestamp_delta,
        offset_delta,
        key_at,
        key_length,
        value_at,
        value_length,
        header_count,
        headers_at,
        end,
    )


def record_headers(
    view: memoryview, record: RecordPlace, *, is_wanted: bool
) -> tuple[tuple[str, bytes | None], ...]:
    """Walk the headers, which must end where the record ends; returns them if wanted."""
    position, end = record.headers_at, record.end
    pairs: list[tuple[str, bytes | None]] = []
    for _ in range(record.header_count):
        try:
            name_length, name_at = _length(view, position, end)
            if name_length < 0:
                raise _Unfit("a header without a key")
            value_length, value_at = _length(view, name_at + name_length, end)
        except _Unfit as unfit:
            raise ValueError(INVALID, position, str(unfit)) from None
        position = value_at + max(value_length, 0)
        if is_wanted:
            value = None if value_length < 0 else bytes(view[value_at:position])
            pairs.append((str(view[name_at : name_at + name_length], "utf-8", "replace"), value))
    if position != end:
        raise ValueError(INVALID, position, "bytes after the last header of a record")
    return tuple(pairs)


def _length(view: memoryview, position: int, end: int) -> tuple[int, int]:
    """A length (-1 is null) of bytes that must end by `end`, and their position."""
    length, start = _varint(view, position, end, misfit=_BAD_LENGTH)
    if length < -1 or length > end - start:
        raise _Unfit(_BAD_LENGTH)
    return length, start


def _varint(
    view: memoryview,
    position: int,
    end: int,
    bits: int = 32,
    misfit: str = "a varint that does not end or is too large",
) -> tuple[int, int]:
    """A zig-zag varint of at most `bits` bits that must end by `end`, and the position after it."""
    raw = shift = 0
    while position < end:
        byte = view[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                break
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
        if shift >= bits:
            break
    raise _Unfit(misfit)


def _append_varint(target: bytearray, number: int) -> None:
    raw = (number << 1) ^ (number >> 63)
    while raw > 0x7F:
        target.append(raw & 0x7F | 0x80)
        raw >>= 7
    target.append(raw)


def _append_bytes(target: bytearray, content: Buffer | None) -> None:
    if content is None:
        target.append(1)
    else:
        _append_varint(target, len(content))
        target += content


def wrapped(number: int) -> int:
    """The sum as a 64-bit integer that wraps around, so that invalid deltas do not grow."""
    return ((number + _INT64_SIGN) & _INT64_MASK) - _INT64_SIGN


def _check_header_fits(buffer: Buffer) -> None:
    if len(buffer) < HEADER_SIZE:
        raise ValueError(INVALID, len(buffer), "no whole record batch")


def seal_batch(buffer: bytearray | memoryview) -> None:
    """Write the CRC-32C of the batch that fills the buffer."""
    pack_into(">I", buffer, CRC_POSITION, crc32c(memoryview(buffer)[CRC_START:]))
