"""How far the reassignments are of the partitions that this node leads, from report to report.

A reassignment waits until every replica that it adds, or that stays, is in sync. One of these makes progress
if it joins the ISR, or lacks fewer records than ever before. Many wait for their turn where a throttle is
set; none makes progress if a node is down, or if a throttle is below what producers write.
"""

from collections.abc import Iterator

from sparklog.model import Instant, NodeId, TopicPartition
from sparklog_server import metrics
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metrics_text import Text
from sparklog_server.replica.leader import LeaderReplica
from sparklog_server.replica.partition import Partition


class ReassignmentProgress:
    """`look` at each partition that is being reassigned, then `render` once, which ends the report."""

    def __init__(self) -> None:
        self._fewest: dict[tuple[TopicPartition, NodeId], int] = {}  # records that a replica has ever lacked
        self._awaited: dict[tuple[TopicPartition, NodeId], int] = {}  # the same, in this report
        self._progressed_us = 0
        self._count = self._behind = 0

    def look(self, partition: Partition, image: PartitionImage, leader: LeaderReplica) -> None:
        """Count a partition that is being reassigned."""
        self._count += 1
        start, end = partition.log.log_start_offset, partition.log.log_end_offset
        for node, progress in leader.followers.items():
            if node not in image.removing_replicas and node not in leader.isr.committed:
                self._behind += max(end - max(progress.log_end_offset, start), 0)
                # From the replica's own end, also one below the log start: retention is no progress.
                self._awaited[partition.topic_partition, node] = max(end - progress.log_end_offset, 0)

    def render(self, text: Text, now: Instant) -> Iterator[str]:
        """The sums over the partitions looked at since the last time."""
        if not self._fewest or any(
            one not in self._awaited or self._awaited[one] < fewest for one, fewest in self._fewest.items()
        ):
            self._progressed_us = now.mono_us
        stalled_us = now.mono_us - self._progressed_us if self._awaited else 0
        yield text.one(metrics.REASSIGNING, self._count)
        yield text.one(metrics.REASSIGNMENT_BEHIND, self._behind)
        yield text.one(metrics.REASSIGNMENT_STALLED, stalled_us / 1e6)
        self._fewest = {
            one: min(records, self._fewest.get(one, records)) for one, records in self._awaited.items()
        }
        self._awaited = {}
        self._count = self._behind = 0
