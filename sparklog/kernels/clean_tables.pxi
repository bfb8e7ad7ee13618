# What the `clean` kernel remembers while it works: the table of keys, the producers, and the transactions. Everything here runs without the GIL
# but the constructors.

cdef extern from *:
    """
    /* SipHash-1-3 with 128 bits (Aumasson and Bernstein): keyed, so that nobody who does not know the key can make two keys collide. */
    #define SL_ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
    #define SL_SIP_ROUND do { \
        v0 += v1; v1 = SL_ROTL(v1, 13); v1 ^= v0; v0 = SL_ROTL(v0, 32); v2 += v3; v3 = SL_ROTL(v3, 16); v3 ^= v2; \
        v0 += v3; v3 = SL_ROTL(v3, 21); v3 ^= v0; v2 += v1; v1 = SL_ROTL(v1, 17); v1 ^= v2; v2 = SL_ROTL(v2, 32); } while (0)
    static inline void sl_sip(const uint64_t seed[2], const uint8_t *p, size_t n, uint64_t *low, uint64_t *high) {
        uint64_t v0 = 0x736f6d6570736575ull ^ seed[0], v1 = 0x646f72616e646f83ull ^ seed[1];
        uint64_t v2 = 0x6c7967656e657261ull ^ seed[0], v3 = 0x7465646279746573ull ^ seed[1];
        uint64_t word, last = (uint64_t)n << 56;
        size_t left = n & 7;
        const uint8_t *end = p + (n - left);
        for (; p < end; p += 8) {
            memcpy(&word, p, 8);
            v3 ^= word;
            SL_SIP_ROUND;
            v0 ^= word;
        }
        for (size_t i = 0; i < left; i++) last |= (uint64_t)p[i] << (8 * i);
        v3 ^= last;
        SL_SIP_ROUND;
        v0 ^= last;
        v2 ^= 0xee;
        SL_SIP_ROUND; SL_SIP_ROUND; SL_SIP_ROUND;
        *low = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd;
        SL_SIP_ROUND; SL_SIP_ROUND; SL_SIP_ROUND;
        *high = v0 ^ v1 ^ v2 ^ v3;
    }
    #if defined(__SIZEOF_INT128__)
    static inline uint64_t sl_scale(uint64_t hash, uint64_t slots) { return (uint64_t)(((unsigned __int128)hash * slots) >> 64); }
    #else
    static inline uint64_t sl_scale(uint64_t hash, uint64_t slots) { return hash % slots; }
    #endif
    #if defined(__GNUC__) || defined(__clang__)
    #define SL_PREFETCH(p) __builtin_prefetch(p)
    #else
    #define SL_PREFETCH(p)
    #endif
    """
    void sl_sip(const uint64_t *seed, const uint8_t *p, size_t n, uint64_t *low, uint64_t *high) noexcept nogil
    uint64_t sl_scale(uint64_t hash, uint64_t slots) noexcept nogil
    void SL_PREFETCH(const void *p) noexcept nogil
    const uint8_t *sl_varint32(const uint8_t *p, const uint8_t *end, int32_t *out) noexcept nogil
    const uint8_t *sl_varint64(const uint8_t *p, const uint8_t *end, int64_t *out) noexcept nogil

SLOT_SIZE = 24


cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t reached  # the offset and one, so that 0 is an empty slot


cdef struct Entry:
    const uint8_t *start
    const uint8_t *end
    int64_t delta
    int64_t offset
    uint64_t low
    uint64_t high
    bint has_key
    bint has_value
    bint is_kept


cdef class KeyOffsets:
    cdef Slot *slots
    cdef Py_ssize_t slot_count, used, limit
    cdef uint64_t seed[2]
    cdef int64_t latest
    cdef Entry *entries
    cdef Py_ssize_t entry_room

    def __cinit__(self, Py_ssize_t slots, Py_ssize_t limit, const unsigned char[:] seed not None):
        if not 0 < limit < slots or seed.shape[0] != 16:
            raise ValueError(0, limit, "a limit that leaves no slot empty, or a seed that is not of 16 bytes")
        self.slot_count = slots
        self.limit = limit
        self.latest = -1
        memcpy(self.seed, &seed[0], 16)
        self.slots = <Slot *>calloc(slots, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError(f"{slots} slots of {SLOT_SIZE} bytes")

    def __dealloc__(self):
        free(self.slots)
        free(self.entries)

    def __len__(self):
        return self.used

    @property
    def latest_offset(self):
        return self.latest

    def reached(self, int64_t offset):
        if offset > self.latest:
            self.latest = offset

    def find(self, const unsigned char[:] key not None):
        cdef uint64_t low, high
        sl_sip(self.seed, &key[0] if key.shape[0] else NULL, key.shape[0], &low, &high)
        return _find(self, low, high).reached - 1


cdef inline Slot *_find(KeyOffsets keys, uint64_t low, uint64_t high) noexcept nogil:
    """The slot of this hash, or the empty one where it would go: there always is one."""
    cdef Slot *slot = keys.slots + sl_scale(low, keys.slot_count)
    while slot.reached != 0 and (slot.low != low or slot.high != high):
        slot += 1
        if slot == keys.slots + keys.slot_count:
            slot = keys.slots
    return slot


cdef struct Seen:
    int64_t producer_id
    bint is_used
    bint has_records


cdef class Rules:
    cdef int64_t now_ms, horizon_ms
    cdef int64_t *producers
    cdef Py_ssize_t producer_count
    cdef int64_t *aborted
    cdef uint8_t *aborted_seen
    cdef Py_ssize_t aborted_count
    cdef Seen *seen
    cdef Py_ssize_t seen_room, seen_count

    def __cinit__(self, producers, aborted, int64_t now_ms, int64_t horizon_ms):
        self.now_ms = now_ms
        self.horizon_ms = horizon_ms
        self.producer_count = len(producers)
        self.aborted_count = len(aborted)
        self.seen_room = 64
        self.producers = <int64_t *>calloc(3 * self.producer_count + 1, 8)
        self.aborted = <int64_t *>calloc(3 * self.aborted_count + 1, 8)
        self.aborted_seen = <uint8_t *>calloc(self.aborted_count + 1, 1)
        self.seen = <Seen *>calloc(self.seen_room, sizeof(Seen))
        if self.producers == NULL or self.aborted == NULL or self.aborted_seen == NULL or self.seen == NULL:
            raise MemoryError
        for index, row in enumerate(producers):
            self.producers[3 * index], self.producers[3 * index + 1], self.producers[3 * index + 2] = row
            if index and self.producers[3 * index] <= self.producers[3 * index - 3]:
                raise ValueError(0, index, "producers must be sorted by id")
        for index, row in enumerate(aborted):
            self.aborted[3 * index], self.aborted[3 * index + 1], self.aborted[3 * index + 2] = row
            if index and row <= aborted[index - 1]:
                raise ValueError(0, index, "aborted transactions must be sorted by producer id and offset")

    def __dealloc__(self):
        free(self.producers)
        free(self.aborted)
        free(self.aborted_seen)
        free(self.seen)

    def seen_aborted(self):
        return [index for index in range(self.aborted_count) if self.aborted_seen[index]]


cdef Py_ssize_t _row_of(const int64_t *rows, Py_ssize_t count, int64_t producer_id, int64_t offset) noexcept nogil:
    """The index of the last row not above (producer id, offset); -1 if there is none."""
    cdef Py_ssize_t low = 0, high = count, middle
    while low < high:
        middle = (low + high) // 2
        if rows[3 * middle] < producer_id or (rows[3 * middle] == producer_id and rows[3 * middle + 1] <= offset):
            low = middle + 1
        else:
            high = middle
    return low - 1


cdef Py_ssize_t _aborted(Rules rules, int64_t producer_id, int64_t offset) noexcept nogil:
    """The index of the aborted transaction a batch belongs to; -1 if it belongs to none."""
    cdef Py_ssize_t row = _row_of(rules.aborted, rules.aborted_count, producer_id, offset)
    if row >= 0 and rules.aborted[3 * row] == producer_id and offset <= rules.aborted[3 * row + 2]:
        return row
    return -1


cdef Seen *_seen(Rules rules, int64_t producer_id) noexcept nogil:
    """What was seen of a producer since its last marker; NULL without memory."""
    cdef Seen *old = rules.seen
    cdef Seen *grown
    cdef Py_ssize_t index, room = rules.seen_room
    cdef Seen *found = _seat(rules, producer_id)
    if found.is_used:
        return found
    if 2 * rules.seen_count >= room:
        grown = <Seen *>calloc(2 * room, sizeof(Seen))
        if grown == NULL:
            return NULL
        rules.seen, rules.seen_room = grown, 2 * room
        for index in range(room):
            if old[index].is_used:
                _seat(rules, old[index].producer_id)[0] = old[index]
        free(old)
        found = _seat(rules, producer_id)
    found.is_used = True
    found.producer_id = producer_id
    rules.seen_count += 1
    return found


cdef Seen *_seat(Rules rules, int64_t producer_id) noexcept nogil:
    cdef Py_ssize_t index = <Py_ssize_t>((<uint64_t>producer_id * <uint64_t>0x9E3779B97F4A7C15) >> 20) & (rules.seen_room - 1)
    while rules.seen[index].is_used and rules.seen[index].producer_id != producer_id:
        index = (index + 1) & (rules.seen_room - 1)
    return rules.seen + index
