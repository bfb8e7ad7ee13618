"""The committed metadata on every node: the image below the high watermark, and the changes that lead to it.

    own log, below the high watermark ── decoded ───────────┐
    records that the active controller has decoded before ──┼──► image, deltas, snapshots
    a snapshot of the leader, installed ── compared ────────┘

Nothing is published before this process has learned of a high watermark, so the first delta leads from the
empty image to the whole cluster. A voter decodes its log before it takes part (`read_ahead`): a new leader
that replayed it first would be silent for so long that the others elect another one.
"""

from collections.abc import Iterator

import msgspec

from sparklog.errors import DecodeError
from sparklog.model import LeaderEpoch, Offset
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.snapshot_generator import SnapshotGenerator
from sparklog_server.disk.door import StorageError
from sparklog_server.metadata.image import MetadataDelta, MetadataImage, difference
from sparklog_server.metadata.records import records_of
from sparklog_server.raft.node import RaftNode


class ReadAhead(msgspec.Struct, frozen=True):
    """The changes from the empty image to the records below `end_offset`, the last of which is of `epoch`."""

    end_offset: Offset
    epoch: LeaderEpoch
    delta: MetadataDelta


class MetadataLog:
    """The image of a node. `deltas` wait to be taken by the broker.

    Invariants: `image` holds exactly the records below `end_offset`, and is a function of them alone, so the
    images of two nodes at one offset are equal; `end_offset` is the end of a batch, and at most the high
    watermark.
    """

    def __init__(self, raft: RaftNode, snapshots: SnapshotGenerator) -> None:
        self.image = MetadataImage()
        self.end_offset = Offset(0)
        self.deltas: list[MetadataDelta] = []
        self.unclean_elections = 0  # since the start
        self._raft = raft
        self._snapshots = snapshots
        self._ahead: ReadAhead | None = None  # until something is published

    def read_ahead(self) -> None:
        """Decode the whole log of a node that has published nothing yet."""
        durable = self._raft.durable
        end_offset, epoch = durable.end_offset, durable.last_epoch
        try:
            _, delta = self.image.apply(self.records(end_offset))
        except (StorageError, DecodeError):
            return  # the record may not be committed, nor the file be needed: `follow` reports them
        if delta.after.offset >= 0:
            self._ahead = ReadAhead(end_offset, epoch, delta)

    def ahead(self) -> ReadAhead | None:
        """What was read ahead, if nothing is published and the log still begins with these records."""
        ahead, durable = self._ahead, self._raft.durable
        if ahead is None or durable.log.log_start_offset > ahead.end_offset:
            return None
        # The log has the records of this epoch up to there, and so all before them (Raft, log matching).
        found = durable.end_of_epoch(ahead.epoch)
        is_same = found.epoch == ahead.epoch and found.offset >= ahead.end_offset
        return ahead if is_same else None

    def follow(self) -> None:
        """Publish the records that were committed since the last publication. Raises StorageError,
        DecodeError.
        """
        raft = self._raft
        high_watermark = raft.high_watermark
        if high_watermark <= self.end_offset or raft.durable.is_cutting:
            return
        if (ahead := self.ahead()) is not None and ahead.end_offset <= high_watermark:
            self.publish(ahead.delta, ahead.end_offset)
        if 0 < self.end_offset < raft.log.log_start_offset:
            delta = self._replaced(high_watermark)
        else:
            _, delta = self.image.apply(self.records(high_watermark))
        self.publish(delta, high_watermark)

    def publish(self, delta: MetadataDelta, end_offset: Offset, size: int = 0) -> None:
        """The records below `end_offset` are committed, and lead by `delta` to a new image. `size` is that of
        the records which were appended here rather than read.
        """
        self.end_offset = end_offset
        self._ahead = None
        self._snapshots.grown(size)
        if delta.after.offset != self.image.offset:
            if self.image.offset >= 0:  # else the delta is that of a start
                self.unclean_elections += sum(
                    one.after.is_recovering and one.before is not None and not one.before.is_recovering
                    for one in delta.partitions_changed
                )
            self.image = delta.after
            self.deltas.append(delta)

    def records(self, limit: Offset, start: Offset | None = None) -> Iterator[tuple[Offset, Message]]:
        """The records of `[start, limit)`, committed or not; `start` is `end_offset` if it is not given.
        Where the log does not have all of them, those of the newest snapshot come first, at the offset of the
        last record that it covers. Raises StorageError, DecodeError.
        """
        durable = self._raft.durable
        begin = self.end_offset if start is None else start
        start = max(begin, durable.log.log_start_offset)
        if begin == 0 or begin < start:
            snapshot = durable.load_snapshot()
            if snapshot is not None:
                start = snapshot.id.offset
                for _, record in records_of(snapshot.batches):
                    yield Offset(start - 1), record
        for batches in durable.read(start, limit):
            self._snapshots.grown(len(batches))
            yield from records_of(batches)

    def _replaced(self, high_watermark: Offset) -> MetadataDelta:
        """The changes from the image to that of a snapshot which has taken the place of the log."""
        self._snapshots.installed()
        after, _ = MetadataImage().apply(self.records(high_watermark))
        return difference(self.image, after)
