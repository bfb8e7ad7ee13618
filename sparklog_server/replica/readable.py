"""Which replicas serve a reader: the leader alone, `Partition.leader_for`, or each of them, `any_role_of`:
consumers that know of it (KIP-392), and those that compare replicas.

A follower is read below its own high watermark.
"""

from collections.abc import Callable
from typing import Final

from sparklog_server.replica.leader import Following, LeaderReplica, claim_refused
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.unavailable import PartitionUnavailable

DEBUGGING: Final = -2
"""The replica id of a reader that compares replicas: followers serve it too."""
RoleOf = Callable[[Partition, int], LeaderReplica | Following]
"""The role in which a replica serves a reader that claims a leader epoch. Raises PartitionUnavailable."""


def any_role_of(partition: Partition, claimed_epoch: int) -> LeaderReplica | Following:
    """The role of a replica, for a reader that claims the leader epoch `claimed_epoch` (-1: none). Raises
    PartitionUnavailable, also while the log of a follower is truncated.
    """
    role = partition.role
    if role is None or (partition.leader is None and partition.log.is_truncating):
        raise PartitionUnavailable(partition.error)
    if claimed_epoch >= 0 and claimed_epoch != role.leader_epoch:
        raise claim_refused(claimed_epoch, role.leader_epoch)
    return role
