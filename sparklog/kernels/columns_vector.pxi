# Growing buffers of the `columns` kernel: bytes, offsets and validity bits of a column that is being read. Included as text by
# columns_compiled.pyx.


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
