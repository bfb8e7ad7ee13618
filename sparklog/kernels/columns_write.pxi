# The writing half of the `columns` kernel: Arrow-layout columns to record batches. Included as text by columns_compiled.pyx.


cdef inline uint32_t _murmur2(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t>0x9747B28CU ^ <uint32_t>size
    cdef uint32_t k
    while size >= 4:
        memcpy(&k, p, 4)
        k *= m
        k ^= k >> 24
        h = (h * m) ^ (k * m)
        p += 4
        size -= 4
    if size == 3:
        h ^= <uint32_t>p[2] << 16
    if size >= 2:
        h ^= <uint32_t>p[1] << 8
    if size >= 1:
        h = (h ^ p[0]) * m
    h ^= h >> 13
    h *= m
    return h ^ (h >> 15)


def murmur2(key):
    cdef Py_buffer held
    PyObject_GetBuffer(key, &held, PyBUF_SIMPLE)
    found = <int32_t>_murmur2(<const uint8_t *>held.buf, held.len)
    PyBuffer_Release(&held)
    return found


cdef int64_t _START_MAX = <int64_t>1 << 48  # sums with it stay far from the end of 64 bits

cdef enum:
    _OFFSETS_WRONG = 110
    _PARTITION_OUTSIDE = 111
    _RECORD_TOO_LARGE = 112


cdef struct Column:
    # Variable-length bytes in Arrow's layout; `start` is the slot of row 0.
    const uint8_t *validity
    const int32_t *offsets
    const uint8_t *data
    int64_t data_size
    int64_t start


cdef struct Open:
    # The batch of one partition that is being filled; `bytes` is NULL between batches.
    uint8_t *bytes
    int64_t size
    int64_t capacity
    int64_t first_row
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t count


cdef inline bint _is_valid(const uint8_t *validity, int64_t slot) noexcept nogil:
    return validity == NULL or validity[slot >> 3] >> (slot & 7) & 1


cdef inline int _slot(const Column *column, int64_t slot, const uint8_t **content, int64_t *size) noexcept nogil:
    """The bytes at a slot; size -1 for null."""
    cdef int64_t first, last
    if not _is_valid(column.validity, slot):
        size[0] = -1
        return 0
    first = column.offsets[slot]
    last = column.offsets[slot + 1]
    if first < 0 or last < first or last > column.data_size:
        return _OFFSETS_WRONG
    content[0] = column.data + first
    size[0] = last - first
    return 0


cdef inline uint8_t *_put(uint8_t *p, const uint8_t *content, int64_t size) noexcept nogil:
    p = sl_put_varint(p, size)
    if size > 0:
        memcpy(p, content, size)
        p += size
    return p


cdef class _Writing:
    """The work of one `write_batches`: held columns, one open batch per partition, the batches that are whole."""

    cdef list holds
    cdef list filling
    cdef list built
    cdef Open *open
    cdef Column key, value, name, content
    cdef bint has_key, has_value, has_headers
    cdef const uint8_t *list_validity
    cdef const int32_t *lists
    cdef int64_t list_start, names_limit, contents_limit
    cdef const uint8_t *partition_validity
    cdef const int32_t *partitions
    cdef int64_t partition_start
    cdef const uint8_t *timestamp_validity
    cdef const int64_t *timestamps
    cdef int64_t timestamp_start, timestamp_ms, bytes_max, capacity
    cdef int32_t partition_count, sticky
    cdef bint is_sealed

    def __cinit__(self):
        self.holds = []
        self.filling = []
        self.built = []

    def __dealloc__(self):
        free(self.open)

    cdef const uint8_t *hold(self, buffer, int64_t size_min) except? NULL:
        """The buffer's bytes, of which there must be so many; NULL for None."""
        cdef _Held held
        if buffer is None:
            return NULL
        held = _Held(buffer)
        if held.size < size_min:
            raise ValueError(INVALID, held.size, f"a column buffer of {held.size} bytes where {size_min} are needed")
        self.holds.append(held)
        return held.start

    cdef int hold_column(self, Column *column, parts, int64_t count) except -1:
        column.start = parts[3]
        if count < 0 or column.start < 0 or column.start > _START_MAX:
            raise ValueError(INVALID, -1, "a column that starts before its buffers")
        column.validity = self.hold(parts[0], (column.start + count + 7) // 8)
        column.offsets = <const int32_t *>self.hold(parts[1], 4 * (column.start + count + 1))
        column.data = self.hold(parts[2], 0)
        column.data_size = len(memoryview(parts[2]).cast("B")) if parts[2] is not None else 0
        if column.offsets == NULL or column.data == NULL:
            raise ValueError(INVALID, -1, "a column without offsets or bytes")
        return 0

    cdef int start_batch(self, int32_t partition, int64_t row, int64_t timestamp, int64_t size) except -1:
        """An empty batch with room for `size` bytes of records."""
        cdef Open *batch = &self.open[partition]
        batch.capacity = max(self.capacity, _HEADER + size)
        self.filling[partition] = PyByteArray_FromStringAndSize(NULL, batch.capacity)
        batch.bytes = <uint8_t *>PyByteArray_AS_STRING(self.filling[partition])
        batch.size = _HEADER
        batch.first_row = row
        batch.base_timestamp = batch.max_timestamp = timestamp
        batch.count = 0
        return 0

    cdef int widen(self, int32_t partition, int64_t size) except -1:
        cdef Open *batch = &self.open[partition]
        batch.capacity = max(batch.size + size, min(2 * batch.capacity, max(self.bytes_max, batch.capacity)))
        PyByteArray_Resize(self.filling[partition], batch.capacity)
        batch.bytes = <uint8_t *>PyByteArray_AS_STRING(self.filling[partition])
        return 0

    cdef int close_batch(self, int32_t partition) except -1:
        cdef Open *batch = &self.open[partition]
        cdef uint8_t *p = batch.bytes
        whole = self.filling[partition]
        self.filling[partition] = None
        sl_put64(p, 0)
        sl_put32(p + 8, <uint32_t>(batch.size - 12))
        sl_put32(p + 12, 0xFFFFFFFF)
        p[16] = 2
        sl_put32(p + 17, 0)
        sl_put16(p + 21, 0)
        sl_put32(p + 23, <uint32_t>(batch.count - 1))
        sl_put64(p + 27, <uint64_t>batch.base_timestamp)
        sl_put64(p + 35, <uint64_t>batch.max_timestamp)
        memset(p + 43, 0xFF, 14)  # no producer: id, epoch and sequence are -1
        sl_put32(p + 57, <uint32_t>batch.count)
        if self.is_sealed:
            with nogil:
                sl_put32(p + 17, sl_crc(0, p + 21, batch.size - 21))
        PyByteArray_Resize(whole, batch.size)
        self.built.append((partition, whole, batch.count, batch.first_row, batch.max_timestamp))
        batch.bytes = NULL
        return 0

    cdef int fill(self, int64_t count, int64_t *refused_at) noexcept nogil:
        """Every row into the batch of its partition; 0, or why not and at which row. A Python error is -1."""
        cdef const uint8_t *key = NULL
        cdef const uint8_t *value = NULL
        cdef int64_t row, slot, timestamp, key_size, value_size, body, fixed, headers_size, header_count, first_header = 0
        cdef int32_t partition, given
        cdef Open *batch
        cdef uint8_t *p
        cdef int refused
        for row in range(count):
            refused_at[0] = row
            key_size = value_size = -1
            if self.has_key:
                refused = _slot(&self.key, self.key.start + row, &key, &key_size)
                if refused:
                    return refused
            if self.has_value:
                refused = _slot(&self.value, self.value.start + row, &value, &value_size)
                if refused:
                    return refused
            header_count = headers_size = 0
            if self.has_headers:
                refused = self.measure_headers(row, &first_header, &header_count, &headers_size)
                if refused:
                    return refused
            timestamp = self.timestamp_ms
            if self.timestamps != NULL and _is_valid(self.timestamp_validity, self.timestamp_start + row):
                timestamp = self.timestamps[self.timestamp_start + row]
                timestamp = timestamp // 1000 - (timestamp % 1000 < 0)
            if self.partitions != NULL and _is_valid(self.partition_validity, self.partition_start + row):
                given = self.partitions[self.partition_start + row]
                if given < 0 or given >= self.partition_count:
                    return _PARTITION_OUTSIDE
                partition = given
            elif key_size >= 0:
                partition = <int32_t>((_murmur2(key, key_size) & 0x7FFFFFFF) % <uint32_t>self.partition_count)
            else:
                partition = self.sticky
            fixed = 1 + sl_varint_size(key_size) + max(key_size, 0) + sl_varint_size(value_size) + max(value_size, 0)
            fixed += sl_varint_size(header_count) + headers_size
            if fixed > 0x7FFFFF00:
                return _RECORD_TOO_LARGE
            batch = &self.open[partition]
            if batch.bytes != NULL:
                body = fixed + sl_varint_size(batch.count) + sl_varint_size(<int64_t>(<uint64_t>timestamp - <uint64_t>batch.base_timestamp))
                if batch.size + body + sl_varint_size(body) > self.bytes_max:
                    with gil:
                        try:
                            self.close_batch(partition)
                        except MemoryError:
                            return _NO_MEMORY
                    if partition == self.sticky:
                        self.sticky = (partition + 1) % self.partition_count
                    if key_size < 0 and (self.partitions == NULL or not _is_valid(self.partition_validity, self.partition_start + row)):
                        partition = self.sticky
                        batch = &self.open[partition]
            if batch.bytes == NULL:
                with gil:
                    try:
                        self.start_batch(partition, row, timestamp, fixed + 32)
                    except MemoryError:
                        return _NO_MEMORY
            body = fixed + sl_varint_size(batch.count) + sl_varint_size(<int64_t>(<uint64_t>timestamp - <uint64_t>batch.base_timestamp))
            if batch.size + body + 5 > batch.capacity:
                with gil:
                    try:
                        self.widen(partition, body + 5)
                    except MemoryError:
                        return _NO_MEMORY
            p = sl_put_varint(batch.bytes + batch.size, body)
            p[0] = 0
            p = sl_put_varint(p + 1, <int64_t>(<uint64_t>timestamp - <uint64_t>batch.base_timestamp))
            p = sl_put_varint(p, batch.count)
            p = _put(p, key, key_size)
            p = _put(p, value, value_size)
            p = sl_put_varint(p, header_count)
            if header_count:
                p = self.put_headers(p, first_header, header_count)
            batch.size = p - batch.bytes
            batch.count += 1
            if timestamp > batch.max_timestamp:
                batch.max_timestamp = timestamp
        return 0

    cdef int measure_headers(self, int64_t row, int64_t *first, int64_t *count, int64_t *size) noexcept nogil:
        cdef const uint8_t *content = NULL
        cdef int64_t slot = self.list_start + row, last, length = 0
        cdef int refused
        if not _is_valid(self.list_validity, slot):
            return 0
        first[0] = self.lists[slot]
        last = self.lists[slot + 1]
        if first[0] < 0 or last < first[0] or last > self.names_limit or last > self.contents_limit:
            return _OFFSETS_WRONG
        count[0] = last - first[0]
        for slot in range(first[0], last):
            refused = _slot(&self.name, self.name.start + slot, &content, &length)
            if refused:
                return refused
            if length < 0:
                return SL_NO_HEADER_KEY
            size[0] += sl_varint_size(length) + length
            refused = _slot(&self.content, self.content.start + slot, &content, &length)
            if refused:
                return refused
            size[0] += sl_varint_size(length) + max(length, 0)
        return 0

    cdef uint8_t *put_headers(self, uint8_t *p, int64_t first, int64_t count) noexcept nogil:
        """The headers that `measure_headers` found right."""
        cdef const uint8_t *content = NULL
        cdef int64_t slot, length = 0
        for slot in range(first, first + count):
            _slot(&self.name, self.name.start + slot, &content, &length)
            p = _put(p, content, length)
            _slot(&self.content, self.content.start + slot, &content, &length)
            p = _put(p, content, length)
        return p


def write_batches(
    int64_t count,
    key,
    value,
    headers,
    partitions,
    timestamps,
    int64_t timestamp_ms,
    int32_t partition_count,
    int32_t sticky,
    int64_t bytes_max,
    bint seal,
):
    cdef _Writing writing = _Writing()
    cdef int64_t refused_at = 0, expected = 0
    cdef int32_t partition
    cdef int refused
    if count < 0 or count > _START_MAX or partition_count <= 0 or not 0 <= sticky < partition_count:
        raise ValueError(INVALID, -1, f"{count} rows to {partition_count} partitions, of which {sticky} is the sticky one")
    if key is not None:
        writing.hold_column(&writing.key, key, count)
        writing.has_key = True
        expected += _extent(&writing.key, count)
    if value is not None:
        writing.hold_column(&writing.value, value, count)
        writing.has_value = True
        expected += _extent(&writing.value, count)
    if headers is not None:
        _hold_headers(writing, headers, count)
    if partitions is not None:
        writing.partition_start = partitions[2]
        if writing.partition_start < 0 or writing.partition_start > _START_MAX:
            raise ValueError(INVALID, -1, "a column that starts before its buffers")
        writing.partition_validity = writing.hold(partitions[0], (writing.partition_start + count + 7) // 8)
        writing.partitions = <const int32_t *>writing.hold(partitions[1], 4 * (writing.partition_start + count))
    if timestamps is not None:
        writing.timestamp_start = timestamps[2]
        if writing.timestamp_start < 0 or writing.timestamp_start > _START_MAX:
            raise ValueError(INVALID, -1, "a column that starts before its buffers")
        writing.timestamp_validity = writing.hold(timestamps[0], (writing.timestamp_start + count + 7) // 8)
        writing.timestamps = <const int64_t *>writing.hold(timestamps[1], 8 * (writing.timestamp_start + count))
    writing.timestamp_ms = timestamp_ms
    writing.partition_count = partition_count
    writing.sticky = sticky
    writing.bytes_max = min(max(bytes_max, _HEADER), 0x7FFFFF00)
    writing.is_sealed = seal
    # What an even spread over the partitions needs, so that batches seldom move while they grow.
    writing.capacity = min(writing.bytes_max, max(1024, (expected + 20 * count) // partition_count * 9 // 8))
    writing.filling = [None] * partition_count
    writing.open = <Open *>calloc(partition_count, sizeof(Open))
    if writing.open == NULL:
        raise MemoryError
    with nogil:
        refused = writing.fill(count, &refused_at)
    if refused == _NO_MEMORY:
        raise MemoryError
    if refused == _OFFSETS_WRONG:
        raise ValueError(INVALID, refused_at, "a row outside its column's bytes")
    if refused == _PARTITION_OUTSIDE:
        raise ValueError(INVALID, refused_at, f"a partition outside [0, {partition_count})")
    if refused == _RECORD_TOO_LARGE:
        raise ValueError(INVALID, refused_at, "a record of more than 2 GiB")
    if refused:
        _refuse_record(refused, refused_at)
    for partition in range(partition_count):
        if writing.open[partition].bytes != NULL:
            writing.close_batch(partition)
    return writing.built, writing.sticky if count == 0 else (writing.sticky + 1) % partition_count


cdef int64_t _extent(const Column *column, int64_t count) noexcept:
    """About how many bytes the rows hold; only a hint."""
    cdef int64_t size = <int64_t>column.offsets[column.start + count] - column.offsets[column.start]
    return min(max(size, 0), column.data_size)


cdef int _hold_headers(_Writing writing, headers, int64_t count) except -1:
    """(validity, list offsets, names, values, start): how many slots names and values have is told by the size of their offsets."""
    validity, lists, names, contents, start = headers
    writing.list_start = start
    if writing.list_start < 0 or writing.list_start > _START_MAX:
        raise ValueError(INVALID, -1, "a column that starts before its buffers")
    writing.list_validity = writing.hold(validity, (writing.list_start + count + 7) // 8)
    writing.lists = <const int32_t *>writing.hold(lists, 4 * (writing.list_start + count + 1))
    writing.names_limit = _slots(names)
    writing.contents_limit = _slots(contents)
    writing.hold_column(&writing.name, names, writing.names_limit)
    writing.hold_column(&writing.content, contents, writing.contents_limit)
    writing.has_headers = True
    return 0


cdef int64_t _slots(parts) except -1:
    """The row count of a column without an explicit length: the smaller of its offsets' and its validity's."""
    cdef int64_t slots = len(memoryview(parts[1]).cast("B")) // 4 - 1 - <int64_t>parts[3]
    if parts[0] is not None:
        slots = min(slots, 8 * len(memoryview(parts[0]).cast("B")) - <int64_t>parts[3])
    return max(slots, 0)
