"""Bounds that a filter on records implies, so that only a part of the log is read.

Arrow decides: a dataset drops the fragments whose guarantee contradicts the filter. A fragment without
content stands for the records below an offset, or of a partition; where Arrow cannot decide, they are read.
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sparklog.arrow.ranges import OffsetRange
from sparklog.model import Offset

TIME_MICROS_MAX: Final = 1 << 61
_FORMAT: Final = ds.IpcFileFormat()
_TIME: Final = pa.timestamp("us", tz="UTC")


class Predicate:
    """A filter on the columns of a schema."""

    def __init__(self, expression: pc.Expression, schema: pa.Schema) -> None:
        self._expression = expression
        self._schema = schema
        self.columns = tuple(name for name in schema.names if self._names(name))
        """The columns that the filter needs."""

    def bounded(self, pieces: list[OffsetRange]) -> list[OffsetRange]:
        """The parts of ranges whose records can pass, by topic, partition and offset."""
        named = {"topic", "partition", "offset"}.intersection(self.columns)
        if not named:
            return pieces
        return [piece for whole in pieces if (piece := self._bounded(whole)) is not None]

    def timestamp_ms(self) -> int:
        """The time before which no record passes; 0 if there is none. A time after which none passes is not
        told: later records of a log may have earlier timestamps.
        """
        if "timestamp" not in self.columns:
            return 0

        def is_below(limit: int) -> bool:
            return not self._may_pass(pc.field("timestamp") <= pa.scalar(limit - 1, _TIME))

        return _last(is_below, 0, TIME_MICROS_MAX) // 1000

    def _bounded(self, piece: OffsetRange) -> OffsetRange | None:
        here = (pc.field("partition") == piece.partition.partition) & (
            pc.field("topic") == piece.partition.topic
        )
        if not self._may_pass(here):
            return None
        if "offset" not in self.columns:
            return piece
        offset, limit = pc.field("offset"), piece.limit
        start = _last(lambda first: not self._may_pass(here & (offset <= first - 1)), piece.start, limit)
        after = _last(lambda count: not self._may_pass(here & (offset >= limit - count)), 0, limit - start)
        kept = piece.between(Offset(start), Offset(piece.limit - after))
        return kept if len(kept) else None

    def _may_pass(self, guarantee: pc.Expression) -> bool:
        fragment = _FORMAT.make_fragment(pa.py_buffer(b""), partition_expression=guarantee)
        dataset = ds.FileSystemDataset([fragment], self._schema, _FORMAT)
        return bool(list(dataset.get_fragments(filter=self._expression)))

    def _names(self, column: str) -> bool:
        """Whether the filter names the column: without it, Arrow refuses the filter."""
        less = self._schema.remove(self._schema.get_field_index(column))
        try:
            list(ds.FileSystemDataset([], less, _FORMAT).get_fragments(filter=self._expression))
        except pa.ArrowInvalid:
            return True
        return False


def _last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number of `[low, high]` that holds; `low` is known to. It was tried itself, so that it
    holds wherever else `holds` may not.
    """
    if low >= high or not holds(low + 1):
        return low
    low += 1
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
