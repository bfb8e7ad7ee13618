"""Finds the one altered byte that would explain why a CRC-32C does not match, from the checksum alone.

CRC-32C is linear: the difference between the stored and the computed checksum depends only on the altered
bits and on the number of bytes behind them. `altered_byte` steps that difference back byte by byte. To
recompute the checksum for every candidate instead would take a time quadratic in the size of the batch.
Only reports of damage need it.
"""

from functools import cache

from sparklog.kernels import scan

Buffer = bytes | bytearray | memoryview

BITS_SEARCHED_MAX = 1 << 20
"""Bytes searched for a flipped bit: one in 500 agrees by chance."""
BYTES_SEARCHED_MAX = 1 << 14
"""Bytes searched for an altered byte, which fits 32 times more differences: one in 1 000 agrees by chance."""
_CRC_BYTES = 4


def altered_byte(content: Buffer, stored_crc: int) -> int | None:
    """The index in `content` of the one byte whose alteration explains why its CRC-32C is not `stored_crc`;
    None if no byte or several do.

    A negative index is one of the four bytes of the stored checksum: -4 is its first.
    """
    difference = scan.crc(content) ^ stored_crc
    in_checksum = [index for index, byte in enumerate(difference.to_bytes(_CRC_BYTES, "big")) if byte]
    if len(in_checksum) == 1:
        return in_checksum[0] - _CRC_BYTES
    if len(content) > BITS_SEARCHED_MAX:
        return None
    table, by_top_byte = _tables()
    flips = frozenset(table[1 << bit] for bit in range(8))
    changes = frozenset(table[1:])
    flipped: list[int] = []
    changed: list[int] = []
    for index in range(len(content) - 1, -1, -1):
        if difference in changes:
            (flipped if difference in flips else changed).append(index)
        entry = by_top_byte[difference >> 24]
        difference = ((difference ^ table[entry]) << 8 | entry) & 0xFFFFFFFF
    found = flipped or (changed if len(content) <= BYTES_SEARCHED_MAX else [])
    return found[0] if len(found) == 1 else None


@cache
def _tables() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The contribution of each byte value to the checksum, and the inverse by its top eight bits."""
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    by_top_byte = [0] * 256
    for byte, added in enumerate(table):
        by_top_byte[added >> 24] = byte
    return tuple(table), tuple(by_top_byte)
