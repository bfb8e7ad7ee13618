"""The pure-Python counterpart of the `columns` kernel: converts batches to columns in Arrow's layout and
back.

A column of bytes is (validity bitmap or None, int32 offsets, bytes), with a bit or an offset per row, in the
byte order of the machine. Invalid bytes from a peer raise `ValueError(status, position, reason)` as in
`scan`; the position is that of the batch.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from struct import unpack_from
from typing import NamedTuple

from sparklog.kernels.batch_header import (
    CODEC_BITS,
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from sparklog.kernels.columns_write_reference import murmur2, write_batches
from sparklog.kernels.scan_reference import (
    CORRUPT,
    INVALID,
    RECORD_SIZE_MIN,
    UNSUPPORTED_MAGIC,
    Buffer,
    crc,
    record_at,
    record_headers,
    wrapped,
)

__all__ = [
    "HEADERS",
    "KEY",
    "OFFSET",
    "TIMESTAMP",
    "TIMESTAMP_TYPE",
    "VALUE",
    "murmur2",
    "read_columns",
    "write_batches",
]

KEY = 1
VALUE = 2
OFFSET = 4
TIMESTAMP = 8
TIMESTAMP_TYPE = 16
HEADERS = 32

BytesParts = tuple[Buffer | None, Buffer, Buffer]
HeadersParts = tuple[Buffer | None, Buffer, BytesParts, BytesParts]
ReadColumns = tuple[
    int,
    BytesParts | None,
    BytesParts | None,
    Buffer | None,
    Buffer | None,
    Buffer | None,
    HeadersParts | None,
    int,
    tuple[int, int],
    list[tuple[int, int]],
]

_INT32_MAX = 2**31 - 1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_MICROS_LIMIT = _INT64_MAX // 1000
_ABORT = 0


class _Segment(NamedTuple):
    """The uncompressed records of one batch, and their header fields."""

    records: Buffer
    position: int
    record_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_timestamp: int | None
    unverified: memoryview | None


class _Rows(NamedTuple):
    """Column values as plain lists; columns that were not requested stay empty."""

    keys: list[bytes | None]
    values: list[bytes | None]
    offsets: list[int]
    timestamps: list[int]
    timestamp_types: list[int]
    headers: list[tuple[tuple[str, bytes | None], ...]]


def read_columns(
    buffers: list[Buffer],
    position: tuple[int, int],
    start: int,
    limit: int,
    wanted: int,
    verify_crc: bool,
    bytes_max: int,
    decompress: Callable[[int, memoryview], Buffer],
    aborted: list[tuple[int, int]],
) -> ReadColumns:
    """The records with offsets in `[start, limit)` from `position` (buffer, byte) on, as the columns named
    by the flags in `wanted`.

    Returns (count, key, value, offsets, timestamps in microseconds, timestamp types, headers, next offset,
    position to continue from, aborted transactions to continue with); columns not wanted are None. Control
    batches are left out, and batches of `aborted` transactions, which are (producer id, first offset) in the
    order of first offsets. Stops before a batch that would raise the sum of records above `bytes_max`, but
    never before the first one, and leaves out an incomplete batch at the end of a buffer. `decompress(codec,
    records)` may raise.

    One function, because it has the parameters of its compiled twin, which reads many batches in one call.
    """
    rows = _Rows([], [], [], [], [], [])
    source, at = position
    if source < 0 or at < 0:
        raise ValueError(INVALID, at, "a position before the buffers")
    views = [memoryview(buffer) for buffer in buffers]
    next_offset, total, batches = start, 0, 0
    waiting, active = list(aborted), set[int]()
    is_limit_reached = False
    segments: list[_Segment] = []
    while source < len(views):
        view = views[source]
        header = _whole_batch(view, at)
        if header is None:
            source, at = source + 1, 0
            continue
        if header.base_offset >= limit:
            is_limit_reached = True
            break
        end = at + header.size
        last_offset = header.last_offset
        is_skipped = bool(header.attributes & CONTROL_BIT) or last_offset < start or header.record_count == 0
        if aborted:
            while waiting and waiting[0][1] <= last_offset:
                active.add(waiting.pop(0)[0])
            if header.attributes & CONTROL_BIT:
                if _control_type(view, at, end, header.record_count) == _ABORT:
                    active.discard(header.producer_id)
            elif header.attributes & TRANSACTIONAL_BIT and header.producer_id in active:
                is_skipped = True
        if not is_skipped:
            if header.size > _INT32_MAX:
                raise ValueError(INVALID, at, "a batch of more than 2 GiB")
            if header.attributes & CODEC_BITS and batches and total + end - at > bytes_max:
                break
            if (
                header.attributes & CODEC_BITS
                and verify_crc
                and crc(view[at + CRC_START : end]) != header.crc
            ):
                raise ValueError(CORRUPT, at, "CRC-32C does not match")
            body: Buffer = view[at + HEADER_SIZE : end]
            if header.attributes & CODEC_BITS:
                body = decompress(header.attributes & CODEC_BITS, view[at + HEADER_SIZE : end])
            if batches and total + len(body) > bytes_max:
                break
            if total + len(body) > _INT32_MAX:
                raise ValueError(INVALID, at, "a batch of more than 2 GiB")
            if header.record_count < 0 or header.record_count > len(body) // RECORD_SIZE_MIN:
                raise ValueError(
                    INVALID, at, f"{header.record_count} records cannot stand in {len(body)} bytes"
                )
            total += len(body)
            batches += 1
            append_timestamp = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None
            unverified = view[at:end] if verify_crc and not header.attributes & CODEC_BITS else None
            segments.append(
                _Segment(
                    body,
                    at,
                    header.record_count,
                    header.base_offset,
                    header.last_offset_delta,
                    header.base_timestamp,
                    append_timestamp,
                    unverified,
                )
            )
        next_offset = max(next_offset, last_offset + 1)
        at = end
    for segment in segments:
        _add_rows(rows, segment, start, limit, wanted)
    if next_offset > limit or is_limit_reached:
        next_offset = max(start, limit)
    left = sorted((producer_id, -1) for producer_id in active) + waiting
    return (*_columns(rows, wanted), next_offset, (source, at), left)


def _whole_batch(view: memoryview, at: int) -> BatchHeader | None:
    """The header of the batch at this position; None if the batch is incomplete."""
    if len(view) - at < HEADER_SIZE:
        return None
    header = BatchHeader(*HEADER.unpack_from(view, at))
    if header.magic != MAGIC:
        raise ValueError(UNSUPPORTED_MAGIC, at, f"magic {header.magic} is not {MAGIC}")
    size = header.size
    if size < HEADER_SIZE:
        raise ValueError(CORRUPT, at, f"a batch of {size} bytes is shorter than a header")
    if size > len(view) - at:
        return None
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.last_offset >= _INT64_MAX:
        raise ValueError(CORRUPT, at, "offsets that cannot be")
    return header


def _control_type(view: memoryview, at: int, end: int, count: int) -> int:
    """The type of a control batch: the second half of the key of its record; -1 if it has none."""
    if count < 1:
        return -1
    try:
        record = record_at(view[:end], at + HEADER_SIZE, end)
    except ValueError:
        return -1
    return -1 if record.key_length < 4 else int(unpack_from(">h", view, record.key_at + 2)[0])


def _add_rows(rows: _Rows, segment: _Segment, start: int, limit: int, wanted: int) -> None:
    """Every record of one batch that is in `[start, limit)`."""
    if (
        segment.unverified is not None
        and crc(segment.unverified[CRC_START:]) != unpack_from(">I", segment.unverified, CRC_POSITION)[0]
    ):
        raise ValueError(CORRUPT, segment.position, "CRC-32C does not match")
    content = bytes(segment.records)
    keys = rows.keys if wanted & KEY else None
    values = rows.values if wanted & VALUE else None
    offsets: list[int] = []
    timestamps: list[int] = []
    position, size, base_offset, last_offset_delta = (
        0,
        len(content),
        segment.base_offset,
        segment.last_offset_delta,
    )
    for _ in range(segment.record_count):
        place = _plain_record(content, position)
        if place is None:
            place, headers = _any_record(content, position, segment.position, is_wanted=wanted & HEADERS != 0)
        else:
            headers = ()
        timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, position = place
        if offset_delta < 0 or offset_delta > last_offset_delta:
            raise ValueError(INVALID, segment.position, "a record outside the offsets of its batch")
        offset = base_offset + offset_delta
        if offset < start or offset >= limit:
            continue
        offsets.append(offset)
        timestamps.append(timestamp_delta)
        if keys is not None:
            keys.append(None if key_length < 0 else content[key_at : key_at + key_length])
        if values is not None:
            values.append(None if value_length < 0 else content[value_at : value_at + value_length])
        if wanted & HEADERS:
            rows.headers.append(headers)
    if position != size:
        raise ValueError(INVALID, segment.position, "bytes after the last header of a record")
    rows.offsets.extend(offsets)
    if wanted & TIMESTAMP and segment.append_timestamp is not None:
        rows.timestamps.extend([_micros(segment.append_timestamp)] * len(offsets))
    elif wanted & TIMESTAMP:
        rows.timestamps.extend([_micros(wrapped(segment.base_timestamp + delta)) for delta in timestamps])
    if wanted & TIMESTAMP_TYPE:
        rows.timestamp_types.extend([0 if segment.append_timestamp is None else 1] * len(offsets))


Place = tuple[int, int, int, int, int, int, int]
"""Timestamp delta, offset delta, start and length of the key, start and length of the value, end of the
record.
"""


def _plain_record(content: bytes, at: int) -> Place | None:
    """The record at this position if it has the usual form: no headers, short lengths. None for any other
    record, which the general walk reads.
    """
    try:
        length = content[at]
        at += 1
        if length > 127:
            length += (content[at] << 7) - 128
            at += 1
        end = at + (length >> 1)
        delta = content[at + 1]
        at += 2
        if delta > 127:
            delta += (content[at] << 7) - 128
            at += 1
        offset = content[at]
        at += 1
        if offset > 127:
            offset += (content[at] << 7) - 128
            at += 1
        key = content[at]
        at += 1
        if key > 127:
            key += (content[at] << 7) - 128
            at += 1
        key_at = at
        if key != 1:
            at += key >> 1
        value = content[at]
        at += 1
        if value > 127:
            value += (content[at] << 7) - 128
            at += 1
        value_at = at
        if value != 1:
            at += value >> 1
        # A varint of three bytes or more decodes to 2^14 or more. Such records, and those with headers or
        # invalid bytes, are left to the general walk.
        if (
            content[at]
            or at + 1 != end
            or (length | delta | offset | key | value) > 16383
            or (length | offset) & 1
        ):
            return None
    except IndexError:
        return None
    key_length = -1 if key == 1 else key >> 1
    value_length = -1 if value == 1 else value >> 1
    if (key & 1 and key != 1) or (value & 1 and value != 1):
        return None
    return (delta >> 1) ^ -(delta & 1), offset >> 1, key_at, key_length, value_at, value_length, end


def _any_record(
    content: bytes, at: int, batch_at: int, *, is_wanted: bool
) -> tuple[Place, tuple[tuple[str, bytes | None], ...]]:
    view = memoryview(content)
    try:
        record = record_at(view, at, len(content))
        headers = record_headers(view, record, is_wanted=is_wanted)
    except ValueError as refused:
        status, _, reason = refused.args
        raise ValueError(status, batch_at, reason) from None
    place = (
        record.timestamp_delta,
        record.offset_delta,
        record.key_at,
        record.key_length,
        record.value_at,
        record.value_length,
        record.end,
    )
    return place, headers


def _micros(timestamp_ms: int) -> int:
    """Milliseconds as microseconds, clamped to the range of int64."""
    if -_MICROS_LIMIT <= timestamp_ms <= _MICROS_LIMIT:
        return timestamp_ms * 1000
    return _INT64_MAX if timestamp_ms > 0 else _INT64_MIN


def _columns(
    rows: _Rows, wanted: int
) -> tuple[
    int,
    BytesParts | None,
    BytesParts | None,
    Buffer | None,
    Buffer | None,
    Buffer | None,
    HeadersParts | None,
]:
    headers: HeadersParts | None = None
    if wanted & HEADERS:
        flat = [header for row in rows.headers for header in row]
        values = _bytes_parts([value for _, value in flat])
        validity = _bitmap([row or None for row in rows.headers])
        headers = (
            validity,
            _offsets(map(len, rows.headers)),
            _bytes_parts([name.encode() for name, _ in flat]),
            (values[0] if values[0] is not None else _bits(len(flat)), values[1], values[2]),
        )
    return (
        len(rows.offsets),
        _bytes_parts(rows.keys) if wanted & KEY else None,
        _bytes_parts(rows.values) if wanted & VALUE else None,
        array("q", rows.offsets).tobytes() if wanted & OFFSET else None,
        array("q", rows.timestamps).tobytes() if wanted & TIMESTAMP else None,
        array("i", rows.timestamp_types).tobytes() if wanted & TIMESTAMP_TYPE else None,
        headers,
    )


def _bytes_parts(column: Sequence[bytes | None]) -> BytesParts:
    validity = _bitmap(column)
    present: Sequence[bytes] = [content or b"" for content in column]
    return validity, _offsets(map(len, present)), b"".join(present)


def _offsets(lengths: Iterable[int]) -> bytes:
    return array("i", accumulate(lengths, initial=0)).tobytes()


def _bitmap(column: Sequence[object]) -> bytes | None:
    """A bit for each row, set if the row is not null; None if all are."""
    if None not in column:
        return None
    bits = bytearray(_bits(len(column)))
    for row, content in enumerate(column):
        if content is None:
            bits[row >> 3] &= ~(1 << (row & 7))
    return bytes(bits)


def _bits(count: int) -> bytes:
    return ((1 << count) - 1).to_bytes((count + 7) // 8, "little")
