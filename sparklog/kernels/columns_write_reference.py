"""The counterpart of the `columns` kernel for writing: murmur2, and columns in Arrow's layout to record
batches.
"""

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Literal

from sparklog.kernels.batch_header import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
from sparklog.kernels.scan_reference import (
    INVALID,
    Buffer,
    append_encoded,
    seal_batch,
    wrapped,
)

BytesSlice = tuple[Buffer | None, Buffer, Buffer, int]
HeadersSlice = tuple[Buffer | None, Buffer, BytesSlice, BytesSlice, int]
FixedSlice = tuple[Buffer | None, Buffer, int]
BuiltBatch = tuple[int, bytearray, int, int, int]

_RECORD_BYTES_MAX = 0x7FFFFF00
_START_MAX = 1 << 48
_WORD = Struct("<I")
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: Buffer) -> int:
    """The 32-bit Murmur2 hash with Kafka's seed, as a signed integer."""
    view = memoryview(key)
    size = len(view)
    h = (_SEED ^ size) & _MASK
    whole = size & ~3
    for (k,) in _WORD.iter_unpack(view[:whole]):
        k = k * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if whole < size:
        h = (h ^ int.from_bytes(view[whole:], "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


class _Open:
    """The batch of one partition that is being filled."""

    __slots__ = ("base_timestamp", "content", "count", "first_row", "max_timestamp")

    def __init__(self, row: int, timestamp: int) -> None:
        self.content = bytearray(HEADER_SIZE)
        self.count = 0
        self.first_row = row
        self.base_timestamp = self.max_timestamp = timestamp


def write_batches(
    count: int,
    key: BytesSlice | None,
    value: BytesSlice | None,
    headers: HeadersSlice | None,
    partitions: FixedSlice | None,
    timestamps: FixedSlice | None,
    timestamp_ms: int,
    partition_count: int,
    sticky: int,
    bytes_max: int,
    seal: bool,
) -> tuple[list[BuiltBatch], int]:
    """The rows as uncompressed record batches of at most `bytes_max` bytes (one record may be more), in
    order within a partition.

    A row goes to the partition given (int32), else to that of its key, else to the sticky partition, which
    changes when its batch is full and at the end. Its timestamp is the one given (microseconds), else
    `timestamp_ms`. The last item of each column is the index of row 0. Returns ((partition, batch, record
    count, first row, max timestamp) …, the next sticky partition). Batches have no producer, base offset 0
    and, only with `seal`, their CRC. ValueError(INVALID, row, reason) for a row that cannot be written.
    """
    if count < 0 or count > _START_MAX or partition_count <= 0 or not 0 <= sticky < partition_count:
        raise ValueError(
            INVALID, -1, f"{count} rows to {partition_count} partitions, of which {sticky} is the sticky one"
        )
    keys = None if key is None else _BytesReader(key, count)
    values = None if value is None else _BytesReader(value, count)
    header_lists = None if headers is None else _HeadersReader(headers, count)
    given = None if partitions is None else _FixedReader(partitions, "i", count)
    times = None if timestamps is None else _FixedReader(timestamps, "q", count)
    bytes_max = min(max(bytes_max, HEADER_SIZE), _RECORD_BYTES_MAX)
    filling: list[_Open | None] = [None] * partition_count
    built: list[BuiltBatch] = []
    for row in range(count):
        row_key = None if keys is None else keys.at(row, row)
        row_value = None if values is None else values.at(row, row)
        pairs = [] if header_lists is None else header_lists.at(row)
        micros = None if times is None else times.at(row)
        timestamp = timestamp_ms if micros is None else micros // 1000
        chosen = None if given is None else given.at(row)
        is_sticky = False
        if chosen is not None:
            if not 0 <= chosen < partition_count:
                raise ValueError(INVALID, row, f"a partition outside [0, {partition_count})")
            partition = chosen
        elif row_key is not None:
            partition = (murmur2(row_key) & 0x7FFFFFFF) % partition_count
        else:
            partition, is_sticky = sticky, True
        batch = filling[partition]
        if (
            batch is not None
            and len(batch.content) + _encoded_size(batch, timestamp, row_key, row_value, pairs) > bytes_max
        ):
            built.append(_whole(partition, batch, seal))
            batch = filling[partition] = None
            if partition == sticky:
                sticky = (partition + 1) % partition_count
            if is_sticky:
                partition = sticky
                batch = filling[partition]
        if batch is None:
            batch = filling[partition] = _Open(row, timestamp)
        append_encoded(
            batch.content, wrapped(timestamp - batch.base_timestamp), batch.count, row_key, row_value, pairs
        )
        batch.count += 1
        batch.max_timestamp = max(batch.max_timestamp, timestamp)
    built += [_whole(partition, batch, seal) for partition, batch in enumerate(filling) if batch is not None]
    return built, sticky if count == 0 else (sticky + 1) % partition_count


def _encoded_size(
    batch: _Open,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    pairs: Sequence[tuple[bytes, bytes | None]],
) -> int:
    sized = bytearray()
    append_encoded(sized, wrapped(timestamp - batch.base_timestamp), batch.count, key, value, pairs)
    return len(sized)


def _whole(partition: int, batch: _Open, seal: bool) -> BuiltBatch:
    content = batch.content
    base, greatest = batch.base_timestamp, batch.max_timestamp
    length = len(content) - LENGTH_OVERHEAD
    HEADER.pack_into(
        content, 0, 0, length, -1, MAGIC, 0, 0, batch.count - 1, base, greatest, -1, -1, -1, batch.count
    )
    if seal:
        seal_batch(content)
    return partition, content, batch.count, batch.first_row, greatest


class _BytesReader:
    """A column of bytes in Arrow's layout, by row; every offset is checked against its buffer."""

    def __init__(self, parts: BytesSlice, count: int) -> None:
        self._validity, offsets, data, self._start = parts
        _check_size(self._validity, self._start, count, 1)
        _check_size(offsets, self._start, count + 1, 32)
        self._offsets = memoryview(offsets).cast("B")[: 4 * (self._start + count + 1)].cast("i")
        self._data = memoryview(data)

    def at(self, index: int, row: int) -> bytes | None:
        slot = self._start + index
        if not _is_valid(self._validity, slot):
            return None
        first, last = self._offsets[slot], self._offsets[slot + 1]
        if first < 0 or last < first or last > len(self._data):
            raise ValueError(INVALID, row, "a row outside its column's bytes")
        return bytes(self._data[first:last])


class _HeadersReader:
    """A column of lists of headers; the size of their offsets gives the number of headers."""

    def __init__(self, parts: HeadersSlice, count: int) -> None:
        self._validity, lists, names, values, self._start = parts
        _check_size(self._validity, self._start, count, 1)
        _check_size(lists, self._start, count + 1, 32)
        self._lists = memoryview(lists).cast("B")[: 4 * (self._start + count + 1)].cast("i")
        self._limit = min(_slots(names), _slots(values))
        self._names = _BytesReader(names, _slots(names))
        self._values = _BytesReader(values, _slots(values))

    def at(self, row: int) -> list[tuple[bytes, bytes | None]]:
        slot = self._start + row
        if not _is_valid(self._validity, slot):
            return []
        first, last = self._lists[slot], self._lists[slot + 1]
        if first < 0 or last < first or last > self._limit:
            raise ValueError(INVALID, row, "a row outside its column's bytes")
        pairs: list[tuple[bytes, bytes | None]] = []
        for index in range(first, last):
            name = self._names.at(index, row)
            if name is None:
                raise ValueError(INVALID, row, "a header without a key")
            pairs.append((name, self._values.at(index, row)))
        return pairs


class _FixedReader:
    """A column of integers, by row; None for a null row."""

    def __init__(self, parts: FixedSlice, kind: Literal["i", "q"], count: int) -> None:
        self._validity, values, self._start = parts
        width = array(kind).itemsize
        _check_size(self._validity, self._start, count, 1)
        _check_size(values, self._start, count, 8 * width)
        self._values = memoryview(values).cast("B")[: width * (self._start + count)].cast(kind)

    def at(self, row: int) -> int | None:
        slot = self._start + row
        return int(self._values[slot]) if _is_valid(self._validity, slot) else None


def _check_size(buffer: Buffer | None, start: int, count: int, bits: int) -> None:
    if start < 0 or start > _START_MAX or count < 0:
        raise ValueError(INVALID, -1, "a column that starts before its buffers")
    size_min = ((start + count) * bits + 7) // 8
    if buffer is not None and memoryview(buffer).nbytes < size_min:
        raise ValueError(
            INVALID,
            memoryview(buffer).nbytes,
            f"a column buffer of {memoryview(buffer).nbytes} bytes where {size_min} are needed",
        )


def _slots(parts: BytesSlice) -> int:
    """The row count of a column without an explicit length: the smaller of its offsets' and its
    validity's.
    """
    slots = memoryview(parts[1]).nbytes // 4 - 1 - parts[3]
    if parts[0] is not None:
        slots = min(slots, 8 * memoryview(parts[0]).nbytes - parts[3])
    return max(slots, 0)


def _is_valid(validity: Buffer | None, slot: int) -> bool:
    return validity is None or memoryview(validity).cast("B")[slot >> 3] >> (slot & 7) & 1 == 1
