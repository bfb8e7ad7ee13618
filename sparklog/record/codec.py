"""The codecs of record batches, the limits of decompression, and the error of a batch beyond them."""

from enum import IntEnum
from typing import Final

from sparklog.errors import DecodeError

Buffer = bytes | bytearray | memoryview

DECOMPRESSED_BYTES_MAX: Final = 256 << 20
"""The default limit for one batch."""
RATIO_MAX: Final = 1024
"""deflate reaches at most 1032; zstd could turn 4 bytes into 128 KiB."""
RATIO_FREE_BYTES: Final = 4 << 20
"""Up to this size the ratio is not checked: small batches of equal records exceed any ratio."""


class TooLarge(DecodeError):
    """The decompressed data exceeds the limits."""


class Codec(IntEnum):
    """The codec: its number in the attributes of a batch, its name in lower case in settings."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
