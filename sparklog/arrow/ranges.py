"""Ranges of offsets, and the part of them that is no longer in the log."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparklog.errors import SparklogError
from sparklog.model import ZERO_UUID, Offset, TopicPartition, Uuid


class DataLoss(SparklogError):
    """Records that a read needs have been removed; names them, and how to continue without them."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `[start, limit)` of one partition."""

    partition: TopicPartition
    start: Offset
    limit: Offset
    topic_id: Uuid = ZERO_UUID
    """The id of the topic at planning; zeros if unknown, and then any topic of that name matches."""

    def __len__(self) -> int:
        return max(0, self.limit - self.start)

    def between(self, start: Offset, limit: Offset) -> "OffsetRange":
        """The same range with other offsets."""
        return OffsetRange(self.partition, start, limit, self.topic_id)


def lost(ranges: Iterable[OffsetRange], log_start: Mapping[TopicPartition, Offset]) -> list[str]:
    """One sentence for each range whose first records are lost: it starts below the log start offset, or
    its partition was deleted.
    """
    losses: list[str] = []
    for r in ranges:
        if r.partition not in log_start:
            losses.append(f"{r.partition} is gone, offsets {r.start} to {r.limit - 1} with it")
        elif r.start < log_start[r.partition]:
            last = min(r.limit, log_start[r.partition]) - 1
            losses.append(
                f"{r.partition}: offsets {r.start} to {last} are gone, the log starts at "
                f"{log_start[r.partition]}"
            )
    return losses


def without_lost(
    ranges: Iterable[OffsetRange], log_start: Mapping[TopicPartition, Offset]
) -> list[OffsetRange]:
    """The parts of `ranges` that are still in the log."""
    kept = (
        r.between(Offset(max(r.start, log_start[r.partition])), r.limit)
        for r in ranges
        if r.partition in log_start
    )
    return [r for r in kept if len(r)]


def loss_text(losses: Sequence[str], remedy: str) -> str:
    """The message about lost records."""
    return (
        f"records that this query has not read are lost: {'; '.join(losses)}. They were removed by retention "
        f"or DeleteRecords, or the topic was deleted. {remedy}"
    )
