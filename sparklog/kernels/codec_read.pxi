# The reading half of the `codec` kernel: bytes to messages. Included as text by codec_compiled.pyx.


cdef inline Py_ssize_t where(Reader* reader) noexcept:
    return reader.position - reader.base


cdef inline bint lacks(Reader* reader, int64_t size) noexcept:
    """Whether fewer bytes remain; the exception is set then."""
    if size > reader.limit - reader.position:
        fail(b"truncated", where(reader))
        return True
    return False


cdef inline int charge(Reader* reader, int64_t cost) noexcept:
    reader.allowance -= cost
    if reader.allowance < 0:
        return fail(b"takes too much memory for its size", where(reader))
    return 0


cdef int64_t read_varint(Reader* reader) noexcept:
    """An unsigned number of at most 32 bits in at most five bytes; -1 with the exception set."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t octet
    while shift < 35:
        if lacks(reader, 1):
            return -1
        octet = reader.position[0]
        reader.position += 1
        value |= <uint64_t>(octet & 0x7F) << shift
        if octet < 0x80:
            if value > 0xFFFFFFFF:
                break
            return <int64_t>value
        shift += 7
    return fail(b"varint too long", where(reader))


cdef inline int64_t read_length(int code, Reader* reader) noexcept:
    """The length in front of a value, -1 for null; -2 with the exception set."""
    cdef uint16_t short_length
    cdef uint32_t length
    cdef int64_t result
    if code == COMPACT_STRING or code == COMPACT_ARRAY or code == COMPACT_RECORDS or code == COMPACT_BYTES:
        if reader.position < reader.limit and reader.position[0] < 0x80:
            result = <int64_t>reader.position[0] - 1
            reader.position += 1
            return result
        result = read_varint(reader)
        return -2 if result < 0 else result - 1
    if code == STRING:
        if lacks(reader, 2):
            return -2
        memcpy(&short_length, reader.position, 2)
        reader.position += 2
        result = <int16_t>big_16(short_length)
    else:
        if lacks(reader, 4):
            return -2
        memcpy(&length, reader.position, 4)
        reader.position += 4
        result = <int32_t>big_32(length)
    if result < -1:
        fail(b"negative length", where(reader))
        return -2
    return result


cdef PyObject* read_fixed(int code, Reader* reader) noexcept:
    cdef uint16_t two
    cdef uint32_t four
    cdef uint64_t eight
    cdef double real
    cdef PyObject* result
    cdef const uint8_t* start = reader.position
    if lacks(reader, MINIMAL_BYTES[code]):
        return NULL
    reader.position += MINIMAL_BYTES[code]
    if code == INT32:
        memcpy(&four, start, 4)
        return PyLong_FromLong(<int32_t>big_32(four))
    elif code == INT64:
        memcpy(&eight, start, 8)
        return PyLong_FromLongLong(<int64_t>big_64(eight))
    elif code == INT16:
        memcpy(&two, start, 2)
        return PyLong_FromLong(<int16_t>big_16(two))
    elif code == INT8:
        return PyLong_FromLong(<int8_t>start[0])
    elif code == BOOL:
        result = Py_True if start[0] else Py_False
        Py_INCREF(result)
        return result
    elif code == UUID:
        return PyBytes_FromStringAndSize(<const char*>start, 16)
    elif code == UINT16:
        memcpy(&two, start, 2)
        return PyLong_FromLong(big_16(two))
    elif code == UINT32:
        memcpy(&four, start, 4)
        return PyLong_FromLongLong(big_32(four))
    else:
        memcpy(&eight, start, 8)
        eight = big_64(eight)
        memcpy(&real, &eight, 8)
        return PyFloat_FromDouble(real)


cdef PyObject* slice_view(Reader* reader, Py_ssize_t start, Py_ssize_t limit) noexcept:
    cdef PyObject* result = NULL
    cdef PyObject* piece = NULL
    cdef PyObject* first = PyLong_FromSsize_t(start)
    cdef PyObject* last = PyLong_FromSsize_t(limit)
    if first != NULL and last != NULL:
        piece = PySlice_New(first, last, NULL)
        if piece != NULL:
            result = PyObject_GetItem(reader.view, piece)
    Py_XDECREF(piece)
    Py_XDECREF(last)
    Py_XDECREF(first)
    return result


cdef PyObject* read_array(Program element, Reader* reader, int64_t count) noexcept:
    cdef int64_t remaining = reader.limit - reader.position
    cdef Py_ssize_t index
    cdef PyObject* item
    cdef PyObject* result
    cdef bint is_struct = element.cls is not None
    if count > remaining or count * element.minimal_bytes > remaining:
        fail(b"more elements than bytes", where(reader))
        return NULL
    reader.elements_left -= count
    if reader.elements_left < 0:
        fail(b"too many elements", where(reader))
        return NULL
    if charge(reader, LIST_COST + 8 * count) < 0 or (not is_struct and charge(reader, element.cost * count) < 0):
        return NULL
    result = PyList_New(count)
    if result == NULL:
        return NULL
    for index in range(count):
        item = read_struct(element, reader) if is_struct else read_value(&element.operations[0], reader)
        if item == NULL:
            Py_DECREF(result)
            return NULL
        PyList_SET_ITEM(result, index, item)
    return result


cdef PyObject* read_value(Operation* operation, Reader* reader) noexcept:
    cdef int code = operation.code
    cdef int64_t length
    cdef const uint8_t* start = reader.position
    cdef PyObject* result
    if code <= UUID:
        return read_fixed(code, reader)
    if code == STRUCT:
        return read_struct(<Program>operation.element, reader)
    if code == NULLABLE_STRUCT:
        if lacks(reader, 1):
            return NULL
        reader.position += 1
        if start[0] == 0 if operation.tag >= 0 else start[0] >= 0x80:
            Py_INCREF(Py_None)
            return Py_None
        return read_struct(<Program>operation.element, reader)
    length = read_length(code, reader)
    if length < 0:
        if length == -1 and operation.is_nullable:
            Py_INCREF(Py_None)
            return Py_None
        if length == -1:
            fail(b"null where none may be", start - reader.base)
        return NULL
    if code == ARRAY or code == COMPACT_ARRAY:
        return read_array(<Program>operation.element, reader, length)
    if code <= COMPACT_STRING and length > STRING_BYTES_MAX:
        fail(b"string too long", start - reader.base)
        return NULL
    if lacks(reader, length):
        return NULL
    start = reader.position
    reader.position += length
    if code > COMPACT_BYTES:
        if charge(reader, VIEW_COST) < 0:
            return NULL
        return slice_view(reader, start - reader.base, reader.position - reader.base)
    if length > 1 and charge(reader, TEXT_COST + length) < 0:  # Python keeps one object for each shorter one.
        return NULL
    if code > COMPACT_STRING:
        return PyBytes_FromStringAndSize(<const char*>start, length)
    result = PyUnicode_DecodeUTF8(<const char*>start, length, NULL)
    if result == NULL:
        PyErr_Clear()
        fail(b"invalid UTF-8", start - reader.base)
    elif PyUnicode_GET_LENGTH(result) != length:
        if charge(reader, PyUnicode_KIND(result) * PyUnicode_GET_LENGTH(result)) < 0:
            Py_DECREF(result)
            return NULL
    return result


cdef int read_tags(Program program, Reader* reader, PyObject** values) noexcept:
    cdef int64_t tag, size
    cdef int64_t count = read_varint(reader)
    cdef const uint8_t* limit
    cdef Operation* operation
    cdef PyObject* value
    cdef int place
    if count < 0:
        return -1
    while count > 0:
        count -= 1
        tag = read_varint(reader)
        if tag < 0:
            return -1
        size = read_varint(reader)
        if size < 0 or lacks(reader, size):
            return -1
        for place in range(program.tagged_count):
            operation = &program.operations[program.tagged[place]]
            if operation.tag == tag:
                limit = reader.limit
                reader.limit = reader.position + size
                if charge(reader, TAG_COST) < 0:
                    return -1
                value = read_value(operation, reader)
                if value == NULL:
                    return -1
                Py_DECREF(values[program.tagged[place]])
                values[program.tagged[place]] = value
                if reader.position != reader.limit:
                    return fail(b"tagged field of a wrong size", where(reader))
                reader.limit = limit
                break
        else:
            if reader.unknown_tags_left == 0:
                return fail(b"too many unknown tagged fields", where(reader))
            reader.unknown_tags_left -= 1
            reader.position += size
    return 0


cdef PyObject* read_struct(Program program, Reader* reader) noexcept:
    cdef PyObject* values[FIELDS_MAX]
    cdef PyObject* result = NULL
    cdef PyObject* value
    cdef Operation* operation
    cdef int index = 0
    if charge(reader, program.cost) < 0:
        return NULL
    while index < program.count:
        operation = &program.operations[index]
        if operation.code < ABSENT and operation.tag < 0:
            value = read_fixed(operation.code, reader) if operation.code <= UUID else read_value(operation, reader)
        elif operation.factory != NULL:
            value = PyObject_CallNoArgs(operation.factory)
        else:
            value = operation.default
            Py_INCREF(value)
        if value == NULL:
            break
        values[index] = value
        index += 1
    if index == program.count and (not program.is_flexible or read_tags(program, reader, values) == 0):
        result = PyObject_Vectorcall(<PyObject*>program.cls, values, program.count, NULL)
    while index > 0:
        index -= 1
        Py_DECREF(values[index])
    return result


cdef tuple decoded(Program program, object buffer, bint whole):
    cdef Py_buffer octets
    cdef Reader reader
    cdef PyObject* message
    cdef object view = buffer if PyMemoryView_Check(<PyObject*>buffer) else memoryview(buffer)
    PyObject_GetBuffer(buffer, &octets, PyBUF_SIMPLE)
    try:
        if octets.itemsize != 1:
            raise TypeError("the buffer must be of bytes")
        reader.base = reader.position = <const uint8_t*>octets.buf
        reader.limit = reader.base + octets.len
        reader.unknown_tags_left = 0x7FFFFFFF if whole else REQUEST_UNKNOWN_TAGS_MAX
        reader.elements_left = 0x7FFFFFFF if whole else REQUEST_ELEMENTS_MAX
        reader.allowance = min(<int64_t>octets.len * ALLOWANCE_PER_BYTE + ALLOWANCE_BASE, <int64_t>(ALLOWANCE_MAX if whole else REQUEST_ALLOWANCE_MAX))
        reader.view = <PyObject*>view
        message = checked(read_struct(program, &reader))
        result = <object>message
        Py_DECREF(message)
        if whole and reader.position != reader.limit:
            raise ValueError("bytes left over", where(&reader))
        return result, where(&reader)
    finally:
        PyBuffer_Release(&octets)


def decode(Program program not None, buffer):
    """The message that fills the buffer."""
    return decoded(program, buffer, True)[0]


def decode_prefix(Program program not None, buffer):
    """The message at the start of the buffer, and the position behind it."""
    return decoded(program, buffer, False)
