"""The checkpoint of recovery points, written by itself: twice a second while records are synced, for
thousands of partitions.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.effects import Steps
from sparklog.model import Offset, TopicPartition
from sparklog_server.disk.checkpoint import render_lines
from sparklog_server.disk.door import Disk

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
_LINES_PER_STEP = 256


def write_recovery_points(
    disk: Disk, path: str, recovery_points: Mapping[TopicPartition, Offset]
) -> Steps[None]:
    """Write the checkpoint in the directory at `path`, in steps. The steps block and raise StorageError."""
    lines: list[str] = []
    for topic_partition, offset in recovery_points.items():
        if len(lines) % _LINES_PER_STEP == 0:
            yield
        lines.append(f"{topic_partition.topic} {topic_partition.partition} {offset}")
    yield
    disk.write(f"{path}/{RECOVERY_POINT_FILE}", render_lines(lines))
