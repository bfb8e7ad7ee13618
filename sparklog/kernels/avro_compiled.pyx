# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The `avro` kernel: Avro's binary encoding checked against a schema, and flat records as Arrow-layout columns.

`check_records` has a twin in `avro_reference`, which documents it. `read_records` has none: where it is not
built, fastavro reads flat records.
"""

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
AVRO_NULL = 8
FIXED = 9
ENUM = 10
UNION = 11
ARRAY = 12
MAP = 13
RECORD = 14

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
    _AVRO_NULL = 8
    _FIXED = 9
    _ENUM = 10
    _UNION = 11
    _ARRAY = 12
    _MAP = 13
    _RECORD = 14
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
        p = sl_varint64(p, end, &number)
        if p == NULL or number < 0 or number > 1:
            return NULL
        if number == field.null_branch:
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


cdef const uint8_t *_walk(const int32_t *program, int32_t at, const uint8_t *p, const uint8_t *end, const uint8_t **fault) noexcept nogil:
    """The position after one value of the program at `at`; NULL where there is none, and `fault` is where the part begins that is wrong."""
    cdef const uint8_t *begin = p
    cdef int64_t number = 0, size = 0
    cdef int32_t sort = program[at], index
    fault[0] = begin
    if sort == _AVRO_NULL:
        return p
    if sort == _BOOLEAN:
        return p + 1 if p < end and p[0] <= 1 else NULL
    if sort == _FLOAT or sort == _DOUBLE or sort == _FIXED:
        size = 4 if sort == _FLOAT else 8 if sort == _DOUBLE else program[at + 1]
        return p + size if size <= end - p else NULL
    if sort == _RECORD:
        for index in range(program[at + 1]):
            p = _walk(program, program[at + 2 + index], p, end, fault)
            if p == NULL:
                return NULL
        return p
    if sort == _ARRAY or sort == _MAP:
        return _walk_blocks(program, program[at + 1], sort == _MAP, p, end, fault)
    p = sl_varint64(p, end, &number)
    if p == NULL:
        return NULL
    if sort == _INT:
        return p if <int32_t>number == number else NULL
    if sort == _LONG:
        return p
    if sort == _MILLIS:
        return p if -_MILLIS_MAX <= number <= _MILLIS_MAX else NULL
    if sort == _ENUM:
        return p if 0 <= number < program[at + 1] else NULL
    if sort == _UNION:
        return _walk(program, program[at + 2 + number], p, end, fault) if 0 <= number < program[at + 1] else NULL
    if number < 0 or number > end - p or (sort == _STRING and not _is_text(p, number)):
        return NULL
    return p + number


cdef const uint8_t *_walk_blocks(
    const int32_t *program, int32_t inner, bint is_map, const uint8_t *p, const uint8_t *end, const uint8_t **fault
) noexcept nogil:
    """The position after the blocks of an array or a map, whose items take at least one byte each; else as `_walk`."""
    cdef const uint8_t *begin
    cdef int64_t count = 0, size = 0
    while True:
        begin = p
        fault[0] = begin
        p = sl_varint64(p, end, &count)
        if p == NULL:
            return NULL
        if count == 0:
            return p
        if count < 0:  # the block's size in bytes follows, for readers that skip it
            p = sl_varint64(p, end, &size)
            if p == NULL or size < 0 or size > end - p:
                return NULL
            count = -count
        if count < 0 or count > end - p:  # the least of all numbers has no opposite
            return NULL
        while count > 0:
            if is_map:
                begin = p
                fault[0] = begin
                p = sl_varint64(p, end, &size)
                if p == NULL or size < 0 or size > end - p or not _is_text(p, size):
                    fault[0] = begin
                    return NULL
                p += size
            p = _walk(program, inner, p, end, fault)
            if p == NULL:
                return NULL
            count -= 1


cdef int32_t _checked(const int32_t *program, const uint8_t *begin, int32_t start, const uint8_t *end) noexcept nogil:
    """`start` if one value begins there and ends with the row; -1 less the position of the fault otherwise."""
    cdef const uint8_t *fault = begin
    cdef const uint8_t *p = _walk(program, 0, begin + start, end, &fault)
    if p == end:
        return start
    return <int32_t>(-1 - ((fault if p == NULL else p) - begin))


cdef void _check_rows(
    const int32_t *program, int64_t count, const uint8_t *validity, const int32_t *offsets, const uint8_t *content, int64_t start,
    int prefix, int32_t *starts,
) noexcept nogil:
    cdef int64_t row, at
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef bint is_prefixed
    for row in range(count):
        at = start + row
        starts[row] = 0
        if validity == NULL or validity[at >> 3] >> (at & 7) & 1:
            p = content + offsets[at]
            end = content + offsets[at + 1]
            is_prefixed = prefix and end - p >= _PREFIX and p[0] == 0
            starts[row] = -1
            if is_prefixed:
                starts[row] = _checked(program, p, _PREFIX, end)
            if not is_prefixed and prefix != _ALWAYS or is_prefixed and prefix == _PERHAPS and starts[row] < 0:
                starts[row] = _checked(program, p, 0, end)


def check_records(Py_ssize_t count, validity, offsets, content, Py_ssize_t start, program, int prefix):
    cdef Py_buffer held_validity, held_offsets, held_content, held_program
    cdef const uint8_t *valid_in = NULL
    cdef bytearray starts = _zeros(4 * count)
    PyObject_GetBuffer(offsets, &held_offsets, PyBUF_SIMPLE)
    PyObject_GetBuffer(content, &held_content, PyBUF_SIMPLE)
    PyObject_GetBuffer(program, &held_program, PyBUF_SIMPLE)
    if validity is not None:
        PyObject_GetBuffer(validity, &held_validity, PyBUF_SIMPLE)
        valid_in = <const uint8_t *>held_validity.buf
    try:
        starts_out = <int32_t *>PyByteArray_AS_STRING(starts)
        with nogil:
            _check_rows(
                <const int32_t *>held_program.buf, count, valid_in, <const int32_t *>held_offsets.buf,
                <const uint8_t *>held_content.buf, start, prefix, starts_out,
            )
        return starts
    finally:
        PyBuffer_Release(&held_offsets)
        PyBuffer_Release(&held_content)
        PyBuffer_Release(&held_program)
        if validity is not None:
            PyBuffer_Release(&held_validity)


def read_records(Py_ssize_t count, validity, offsets, content, Py_ssize_t start, fields, int prefix):
    """Rows `[start, start + count)` of a binary column: (validity of the rows, a column or None per field,
    refused rows).

    A field is (sort, branch of null in its union or -1, whether its column is built). A column is (validity,
    values), of bytes and text (validity, int32 offsets, bytes). A row is null, with all its fields, if its
    value is null or refused. A row is refused if it is not exactly one record, if its text is not UTF-8, or
    if a number is beyond its type.
    """
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
