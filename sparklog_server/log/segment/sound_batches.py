"""The content of a damaged `.log` file: its sound batches, and every stretch between them without one.

    sound_batches(file) ──► [(position, header), …] … Unsound(start, limit, position, what) … [(position, …)]

The walks of the broker stop at the first invalid byte; these continue, report the fault, and name the exact
byte if it can be determined: an impossible header field, a length that contradicts the next batch, or one
altered byte that explains a checksum. The file is read in windows; a batch counts only if its CRC-32C
matches.
"""

from collections.abc import Callable, Iterator
from functools import cache
from struct import pack
from typing import NamedTuple

from sparklog.kernels import scan
from sparklog.record.batch import (
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    unpack_header,
)
from sparklog_server.disk.door import DiskFile

Buffer = bytes | bytearray | memoryview
BITS_SEARCHED_MAX = 1 << 20
"""Bytes searched for a flipped bit: one in 500 agrees by chance."""
BYTES_SEARCHED_MAX = 1 << 14
"""Bytes searched for an altered byte, which fits 32 times more differences: one in 1 000 agrees by chance."""
_CRC_BYTES = 4
WINDOW_BYTES = 1 << 20
CODEC_MAX = 4
LENGTH_FIELD = 8
EPOCH_FIELD = 12
MAGIC_FIELD = 16

Batch = tuple[int, BatchHeader]
"""The position and header of a batch."""


class Unsound(NamedTuple):
    """No sound batch begins in `[start, limit)`; `position` is the first byte known to be wrong."""

    start: int
    limit: int
    position: int
    what: str


def sound_batches(
    file: DiskFile, progressed: Callable[[int], None] | None = None
) -> Iterator[list[Batch] | Unsound]:
    """The sound batches of the whole file in order, a window at a time, and the stretches between them.
    Raises StorageError.

    `progressed` is called with the number of bytes read since the last call.
    """
    position = 0
    while position < file.size:
        begin = position
        content = file.pread(position, WINDOW_BYTES)
        try:
            found: list[Batch] = scan.headers(content, True)
            is_refused = False
        except ValueError as error:
            # The error is less than a header after the start of its batch: the batches before it are sound.
            found = scan.headers(memoryview(content)[: error.args[1]], False)
            is_refused = True
        if found:
            last, header = found[-1]
            yield found if begin == 0 else [(begin + at, fields) for at, fields in found]
            position = begin + last + header.size
        if is_refused or not found:
            judged = judge(file, position)
            if isinstance(judged, Unsound):
                yield judged
                position = judged.limit
            else:
                yield [(position, judged)]
                position += judged.size
        if progressed is not None:
            progressed(position - begin)


def judge(file: DiskFile, start: int) -> BatchHeader | Unsound:
    """The header of the batch at `start` if its CRC matches, else the fault and the position of the next
    sound batch. Raises StorageError.
    """
    head = file.pread(start, HEADER_SIZE)
    if len(head) < HEADER_SIZE:
        limit = next_sound_batch(file, start + 1, 0)
        return Unsound(start, limit, start, f"{file.size - start} bytes are less than the header of a batch")
    header = unpack_header(head)
    size = header.size
    is_possible = HEADER_SIZE <= size <= file.size - start
    if header.magic == MAGIC and is_possible and crc_of(file, start + CRC_START, start + size) == header.crc:
        return header
    limit = next_sound_batch(file, start + 1, header.base_offset if header.base_offset >= 0 else 0)
    if header.magic != MAGIC:
        old = ", which sparklog does not read" if header.magic in (0, 1) else ""
        return Unsound(
            start,
            limit,
            start + MAGIC_FIELD,
            f"no batch of format v{MAGIC} begins here: its magic is {header.magic}{old}",
        )
    length = limit - start - LENGTH_OVERHEAD
    if (
        length >= HEADER_SIZE - LENGTH_OVERHEAD
        and length != header.length
        and crc_of(file, start + CRC_START, limit) == header.crc
    ):
        at = start + LENGTH_FIELD + _first_difference(pack(">i", header.length), pack(">i", length))
        return Unsound(
            start,
            limit,
            at,
            f"the batch's length is {header.length}, but its checksum is right for a length of {length}",
        )
    if not is_possible:
        what = f"a batch of {size} bytes cannot begin here, where {file.size - start} remain"
        return Unsound(start, limit, start + LENGTH_FIELD, what)
    return _misfit(file, start, header, limit)


def altered_byte(content: Buffer, stored_crc: int) -> int | None:
    """The index in `content` of the one byte whose alteration explains why its CRC-32C is not `stored_crc`;
    None if no byte or several do.

    CRC-32C is linear: the difference between the stored and the computed checksum depends only on the altered
    bits and on the number of bytes behind them, so it is stepped back byte by byte. To recompute the checksum
    for every candidate would take a time quadratic in the size of the batch.

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


def _misfit(file: DiskFile, start: int, header: BatchHeader, limit: int) -> Unsound:
    """A batch whose CRC does not match; names the byte if one altered byte explains it."""
    size = header.size
    what = (
        f"CRC-32C does not match in the batch [{start}, {start + size}), which says that it begins with "
        f"offset {header.base_offset}"
    )
    body_size = size - CRC_START
    if body_size <= BITS_SEARCHED_MAX:
        index = altered_byte(file.pread(start + CRC_START, body_size), header.crc)
        if index is not None:
            return Unsound(
                start,
                limit,
                start + CRC_START + index,
                f"{what}; this one altered byte would explain it",
            )
    return Unsound(start, limit, start + CRC_POSITION, what)


def crc_of(file: DiskFile, begin: int, end: int) -> int:
    """The CRC-32C of `[begin, end)`, read in windows."""
    crc = 0
    for at in range(begin, end, WINDOW_BYTES):
        crc = scan.crc(file.pread(at, min(WINDOW_BYTES, end - at)), crc)
    return crc


def next_sound_batch(file: DiskFile, position: int, offset_min: int) -> int:
    """The position of the next batch, at `position` or later, with a valid CRC and a base offset of at least
    `offset_min`; the file size if there is none.
    """
    while file.size - position >= HEADER_SIZE:
        # Headers that begin in this window may end in the next: both overlap by one.
        content = file.pread(position, WINDOW_BYTES + HEADER_SIZE)
        at = content.find(MAGIC, MAGIC_FIELD)
        while 0 <= at - MAGIC_FIELD <= len(content) - HEADER_SIZE:
            begin = at - MAGIC_FIELD
            header = unpack_header(content, begin)
            if (
                offset_min <= header.base_offset
                and header_flaw(header) is None
                and header.size <= file.size - position - begin
            ):
                start = position + begin
                if crc_of(file, start + CRC_START, start + header.size) == header.crc:
                    return start
            at = content.find(MAGIC, at + 1)
        position += max(len(content) - HEADER_SIZE + 1, 1)
    return file.size


def header_flaw(header: BatchHeader) -> tuple[int, str] | None:
    """The byte and the description of a header field that no broker writes; None if the header is valid."""
    if header.length < HEADER_SIZE - LENGTH_OVERHEAD:
        return LENGTH_FIELD, f"a length of {header.length} is shorter than a header"
    if header.leader_epoch < -1:
        return EPOCH_FIELD, f"the leader epoch is {header.leader_epoch}"
    if header.attributes & 0x07 > CODEC_MAX:
        return 22, f"there is no codec {header.attributes & 0x07}"
    if header.last_offset_delta < 0:
        return 23, f"the last offset delta is {header.last_offset_delta}"
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        return 57, f"{header.record_count} records cannot have {header.last_offset_delta + 1} offsets"
    return None


def _first_difference(left: bytes, right: bytes) -> int:
    return next((at for at, (one, other) in enumerate(zip(left, right, strict=True)) if one != other), 0)
