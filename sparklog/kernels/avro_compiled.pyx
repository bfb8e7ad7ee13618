# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The `avro` kernel: flat records of Avro to Arrow-layout columns. `avro_reference` is its twin and says what each function means."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdlib cimport calloc, free
from libc.string cimport memset

include "records.pxi"

cdef extern from *:
    const uint8_t *sl_varint64(const uint8_t *p, const uint8_t *end, int64_t *out) nogil

BOOLEAN = 0
INT = 1
LONG = 2
MILLIS = 3
FLOAT = 4
DOUBLE = 5
BYTES = 6
STRING = 7

NEVER = 0
ALWAYS = 1
PERHAPS = 2

cdef enum:
    _BOOLEAN = 0
    _INT = 1
    _LONG = 2
    _MILLIS = 3
    _FLOAT = 4
    _DOUBLE = 5
    _BYTES = 6
    _STRING = 7
    _ALWAYS = 1
    _PERHAPS = 2
    _PREFIX = 5

cdef int64_t _MILLIS_MAX = 9223372036854775


cdef struct Field:
    int sort
    int null_branch  # of a union with null; -1 for a field that is never null
    bint is_wanted
    uint8_t *validity
    uint8_t *fixed  # values; of bytes and text the offsets
    uint8_t *content
    int64_t size  # of the content so far


cdef inline bint _is_ascii(const uint8_t *p, int64_t size) noexcept nogil:
    cdef uint8_t seen = 0
    for i in range(size):
        seen |= p[i]
    return seen < 0x80


cdef bint _is_text(const uint8_t *p, int64_t size) noexcept nogil:
    if _is_ascii(p, size):
        return True
    with gil:
        try:
            PyUnicode_DecodeUTF8(<char *>p, size, NULL)
            return True
        except Exception:  # a lack of memory is left to the slower reading to tell
            return False


cdef const uint8_t *_read_field(Field *field, int64_t row, const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The position after one field; NULL where the bytes are not of it. What is written counts only if the whole row is read."""
    cdef int64_t number = 0
    cdef int32_t small
    cdef int width
    if field.null_branch >= 0:
        if p >= end or p[0] > 2 or p[0] & 1:
            return NULL
        p += 1
        if (p - 1)[0] >> 1 == field.null_branch:
            return p
    if field.sort == _BOOLEAN:
        if p >= end or p[0] > 1:
            return NULL
        if field.is_wanted and p[0]:
            field.fixed[row >> 3] |= <uint8_t>(1 << (row & 7))
        p += 1
    elif field.sort == _FLOAT or field.sort == _DOUBLE:
        width = 4 if field.sort == _FLOAT else 8
        if end - p < width:
            return NULL
        if field.is_wanted:
            memcpy(field.fixed + row * width, p, width)
        p += width
    else:
        p = sl_varint64(p, end, &number)
        if p == NULL:
            return NULL
        if field.sort == _INT:
            small = <int32_t>number
            if small != number:
                return NULL
            if field.is_wanted:
                memcpy(field.fixed + 4 * row, &small, 4)
        elif field.sort == _LONG or field.sort == _MILLIS:
            if field.sort == _MILLIS:
                if number > _MILLIS_MAX or number < -_MILLIS_MAX:
                    return NULL
                number *= 1000
            if field.is_wanted:
                memcpy(field.fixed + 8 * row, &number, 8)
        else:
            if number < 0 or number > end - p:
                return NULL
            if field.sort == _STRING and not _is_text(p, number):
                return NULL
            if field.is_wanted:
                memcpy(field.content + field.size, p, number)
                field.size += number
            p += number
    if field.is_wanted:
        field.validity[row >> 3] |= <uint8_t>(1 << (row & 7))
    return p


cdef bint _read_row(Field *fields, Py_ssize_t field_count, int64_t row, const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Whether the bytes are one record, all of them."""
    for index in range(field_count):
        p = _read_field(&fields[index], row, p, end)
        if p == NULL:
            return False
    return p == end


cdef void _undo(Field *fields, Py_ssize_t field_count, int64_t row) noexcept nogil:
    cdef uint8_t others = <uint8_t>~(1 << (row & 7))
    cdef int32_t before
    for index in range(field_count):
        if not fields[index].is_wanted:
            continue
        fields[index].validity[row >> 3] &= others
        if fields[index].sort == _BOOLEAN:
            fields[index].fixed[row >> 3] &= others
        elif fields[index].sort == _BYTES or fields[index].sort == _STRING:
            memcpy(&before, fields[index].fixed + 4 * row, 4)
            fields[index].size = before
        elif fields[index].sort == _INT or fields[index].sort == _FLOAT:
            memset(fields[index].fixed + 4 * row, 0, 4)
        else:
            memset(fields[index].fixed + 8 * row, 0, 8)


cdef inline void _end_row(Field *fields, Py_ssize_t field_count, int64_t row) noexcept nogil:
    cdef int32_t size
    for index in range(field_count):
        if fields[index].is_wanted and fields[index].sort >= _BYTES:
            size = <int32_t>fields[index].size
            memcpy(fields[index].fixed + 4 * (row + 1), &size, 4)


cdef void _read_rows(
    Field *fields, Py_ssize_t field_count, int64_t count, const uint8_t *validity, const int32_t *offsets, const uint8_t *content,
    int64_t start, int prefix, uint8_t *valid, uint8_t *refused,
) noexcept nogil:
    cdef int64_t row, at
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef bint is_prefixed, is_read
    for row in range(count):
        at = start + row
        if validity == NULL or validity[at >> 3] >> (at & 7) & 1:
            p = content + offsets[at]
            end = content + offsets[at + 1]
            is_prefixed = prefix and end - p >= _PREFIX and p[0] == 0
            is_read = (is_prefixed or prefix != _ALWAYS) and _read_row(fields, field_count, row, p + _PREFIX if is_prefixed else p, end)
            if not is_read and is_prefixed and prefix == _PERHAPS:
                _undo(fields, field_count, row)
                is_read = _read_row(fields, field_count, row, p, end)
            if is_read:
                valid[row >> 3] |= <uint8_t>(1 << (row & 7))
            else:
                _undo(fields, field_count, row)
                refused[row >> 3] |= <uint8_t>(1 << (row & 7))
        _end_row(fields, field_count, row)


cdef bytearray _zeros(Py_ssize_t size):
    return bytearray(size)


def read_records(Py_ssize_t count, validity, offsets, content, Py_ssize_t start, fields, int prefix):
    cdef Py_ssize_t bitmap = (count + 7) >> 3, index, field_count = len(fields)
    cdef Py_buffer held_validity, held_offsets, held_content
    cdef const uint8_t *valid_in = NULL
    cdef const int32_t *offsets_in
    cdef Field *made = NULL
    cdef bytearray valid = _zeros(bitmap), refused = _zeros(bitmap), a, b, c
    cdef int width
    cdef int64_t span, row
    PyObject_GetBuffer(offsets, &held_offsets, PyBUF_SIMPLE)
    PyObject_GetBuffer(content, &held_content, PyBUF_SIMPLE)
    if validity is not None:
        PyObject_GetBuffer(validity, &held_validity, PyBUF_SIMPLE)
        valid_in = <const uint8_t *>held_validity.buf
    try:
        offsets_in = <const int32_t *>held_offsets.buf
        span = offsets_in[start + count] - offsets_in[start] if count else 0
        made = <Field *>calloc(field_count or 1, sizeof(Field))
        if made == NULL:
            raise MemoryError
        columns = []
        for index in range(field_count):
            made[index].sort, made[index].null_branch, made[index].is_wanted = fields[index]
            if not made[index].is_wanted:
                columns.append(None)
                continue
            a = _zeros(bitmap)
            made[index].validity = <uint8_t *>PyByteArray_AS_STRING(a)
            if made[index].sort >= _BYTES:
                b = _zeros(4 * (count + 1))
                c = PyByteArray_FromStringAndSize(NULL, span)
                made[index].content = <uint8_t *>PyByteArray_AS_STRING(c)
                columns.append((a, b, c))
            else:
                width = 4 if made[index].sort == _INT or made[index].sort == _FLOAT else 8
                b = _zeros(bitmap if made[index].sort == _BOOLEAN else width * count)
                columns.append((a, b))
            made[index].fixed = <uint8_t *>PyByteArray_AS_STRING(b)
        valid_out = <uint8_t *>PyByteArray_AS_STRING(valid)
        refused_out = <uint8_t *>PyByteArray_AS_STRING(refused)
        with nogil:
            _read_rows(
                made, field_count, count, valid_in, offsets_in, <const uint8_t *>held_content.buf, start, prefix, valid_out, refused_out
            )
        for index in range(field_count):
            if made[index].is_wanted and made[index].sort >= _BYTES:
                PyByteArray_Resize(columns[index][2], made[index].size)
        return valid, columns, [row for row in range(count) if refused_out[row >> 3] >> (row & 7) & 1] if any(refused) else []
    finally:
        free(made)
        PyBuffer_Release(&held_offsets)
        PyBuffer_Release(&held_content)
        if validity is not None:
            PyBuffer_Release(&held_validity)
