# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The `scan` kernel: record batches as bytes, checked, stamped and walked. `scan_reference` is its twin and says what each function means."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8

from sparklog.kernels.batch_header import BatchHeader as _BatchHeader

include "records.pxi"

cdef enum:
    _HEADER = 61
    _GIL_FREE_BYTES = 16384  # letting the GIL go and taking it back costs what walking a small batch does


cdef _header(const uint8_t *p):
    return _BatchHeader(
        <int64_t>sl_get64(p), <int32_t>sl_get32(p + 8), <int32_t>sl_get32(p + 12), <int>(<signed char>p[16]), sl_get32(p + 17),
        <int>sl_get16(p + 21), <int32_t>sl_get32(p + 23), <int64_t>sl_get64(p + 27), <int64_t>sl_get64(p + 35),
        <int64_t>sl_get64(p + 43), <int>sl_get16(p + 51), <int32_t>sl_get32(p + 53), <int32_t>sl_get32(p + 57),
    )


cdef struct Walk:
    int32_t index  # the record a refusal is about
    const uint8_t *at
    int64_t least
    int64_t greatest


cdef enum:
    _WRONG_DELTA = 100
    _WITHOUT_KEY = 101


cdef int _walk(const uint8_t *p, const uint8_t *limit, int32_t count, int64_t base_timestamp, bint require_keys, Walk *walk) noexcept nogil:
    """Walk `count` records that must fill `[p, limit)`; 0, or why not."""
    cdef sl_record record
    cdef int64_t timestamp
    cdef int refused
    cdef int32_t index
    cdef bint is_any = False
    walk.least = walk.greatest = -1
    for index in range(count):
        walk.index = index
        refused = sl_read_record(p, limit, &record, &walk.at)
        if refused:
            return refused
        if record.offset_delta != index:
            return _WRONG_DELTA
        if require_keys and record.key_length < 0:
            return _WITHOUT_KEY
        refused = sl_walk_headers(&record, &walk.at)
        if refused:
            return refused
        p = record.end
        timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>record.timestamp_delta)
        if timestamp != -1:
            if not is_any:
                walk.least = walk.greatest = timestamp
                is_any = True
            elif timestamp < walk.least:
                walk.least = timestamp
            elif timestamp > walk.greatest:
                walk.greatest = timestamp
    walk.at = p
    return 0


cdef int _check_records(
    const uint8_t *start, Py_ssize_t position, Py_ssize_t size, int64_t count, int64_t base_timestamp, bint require_keys, Walk *walk
) except -1:
    cdef int refused
    if position < 0 or position > size or count < 0 or count > (size - position) // 7:
        raise ValueError(INVALID, position, f"{count} records cannot stand in {size - position} bytes")
    if size - position < _GIL_FREE_BYTES:
        refused = _walk(start + position, start + size, <int32_t>count, base_timestamp, require_keys, walk)
    else:
        with nogil:
            refused = _walk(start + position, start + size, <int32_t>count, base_timestamp, require_keys, walk)
    if refused == _WRONG_DELTA:
        raise ValueError(INVALID, walk.at - start, f"offset deltas must be 0, 1, 2 …; not so at record {walk.index}")
    if refused == _WITHOUT_KEY:
        raise ValueError(MISSING_KEY, walk.index, "a record without a key")
    if refused:
        _refuse_record(refused, walk.at - start)
    if walk.at != start + size:
        raise ValueError(INVALID, walk.at - start, f"{start + size - walk.at} bytes after the last record")
    return 0


def crc(buffer, uint32_t seed=0):
    cdef Py_buffer held
    cdef uint32_t found
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        if held.len < _GIL_FREE_BYTES:
            found = sl_crc(seed, <const uint8_t *>held.buf, held.len)
        else:
            with nogil:
                found = sl_crc(seed, <const uint8_t *>held.buf, held.len)
    finally:
        PyBuffer_Release(&held)
    return found


def check_batch(buffer, bint require_keys):
    cdef Py_buffer held
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        return _check_batch(<const uint8_t *>held.buf, held.len, require_keys)
    finally:
        PyBuffer_Release(&held)


cdef tuple _check_batch(const uint8_t *p, Py_ssize_t size, bint require_keys):
    cdef int32_t length, last_offset_delta, count
    cdef int attributes, codec
    cdef uint32_t found
    cdef Walk walk
    if size < _HEADER:
        raise ValueError(INVALID, size, "no whole record batch")
    if p[16] != 2:
        raise ValueError(UNSUPPORTED_MAGIC, 16, f"magic {<int>(<signed char>p[16])} is not 2")
    length = <int32_t>sl_get32(p + 8)
    if length < _HEADER - 12:
        raise ValueError(CORRUPT, 8, f"batch length {length} is shorter than a header")
    if <int64_t>length + 12 != size:
        raise ValueError(INVALID, 8, f"one batch of {<int64_t>length + 12} bytes must fill the {size} bytes sent")
    if size < _GIL_FREE_BYTES:
        found = sl_crc(0, p + 21, size - 21)
    else:
        with nogil:
            found = sl_crc(0, p + 21, size - 21)
    if found != sl_get32(p + 17):
        raise ValueError(CORRUPT, 17, "CRC-32C does not match")
    last_offset_delta = <int32_t>sl_get32(p + 23)
    count = <int32_t>sl_get32(p + 57)
    if count <= 0 or last_offset_delta != count - 1:
        raise ValueError(INVALID, 57, f"{count} records with a last offset delta of {last_offset_delta}")
    attributes = sl_get16(p + 21)
    if attributes & 0x20:
        raise ValueError(INVALID, 21, "clients may not write control records")
    if <int64_t>sl_get64(p + 43) >= 0 and <int32_t>sl_get32(p + 53) < 0:
        raise ValueError(INVALID, 53, f"producer {<int64_t>sl_get64(p + 43)} without a sequence")
    codec = attributes & 0x07
    if codec > 4:
        raise ValueError(INVALID, 21, f"unknown codec {codec}")
    if codec:
        return _header(p), -1, -1
    _check_records(p, _HEADER, size, count, <int64_t>sl_get64(p + 27), require_keys, &walk)
    return _header(p), walk.least, walk.greatest


def check_records(buffer, int64_t count, int64_t base_timestamp, bint require_keys, Py_ssize_t position=0):
    cdef Py_buffer held
    cdef Walk walk
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        _check_records(<const uint8_t *>held.buf, position, held.len, count, base_timestamp, require_keys, &walk)
        return walk.least, walk.greatest
    finally:
        PyBuffer_Release(&held)


cdef list _indexes(
    buffer, int64_t count, Py_ssize_t most, Py_ssize_t position, bint is_of_keys, int64_t base_timestamp, int64_t least, int64_t greatest
):
    """The indexes of the first `most` records without a key, or else with a timestamp outside `[least, greatest]`."""
    cdef Py_buffer held
    cdef sl_record record
    cdef const uint8_t *at
    cdef const uint8_t *p
    cdef const uint8_t *limit
    cdef int64_t index, timestamp
    cdef int refused = 0
    cdef bint is_found = False
    cdef list found = []
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        if position < 0 or position > held.len or count < 0 or count > (held.len - position) // 7:
            raise ValueError(INVALID, position, f"{count} records cannot stand in {held.len - position} bytes")
        p = <const uint8_t *>held.buf + position
        limit = <const uint8_t *>held.buf + held.len
        index = 0
        while index < count and len(found) < most:
            with nogil:
                is_found = False
                while index < count and not is_found:
                    refused = sl_read_record(p, limit, &record, &at)
                    if refused:
                        break
                    p = record.end
                    if is_of_keys:
                        is_found = record.key_length < 0
                    else:
                        timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>record.timestamp_delta)
                        is_found = timestamp != -1 and (timestamp < least or timestamp > greatest)
                    index += 1
            if refused:
                _refuse_record(refused, at - <const uint8_t *>held.buf)
            if is_found:
                found.append(index - 1)
    finally:
        PyBuffer_Release(&held)
    return found


def timestamps_outside(buffer, int64_t count, int64_t base_timestamp, int64_t least, int64_t greatest, Py_ssize_t most, Py_ssize_t position=0):
    return _indexes(buffer, count, most, position, False, base_timestamp, least, greatest)


def keys_missing(buffer, int64_t count, Py_ssize_t most, Py_ssize_t position=0):
    return _indexes(buffer, count, most, position, True, 0, 0, 0)


def find_timestamp(
    buffer, Py_ssize_t position, int64_t count, int64_t base_offset, int64_t base_timestamp, append_timestamp, int64_t timestamp, int64_t start
):
    cdef Py_buffer held
    cdef sl_record record
    cdef const uint8_t *at
    cdef const uint8_t *p
    cdef const uint8_t *limit
    cdef int64_t index, found_timestamp = 0, offset = 0
    cdef int refused = 0
    cdef bint is_found = False, is_append_time = append_timestamp is not None
    cdef int64_t appended = append_timestamp if is_append_time else 0
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        if position < 0 or position > held.len or count < 0 or count > (held.len - position) // 7:
            raise ValueError(INVALID, position, f"{count} records cannot stand in {held.len - position} bytes")
        p = <const uint8_t *>held.buf + position
        limit = <const uint8_t *>held.buf + held.len
        with nogil:
            for index in range(count):
                refused = sl_read_record(p, limit, &record, &at)
                if refused:
                    break
                p = record.end
                found_timestamp = appended if is_append_time else <int64_t>(<uint64_t>base_timestamp + <uint64_t>record.timestamp_delta)
                offset = <int64_t>(<uint64_t>base_offset + <uint64_t>(<int64_t>record.offset_delta))
                if found_timestamp >= timestamp and offset >= start:
                    is_found = True
                    break
        if refused:
            _refuse_record(refused, at - <const uint8_t *>held.buf)
    finally:
        PyBuffer_Release(&held)
    return (found_timestamp, offset) if is_found else None


cdef int _hold_batch(object buffer, Py_buffer *held) except -1:
    PyObject_GetBuffer(buffer, held, PyBUF_WRITABLE)
    if held.len < _HEADER:
        size = held.len
        PyBuffer_Release(held)
        raise ValueError(INVALID, size, "no whole record batch")
    return 0


cdef void _seal(Py_buffer *held) noexcept:
    cdef uint8_t *p = <uint8_t *>held.buf
    cdef uint32_t found
    if held.len < _GIL_FREE_BYTES:
        found = sl_crc(0, p + 21, held.len - 21)
    else:
        with nogil:
            found = sl_crc(0, p + 21, held.len - 21)
    sl_put32(p + 17, found)


def stamp(buffer, int64_t base_offset, int32_t leader_epoch):
    cdef Py_buffer held
    _hold_batch(buffer, &held)
    sl_put64(<uint8_t *>held.buf, <uint64_t>base_offset)
    sl_put32(<uint8_t *>held.buf + 12, <uint32_t>leader_epoch)
    PyBuffer_Release(&held)


def stamp_timestamps(buffer, int timestamp_type, int64_t max_timestamp):
    cdef Py_buffer held
    cdef uint8_t *p
    cdef int16_t attributes, stamped
    _hold_batch(buffer, &held)
    p = <uint8_t *>held.buf
    attributes = sl_get16(p + 21)
    stamped = attributes | 0x08 if timestamp_type else attributes & ~0x08
    if stamped != attributes or <int64_t>sl_get64(p + 35) != max_timestamp:
        sl_put16(p + 21, stamped)
        sl_put64(p + 35, <uint64_t>max_timestamp)
        _seal(&held)
    PyBuffer_Release(&held)


def stamp_producer(buffer, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, bint is_transactional=False):
    cdef Py_buffer held
    cdef uint8_t *p
    cdef int16_t attributes
    _hold_batch(buffer, &held)
    p = <uint8_t *>held.buf
    attributes = sl_get16(p + 21)
    sl_put16(p + 21, attributes | 0x10 if is_transactional else attributes & ~0x10)
    sl_put64(p + 43, <uint64_t>producer_id)
    sl_put16(p + 51, producer_epoch)
    sl_put32(p + 53, <uint32_t>base_sequence)
    _seal(&held)
    PyBuffer_Release(&held)


def headers(buffer, bint verify_crc, Py_ssize_t position=0):
    cdef Py_buffer held
    cdef const uint8_t *p
    cdef int64_t size
    cdef int32_t length
    cdef uint32_t found_crc
    cdef list found = []
    if position < 0:
        raise ValueError(INVALID, position, "a position before the buffer")
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        while held.len - position >= _HEADER:
            p = <const uint8_t *>held.buf + position
            if p[16] != 2:
                raise ValueError(UNSUPPORTED_MAGIC, position + 16, f"magic {<int>(<signed char>p[16])} is not 2")
            length = <int32_t>sl_get32(p + 8)
            if length < _HEADER - 12:
                raise ValueError(CORRUPT, position + 8, f"batch length {length} is shorter than a header")
            size = <int64_t>length + 12
            if size > held.len - position:
                break
            if verify_crc:
                with nogil:
                    found_crc = sl_crc(0, p + 21, size - 21)
                if found_crc != sl_get32(p + 17):
                    raise ValueError(CORRUPT, position + 17, "CRC-32C does not match")
            found.append((position, _header(p)))
            position += size
    finally:
        PyBuffer_Release(&held)
    return found


def span(buffer):
    cdef Py_buffer held
    cdef const uint8_t *p
    cdef Py_ssize_t position = 0
    cdef int64_t size
    cdef int64_t next_offset = -1
    cdef int attributes = 0
    cdef int magic = 2
    cdef int32_t length = _HEADER
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        with nogil:
            while held.len - position >= _HEADER:
                p = <const uint8_t *>held.buf + position
                magic = <int>(<signed char>p[16])
                length = <int32_t>sl_get32(p + 8)
                if magic != 2 or length < _HEADER - 12:
                    break
                size = <int64_t>length + 12
                if size > held.len - position:
                    break
                attributes |= sl_get16(p + 21)
                next_offset = <int64_t>(sl_get64(p) + <uint64_t><int64_t><int32_t>sl_get32(p + 23) + 1)
                position += size
        if magic != 2:
            raise ValueError(UNSUPPORTED_MAGIC, position + 16, f"magic {magic} is not 2")
        if length < _HEADER - 12:
            raise ValueError(CORRUPT, position + 8, f"batch length {length} is shorter than a header")
    finally:
        PyBuffer_Release(&held)
    return position, attributes & 0xFFFF, next_offset


def records(
    buffer, Py_ssize_t position, int64_t count, int64_t base_offset, int64_t base_timestamp, append_timestamp, int64_t start, make
):
    cdef Py_buffer held
    cdef const uint8_t *first
    cdef const uint8_t *p
    cdef const uint8_t *limit
    cdef const uint8_t *at
    cdef sl_record record
    cdef int64_t offset, index
    cdef int refused
    cdef list made = []
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        if position < 0 or position > held.len or count < 0 or count > (held.len - position) // 7:
            raise ValueError(INVALID, position, f"{count} records cannot stand in {held.len - position} bytes")
        first = <const uint8_t *>held.buf
        p = first + position
        limit = first + held.len
        for index in range(count):
            refused = sl_read_record(p, limit, &record, &at)
            if not refused:
                refused = sl_walk_headers(&record, &at)
            if refused:
                _refuse_record(refused, at - first)
            p = record.end
            offset = <int64_t>(<uint64_t>base_offset + <uint64_t>(<int64_t>record.offset_delta))
            if offset < start:
                continue
            if append_timestamp is None:
                timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>record.timestamp_delta)
            else:
                timestamp = append_timestamp
            made.append(make(
                offset,
                timestamp,
                None if record.key_length < 0 else PyBytes_FromStringAndSize(<const char *>record.key, record.key_length),
                None if record.value_length < 0 else PyBytes_FromStringAndSize(<const char *>record.value, record.value_length),
                _headers_of(&record) if record.header_count else (),
            ))
    finally:
        PyBuffer_Release(&held)
    return made


cdef tuple _headers_of(const sl_record *record):
    """The headers of a record whose headers were walked."""
    cdef const uint8_t *p = record.headers
    cdef const uint8_t *at
    cdef sl_header header
    cdef list pairs = []
    for _ in range(record.header_count):
        if sl_read_header(p, record.end, &header, &at):
            raise ValueError(INVALID, -1, "the records changed while they were read")
        name = PyUnicode_DecodeUTF8(<char *>header.key, header.key_length, "replace")
        value = None if header.value_length < 0 else PyBytes_FromStringAndSize(<const char *>header.value, header.value_length)
        pairs.append((name, value))
        p = header.end
    return tuple(pairs)
