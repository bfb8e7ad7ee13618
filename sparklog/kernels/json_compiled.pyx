# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The `json` kernel: flat objects of JSON (RFC 8259) to Arrow-layout columns, for values without surprises.

It has no twin: where it is not built, and for each block that it refuses, `arrow/formats/json_text.py` asks
pyarrow and then the row reader.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

cdef extern from "Python.h":
    double PyOS_string_to_double(const char *text, char **end, void *overflow) except? -1.0

BOOLEAN = 0
INT = 1
LONG = 2
DOUBLE = 3
STRING = 4

cdef enum:
    _BOOLEAN = 0
    _INT = 1
    _LONG = 2
    _DOUBLE = 3
    _STRING = 4
    _DEPTH_MAX = 32
    _DIGITS_MAX = 63

cdef double[23] _POWERS
for _power in range(23):
    _POWERS[_power] = 10.0 ** _power

cdef uint8_t[256] _ESCAPED
for _letter, _meant in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t'):
    _ESCAPED[_letter] = _meant


cdef struct Field:
    const char *name
    Py_ssize_t name_size
    int sort
    int64_t row  # the last one that has this field
    uint8_t *validity
    uint8_t *fixed  # values; of text the offsets
    uint8_t *content
    int64_t size  # of the content so far


cdef inline const uint8_t *_skip_space(const uint8_t *p, const uint8_t *end) noexcept:
    while p < end and (p[0] == 32 or p[0] == 10 or p[0] == 13 or p[0] == 9):
        p += 1
    return p


cdef inline const uint8_t *_word(const uint8_t *p, const uint8_t *end, const char *word, Py_ssize_t size) noexcept:
    return p + size if end - p >= size and memcmp(p, word, size) == 0 else NULL


cdef inline const uint8_t *_digits(const uint8_t *p, const uint8_t *end) noexcept:
    """The position after one digit or more; NULL if there is none."""
    cdef const uint8_t *first = p
    while p < end and 48 <= p[0] <= 57:
        p += 1
    return p if p > first else NULL


cdef const uint8_t *_number(const uint8_t *p, const uint8_t *end, bint *is_integer) noexcept:
    """The position after a number."""
    cdef const uint8_t *first
    is_integer[0] = True
    if p < end and p[0] == 45:
        p += 1
    first = p
    p = _digits(p, end)
    if p == NULL or (first[0] == 48 and p - first > 1):
        return NULL
    if p < end and p[0] == 46:
        is_integer[0] = False
        p = _digits(p + 1, end)
        if p == NULL:
            return NULL
    if p < end and (p[0] | 32) == 101:
        is_integer[0] = False
        p += 1
        if p < end and (p[0] == 43 or p[0] == 45):
            p += 1
        p = _digits(p, end)
    return p


cdef bint _integer(const uint8_t *p, const uint8_t *end, int64_t *out) noexcept:
    """Whether the digits are an integer of 64 bits; -0 is left to others."""
    cdef bint is_negative = p[0] == 45
    cdef uint64_t number = 0
    p += is_negative
    if end - p > 19 or (is_negative and p[0] == 48):
        return False
    while p < end:
        number = number * 10 + (p[0] - 48)
        p += 1
    if number > <uint64_t>0x7FFFFFFFFFFFFFFF + is_negative:
        return False
    out[0] = <int64_t>(0 - number if is_negative else number)
    return True


cdef bint _double(const uint8_t *p, const uint8_t *end, double *out) except -1:
    """Whether the number is one that is not too long, finite and not -0; rounded to the nearest."""
    cdef const uint8_t *at = p
    cdef bint is_negative = p[0] == 45, is_small
    cdef uint64_t mantissa = 0
    cdef int64_t scale = 0, exponent = 0
    cdef int digits = 0
    cdef bint is_behind_point = False, is_negative_exponent = False
    cdef char[64] text
    cdef double number
    if end - p > _DIGITS_MAX:
        return False
    at += is_negative
    while at < end and (at[0] | 32) != 101:
        if at[0] == 46:
            is_behind_point = True
        else:
            if digits < 19:
                mantissa = mantissa * 10 + (at[0] - 48)
                digits += mantissa != 0
                scale -= is_behind_point
            else:
                digits = 20
        at += 1
    if at < end:
        at += 1
        if at[0] == 43 or at[0] == 45:
            is_negative_exponent = at[0] == 45
            at += 1
        while at < end:
            if exponent < 10000:
                exponent = exponent * 10 + (at[0] - 48)
            at += 1
        scale += -exponent if is_negative_exponent else exponent
    is_small = digits < 20 and mantissa <= 1 << 53 and -22 <= scale <= 22
    if is_small:
        # Both numbers are exact, so there is one rounding (Clinger 1990).
        number = <double>mantissa * _POWERS[scale] if scale >= 0 else <double>mantissa / _POWERS[-scale]
        if is_negative:
            number = -number
    else:
        memcpy(text, p, end - p)
        text[end - p] = 0
        number = PyOS_string_to_double(text, NULL, NULL)
    if not isfinite(number) or (number == 0 and is_negative):
        return False
    out[0] = number
    return True


cdef const uint8_t *_string(const uint8_t *p, const uint8_t *end, bint *is_escaped) noexcept:
    """From behind a quote to the quote that ends the text; NULL for what is no text, and for code points in hexadecimal."""
    cdef uint64_t word, quote, slash, wrong
    while end - p >= 8:
        # Eight bytes at a time, as long as none is a quote, a backslash or a control character.
        memcpy(&word, p, 8)
        quote = word ^ 0x2222222222222222ULL
        slash = word ^ 0x5C5C5C5C5C5C5C5CULL
        wrong = (word - 0x2020202020202020ULL) & ~word
        wrong |= (quote - 0x0101010101010101ULL) & ~quote
        wrong |= (slash - 0x0101010101010101ULL) & ~slash
        if wrong & 0x8080808080808080ULL:
            break
        p += 8
    while p < end and p[0] != 34:
        if p[0] < 32:
            return NULL
        if p[0] == 92:
            is_escaped[0] = True
            p += 1
            if p >= end or _ESCAPED[p[0]] == 0:
                return NULL
        p += 1
    return p if p < end else NULL


cdef const uint8_t *_skip(const uint8_t *p, const uint8_t *end, int depth) noexcept:
    """The position after a value of any kind."""
    cdef bint ignored
    cdef uint8_t closing
    if p >= end:
        return NULL
    if p[0] == 34:
        p = _string(p + 1, end, &ignored)
        return NULL if p == NULL else p + 1
    if p[0] == 116:
        return _word(p, end, b"true", 4)
    if p[0] == 102:
        return _word(p, end, b"false", 5)
    if p[0] == 110:
        return _word(p, end, b"null", 4)
    if p[0] != 123 and p[0] != 91:
        return _number(p, end, &ignored)
    if depth >= _DEPTH_MAX:
        return NULL
    closing = p[0] + 2
    p = _skip_space(p + 1, end)
    if p < end and p[0] == closing:
        return p + 1
    while p < end:
        if closing == 125:
            if p[0] != 34:
                return NULL
            p = _string(p + 1, end, &ignored)
            if p == NULL:
                return NULL
            p = _skip_space(p + 1, end)
            if p >= end or p[0] != 58:
                return NULL
            p = _skip_space(p + 1, end)
        p = _skip(p, end, depth + 1)
        if p == NULL:
            return NULL
        p = _skip_space(p, end)
        if p >= end:
            return NULL
        if p[0] == closing:
            return p + 1
        if p[0] != 44:
            return NULL
        p = _skip_space(p + 1, end)
    return NULL


cdef const uint8_t *_value(Field *field, int64_t row, const uint8_t *p, const uint8_t *end) except? NULL:
    """The position after the value of a field; NULL where it is not of its type."""
    cdef const uint8_t *first = p
    cdef bint is_integer, is_escaped = False
    cdef int64_t number = 0
    cdef int32_t small
    cdef double real = 0
    cdef uint8_t *out
    if p < end and p[0] == 110:
        return _word(p, end, b"null", 4)
    if field.sort == _STRING:
        if p >= end or p[0] != 34:
            return NULL
        first = p + 1
        p = _string(first, end, &is_escaped)
        if p == NULL:
            return NULL
        if not is_escaped:
            memcpy(field.content + field.size, first, p - first)
            field.size += p - first
        else:
            out = field.content + field.size
            while first < p:
                if first[0] == 92:
                    first += 1
                    out[0] = _ESCAPED[first[0]]
                else:
                    out[0] = first[0]
                out += 1
                first += 1
            field.size = out - field.content
        p += 1
    elif field.sort == _BOOLEAN:
        if p < end and p[0] == 116:
            p = _word(p, end, b"true", 4)
            field.fixed[row >> 3] |= <uint8_t>(1 << (row & 7))
        else:
            p = _word(p, end, b"false", 5)
        if p == NULL:
            return NULL
    else:
        p = _number(p, end, &is_integer)
        if p == NULL:
            return NULL
        if field.sort == _DOUBLE:
            if not _double(first, p, &real):
                return NULL
            memcpy(field.fixed + 8 * row, &real, 8)
        elif not is_integer or not _integer(first, p, &number):
            return NULL
        elif field.sort == _LONG:
            memcpy(field.fixed + 8 * row, &number, 8)
        else:
            small = <int32_t>number
            if small != number:
                return NULL
            memcpy(field.fixed + 4 * row, &small, 4)
    field.validity[row >> 3] |= <uint8_t>(1 << (row & 7))
    return p


cdef inline Field *_named(Field *fields, Py_ssize_t count, const uint8_t *name, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i
    for i in range(count):
        if fields[i].name_size == size and memcmp(fields[i].name, name, size) == 0:
            return &fields[i]
    return NULL


cdef bint _read_object(Field *fields, Py_ssize_t count, int64_t row, const uint8_t *p, const uint8_t *end) except -1:
    """Whether the bytes are one object with the fields of their types."""
    cdef const uint8_t *first
    cdef bint is_escaped = False
    cdef Field *field
    cdef Py_ssize_t guess = 0  # where the next field is if they come in order
    p = _skip_space(p, end)
    if p >= end or p[0] != 123:
        return False
    p = _skip_space(p + 1, end)
    if p < end and p[0] == 125:
        return _skip_space(p + 1, end) == end
    while True:
        if p >= end or p[0] != 34:
            return False
        first = p + 1
        field = NULL
        if guess < count and end - first > fields[guess].name_size and first[fields[guess].name_size] == 34:
            if memcmp(fields[guess].name, first, fields[guess].name_size) == 0:
                field = &fields[guess]
                p = first + field.name_size
        if field == NULL:
            p = _string(first, end, &is_escaped)
            if p == NULL or is_escaped:
                return False
            field = _named(fields, count, first, p - first)
        p = _skip_space(p + 1, end)
        if p >= end or p[0] != 58:
            return False
        p = _skip_space(p + 1, end)
        if field == NULL:
            p = _skip(p, end, 1)
        elif field.row == row:
            return False
        else:
            field.row = row
            guess = field - fields + 1
            p = _value(field, row, p, end)
        if p == NULL:
            return False
        p = _skip_space(p, end)
        if p >= end:
            return False
        if p[0] == 125:
            return _skip_space(p + 1, end) == end
        if p[0] != 44:
            return False
        p = _skip_space(p + 1, end)


cdef bint _is_text(const uint8_t *p, int64_t size) except -1:
    cdef uint8_t seen = 0
    cdef int64_t i
    for i in range(size):
        seen |= p[i]
    if seen >= 0x80:
        try:
            PyUnicode_DecodeUTF8(<char *>p, size, NULL)
        except UnicodeDecodeError:
            return False
    return True


def read_objects(Py_ssize_t count, offsets, content, Py_ssize_t start, fields):
    """Rows `[start, start + count)` of a binary column without nulls: one column for each field (name, sort);
    None if a row is refused.

    A column is (validity, values), of text (validity, int32 offsets, bytes); a missing field and a null are
    null. Each row must be one JSON object in UTF-8. A field must appear once, with a value of its sort; other
    fields are skipped. Refused, though other readers accept them: \\u escapes, escapes in names, -0, integers
    beyond their type, doubles beyond theirs or of more than 63 characters, and objects nested deeper than 32.
    """
    cdef Py_buffer held_offsets, held_content
    cdef Py_ssize_t bitmap = (count + 7) >> 3, index, field_count = len(fields)
    cdef Field *made = <Field *>calloc(field_count or 1, sizeof(Field))
    cdef const int32_t *ends
    cdef const uint8_t *bytes_in
    cdef bytearray a, b, c
    cdef int64_t row
    cdef int32_t size
    cdef bytes name
    if made == NULL:
        raise MemoryError
    PyObject_GetBuffer(offsets, &held_offsets, PyBUF_SIMPLE)
    PyObject_GetBuffer(content, &held_content, PyBUF_SIMPLE)
    try:
        ends = <const int32_t *>held_offsets.buf + start
        bytes_in = <const uint8_t *>held_content.buf
        columns = []
        for index in range(field_count):
            name, made[index].sort = fields[index]
            made[index].name = PyBytes_AS_STRING(name)
            made[index].name_size = PyBytes_GET_SIZE(name)
            made[index].row = -1
            a = bytearray(bitmap)
            made[index].validity = <uint8_t *>PyByteArray_AS_STRING(a)
            if made[index].sort == _STRING:
                b = bytearray(4 * (count + 1))
                c = PyByteArray_FromStringAndSize(NULL, ends[count] - ends[0])
                made[index].content = <uint8_t *>PyByteArray_AS_STRING(c)
                columns.append((a, b, c))
            else:
                b = bytearray(bitmap if made[index].sort == _BOOLEAN else (4 if made[index].sort == _INT else 8) * count)
                columns.append((a, b))
            made[index].fixed = <uint8_t *>PyByteArray_AS_STRING(b)
        if not _is_text(bytes_in + ends[0], ends[count] - ends[0]):
            return None
        for row in range(count):
            if not _read_object(made, field_count, row, bytes_in + ends[row], bytes_in + ends[row + 1]):
                return None
            for index in range(field_count):
                if made[index].sort == _STRING:
                    size = <int32_t>made[index].size
                    memcpy(made[index].fixed + 4 * (row + 1), &size, 4)
        for index in range(field_count):
            if made[index].sort == _STRING:
                PyByteArray_Resize(columns[index][2], made[index].size)
        return columns
    finally:
        free(made)
        PyBuffer_Release(&held_offsets)
        PyBuffer_Release(&held_content)
