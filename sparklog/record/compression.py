"""The codecs of record batches: compress so that Java's clients can read the result, and decompress the
batches of any client within limits.

Compression covers the records part of one batch. Decompression has two limits, because the bytes may come
from an attacker: a number of bytes, and a ratio of `RATIO_MAX` once the output exceeds `RATIO_FREE_BYTES`.
"""

from sparklog.record.codec import (
    DECOMPRESSED_BYTES_MAX,
    RATIO_FREE_BYTES,
    RATIO_MAX,
    Buffer,
    Codec,
    TooLarge,
)

__all__ = [
    "DECOMPRESSED_BYTES_MAX",
    "RATIO_FREE_BYTES",
    "RATIO_MAX",
    "Buffer",
    "Codec",
    "TooLarge",
    "compress",
    "decompress",
]


def compress(codec: Codec, data: Buffer, level: int | None = None) -> Buffer:
    """`data` in a form of the codec that Kafka's Java client writes or can read; `level` None is Kafka's
    default level.
    """
    if codec is Codec.NONE:
        return data
    from sparklog.record.codec_libraries import compressed

    return compressed(codec, data, level)


def decompress(
    codec: Codec, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX, ratio_max: int = RATIO_MAX
) -> Buffer:
    """The decompressed bytes. DecodeError if the data is incomplete or invalid, TooLarge if the result
    exceeds the limits.
    """
    if codec is Codec.NONE:
        return data
    from sparklog.record.codec_libraries import decompressed

    return decompressed(codec, data, min(limit_bytes, max(RATIO_FREE_BYTES, ratio_max * len(data))))
