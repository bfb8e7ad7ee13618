"""The header of a record batch of format v2: 61 bytes, big-endian.

     0  base offset                   int64      27  base timestamp, ms   int64
     8  length of all bytes from 12   int32      35  max timestamp, ms    int64
    12  partition leader epoch        int32      43  producer id          int64
    16  magic = 2                     int8       51  producer epoch       int16
    17  CRC-32C of [21, end)          uint32     53  base sequence        int32
    21  attributes                    int16      57  record count         int32
    23  last offset delta             int32      61  records

    attributes: bits 0-2 codec · 3 timestamp type (1 = LogAppendTime) · 4 transactional · 5 control
                6 delete horizon

A broker writes base offset and leader epoch in place without touching the CRC.
"""

from struct import Struct
from typing import Final

import msgspec

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
LENGTH_OVERHEAD: Final = 12
"""Bytes before those that the length field counts: base offset and the field itself."""
CRC_POSITION: Final = 17
CRC_START: Final = 21
MAGIC: Final = 2

NO_TIMESTAMP: Final = -1
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1
SEQUENCE_MAX: Final = 2**31 - 1

CODEC_BITS: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40


class BatchHeader(msgspec.Struct, gc=False, frozen=True):
    """The fields of a header, in the order of their bytes.

    A property costs a call: code that runs once for each batch of a log computes from the fields instead.
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset that follows the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_BITS != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME

    @property
    def has_producer(self) -> bool:
        """Whether an idempotent or transactional producer wrote the batch."""
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; -1 without a producer."""
        return -1 if self.base_sequence < 0 else sequence_after(self.base_sequence, self.last_offset_delta)


def sequence_after(sequence: int, count: int) -> int:
    """The sequence `count` records after `sequence`: 2^31 - 1 is followed by 0."""
    return (sequence + count) & SEQUENCE_MAX
