"""The replicas of the partitions of a cluster: what one of them has shown as committed stays so on all, and
each leader epoch has one leader.
"""

from typing import Final

from sparklog.model import LeaderEpoch, NodeId, Offset, TopicPartition
from sparklog.record.batch import iterate_headers
from sparklog_server.replica.leader import LeaderReplica
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.replica_manager import ReplicaManager
from sparklog_server.simulation.ledger import Committed, Ledger
from sparklog_server.simulation.world import Violation

_READ_BYTES: Final = 1 << 20
_Facts = tuple[Offset, Offset, Offset, LeaderEpoch | None]
"""Of a replica: the start and the end of its log, its high watermark, and the epoch that it leads."""


class ReplicaLedger:
    """Checks the replicas of the watched partitions at the end of each turn of their nodes.

    `cuts` counts how often a replica had fewer records than the turn before.
    """

    def __init__(self, watched: tuple[TopicPartition, ...]) -> None:
        self.watched = watched
        self.cuts = 0
        self._ledgers = {one: Ledger() for one in watched}
        self._topics = tuple(dict.fromkeys(one.topic for one in watched))
        self._leaders: dict[tuple[TopicPartition, int], NodeId] = {}
        self._shown: dict[tuple[NodeId, TopicPartition], Offset] = {}  # the high watermark at the last check
        self._ends: dict[tuple[NodeId, TopicPartition], Offset] = {}
        self._checked: dict[NodeId, dict[TopicPartition, tuple[Partition, _Facts]]] = {}  # at the last check

    @property
    def led(self) -> int:
        """How many leaderships the watched partitions had."""
        return len(self._leaders)

    def of(self, at: TopicPartition) -> Ledger:
        """The committed batches of a watched partition."""
        return self._ledgers[at]

    def ended(self, node: NodeId) -> None:
        """The process of the node has ended: the next one is checked from the start of its logs."""
        self._checked.pop(node, None)
        for one in self._ledgers:
            self._forget(node, one)

    def _forget(self, node: NodeId, at: TopicPartition) -> None:
        self._shown.pop((node, at), None)
        self._ends.pop((node, at), None)

    def check(self, node: NodeId, partitions: ReplicaManager) -> None:
        """Check the replicas that have changed in a turn. Raises Violation."""
        checked = self._checked.setdefault(node, {})
        for topic in self._topics:
            for partition in partitions.by_topic.get(topic, {}).values():
                log, leader, high_watermark = partition.log, partition.leader, partition.high_watermark
                if log.is_closed:
                    continue
                at, end = partition.topic_partition, log.log_end_offset
                if leader is not None and high_watermark < end:
                    _check_watermark(node, partition, leader)
                epoch = None if leader is None else leader.leader_epoch
                facts = log.log_start_offset, end, high_watermark, epoch
                known, before = checked.get(at, (partition, None))
                if known is not partition:  # another log: the replica has left this node and come back
                    self._forget(node, at)
                if facts != before:
                    self._check(node, at, partition, self._ledgers[at])
                    checked[at] = partition, facts

    def _check(self, node: NodeId, at: TopicPartition, partition: Partition, ledger: Ledger) -> None:
        log_end, high_watermark = partition.log.log_end_offset, partition.high_watermark
        if high_watermark > log_end:
            raise Violation("watermark-above-end", f"{at} on node {node}: {high_watermark} > {log_end}")
        if partition.leader is not None:
            epoch = partition.leader.leader_epoch
            if self._leaders.setdefault((at, epoch), node) != node:
                others = self._leaders[at, epoch]
                raise Violation("two-leaders", f"{at} in epoch {epoch}: nodes {others} and {node}")
        key = node, at
        self.cuts += log_end < self._ends.get(key, Offset(0))
        self._ends[key] = log_end
        shown = max(self._shown.get(key, Offset(0)), partition.log.log_start_offset)
        if shown == high_watermark > ledger.end:
            ledger.deleted(high_watermark)
        if high_watermark > shown:
            self._show(node, partition, shown, ledger)
        self._shown[key] = high_watermark

    def _show(self, node: NodeId, partition: Partition, start: Offset, ledger: Ledger) -> None:
        high_watermark = partition.high_watermark
        while start < high_watermark:
            part = partition.log.read(start, high_watermark, _READ_BYTES, at_least_one=True)
            assert part is not None, f"{partition.topic_partition} has no batch at {start}"
            for _, header in iterate_headers(part.read()):
                base, limit = Offset(header.base_offset), Offset(header.next_offset)
                if ledger.end < base <= partition.log.log_start_offset:
                    ledger.deleted(base)
                ledger.committed(node, Committed(base, limit, LeaderEpoch(header.leader_epoch), header.crc))
                start = limit


def _check_watermark(node: NodeId, partition: Partition, leader: LeaderReplica) -> None:
    """The high watermark does not wait for an event that need not come: it has reached the end that the
    leader has, and every follower that is in sync, or may be.
    """
    end = partition.durability.acknowledged_end
    if partition.high_watermark >= end or partition._is_frozen or not partition.has_enough_in_sync:
        return
    for follower, progress in leader.followers.items():
        may_count = partition._rules.is_eligible(follower, progress.broker_epoch, progress.directory)
        if follower in leader.isr.maximal or may_count:
            end = min(end, progress.log_end_offset)
    if partition.high_watermark < end:
        raise Violation(
            "watermark-waits",
            f"{partition.topic_partition} on node {node}: {partition.high_watermark} < {end}",
        )
