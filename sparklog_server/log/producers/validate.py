"""Validation of a client's batches before an append, with the rules and error codes of Kafka's broker.

One kernel call checks the bytes (CRC, counts, every record); this module checks the limits of the topic:
sizes, timestamps, keys, codecs. A check changes nothing, so it may run in a job; `admitted` then stamps
the fields that Kafka changes in place: timestamp type and greatest timestamp, with a new CRC.

    check_client_batch    at once: for batches that are not compressed, or decompress to little
    validate_steps        in a job: decompressed, walked and compressed anew in pieces
"""

from struct import pack_into
from typing import final

import msgspec

from sparklog.errors import DecodeError, ErrorCode
from sparklog.kernels import scan
from sparklog.model import LeaderEpoch, Offset
from sparklog.record.batch import (
    CODEC_BITS,
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
)
from sparklog.record.compression import Codec, TooLarge, compress, decompress
from sparklog_server.log.log_config import INT64_MAX, LogConfig

Buffer = bytes | bytearray | memoryview
_CODE_OF_STATUS = {
    scan.CORRUPT: ErrorCode.CORRUPT_MESSAGE,
    scan.INVALID: ErrorCode.INVALID_RECORD,
    scan.UNSUPPORTED_MAGIC: ErrorCode.INVALID_RECORD,
}
TARGET_CODEC = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

INT64_MIN = -(1 << 63)
NAMED_RECORDS_MAX = 1000
"""The most records named in an error; clients also fail the others, because the batch is refused as
a whole.
"""
_COMPRESSED_INLINE_BYTES_MAX = 16 << 10
"""Compressing is far slower than decompressing: gzip takes 1 ms for 40 KiB."""


class NeedsJob(Exception):
    """The batch is too large to be validated within a turn."""


class RecordsRefused(Exception):
    """A client's batch violates a rule. `record_errors` has the index in the batch and a message for each
    record at fault.
    """

    def __init__(
        self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.record_errors = record_errors or []


@final
class Checked(msgspec.Struct, frozen=True, gc=False):
    """A validated batch that may be appended under `settings`, as sent or compressed anew; not
    stamped yet.
    """

    batch: memoryview | bytearray
    header: BatchHeader
    greatest_timestamp: int
    settings: LogConfig
    decompressed_bytes: int

    def __len__(self) -> int:
        return len(self.batch)


Sent = memoryview | bytearray | Checked
"""A client's batch on its way into a log."""


def check_client_batch(
    records: memoryview | bytearray,
    settings: LogConfig,
    now_ms: int,
    *,
    inline_bytes_max: int | None = None,
) -> Checked:
    """Check one batch of a client without a change to it. Raises RecordsRefused, and NeedsJob if the check
    would take more than is allowed here.

    With `inline_bytes_max`, no more bytes may be decompressed; a batch that needs more is checked in a job.
    """
    batch, header, greatest, decompressed_bytes = _checked(records, settings, now_ms, inline_bytes_max)
    return Checked(batch, header, greatest, settings, decompressed_bytes)


def _checked(
    records: memoryview | bytearray, settings: LogConfig, now_ms: int, inline_bytes_max: int | None
) -> tuple[memoryview | bytearray, BatchHeader, int, int]:
    """The batch to append, its header as sent, its greatest timestamp, and the number of
    decompressed bytes.
    """
    header, least, greatest = checked_bytes(records, settings, now_ms)
    attributes = header.attributes
    plain: Buffer | None = None
    decompressed_bytes = 0
    if attributes & CODEC_BITS:
        if settings.validates_compressed or settings.is_compacted or is_recoded(header, settings):
            plain = _decompressed(records, header, settings, inline_bytes_max)
            decompressed_bytes = len(plain)
            least, greatest = _walked(plain, header, settings, now_ms)
        else:
            least, greatest = header.base_timestamp, header.max_timestamp
    if attributes & TIMESTAMP_TYPE_BIT:
        check_timestamp_type(header)
    if settings.timestamp_type != "LogAppendTime" and (
        greatest - now_ms > settings.timestamp_after_max_ms
        or now_ms - least > settings.timestamp_before_max_ms
    ):
        check_timestamps(
            plain if attributes & CODEC_BITS else memoryview(records)[HEADER_SIZE:], header, settings, now_ms
        )
    if settings.compression_type != "producer" and is_recoded(header, settings):
        if plain is None:
            plain = memoryview(records)[HEADER_SIZE:]
        records = _with_codec(records, plain, header, settings, inline_bytes_max)
    return records, header, greatest, decompressed_bytes


def checked_bytes(
    records: memoryview | bytearray, settings: LogConfig, now_ms: int
) -> tuple[BatchHeader, int, int]:
    """The header, and the least and greatest timestamp of a batch after a check of its bytes; its records are
    checked too unless they are compressed.
    """
    if len(records) > settings.max_message_bytes:
        message = (
            f"The batch of {len(records)} bytes exceeds max.message.bytes = {settings.max_message_bytes}."
        )
        raise RecordsRefused(ErrorCode.MESSAGE_TOO_LARGE, message)
    try:
        header: BatchHeader
        header, least, greatest = scan.check_batch(records, settings.is_compacted)
    except ValueError as error:
        if error.args[0] == scan.MISSING_KEY:
            (header,) = (found for _, found in scan.headers(records, False))
            raise _without_keys(memoryview(records)[HEADER_SIZE:], header, settings, now_ms) from None
        raise refused_for(error) from None
    if header.base_offset != 0:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD, f"The base offset of a batch must be 0, but it is {header.base_offset}."
        )
    return header, least, greatest


def is_recoded(header: BatchHeader, settings: LogConfig) -> bool:
    """Whether the topic stores the batch with another codec."""
    return (
        settings.compression_type != "producer"
        and TARGET_CODEC[settings.compression_type] != header.attributes & CODEC_BITS
    )


def check_timestamp_type(header: BatchHeader) -> None:
    """Raises RecordsRefused for a batch with the timestamp type LogAppendTime, which only a broker
    may set.
    """
    if header.attributes & TIMESTAMP_TYPE_BIT:
        message = "A producer may not set the timestamp type to LogAppendTime."
        named = range(min(header.record_count, NAMED_RECORDS_MAX))
        raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, message, [(index, message) for index in named])


def admitted(
    records: Sent, settings: LogConfig, now_ms: int
) -> tuple[memoryview | bytearray, BatchHeader, int]:
    """Check the rest, and stamp the timestamps: the batch to append, its header as sent, and its greatest
    timestamp.

    Raises RecordsRefused.
    """
    if type(records) is not Checked:
        batch, header, greatest, _ = _checked(records, settings, now_ms, None)
    else:  # The settings from the start of the check apply: the topic may be altered while a job runs.
        batch, header, greatest = records.batch, records.header, records.greatest_timestamp
    if settings.timestamp_type == "LogAppendTime":
        scan.stamp_timestamps(batch, 1, now_ms)
        greatest = now_ms
    elif greatest != header.max_timestamp:
        scan.stamp_timestamps(batch, 0, greatest)
    return batch, header, greatest


def refused_for(error: ValueError) -> RecordsRefused:
    """The error for a client when a kernel has refused its batch."""
    status, position, reason = error.args
    return RecordsRefused(_CODE_OF_STATUS[status], f"{reason} (at byte {position})")


def _without_keys(plain: Buffer, header: BatchHeader, settings: LogConfig, now_ms: int) -> RecordsRefused:
    """Walk a refused batch once more, to name every record without a key, and those whose timestamp is out of
    bounds.
    """
    try:
        scan.check_records(
            plain, header.record_count, header.base_timestamp, False
        )  # the first record without a key ended the walk before
        keyless = scan.keys_missing(plain, header.record_count, NAMED_RECORDS_MAX)
        if settings.timestamp_type != "LogAppendTime":
            check_timestamps(plain, header, settings, now_ms)
    except ValueError as error:
        return refused_for(error)
    except RecordsRefused as refused:
        return missing_keys(keyless, refused)
    return missing_keys(keyless)


def missing_keys(keyless: list[int], other: RecordsRefused | None = None) -> RecordsRefused:
    """The refusal of a batch with records without a key at these indexes, and with other faults of its
    records.
    """
    message = "A compacted topic cannot accept a record without a key."
    faults = dict.fromkeys(keyless, message)
    if other is not None:
        faults = dict(sorted((dict(other.record_errors) | faults).items())[:NAMED_RECORDS_MAX])
        return RecordsRefused(other.code, other.message, list(faults.items()))
    total = (
        f"{len(faults)} record errors in total"
        if len(faults) < NAMED_RECORDS_MAX
        else f"{NAMED_RECORDS_MAX} record errors or more"
    )
    summary = f"One or more records have been rejected due to {total}; the first: {message}"
    return RecordsRefused(ErrorCode.INVALID_RECORD, summary, list(faults.items()))


def _walked(plain: Buffer, header: BatchHeader, settings: LogConfig, now_ms: int) -> tuple[int, int]:
    """The least and greatest timestamp of the records of a compressed batch."""
    try:
        least, greatest = scan.check_records(
            plain, header.record_count, header.base_timestamp, settings.is_compacted
        )
    except ValueError as error:
        if error.args[0] == scan.MISSING_KEY:
            raise _without_keys(plain, header, settings, now_ms) from None
        raise refused_for(error) from None
    return least, greatest


def _decompressed(
    records: memoryview | bytearray, header: BatchHeader, settings: LogConfig, inline_bytes_max: int | None
) -> Buffer:
    body = memoryview(records)[HEADER_SIZE:]
    bytes_max, ratio_max = settings.decompressed_bytes_max, settings.decompressed_ratio_max
    if inline_bytes_max is not None and inline_bytes_max < bytes_max:
        if len(body) > inline_bytes_max:
            raise NeedsJob
        try:
            return decompress(Codec(header.attributes & CODEC_BITS), body, inline_bytes_max, ratio_max)
        except TooLarge:
            raise NeedsJob from None
        except DecodeError as error:
            raise undecodable(error) from None
    try:
        return decompress(Codec(header.attributes & CODEC_BITS), body, bytes_max, ratio_max)
    except TooLarge as error:
        raise too_large(error, settings) from None
    except DecodeError as error:
        raise undecodable(error) from None


def too_large(error: TooLarge, settings: LogConfig) -> RecordsRefused:
    """The refusal of a batch that decompresses to more than is allowed."""
    # With this code Java's producer splits the batch and retries.
    limits = (
        f"sparklog.decompress.max.bytes = {settings.decompressed_bytes_max}, "
        f"sparklog.decompress.ratio.max = {settings.decompressed_ratio_max}, sparklog.decompress.memory.max"
    )
    return RecordsRefused(
        ErrorCode.MESSAGE_TOO_LARGE, f"The records decompress to too much ({error}): {limits}."
    )


def undecodable(error: DecodeError) -> RecordsRefused:
    """The refusal of a batch that is damaged, or in a form that Kafka does not allow."""
    return RecordsRefused(ErrorCode.INVALID_RECORD, f"The records do not decompress: {error}")


def check_timestamps(plain: Buffer | None, header: BatchHeader, settings: LogConfig, now_ms: int) -> None:
    """Check the timestamps against the bounds of the topic, and name the records that are outside; all of
    them if the records are not available. Raises RecordsRefused.
    """
    earliest, latest = timestamp_bounds(settings, now_ms)
    if plain is None:
        is_out = header.max_timestamp > latest or NO_TIMESTAMP != header.base_timestamp < earliest
        out = list(range(min(header.record_count, NAMED_RECORDS_MAX))) if is_out else []
    else:
        out = scan.timestamps_outside(
            plain, header.record_count, header.base_timestamp, earliest, latest, NAMED_RECORDS_MAX
        )
    if out:
        raise out_of_range(out, settings, now_ms)


def timestamp_bounds(settings: LogConfig, now_ms: int) -> tuple[int, int]:
    """The earliest and the latest timestamp that the topic accepts."""
    earliest, latest = now_ms - settings.timestamp_before_max_ms, now_ms + settings.timestamp_after_max_ms
    return max(earliest, INT64_MIN), min(latest, INT64_MAX)


def out_of_range(out: list[int], settings: LogConfig, now_ms: int) -> RecordsRefused:
    """The refusal of a batch for its records with these indexes."""
    earliest, latest = now_ms - settings.timestamp_before_max_ms, now_ms + settings.timestamp_after_max_ms
    message = (
        f"The timestamp is out of range: it should be within [{earliest}, {latest}], as "
        f"message.timestamp.before.max.ms={settings.timestamp_before_max_ms} and "
        f"message.timestamp.after.max.ms={settings.timestamp_after_max_ms} allow."
    )
    code, summary = (
        ErrorCode.INVALID_TIMESTAMP,
        "One or more records have been rejected due to invalid timestamp",
    )
    return RecordsRefused(code, summary, [(index, message) for index in out])


def _with_codec(
    records: memoryview | bytearray,
    plain: Buffer,
    header: BatchHeader,
    settings: LogConfig,
    inline_bytes_max: int | None,
) -> memoryview | bytearray:
    """The batch with its records compressed with the codec of the topic."""
    codec = TARGET_CODEC[settings.compression_type]
    if (
        inline_bytes_max is not None
        and codec is not Codec.NONE
        and len(plain) > min(inline_bytes_max, _COMPRESSED_INLINE_BYTES_MAX)
    ):
        raise NeedsJob
    return recoded(bytearray(memoryview(records)[:HEADER_SIZE]) + compress(codec, plain), header, settings)


def recoded(batch: bytearray, header: BatchHeader, settings: LogConfig) -> bytearray:
    """The records compressed anew, after the old header with its fields corrected. Raises RecordsRefused if
    the batch is too large.
    """
    if len(batch) > settings.max_message_bytes:
        message = (
            f"The batch of {len(batch)} bytes, compressed anew, exceeds max.message.bytes = "
            f"{settings.max_message_bytes}."
        )
        raise RecordsRefused(ErrorCode.MESSAGE_TOO_LARGE, message)
    pack_into(">i", batch, 8, len(batch) - LENGTH_OVERHEAD)
    pack_into(">h", batch, 21, header.attributes & ~CODEC_BITS | TARGET_CODEC[settings.compression_type])
    pack_into(">I", batch, CRC_POSITION, scan.crc(memoryview(batch)[CRC_START:]))
    return batch


def stamp_own_batches(
    view: memoryview, base_offset: Offset, leader_epoch: LeaderEpoch
) -> list[tuple[int, BatchHeader]]:
    """Stamp batches of this broker, from `base_offset` on; returns the position and stamped header
    of each.
    """
    found: list[tuple[int, BatchHeader]] = []
    next_offset = base_offset
    for position, header in scan.headers(view, False):
        scan.stamp(view[position:], next_offset, leader_epoch)
        stamped = msgspec.structs.replace(header, base_offset=next_offset, leader_epoch=leader_epoch)
        found.append((position, stamped))
        next_offset = Offset(next_offset + header.last_offset_delta + 1)
    assert found
    assert found[-1][0] + found[-1][1].size == len(view), "half a batch"
    return found


def check_leaders_batches(
    view: memoryview, log_end_offset: Offset, epoch_max: int
) -> list[tuple[int, BatchHeader]]:
    """The position and header of the whole batches from a leader, up to the first of an epoch above
    `epoch_max`. Raises RecordsRefused for a batch that cannot follow `log_end_offset`.
    """
    try:
        found: list[tuple[int, BatchHeader]] = scan.headers(view, True)
    except ValueError as error:
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, str(error.args[2])) from None
    next_offset: int = log_end_offset
    for index, (_, header) in enumerate(found):
        if header.leader_epoch > epoch_max:
            return found[:index]
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise RecordsRefused(
                ErrorCode.CORRUPT_MESSAGE, f"offset {header.base_offset} where {next_offset} or more was due"
            )
        next_offset = header.base_offset + header.last_offset_delta + 1
    return found
