"""The leader epochs of a partition with their start offsets: the `leader-epoch-checkpoint`, held in memory.

Followers and leaders compare these to find the offset at which two logs diverge (KIP-101, KIP-279). An entry
is an epoch and the offset of its first record.
"""

from bisect import bisect_left, bisect_right

from sparklog.model import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset, OffsetAndEpoch
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_lines, render_lines

EPOCH_FILE = "leader-epoch-checkpoint"


class LeaderEpochCache:
    """The leader epochs of one log. Invariants: epochs and start offsets both grow strictly; `is_saved` is
    true while the file holds exactly these entries; `latest` is the newest epoch, -1 if there is none.
    """

    __slots__ = ("_epochs", "_starts", "is_saved", "latest")

    def __init__(self) -> None:
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[Offset] = []
        self.latest = NO_EPOCH
        self.is_saved = True

    @classmethod
    def parse(cls, content: bytes) -> "LeaderEpochCache":
        """The entries of a checkpoint file. Raises CheckpointCorrupt."""
        cache = cls()
        for entry in parse_lines(content):
            try:
                epoch, start = map(int, entry)
            except ValueError as error:
                raise CheckpointCorrupt(str(error)) from error
            if (
                epoch < 0
                or start < 0
                or (cache._epochs and (epoch <= cache._epochs[-1] or start < cache._starts[-1]))
            ):
                raise CheckpointCorrupt(f"epoch {epoch} from {start} after {cache.entries[-1:]}")
            cache.assign(LeaderEpoch(epoch), Offset(start))
        cache.is_saved = True
        return cache

    def render(self) -> bytes:
        """The content of the checkpoint file."""
        return render_lines(f"{epoch} {start}" for epoch, start in self.entries)

    @property
    def entries(self) -> list[tuple[LeaderEpoch, Offset]]:
        """(epoch, offset of its first record), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Let `epoch` begin at `start_offset`. Contradicting entries are removed; an earlier start of the
        same epoch stays.
        """
        if epoch < 0 or (self._epochs and epoch <= self._epochs[-1] and start_offset >= self._starts[-1]):
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._drop_from(len(self._epochs) - 1)
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch
        self.is_saved = False

    def truncate_end(self, offset: Offset) -> None:
        """Remove the epochs that began at `offset` or later."""
        keep = bisect_left(self._starts, offset)
        if keep < len(self._starts):
            self._drop_from(keep)

    def truncate_start(self, offset: Offset) -> None:
        """Remove the epochs that ended before `offset`; the epoch of `offset` begins there now."""
        keep = bisect_right(self._starts, offset) - 1
        if keep > 0 or (keep == 0 and self._starts[0] < offset):
            del self._epochs[:keep]
            del self._starts[:keep]
            self._starts[0] = offset
            self.is_saved = False

    def _drop_from(self, index: int) -> None:
        del self._epochs[index:]
        del self._starts[index:]
        self.latest = self._epochs[-1] if self._epochs else NO_EPOCH
        self.is_saved = False

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch of the record at `offset`; -1 if it is not known."""
        found = bisect_right(self._starts, offset)
        return self._epochs[found - 1] if found else NO_EPOCH

    def end_offset(self, epoch: LeaderEpoch, log_end_offset: Offset) -> OffsetAndEpoch:
        """The greatest epoch not above `epoch`, and its end offset; (-1, -1) if `epoch` is newer than all, or
        no epoch is known.
        """
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return OffsetAndEpoch(NO_OFFSET, NO_EPOCH)
        if epoch == self._epochs[-1]:
            return OffsetAndEpoch(log_end_offset, epoch)
        higher = bisect_right(self._epochs, epoch)
        if higher == 0:
            return OffsetAndEpoch(self._starts[0], epoch)
        return OffsetAndEpoch(self._starts[higher], self._epochs[higher - 1])
