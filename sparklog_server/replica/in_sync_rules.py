"""What the leaders of a node know of the other brokers: which replicas may be in sync."""

from collections.abc import Mapping

from sparklog.model import NodeId
from sparklog_server.metadata.entries import BrokerImage


class InSyncRules:
    """Shared by the partitions of a node. `brokers` are those of the image, `lag_max_us` is
    replica.lag.time.max.ms in µs.
    """

    __slots__ = ("brokers", "lag_max_us")

    def __init__(self, lag_max_us: int) -> None:
        self.lag_max_us = lag_max_us
        self.brokers: Mapping[NodeId, BrokerImage] = {}

    def is_eligible(self, node: NodeId, broker_epoch: int) -> bool:
        """Whether a replica may join an ISR: its broker is neither fenced nor stopping (KIP-841), and the
        replica has fetched in the registered incarnation (KIP-903). A fetch before version 15 has no broker
        epoch, -1.
        """
        broker = self.brokers.get(node)
        return broker is not None and broker.is_active and broker_epoch in (-1, broker.epoch)
