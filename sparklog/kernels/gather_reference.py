"""Reference of the `gather` kernel: records gathered into a batch, one by one or from lists."""

from collections.abc import Sequence
from typing import Any

from sparklog.kernels.scan_reference import INVALID, append_encoded, wrapped

Content = bytes | bytearray | memoryview | str | None
"""Bytes, or text that is encoded as UTF-8; None is null."""

_BATCH_BYTES_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1


class Place:
    """The place of a record: its index in a batch, its timestamp, and the object that sends the batch. It is
    the base of promises, which are made for each record.
    """

    __slots__ = ("_batch", "_index", "_owner", "_timestamp_ms")

    def __init__(self, owner: Any, batch: Any, index: int, timestamp_ms: int) -> None:
        self._owner = owner
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms


class Records:
    """The bytes of a batch: room for the header, then the records added so far.

    Invariants: offset deltas are 0, 1, 2 …; timestamp deltas count from the first record; `size`, header
    included, is at most `limit`, so a limit of 0 ends the batch.
    """

    __slots__ = ("_batch", "base_timestamp", "limit", "max_timestamp", "record_count", "size")

    def __init__(self, header_bytes: int, limit: int = _BATCH_BYTES_MAX) -> None:
        self._batch = bytearray(header_bytes)
        self.size = header_bytes
        self.limit = limit
        self.record_count = 0
        self.base_timestamp = self.max_timestamp = -1

    def append(
        self,
        key: Content,
        value: Content,
        headers: Sequence[tuple[str, bytes | bytearray | memoryview | None]] | None,
        timestamp_ms: int,
    ) -> int:
        """Add a record; returns its index, or -1 if it does not fit below `limit`. TypeError for content that
        is neither bytes nor text.
        """
        if not -_INT64_MAX - 1 <= timestamp_ms <= _INT64_MAX:
            raise OverflowError(f"timestamp {timestamp_ms} does not fit 64 bits")
        delta = 0 if self.record_count == 0 else wrapped(timestamp_ms - self.base_timestamp)
        record = bytearray()
        pairs = [
            (name.encode(), None if content is None else bytes(content)) for name, content in headers or ()
        ]
        append_encoded(record, delta, self.record_count, _bytes_of(key), _bytes_of(value), pairs)
        if self.size + len(record) > self.limit:
            if self.size + len(record) > _BATCH_BYTES_MAX:
                raise ValueError(INVALID, self.size, "a batch of more than 2 GiB")
            return -1
        if self.record_count == 0:
            self.base_timestamp = self.max_timestamp = timestamp_ms
        self.max_timestamp = max(self.max_timestamp, timestamp_ms)
        self._batch += record
        self.size += len(record)
        self.record_count += 1
        return self.record_count - 1

    def extend(self, values: list[Content], keys: list[Content] | None, timestamp_ms: int, start: int) -> int:
        """Add the values from index `start` on, with their keys, until one does not fit; returns their
        number. After an exception the records before the refused one are in the batch.
        """
        if not 0 <= start <= len(values) or (keys is not None and len(keys) != len(values)):
            raise ValueError(INVALID, start, "keys and values differ in number, or start is outside")
        for index in range(start, len(values)):
            if self.append(None if keys is None else keys[index], values[index], None, timestamp_ms) < 0:
                return index - start
        return len(values) - start

    def take(self) -> bytearray:
        """The bytes; the batch takes no more records."""
        batch, self._batch = self._batch, bytearray()
        self.limit = 0
        return batch


def _bytes_of(content: Content) -> bytes | None:
    if content is None or type(content) is bytes:
        return content
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"{type(content).__name__} is neither bytes nor text: give the producer a serializer")
