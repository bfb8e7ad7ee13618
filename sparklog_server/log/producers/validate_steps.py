"""The check of a client's batch in a job: decompressed, walked and, if the topic requires it, compressed anew
in pieces.

    checking_bytes ─► the job starts when so much memory is free ─► check_in_steps of each batch, in order

A job holds the memory of one decompressor (`memory_bytes`), and all batches that it has compressed anew.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from sparklog.effects import Steps
from sparklog.errors import DecodeError, ErrorCode, without_frames
from sparklog.kernels import walk
from sparklog.record.batch import CODEC_BITS, HEADER_SIZE, BatchHeader
from sparklog.record.compression import Codec, TooLarge
from sparklog.record.pieces import Compressor, decompress_pieces, memory_bytes
from sparklog_server.log.log_config import INT64_MAX, LogConfig

from .validate import (
    INT64_MIN,
    NAMED_RECORDS_MAX,
    TARGET_CODEC,
    Buffer,
    Checked,
    RecordsRefused,
    check_timestamp_type,
    check_timestamps,
    checked_bytes,
    is_recoded,
    missing_keys,
    out_of_range,
    recoded,
    refused_for,
    timestamp_bounds,
    too_large,
    undecodable,
)

Batch = tuple[memoryview | bytearray, LogConfig]

_ATTRIBUTES_AT: Final = 22  # the low byte
_COMPRESSED_MARGIN_BYTES: Final = 64 << 10
"""The most by which 32 MiB of incompressible records grow when they are compressed."""


class ValidationMemory:
    """The memory of one job: that of one decompressor at a time, and the rest for batches that are compressed
    anew.
    """

    __slots__ = ("bytes_left", "total_bytes")

    def __init__(self, batches: Sequence[Batch]) -> None:
        decompressing = recoded_bytes = 0
        most = min((settings.checking_bytes_max for _, settings in batches), default=0)
        for records, settings in batches:
            if len(records) <= HEADER_SIZE:
                continue
            codec = records[_ATTRIBUTES_AT] & CODEC_BITS
            decompressing = max(decompressing, _decompressing_bytes(records, codec, settings))
            if settings.compression_type != "producer" and TARGET_CODEC[settings.compression_type] != codec:
                uncompressed = settings.decompressed_bytes_max if codec else len(records)
                recoded_bytes += min(settings.max_message_bytes, uncompressed) + _COMPRESSED_MARGIN_BYTES
        self.total_bytes = min(decompressing + recoded_bytes, most)
        self.bytes_left = max(self.total_bytes - decompressing, 0)

    def take(self, size: int) -> None:
        """Raises RecordsRefused if the batches compressed anew exceed the memory of the job."""
        self.bytes_left -= size
        if self.bytes_left < 0:
            message = (
                "The batches of the request, compressed anew, take more memory than "
                "sparklog.decompress.memory.max allows."
            )
            raise RecordsRefused(ErrorCode.MESSAGE_TOO_LARGE, message)


def _decompressing_bytes(records: memoryview | bytearray, codec: int, settings: LogConfig) -> int:
    if not 0 < codec <= max(Codec):
        return 0
    try:
        needed = memory_bytes(
            Codec(codec),
            memoryview(records)[HEADER_SIZE:],
            settings.decompressed_bytes_max,
            settings.decompressed_ratio_max,
        )
    except DecodeError:
        return 0  # the check reports the error
    return min(needed, settings.checking_bytes_max)


def check_all(
    batches: Sequence[Batch], room: ValidationMemory, now_ms: int
) -> Steps[list[Checked | RecordsRefused]]:
    """The job: the result of each batch, checked or refused."""
    results: list[Checked | RecordsRefused] = []
    for records, settings in batches:
        yield
        try:
            results.append((yield from check_in_steps(records, settings, room, now_ms)))
        except RecordsRefused as refused:
            results.append(without_frames(refused))
    return results


def check_in_steps(
    records: memoryview | bytearray, settings: LogConfig, room: ValidationMemory, now_ms: int
) -> Steps[Checked]:
    """Check a batch as `check_client_batch` does. Raises RecordsRefused."""
    header, least, greatest = checked_bytes(records, settings, now_ms)
    is_compressed = header.attributes & CODEC_BITS != 0
    is_walked = is_compressed and (
        settings.validates_compressed or settings.is_compacted or is_recoded(header, settings)
    )
    out: list[int] = []
    size = 0
    batch = bytearray(memoryview(records)[:HEADER_SIZE])
    compressor = Compressor(TARGET_CODEC[settings.compression_type]) if is_recoded(header, settings) else None
    if is_walked or compressor is not None:
        one = _RecordsOf(header, settings, now_ms)
        for piece in _pieces(records, header, settings):
            yield
            size += len(piece)
            if is_compressed:
                one.walk(piece)
            if compressor is not None and len(batch) <= settings.max_message_bytes:
                _append(batch, compressor.add(piece), room)
        if is_compressed:
            least, greatest = one.finish()
            out = one.out
            if one.keyless:
                raise missing_keys(one.keyless, out_of_range(out, settings, now_ms) if out else None)
    elif is_compressed:
        least, greatest = header.base_timestamp, header.max_timestamp
    check_timestamp_type(header)
    if settings.timestamp_type != "LogAppendTime" and (
        greatest - now_ms > settings.timestamp_after_max_ms
        or now_ms - least > settings.timestamp_before_max_ms
    ):
        if out:
            raise out_of_range(out, settings, now_ms)
        if not is_walked:
            check_timestamps(
                None if is_compressed else memoryview(records)[HEADER_SIZE:], header, settings, now_ms
            )
    if compressor is None:
        return Checked(records, header, greatest, settings, size)
    _append(batch, compressor.finish(), room)
    return Checked(recoded(batch, header, settings), header, greatest, settings, size)


class _RecordsOf:
    """Walks the records of a compressed batch in pieces; `out` has the indexes of those whose timestamp is
    out of bounds.
    """

    def __init__(self, header: BatchHeader, settings: LogConfig, now_ms: int) -> None:
        low, high = (
            (INT64_MIN, INT64_MAX)
            if settings.timestamp_type == "LogAppendTime"
            else timestamp_bounds(settings, now_ms)
        )
        self.out: list[int] = []
        self._walk = walk.RecordWalk(
            header.record_count, header.base_timestamp, require_keys=settings.is_compacted, low=low, high=high
        )

    def walk(self, piece: Buffer) -> None:
        position = 0
        try:
            while position < len(piece):
                position = self._walk.feed(piece, position)
                if self._walk.is_hit:
                    self.out.append(self._walk.hit_index)
                    if len(self.out) == NAMED_RECORDS_MAX:
                        self._walk.low, self._walk.high = INT64_MIN, INT64_MAX
        except ValueError as error:
            raise refused_for(error) from None

    @property
    def keyless(self) -> list[int]:
        """The indexes of records without a key that need one."""
        return self._walk.keyless

    def finish(self) -> tuple[int, int]:
        """The least and greatest timestamp."""
        try:
            self._walk.finish()
        except ValueError as error:
            raise refused_for(error) from None
        return self._walk.least, self._walk.greatest


def _pieces(records: memoryview | bytearray, header: BatchHeader, settings: LogConfig) -> Iterator[Buffer]:
    """The decompressed records, in pieces. Raises RecordsRefused."""
    codec, body = Codec(header.attributes & CODEC_BITS), memoryview(records)[HEADER_SIZE:]
    bytes_max, ratio_max = settings.decompressed_bytes_max, settings.decompressed_ratio_max
    try:
        needed = memory_bytes(codec, body, bytes_max, ratio_max)
        if needed > settings.checking_bytes_max:
            if codec is not Codec.ZSTD:
                raise TooLarge(
                    f"{codec.name.lower()}: {needed} bytes of memory are needed, "
                    f"{settings.checking_bytes_max} allowed"
                )
            # The window fills with decompressed bytes, so that it has the size in the frame only if as many
            # bytes follow.
            bytes_max = settings.checking_bytes_max - memory_bytes(codec, body, 0, ratio_max)
        yield from decompress_pieces(codec, body, bytes_max, ratio_max)
    except TooLarge as error:
        raise too_large(error, settings) from None
    except DecodeError as error:
        raise undecodable(error) from None


def _append(batch: bytearray, more: Buffer, room: ValidationMemory) -> None:
    room.take(len(more))
    batch += more
