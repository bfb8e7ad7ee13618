# cython: language_level=3, boundscheck=False, wraparound=False
"""The codec kernel, compiled: the same as `codec_reference`, which tells what a program is and what is refused.

The inner functions are written against the C API by hand, so that no reference is counted twice and no exception state is saved: they
are `noexcept`, return NULL or -1 with the Python exception set, and their callers clean up and pass that on. Only `checked` and
`raised` turn it into an exception that Cython sees. A pointer from a `read_` function is a new reference.

Every read is preceded by a comparison with the bytes that remain (`limit - position`), never by pointer arithmetic that could wrap.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

cdef extern from "Python.h":
    ctypedef struct PyObject

cdef extern from *:
    """
    #include <structmember.h>
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define SPARKLOG_BIG(bits, value) (value)
    #elif defined(_MSC_VER)
    #include <stdlib.h>
    #define SPARKLOG_SWAP_16 _byteswap_ushort
    #define SPARKLOG_SWAP_32 _byteswap_ulong
    #define SPARKLOG_SWAP_64 _byteswap_uint64
    #define SPARKLOG_BIG(bits, value) SPARKLOG_SWAP_##bits(value)
    #else
    #define SPARKLOG_BIG(bits, value) __builtin_bswap##bits(value)
    #endif
    static inline uint16_t big_16(uint16_t value) { return SPARKLOG_BIG(16, value); }
    static inline uint32_t big_32(uint32_t value) { return SPARKLOG_BIG(32, value); }
    static inline uint64_t big_64(uint64_t value) { return SPARKLOG_BIG(64, value); }

    static inline int is_exactly(PyObject *object, PyObject *cls) { return (PyObject *)Py_TYPE(object) == cls; }
    /* Where a slot of a class lies in its objects; 0 when `descriptor` is not a plain slot. */
    static inline Py_ssize_t slot_offset(PyObject *descriptor) {
        if (Py_TYPE(descriptor) != &PyMemberDescr_Type) return 0;
        PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : 0;
    }
    """
    bint is_exactly(PyObject*, PyObject*)
    Py_ssize_t slot_offset(PyObject*)
    uint16_t big_16(uint16_t) nogil
    uint32_t big_32(uint32_t) nogil
    uint64_t big_64(uint64_t) nogil

cdef extern from "Python.h":
    PyObject* Py_None
    PyObject* Py_True
    PyObject* Py_False
    PyObject* PyExc_ValueError
    PyObject* PyExc_OverflowError
    void Py_INCREF(PyObject*)
    void Py_DECREF(PyObject*)
    void Py_XDECREF(PyObject*)
    void PyErr_SetObject(PyObject*, PyObject*)
    void PyErr_NoMemory()
    void PyErr_Clear()
    PyObject* PyErr_Occurred()
    PyObject* Py_BuildValue(const char*, ...)
    PyObject* PyUnicode_FromFormat(const char*, ...)
    PyObject* PyObject_Vectorcall(PyObject*, PyObject**, size_t, PyObject*)
    PyObject* PyObject_CallNoArgs(PyObject*)
    PyObject* PyObject_GetAttr(PyObject*, PyObject*)
    PyObject* PyObject_GetItem(PyObject*, PyObject*)
    int PyObject_RichCompareBool(PyObject*, PyObject*, int)
    int PyObject_IsTrue(PyObject*)
    Py_ssize_t PyObject_Size(PyObject*)
    int Py_NE
    PyObject* PyLong_FromLong(long)
    PyObject* PyLong_FromLongLong(long long)
    PyObject* PyLong_FromSsize_t(Py_ssize_t)
    long long PyLong_AsLongLong(PyObject*)
    PyObject* PyFloat_FromDouble(double)
    double PyFloat_AsDouble(PyObject*)
    PyObject* PyBytes_FromStringAndSize(const char*, Py_ssize_t)
    char* PyBytes_AS_STRING(PyObject*)
    Py_ssize_t PyBytes_GET_SIZE(PyObject*)
    int PyBytes_CheckExact(PyObject*)
    int PyByteArray_Check(PyObject*)
    int PyMemoryView_Check(PyObject*)
    int PyBytes_Check(PyObject*)
    PyObject* PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*)
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject*)
    int PyUnicode_KIND(PyObject*)
    const char* PyUnicode_AsUTF8AndSize(PyObject*, Py_ssize_t*)
    PyObject* PySlice_New(PyObject*, PyObject*, PyObject*)
    PyObject* PyList_New(Py_ssize_t)
    void PyList_SET_ITEM(PyObject*, Py_ssize_t, PyObject*)
    PyObject* PyList_GET_ITEM(PyObject*, Py_ssize_t)
    Py_ssize_t PyList_GET_SIZE(PyObject*)
    int PyList_Append(PyObject*, PyObject*)
    int PyList_Check(PyObject*)
    PyObject* PySequence_Fast(PyObject*, const char*)
    Py_ssize_t PySequence_Fast_GET_SIZE(PyObject*)
    PyObject* PySequence_Fast_GET_ITEM(PyObject*, Py_ssize_t)
    int take_buffer "PyObject_GetBuffer"(PyObject*, Py_buffer*, int)
    void give_buffer "PyBuffer_Release"(Py_buffer*)

cpdef enum:
    BOOL
    INT8
    INT16
    UINT16
    INT32
    UINT32
    INT64
    FLOAT64
    UUID
    STRING
    COMPACT_STRING
    BYTES
    COMPACT_BYTES
    RECORDS
    COMPACT_RECORDS
    ARRAY
    COMPACT_ARRAY
    STRUCT
    NULLABLE_STRUCT
    ABSENT
    ABSENT_ESSENTIAL

cdef enum:
    FIELDS_MAX = 64
    ALLOWANCE_PER_BYTE = 60
    ALLOWANCE_BASE = 4096
    ALLOWANCE_MAX = 248 << 20
    REQUEST_ALLOWANCE_MAX = 24 << 20
    STRING_BYTES_MAX = 0x7FFF
    COPY_BELOW = 512
    LIST_COST = 64
    TEXT_COST = 80
    VIEW_COST = 256
    TAG_COST = 64
    INLINE_BYTES = 1024
    WRITTEN_AT_ONCE = 1024  # elements of an array, 0.3 ms: then another thread may run that waits for the interpreter

# By code: the bytes that a value takes at least on the wire, and in memory if its size is fixed.
cdef Py_ssize_t* MINIMAL_BYTES = [1, 1, 2, 2, 4, 4, 8, 8, 16, 2, 1, 4, 1, 4, 1, 4, 1, 0, 1, 0, 0]
cdef Py_ssize_t* FIXED_COST = [0, 0, 32, 32, 32, 32, 32, 32, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]

cdef struct Operation:
    int code
    int tag
    bint is_nullable
    Py_ssize_t offset
    PyObject* name
    PyObject* element
    PyObject* default
    PyObject* factory

cdef struct Reader:
    const uint8_t* base
    const uint8_t* position
    const uint8_t* limit
    int64_t allowance
    PyObject* view

cdef struct Writer:
    uint8_t* octets
    Py_ssize_t size
    Py_ssize_t capacity
    PyObject* chunks
    Py_ssize_t flushed
    uint8_t inline_octets[INLINE_BYTES]


cdef class Program:
    """The operations of one struct in one version; `cls` is called with every field by position."""

    cdef Operation* operations
    cdef int count
    cdef int tagged_count
    cdef int tagged[FIELDS_MAX]
    cdef readonly object cls
    cdef readonly bint is_flexible
    cdef readonly bint has_records
    cdef readonly Py_ssize_t minimal_bytes
    cdef readonly int64_t cost
    cdef list kept

    def __init__(self, cls, tuple operations, bint is_flexible):
        if self.operations != NULL:
            raise TypeError("a program is made once")
        if len(operations) > FIELDS_MAX:
            raise ValueError("too many fields", len(operations))
        self.operations = <Operation*>malloc(max(1, len(operations)) * sizeof(Operation))
        if self.operations == NULL:
            raise MemoryError()
        self.cls, self.is_flexible, self.kept = cls, is_flexible, []
        self.minimal_bytes = is_flexible
        self.cost = 0 if cls is None else 16 + 8 * len(operations)
        for operation in operations:
            self.add(operation)
        tagged = sorted((operation[6], index) for index, operation in enumerate(operations) if operation[6] >= 0 and operation[0] < ABSENT)
        self.tagged_count = len(tagged)
        for place, (_, index) in enumerate(tagged):
            self.tagged[place] = index

    def __dealloc__(self):
        free(self.operations)

    cdef add(self, tuple operation):
        cdef int code = operation[0]
        cdef Program element = operation[2]
        cdef object default = operation[3] if operation[4] is None else operation[4]()
        cdef Operation* into = &self.operations[self.count]
        if not 0 <= code <= ABSENT_ESSENTIAL or (ARRAY <= code <= NULLABLE_STRUCT) != (element is not None):
            raise ValueError("no such operation", code)
        into.code, into.tag, into.is_nullable = code, operation[6], operation[5]
        self.kept.append((operation, default))
        into.name, into.element, into.default = <PyObject*>operation[1], <PyObject*>element, <PyObject*>default
        into.factory = <PyObject*>operation[4] if operation[4] is not None else NULL
        slot = None if self.cls is None else getattr(self.cls, operation[1], None)
        into.offset = slot_offset(<PyObject*>slot)
        if code >= ABSENT or into.tag >= 0:
            self.cost += LIST_COST if into.factory != NULL else 0
        else:
            self.cost += FIXED_COST[code]
        has_records = code == RECORDS or code == COMPACT_RECORDS or (element is not None and element.has_records)
        if has_records and into.tag >= 0:
            raise ValueError("records in a tagged field", self.count)
        self.has_records = self.has_records or has_records
        if into.tag < 0:
            self.minimal_bytes += element.minimal_bytes if code == STRUCT else MINIMAL_BYTES[code]
        self.count += 1


cdef inline int fail(const char* reason, Py_ssize_t position) noexcept:
    cdef PyObject* arguments = Py_BuildValue(b"(sn)", reason, position)
    if arguments != NULL:
        PyErr_SetObject(PyExc_ValueError, arguments)
        Py_DECREF(arguments)
    return -1


cdef int fail_of_name(const char* pattern, PyObject* name) noexcept:
    """As `fail`, for a reason that names a field; the pattern has one `%U`."""
    cdef PyObject* reason = PyUnicode_FromFormat(pattern, name)
    cdef PyObject* arguments = Py_BuildValue(b"(Ni)", reason, -1) if reason != NULL else NULL
    if arguments != NULL:
        PyErr_SetObject(PyExc_ValueError, arguments)
        Py_DECREF(arguments)
    return -1


cdef inline PyObject* checked(PyObject* result) except NULL:
    return result


cdef inline int raised(int status) except -1:
    return status


# ---------------------------------------------------------------------------------------------------------------- reading

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
        if start[0] < 0x80:
            return read_struct(<Program>operation.element, reader)
        Py_INCREF(Py_None)
        return Py_None
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


# ---------------------------------------------------------------------------------------------------------------- writing

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
        octet = 0xFF if value == Py_None else 1
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
