"""The partition in which a shard lives, as its runtime sees it."""

from collections.abc import Callable
from typing import Protocol

from sparklog.effects import FileSlice
from sparklog.model import Instant, LeaderEpoch, Offset
from sparklog.record.control import Marker


class ShardPartition(Protocol):
    """The partition of a shard, as long as this node leads it in `leader_epoch`."""

    @property
    def leader_epoch(self) -> LeaderEpoch | None:
        """None once this node no longer leads it."""

    @property
    def log_start_offset(self) -> Offset:
        """Where its log begins."""

    @property
    def log_end_offset(self) -> Offset:
        """Where the next record will be written."""

    @property
    def high_watermark(self) -> Offset:
        """The end of what is committed."""

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that it takes."""

    def append(self, batch: bytearray, now: Instant) -> Offset:
        """Append a batch; its base offset. Raises Refused."""

    def append_in_transaction(self, batch: bytearray, proof: object, now: Instant) -> Offset:
        """Append a batch of a producer's transaction; its base offset. Raises Refused."""

    def append_marker(
        self, marker: Marker, producer: tuple[int, int], *, is_bumped: bool, now: Instant
    ) -> Offset:
        """Append the end of the transaction of a producer, its id and epoch; `is_bumped` as KIP-890 has
        it. Raises Refused.
        """

    def park(self, until: Offset, wake: Callable[[Instant], None]) -> None:
        """Call `wake` within a turn when the high watermark reaches `until`, or leadership is lost. Raises
        Refused.
        """

    def read(self, start: Offset, limit: Offset, bytes_max: int) -> FileSlice | None:
        """Whole batches of `[start, limit)`, one at least; None if there are none. Raises Refused."""

    def offset_behind(self, part: FileSlice) -> Offset | None:
        """Where the segment begins that follows the one whose file `part` is of; None if none does."""
