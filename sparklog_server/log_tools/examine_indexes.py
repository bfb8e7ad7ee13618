"""Compares the entries of a segment's indexes with its batches during a walk over its log.

Each check knows the position or offset at which its next entry is due, so that a walk costs one comparison
per batch. For an entry that contradicts the batches the finding names the exact byte if it can be determined:
the log gives the correct value of each field.
"""

import sys
from struct import pack

from sparklog.record.batch import CONTROL_BIT, NO_TIMESTAMP, BatchHeader
from sparklog.record.control import ControlType
from sparklog_server.disk.door import DiskFile
from sparklog_server.log.producers.ongoing_transactions import marker_of
from sparklog_server.log.segment import offset_index, time_index
from sparklog_server.log.segment.offset_index import OffsetIndex
from sparklog_server.log.segment.segment import walk
from sparklog_server.log.segment.sound_batches import Batch
from sparklog_server.log.segment.time_index import TimeIndex
from sparklog_server.log.segment.txn_index import ENTRY_SIZE as TXN_ENTRY_SIZE
from sparklog_server.log.segment.txn_index import AbortedTxn, TxnIndexCorrupt, parse

from .finding import Finding

NEVER = sys.maxsize
REBUILD = "remove the file while the broker is stopped: it is rebuilt from the log"
HARMLESS = "nothing need be done: lookups begin with that batch, and older Kafkas wrote it so"
EMPTY = (
    "make an empty file of it while the broker is stopped: it is made anew from the log when a reader first "
    "needs it"
)


def written_entries(content: bytes, entry_size: int) -> tuple[bytes, int]:
    """The written entries, and the number of bytes after them: a running or killed broker leaves preallocated
    zeros there.
    """
    whole = len(content) - len(content) % entry_size
    end = len(content[:whole].rstrip(b"\0"))
    end += -end % entry_size
    return (content[:whole], 0) if end == whole else (content[:end], whole - end)


def odd_end(path: str, content: bytes, entry_size: int, remedy: str) -> list[Finding]:
    """A finding if the file does not end with a whole entry."""
    odd = len(content) % entry_size
    return (
        [
            Finding(
                path, len(content) - odd, f"{odd} bytes at the end are no whole entry of {entry_size}", remedy
            )
        ]
        if odd
        else []
    )


def altered_at(position: int, stored: bytes, due: bytes) -> int:
    """The byte of the file at which a field that begins at `position` first differs from its correct
    value.
    """
    return position + next(
        (at for at, (one, other) in enumerate(zip(stored, due, strict=True)) if one != other), 0
    )


class OffsetIndexCheck:
    """The `.index`: an entry must name the start of a batch and its last offset. `due` is the position of
    the next entry.
    """

    def __init__(self, path: str, content: bytes, base_offset: int) -> None:
        self.path = path
        self.findings = odd_end(path, content, offset_index.ENTRY_SIZE, REBUILD)
        self._base_offset = base_offset
        self._index = OffsetIndex(written_entries(content, offset_index.ENTRY_SIZE)[0])
        self._order = sorted(range(len(self._index)), key=self._index.positions.__getitem__)
        self._at = 0
        self._homeless: list[int] = []
        self._mismatched: dict[int, Finding] = {}  # by the position of the batch
        self.due = self._next_due()

    def _next_due(self) -> int:
        return self._index.positions[self._order[self._at]] if self._at < len(self._order) else NEVER

    def met(self, position: int, last_offset: int) -> int:
        """Compare every entry up to the batch at `position`, which the walk has reached; returns the position
        of the next entry.
        """
        while self.due <= position:
            entry = self._order[self._at]
            relative = self._index.offsets[entry]
            if self.due < position:
                self._homeless.append(entry)
            elif relative != last_offset - self._base_offset:
                at = altered_at(
                    entry * 8,
                    pack(">i", relative),
                    pack(">i", (last_offset - self._base_offset) & 0x7FFFFFFF),
                )
                what = (
                    f"entry {entry} says offset {self._base_offset + relative} for the batch at {position}, "
                    f"which ends with {last_offset}"
                )
                self._mismatched[position] = Finding(self.path, at, what, REBUILD)
            self._at += 1
            self.due = self._next_due()
        return self.due

    def forgive(self, position: int) -> None:
        """Drop the finding of an entry: the base offset of the batch at `position` is wrong, not the
        entry.
        """
        self._mismatched.pop(position, None)

    def passed_over(self, start: int, limit: int) -> int:
        """Skip entries that point into `[start, limit)`, where no batch is sound."""
        while self.due < limit:
            if self.due < start:
                self._homeless.append(self._order[self._at])
            self._at += 1
            self.due = self._next_due()
        return self.due

    def finish(self, log: DiskFile) -> None:
        """Check the entries that no batch has reached. Raises StorageError."""
        self.findings += self._mismatched.values()
        self._homeless += self._order[self._at :]
        wanted = {self._base_offset + self._index.offsets[entry] for entry in self._homeless}
        places: dict[int, int] = {}
        for position, header in walk(log, 0) if wanted else ():
            if header.last_offset in wanted:
                places[header.last_offset] = position
        for entry in sorted(self._homeless):
            position, offset = self._index.positions[entry], self._base_offset + self._index.offsets[entry]
            at = entry * 8 + 4
            due = places.get(offset)
            what = f"entry {entry} points to byte {position} of the log, where no batch begins"
            if due is not None:
                at = altered_at(at, pack(">i", position), pack(">i", due))
                what += f": the batch that ends with offset {offset} begins at {due}"
            self.findings.append(Finding(self.path, at, what, REBUILD))


class TimeIndexCheck:
    """Checks the `.timeindex`: the batch with an entry's offset must have the entry's timestamp, and no
    earlier batch a greater one.

    `due` is the offset of the next entry.
    """

    def __init__(self, path: str, content: bytes, base_offset: int) -> None:
        self.path = path
        self.findings = odd_end(path, content, time_index.ENTRY_SIZE, REBUILD)
        self._base_offset = base_offset
        self._index = TimeIndex(written_entries(content, time_index.ENTRY_SIZE)[0])
        self._order = sorted(range(len(self._index)), key=self._index.offsets.__getitem__)
        self._at = 0
        self._wrong: list[tuple[int, BatchHeader | None]] = []
        self.due = self._next_due()

    def _next_due(self) -> int:
        return (
            self._base_offset + self._index.offsets[self._order[self._at]]
            if self._at < len(self._order)
            else NEVER
        )

    def met(self, header: BatchHeader, greatest_before: int) -> int:
        """Compare every entry up to the last offset of this batch; returns the offset of the next entry."""
        last_offset = header.last_offset
        while self.due <= last_offset:
            entry = self._order[self._at]
            timestamp = self._index.timestamps[entry]
            if self.due < header.base_offset or timestamp != header.max_timestamp:
                self._wrong.append((entry, header if self.due == last_offset else None))
            elif self.due < last_offset:
                at = altered_at(
                    entry * 12 + 8,
                    pack(">i", self._index.offsets[entry]),
                    pack(">i", (last_offset - self._base_offset) & 0x7FFFFFFF),
                )
                what = f"entry {entry} says offset {self.due}, inside the batch that ends with {last_offset}"
                self.findings.append(Finding(self.path, at, what, HARMLESS, is_damage=False))
            elif greatest_before > timestamp:
                what = (
                    f"entry {entry} says {timestamp} is the greatest timestamp up to offset {self.due}, but "
                    f"{greatest_before} comes before"
                )
                self.findings.append(Finding(self.path, entry * 12, what, REBUILD))
            self._at += 1
            self.due = self._next_due()
        return self.due

    def passed_over(self) -> None:
        """Stop the check: the log or its offsets are damaged, so that entries cannot be compared."""
        self._wrong = []
        self._at = len(self._order)
        self.due = NEVER

    def finish(self, log: DiskFile, greatest: int, *, is_complete: bool) -> None:
        """Check the entries that no batch has confirmed; with `is_complete` the last must have the greatest
        timestamp. Raises StorageError.
        """
        if self.due != NEVER:
            self._wrong += [(entry, None) for entry in self._order[self._at :]]
        wanted = {self._index.timestamps[entry] for entry, _ in self._wrong}
        places: dict[int, int] = {}
        for _, found in walk(log, 0) if wanted else ():
            if found.max_timestamp in wanted:
                places.setdefault(found.max_timestamp, found.last_offset)
        for entry, header in sorted(self._wrong):
            # An earlier batch may have used this offset.
            if places.get(self._index.timestamps[entry]) != self._base_offset + self._index.offsets[entry]:
                self.findings.append(self._judge(entry, header, places))
        if is_complete and greatest > max(self._index.last[0], NO_TIMESTAMP) and not self.findings:
            what = f"ends with timestamp {self._index.last[0]}, but the log has {greatest}"
            self.findings.append(Finding(self.path, len(self._index) * 12, what, REBUILD))

    def _judge(self, entry: int, header: BatchHeader | None, places: dict[int, int]) -> Finding:
        timestamps = self._index.timestamps
        timestamp, relative = timestamps[entry], self._index.offsets[entry]
        what = (
            f"entry {entry} says timestamp {timestamp} at offset {self._base_offset + relative}, where the "
            "log has another"
        )
        is_in_order = (entry == 0 or timestamps[entry - 1] < timestamp) and (
            entry + 1 == len(timestamps) or timestamp < timestamps[entry + 1]
        )
        due = places.get(timestamp)
        if due is not None and (is_in_order or header is None):
            at = altered_at(
                entry * 12 + 8, pack(">i", relative), pack(">i", (due - self._base_offset) & 0x7FFFFFFF)
            )
            return Finding(self.path, at, f"{what}: that timestamp is at offset {due}", REBUILD)
        at = (
            entry * 12
            if header is None
            else altered_at(entry * 12, pack(">q", timestamp), pack(">q", header.max_timestamp))
        )
        return Finding(self.path, at, what if header is None else f"{what}: {header.max_timestamp}", REBUILD)


class TxnIndexCheck:
    """Checks the `.txnindex`: at an entry's last offset there must be the marker of its producer, unless
    compaction removed it; every aborted transaction with records must have an entry.

    `begun` has the producers with records since their last marker; it is kept from one segment to the next.
    """

    def __init__(self, path: str, content: bytes, base_offset: int, begun: dict[int, None]) -> None:
        self.path = path
        self.findings = odd_end(path, content, TXN_ENTRY_SIZE, EMPTY)
        self.entries: list[AbortedTxn] = []
        try:
            self.entries.extend(parse(content[: len(content) - len(content) % TXN_ENTRY_SIZE], base_offset))
        except TxnIndexCorrupt as error:
            self.findings.append(
                Finding(
                    path,
                    len(self.entries) * TXN_ENTRY_SIZE,
                    f"entry {len(self.entries)} cannot be: {error}",
                    EMPTY,
                )
            )
        self._open = {aborted.last_offset: number for number, aborted in enumerate(self.entries)}
        self._begun = begun
        self._without_entry: list[Batch] = []

    def met(self, position: int, header: BatchHeader) -> None:
        """Take the next batch of a transaction, or control batch, of the walk."""
        producer_id = header.producer_id
        if not header.attributes & CONTROL_BIT:
            if header.record_count:  # otherwise compaction has removed its record
                self._begun[producer_id] = None
            return
        had_records = self._begun.pop(producer_id, producer_id) is None
        number = self._open.pop(header.base_offset, None)
        if number is None:
            if had_records:
                self._without_entry.append((position, header))
        elif self.entries[number].producer_id != producer_id:
            at = altered_at(
                number * 34 + 2, pack(">q", self.entries[number].producer_id), pack(">q", producer_id)
            )
            what = (
                f"entry {number} says producer {self.entries[number].producer_id}, but the marker at "
                f"{header.base_offset} is of {producer_id}"
            )
            self.findings.append(Finding(self.path, at, what, EMPTY))

    def finish(self, log: DiskFile, end_offset: int) -> None:
        """Check the entries whose marker was not found, and the markers without an entry. Raises
        StorageError.
        """
        for _, header in walk(log, 0) if self._open else ():
            for offset in [
                offset for offset in self._open if header.base_offset <= offset <= header.last_offset
            ]:
                if not header.attributes & CONTROL_BIT:
                    self._not_there(offset)
        for offset in [offset for offset in self._open if offset >= end_offset]:
            self._not_there(offset)
        missing = [header for position, header in self._without_entry if _is_abort(log, position, header)]
        if missing:
            first = missing[0]
            what = (
                f"no entry tells of {len(missing)} aborted transactions, "
                f"the first of producer {first.producer_id} up to offset {first.base_offset}"
            )
            self.findings.append(Finding(self.path, None, what, EMPTY))

    def _not_there(self, offset: int) -> None:
        number = self._open.pop(offset)
        what = (
            f"entry {number} says that a transaction was aborted at offset {offset}, where the log has no "
            "marker"
        )
        self.findings.append(Finding(self.path, number * TXN_ENTRY_SIZE + 18, what, EMPTY))


def _is_abort(log: DiskFile, position: int, header: BatchHeader) -> bool:
    marker = marker_of(log.pread(position, header.size))
    return marker is not None and marker.type is ControlType.ABORT
