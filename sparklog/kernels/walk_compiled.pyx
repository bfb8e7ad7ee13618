# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The `walk` kernel: records that arrive in pieces. `walk_reference` is its twin and says what it means."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

include "records.pxi"

cdef enum:
    _GIL_FREE_BYTES = 16384  # letting the GIL go and taking it back costs what walking a small batch does
    _WRONG_DELTA = 100
    _KEYLESS_MAX = 1000
    _BEYOND_LAST = 102
    _IS_HIT = 103

cdef enum:
    _AT_LENGTH = 0
    _AT_ATTRIBUTES = 1
    _AT_TIMESTAMP = 2
    _AT_OFFSET = 3
    _AT_KEY = 4
    _AT_VALUE = 5
    _AT_HEADERS = 6
    _AT_HEADER_KEY = 7
    _AT_HEADER_VALUE = 8

cdef int64_t _INT64_MIN = <int64_t>(<uint64_t>1 << 63)


cdef class RecordWalk:
    cdef public int64_t low, high, from_delta
    cdef readonly int64_t index, hit_index, hit_timestamp, hit_delta
    cdef readonly bint is_hit
    cdef int64_t count, base_timestamp, walked, start, skip, left, headers, timestamp, delta, smallest, largest
    cdef uint64_t raw
    cdef int stage, shift
    cdef bint is_strict, require_keys, has_timestamp
    cdef int keyless_count
    cdef int64_t keyless_indexes[_KEYLESS_MAX]

    def __init__(
        self, int64_t count, int64_t base_timestamp, *, bint is_strict=True, bint require_keys=False, low=None, high=None,
        int64_t from_delta=_INT64_MIN
    ):
        self.count = count
        self.base_timestamp = base_timestamp
        self.is_strict = is_strict
        self.require_keys = require_keys
        self.low = _INT64_MIN if low is None else low
        self.high = -1 - _INT64_MIN if high is None else high
        self.from_delta = from_delta
        self.smallest = self.largest = -1

    @property
    def keyless(self):
        return [self.keyless_indexes[at] for at in range(self.keyless_count)]

    @property
    def least(self):
        return self.smallest

    @property
    def greatest(self):
        return self.largest

    def feed(self, buffer, Py_ssize_t position=0):
        cdef Py_buffer held
        cdef const uint8_t *p
        cdef const uint8_t *limit
        cdef int refused
        PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
        try:
            if position < 0 or position > held.len:
                raise ValueError(INVALID, position, "a position outside the buffer")
            p = <const uint8_t *>held.buf + position
            limit = <const uint8_t *>held.buf + held.len
            self.is_hit = False
            if held.len - position < _GIL_FREE_BYTES:
                refused = self.walk(&p, limit)
            else:
                with nogil:
                    refused = self.walk(&p, limit)
            position = p - <const uint8_t *>held.buf
        finally:
            PyBuffer_Release(&held)
        if refused == _WRONG_DELTA:
            raise ValueError(INVALID, self.start, f"offset deltas must be 0, 1, 2 …; not so at record {self.index}")
        if refused == _BEYOND_LAST:
            raise ValueError(INVALID, self.start, "bytes after the last record")
        if refused != 0 and refused != _IS_HIT:
            _refuse_record(refused, self.start)
        return position

    def finish(self):
        if self.stage != _AT_LENGTH or self.shift != 0 or self.skip != 0:
            _refuse_record(SL_BAD_RECORD_LENGTH, self.start)
        if self.index != self.count:
            raise ValueError(INVALID, self.walked, f"{self.index} records where {self.count} are due")

    cdef int walk(self, const uint8_t **at, const uint8_t *limit) noexcept nogil:
        """Walk up to `limit`, a refusal or a hit, and leave in `at` where that was."""
        cdef const uint8_t *begin = at[0]
        cdef const uint8_t *p = begin
        cdef const uint8_t *refused_at
        cdef sl_record record
        cdef int refused = 0
        cdef int64_t size
        while p < limit and refused == 0:
            if self.skip:
                size = limit - p
                if size > self.skip:
                    size = self.skip
                p += size
                self.skip -= size
                self.left -= size
                continue
            if self.stage == _AT_LENGTH and self.shift == 0:
                self.start = self.walked + (p - begin)
                if self.index == self.count:
                    if self.is_strict:
                        refused = _BEYOND_LAST
                        break
                    p = limit
                    break
                if sl_read_record(p, limit, &record, &refused_at) == SL_FITS:
                    refused = self.judge(record.timestamp_delta, record.offset_delta)
                    if refused == 0 or refused == _IS_HIT:
                        if record.key_length < 0:
                            self.had_no_key()
                        if self.is_strict:
                            size = sl_walk_headers(&record, &refused_at)
                            if size:
                                refused = <int>size
                                self.start = self.walked + (refused_at - begin)
                                break
                        p = record.end
                        self.index += 1
                    continue
            refused = self.step(p[0], self.walked + (p - begin) + 1)
            p += 1
        self.walked += p - begin
        at[0] = p
        return refused

    cdef int judge(self, int64_t timestamp_delta, int64_t offset_delta) noexcept nogil:
        """Take down a record's timestamp and offset."""
        cdef int64_t timestamp = <int64_t>(<uint64_t>self.base_timestamp + <uint64_t>timestamp_delta)
        if self.is_strict and offset_delta != self.index:
            return _WRONG_DELTA
        if timestamp == -1:
            if self.is_strict:
                return 0
        elif not self.has_timestamp:
            self.has_timestamp = True
            self.smallest = self.largest = timestamp
        elif timestamp < self.smallest:
            self.smallest = timestamp
        elif timestamp > self.largest:
            self.largest = timestamp
        if (timestamp < self.low or timestamp > self.high) and offset_delta >= self.from_delta:
            self.is_hit = True
            self.hit_index = self.index
            self.hit_timestamp = timestamp
            self.hit_delta = offset_delta
            return _IS_HIT
        return 0

    cdef int step(self, uint8_t byte, int64_t next_position) noexcept nogil:
        """Take one byte of a record that is cut by the end of a piece."""
        cdef int64_t number
        cdef bint is_long = self.stage == _AT_TIMESTAMP
        if self.stage != _AT_LENGTH:
            if self.left == 0:
                return SL_BAD_VARINT
            self.left -= 1
        if self.stage == _AT_ATTRIBUTES:
            self.stage = _AT_TIMESTAMP
            return 0
        if is_long:
            if self.shift == 63 and byte > 1:
                return SL_BAD_VARINT
        elif self.shift == 28 and byte > 0x0f:
            return SL_BAD_VARINT
        self.raw |= <uint64_t>(byte & 0x7f) << self.shift
        if byte >= 0x80:
            self.shift += 7
            return 0
        number = <int64_t>((self.raw >> 1) ^ (0 - (self.raw & 1)))
        self.raw = 0
        self.shift = 0
        if self.stage == _AT_LENGTH:
            if number < 6:
                return SL_BAD_RECORD_LENGTH
            self.left = number
            self.stage = _AT_ATTRIBUTES
        elif self.stage == _AT_TIMESTAMP:
            self.timestamp = number
            self.stage = _AT_OFFSET
        elif self.stage == _AT_OFFSET:
            self.stage = _AT_KEY
            return self.judge(self.timestamp, number)
        elif self.stage == _AT_HEADERS:
            if number < 0 or number > self.left // 2:
                return SL_BAD_HEADER_COUNT
            self.headers = number
            if not self.is_strict:
                self.skip = self.left
                self.ended()
            elif number == 0:
                if self.left:
                    return SL_BYTES_LEFT
                self.ended()
            else:
                self.start = next_position
                self.stage = _AT_HEADER_KEY
        else:
            if number < -1 or number > self.left:
                return SL_BAD_LENGTH
            self.skip = number if number > 0 else 0
            if self.stage == _AT_KEY:
                if number < 0:
                    self.had_no_key()
                self.stage = _AT_VALUE
            elif self.stage == _AT_VALUE:
                self.stage = _AT_HEADERS
            elif self.stage == _AT_HEADER_KEY:
                if number < 0:
                    return SL_NO_HEADER_KEY
                self.stage = _AT_HEADER_VALUE
            else:
                self.headers -= 1
                if self.headers:
                    self.start = next_position + self.skip
                    self.stage = _AT_HEADER_KEY
                elif self.left != self.skip:
                    return SL_BYTES_LEFT
                else:
                    self.ended()
        return 0

    cdef void had_no_key(self) noexcept nogil:
        if self.require_keys and self.keyless_count < _KEYLESS_MAX:
            self.keyless_indexes[self.keyless_count] = self.index
            self.keyless_count += 1

    cdef void ended(self) noexcept nogil:
        self.stage = _AT_LENGTH
        self.index += 1
