"""The transactions of one partition: the first offsets of the open ones, and the unreplicated ones, which
ended but are not committed yet.

    open ── marker appended ──► ended, kept until the high watermark passes the marker ──► decided for all
              └─ ABORT ──► an entry of the `.txnindex`                                     readers

The last stable offset is the first offset of the first open or unreplicated transaction, and the high
watermark if there is none (KIP-98).
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import chain

import msgspec

from sparklog.errors import DecodeError, ErrorCode
from sparklog.model import Offset
from sparklog.record.batch import CONTROL_BIT, LENGTH_OVERHEAD, TRANSACTIONAL_BIT, BatchHeader, decode_records
from sparklog.record.control import ControlType, Marker, parse_control
from sparklog_server.log.segment.txn_index import AbortedTxn

from .producer_state import ProducerState
from .validate import Buffer, RecordsRefused


class Ended(msgspec.Struct, frozen=True):
    """The changes that batches about to be appended make. `unreplicated` has (first offset, offset of the
    marker) of each transaction that they end.

    `changed` maps each producer to the first offset of the transaction that it begins, or to None if its
    transaction ends.
    """

    changed: dict[int, int | None]
    unreplicated: list[tuple[int, int]]
    aborted: list[AbortedTxn]
    coordinator_epochs: dict[int, int]


NONE_ENDED = Ended({}, [], [], {})
"""Of batches that belong to no transaction."""


class OngoingTransactions:
    """The open and the unreplicated transactions of one partition. Invariant: open transactions, by producer
    id, are in the order of their first offsets.
    """

    __slots__ = ("_open", "_unreplicated")

    def __init__(self, producers: ProducerState, unreplicated: Iterable[tuple[int, int]] = ()) -> None:
        """`unreplicated` has (first offset, offset of the marker) of each transaction whose marker may not be
        committed.
        """
        starts = [
            (one.transaction_start, producer_id)
            for producer_id, one in producers.producers.items()
            if one.transaction_start >= 0
        ]
        # Ordered: a plain dict is searched from its beginning for the first remaining key, which takes
        # milliseconds with many transactions.
        self._open = OrderedDict((producer_id, start) for start, producer_id in sorted(starts))
        self._unreplicated = sorted(unreplicated)  # a heap

    @property
    def unreplicated(self) -> tuple[tuple[int, int], ...]:
        """(first offset, offset of the marker) of each transaction whose marker may not be committed."""
        return tuple(self._unreplicated)

    def began(self, producer_id: int, offset: Offset) -> None:
        """Note that a batch of a transaction was appended at `offset`, its first or a later one."""
        self._open.setdefault(producer_id, offset)

    def judge(self, view: memoryview, found: Sequence[tuple[int, BatchHeader]]) -> Ended:
        """The transactions that these batches will begin and end, at their positions in `view`; nothing is
        changed yet. Raises RecordsRefused.
        """
        found = [one for one in found if one[1].producer_id >= 0 and one[1].attributes & TRANSACTIONAL_BIT]
        if not found:
            return NONE_ENDED
        ended = Ended({}, [], [], {})
        changed = ended.changed
        for position, header in found:
            producer_id = header.producer_id
            if not header.attributes & CONTROL_BIT:
                if changed.get(producer_id) is None and (
                    producer_id in changed or producer_id not in self._open
                ):
                    changed.pop(producer_id, None)  # it may have ended one before: the new one is the last
                    changed[producer_id] = header.base_offset
                continue
            marker = marker_of(view[position : position + header.length + LENGTH_OVERHEAD])
            if marker is None:
                if header.record_count:
                    message = (
                        f"The control batch at offset {header.base_offset} of producer {producer_id} ends no "
                        "transaction."
                    )
                    raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, message)
                continue  # compaction removed the whole transaction
            ended.coordinator_epochs[producer_id] = marker.coordinator_epoch
            first_offset = changed[producer_id] if producer_id in changed else self._open.get(producer_id)
            changed[producer_id] = None
            if first_offset is None:
                continue  # a marker of a transaction without records in this partition
            last_offset = header.base_offset + header.last_offset_delta
            ended.unreplicated.append((first_offset, last_offset))
            if marker.type is ControlType.ABORT:
                last_stable_offset = self._first_open(changed, last_offset + 1)
                ended.aborted.append(AbortedTxn(producer_id, first_offset, last_offset, last_stable_offset))
        return ended

    def _first_open(self, changed: dict[int, int | None], default: int) -> int:
        """The first offset of the first open transaction, with `changed` applied."""
        unchanged = (start for producer_id, start in self._open.items() if producer_id not in changed)
        begun = (start for start in changed.values() if start is not None)
        return next(chain(unchanged, begun), default)

    def ended(self, ended: Ended, producers: ProducerState) -> None:
        """Apply the changes of batches that are in the log now; `producers` have the batches already."""
        for producer_id, start in ended.changed.items():
            self._open.pop(producer_id, None)
            if start is not None:
                self._open[producer_id] = start
        for producer_id, coordinator_epoch in ended.coordinator_epochs.items():
            producers.decided(producer_id, coordinator_epoch)
        for one in ended.unreplicated:
            heappush(self._unreplicated, one)

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """The offset below which every record is committed and of no open transaction. The high watermark
        must not decrease between two calls, except to the end of a log that was truncated.
        """
        unreplicated = self._unreplicated
        if not unreplicated and not self._open:
            return high_watermark
        while unreplicated and unreplicated[0][1] < high_watermark:
            heappop(unreplicated)
        first = unreplicated[0][0] if unreplicated else high_watermark
        return Offset(min(high_watermark, first, next(iter(self._open.values()), high_watermark)))


def marker_of(batch: Buffer) -> Marker | None:
    """The marker in a control batch; None if compaction removed it, or if the record is not a marker."""
    try:
        records = decode_records(batch, include_control=True)
        said = parse_control(records[0]) if records else None
    except DecodeError:
        return None
    return said if isinstance(said, Marker) else None
