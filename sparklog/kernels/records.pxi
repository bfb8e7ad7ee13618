# What the `scan` and `columns` kernels share: integers as they stand in a batch, CRC-32C, and the walk over one record.
# Included as text, so that the C compiler sees all of it in each kernel. Everything here runs without the GIL.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #error "the compiled kernels are for little-endian machines; build with SPARKLOG_PURE=1"
    #endif

    #if defined(_MSC_VER)
    #include <stdlib.h>
    #define SL_SWAP32 _byteswap_ulong
    #define SL_SWAP64 _byteswap_uint64
    #define SL_UNLIKELY(x) (x)
    #else
    #define SL_SWAP32 __builtin_bswap32
    #define SL_SWAP64 __builtin_bswap64
    #define SL_UNLIKELY(x) __builtin_expect(!!(x), 0)
    #endif

    static inline int16_t sl_get16(const uint8_t *p) { return (int16_t)(uint16_t)((p[0] << 8) | p[1]); }
    static inline uint32_t sl_get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return SL_SWAP32(v); }
    static inline uint64_t sl_get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return SL_SWAP64(v); }
    static inline void sl_put16(uint8_t *p, uint16_t v) { p[0] = (uint8_t)(v >> 8); p[1] = (uint8_t)v; }
    static inline void sl_put32(uint8_t *p, uint32_t v) { v = SL_SWAP32(v); memcpy(p, &v, 4); }
    static inline void sl_put64(uint8_t *p, uint64_t v) { v = SL_SWAP64(v); memcpy(p, &v, 8); }

    /* -- CRC-32C (Castagnoli, reflected 0x82f63b78) -------------------------------------------------------------------------------
       In software eight bytes a step by tables. With SSE4.2 or ARMv8 by the instruction; its latency of 3 cycles is hidden by three
       streams of SL_STREAM bytes side by side, joined by tables that advance a CRC over SL_STREAM zero bytes. */

    #define SL_STREAM 512
    static uint32_t sl_crc_table[8][256];
    static uint32_t sl_crc_skip[4][256];
    static int sl_crc_in_hardware = 0;

    static uint32_t sl_crc_software(uint32_t crc, const uint8_t *p, size_t n) {
        while (n >= 8) {
            uint32_t low, high;
            memcpy(&low, p, 4);
            memcpy(&high, p + 4, 4);
            low ^= crc;
            crc = sl_crc_table[7][low & 255] ^ sl_crc_table[6][(low >> 8) & 255] ^ sl_crc_table[5][(low >> 16) & 255]
                ^ sl_crc_table[4][low >> 24] ^ sl_crc_table[3][high & 255] ^ sl_crc_table[2][(high >> 8) & 255]
                ^ sl_crc_table[1][(high >> 16) & 255] ^ sl_crc_table[0][high >> 24];
            p += 8;
            n -= 8;
        }
        while (n--) crc = (crc >> 8) ^ sl_crc_table[0][(crc ^ *p++) & 255];
        return crc;
    }

    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #include <nmmintrin.h>
    #ifdef __clang__  /* to it, CRC instructions are a feature of their own */
    #define SL_HARDWARE __attribute__((target("sse4.2,crc32")))
    #else
    #define SL_HARDWARE __attribute__((target("sse4.2")))
    #endif
    #define SL_CRC64(crc, word) _mm_crc32_u64((crc), (word))
    #define SL_CRC8(crc, byte) _mm_crc32_u8((uint32_t)(crc), (byte))
    static int sl_has_instruction(void) { __builtin_cpu_init(); return __builtin_cpu_supports("sse4.2") != 0; }
    #elif defined(__ARM_FEATURE_CRC32)
    #include <arm_acle.h>
    #define SL_HARDWARE
    #define SL_CRC64(crc, word) __crc32cd((uint32_t)(crc), (word))
    #define SL_CRC8(crc, byte) __crc32cb((uint32_t)(crc), (byte))
    static int sl_has_instruction(void) { return 1; }
    #endif

    #ifdef SL_HARDWARE
    static inline uint32_t sl_crc_advance(uint32_t crc) {
        return sl_crc_skip[0][crc & 255] ^ sl_crc_skip[1][(crc >> 8) & 255] ^ sl_crc_skip[2][(crc >> 16) & 255] ^ sl_crc_skip[3][crc >> 24];
    }
    SL_HARDWARE static uint32_t sl_crc_hardware(uint32_t seed, const uint8_t *p, size_t n) {
        uint64_t crc = seed, word;
        while (n >= 3 * SL_STREAM) {
            uint64_t second = 0, third = 0;
            const uint8_t *end = p + SL_STREAM;
            for (; p < end; p += 8) {
                memcpy(&word, p, 8);
                crc = SL_CRC64(crc, word);
                memcpy(&word, p + SL_STREAM, 8);
                second = SL_CRC64(second, word);
                memcpy(&word, p + 2 * SL_STREAM, 8);
                third = SL_CRC64(third, word);
            }
            crc = sl_crc_advance((uint32_t)crc) ^ second;
            crc = sl_crc_advance((uint32_t)crc) ^ third;
            p += 2 * SL_STREAM;
            n -= 3 * SL_STREAM;
        }
        for (; n >= 8; p += 8, n -= 8) {
            memcpy(&word, p, 8);
            crc = SL_CRC64(crc, word);
        }
        while (n--) crc = SL_CRC8(crc, *p++);
        return (uint32_t)crc;
    }
    #endif

    static void sl_crc_prepare(void) {
        static const uint8_t zeros[SL_STREAM] = {0};
        for (int i = 0; i < 256; i++) {
            uint32_t crc = (uint32_t)i;
            for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
            sl_crc_table[0][i] = crc;
        }
        for (int i = 0; i < 256; i++)
            for (int k = 1; k < 8; k++) sl_crc_table[k][i] = (sl_crc_table[k - 1][i] >> 8) ^ sl_crc_table[0][sl_crc_table[k - 1][i] & 255];
        /* Advancing is linear: the table of a byte is the sum of those of its bits. */
        for (int byte = 0; byte < 4; byte++) {
            uint32_t of_bit[8];
            for (int bit = 0; bit < 8; bit++) of_bit[bit] = sl_crc_software((uint32_t)1 << (8 * byte + bit), zeros, SL_STREAM);
            for (int i = 0; i < 256; i++) {
                uint32_t sum = 0;
                for (int bit = 0; bit < 8; bit++) if (i >> bit & 1) sum ^= of_bit[bit];
                sl_crc_skip[byte][i] = sum;
            }
        }
    #ifdef SL_HARDWARE
        sl_crc_in_hardware = sl_has_instruction();
    #endif
    }

    static inline uint32_t sl_crc(uint32_t seed, const uint8_t *p, size_t n) {
    #ifdef SL_HARDWARE
        if (sl_crc_in_hardware) return ~sl_crc_hardware(~seed, p, n);
    #endif
        return ~sl_crc_software(~seed, p, n);
    }

    /* -- one record --------------------------------------------------------------------------------------------------------------- */

    /* A zig-zag varint of at most 32 (64) bits that ends before `end`: the position after it, or NULL. */
    static const uint8_t *sl_varint32_long(const uint8_t *p, const uint8_t *end, int32_t *out) {
        uint32_t raw = 0;
        int shift = 0;
        while (p < end) {
            uint8_t byte = *p++;
            if (shift == 28 && byte > 0x0f) return NULL;
            raw |= (uint32_t)(byte & 0x7f) << shift;
            if (byte < 0x80) {
                *out = (int32_t)((raw >> 1) ^ (0u - (raw & 1)));
                return p;
            }
            shift += 7;
            if (shift > 28) return NULL;
        }
        return NULL;
    }
    static inline const uint8_t *sl_varint32(const uint8_t *p, const uint8_t *end, int32_t *out) {
        if (p < end && *p < 0x80) {
            *out = (int32_t)(*p >> 1) ^ -(int32_t)(*p & 1);
            return p + 1;
        }
        if (end - p >= 2 && p[1] < 0x80) {
            uint32_t raw = (uint32_t)(p[0] & 0x7f) | (uint32_t)p[1] << 7;
            *out = (int32_t)((raw >> 1) ^ (0u - (raw & 1)));
            return p + 2;
        }
        return sl_varint32_long(p, end, out);
    }
    static const uint8_t *sl_varint64_long(const uint8_t *p, const uint8_t *end, int64_t *out) {
        uint64_t raw = 0;
        int shift = 0;
        while (p < end) {
            uint8_t byte = *p++;
            if (shift == 63 && byte > 1) return NULL;
            raw |= (uint64_t)(byte & 0x7f) << shift;
            if (byte < 0x80) {
                *out = (int64_t)((raw >> 1) ^ (0ull - (raw & 1)));
                return p;
            }
            shift += 7;
            if (shift > 63) return NULL;
        }
        return NULL;
    }
    static inline const uint8_t *sl_varint64(const uint8_t *p, const uint8_t *end, int64_t *out) {
        if (p < end && *p < 0x80) {
            *out = (int64_t)(*p >> 1) ^ -(int64_t)(*p & 1);
            return p + 1;
        }
        return sl_varint64_long(p, end, out);
    }
    /* A length, where -1 is null, whose bytes end by `end`: where they start, or NULL. */
    static inline const uint8_t *sl_length(const uint8_t *p, const uint8_t *end, int32_t *length) {
        p = sl_varint32(p, end, length);
        if (SL_UNLIKELY(p == NULL || *length < -1 || *length > end - p)) return NULL;
        return p;
    }

    typedef struct {
        int64_t timestamp_delta;
        const uint8_t *key, *value, *headers, *end;
        int32_t offset_delta, key_length, value_length, header_count;
    } sl_record;

    enum { SL_FITS = 0, SL_BAD_RECORD_LENGTH = 1, SL_BAD_VARINT = 2, SL_BAD_LENGTH = 3, SL_BAD_HEADER_COUNT = 4, SL_NO_HEADER_KEY = 5,
           SL_BYTES_LEFT = 6 };

    /* The record at `p`, its headers not yet walked. `*at` is where a refusal was noticed. */
    static inline int sl_read_record(const uint8_t *p, const uint8_t *limit, sl_record *record, const uint8_t **at) {
        int32_t length;
        const uint8_t *end;
        *at = p;
        p = sl_varint32(p, limit, &length);
        if (SL_UNLIKELY(p == NULL)) return SL_BAD_VARINT;
        if (SL_UNLIKELY(length < 6 || length > limit - p)) return SL_BAD_RECORD_LENGTH;
        record->end = end = p + length;
        p = sl_varint64(p + 1, end, &record->timestamp_delta);
        if (SL_UNLIKELY(p == NULL)) return SL_BAD_VARINT;
        p = sl_varint32(p, end, &record->offset_delta);
        if (SL_UNLIKELY(p == NULL)) return SL_BAD_VARINT;
        p = sl_length(p, end, &record->key_length);
        if (SL_UNLIKELY(p == NULL)) return SL_BAD_LENGTH;
        record->key = p;
        p = sl_length(record->key_length < 0 ? p : p + record->key_length, end, &record->value_length);
        if (SL_UNLIKELY(p == NULL)) return SL_BAD_LENGTH;
        record->value = p;
        p = sl_varint32(record->value_length < 0 ? p : p + record->value_length, end, &record->header_count);
        if (SL_UNLIKELY(p == NULL)) return SL_BAD_VARINT;
        if (SL_UNLIKELY(record->header_count < 0 || record->header_count > (end - p) / 2)) return SL_BAD_HEADER_COUNT;
        record->headers = p;
        return SL_FITS;
    }

    typedef struct {
        const uint8_t *key, *value, *end;
        int32_t key_length, value_length;
    } sl_header;

    static inline int sl_read_header(const uint8_t *p, const uint8_t *limit, sl_header *header, const uint8_t **at) {
        *at = p;
        p = sl_length(p, limit, &header->key_length);
        if (SL_UNLIKELY(p == NULL)) return SL_BAD_LENGTH;
        if (SL_UNLIKELY(header->key_length < 0)) return SL_NO_HEADER_KEY;
        header->key = p;
        p = sl_length(p + header->key_length, limit, &header->value_length);
        if (SL_UNLIKELY(p == NULL)) return SL_BAD_LENGTH;
        header->value = p;
        header->end = header->value_length < 0 ? p : p + header->value_length;
        return SL_FITS;
    }

    /* Walk the headers up to the record's end, which they must meet. */
    static inline int sl_walk_headers(const sl_record *record, const uint8_t **at) {
        const uint8_t *p = record->headers;
        sl_header header;
        for (int32_t i = 0; i < record->header_count; i++) {
            int refused = sl_read_header(p, record->end, &header, at);
            if (refused) return refused;
            p = header.end;
        }
        *at = p;
        return p == record->end ? SL_FITS : SL_BYTES_LEFT;
    }

    static inline uint8_t *sl_put_varint(uint8_t *p, int64_t number) {
        uint64_t raw = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
        while (raw > 0x7f) {
            *p++ = (uint8_t)(raw | 0x80);
            raw >>= 7;
        }
        *p++ = (uint8_t)raw;
        return p;
    }
    static inline int sl_varint_size(int64_t number) {
        uint64_t raw = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
        int size = 1;
        while (raw > 0x7f) {
            size++;
            raw >>= 7;
        }
        return size;
    }
    """
    ctypedef struct sl_record:
        int64_t timestamp_delta
        const uint8_t *key
        const uint8_t *value
        const uint8_t *headers
        const uint8_t *end
        int32_t offset_delta
        int32_t key_length
        int32_t value_length
        int32_t header_count

    ctypedef struct sl_header:
        const uint8_t *key
        const uint8_t *value
        const uint8_t *end
        int32_t key_length
        int32_t value_length

    int SL_FITS, SL_BAD_RECORD_LENGTH, SL_BAD_VARINT, SL_BAD_LENGTH, SL_BAD_HEADER_COUNT, SL_NO_HEADER_KEY, SL_BYTES_LEFT
    int16_t sl_get16(const uint8_t *p) noexcept nogil
    uint32_t sl_get32(const uint8_t *p) noexcept nogil
    uint64_t sl_get64(const uint8_t *p) noexcept nogil
    void sl_put16(uint8_t *p, int16_t v) noexcept nogil
    void sl_put32(uint8_t *p, uint32_t v) noexcept nogil
    void sl_put64(uint8_t *p, uint64_t v) noexcept nogil
    void sl_crc_prepare() noexcept nogil
    uint32_t sl_crc(uint32_t seed, const uint8_t *p, size_t n) noexcept nogil
    int sl_read_record(const uint8_t *p, const uint8_t *limit, sl_record *record, const uint8_t **at) noexcept nogil
    int sl_read_header(const uint8_t *p, const uint8_t *limit, sl_header *header, const uint8_t **at) noexcept nogil
    int sl_walk_headers(const sl_record *record, const uint8_t **at) noexcept nogil
    uint8_t *sl_put_varint(uint8_t *p, int64_t number) noexcept nogil
    int sl_varint_size(int64_t number) noexcept nogil

sl_crc_prepare()

CORRUPT = 1
INVALID = 2
UNSUPPORTED_MAGIC = 3
MISSING_KEY = 4

RECORD_SIZE_MIN = 7

cdef dict _REFUSALS = {
    SL_BAD_RECORD_LENGTH: "a record longer than the bytes that remain, or too short",
    SL_BAD_VARINT: "a varint that does not end or is too large",
    SL_BAD_LENGTH: "a length beyond the end of its record",
    SL_BAD_HEADER_COUNT: "more headers than the record has room for",
    SL_NO_HEADER_KEY: "a header without a key",
    SL_BYTES_LEFT: "bytes after the last header of a record",
}


cdef int _refuse_record(int refused, Py_ssize_t position) except -1:
    raise ValueError(INVALID, position, _REFUSALS[refused])
