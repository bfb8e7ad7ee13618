# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The `gather` kernel: records gathered into a batch. `gather_reference` is its twin and says what each function means."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize

include "records.pxi"

cdef enum:
    _CAPACITY_FIRST = 1024
    _RECORD_FIXED = 5 + 1 + 10 + 5 + 5 + 5 + 5  # the varints of a record, at their longest

cdef int64_t _BATCH_BYTES_MAX = 0x7FFFFFFF


cdef object _held(object content):
    """An object that keeps the bytes: bytes, text or None."""
    if content is None or type(content) is bytes or type(content) is str:
        return content
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    raise TypeError(f"{type(content).__name__} is neither bytes nor text: give the producer a serializer")


cdef inline const uint8_t *_bytes_of(object held, Py_ssize_t *size) except? NULL:
    """The bytes of a held object; size -1 for None."""
    if held is None:
        size[0] = -1
        return NULL
    if type(held) is bytes:
        size[0] = PyBytes_GET_SIZE(held)
        return <const uint8_t *>PyBytes_AS_STRING(held)
    return <const uint8_t *>PyUnicode_AsUTF8AndSize(held, size)


cdef inline uint8_t *_put(uint8_t *p, const uint8_t *content, Py_ssize_t size) noexcept:
    p = sl_put_varint(p, size)
    if size > 0:
        memcpy(p, content, size)
        p += size
    return p


cdef class Place:
    cdef readonly object _owner
    cdef readonly object _batch
    cdef readonly int32_t _index
    cdef readonly int64_t _timestamp_ms

    def __init__(self, owner, batch, int32_t index, int64_t timestamp_ms):
        self._owner = owner
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms


cdef class Records:
    cdef bytearray _batch
    cdef int64_t _capacity
    cdef readonly int64_t size
    cdef public int64_t limit
    cdef readonly int32_t record_count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp

    def __init__(self, int32_t header_bytes, int64_t limit=_BATCH_BYTES_MAX):
        self._batch = bytearray(header_bytes)
        self._capacity = self.size = header_bytes
        self.limit = limit
        self.base_timestamp = self.max_timestamp = -1

    def append(self, key, value, headers, int64_t timestamp_ms):
        return self._append(key, value, headers, timestamp_ms)

    cdef int32_t _append(self, object key, object value, object headers, int64_t timestamp_ms) except -2:
        cdef const uint8_t *key_at
        cdef const uint8_t *value_at
        cdef Py_ssize_t key_size = -1, value_size = -1, size
        cdef int64_t delta, body, total
        cdef uint8_t *p
        cdef list pairs = None
        key, value = _held(key), _held(value)
        key_at = _bytes_of(key, &key_size)
        value_at = _bytes_of(value, &value_size)
        delta = 0 if self.record_count == 0 else <int64_t>(<uint64_t>timestamp_ms - <uint64_t>self.base_timestamp)
        body = 1 + sl_varint_size(delta) + sl_varint_size(self.record_count)
        body += sl_varint_size(key_size) + (key_size if key_size > 0 else 0)
        body += sl_varint_size(value_size) + (value_size if value_size > 0 else 0)
        if headers:
            pairs = []
            for name, content in headers:
                name = (<str?>name).encode()
                content = None if content is None else bytes(content)
                pairs.append(name)
                pairs.append(content)
                body += sl_varint_size(len(<bytes>name)) + len(<bytes>name)
                body += 1 if content is None else sl_varint_size(len(<bytes>content)) + len(<bytes>content)
            body += sl_varint_size(len(pairs) // 2)
        else:
            body += 1
        total = body + sl_varint_size(body)
        if self.size + total > self.limit:
            if self.size + total > _BATCH_BYTES_MAX:
                raise ValueError(INVALID, self.size, "a batch of more than 2 GiB")
            return -1
        if self.size + total > self._capacity:
            self._grow(self.size + total)
        p = <uint8_t *>PyByteArray_AS_STRING(self._batch) + self.size
        p = sl_put_varint(p, body)
        p[0] = 0
        p = sl_put_varint(p + 1, delta)
        p = sl_put_varint(p, self.record_count)
        p = _put(p, key_at, key_size)
        p = _put(p, value_at, value_size)
        if pairs is None:
            p[0] = 0
        else:
            p = sl_put_varint(p, len(pairs) // 2)
            for content in pairs:
                size = -1 if content is None else PyBytes_GET_SIZE(content)
                p = _put(p, NULL if size < 0 else <const uint8_t *>PyBytes_AS_STRING(content), size)
        if self.record_count == 0:
            self.base_timestamp = self.max_timestamp = timestamp_ms
        elif timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
        self.size += total
        self.record_count += 1
        return self.record_count - 1

    cdef int _grow(self, int64_t needed) except -1:
        cdef int64_t capacity = max(needed, min(2 * self._capacity, self.limit), _CAPACITY_FIRST)
        PyByteArray_Resize(self._batch, capacity)
        self._capacity = capacity
        return 0

    def extend(self, list values not None, list keys, int64_t timestamp_ms, Py_ssize_t start):
        cdef Py_ssize_t index = start, count = PyList_GET_SIZE(values)
        if not 0 <= start <= count or (keys is not None and PyList_GET_SIZE(keys) != count):
            raise ValueError(INVALID, start, "keys and values differ in number, or start is outside")
        while index < count and PyList_GET_SIZE(values) == count and (keys is None or PyList_GET_SIZE(keys) == count):
            key = None if keys is None else <object>PyList_GET_ITEM(keys, index)
            if self._append(key, <object>PyList_GET_ITEM(values, index), None, timestamp_ms) < 0:
                break
            index += 1
        return index - start

    def take(self):
        cdef bytearray batch = self._batch
        PyByteArray_Resize(batch, self.size)
        self._batch = bytearray()
        self._capacity = self.limit = 0
        return batch
