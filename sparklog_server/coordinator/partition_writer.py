"""The partition of a shard, as the runtime sees it."""

from collections.abc import Callable
from typing import Protocol

from sparklog.effects import FileSlice
from sparklog.model import Instant, LeaderEpoch, Offset
from sparklog.record.control import Marker


class LogMoved(Exception):
    """A batch was appended at another offset than expected: the log has batches that the shard did not
    replay.
    """


class ShardPartition(Protocol):
    """The partition of a shard, while this broker leads it in `leader_epoch`."""

    @property
    def leader_epoch(self) -> LeaderEpoch | None:
        """None if this broker no longer leads the partition."""

    @property
    def log_start_offset(self) -> Offset:
        """The log start offset."""

    @property
    def log_end_offset(self) -> Offset:
        """The log end offset."""

    @property
    def high_watermark(self) -> Offset:
        """The end of the committed records."""

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that the topic accepts."""

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
        """Whole batches of `[start, limit)`, one at least; None if there are none. Raises Refused, and
        StorageError if the log is damaged there.
        """
