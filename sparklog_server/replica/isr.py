"""The in-sync replicas of a partition, as its leader knows them: what the controller has committed, and one
proposed change (KIP-497).

    COMMITTED ── proposed ──► EXPANDING | SHRINKING ── committed, in a reply or in the metadata ──► COMMITTED
        ▲                            │
        └──── refused ───────────────┘     while it is unknown whether a proposal took effect, both sets count
"""

from collections.abc import Mapping
from enum import Enum

from sparklog.model import NodeId, Uuid
from sparklog_server.metadata.entries import BrokerImage


class IsrState(Enum):
    """Whether a change of the ISR is proposed."""

    COMMITTED = "committed"
    EXPANDING = "expanding"
    SHRINKING = "shrinking"


class InSyncReplicas:
    """Invariants: the leader is in `committed` and in `proposed`, which are equal while the state is
    COMMITTED; `partition_epoch` is that of `committed`; `is_changing` while a change is proposed.

    `maximal` has every replica that is in the ISR, or may be by now: the high watermark waits for all of
    them, because the controller may elect any. `minimal` has those that are certainly in the ISR.
    """

    __slots__ = ("committed", "is_changing", "maximal", "minimal", "partition_epoch", "proposed", "state")

    def __init__(self, committed: tuple[NodeId, ...], partition_epoch: int) -> None:
        self.partition_epoch = partition_epoch
        self._move(committed, committed, IsrState.COMMITTED)

    def _move(self, committed: tuple[NodeId, ...], proposed: tuple[NodeId, ...], state: IsrState) -> None:
        """Each fetch of a follower reads what follows from the three, so it is kept."""
        self.committed, self.proposed, self.state = committed, proposed, state
        self.maximal = proposed if state is IsrState.EXPANDING else committed
        self.minimal = proposed if state is IsrState.SHRINKING else committed
        self.is_changing = state is not IsrState.COMMITTED

    def expand(self, joining: NodeId) -> None:
        """Propose to add a replica."""
        assert not self.is_changing
        assert joining not in self.committed
        self._move(self.committed, (*self.committed, joining), IsrState.EXPANDING)

    def shrink(self, leaving: tuple[NodeId, ...]) -> None:
        """Propose to remove replicas."""
        assert not self.is_changing
        assert leaving
        staying = tuple([one for one in self.committed if one not in leaving])
        assert staying, "the leader stays in its ISR"
        self._move(self.committed, staying, IsrState.SHRINKING)

    def commit(self, isr: tuple[NodeId, ...], partition_epoch: int) -> bool:
        """Take over the ISR that the controller has committed with `partition_epoch`; False if that is not
        newer than the known one.
        """
        if partition_epoch <= self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self._move(isr, isr, IsrState.COMMITTED)
        return True

    def withdraw(self) -> None:
        """The controller has refused the proposal, which has no effect."""
        self._move(self.committed, self.committed, IsrState.COMMITTED)


class InSyncRules:
    """What the leaders of a node know of the other brokers: which replicas may be in sync. Shared by the
    partitions of a node. `brokers` are those of the image, `lag_max_us` is
    replica.lag.time.max.ms in µs. `expands`, `shrinks` and `refused` count the proposals that were decided.
    """

    __slots__ = ("brokers", "expands", "lag_max_us", "refused", "shrinks")

    def __init__(self, lag_max_us: int) -> None:
        self.lag_max_us = lag_max_us
        self.brokers: Mapping[NodeId, BrokerImage] = {}
        self.expands = self.shrinks = self.refused = 0

    def is_eligible(self, node: NodeId, broker_epoch: int, directory: Uuid) -> bool:
        """Whether a replica may join an ISR: its broker is neither fenced nor stopping (KIP-841), the replica
        has fetched in the registered incarnation (KIP-903), and its directory is online. A fetch before
        version 15 has no broker epoch, -1.
        """
        broker = self.brokers.get(node)
        return (
            broker is not None
            and broker.is_active
            and broker_epoch in (-1, broker.epoch)
            and broker.has_online(directory)
        )
