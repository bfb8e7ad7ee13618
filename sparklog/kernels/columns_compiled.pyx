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
    _OFFSET_OUTSIDE = 100
    _CRC_DIFFERS = 101
    _NO_MEMORY = 102
    _TOO_LARGE = 103



# -- murmur2 ------------------------------------------------------------------------------------------------------------------------------


cdef inline uint32_t _murmur2(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t>0x9747B28CU ^ <uint32_t>size
    cdef uint32_t k
    while size >= 4:
        memcpy(&k, p, 4)
        k *= m
        k ^= k >> 24
        h = (h * m) ^ (k * m)
        p += 4
        size -= 4
    if size == 3:
        h ^= <uint32_t>p[2] << 16
    if size >= 2:
        h ^= <uint32_t>p[1] << 8
    if size >= 1:
        h = (h ^ p[0]) * m
    h ^= h >> 13
    h *= m
    return h ^ (h >> 15)


def murmur2(key):
    cdef Py_buffer held
    PyObject_GetBuffer(key, &held, PyBUF_SIMPLE)
    found = <int32_t>_murmur2(<const uint8_t *>held.buf, held.len)
    PyBuffer_Release(&held)
    return found


# -- batches to columns -------------------------------------------------------------------------------------------------------------------


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


cdef struct Vector:
    # Bytes that grow; for columns whose size cannot be told beforehand.
    uint8_t *bytes
    int64_t size
    int64_t capacity


cdef int _grow(Vector *vector, int64_t more) noexcept nogil:
    cdef int64_t capacity = vector.capacity
    cdef uint8_t *moved
    if vector.size + more <= capacity:
        return 0
    capacity = max(2 * capacity, vector.size + more, 4096)
    moved = <uint8_t *>realloc(vector.bytes, capacity)
    if moved == NULL:
        return _NO_MEMORY
    vector.bytes = moved
    vector.capacity = capacity
    return 0


cdef inline int _push(Vector *vector, const uint8_t *content, int64_t size) noexcept nogil:
    if vector.size + size > 0x7FFFFFFF:
        return _TOO_LARGE
    if vector.size + size > vector.capacity and _grow(vector, size):
        return _NO_MEMORY
    if size:
        memcpy(vector.bytes + vector.size, content, size)
    vector.size += size
    return 0


cdef inline int _push_offset(Vector *vector, int64_t offset) noexcept nogil:
    cdef int32_t small = <int32_t>offset
    return _push(vector, <const uint8_t *>&small, 4)


cdef inline int _push_valid(Vector *bitmap, int64_t index, bint is_valid) noexcept nogil:
    cdef uint8_t zero = 0
    if index >> 3 >= bitmap.size and _push(bitmap, &zero, 1):
        return _NO_MEMORY
    if is_valid:
        bitmap.bytes[index >> 3] |= <uint8_t>(1 << (index & 7))
    return 0


cdef inline bint _is_ascii(const uint8_t *p, int32_t size) noexcept nogil:
    cdef uint8_t seen = 0
    for i in range(size):
        seen |= p[i]
    return seen < 0x80


cdef int _push_text(Vector *vector, const uint8_t *text, int32_t size) noexcept nogil:
    """As Java reads it: what is not UTF-8 becomes U+FFFD, for Arrow promises UTF-8 to those who read it."""
    if _is_ascii(text, size):
        return _push(vector, text, size)
    with gil:
        try:
            content = PyUnicode_DecodeUTF8(<char *>text, size, "replace").encode()
            return _push(vector, <const uint8_t *>(<char *>(<bytes>content)), len(<bytes>content))
        except MemoryError:
            return _NO_MEMORY


cdef bytes _taken(Vector *vector):
    return (<char *>vector.bytes)[:vector.size] if vector.size else b""


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


cdef class _Held:
    """A decompressed batch, held while it is read."""

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


# -- columns to batches -------------------------------------------------------------------------------------------------------------------


cdef enum:
    _OFFSETS_WRONG = 110
    _PARTITION_OUTSIDE = 111
    _RECORD_TOO_LARGE = 112


cdef struct Column:
    # Variable-length bytes in Arrow's layout; `start` is the slot of row 0.
    const uint8_t *validity
    const int32_t *offsets
    const uint8_t *data
    int64_t data_size
    int64_t start


cdef struct Open:
    # The batch of one partition that is being filled; `bytes` is NULL between batches.
    uint8_t *bytes
    int64_t size
    int64_t capacity
    int64_t first_row
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t count


cdef inline bint _is_valid(const uint8_t *validity, int64_t slot) noexcept nogil:
    return validity == NULL or validity[slot >> 3] >> (slot & 7) & 1


cdef inline int _slot(const Column *column, int64_t slot, const uint8_t **content, int64_t *size) noexcept nogil:
    """The bytes at a slot; size -1 for null."""
    cdef int64_t first, last
    if not _is_valid(column.validity, slot):
        size[0] = -1
        return 0
    first = column.offsets[slot]
    last = column.offsets[slot + 1]
    if first < 0 or last < first or last > column.data_size:
        return _OFFSETS_WRONG
    content[0] = column.data + first
    size[0] = last - first
    return 0


cdef inline uint8_t *_put(uint8_t *p, const uint8_t *content, int64_t size) noexcept nogil:
    p = sl_put_varint(p, size)
    if size > 0:
        memcpy(p, content, size)
        p += size
    return p


cdef class _Writing:
    """The work of one `write_batches`: held columns, one open batch per partition, the batches that are whole."""

    cdef list holds
    cdef list filling
    cdef list built
    cdef Open *open
    cdef Column key, value, name, content
    cdef bint has_key, has_value, has_headers
    cdef const uint8_t *list_validity
    cdef const int32_t *lists
    cdef int64_t list_start, names_limit, contents_limit
    cdef const uint8_t *partition_validity
    cdef const int32_t *partitions
    cdef int64_t partition_start
    cdef const uint8_t *timestamp_validity
    cdef const int64_t *timestamps
    cdef int64_t timestamp_start, timestamp_ms, bytes_max, capacity
    cdef int32_t partition_count, sticky
    cdef bint is_sealed

    def __cinit__(self):
        self.holds = []
        self.filling = []
        self.built = []

    def __dealloc__(self):
        free(self.open)

    cdef const uint8_t *hold(self, buffer, int64_t size_min) except? NULL:
        """The buffer's bytes, of which there must be so many; NULL for None."""
        cdef _Held held
        if buffer is None:
            return NULL
        held = _Held(buffer)
        if held.size < size_min:
            raise ValueError(INVALID, held.size, f"a column buffer of {held.size} bytes where {size_min} are needed")
        self.holds.append(held)
        return held.start

    cdef int hold_column(self, Column *column, parts, int64_t count) except -1:
        column.start = parts[3]
        if column.start < 0 or count < 0:
            raise ValueError(INVALID, -1, "a column that starts before its buffers")
        column.validity = self.hold(parts[0], (column.start + count + 7) // 8)
        column.offsets = <const int32_t *>self.hold(parts[1], 4 * (column.start + count + 1))
        column.data = self.hold(parts[2], 0)
        column.data_size = len(memoryview(parts[2]).cast("B")) if parts[2] is not None else 0
        if column.offsets == NULL or column.data == NULL:
            raise ValueError(INVALID, -1, "a column without offsets or bytes")
        return 0

    cdef int start_batch(self, int32_t partition, int64_t row, int64_t timestamp, int64_t size) except -1:
        """An empty batch with room for `size` bytes of records."""
        cdef Open *batch = &self.open[partition]
        batch.capacity = max(self.capacity, _HEADER + size)
        self.filling[partition] = PyByteArray_FromStringAndSize(NULL, batch.capacity)
        batch.bytes = <uint8_t *>PyByteArray_AS_STRING(self.filling[partition])
        batch.size = _HEADER
        batch.first_row = row
        batch.base_timestamp = batch.max_timestamp = timestamp
        batch.count = 0
        return 0

    cdef int widen(self, int32_t partition, int64_t size) except -1:
        cdef Open *batch = &self.open[partition]
        batch.capacity = max(batch.size + size, min(2 * batch.capacity, max(self.bytes_max, batch.capacity)))
        PyByteArray_Resize(self.filling[partition], batch.capacity)
        batch.bytes = <uint8_t *>PyByteArray_AS_STRING(self.filling[partition])
        return 0

    cdef int close_batch(self, int32_t partition) except -1:
        cdef Open *batch = &self.open[partition]
        cdef uint8_t *p = batch.bytes
        whole = self.filling[partition]
        self.filling[partition] = None
        sl_put64(p, 0)
        sl_put32(p + 8, <uint32_t>(batch.size - 12))
        sl_put32(p + 12, 0xFFFFFFFF)
        p[16] = 2
        sl_put32(p + 17, 0)
        sl_put16(p + 21, 0)
        sl_put32(p + 23, <uint32_t>(batch.count - 1))
        sl_put64(p + 27, <uint64_t>batch.base_timestamp)
        sl_put64(p + 35, <uint64_t>batch.max_timestamp)
        memset(p + 43, 0xFF, 14)  # no producer: id, epoch and sequence are -1
        sl_put32(p + 57, <uint32_t>batch.count)
        if self.is_sealed:
            with nogil:
                sl_put32(p + 17, sl_crc(0, p + 21, batch.size - 21))
        PyByteArray_Resize(whole, batch.size)
        self.built.append((partition, whole, batch.count, batch.first_row, batch.max_timestamp))
        batch.bytes = NULL
        return 0

    cdef int fill(self, int64_t count, int64_t *refused_at) noexcept nogil:
        """Every row into the batch of its partition; 0, or why not and at which row. A Python error is -1."""
        cdef const uint8_t *key = NULL
        cdef const uint8_t *value = NULL
        cdef int64_t row, slot, timestamp, key_size, value_size, body, fixed, headers_size, header_count, first_header = 0
        cdef int32_t partition, given
        cdef Open *batch
        cdef uint8_t *p
        cdef int refused
        for row in range(count):
            refused_at[0] = row
            key_size = value_size = -1
            if self.has_key:
                refused = _slot(&self.key, self.key.start + row, &key, &key_size)
                if refused:
                    return refused
            if self.has_value:
                refused = _slot(&self.value, self.value.start + row, &value, &value_size)
                if refused:
                    return refused
            header_count = headers_size = 0
            if self.has_headers:
                refused = self.measure_headers(row, &first_header, &header_count, &headers_size)
                if refused:
                    return refused
            timestamp = self.timestamp_ms
            if self.timestamps != NULL and _is_valid(self.timestamp_validity, self.timestamp_start + row):
                timestamp = self.timestamps[self.timestamp_start + row]
                timestamp = timestamp // 1000 - (timestamp % 1000 < 0)
            if self.partitions != NULL and _is_valid(self.partition_validity, self.partition_start + row):
                given = self.partitions[self.partition_start + row]
                if given < 0 or given >= self.partition_count:
                    return _PARTITION_OUTSIDE
                partition = given
            elif key_size >= 0:
                partition = <int32_t>((_murmur2(key, key_size) & 0x7FFFFFFF) % <uint32_t>self.partition_count)
            else:
                partition = self.sticky
            fixed = 1 + sl_varint_size(key_size) + max(key_size, 0) + sl_varint_size(value_size) + max(value_size, 0)
            fixed += sl_varint_size(header_count) + headers_size
            if fixed > 0x7FFFFF00:
                return _RECORD_TOO_LARGE
            batch = &self.open[partition]
            if batch.bytes != NULL:
                body = fixed + sl_varint_size(batch.count) + sl_varint_size(<int64_t>(<uint64_t>timestamp - <uint64_t>batch.base_timestamp))
                if batch.size + body + sl_varint_size(body) > self.bytes_max:
                    with gil:
                        try:
                            self.close_batch(partition)
                        except MemoryError:
                            return _NO_MEMORY
                    if partition == self.sticky:
                        self.sticky = (partition + 1) % self.partition_count
                    if key_size < 0 and (self.partitions == NULL or not _is_valid(self.partition_validity, self.partition_start + row)):
                        partition = self.sticky
                        batch = &self.open[partition]
            if batch.bytes == NULL:
                with gil:
                    try:
                        self.start_batch(partition, row, timestamp, fixed + 32)
                    except MemoryError:
                        return _NO_MEMORY
            body = fixed + sl_varint_size(batch.count) + sl_varint_size(<int64_t>(<uint64_t>timestamp - <uint64_t>batch.base_timestamp))
            if batch.size + body + 5 > batch.capacity:
                with gil:
                    try:
                        self.widen(partition, body + 5)
                    except MemoryError:
                        return _NO_MEMORY
            p = sl_put_varint(batch.bytes + batch.size, body)
            p[0] = 0
            p = sl_put_varint(p + 1, <int64_t>(<uint64_t>timestamp - <uint64_t>batch.base_timestamp))
            p = sl_put_varint(p, batch.count)
            p = _put(p, key, key_size)
            p = _put(p, value, value_size)
            p = sl_put_varint(p, header_count)
            if header_count:
                p = self.put_headers(p, first_header, header_count)
            batch.size = p - batch.bytes
            batch.count += 1
            if timestamp > batch.max_timestamp:
                batch.max_timestamp = timestamp
        return 0

    cdef int measure_headers(self, int64_t row, int64_t *first, int64_t *count, int64_t *size) noexcept nogil:
        cdef const uint8_t *content = NULL
        cdef int64_t slot = self.list_start + row, last, length = 0
        cdef int refused
        if not _is_valid(self.list_validity, slot):
            return 0
        first[0] = self.lists[slot]
        last = self.lists[slot + 1]
        if first[0] < 0 or last < first[0] or last > self.names_limit or last > self.contents_limit:
            return _OFFSETS_WRONG
        count[0] = last - first[0]
        for slot in range(first[0], last):
            refused = _slot(&self.name, self.name.start + slot, &content, &length)
            if refused:
                return refused
            if length < 0:
                return SL_NO_HEADER_KEY
            size[0] += sl_varint_size(length) + length
            refused = _slot(&self.content, self.content.start + slot, &content, &length)
            if refused:
                return refused
            size[0] += sl_varint_size(length) + max(length, 0)
        return 0

    cdef uint8_t *put_headers(self, uint8_t *p, int64_t first, int64_t count) noexcept nogil:
        """The headers that `measure_headers` found right."""
        cdef const uint8_t *content = NULL
        cdef int64_t slot, length = 0
        for slot in range(first, first + count):
            _slot(&self.name, self.name.start + slot, &content, &length)
            p = _put(p, content, length)
            _slot(&self.content, self.content.start + slot, &content, &length)
            p = _put(p, content, length)
        return p


def write_batches(
    int64_t count,
    key,
    value,
    headers,
    partitions,
    timestamps,
    int64_t timestamp_ms,
    int32_t partition_count,
    int32_t sticky,
    int64_t bytes_max,
    bint seal,
):
    cdef _Writing writing = _Writing()
    cdef int64_t refused_at = 0, expected = 0
    cdef int32_t partition
    cdef int refused
    if count < 0 or partition_count <= 0 or not 0 <= sticky < partition_count:
        raise ValueError(INVALID, -1, f"{count} rows to {partition_count} partitions, of which {sticky} is the sticky one")
    if key is not None:
        writing.hold_column(&writing.key, key, count)
        writing.has_key = True
        expected += _extent(&writing.key, count)
    if value is not None:
        writing.hold_column(&writing.value, value, count)
        writing.has_value = True
        expected += _extent(&writing.value, count)
    if headers is not None:
        _hold_headers(writing, headers, count)
    if partitions is not None:
        writing.partition_start = partitions[2]
        if writing.partition_start < 0:
            raise ValueError(INVALID, -1, "a column that starts before its buffers")
        writing.partition_validity = writing.hold(partitions[0], (writing.partition_start + count + 7) // 8)
        writing.partitions = <const int32_t *>writing.hold(partitions[1], 4 * (writing.partition_start + count))
    if timestamps is not None:
        writing.timestamp_start = timestamps[2]
        if writing.timestamp_start < 0:
            raise ValueError(INVALID, -1, "a column that starts before its buffers")
        writing.timestamp_validity = writing.hold(timestamps[0], (writing.timestamp_start + count + 7) // 8)
        writing.timestamps = <const int64_t *>writing.hold(timestamps[1], 8 * (writing.timestamp_start + count))
    writing.timestamp_ms = timestamp_ms
    writing.partition_count = partition_count
    writing.sticky = sticky
    writing.bytes_max = min(max(bytes_max, _HEADER), 0x7FFFFF00)
    writing.is_sealed = seal
    # What an even spread over the partitions needs, so that batches seldom move while they grow.
    writing.capacity = min(writing.bytes_max, max(1024, (expected + 20 * count) // partition_count * 9 // 8))
    writing.filling = [None] * partition_count
    writing.open = <Open *>calloc(partition_count, sizeof(Open))
    if writing.open == NULL:
        raise MemoryError
    with nogil:
        refused = writing.fill(count, &refused_at)
    if refused == _NO_MEMORY:
        raise MemoryError
    if refused == _OFFSETS_WRONG:
        raise ValueError(INVALID, refused_at, "a row outside its column's bytes")
    if refused == _PARTITION_OUTSIDE:
        raise ValueError(INVALID, refused_at, f"a partition outside [0, {partition_count})")
    if refused == _RECORD_TOO_LARGE:
        raise ValueError(INVALID, refused_at, "a record of more than 2 GiB")
    if refused:
        _refuse_record(refused, refused_at)
    for partition in range(partition_count):
        if writing.open[partition].bytes != NULL:
            writing.close_batch(partition)
    return writing.built, writing.sticky if count == 0 else (writing.sticky + 1) % partition_count


cdef int64_t _extent(const Column *column, int64_t count) noexcept:
    """About how many bytes the rows hold; only a hint."""
    cdef int64_t size = <int64_t>column.offsets[column.start + count] - column.offsets[column.start]
    return min(max(size, 0), column.data_size)


cdef int _hold_headers(_Writing writing, headers, int64_t count) except -1:
    """(validity, list offsets, names, values, start): how many slots names and values have is told by the size of their offsets."""
    validity, lists, names, contents, start = headers
    writing.list_start = start
    if writing.list_start < 0:
        raise ValueError(INVALID, -1, "a column that starts before its buffers")
    writing.list_validity = writing.hold(validity, (writing.list_start + count + 7) // 8)
    writing.lists = <const int32_t *>writing.hold(lists, 4 * (writing.list_start + count + 1))
    writing.names_limit = _slots(names)
    writing.contents_limit = _slots(contents)
    writing.hold_column(&writing.name, names, writing.names_limit)
    writing.hold_column(&writing.content, contents, writing.contents_limit)
    writing.has_headers = True
    return 0


cdef int64_t _slots(parts) except -1:
    """The rows of a column whose length nobody gave: its offsets tell, and its validity may tell less."""
    cdef int64_t slots = len(memoryview(parts[1]).cast("B")) // 4 - 1 - <int64_t>parts[3]
    if parts[0] is not None:
        slots = min(slots, 8 * len(memoryview(parts[0]).cast("B")) - <int64_t>parts[3])
    return max(slots, 0)
