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
    REQUEST_UNKNOWN_TAGS_MAX = 1 << 16  # 2 ms: skipping one takes no memory that could be charged
    REQUEST_ELEMENTS_MAX = 50000  # 15 ms
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
    int unknown_tags_left
    int64_t elements_left
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


include "codec_read.pxi"
include "codec_write.pxi"
