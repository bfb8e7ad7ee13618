"""The records of one Fetch: aborted transactions are left out by their headers, wherever reading begins."""

import random

import pytest

from sparklog.client.consumer.chunk import Aborted, Chunk, whole_batches, without_aborted
from sparklog.client.failures import CorruptRecords
from sparklog.model import TopicPartition
from sparklog.record.batch import build_batch, decode_records, iterate_headers
from sparklog.record.control import ControlType, Marker, build_marker
from sparklog.wire.messages.fetch import AbortedTransaction

T0 = TopicPartition("t", 0)


class Log:
    """A log of transactions of several producers: its bytes, the records of a read_committed reader, and
    the aborted ones.
    """

    def __init__(self) -> None:
        self.records = bytearray()
        self.end = 0
        self.batches: list[tuple[int, int, int]] = []  # producer id (-1 for none), offsets [first, limit)
        self.firsts: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first offset, offset of the marker

    def write(self, producer_id: int = -1, count: int = 2) -> None:
        made = [(None, b"v", (), 0)] * count
        is_transactional = producer_id >= 0
        self.records += build_batch(
            made,
            base_offset=self.end,
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            is_transactional=is_transactional,
        )
        if is_transactional:
            self.firsts.setdefault(producer_id, self.end)
        self.batches.append((producer_id, self.end, self.end + count))
        self.end += count

    def mark(self, producer_id: int, kind: ControlType) -> None:
        first = self.firsts.pop(producer_id)
        if kind is ControlType.ABORT:
            self.aborted.append((producer_id, first, self.end))
        self.records += marker(kind, producer_id, self.end)
        self.end += 1

    def committed(self, start: int) -> list[int]:
        """The offsets from `start` on that were not aborted."""
        gone = [(pid, first, marker) for pid, first, marker in self.aborted]
        return [
            offset
            for producer_id, first, limit in self.batches
            for offset in range(first, limit)
            if offset >= start
            and not any(pid == producer_id and begin <= offset < end for pid, begin, end in gone)
        ]

    def fetched(self, start: int) -> tuple[memoryview, list[AbortedTransaction]]:
        """A broker's reply to a read_committed Fetch from `start` on: whole batches, and what was
        aborted at or after that.
        """
        at = next(at for at, header in iterate_headers(self.records) if header.next_offset > start)
        aborted = [
            AbortedTransaction(pid, first)
            for pid, first, end in sorted(self.aborted, key=lambda one: one[1])
            if end >= start
        ]
        return memoryview(bytes(self.records))[at:], aborted


def marker(kind: ControlType, producer_id: int, offset: int) -> bytes:
    return bytes(
        build_marker(
            Marker(kind, 0), producer_id=producer_id, producer_epoch=0, base_offset=offset, timestamp_ms=0
        )
    )


def by_record(log: Log, start: int) -> list[int]:
    records, aborted = log.fetched(start)
    headers, _ = whole_batches(records, check_crcs=True)
    chunk = Chunk(T0, records, headers, start=start, high_watermark=log.end, aborted=aborted)
    found: list[int] = []
    while not chunk.is_exhausted:
        found += chunk.next_batch(lambda offset, *_: offset)
    assert chunk.position == log.end, "also past a marker at the end"
    return found


def by_batch(log: Log, start: int) -> list[int]:
    records, aborted = log.fetched(start)
    headers, _ = whole_batches(records, check_crcs=True)
    return [
        record.offset
        for run in without_aborted(T0, records, headers, Aborted(aborted))
        for at, header in iterate_headers(run)
        if not header.is_control
        for record in decode_records(run[at : at + header.size])
        if record.offset >= start
    ]


def test_reading_that_begins_at_the_marker_of_an_aborted_transaction_loses_nothing_of_the_next() -> None:
    log = Log()
    log.write(7)
    log.mark(7, ControlType.ABORT)
    log.write(7)
    log.mark(7, ControlType.COMMIT)
    assert by_record(log, 2) == by_batch(log, 2) == [3, 4]


def test_any_history_is_read_as_it_was_committed_from_any_offset() -> None:
    chance = random.Random(4)
    for _ in range(40):
        log = Log()
        for _ in range(chance.randrange(1, 25)):
            if log.firsts and chance.random() < 0.4:
                log.mark(
                    chance.choice(sorted(log.firsts)), chance.choice((ControlType.ABORT, ControlType.COMMIT))
                )
            else:
                log.write(chance.choice((-1, 7, 8, 9)), chance.randrange(1, 4))
        for producer_id in sorted(log.firsts):
            log.mark(producer_id, chance.choice((ControlType.ABORT, ControlType.COMMIT)))
        for start in range(log.end):
            assert by_record(log, start) == by_batch(log, start) == log.committed(start)


def test_without_aborted_transactions_everything_is_one_view() -> None:
    log = Log()
    for _ in range(3):
        log.write(7)
        log.mark(7, ControlType.COMMIT)
    records, aborted = log.fetched(0)
    headers, _ = whole_batches(records, check_crcs=False)
    assert without_aborted(T0, records, headers, Aborted(aborted)) == [records]
    assert without_aborted(T0, records, [], Aborted(aborted)) == []


def test_a_marker_that_cannot_be_read_is_told_with_its_offset() -> None:
    log = Log()
    log.write(7)
    log.mark(7, ControlType.ABORT)
    broken = bytearray(log.records)
    broken[-8:] = b"\xff" * 8
    headers, _ = whole_batches(memoryview(broken), check_crcs=False)
    with pytest.raises(CorruptRecords) as failed:
        without_aborted(T0, memoryview(broken), headers, Aborted([AbortedTransaction(7, 0)]))
    assert failed.value.offset == 2
