"""The progress of loading one shard, and the damage on the way.

by offset, window by window ── damage ──► by position, the rest of that file ── its end ──► by offset
"""

from collections.abc import Callable, Iterator
from typing import Final

from sparklog.effects import FileSlice
from sparklog.model import Instant, Offset
from sparklog_server.metadata.entries import TopicImage

from .home import ShardPartition
from .load_window import WINDOW_BYTES, Lost, Step, Window
from .shard import Shard

_DOUBTS_TOLD_MAX: Final = 20


class CoordinatorLoader:
    """The load of one shard, from `offset` to `end_offset`, the log end offset when the load began.

    `rest` is the next window while a file is read by position; `steps` are the steps of the window that is
    being replayed.
    """

    __slots__ = (
        "_doubted",
        "_lost",
        "_name",
        "_reading",
        "begun",
        "deleted",
        "end_offset",
        "offset",
        "rest",
        "steps",
    )

    def __init__(self, name: str, offset: Offset, end_offset: Offset, begun: Instant) -> None:
        self.offset = offset
        self.end_offset = end_offset
        self.begun = begun
        self.steps: Iterator[Step] | None = None
        self.rest: FileSlice | None = None
        self.deleted: list[TopicImage] = []  # during the load: replayed records may name them
        self._name = name
        self._reading: FileSlice | None = None
        self._lost = 0
        self._doubted: dict[str, object] = {}

    def next_window(self, partition: ShardPartition) -> FileSlice | None:
        """The next window to read; None after the last. Raises Refused."""
        self._reading = self.rest or partition.read(self.offset, self.end_offset, WINDOW_BYTES)
        return self._reading

    def took(self, window: Window, partition: ShardPartition) -> None:
        """Take a window that was read: `steps` are to be replayed next."""
        self.steps, self.offset, self.rest = window.steps(), window.next_offset, window.rest
        if window.is_file_end and self._reading is not None:
            following = partition.offset_behind(self._reading)
            self.offset = self.end_offset if following is None else following

    def pass_over(self, lost: Lost, shard: Shard, trace: Callable[..., None]) -> None:
        """Report a stretch of the log without a sound batch."""
        self._lost += 1
        self._doubted.update(shard.unfinished())
        trace(
            "coordinator-batch-skipped",
            partition=self._name,
            file=lost.path,
            byte=lost.position,
            bytes=lost.limit - lost.start,
            offset=-1 if lost.offset is None else lost.offset,
            next_offset=-1 if lost.next_offset is None else lost.next_offset,
            reason=lost.reason,
            effect="for each key in it the previous record applies",
            remedy="stop the broker and run `sparklog log repair` on its directory",
        )

    def done(self, shard: Shard, trace: Callable[..., None]) -> None:
        """End the load: report the unfinished keys that have no record after an unreadable stretch."""
        now = shard.unfinished() if self._doubted else {}
        names = sorted(name for name, state in self._doubted.items() if now.get(name) is state)
        if names:
            trace(
                "coordinator-state-uncertain",
                partition=self._name,
                count=len(names),
                ids=",".join(names[:_DOUBTS_TOLD_MAX]),
                reason=f"{self._lost} unreadable stretches of the log may have newer records of these ids",
            )
