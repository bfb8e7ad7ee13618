"""Which batches of a client may enter the log, judged as Kafka's broker judges them, with its error codes.

One kernel call checks the bytes (CRC, counts, every record); here is what depends on the topic: sizes, timestamps, keys, codecs. The batch
is changed in place only where Kafka changes it: timestamp type and greatest timestamp, with a new CRC.
"""

from struct import pack_into

from sparklog.errors import DecodeError, ErrorCode
from sparklog.kernels import scan
from sparklog.model import LeaderEpoch, Offset
from sparklog.record.batch import CODEC_BITS, HEADER_SIZE, LENGTH_OVERHEAD, NO_TIMESTAMP, TIMESTAMP_TYPE_BIT, decode_records
from sparklog.record.compression import Codec, compress, decompress

from .settings import LogSettings

Buffer = bytes | bytearray | memoryview
HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
_CODE_OF_STATUS = {
    scan.CORRUPT: ErrorCode.CORRUPT_MESSAGE,
    scan.INVALID: ErrorCode.INVALID_RECORD,
    scan.UNSUPPORTED_MAGIC: ErrorCode.INVALID_RECORD,
    scan.MISSING_KEY: ErrorCode.INVALID_RECORD,
}
_TARGET_CODEC = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


class RecordsRefused(Exception):
    """A client's batch breaks a rule. `record_errors` names the records at fault: (index in the batch, message)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.record_errors = record_errors or []


def check_client_batch(
    records: memoryview | bytearray, settings: LogSettings, now_ms: int
) -> tuple[memoryview | bytearray, HeaderFields, int]:
    """Check one batch of a client: (the batch to append, its header as sent, its greatest timestamp). Raises RecordsRefused.

    The batch to append is `records` itself, stamped in place, or a new one if the topic asks for another codec.
    """
    if len(records) > settings.max_message_bytes:
        message = f"The batch of {len(records)} bytes exceeds max.message.bytes = {settings.max_message_bytes}."
        raise RecordsRefused(ErrorCode.MESSAGE_TOO_LARGE, message)
    try:
        header, least, greatest = scan.check_batch(records, settings.is_compacted)
    except ValueError as error:
        raise _refused(error) from error
    if header[0] != 0:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"The base offset of a batch must be 0, but it is {header[0]}.")
    attributes = header[5]
    if attributes & CODEC_BITS:
        least, greatest = _check_compressed(records, header, settings)
    if attributes & TIMESTAMP_TYPE_BIT:
        message = "A producer may not set the timestamp type to LogAppendTime."
        raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, message, [(index, message) for index in range(header[12])])
    if settings.timestamp_type == "LogAppendTime":
        scan.stamp_timestamps(records, 1, now_ms)
        greatest = now_ms
    else:
        if greatest - now_ms > settings.timestamp_after_max_ms or now_ms - least > settings.timestamp_before_max_ms:
            _check_timestamps(records, header, settings, now_ms)
        if greatest != header[8]:
            scan.stamp_timestamps(records, 0, greatest)
    if settings.compression_type != "producer":
        records = _with_codec(records, header, _TARGET_CODEC[settings.compression_type], settings)
    return records, header, greatest


def _refused(error: ValueError) -> RecordsRefused:
    status, position, reason = error.args
    if status == scan.MISSING_KEY:
        message = "A compacted topic cannot accept a record without a key."
        return RecordsRefused(ErrorCode.INVALID_RECORD, message, [(position, message)])
    return RecordsRefused(_CODE_OF_STATUS[status], f"{reason} (at byte {position})")


def _check_compressed(records: memoryview | bytearray, header: HeaderFields, settings: LogSettings) -> tuple[int, int]:
    """Least and greatest timestamp of a compressed batch, its records walked unless the settings spare them."""
    if not (settings.validates_compressed or settings.is_compacted):
        return header[7], header[8]
    payload = _decompressed(records, header, settings)
    try:
        least, greatest = scan.check_records(payload, header[12], header[7], settings.is_compacted)
    except ValueError as error:
        raise _refused(error) from error
    return least, greatest


def _decompressed(records: memoryview | bytearray, header: HeaderFields, settings: LogSettings) -> Buffer:
    try:
        return decompress(Codec(header[5] & CODEC_BITS), memoryview(records)[HEADER_SIZE:], settings.decompressed_bytes_max)
    except DecodeError as error:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"The records do not decompress: {error}") from error


def _check_timestamps(records: memoryview | bytearray, header: HeaderFields, settings: LogSettings, now_ms: int) -> None:
    """Name the records whose timestamp is out of bounds. Raises RecordsRefused if there are any."""
    earliest, latest = now_ms - settings.timestamp_before_max_ms, now_ms + settings.timestamp_after_max_ms
    if header[5] & CODEC_BITS and not (settings.validates_compressed or settings.is_compacted):
        out = list(range(header[12])) if header[8] > latest or NO_TIMESTAMP != header[7] < earliest else []
    else:
        timestamps = [record.timestamp for record in decode_records(records)]
        out = [index for index, at in enumerate(timestamps) if at != NO_TIMESTAMP and not earliest <= at <= latest]
    if out:
        message = f"The timestamp is out of range: it should be within [{earliest}, {latest}]."
        code, summary = ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp"
        raise RecordsRefused(code, summary, [(index, message) for index in out])


def _with_codec(records: memoryview | bytearray, header: HeaderFields, codec: Codec, settings: LogSettings) -> memoryview | bytearray:
    """The batch with its records compressed as the topic asks for."""
    if header[5] & CODEC_BITS == codec:
        return records
    plain = _decompressed(records, header, settings) if header[5] & CODEC_BITS else bytes(memoryview(records)[HEADER_SIZE:])
    batch = bytearray(memoryview(records)[:HEADER_SIZE]) + compress(codec, plain)
    if len(batch) > settings.max_message_bytes:
        message = f"The batch of {len(batch)} bytes, compressed anew, exceeds max.message.bytes = {settings.max_message_bytes}."
        raise RecordsRefused(ErrorCode.MESSAGE_TOO_LARGE, message)
    pack_into(">i", batch, 8, len(batch) - LENGTH_OVERHEAD)
    pack_into(">h", batch, 21, header[5] & ~CODEC_BITS | (TIMESTAMP_TYPE_BIT if settings.timestamp_type == "LogAppendTime" else 0) | codec)
    pack_into(">I", batch, scan.CRC_POSITION, scan.crc(memoryview(batch)[scan.CRC_START :]))
    return batch


def stamp_own_batches(view: memoryview, base_offset: Offset, leader_epoch: LeaderEpoch) -> list[tuple[int, HeaderFields]]:
    """Stamp batches that this broker made, from `base_offset` on; gives (position, header as stamped) of each."""
    found: list[tuple[int, HeaderFields]] = []
    next_offset = base_offset
    for position, header in scan.headers(view, False):
        scan.stamp(view[position:], next_offset, leader_epoch)
        found.append((position, (next_offset, header[1], leader_epoch, *header[3:])))
        next_offset = Offset(next_offset + header[6] + 1)
    assert found
    assert found[-1][0] + found[-1][1][1] + LENGTH_OVERHEAD == len(view), "half a batch"
    return found


def check_leaders_batches(view: memoryview, log_end_offset: Offset) -> list[tuple[int, HeaderFields]]:
    """(position, header) of the whole batches that a leader sent. Raises RecordsRefused for what cannot follow `log_end_offset`."""
    try:
        found: list[tuple[int, HeaderFields]] = scan.headers(view, True)
    except ValueError as error:
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, str(error.args[2])) from error
    next_offset: int = log_end_offset
    for _, header in found:
        if header[0] < next_offset or header[6] < 0:
            raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, f"offset {header[0]} where {next_offset} or more was due")
        next_offset = header[0] + header[6] + 1
    return found
