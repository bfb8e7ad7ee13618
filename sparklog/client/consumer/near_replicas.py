"""From which broker each partition is read: its leader, or a replica in the rack of the consumer (KIP-392).

    leader ── names a replica ──► replica ── an error, unreachable, metadata_max_age_ms ──► leader

A replica that cannot be reached would be named again: then the leader is not told the rack for a while.
"""

from typing import Final

from sparklog.client.cluster import Cluster
from sparklog.client.settings import ClientSettings
from sparklog.model import Micros, NodeId, TopicPartition

_AVOIDED_US: Final = 30_000_000


class NearReplicas:
    """The replicas that leaders have named."""

    def __init__(self, settings: ClientSettings, cluster: Cluster) -> None:
        self._rack = settings.client_rack
        self._named_us = settings.metadata_max_age_ms * 1000
        self._cluster = cluster
        self._named: dict[TopicPartition, tuple[NodeId, Micros]] = {}
        self._avoided_until = Micros(0)

    def rack(self, now: Micros) -> str:
        """The rack to name in a Fetch; empty for none."""
        return "" if now < self._avoided_until else self._rack

    def named(self, partition: TopicPartition, node: NodeId, now: Micros) -> None:
        """The leader has named a replica."""
        self._named[partition] = node, Micros(now + self._named_us)

    def source(self, partition: TopicPartition, leader: NodeId, now: Micros) -> NodeId:
        """The broker to read a partition from."""
        known = self._named.get(partition)
        if known is None:
            return leader
        node, until = known
        if node not in self._cluster.brokers or not self._cluster.may_connect(node, now):
            self._avoided_until = Micros(now + _AVOIDED_US)
        elif now < until:
            return node
        del self._named[partition]
        return leader

    def forget(self, partition: TopicPartition) -> bool:
        """Read a partition from its leader; whether it was not."""
        return self._named.pop(partition, None) is not None
