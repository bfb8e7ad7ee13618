"""Leaderships go back to the preferred replicas, the first of each partition (ReplicationControlManager)."""

from sparklog.wire.schema import Message
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import MetadataImage

from .broker_changes import partitions_where
from .elections import Election, SettingsFor, acceptable, change_of


def balanced(image: MetadataImage, settings_for: SettingsFor) -> list[Message]:
    """The elections of the preferred replicas that are in sync and do not lead."""
    changes: list[Message] = []
    for topic_id, index, partition, rules in partitions_where(image, settings_for, _is_imbalanced):
        change = change_of(
            partition,
            topic_id,
            index,
            rules=rules,
            is_acceptable=acceptable(image, partition),
            election=Election.PREFERRED,
        )
        if change is not None:
            changes.append(change)
    return changes


def _is_imbalanced(partition: PartitionImage) -> bool:
    return partition.leader != partition.replicas[0] and partition.replicas[0] in partition.isr
