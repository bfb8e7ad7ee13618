"""The progress of loading one shard, window by window."""

from collections.abc import Iterator

from sparklog.effects import FileSlice
from sparklog.model import Instant, Offset
from sparklog_server.metadata.entries import TopicImage

from .load_window import WINDOW_BYTES, Step, Window
from .partition_writer import ShardPartition


class CoordinatorLoader:
    """The load of one shard, from `offset` to `end_offset`, the log end offset when the load began.

    `steps` are the steps of the window that is being replayed.
    """

    __slots__ = ("begun", "deleted", "end_offset", "offset", "steps")

    def __init__(self, offset: Offset, end_offset: Offset, begun: Instant) -> None:
        self.offset = offset
        self.end_offset = end_offset
        self.begun = begun
        self.steps: Iterator[Step] | None = None
        self.deleted: list[TopicImage] = []  # during the load: replayed records may name them

    def next_window(self, partition: ShardPartition) -> FileSlice | None:
        """The next window to read; None after the last. Raises Refused and StorageError."""
        return partition.read(self.offset, self.end_offset, WINDOW_BYTES)

    def took(self, window: Window) -> None:
        """Take a window that was read: `steps` are to be replayed next."""
        self.steps, self.offset = window.steps(), window.next_offset
