# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The `clean` kernel: keys into a bounded table, batches through it. `clean_reference` is its twin and says what each function means."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdlib cimport calloc, free, realloc

include "records.pxi"
include "clean_tables.pxi"

END = _END
COMPRESSED = _COMPRESSED
FULL = _FULL
ROOM = _ROOM

cdef enum:
    _END = 0
    _COMPRESSED = 1
    _FULL = 2
    _ROOM = 3
    _NO_MEMORY = 4
    _BROKEN_LENGTH = 5
    _BROKEN_MAGIC = 6
    _BROKEN_CRC = 7
    _BROKEN_COUNT = 8
    _BROKEN_RECORD = 100  # and the refusal
    _HEADER = 61
    _CODEC = 0x07
    _APPEND_TIME = 0x08
    _TRANSACTIONAL = 0x10
    _CONTROL = 0x20
    _HORIZON = 0x40
    _COPY = 0
    _DROP = 1
    _EMPTY = 2
    _REWRITE = 3

cdef dict _BROKEN = {
    _BROKEN_LENGTH: "a batch length that is shorter than a header",
    _BROKEN_MAGIC: "a magic that is not 2",
    _BROKEN_CRC: "CRC-32C does not match",
    _BROKEN_COUNT: "records that do not fill their batch",
}


cdef struct Plan:
    int verdict
    int64_t size
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t count
    bint has_horizon
    bint ends_transaction


cdef int _whole(const uint8_t *p, Py_ssize_t left, int64_t *size) noexcept nogil:
    """The size of the batch at `p`, 0 if it is not whole; or why it is none."""
    cdef int32_t length
    size[0] = 0
    if left < _HEADER:
        return 0
    if p[16] != 2:
        return _BROKEN_MAGIC
    length = <int32_t>sl_get32(p + 8)
    if length < _HEADER - 12:
        return _BROKEN_LENGTH
    if <int64_t>length + 12 <= left:
        size[0] = <int64_t>length + 12
    return 0


cdef int _read_records(KeyOffsets keys, const uint8_t *p, int64_t size, int64_t start, int64_t limit, const uint8_t **at) noexcept nogil:
    """The records of an uncompressed batch into `keys.entries`, with the hash of each key at an offset in `[start, limit)`."""
    cdef int32_t count = <int32_t>sl_get32(p + 57), index
    cdef int64_t base_offset = <int64_t>sl_get64(p)
    cdef const uint8_t *end = p + size
    cdef Entry *entry
    cdef sl_record record
    cdef int refused
    at[0] = p + 57
    if count < 0 or count > (size - _HEADER) // 7:
        return _BROKEN_COUNT
    if count > keys.entry_room:
        entry = <Entry *>realloc(keys.entries, (count + 256) * sizeof(Entry))
        if entry == NULL:
            return _NO_MEMORY
        keys.entries, keys.entry_room = entry, count + 256
    p += _HEADER
    for index in range(count):
        refused = sl_read_record(p, end, &record, at)
        if refused:
            return _BROKEN_RECORD + refused
        entry = keys.entries + index
        entry.start = p
        entry.end = p = record.end
        entry.delta = record.timestamp_delta
        entry.offset = <int64_t>(<uint64_t>base_offset + <uint64_t>(<int64_t>record.offset_delta))
        entry.has_key = record.key_length >= 0
        entry.has_value = record.value_length >= 0
        if entry.has_key and start <= entry.offset < limit:
            sl_sip(keys.seed, record.key, record.key_length, &entry.low, &entry.high)
            SL_PREFETCH(keys.slots + sl_scale(entry.low, keys.slot_count))
    at[0] = p
    return 0 if p == end else _BROKEN_COUNT


cdef int _refuse(int broken, Py_ssize_t position) except -1:
    if broken == _NO_MEMORY:
        raise MemoryError
    if broken >= _BROKEN_RECORD:
        raise ValueError(INVALID, position, _REFUSALS[broken - _BROKEN_RECORD])
    raise ValueError(CORRUPT, position, _BROKEN[broken])


def map_keys(source, Py_ssize_t position, KeyOffsets keys not None, Rules rules not None, int64_t start_offset):
    cdef Py_buffer held
    cdef const uint8_t *first
    cdef const uint8_t *at = NULL
    cdef int64_t size = 0
    cdef int status
    PyObject_GetBuffer(source, &held, PyBUF_SIMPLE)
    try:
        first = <const uint8_t *>held.buf
        if not 0 <= position <= held.len:
            raise ValueError(INVALID, position, "a position outside of the buffer")
        with nogil:
            while True:
                at = first + position
                status = _whole(at, held.len - position, &size)
                if status or size == 0:
                    break
                status = _map_batch(first + position, size, keys, rules, start_offset, &at)
                if status:
                    break
                position += size
        if status > _ROOM:
            _refuse(status, at - first)
        return status, position
    finally:
        PyBuffer_Release(&held)


cdef int _map_batch(const uint8_t *p, int64_t size, KeyOffsets keys, Rules rules, int64_t start_offset, const uint8_t **at) noexcept nogil:
    cdef int64_t base_offset = <int64_t>sl_get64(p)
    cdef int64_t last_offset = <int64_t>(sl_get64(p) + <uint64_t>(<int64_t>(<int32_t>sl_get32(p + 23))))
    cdef int attributes = sl_get16(p + 21)
    cdef int32_t count = <int32_t>sl_get32(p + 57), index
    cdef Entry *entry
    cdef Slot *slot
    cdef int refused
    if last_offset < start_offset:
        return 0
    if not attributes & _CONTROL and count != 0 and not (
        attributes & _TRANSACTIONAL and _aborted(rules, <int64_t>sl_get64(p + 43), base_offset) >= 0
    ):
        if attributes & _CODEC:
            return _COMPRESSED
        refused = _read_records(keys, p, size, start_offset, <int64_t>0x7FFFFFFFFFFFFFFF, at)
        if refused:
            return refused
        for index in range(count):
            entry = keys.entries + index
            if not entry.has_key or entry.offset < start_offset:
                continue
            slot = _find(keys, entry.low, entry.high)
            if slot.reached == 0:
                if keys.used >= keys.limit:
                    return _FULL
                keys.used += 1
                slot.low, slot.high = entry.low, entry.high
            slot.reached = entry.offset + 1
            if entry.offset > keys.latest:
                keys.latest = entry.offset
    if last_offset > keys.latest:
        keys.latest = last_offset
    return 0


def filter_batches(
    source, Py_ssize_t position, target, Py_ssize_t filled, KeyOffsets keys not None, Rules rules not None,
    int64_t keep_end, int64_t growth, bint is_decompressed=False,
):
    cdef Py_buffer held, out
    cdef const uint8_t *first
    cdef const uint8_t *at = NULL
    cdef int64_t size = 0, needed = 0, read = 0, kept = 0, grown = 0
    cdef int status, verdict = -1
    cdef Plan plan
    PyObject_GetBuffer(source, &held, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(target, &out, PyBUF_WRITABLE)
        try:
            first = <const uint8_t *>held.buf
            if not (0 <= position <= held.len and 0 <= filled <= out.len):
                raise ValueError(INVALID, position, "a position outside of the buffer")
            with nogil:
                while True:
                    at = first + position
                    status = _whole(at, held.len - position, &size)
                    if status or size == 0:
                        break
                    status = _judge(first + position, size, keys, rules, keep_end, growth - grown, is_decompressed, &plan, &at)
                    if status:
                        break
                    if plan.size > out.len - filled:
                        status, needed = _ROOM, plan.size
                        break
                    read += <int32_t>sl_get32(first + position + 57)
                    kept += plan.count
                    _write(first + position, size, keys, &plan, <uint8_t *>out.buf + filled)
                    if plan.ends_transaction:
                        _seen(rules, <int64_t>sl_get64(first + position + 43)).has_records = False
                    filled += plan.size
                    grown += plan.size - size
                    verdict = plan.verdict
                    position += size
            if status > _ROOM:
                _refuse(status, at - first)
            return status, position, filled, needed, read, kept, verdict == _COPY
        finally:
            PyBuffer_Release(&out)
    finally:
        PyBuffer_Release(&held)


cdef bint _is_last_of_producer(Rules rules, int64_t producer_id, int64_t last_offset, int attributes, int epoch) noexcept nogil:
    cdef Py_ssize_t row = _row_of(rules.producers, rules.producer_count, producer_id, <int64_t>0x7FFFFFFFFFFFFFFF)
    if row < 0 or rules.producers[3 * row] != producer_id:
        return False
    if rules.producers[3 * row + 1] >= 0:
        return rules.producers[3 * row + 1] == last_offset
    return attributes & _CONTROL and rules.producers[3 * row + 2] == epoch


cdef int _judge(
    const uint8_t *p, int64_t size, KeyOffsets keys, Rules rules, int64_t keep_end, int64_t growth, bint is_decompressed, Plan *plan,
    const uint8_t **at,
) noexcept nogil:
    """The outcome for the batch at `p`; its kept records are marked in `keys.entries`."""
    cdef int64_t base_offset = <int64_t>sl_get64(p), producer_id = <int64_t>sl_get64(p + 43), timestamp
    cdef int64_t last_offset = <int64_t>(sl_get64(p) + <uint64_t>(<int64_t>(<int32_t>sl_get32(p + 23))))
    cdef int64_t base_timestamp = <int64_t>sl_get64(p + 27), max_timestamp = <int64_t>sl_get64(p + 35)
    cdef int attributes = sl_get16(p + 21), refused, kind
    cdef int32_t count = <int32_t>sl_get32(p + 57), index
    cdef bint had_horizon = attributes & _HORIZON, is_discardable = False, is_discarded, is_retained, is_dead, needs_horizon
    cdef Py_ssize_t row
    cdef Seen *seen
    cdef Entry *entry
    cdef int64_t limit = keys.latest + 1
    plan.ends_transaction = False
    plan.count = 0
    if attributes & _CODEC and count != 0:
        return _COMPRESSED
    at[0] = p + 17
    if not is_decompressed and sl_crc(0, p + 21, size - 21) != sl_get32(p + 17):
        return _BROKEN_CRC
    refused = _read_records(keys, p, size, 0, 0 if attributes & _CONTROL else limit, at)
    if refused:
        return refused
    if attributes & _CONTROL:
        kind = _control_type(keys) if count > 0 else -1
        if kind == 0 or kind == 1:
            seen = _seen(rules, producer_id)
            if seen == NULL:
                return _NO_MEMORY
            is_discardable = not seen.has_records
            plan.ends_transaction = True
        else:
            is_discardable = count == 0
        is_discarded = is_discardable and had_horizon and base_timestamp <= rules.now_ms
    else:
        if attributes & _TRANSACTIONAL:
            seen = _seen(rules, producer_id)
            if seen == NULL:
                return _NO_MEMORY
            seen.has_records = True
            row = _aborted(rules, producer_id, base_offset)
            if row >= 0:
                rules.aborted_seen[row] = True
                is_discardable = True
        is_discarded = is_discardable
    is_retained = last_offset + 1 == keep_end or (
        producer_id >= 0 and _is_last_of_producer(rules, producer_id, last_offset, attributes, sl_get16(p + 51))
    )
    needs_horizon = attributes & _CONTROL and is_discardable and not had_horizon
    is_dead = had_horizon and rules.now_ms >= base_timestamp
    for index in range(0 if is_discarded else count):
        entry = keys.entries + index
        if attributes & _CONTROL or entry.offset >= limit:
            entry.is_kept = True
        elif not entry.has_key:
            entry.is_kept = False
        else:
            entry.is_kept = (entry.has_value or not is_dead) and entry.offset + 1 >= _find(keys, entry.low, entry.high).reached
        if entry.is_kept:
            plan.count += 1
            needs_horizon = needs_horizon or (not entry.has_value and not had_horizon)
    if plan.count == 0:
        plan.verdict = _EMPTY if is_retained else _DROP
        plan.size = _HEADER if is_retained else 0
        return 0
    if plan.count == count and not needs_horizon:
        plan.verdict, plan.size = _COPY, size
        return 0
    plan.verdict = _REWRITE
    plan.has_horizon = had_horizon or needs_horizon
    plan.base_timestamp = base_timestamp
    plan.max_timestamp = max_timestamp if attributes & _APPEND_TIME else -1
    for index in range(count - 1, -1, -1):
        entry = keys.entries + index
        if entry.is_kept:
            timestamp = max_timestamp if attributes & _APPEND_TIME else <int64_t>(<uint64_t>base_timestamp + <uint64_t>entry.delta)
            if timestamp > plan.max_timestamp:
                plan.max_timestamp = timestamp
            if not had_horizon:
                plan.base_timestamp = timestamp
    if needs_horizon:
        plan.base_timestamp = rules.horizon_ms
    _measure(keys, count, plan, p)
    if plan.size > size + growth:
        # A file holds what an int32 can point at: where there is no room left the horizon is set another time.
        plan.base_timestamp = base_timestamp
        plan.has_horizon = had_horizon
        _measure(keys, count, plan, p)
    return 0


cdef int _control_type(KeyOffsets keys) noexcept nogil:
    """The type in the key of the first record; -1 for none."""
    cdef sl_record record
    cdef const uint8_t *at
    if sl_read_record(keys.entries[0].start, keys.entries[0].end, &record, &at) or record.key_length < 4:
        return -1
    return sl_get16(record.key + 2)


cdef inline int64_t _delta(const Entry *entry, const Plan *plan, const uint8_t *p) noexcept nogil:
    """The timestamp delta of a record in its new batch; the old one where nothing moves."""
    cdef uint64_t timestamp
    if plan.base_timestamp == <int64_t>sl_get64(p + 27):
        return entry.delta
    timestamp = sl_get64(p + 35) if sl_get16(p + 21) & _APPEND_TIME else sl_get64(p + 27) + <uint64_t>entry.delta
    return <int64_t>(timestamp - <uint64_t>plan.base_timestamp)


cdef inline const uint8_t *_rest(const Entry *entry, uint8_t *attributes) noexcept nogil:
    """The bytes after the timestamp delta of a record."""
    cdef int32_t length
    cdef int64_t delta
    cdef const uint8_t *p = sl_varint32(entry.start, entry.end, &length)
    attributes[0] = p[0]
    return sl_varint64(p + 1, entry.end, &delta)


cdef void _measure(KeyOffsets keys, int32_t count, Plan *plan, const uint8_t *p) noexcept nogil:
    cdef int32_t index
    cdef Entry *entry
    cdef int64_t delta, body
    cdef uint8_t attributes
    plan.size = _HEADER
    for index in range(count):
        entry = keys.entries + index
        if not entry.is_kept:
            continue
        delta = _delta(entry, plan, p)
        if delta == entry.delta:
            plan.size += entry.end - entry.start
        else:
            body = 1 + sl_varint_size(delta) + (entry.end - _rest(entry, &attributes))
            plan.size += sl_varint_size(body) + body


cdef void _write(const uint8_t *p, int64_t size, KeyOffsets keys, const Plan *plan, uint8_t *out) noexcept nogil:
    cdef int32_t index, count = <int32_t>sl_get32(p + 57)
    cdef int attributes = sl_get16(p + 21)
    cdef uint8_t *to = out + _HEADER
    cdef const uint8_t *rest
    cdef uint8_t record_attributes
    cdef Entry *entry
    cdef int64_t delta
    if plan.verdict == _DROP:
        return
    if plan.verdict == _COPY:
        memcpy(out, p, size)
        return
    memcpy(out, p, _HEADER)
    sl_put32(out + 8, <uint32_t>(plan.size - 12))
    sl_put32(out + 57, <uint32_t>plan.count)
    if plan.verdict == _EMPTY:
        sl_put16(out + 21, attributes & (_APPEND_TIME | _TRANSACTIONAL | _CONTROL))
        sl_put64(out + 27, <uint64_t>(<int64_t>-1))
        sl_put32(out + 17, sl_crc(0, out + 21, _HEADER - 21))
        return
    sl_put16(out + 21, attributes | _HORIZON if plan.has_horizon else attributes & ~_HORIZON)
    sl_put64(out + 27, <uint64_t>plan.base_timestamp)
    sl_put64(out + 35, <uint64_t>plan.max_timestamp)
    for index in range(count):
        entry = keys.entries + index
        if not entry.is_kept:
            continue
        delta = _delta(entry, plan, p)
        if delta == entry.delta:
            memcpy(to, entry.start, entry.end - entry.start)
            to += entry.end - entry.start
        else:
            rest = _rest(entry, &record_attributes)
            to = sl_put_varint(to, 1 + sl_varint_size(delta) + (entry.end - rest))
            to[0] = record_attributes
            to = sl_put_varint(to + 1, delta)
            memcpy(to, rest, entry.end - rest)
            to += entry.end - rest
    sl_put32(out + 17, sl_crc(0, out + 21, plan.size - 21))


def index_entries(source, Py_ssize_t limit, int64_t file_position, int64_t base_offset, int64_t[:] state not None, int64_t interval_bytes):
    cdef Py_buffer held
    cdef const uint8_t *p
    cdef Py_ssize_t position = 0, index, used = 0, room = 0
    cdef int64_t size = 0, last_offset, timestamp
    cdef int64_t *found = NULL
    cdef int64_t *grown
    cdef int broken = 0
    if state.shape[0] != 3:
        raise ValueError(INVALID, 0, "the state has three numbers")
    PyObject_GetBuffer(source, &held, PyBUF_SIMPLE)
    try:
        if not 0 <= limit <= held.len:
            raise ValueError(INVALID, limit, "a position outside of the buffer")
        with nogil:
            while position < limit:
                p = <const uint8_t *>held.buf + position
                broken = _whole(p, limit - position, &size)
                if broken or size == 0:
                    break
                last_offset = <int64_t>(sl_get64(p) + <uint64_t>(<int64_t>(<int32_t>sl_get32(p + 23))))
                timestamp = <int64_t>sl_get64(p + 35)
                if timestamp > state[1]:
                    state[1], state[2] = timestamp, last_offset
                if state[0] > interval_bytes:
                    if used == room:
                        room = 2 * room + 64
                        grown = <int64_t *>realloc(found, room * 32)
                        if grown == NULL:
                            broken = _NO_MEMORY
                            break
                        found = grown
                    found[4 * used] = <int64_t>(<uint64_t>last_offset - <uint64_t>base_offset)
                    found[4 * used + 1] = file_position + position
                    found[4 * used + 2] = state[1]
                    found[4 * used + 3] = <int64_t>(<uint64_t>state[2] - <uint64_t>base_offset)
                    used += 1
                    state[0] = 0
                state[0] += size
                position += size
        if broken:
            _refuse(broken, position)
        return [(found[4 * index], found[4 * index + 1], found[4 * index + 2], found[4 * index + 3]) for index in range(used)]
    finally:
        free(found)
        PyBuffer_Release(&held)
