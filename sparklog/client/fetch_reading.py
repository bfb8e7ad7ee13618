"""One partition that a consumer reads."""

from collections import deque
from dataclasses import dataclass, field

from sparklog.client.chunk import Chunk
from sparklog.errors import SparklogError
from sparklog.model import Micros, TopicPartition

_AT_ONCE = Micros(0)


@dataclass(slots=True, eq=False)
class Reading:
    """The state of one partition that a consumer reads. Invariants: without a position, `position` is None;
    each chunk begins where the one before it ends, and the last ends at `fetch_offset`.
    """

    topic_partition: TopicPartition
    generation: int
    position: int | None = None
    fetch_offset: int = 0
    chunks: deque[Chunk] = field(default_factory=deque)
    error: SparklogError | None = None  # raised after earlier fetched records are handed out
    reset_to: int | None = None  # a timestamp for ListOffsets
    last_epoch: int = -1  # of the last batch fetched
    consumed_epoch: int = -1  # of the last batch handed out
    valid_epoch: int = -1  # the leader epoch for which the position has been validated
    is_asked: bool = False
    is_held: bool = False  # the group's committed offset is being looked up
    is_paused: bool = False
    not_before: Micros = _AT_ONCE
