"""The pure-Python counterpart of the `clean` kernel: chooses the records of a compacted log that stay, and
writes the batches that contain them.

    map_keys         dirty batches ──► KeyOffsets, until full: for each key the offset of its last record
    filter_batches   batches + KeyOffsets + Rules ──► batches: unchanged, with fewer records, empty or gone
    index_entries    written batches ──► the entries of its two indexes

`batch_header` and `sparklog.record.batch` draw a batch. Offsets never change: deltas get gaps, and base
offset, last offset, producer, epoch and sequence stay with their batch. Errors are `ValueError(status,
position, reason)` as in the `scan` kernel. A batch with compressed records is not opened: both walks stop
at it with COMPRESSED, and continue when they get it as one uncompressed batch.
"""

from collections.abc import Sequence
from hashlib import blake2b
from struct import pack_into, unpack_from
from typing import NamedTuple

from crc32c import crc32c

from sparklog.kernels.batch_header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)

Buffer = bytes | bytearray | memoryview

END = 0
"""The rest of the buffer is not a whole batch."""
COMPRESSED = 1
"""The batch at the position must be decompressed first."""
FULL = 2
"""The table is full; it is complete up to `latest_offset`, which may be inside the batch at the position."""
ROOM = 3
"""The target is too small for the batch that the one at the position becomes."""

CORRUPT = 1
INVALID = 2
SLOT_SIZE = 24
"""Bytes of memory per slot: a hash of 128 bits and an offset."""

_ABORT, _COMMIT = 0, 1
_INT64_MAX = (1 << 63) - 1
_INT64_MASK = (1 << 64) - 1
_RECORD_SIZE_MIN = 7


class KeyOffsets:
    """The offset of the last record of each key; at most `limit` keys, in memory bounded by `slots`.

    Keys are compared by a 128-bit hash under `seed`, 16 secret bytes: otherwise an attacker could choose two
    keys with the same hash, and so have a record deleted. The table has every record with a key up to
    `latest_offset`, from the start of the map on.
    """

    def __init__(self, slots: int, limit: int, seed: Buffer) -> None:
        if not 0 < limit < slots or len(seed) != 16:
            raise ValueError(0, limit, "a limit that leaves no slot empty, or a seed that is not of 16 bytes")
        self._seed = bytes(seed)
        self._offsets: dict[bytes, int] = {}
        self._limit = limit
        self._latest = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def latest_offset(self) -> int:
        """The last offset up to which the table is complete; -1 before the first record."""
        return self._latest

    def reached(self, offset: int) -> None:
        """Note that the table is complete up to `offset`, whether or not there was a record."""
        self._latest = max(self._latest, offset)

    def find(self, key: Buffer) -> int:
        """The offset of the last record of `key`; -1 if there is none."""
        return self._offsets.get(self._hash(key), -1)

    def put(self, key: Buffer, offset: int) -> bool:
        """Add a record; False if its key is new and the table full."""
        name = self._hash(key)
        if name not in self._offsets and len(self._offsets) >= self._limit:
            return False
        self._offsets[name] = offset
        self.reached(offset)
        return True

    def _hash(self, key: Buffer) -> bytes:
        return blake2b(key, digest_size=16, key=self._seed).digest()


class Rules:
    """The inputs of retention besides the keys, and the transactions seen so far.

    `producers` has (producer id, offset of its last data batch's end or -1, epoch) of each active producer,
    sorted by id: the batch with the last sequence of a producer stays, if need be without records. `aborted`
    has (producer id, first offset, last offset) of the aborted transactions, sorted. A tombstone or marker
    that is seen for the first time may be removed from `horizon_ms` on.
    """

    def __init__(
        self,
        producers: Sequence[tuple[int, int, int]],
        aborted: Sequence[tuple[int, int, int]],
        now_ms: int,
        horizon_ms: int,
    ) -> None:
        for rows, width in ((producers, 1), (aborted, 3)):
            for index in range(1, len(rows)):
                if rows[index][:width] <= rows[index - 1][:width]:
                    raise ValueError(0, index, "producers and aborted transactions must be sorted")
        self.producers = {row[0]: row for row in producers}
        self.aborted = list(aborted)
        self.now_ms = now_ms
        self.horizon_ms = horizon_ms
        self.open: set[int] = set()
        self._seen: set[int] = set()

    def seen_aborted(self) -> list[int]:
        """The indexes of the aborted transactions of which a batch was seen: their markers are still
        needed.
        """
        return sorted(self._seen)

    def aborted_at(self, producer_id: int, offset: int) -> int:
        """The index of the aborted transaction of a batch; -1 if it has none."""
        for index, (aborted_id, first, last) in enumerate(self.aborted):
            if aborted_id == producer_id and first <= offset <= last:
                return index
        return -1

    def saw_data(self, producer_id: int, offset: int) -> bool:
        """Take a batch of a transaction; returns whether the transaction was aborted."""
        self.open.add(producer_id)
        index = self.aborted_at(producer_id, offset)
        if index >= 0:
            self._seen.add(index)
        return index >= 0


class _Batch(NamedTuple):
    base_offset: int
    size: int
    attributes: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    record_count: int


class _Record(NamedTuple):
    start: int
    end: int
    delta: int
    offset: int
    key: bytes | None
    has_value: bool
    rest: int  # the position after the timestamp delta


def map_keys(
    source: Buffer, position: int, keys: KeyOffsets, rules: Rules, start_offset: int
) -> tuple[int, int]:
    """Map the keys of all records at `start_offset` or above, except those of aborted transactions. Returns
    END, COMPRESSED or FULL, and the position.
    """
    view = memoryview(source)
    _check_within(position, len(view))
    while (batch := _whole(view, position)) is not None:
        if batch.last_offset >= start_offset:
            if _has_keys(batch, rules):
                if batch.attributes & 0x07:
                    return COMPRESSED, position
                for record in _records(view, position, batch):
                    if (
                        record.key is not None
                        and record.offset >= start_offset
                        and not keys.put(record.key, record.offset)
                    ):
                        return FULL, position
            keys.reached(batch.last_offset)
        position += batch.size
    return END, position


def _has_keys(batch: _Batch, rules: Rules) -> bool:
    if batch.attributes & CONTROL_BIT or not batch.record_count:
        return False
    return (
        not batch.attributes & TRANSACTIONAL_BIT or rules.aborted_at(batch.producer_id, batch.base_offset) < 0
    )


def filter_batches(
    source: Buffer,
    position: int,
    target: bytearray | memoryview,
    filled: int,
    keys: KeyOffsets,
    rules: Rules,
    keep_end: int,
    growth: int,
    is_decompressed: bool = False,
) -> tuple[int, int, int, int, int, int, bool]:
    """Write the retained parts of the batches from `position` on to `target[filled:]`.

    Returns (END, COMPRESSED or ROOM, position, filled, bytes needed for ROOM, records read, records kept,
    whether the last batch is unchanged). The batch that ends at `keep_end` stays, if need be without records.
    Only a new delete horizon makes a batch larger; if all batches together would grow by more than `growth`
    bytes, a later round sets it. The CRC is checked unless `is_decompressed`.

    One function, because it has the parameters of its compiled twin, which cleans many batches in one call.
    """
    view, out = memoryview(source), memoryview(target)
    _check_within(position, len(view))
    _check_within(filled, len(out))
    read = kept = grown = 0
    is_copy = False
    while (batch := _whole(view, position)) is not None:
        if batch.attributes & 0x07 and batch.record_count:
            return COMPRESSED, position, filled, 0, read, kept, is_copy
        if (
            not is_decompressed
            and crc32c(view[position + 21 : position + batch.size])
            != unpack_from(">I", view, position + 17)[0]
        ):
            raise ValueError(CORRUPT, position + 17, "CRC-32C does not match")
        records = _records(view, position, batch)
        count, content, stays = _remains(
            view, position, batch, records, keys, rules, keep_end, growth - grown
        )
        if len(content) > len(out) - filled:
            return ROOM, position, filled, len(content), read, kept, is_copy
        if batch.attributes & CONTROL_BIT and records and _control_type(records[0]) in (_ABORT, _COMMIT):
            rules.open.discard(batch.producer_id)
        out[filled : filled + len(content)] = content
        filled, is_copy = filled + len(content), stays
        grown += len(content) - batch.size
        read, kept = read + batch.record_count, kept + count
        position += batch.size
    return END, position, filled, 0, read, kept, is_copy


def _remains(
    view: memoryview,
    position: int,
    batch: _Batch,
    records: list[_Record],
    keys: KeyOffsets,
    rules: Rules,
    keep_end: int,
    growth: int,
) -> tuple[int, Buffer, bool]:
    """The number of records kept, the resulting batch, and whether that is the batch itself."""
    had_horizon = bool(batch.attributes & DELETE_HORIZON_BIT)
    is_dead = had_horizon and rules.now_ms >= batch.base_timestamp
    is_control = bool(batch.attributes & CONTROL_BIT)
    is_discardable = False
    if is_control:
        is_marker = bool(records) and _control_type(records[0]) in (_ABORT, _COMMIT)
        # A marker is needed as long as a record of its transaction exists; an empty one was only needed for
        # its producer.
        is_discardable = not records or (is_marker and batch.producer_id not in rules.open)
    elif batch.attributes & TRANSACTIONAL_BIT:
        is_discardable = rules.saw_data(batch.producer_id, batch.base_offset)
    is_discarded = is_discardable and (is_dead or not is_control)
    kept = (
        []
        if is_discarded
        else [record for record in records if is_control or _is_kept(record, keys, is_dead)]
    )
    if not kept:
        is_retained = batch.last_offset + 1 == keep_end or _is_last_of_producer(batch, rules)
        return 0, _empty(view, position, batch) if is_retained else b"", False
    has_tombstone = any(not record.has_value for record in kept)
    needs_horizon = not had_horizon and (has_tombstone or (is_control and is_discardable))
    if len(kept) == len(records) and not needs_horizon:
        return len(kept), bytes(view[position : position + batch.size]), True
    base_timestamp = batch.base_timestamp if had_horizon else _timestamp(batch, kept[0])
    if needs_horizon:
        base_timestamp = rules.horizon_ms
    content = _rewritten(view, position, batch, kept, base_timestamp, had_horizon or needs_horizon)
    if len(content) > batch.size + growth:
        content = _rewritten(view, position, batch, kept, batch.base_timestamp, had_horizon)
    return len(kept), content, False


def _is_kept(record: _Record, keys: KeyOffsets, is_dead: bool) -> bool:
    if record.offset > keys.latest_offset:
        return True
    if record.key is None:
        return False
    return (record.has_value or not is_dead) and record.offset >= keys.find(record.key)


def _is_last_of_producer(batch: _Batch, rules: Rules) -> bool:
    known = rules.producers.get(batch.producer_id) if batch.producer_id >= 0 else None
    if known is None:
        return False
    _, last_offset, epoch = known
    if last_offset >= 0:
        return batch.last_offset == last_offset
    return bool(batch.attributes & CONTROL_BIT) and batch.producer_epoch == epoch


def _timestamp(batch: _Batch, record: _Record) -> int:
    if batch.attributes & TIMESTAMP_TYPE_BIT:
        return batch.max_timestamp
    return _signed(batch.base_timestamp + record.delta)


def _empty(view: memoryview, position: int, batch: _Batch) -> bytes:
    """The batch without records: a header alone, which keeps offsets, producer and sequence."""
    header = bytearray(view[position : position + HEADER_SIZE])
    pack_into(">i", header, 8, HEADER_SIZE - 12)
    pack_into(">h", header, 21, batch.attributes & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT))
    pack_into(">q", header, 27, NO_TIMESTAMP)
    pack_into(">i", header, 57, 0)
    pack_into(">I", header, 17, crc32c(header[21:]))
    return bytes(header)


def _rewritten(
    view: memoryview,
    position: int,
    batch: _Batch,
    kept: list[_Record],
    base_timestamp: int,
    has_horizon: bool,
) -> bytearray:
    """The batch with only the `kept` records, their timestamps relative to `base_timestamp`."""
    content = bytearray(view[position : position + HEADER_SIZE])
    for record in kept:
        delta = record.delta
        if base_timestamp != batch.base_timestamp:
            delta = _signed(_timestamp(batch, record) - base_timestamp)
        if delta == record.delta:
            content += view[record.start : record.end]
            continue
        _, body = _varint(view, record.start, record.end)
        inside = bytes(view[body : body + 1]) + _varint_of(delta) + bytes(view[record.rest : record.end])
        content += _varint_of(len(inside)) + inside
    attributes = (
        batch.attributes | DELETE_HORIZON_BIT if has_horizon else batch.attributes & ~DELETE_HORIZON_BIT
    )
    greatest = batch.max_timestamp if batch.attributes & TIMESTAMP_TYPE_BIT else NO_TIMESTAMP
    pack_into(">i", content, 8, len(content) - 12)
    pack_into(">h", content, 21, attributes)
    pack_into(">q", content, 27, base_timestamp)
    pack_into(">q", content, 35, max(greatest, *(_timestamp(batch, record) for record in kept)))
    pack_into(">i", content, 57, len(kept))
    pack_into(">I", content, 17, crc32c(content[21:]))
    return content


def index_entries(
    source: Buffer, limit: int, file_position: int, base_offset: int, state: memoryview, interval_bytes: int
) -> list[tuple[int, int, int, int]]:
    """The index entries for the batches of `source[:limit]`, written at `file_position` of the segment
    that begins at `base_offset`.

    Each is (relative offset, position, greatest timestamp so far, relative offset of that). `state`, three
    int64, is passed from call to call: bytes since the last entry, greatest timestamp, the last offset of its
    batch.
    """
    view = memoryview(source)
    _check_within(limit, len(view))
    found = []
    position = 0
    while position < limit and (batch := _whole(view[:limit], position)) is not None:
        if batch.max_timestamp > state[1]:
            state[1], state[2] = batch.max_timestamp, batch.last_offset
        if state[0] > interval_bytes:
            found.append(
                (
                    _signed(batch.last_offset - base_offset),
                    file_position + position,
                    state[1],
                    _signed(state[2] - base_offset),
                )
            )
            state[0] = 0
        state[0] += batch.size
        position += batch.size
    return found


# -- bytes


def _check_within(position: int, size: int) -> None:
    if not 0 <= position <= size:
        raise ValueError(INVALID, position, "a position outside of the buffer")


def _whole(view: memoryview, position: int) -> _Batch | None:
    """The header at `position`; None if the batch is incomplete."""
    if len(view) - position < HEADER_SIZE:
        return None
    base_offset, length, _, magic = unpack_from(">qiib", view, position)
    if magic != 2:
        raise ValueError(CORRUPT, position, "a magic that is not 2")
    if length < HEADER_SIZE - 12:
        raise ValueError(CORRUPT, position, "a batch length that is shorter than a header")
    if length + 12 > len(view) - position:
        return None
    attributes, delta, base, greatest, producer_id, epoch, _, count = unpack_from(
        ">hiqqqhii", view, position + 21
    )
    return _Batch(
        base_offset,
        length + 12,
        attributes,
        _signed(base_offset + delta),
        base,
        greatest,
        producer_id,
        epoch,
        count,
    )


def _records(view: memoryview, position: int, batch: _Batch) -> list[_Record]:
    end = position + batch.size
    if not 0 <= batch.record_count <= (batch.size - HEADER_SIZE) // _RECORD_SIZE_MIN:
        raise ValueError(CORRUPT, position + 57, "records that do not fill their batch")
    records = []
    at = position + HEADER_SIZE
    for _ in range(batch.record_count):
        record = _record(view, at, end, batch.base_offset)
        records.append(record)
        at = record.end
    if at != end:
        raise ValueError(CORRUPT, at, "records that do not fill their batch")
    return records


def _record(view: memoryview, start: int, limit: int, base_offset: int) -> _Record:
    length, body = _varint(view, start, limit)
    if not 6 <= length <= limit - body:
        raise ValueError(INVALID, start, "a record longer than the bytes that remain, or too short")
    end = body + length
    delta, rest = _varint(view, body + 1, end, bits=64)
    offset_delta, at = _varint(view, rest, end)
    key_length, at = _length(view, at, end)
    key = None if key_length < 0 else bytes(view[at : at + key_length])
    value_length, at = _length(view, at + max(key_length, 0), end)
    count, at = _varint(view, at + max(value_length, 0), end)
    if not 0 <= count <= (end - at) // 2:
        raise ValueError(INVALID, start, "more headers than the record has room for")
    return _Record(start, end, delta, _signed(base_offset + offset_delta), key, value_length >= 0, rest)


def _control_type(record: _Record) -> int:
    """The type in the key of a control record; -1 for none."""
    return -1 if record.key is None or len(record.key) < 4 else int(unpack_from(">h", record.key, 2)[0])


def _length(view: memoryview, at: int, end: int) -> tuple[int, int]:
    length, at = _varint(view, at, end)
    if length < -1 or length > end - at:
        raise ValueError(INVALID, at, "a length beyond the end of its record")
    return length, at


def _varint(view: memoryview, at: int, end: int, *, bits: int = 32) -> tuple[int, int]:
    raw = shift = 0
    while at < end and shift < bits:
        byte = view[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if raw >> bits:
                break
            return (raw >> 1) ^ -(raw & 1), at
    raise ValueError(INVALID, at, "a varint that does not end or is too large")


def _varint_of(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    content = bytearray()
    while raw > 0x7F:
        content.append(raw & 0x7F | 0x80)
        raw >>= 7
    content.append(raw)
    return bytes(content)


def _signed(number: int) -> int:
    """`number` as an int64 that wraps around."""
    number &= _INT64_MASK
    return number - (1 << 64) if number > _INT64_MAX else number
