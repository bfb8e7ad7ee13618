"""Record batches as Arrow columns, and columns as record batches, without an object per record.

Columns are buffers in Arrow's layout, ready for `pyarrow.Array.from_buffers` and made from
`Array.buffers()`; pyarrow itself is not needed here. Integers have the byte order of the machine; a
validity bitmap of None means that no row is null.

    read     batches -> `Columns` in pieces of bounded size      Spark: offset ranges to Arrow batches
    write    columns -> one list of batches per partition        Spark: Arrow batches to Produce requests
"""

from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import dataclass
from struct import pack_into
from typing import NamedTuple

from sparklog.errors import SparklogError
from sparklog.kernels import columns, scan
from sparklog.record.batch import (
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    Buffer,
    decode_error,
    sequence_after,
)
from sparklog.record.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress

KEY = 1
VALUE = 2
OFFSET = 4
TIMESTAMP = 8
TIMESTAMP_TYPE = 16
HEADERS = 32
ALL = KEY | VALUE | OFFSET | TIMESTAMP | TIMESTAMP_TYPE | HEADERS
"""Flags that say which columns are built."""

COLUMN_BYTES_MAX = 16 << 20
"""The bytes of records in one piece; the allocator can reuse memory of this size."""
BATCH_BYTES_MAX = 512 << 10
OFFSET_MAX = 2**63 - 1
NO_PRODUCER = -1


class BinaryColumn(NamedTuple):
    """Byte strings or text: row i is `data[offsets[start + i] : offsets[start + i + 1]]`; `offsets` are
    int32.
    """

    validity: Buffer | None
    offsets: Buffer
    data: Buffer
    start: int = 0


class HeadersColumn(NamedTuple):
    """Lists of (key, value): row i is the range `[offsets[start + i], offsets[start + i + 1])` of `keys`
    and `values`.

    When read, a row without headers is null, as with Spark's Kafka connector; drop `validity` for empty lists
    in its place.
    """

    validity: Buffer | None
    offsets: Buffer
    keys: BinaryColumn
    values: BinaryColumn
    start: int = 0


class FixedColumn(NamedTuple):
    """Integers, of which row i is `values[start + i]`."""

    validity: Buffer | None
    values: Buffer
    start: int = 0


@dataclass(frozen=True, slots=True)
class Columns:
    """Some records as columns; columns that were not requested are None.

    `offsets` int64 · `timestamps` int64, microseconds of Unix time · `timestamp_types` int32 (0 CreateTime, 1
    LogAppendTime). This piece and the earlier ones have all requested records below `next_offset`.
    """

    count: int
    key: BinaryColumn | None
    value: BinaryColumn | None
    offsets: Buffer | None
    timestamps: Buffer | None
    timestamp_types: Buffer | None
    headers: HeadersColumn | None
    next_offset: int


class PartitionBatch(NamedTuple):
    """A whole record batch for one partition; `first_row` is the row that became its first record."""

    partition: int
    batch: bytearray
    record_count: int
    first_row: int
    max_timestamp: int


class WrittenBatches(NamedTuple):
    """The batches, those of one partition in the order of their rows, and the sticky partition for the next
    call.
    """

    batches: list[PartitionBatch]
    sticky_partition: int


class RowRefused(SparklogError):
    """A row that cannot become a record; `row` counts from 0 within the call, -1 if it is the whole
    column.
    """

    def __init__(self, reason: str, row: int) -> None:
        super().__init__(reason if row < 0 else f"row {row}: {reason}")
        self.reason = reason
        self.row = row


def read_columns(
    buffers: Sequence[Buffer],
    start: int = 0,
    limit: int = OFFSET_MAX,
    wanted: int = ALL,
    *,
    verify_crc: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
    column_bytes_max: int = COLUMN_BYTES_MAX,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[Columns]:
    """The records with offsets in `[start, limit)` from consecutive `buffers` of one partition, in pieces.

    There is at least one piece, which has `next_offset` even if it is empty. A piece ends at a batch boundary
    before its records exceed `column_bytes_max` bytes, unless a single batch does. Left out are control
    batches, an incomplete batch at the end of a buffer and, for read_committed, batches of `aborted`
    transactions: (producer id, first offset) from a Fetch reply. DecodeError for bytes that do not follow the
    format, at the piece that contains them.

    One function, because each parameter after the buffers limits what the same pass over them returns.
    """
    position = (0, 0)
    left = sorted(aborted, key=lambda transaction: transaction[1])
    held = list(buffers)

    def inflate(codec: int, records: memoryview) -> Buffer:
        if codec not in _CODECS:
            raise ValueError(scan.INVALID, -1, f"unknown codec {codec}")
        return decompress(_CODECS[codec], records, decompressed_bytes_max)

    while True:
        try:
            count, key, value, offsets, timestamps, timestamp_types, headers, start_next, position, left = (
                columns.read_columns(
                    held, position, start, limit, wanted, verify_crc, column_bytes_max, inflate, left
                )
            )
        except ValueError as refused:
            raise decode_error(refused) from refused
        yield Columns(
            count,
            None if key is None else BinaryColumn(*key),
            None if value is None else BinaryColumn(*value),
            offsets,
            timestamps,
            timestamp_types,
            None
            if headers is None
            else HeadersColumn(headers[0], headers[1], BinaryColumn(*headers[2]), BinaryColumn(*headers[3])),
            start_next,
        )
        start = start_next
        if position[0] >= len(held) or start >= limit:
            return


_CODECS = {codec.value: codec for codec in Codec}


def write_batches(
    count: int,
    *,
    value: BinaryColumn | None,
    key: BinaryColumn | None = None,
    headers: HeadersColumn | None = None,
    partitions: FixedColumn | None = None,
    timestamps: FixedColumn | None = None,
    timestamp_ms: int,
    partition_count: int,
    sticky_partition: int = 0,
    batch_bytes_max: int = BATCH_BYTES_MAX,
    codec: Codec = Codec.NONE,
    compression_level: int | None = None,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    sequences: MutableSequence[int] | None = None,
    is_transactional: bool = False,
) -> WrittenBatches:
    """Rows `[0, count)` as record batches of at most `batch_bytes_max` bytes before compression (one
    record may be more).

    A row goes to its partition in `partitions` (int32); if that is null to the partition of its key, without
    a key to the sticky partition, which changes with each batch. Its timestamp is the one in `timestamps`
    (int64, microseconds), else `timestamp_ms`. With a producer id, `sequences` has the next sequence of each
    partition, which is stamped into the batches and advanced. RowRefused for a row that cannot be written;
    nothing is stamped then.
    """
    is_stamped = producer_id >= 0
    assert not is_stamped or (sequences is not None and len(sequences) == partition_count), (
        "a producer needs a sequence per partition"
    )
    try:
        built, sticky_next = columns.write_batches(
            count,
            key,
            value,
            None
            if headers is None
            else (headers.validity, headers.offsets, headers.keys, headers.values, headers.start),
            partitions,
            timestamps,
            timestamp_ms,
            partition_count,
            sticky_partition,
            batch_bytes_max,
            codec is Codec.NONE and not is_stamped,
        )
    except ValueError as refused:
        _, row, reason = refused.args
        raise RowRefused(reason, row) from None
    batches: list[PartitionBatch] = []
    for partition, batch, record_count, first_row, max_timestamp in built:
        whole = (
            batch
            if codec is Codec.NONE
            else _compressed(batch, codec, compression_level, is_sealed=not is_stamped)
        )
        if is_stamped and sequences is not None:
            scan.stamp_producer(whole, producer_id, producer_epoch, sequences[partition], is_transactional)
            sequences[partition] = sequence_after(sequences[partition], record_count)
        batches.append(PartitionBatch(partition, whole, record_count, first_row, max_timestamp))
    return WrittenBatches(batches, sticky_next)


def stamp_producer(
    batch: bytearray | memoryview,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    is_transactional: bool = False,
) -> None:
    """Write producer id, epoch and sequence into a whole batch in place, with its new CRC."""
    scan.stamp_producer(batch, producer_id, producer_epoch, base_sequence, is_transactional)


def _compressed(batch: bytearray, codec: Codec, level: int | None, *, is_sealed: bool) -> bytearray:
    """The batch with its records compressed; its CRC is valid only if `is_sealed`."""
    whole = batch[:HEADER_SIZE]
    whole += compress(codec, memoryview(batch)[HEADER_SIZE:], level)
    pack_into(">i", whole, 8, len(whole) - LENGTH_OVERHEAD)
    pack_into(">h", whole, 21, codec)
    if is_sealed:
        pack_into(">I", whole, CRC_POSITION, scan.crc(memoryview(whole)[CRC_START:]))
    return whole
