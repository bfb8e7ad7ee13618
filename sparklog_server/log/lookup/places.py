"""The read side of a log: from an offset to a segment and a position in it, and from there to a slice of
whole batches.
"""

from bisect import bisect_right

from sparklog.effects import FileSlice
from sparklog.model import Offset
from sparklog_server.disk.door import DiskFile, StorageError
from sparklog_server.log.segment.damage import log_dir_of, repair_remedy
from sparklog_server.log.segment.segment import Segment, base_offset_of, header_at

_PLACES_MAX = 256

Place = tuple[Segment, int]


class BrokenFrame(StorageError):
    """No batch can begin at `position` of a log, though bytes follow, so later batches cannot be found
    from there.
    """

    def __init__(self, file: DiskFile, position: int) -> None:
        reason = f"no batch begins at byte {position}"
        log_dir = log_dir_of(log_dir_of(file.path))
        super().__init__(file.path, "read", reason, remedy=repair_remedy(log_dir))
        self.file = file
        self.position = position


class Places:
    """Finds batches in the segments of a log; shares the list of segments and never changes it.

    Invariants: `segments` is sorted by base offset, and its last is the active one; a known place maps an
    offset to the segment and position of the first batch that reaches it. The places are never stale: a
    caller that truncates or replaces segments calls `clear`.
    """

    __slots__ = ("_known", "_segments")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._known: dict[int, Place] = {}

    def slice(
        self, start: Offset, limit: Offset, end_offset: Offset, max_bytes: int, *, at_least_one: bool
    ) -> FileSlice | None:
        """The whole batches of `[start, limit)`, which is not empty and within the log, as for
        `PartitionLog.read`.

        Raises BrokenFrame.
        """
        known = self._known
        place = known.get(start) or self._locate(start)
        if place is None:
            return None
        segment, position = place
        if limit == end_offset and segment is self._segments[-1]:
            end = segment.file.size
            if len(known) >= _PLACES_MAX:
                known.clear()
            known[limit] = (segment, end)
        else:
            end = self._end_within(segment, limit)
        length = end - position
        if length > max_bytes:
            length = self._whole_batches(segment, position, max_bytes, at_least_one=at_least_one)
        return FileSlice(segment.file, position, length) if length > 0 else None

    def holds_beyond(self, part: FileSlice, limit: Offset) -> bool:
        """Whether batches below `limit` follow a slice that `slice` returned for that limit."""
        for segment in reversed(self._segments):
            if segment.file is part.file:
                return part.position + part.length < self._end_within(segment, limit)
            if segment.base_offset < limit:
                return True
        return False

    def end_of(self, part: FileSlice, limit: Offset) -> Offset:
        """The end offset of a slice that `slice` returned for that limit, or the base offset of the next
        batch if that is higher.
        """
        for segment in reversed(self._segments):
            if segment.file is part.file:
                following = header_at(segment.file, part.position + part.length)
                return limit if following is None else Offset(min(following.base_offset, limit))
        return limit

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """Note that the first batch that reaches `offset` is at `position`."""
        if len(self._known) >= _PLACES_MAX:
            self._known.clear()
        self._known[offset] = (segment, position)

    def forget(self, offset: int) -> None:
        """Forget the positions of batches that reach `offset`."""
        self._known.pop(offset, None)

    def clear(self) -> None:
        """Forget all positions: segments were truncated or replaced."""
        self._known.clear()

    def _locate(self, offset: int) -> Place | None:
        """(segment, position) of the first batch that ends at `offset` or later."""
        index = max(bisect_right(self._segments, offset, key=base_offset_of) - 1, 0)
        for segment in self._segments[index:]:
            if offset <= segment.base_offset:
                if segment.file.size:
                    return segment, 0
                continue  # compaction removed the rest of the segment
            found = segment.find(offset)
            if found is not None:
                self.remember(offset, segment, found[0])
                return segment, found[0]
            _check_frames(segment, offset)
        return None

    def _end_within(self, segment: Segment, limit: int) -> int:
        """The position in `segment` where the batches below `limit` end."""
        place = self._known.get(limit)
        if place is not None and place[0] is segment:
            return place[1]
        segments = self._segments
        if segment is not segments[-1]:
            following = segments[bisect_right(segments, segment.base_offset, key=base_offset_of)]
            if limit >= following.base_offset:
                return segment.file.size
        found = segment.find(limit)
        if found is None:
            return segment.file.size
        self.remember(limit, segment, found[0])
        return found[0]

    def _whole_batches(self, segment: Segment, position: int, max_bytes: int, *, at_least_one: bool) -> int:
        """The size of the whole batches from `position` on that fit into `max_bytes`; they end before the
        segment does.
        """
        cut, next_offset = segment.boundary(position + max_bytes, at_least=position)
        if cut > position:
            self.remember(next_offset, segment, cut)
        elif at_least_one:
            first = header_at(segment.file, position)
            if first is None:
                raise BrokenFrame(segment.file, position)
            return first.size
        return cut - position


def _check_frames(segment: Segment, offset: int) -> None:
    """Check that the frames are intact up to the end of the segment if no batch of it reaches `offset`.
    Raises BrokenFrame.

    Offsets that compaction removed from the end of a segment are looked up here too, so the walk begins at
    the last index entry.
    """
    end = segment.last_indexed(offset)
    for position, header in segment.walk_from(end):
        end = position + header.size
    if end < segment.file.size:
        raise BrokenFrame(segment.file, end)
