"""The plain-Python twin of the `columns` kernel: batches to Arrow-layout columns and back."""

from struct import Struct

Buffer = bytes | bytearray | memoryview

_WORD = Struct("<I")
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: Buffer) -> int:
    """The 32-bit Murmur2 hash with Kafka's seed, as a signed integer."""
    view = memoryview(key)
    size = len(view)
    h = (_SEED ^ size) & _MASK
    whole = size & ~3
    for (k,) in _WORD.iter_unpack(view[:whole]):
        k = k * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    tail = view[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h
