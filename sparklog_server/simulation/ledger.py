"""The committed batches of a run: the first node that reports an offset as committed adds its batch, and
later reports are compared with it.
"""

from struct import Struct
from typing import NamedTuple
from zlib import crc32

from sparklog.model import LeaderEpoch, NodeId, Offset
from sparklog_server.simulation.world import Violation

_BATCH = Struct(">qI")


class Committed(NamedTuple):
    """One committed batch: `[base, limit)`, its epoch and its checksum."""

    base: Offset
    limit: Offset
    epoch: LeaderEpoch
    crc: int


class Ledger:
    """The committed batches by base offset. Invariant: they have neither gaps nor overlaps below `end`, but
    for `unseen`: the ranges `[from, to)` of records that were deleted in the turn that committed them.

    `states` has the state at the limit of each batch: that of a node that has replayed up to there, and the
    content of a snapshot of that offset.
    """

    def __init__(self) -> None:
        self.end = Offset(0)
        self.unseen: list[tuple[Offset, Offset]] = []
        self.batches: dict[Offset, Committed] = {}
        self.states: dict[Offset, tuple[LeaderEpoch, int]] = {Offset(0): (LeaderEpoch(0), 0)}

    def deleted(self, until: Offset) -> None:
        """Records below `until` were deleted before they were seen here."""
        self.unseen.append((self.end, until))
        self.states[until] = self.states[self.end]
        self.end = until

    def was_unseen(self, offset: Offset) -> bool:
        """Whether the record was deleted before it was seen here."""
        return any(start <= offset < end for start, end in self.unseen)

    def committed(self, node: NodeId, batch: Committed) -> None:
        """A node reports a batch as committed; raises Violation if another one was committed there."""
        known = self.batches.get(batch.base)
        if known is not None:
            if known != batch:
                raise Violation("committed-changed", f"node {node} committed {batch}, but {known} was there")
        elif self.was_unseen(batch.base):
            self.batches[batch.base] = batch
        elif batch.base != self.end:
            raise Violation(
                "committed-gap", f"node {node} committed {batch}, but the ledger ends at {self.end}"
            )
        else:
            self.batches[batch.base] = batch
            _, state = self.states[self.end]
            self.states[batch.limit] = (batch.epoch, crc32(_BATCH.pack(batch.base, batch.crc), state))
            self.end = batch.limit
