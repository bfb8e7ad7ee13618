# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The `columns` kernel: batches to Arrow-layout columns and back. `columns_reference` is its twin and says what each function means."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.ref cimport Py_DECREF, PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

include "records.pxi"

cdef extern from "Python.h":
    PyObject *raw_bytes "PyBytes_FromStringAndSize" (const char *content, Py_ssize_t size) except NULL
    char *raw_content "PyBytes_AS_STRING" (PyObject *content) nogil
    int raw_resize "_PyBytes_Resize" (PyObject **content, Py_ssize_t size) except -1
    void raw_release "Py_XDECREF" (PyObject *content)

KEY = 1
VALUE = 2
OFFSET = 4
TIMESTAMP = 8
TIMESTAMP_TYPE = 16
HEADERS = 32

cdef enum:
    _HEADER = 61
    _KEY = 1
    _VALUE = 2
    _OFFSET = 4
    _TIMESTAMP = 8
    _TIMESTAMP_TYPE = 16
    _HEADERS = 32
    _OFFSET_OUTSIDE = 100  # refusals beside those of sl_read_record
    _CRC_DIFFERS = 101
    _NO_MEMORY = 102
    _TOO_LARGE = 103



cdef class _Held:
    """A buffer, held while this object lives."""

    cdef Py_buffer held
    cdef const uint8_t *start
    cdef Py_ssize_t size

    def __cinit__(self, buffer):
        PyObject_GetBuffer(buffer, &self.held, PyBUF_SIMPLE)
        self.start = <const uint8_t *>self.held.buf
        self.size = self.held.len

    def __dealloc__(self):
        if self.start != NULL:
            PyBuffer_Release(&self.held)


cdef struct Segment:
    # The uncompressed records of one batch, and what the header says of them.
    const uint8_t *records
    const uint8_t *limit
    const uint8_t *unverified  # the batch whose CRC is still to be compared; NULL if none
    int64_t base_offset
    int64_t base_timestamp
    int64_t append_timestamp
    int64_t position
    int32_t size
    int32_t count
    int32_t last_offset_delta
    int32_t timestamp_type


include "columns_vector.pxi"


cdef class _Reading:
    """The work of one `read_columns`: held buffers, the batches to read, the columns being filled."""

    cdef Py_buffer *held
    cdef Py_ssize_t held_count
    cdef list inflated
    cdef Segment *segments
    cdef Py_ssize_t segment_count, segment_capacity
    cdef int64_t record_bytes, records_max, count, key_bytes, value_bytes, key_nulls, value_nulls, header_count, header_rows
    cdef PyObject *key_offsets
    cdef PyObject *key_data
    cdef PyObject *key_validity
    cdef PyObject *value_offsets
    cdef PyObject *value_data
    cdef PyObject *value_validity
    cdef PyObject *offsets
    cdef PyObject *timestamps
    cdef PyObject *timestamp_types
    cdef Vector list_offsets, list_validity, name_offsets, name_data, header_validity, header_offsets, header_data

    def __cinit__(self):
        self.inflated = []

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.held_count):
            PyBuffer_Release(&self.held[i])
        free(self.held)
        free(self.segments)
        raw_release(self.key_offsets)
        raw_release(self.key_data)
        raw_release(self.key_validity)
        raw_release(self.value_offsets)
        raw_release(self.value_data)
        raw_release(self.value_validity)
        raw_release(self.offsets)
        raw_release(self.timestamps)
        raw_release(self.timestamp_types)
        free(self.list_offsets.bytes)
        free(self.list_validity.bytes)
        free(self.name_offsets.bytes)
        free(self.name_data.bytes)
        free(self.header_validity.bytes)
        free(self.header_offsets.bytes)
        free(self.header_data.bytes)

    cdef int hold(self, list buffers) except -1:
        """All that the segments point into, until the end of this object."""
        self.held = <Py_buffer *>calloc(len(buffers) + 1, sizeof(Py_buffer))
        if self.held == NULL:
            raise MemoryError
        for buffer in buffers:
            PyObject_GetBuffer(buffer, &self.held[self.held_count], PyBUF_SIMPLE)
            self.held_count += 1
        return 0

    cdef int add(self, Segment segment) except -1:
        cdef Segment *moved
        if self.segment_count == self.segment_capacity:
            self.segment_capacity = 2 * self.segment_capacity + 64
            moved = <Segment *>realloc(self.segments, self.segment_capacity * sizeof(Segment))
            if moved == NULL:
                raise MemoryError
            self.segments = moved
        self.segments[self.segment_count] = segment
        self.segment_count += 1
        self.records_max += segment.count
        self.record_bytes += segment.limit - segment.records
        return 0

    cdef int allocate(self, int wanted) except -1:
        cdef int64_t n = self.records_max
        if wanted & _KEY:
            self.key_offsets = raw_bytes(NULL, 4 * (n + 1))
            self.key_data = raw_bytes(NULL, self.record_bytes)
            self.key_validity = raw_bytes(NULL, (n + 7) // 8)
            memset(raw_content(self.key_validity), 0xFF, (n + 7) // 8)
        if wanted & _VALUE:
            self.value_offsets = raw_bytes(NULL, 4 * (n + 1))
            self.value_data = raw_bytes(NULL, self.record_bytes)
            self.value_validity = raw_bytes(NULL, (n + 7) // 8)
            memset(raw_content(self.value_validity), 0xFF, (n + 7) // 8)
        if wanted & _OFFSET:
            self.offsets = raw_bytes(NULL, 8 * n)
        if wanted & _TIMESTAMP:
            self.timestamps = raw_bytes(NULL, 8 * n)
        if wanted & _TIMESTAMP_TYPE:
            self.timestamp_types = raw_bytes(NULL, 4 * n)
        return 0

    cdef int fill(self, int wanted, int64_t start, int64_t limit, Py_ssize_t *refused_at) noexcept nogil:
        """Every record of every segment; 0, or why not and at which segment."""
        cdef Segment *segment
        cdef Segment *end = self.segments + self.segment_count
        cdef sl_record record
        cdef const uint8_t *p
        cdef const uint8_t *at
        cdef int64_t offset, timestamp, count = 0, key_bytes = 0, value_bytes = 0, key_nulls = 0, value_nulls = 0
        cdef int32_t *key_offsets = NULL
        cdef int32_t *value_offsets = NULL
        cdef uint8_t *key_data = NULL
        cdef uint8_t *value_data = NULL
        cdef uint8_t *key_validity = NULL
        cdef uint8_t *value_validity = NULL
        cdef int64_t *offsets = NULL
        cdef int64_t *timestamps = NULL
        cdef int32_t *timestamp_types = NULL
        cdef int refused
        cdef int32_t index
        if wanted & _KEY:
            key_offsets = <int32_t *>raw_content(self.key_offsets)
            key_data = <uint8_t *>raw_content(self.key_data)
            key_validity = <uint8_t *>raw_content(self.key_validity)
            key_offsets[0] = 0
        if wanted & _VALUE:
            value_offsets = <int32_t *>raw_content(self.value_offsets)
            value_data = <uint8_t *>raw_content(self.value_data)
            value_validity = <uint8_t *>raw_content(self.value_validity)
            value_offsets[0] = 0
        if wanted & _OFFSET:
            offsets = <int64_t *>raw_content(self.offsets)
        if wanted & _TIMESTAMP:
            timestamps = <int64_t *>raw_content(self.timestamps)
        if wanted & _TIMESTAMP_TYPE:
            timestamp_types = <int32_t *>raw_content(self.timestamp_types)
        if wanted & _HEADERS and _push_offset(&self.list_offsets, 0):
            return _NO_MEMORY
        if wanted & _HEADERS and (_push_offset(&self.name_offsets, 0) or _push_offset(&self.header_offsets, 0)):
            return _NO_MEMORY
        segment = self.segments
        while segment < end:
            refused_at[0] = segment - self.segments
            if segment.unverified != NULL and sl_crc(0, segment.unverified + 21, segment.size - 21) != sl_get32(segment.unverified + 17):
                return _CRC_DIFFERS
            p = segment.records
            for index in range(segment.count):
                refused = sl_read_record(p, segment.limit, &record, &at)
                if refused:
                    return refused
                refused = sl_walk_headers(&record, &at)
                if refused:
                    return refused
                p = record.end
                if record.offset_delta < 0 or record.offset_delta > segment.last_offset_delta:
                    return _OFFSET_OUTSIDE
                offset = <int64_t>(<uint64_t>segment.base_offset + <uint64_t>(<int64_t>record.offset_delta))
                if offset < start or offset >= limit:
                    continue
                if key_offsets != NULL:
                    if record.key_length > 0:
                        memcpy(key_data + key_bytes, record.key, record.key_length)
                        key_bytes += record.key_length
                    elif record.key_length < 0:
                        key_validity[count >> 3] &= <uint8_t>~(1 << (count & 7))
                        key_nulls += 1
                    key_offsets[count + 1] = <int32_t>key_bytes
                if value_offsets != NULL:
                    if record.value_length > 0:
                        memcpy(value_data + value_bytes, record.value, record.value_length)
                        value_bytes += record.value_length
                    elif record.value_length < 0:
                        value_validity[count >> 3] &= <uint8_t>~(1 << (count & 7))
                        value_nulls += 1
                    value_offsets[count + 1] = <int32_t>value_bytes
                if offsets != NULL:
                    offsets[count] = offset
                if timestamps != NULL:
                    if segment.timestamp_type:
                        timestamp = segment.append_timestamp
                    else:
                        timestamp = <int64_t>(<uint64_t>segment.base_timestamp + <uint64_t>record.timestamp_delta)
                    # The last milliseconds whose microseconds fit 64 bits; what lies behind them is cut.
                    if timestamp > 9223372036854775LL:
                        timestamps[count] = <int64_t>0x7FFFFFFFFFFFFFFF
                    elif timestamp < -9223372036854775LL:
                        timestamps[count] = -<int64_t>0x7FFFFFFFFFFFFFFF - 1
                    else:
                        timestamps[count] = timestamp * 1000
                if timestamp_types != NULL:
                    timestamp_types[count] = segment.timestamp_type
                if wanted & _HEADERS:
                    refused = self.fill_headers(&record, count)
                    if refused:
                        return refused
                count += 1
            if p != segment.limit:
                return SL_BYTES_LEFT
            segment += 1
        self.count = count
        self.key_bytes = key_bytes
        self.value_bytes = value_bytes
        self.key_nulls = key_nulls
        self.value_nulls = value_nulls
        return 0

    cdef int fill_headers(self, const sl_record *record, int64_t row) noexcept nogil:
        cdef const uint8_t *p = record.headers
        cdef const uint8_t *at
        cdef sl_header header
        cdef int refused = 0
        cdef int32_t i
        for i in range(record.header_count):
            refused = sl_read_header(p, record.end, &header, &at)
            if refused:
                return refused
            refused = _push_text(&self.name_data, header.key, header.key_length)
            if not refused and header.value_length > 0:
                refused = _push(&self.header_data, header.value, header.value_length)
            if not refused:
                refused = _push_offset(&self.name_offsets, self.name_data.size)
            if not refused:
                refused = _push_offset(&self.header_offsets, self.header_data.size)
            if not refused:
                refused = _push_valid(&self.header_validity, self.header_count, header.value_length >= 0)
            if refused:
                return refused
            self.header_count += 1
            p = header.end
        refused = _push_valid(&self.list_validity, row, record.header_count > 0)
        if not refused:
            refused = _push_offset(&self.list_offsets, self.header_count)
        self.header_rows += record.header_count > 0
        return refused


cdef object _finished(PyObject **column, Py_ssize_t size):
    """The column cut to its size, given away."""
    cdef PyObject *content
    raw_resize(column, size)
    content = column[0]
    column[0] = NULL
    made = <object>content
    Py_DECREF(made)
    return made


cdef object _finished_validity(PyObject **column, int64_t count, int64_t nulls):
    if nulls == 0:
        return None
    if count & 7:
        # The bits behind the last row are zero, so that equal columns are equal bytes.
        (<uint8_t *>raw_content(column[0]))[count >> 3] &= <uint8_t>((1 << (count & 7)) - 1)
    return _finished(column, (count + 7) // 8)


def read_columns(
    list buffers, tuple position, int64_t start, int64_t limit, int wanted, bint verify_crc, int64_t bytes_max, decompress, list aborted
):
    cdef _Reading reading = _Reading()
    cdef _Held inflated
    cdef Py_ssize_t source = position[0]
    cdef Py_ssize_t at = position[1]
    cdef const uint8_t *p
    cdef Segment segment
    cdef Py_buffer *held
    cdef int64_t next_offset = start, last_offset, size, total, producer_id, aborted_index = 0, aborted_count = len(aborted)
    cdef int attributes, control
    cdef bint is_skipped
    cdef set active = set()
    if source < 0 or at < 0:
        raise ValueError(INVALID, at, "a position before the buffers")
    reading.hold(buffers)
    while source < reading.held_count:
        held = &reading.held[source]
        if held.len - at < _HEADER:
            source += 1
            at = 0
            continue
        p = <const uint8_t *>held.buf + at
        if p[16] != 2:
            raise ValueError(UNSUPPORTED_MAGIC, at, f"magic {<int>(<signed char>p[16])} is not 2")
        size = <int64_t>(<int32_t>sl_get32(p + 8)) + 12
        if size < _HEADER:
            raise ValueError(CORRUPT, at, f"a batch of {size} bytes is shorter than a header")
        if size > held.len - at:
            source += 1
            at = 0
            continue
        segment.base_offset = <int64_t>sl_get64(p)
        segment.last_offset_delta = <int32_t>sl_get32(p + 23)
        if segment.base_offset < 0 or segment.last_offset_delta < 0 or segment.base_offset > 0x7FFFFFFFFFFFFFFE - segment.last_offset_delta:
            raise ValueError(CORRUPT, at, "offsets that cannot be")
        if segment.base_offset >= limit:
            break
        last_offset = segment.base_offset + segment.last_offset_delta
        attributes = sl_get16(p + 21)
        segment.count = <int32_t>sl_get32(p + 57)
        segment.records = p + _HEADER
        segment.limit = p + size
        is_skipped = attributes & 0x20 or last_offset < start or segment.count == 0
        if aborted_count:
            producer_id = <int64_t>sl_get64(p + 43)
            while aborted_index < aborted_count and <int64_t>aborted[aborted_index][1] <= last_offset:
                active.add(aborted[aborted_index][0])
                aborted_index += 1
            if attributes & 0x20:
                control = _control_type(&segment)
                if control == 0:
                    active.discard(producer_id)
            elif attributes & 0x10 and producer_id in active:
                is_skipped = True
        if not is_skipped:
            segment.base_timestamp = <int64_t>sl_get64(p + 27)
            segment.append_timestamp = <int64_t>sl_get64(p + 35)
            segment.timestamp_type = 1 if attributes & 0x08 else 0
            segment.position = at
            segment.size = <int32_t>(size if size <= 0x7FFFFFFF else 0x7FFFFFFF)
            if size > 0x7FFFFFFF:
                raise ValueError(INVALID, at, "a batch of more than 2 GiB")
            segment.unverified = p if verify_crc else NULL
            total = reading.record_bytes
            if attributes & 0x07:
                if reading.segment_count and total + size > bytes_max:
                    break
                if verify_crc and sl_crc(0, p + 21, size - 21) != sl_get32(p + 17):
                    raise ValueError(CORRUPT, at, "CRC-32C does not match")
                segment.unverified = NULL
                inflated = _Held(decompress(attributes & 0x07, memoryview(buffers[source])[at + _HEADER : at + size]))
                reading.inflated.append(inflated)
                segment.records = inflated.start
                segment.limit = inflated.start + inflated.size
            if reading.segment_count and total + (segment.limit - segment.records) > bytes_max:
                break
            if total + (segment.limit - segment.records) > 0x7FFFFFFF:
                raise ValueError(INVALID, at, "a batch of more than 2 GiB")
            if segment.count < 0 or segment.count > (segment.limit - segment.records) // 7:
                raise ValueError(INVALID, at, f"{segment.count} records cannot stand in {segment.limit - segment.records} bytes")
            reading.add(segment)
        next_offset = max(next_offset, last_offset + 1)
        at += size
    if next_offset > limit or source < reading.held_count and _reaches(reading.held, source, at, limit):
        next_offset = max(start, limit)
    left = sorted([(producer, -1) for producer in active]) + aborted[aborted_index:]
    return _columns(reading, wanted, start, limit) + (next_offset, (source, at), left)


cdef bint _reaches(Py_buffer *held, Py_ssize_t source, Py_ssize_t at, int64_t limit):
    """Whether the batch at this place lies at or behind the limit."""
    return <int64_t>sl_get64(<const uint8_t *>held[source].buf + at) >= limit


cdef int _control_type(const Segment *segment) except -2:
    """The type of a control batch: the second half of the key of its record; -1 if it has none."""
    cdef sl_record record
    cdef const uint8_t *at
    if segment.count < 1 or sl_read_record(segment.records, segment.limit, &record, &at) or record.key_length < 4:
        return -1
    return sl_get16(record.key + 2)


cdef tuple _columns(_Reading reading, int wanted, int64_t start, int64_t limit):
    cdef Py_ssize_t refused_at = 0
    cdef int refused
    cdef int64_t count
    reading.allocate(wanted)
    with nogil:
        refused = reading.fill(wanted, start, limit, &refused_at)
    if refused == _NO_MEMORY:
        raise MemoryError
    if refused:
        at = reading.segments[refused_at].position
        if refused == _CRC_DIFFERS:
            raise ValueError(CORRUPT, at, "CRC-32C does not match")
        if refused == _OFFSET_OUTSIDE:
            raise ValueError(INVALID, at, "a record outside the offsets of its batch")
        if refused == _TOO_LARGE:
            raise ValueError(INVALID, at, "headers of more than 2 GiB")
        _refuse_record(refused, at)
    count = reading.count
    key = value = offsets = timestamps = timestamp_types = headers = None
    if wanted & _KEY:
        key = (
            _finished_validity(&reading.key_validity, count, reading.key_nulls),
            _finished(&reading.key_offsets, 4 * (count + 1)),
            _finished(&reading.key_data, reading.key_bytes),
        )
    if wanted & _VALUE:
        value = (
            _finished_validity(&reading.value_validity, count, reading.value_nulls),
            _finished(&reading.value_offsets, 4 * (count + 1)),
            _finished(&reading.value_data, reading.value_bytes),
        )
    if wanted & _OFFSET:
        offsets = _finished(&reading.offsets, 8 * count)
    if wanted & _TIMESTAMP:
        timestamps = _finished(&reading.timestamps, 8 * count)
    if wanted & _TIMESTAMP_TYPE:
        timestamp_types = _finished(&reading.timestamp_types, 4 * count)
    if wanted & _HEADERS:
        headers = (
            _taken(&reading.list_validity) if reading.header_rows < count else None,
            _taken(&reading.list_offsets),
            (None, _taken(&reading.name_offsets), _taken(&reading.name_data)),
            (_taken(&reading.header_validity), _taken(&reading.header_offsets), _taken(&reading.header_data)),
        )
    return count, key, value, offsets, timestamps, timestamp_types, headers


include "columns_write.pxi"
