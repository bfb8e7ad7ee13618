"""The pure-Python counterpart of the walk over uncompressed records that arrive in pieces, with records cut
at any byte.

Between two pieces only the state within the current record is kept, none of its bytes, so a record may be
larger than the memory.
"""

from sparklog.kernels.batch_header import NO_TIMESTAMP
from sparklog.kernels.scan_reference import (
    INVALID,
    RECORD_SIZE_MIN,
    Buffer,
    record_at,
    record_headers,
    wrapped,
)

_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1
_LENGTH, _ATTRIBUTES, _TIMESTAMP, _OFFSET, _KEY, _VALUE, _HEADERS, _HEADER_KEY, _HEADER_VALUE = range(9)
_KEYLESS_MAX = 1000
_BAD_VARINT = "a varint that does not end or is too large"
_BAD_RECORD_LENGTH = "a record longer than the bytes that remain, or too short"
_BAD_LENGTH = "a length beyond the end of its record"
_BYTES_LEFT = "bytes after the last header of a record"


class _Unfit(Exception):
    """An invalid byte."""


class RecordWalk:
    """Walks `count` records. `feed` takes the pieces in order; `finish` ends the walk.

    A walk that `is_strict` checks the same as `check_records`: offset deltas 0, 1, 2 …, headers, and no bytes
    after the last record; any other walk reads timestamps and offsets of records in a log. With
    `require_keys`, `keyless` has the indexes of the first 1 000 records without a key. `feed` stops early at
    a timestamp outside `[low, high]` of a record whose offset delta is `from_delta` or more; a strict walk
    ignores records without a timestamp (-1). Feed the rest of the piece to continue.
    """

    def __init__(
        self,
        count: int,
        base_timestamp: int,
        *,
        is_strict: bool = True,
        require_keys: bool = False,
        low: int | None = None,
        high: int | None = None,
        from_delta: int = _INT64_MIN,
    ) -> None:
        self.low = _INT64_MIN if low is None else low
        self.high = _INT64_MAX if high is None else high
        self.from_delta = from_delta
        self.index = 0
        """The number of complete records walked."""
        self.least = self.greatest = NO_TIMESTAMP
        self.is_hit = False
        self.hit_index = self.hit_timestamp = self.hit_delta = 0
        self._count = count
        self._base_timestamp = base_timestamp
        self._is_strict = is_strict
        self._require_keys = require_keys
        self.keyless: list[int] = []
        self._has_timestamp = False
        self._walked = 0  # bytes, over all pieces
        self._start = 0  # of the record or header that an error refers to
        self._stage = _LENGTH
        self._raw = self._shift = 0  # the incomplete varint at the end of a piece
        self._skip = 0  # bytes of a key or value that are still to come
        self._left = 0  # bytes of the record, including those
        self._headers = 0
        self._timestamp = 0

    def feed(self, buffer: Buffer, position: int = 0) -> int:
        """Walk the piece from `position` on; returns the position after a hit, else the length of the piece.
        Raises ValueError as `check_records` does; the position of an error counts from the first piece on.
        """
        view = memoryview(buffer)
        if not 0 <= position <= len(view):
            raise ValueError(INVALID, position, "a position outside the buffer")
        begin = position
        self.is_hit = False
        try:
            while position < len(view) and not self.is_hit:
                position = self._walk_on(view, position, begin)
        except _Unfit as unfit:
            raise ValueError(INVALID, self._start, str(unfit)) from None
        self._walked += position - begin
        return position

    def finish(self) -> None:
        """Raises ValueError unless all records were complete."""
        if self._stage != _LENGTH or self._shift or self._skip:
            raise ValueError(INVALID, self._start, _BAD_RECORD_LENGTH)
        if self.index != self._count:
            raise ValueError(INVALID, self._walked, f"{self.index} records where {self._count} are due")

    def _walk_on(self, view: memoryview, position: int, begin: int) -> int:
        """Walk one record, one byte of an incomplete record, or a run of bytes of a key or value."""
        if self._skip:
            size = min(self._skip, len(view) - position)
            self._skip -= size
            self._left -= size
            return position + size
        if self._stage == _LENGTH and self._shift == 0:
            self._start = self._walked + position - begin
            if self.index == self._count:
                if self._is_strict:
                    raise _Unfit("bytes after the last record")
                return len(view)
            end = self._whole_record(view, position, begin)
            if end:
                return end
        self._step(view[position], self._walked + position - begin + 1)
        return position + 1

    def _whole_record(self, view: memoryview, position: int, begin: int) -> int:
        """The end of the record at `position`; 0 if the piece does not have all of it or the record is
        invalid.
        """
        try:
            record = record_at(view, position, len(view))
        except ValueError:
            return 0  # the walk byte by byte finds whether it is incomplete or invalid
        self._judge(record.timestamp_delta, record.offset_delta)
        if record.key_length < 0:
            self._had_no_key()
        if self._is_strict:
            try:
                record_headers(view, record, is_wanted=False)
            except ValueError as error:
                raise ValueError(INVALID, self._walked + error.args[1] - begin, error.args[2]) from None
        self.index += 1
        return record.end

    def _judge(self, timestamp_delta: int, offset_delta: int) -> None:
        """Take the timestamp and offset of a record."""
        if self._is_strict and offset_delta != self.index:
            raise _Unfit(f"offset deltas must be 0, 1, 2 …; not so at record {self.index}")
        timestamp = wrapped(self._base_timestamp + timestamp_delta)
        if timestamp != NO_TIMESTAMP:
            self.least = min(self.least, timestamp) if self._has_timestamp else timestamp
            self.greatest = max(self.greatest, timestamp) if self._has_timestamp else timestamp
            self._has_timestamp = True
        elif self._is_strict:
            return
        if not self.low <= timestamp <= self.high and offset_delta >= self.from_delta:
            self.is_hit = True
            self.hit_index, self.hit_timestamp, self.hit_delta = self.index, timestamp, offset_delta

    def _step(self, byte: int, next_position: int) -> None:
        """Walk one byte of a record that is cut by the end of a piece."""
        stage = self._stage
        if stage != _LENGTH:
            if self._left == 0:
                raise _Unfit(_BAD_VARINT)
            self._left -= 1
        if stage == _ATTRIBUTES:
            self._stage = _TIMESTAMP
            return
        if (self._shift == 63 and byte > 1) if stage == _TIMESTAMP else (self._shift == 28 and byte > 0x0F):
            raise _Unfit(_BAD_VARINT)
        self._raw |= (byte & 0x7F) << self._shift
        if byte >= 0x80:
            self._shift += 7
            return
        number = (self._raw >> 1) ^ -(self._raw & 1)
        self._raw = self._shift = 0
        if stage == _LENGTH:
            if number < RECORD_SIZE_MIN - 1:
                raise _Unfit(_BAD_RECORD_LENGTH)
            self._left = number
            self._stage = _ATTRIBUTES
        elif stage == _TIMESTAMP:
            self._timestamp = number
            self._stage = _OFFSET
        elif stage == _OFFSET:
            self._stage = _KEY
            self._judge(self._timestamp, number)
        elif stage == _HEADERS:
            self._begin_headers(number, next_position)
        else:
            self._pass_content(stage, number, next_position)

    def _begin_headers(self, count: int, next_position: int) -> None:
        if count < 0 or count > self._left // 2:
            raise _Unfit("more headers than the record has room for")
        self._headers = count
        if not self._is_strict:
            self._skip = self._left
            self._end_record()
        elif count == 0:
            if self._left:
                raise _Unfit(_BYTES_LEFT)
            self._end_record()
        else:
            self._start = next_position
            self._stage = _HEADER_KEY

    def _pass_content(self, stage: int, length: int, next_position: int) -> None:
        """Begin to skip the bytes of a key or value."""
        if length < -1 or length > self._left:
            raise _Unfit(_BAD_LENGTH)
        self._skip = max(length, 0)
        if stage == _KEY:
            if length < 0:
                self._had_no_key()
            self._stage = _VALUE
        elif stage == _VALUE:
            self._stage = _HEADERS
        elif stage == _HEADER_KEY:
            if length < 0:
                raise _Unfit("a header without a key")
            self._stage = _HEADER_VALUE
        else:
            self._headers -= 1
            if self._headers:
                self._start = next_position + self._skip
                self._stage = _HEADER_KEY
            elif self._left != self._skip:
                raise _Unfit(_BYTES_LEFT)
            else:
                self._end_record()

    def _had_no_key(self) -> None:
        if self._require_keys and len(self.keyless) < _KEYLESS_MAX:
            self.keyless.append(self.index)

    def _end_record(self) -> None:
        self._stage = _LENGTH
        self.index += 1
