"""Which replica a consumer fetches from: one in its own rack, if the leader is in another (KIP-392).

The choice is that of Kafka's `RackAwareReplicaSelector`. The leader names the replica in its response, and
the consumer sends its next fetches there.
"""

from sparklog.model import NodeId, Offset
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.progress import FollowerProgress


def near_replica(
    image: MetadataImage, partition: Partition, own: NodeId, rack: str, offset: Offset
) -> NodeId | None:
    """The replica in `rack` that has the most records, if this broker `own` leads and is in another rack.

    It is in the ISR (a follower that lags would be named again and again, KAFKA-14372), not fenced, and has
    the record before `offset`. None if the consumer fetches from the leader.
    """
    leader = partition.leader
    if leader is None or _rack_of(image, own) == rack:
        return None
    able: list[tuple[Offset, int, NodeId]] = []
    for node, progress in leader.followers.items():
        if node in leader.isr.committed and _has(progress, offset) and _rack_of(image, node) == rack:
            able.append((progress.log_end_offset, progress.caught_up_us, node))
    return max(able)[2] if able else None


def _rack_of(image: MetadataImage, node: NodeId) -> str | None:
    """The rack of a broker; None if it has none, or is fenced."""
    broker = image.brokers.get(node)
    return None if broker is None or broker.is_fenced else broker.rack


def _has(progress: FollowerProgress, offset: Offset) -> bool:
    return 0 <= progress.log_start_offset <= offset <= progress.log_end_offset
