"""Changes of the ISR of a partition that this broker leads: the check for replicas that lag, and what the
controller has decided on a proposal.
"""

from sparklog.model import Instant, NodeId
from sparklog_server.replica.isr import InSyncRules
from sparklog_server.replica.leader import LeaderReplica
from sparklog_server.replica.partition import Partition


def check_in_sync(partition: Partition, rules: InSyncRules, now: Instant) -> None:
    """Propose to remove the replicas from the ISR that lag; wait no longer for those that may not join."""
    leader = partition.leader
    if leader is None:
        return
    partition.eligibility_changed(now)
    if lagging := leader.lagging(partition.log.log_end_offset, rules, now):
        leader.isr.shrink(lagging)
        partition.propose(now)


def isr_committed(
    partition: Partition,
    leader: LeaderReplica,
    isr: tuple[NodeId, ...],
    partition_epoch: int,
    now: Instant,
) -> None:
    """The controller has committed an ISR of that leadership, perhaps as it was before."""
    if partition.leader is not leader:
        return
    if not leader.isr.commit(isr, partition_epoch) and partition_epoch == leader.isr.partition_epoch:
        leader.isr.withdraw()
    partition.in_sync_changed(now)


def isr_refused(partition: Partition, leader: LeaderReplica, now: Instant) -> None:
    """The controller has refused the proposal of that leadership; the next fetch or check may propose one."""
    if partition.leader is leader:
        leader.isr.withdraw()
        partition.in_sync_changed(now)
