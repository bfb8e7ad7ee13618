"""The segments of a log for a job: read through its own handles, up to the sizes at its start."""

from collections.abc import Sequence
from typing import overload

from sparklog_server.disk.door import Disk, DiskFile
from sparklog_server.log.segment.segment import Segment

Part = tuple[Segment, DiskFile, int]
"""A segment of the loop, its file and the size of that, as of the turn that begins the job."""


def parts_of(segments: Sequence[Segment]) -> list[Part]:
    """The parts of the segments that `Twins` needs, copied in the turn that starts the job."""
    return [(segment, segment.file, segment.file.size) for segment in segments]


class Twins(Sequence[Segment]):
    """Opens each segment at the first access."""

    def __init__(self, disk: Disk, parts: Sequence[Part]) -> None:
        self._disk = disk
        self._parts = parts
        self._twins: dict[int, Segment] = {}

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> "Twins": ...
    def __getitem__(self, index: int | slice) -> "Segment | Twins":
        if isinstance(index, slice):
            return Twins(self._disk, self._parts[index])
        if index < 0:
            index += len(self._parts)
        twin = self._twins.get(index)
        if twin is None:
            segment, _, size = self._parts[index]
            twin = Segment.open(self._disk, segment.directory, segment.base_offset)
            twin.file.pin()
            twin.file.size = min(twin.file.size, size)
            twin.has_aborted = segment.has_aborted
            twin.settle()
            self._twins[index] = twin
        return twin
