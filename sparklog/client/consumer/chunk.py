"""The batches of one partition in one Fetch response, handed out whole or record by record."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from sparklog.client.failures import CorruptRecords
from sparklog.errors import DecodeError
from sparklog.kernels import scan
from sparklog.model import TopicPartition
from sparklog.record.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, Buffer, codec_of, read_header
from sparklog.record.compression import decompress
from sparklog.record.control import ControlType, control_type
from sparklog.wire.messages.fetch import AbortedTransaction

Made = TypeVar("Made")


class Chunk:
    """Batches of offsets `[start, next_offset)`. Invariant: `records` ends with a whole batch and is not
    empty.
    """

    __slots__ = (
        "_aborted",
        "_headers",
        "_index",
        "high_watermark",
        "next_offset",
        "position",
        "records",
        "start",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        records: memoryview,
        headers: list[tuple[int, BatchHeader]],
        *,
        start: int,
        high_watermark: int,
        aborted: list[AbortedTransaction],
    ) -> None:
        self.topic_partition = topic_partition
        self.records = records
        self.start = start
        self.position = start  # the next offset to hand out
        self.next_offset = headers[-1][1].next_offset
        self.high_watermark = high_watermark
        self._headers = headers
        self._index = 0
        self._aborted = Aborted(aborted)

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch."""
        return self._headers[-1][1].leader_epoch

    @property
    def position_epoch(self) -> int:
        """The leader epoch of the batch handed out last, -1 if none was yet."""
        return self._headers[self._index - 1][1].leader_epoch if self._index else -1

    @property
    def is_exhausted(self) -> bool:
        """Whether every batch has been handed out."""
        return self._index == len(self._headers)

    def next_batch(
        self,
        make: Callable[[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]], Made],
    ) -> list[Made]:
        """The records of the next batch from `position` on, possibly none; raises CorruptRecords without
        moving the position.
        """
        at, header = self._headers[self._index]
        try:
            records = self._decode(at, header, make)
        except (ValueError, DecodeError) as error:
            raise CorruptRecords(
                self.topic_partition, max(self.position, header.base_offset), str(error)
            ) from error
        self._index += 1
        self.position = header.next_offset
        return records

    def runs(self) -> list[memoryview]:
        """The remaining batches as views, without those of aborted transactions; control batches are
        included.
        """
        if self._index == 0:
            return without_aborted(self.topic_partition, self.records, self._headers, self._aborted)
        left = self._headers[self._index :]
        return (
            without_aborted(
                self.topic_partition, self.records[: left[-1][0] + left[-1][1].size], left, self._aborted
            )
            if left
            else []
        )

    def _decode(
        self,
        at: int,
        header: BatchHeader,
        make: Callable[[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]], Made],
    ) -> list[Made]:
        body: Buffer = self.records[at + HEADER_SIZE : at + header.size]
        if header.is_control:
            self._aborted.marker(header, body)
            return []
        if header.is_transactional and self._aborted.covers(header):
            return []
        if header.is_compressed:
            body = decompress(codec_of(header), body)
        append_timestamp = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
        made: list[Made] = scan.records(
            body,
            0,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            append_timestamp,
            self.position,
            make,
        )
        return made


class Aborted:
    """The producers with an aborted transaction at the current offset, from the list in a read_committed
    Fetch response.
    """

    __slots__ = ("_open", "_waiting")

    def __init__(self, transactions: list[AbortedTransaction]) -> None:
        self._waiting = sorted(transactions, key=lambda transaction: transaction.first_offset, reverse=True)
        self._open: dict[int, None] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no further batch has to be left out."""
        return not self._waiting and not self._open

    def covers(self, header: BatchHeader) -> bool:
        """Whether the next batch of the log, one of a transaction, belongs to an aborted transaction."""
        self._reach(header)
        return header.producer_id in self._open

    def marker(self, header: BatchHeader, body: Buffer) -> None:
        """Take the next batch of the log, a control batch: it may end an aborted transaction."""
        self._reach(header)
        if not self._open:
            return
        keys = scan.records(
            body, 0, header.record_count, header.base_offset, header.base_timestamp, None, 0, _key
        )
        if any(control_type(key) is ControlType.ABORT for key in keys):
            self._open.pop(header.producer_id, None)

    def _reach(self, header: BatchHeader) -> None:
        """Called for markers too: a range may begin between the records of a transaction and its marker."""
        while self._waiting and self._waiting[-1].first_offset <= header.last_offset:
            self._open[self._waiting.pop().producer_id] = None


def without_aborted(
    partition: TopicPartition, records: memoryview, headers: list[tuple[int, BatchHeader]], aborted: Aborted
) -> list[memoryview]:
    """The batches without those of aborted transactions, as few views in the order of the log; raises
    CorruptRecords.
    """
    if not headers:
        return []
    if aborted.is_empty:
        return [records[headers[0][0] : headers[-1][0] + headers[-1][1].size]]
    runs: list[memoryview] = []
    begin = end = headers[0][0]
    for at, header in headers:
        size = header.size
        if header.is_control:
            try:
                aborted.marker(header, records[at + HEADER_SIZE : at + size])
            except (ValueError, DecodeError) as error:
                raise CorruptRecords(partition, header.base_offset, str(error)) from error
        elif header.is_transactional and aborted.covers(header):
            if end > begin:
                runs.append(records[begin:end])
            begin = at + size
        end = at + size
    if end > begin:
        runs.append(records[begin:end])
    return runs


def _key(
    _offset: int, _timestamp: int, key: bytes | None, _value: bytes | None, _headers: object
) -> bytes | None:
    return key


def whole_batches(
    records: memoryview, *, check_crcs: bool
) -> tuple[list[tuple[int, BatchHeader]], str | None]:
    """The position and header of the whole and sound batches at the front, and the fault of the next one, if
    it has one.
    """
    try:
        return scan.headers(records, check_crcs), None
    except ValueError as refused:
        reason, wrong_at = str(refused.args[2]), int(refused.args[1])
    return list(_before(records, wrong_at)), reason


def _before(records: memoryview, limit: int) -> Iterator[tuple[int, BatchHeader]]:
    """The headers of batches that end at or before `limit`."""
    at = 0
    while at + HEADER_SIZE <= limit:
        header = read_header(records, at)
        if at + header.size > limit:
            return
        yield at, header
        at += header.size
