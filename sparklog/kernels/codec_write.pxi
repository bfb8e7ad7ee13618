# The writing half of the `codec` kernel: messages to bytes. Included as text by codec_compiled.pyx.


cdef inline void open_writer(Writer* writer) noexcept:
    writer.octets = writer.inline_octets
    writer.size = 0
    writer.capacity = INLINE_BYTES
    writer.chunks = NULL
    writer.flushed = 0


cdef void close_writer(Writer* writer) noexcept:
    if writer.octets != writer.inline_octets:
        free(writer.octets)
    Py_XDECREF(writer.chunks)


cdef int grow(Writer* writer, Py_ssize_t size) noexcept:
    cdef Py_ssize_t capacity = max(2 * writer.capacity, writer.size + size)
    cdef uint8_t* larger
    if writer.octets == writer.inline_octets:
        larger = <uint8_t*>malloc(capacity)
        if larger != NULL:
            memcpy(larger, writer.octets, writer.size)
    else:
        larger = <uint8_t*>realloc(writer.octets, capacity)
    if larger == NULL:
        PyErr_NoMemory()
        return -1
    writer.octets, writer.capacity = larger, capacity
    return 0


cdef inline int make_room(Writer* writer, Py_ssize_t size) noexcept:
    return grow(writer, size) if size > writer.capacity - writer.size else 0


cdef inline int write_octets(Writer* writer, const void* octets, Py_ssize_t size) noexcept:
    if make_room(writer, size) < 0:
        return -1
    memcpy(writer.octets + writer.size, octets, size)
    writer.size += size
    return 0


cdef inline int write_varint(Writer* writer, uint64_t value) noexcept:
    if make_room(writer, 10) < 0:
        return -1
    while value >= 0x80:
        writer.octets[writer.size] = <uint8_t>(value | 0x80)
        writer.size += 1
        value >>= 7
    writer.octets[writer.size] = <uint8_t>value
    writer.size += 1
    return 0


cdef inline int write_length(int code, Writer* writer, Py_ssize_t length) noexcept:
    cdef uint16_t two
    cdef uint32_t four
    if code == COMPACT_STRING or code == COMPACT_ARRAY or code == COMPACT_RECORDS or code == COMPACT_BYTES:
        return write_varint(writer, length + 1)
    if code == STRING:
        two = big_16(<uint16_t>length)
        return write_octets(writer, &two, 2)
    if length > 0x7FFFFFFF:
        PyErr_SetObject(PyExc_OverflowError, <PyObject*>"longer than 32 bits can say")
        return -1
    four = big_32(<uint32_t>length)
    return write_octets(writer, &four, 4)


cdef int write_fixed(int code, PyObject* value, Writer* writer) noexcept:
    cdef long long number
    cdef long long bits
    cdef uint16_t two
    cdef uint32_t four
    cdef uint64_t eight
    cdef double real
    cdef int truth
    if make_room(writer, 16) < 0:
        return -1
    if code == BOOL:
        truth = PyObject_IsTrue(value)
        if truth < 0:
            return -1
        writer.octets[writer.size] = truth
        writer.size += 1
        return 0
    if code == UUID:
        return write_bytes(value, writer, 16)
    if code == FLOAT64:
        real = PyFloat_AsDouble(value)
        if real == -1.0 and PyErr_Occurred() != NULL:
            return -1
        memcpy(&eight, &real, 8)
        eight = big_64(eight)
        memcpy(writer.octets + writer.size, &eight, 8)
        writer.size += 8
        return 0
    number = PyLong_AsLongLong(value)
    if number == -1 and PyErr_Occurred() != NULL:
        return -1
    if code == INT32 and <int32_t>number == number or code == UINT32 and <uint32_t>number == number:
        four = big_32(<uint32_t>number)
        memcpy(writer.octets + writer.size, &four, 4)
        writer.size += 4
    elif code == INT64:
        eight = big_64(<uint64_t>number)
        memcpy(writer.octets + writer.size, &eight, 8)
        writer.size += 8
    elif code == INT16 and <int16_t>number == number or code == UINT16 and <uint16_t>number == number:
        two = big_16(<uint16_t>number)
        memcpy(writer.octets + writer.size, &two, 2)
        writer.size += 2
    elif code == INT8 and <int8_t>number == number:
        writer.octets[writer.size] = <uint8_t>number
        writer.size += 1
    else:
        PyErr_SetObject(PyExc_OverflowError, <PyObject*>"a number that its field cannot hold")
        return -1
    return 0


cdef int write_bytes(PyObject* value, Writer* writer, Py_ssize_t expected) noexcept:
    """The bytes of any buffer, without a length; `expected` is what their number must be, or -1."""
    cdef Py_buffer octets
    cdef int status
    if PyBytes_CheckExact(value) and (expected < 0 or PyBytes_GET_SIZE(value) == expected):
        return write_octets(writer, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    if take_buffer(value, &octets, PyBUF_SIMPLE) < 0:
        return -1
    if expected >= 0 and octets.len != expected:
        status = fail(b"a uuid is sixteen bytes", -1) if expected == 16 else fail(b"a length that does not hold", -1)
    else:
        status = write_octets(writer, octets.buf, octets.len)
    give_buffer(&octets)
    return status


cdef int write_string(Operation* operation, PyObject* value, Writer* writer) noexcept:
    cdef Py_ssize_t size
    cdef const char* octets = PyUnicode_AsUTF8AndSize(value, &size)
    if octets == NULL:
        return -1
    if size > STRING_BYTES_MAX:
        return fail_of_name(b"%U is too long", operation.name)
    if write_length(operation.code, writer, size) < 0:
        return -1
    return write_octets(writer, octets, size)


cdef int flush(Writer* writer) noexcept:
    cdef PyObject* chunk
    cdef int status
    if writer.chunks == NULL:
        writer.chunks = PyList_New(0)
        if writer.chunks == NULL:
            return -1
    if writer.size == 0:
        return 0
    chunk = PyBytes_FromStringAndSize(<const char*>writer.octets, writer.size)
    if chunk == NULL:
        return -1
    status = PyList_Append(writer.chunks, chunk)
    Py_DECREF(chunk)
    writer.flushed += writer.size
    writer.size = 0
    return status


cdef int pass_through(PyObject* piece, Py_ssize_t size, Writer* writer) noexcept:
    if size < COPY_BELOW and (PyBytes_Check(piece) or PyMemoryView_Check(piece) or PyByteArray_Check(piece)):
        return write_bytes(piece, writer, size)
    if flush(writer) < 0 or PyList_Append(writer.chunks, piece) < 0:
        return -1
    writer.flushed += size
    return 0


cdef int write_records(int code, PyObject* value, Writer* writer) noexcept:
    cdef Py_ssize_t index, size, total = 0
    if not PyList_Check(value):
        size = PyObject_Size(value)
        if size < 0 or write_length(code, writer, size) < 0:
            return -1
        return pass_through(value, size, writer)
    for index in range(PyList_GET_SIZE(value)):
        size = PyObject_Size(PyList_GET_ITEM(value, index))
        if size < 0:
            return -1
        total += size
    if write_length(code, writer, total) < 0:
        return -1
    for index in range(PyList_GET_SIZE(value)):
        size = PyObject_Size(PyList_GET_ITEM(value, index))
        if size < 0 or pass_through(PyList_GET_ITEM(value, index), size, writer) < 0:
            return -1
    return 0


cdef int write_array(Operation* operation, PyObject* value, Writer* writer) noexcept:
    cdef Program element = <Program>operation.element
    cdef bint is_struct = element.cls is not None
    cdef PyObject* items = PySequence_Fast(value, b"an array must be a list")
    cdef PyObject* item
    cdef Py_ssize_t index
    cdef int status
    if items == NULL:
        return -1
    status = write_length(operation.code, writer, PySequence_Fast_GET_SIZE(items))
    index = 0
    while status == 0 and index < PySequence_Fast_GET_SIZE(items):
        item = PySequence_Fast_GET_ITEM(items, index)
        Py_INCREF(item)  # another thread may change the list meanwhile
        status = write_struct(element, item, writer) if is_struct else write_value(&element.operations[0], item, writer)
        Py_DECREF(item)
        index += 1
        if (index & (WRITTEN_AT_ONCE - 1)) == 0 and status == 0:
            with nogil:
                pass
    Py_DECREF(items)
    return status


cdef int write_value(Operation* operation, PyObject* value, Writer* writer) noexcept:
    cdef int code = operation.code
    cdef Py_ssize_t size
    cdef uint8_t octet
    if code <= UUID:
        return write_fixed(code, value, writer)
    if code == STRUCT:
        return write_struct(<Program>operation.element, value, writer)
    if code == NULLABLE_STRUCT:
        # Kafka writes -1 for null in an int8, and 0 in the varint of a tagged field.
        octet = 1 if value != Py_None else 0 if operation.tag >= 0 else 0xFF
        if write_octets(writer, &octet, 1) < 0:
            return -1
        return 0 if value == Py_None else write_struct(<Program>operation.element, value, writer)
    if value == Py_None:
        if not operation.is_nullable:
            return fail_of_name(b"%U may not be null", operation.name)
        return write_length(code, writer, -1)
    if code == ARRAY or code == COMPACT_ARRAY:
        return write_array(operation, value, writer)
    if code <= COMPACT_STRING:
        return write_string(operation, value, writer)
    if code >= RECORDS:
        return write_records(code, value, writer)
    size = PyObject_Size(value)
    if size < 0 or write_length(code, writer, size) < 0:
        return -1
    return write_bytes(value, writer, size)


cdef int write_tagged(Operation* operation, PyObject* value, Writer* writer) noexcept:
    """Tag, size and value; the size is put in between once it is known, so nothing in the value may be flushed."""
    cdef Py_ssize_t start, size, length
    if write_varint(writer, operation.tag) < 0:
        return -1
    start = writer.size
    if write_value(operation, value, writer) < 0:
        return -1
    size = writer.size - start
    if write_varint(writer, size) < 0:
        return -1
    length = writer.size - start - size
    if length == 1:
        memmove(writer.octets + start + 1, writer.octets + start, size)
        writer.octets[start] = <uint8_t>size
        return 0
    if make_room(writer, length) < 0:
        return -1
    memcpy(writer.octets + writer.size, writer.octets + start + size, length)
    memmove(writer.octets + start + length, writer.octets + start, size)
    memcpy(writer.octets + start, writer.octets + writer.size, length)
    return 0


cdef inline PyObject* field_of(Program program, PyObject* message, Operation* operation) noexcept:
    """The value of a field, straight from its slot when the message is of the very class of the program."""
    cdef PyObject* value
    if operation.offset > 0 and is_exactly(message, <PyObject*>program.cls):
        value = (<PyObject**>(<char*>message + operation.offset))[0]
        if value != NULL:
            Py_INCREF(value)
            return value
    return PyObject_GetAttr(message, operation.name)


cdef int write_tags(Program program, PyObject* message, Writer* writer) noexcept:
    cdef PyObject* values[FIELDS_MAX]
    cdef Operation* present[FIELDS_MAX]
    cdef Operation* operation
    cdef PyObject* value
    cdef int index, differs, status = 0, count = 0
    for index in range(program.tagged_count):
        operation = &program.operations[program.tagged[index]]
        value = field_of(program, message, operation)
        if value == NULL:
            status = -1
            break
        differs = 0 if value == operation.default else PyObject_RichCompareBool(value, operation.default, Py_NE)
        if differs > 0:
            values[count] = value
            present[count] = operation
            count += 1
            continue
        Py_DECREF(value)
        if differs < 0:
            status = -1
            break
    if status == 0:
        status = write_varint(writer, count)
    for index in range(count):
        if status == 0:
            status = write_tagged(present[index], values[index], writer)
        Py_DECREF(values[index])
    return status


cdef int write_struct(Program program, PyObject* message, Writer* writer) noexcept:
    cdef Operation* operation
    cdef PyObject* value
    cdef int index, status
    for index in range(program.count):
        operation = &program.operations[index]
        if operation.code == ABSENT or (operation.tag >= 0 and operation.code < ABSENT):
            continue
        value = field_of(program, message, operation)
        if value == NULL:
            return -1
        if operation.code == ABSENT_ESSENTIAL:
            status = 0 if value == operation.default else PyObject_RichCompareBool(value, operation.default, Py_NE)
            if status > 0:
                status = fail_of_name(b"%U cannot be said in this version", operation.name)
        else:
            status = write_value(operation, value, writer)
        Py_DECREF(value)
        if status < 0:
            return -1
    if not program.is_flexible:
        return 0
    if program.tagged_count == 0:
        return write_varint(writer, 0)
    return write_tags(program, message, writer)


def encode(Program program not None, message):
    """The message as chunks, records passed through; ValueError, TypeError or OverflowError for values that do not fit."""
    cdef Writer writer
    open_writer(&writer)
    try:
        raised(write_struct(program, <PyObject*>message, &writer))
        raised(flush(&writer))
        return <object>writer.chunks
    finally:
        close_writer(&writer)


def encode_frame(Program header_program not None, header, Program program not None, message):
    """Length prefix, header and message as chunks."""
    cdef Writer writer
    cdef uint32_t size = 0
    open_writer(&writer)
    try:
        raised(write_octets(&writer, &size, 4))
        raised(write_struct(header_program, <PyObject*>header, &writer))
        raised(write_struct(program, <PyObject*>message, &writer))
        raised(flush(&writer))
        if writer.flushed - 4 > 0x7FFFFFFF:
            raise OverflowError("a frame longer than 32 bits can say")
        size = big_32(<uint32_t>(writer.flushed - 4))
        # No other reference to this bytes object exists yet, so its first four bytes may still be set.
        memcpy(PyBytes_AS_STRING(PyList_GET_ITEM(writer.chunks, 0)), &size, 4)
        return <object>writer.chunks
    finally:
        close_writer(&writer)
