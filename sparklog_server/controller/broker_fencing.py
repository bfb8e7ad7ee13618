"""The changes of partitions when a broker leaves, returns or restarts (ReplicationControlManager).

A broker that leaves (is fenced, stops, loses a directory, is unregistered) leaves the ISR of its partitions,
and their leaderships move. A broker that returns takes the partitions without a leader that it is eligible
for; it joins an ISR only by the leader's AlterPartition.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from sparklog.model import NodeId, Uuid
from sparklog.wire.schema import Message
from sparklog_server.config.layers import BROKER_STATE
from sparklog_server.metadata.entries import BrokerImage, PartitionImage
from sparklog_server.metadata.image import BROKER_RESOURCE, MetadataImage
from sparklog_server.metadata.records import NO_LEADER, ConfigRecord, PartitionChangeRecord

from .elections import (
    ElectionRules,
    PartitionChangeBuilder,
    SettingsFor,
    acceptable,
    has_elr,
    has_replica_online,
    rules_for,
)

IsSpared = Callable[[PartitionImage], bool]


def broker_left(
    image: MetadataImage, node_id: NodeId, settings_for: SettingsFor, *, directory: Uuid | None = None
) -> list[Message]:
    """The changes when a broker, or one of its directories, can no longer lead or be in sync."""

    def is_affected(partition: PartitionImage) -> bool:
        # A reassignment may have waited for a replica that is alive and not in sync.
        is_awaited = node_id in partition.replicas and (
            partition.adding_replicas or partition.removing_replicas
        )
        return bool(node_id in partition.isr or is_awaited) and (
            directory is None or partition.directory_of(node_id) == directory
        )

    return _changes_without(image, node_id, settings_for, is_affected)


def broker_returned(image: MetadataImage, node_id: NodeId, settings_for: SettingsFor) -> list[Message]:
    """The changes when a broker can lead again: it takes the partitions without a leader that it is eligible
    for.
    """
    return leaderless_elected(image, settings_for, returning=node_id)


def leaderless_elected(
    image: MetadataImage, settings_for: SettingsFor, *, returning: NodeId | None = None
) -> list[Message]:
    """The elections of the partitions without a leader: a broker returns, a setting allows an unclean
    election, or an earlier leadership did not finish them.
    """
    changes: list[Message] = []
    for topic_id, index, partition, rules in partitions_where(
        image, settings_for, lambda partition: partition.leader == NO_LEADER
    ):
        change = PartitionChangeBuilder(
            partition, topic_id, index, rules, acceptable(image, partition, returning=returning)
        ).build()
        if change is not None:
            changes.append(change)
    return changes


def broker_restarted(
    image: MetadataImage,
    node_id: NodeId,
    settings_for: SettingsFor,
    *,
    was_clean: bool,
    spared: IsSpared | None = None,
) -> list[Message]:
    """The changes when a broker registers a new incarnation, except for the partitions in `spared`.

    After an unclean stop its logs may lack records that it held before: with eligible leader replicas, it
    leaves the ELR as well (KAFKA-18635).
    """
    is_lost = has_elr(image) and not was_clean

    def is_affected(partition: PartitionImage) -> bool:
        is_counted = node_id in partition.isr or (is_lost and node_id in partition.eligible_leader_replicas)
        return is_counted and (spared is None or not spared(partition))

    return _changes_without(image, node_id, settings_for, is_affected, is_lost=is_lost)


def lone_broker_restarted(
    image: MetadataImage,
    broker: BrokerImage,
    settings_for: SettingsFor,
    *,
    directories: Sequence[Uuid],
    was_clean: bool,
) -> list[Message]:
    """The changes when the only broker of a cluster registers a new incarnation with these directories: it
    keeps the leaderships that no other broker can take.

    The leader epoch of a partition is raised only if records that consumers have read may be gone: after an
    unclean stop, for a topic that serves records before they are synced. See
    docs/decisions/0005-leading-on-after-a-restart.md.
    """
    assert tuple(image.brokers) == (broker.node_id,)
    reborn = msgspec.structs.replace(broker, directories=tuple(directories))

    def leads_on(partition: PartitionImage) -> bool:
        return (
            partition.leader == broker.node_id
            and partition.replicas == (broker.node_id,)
            and has_replica_online(partition, reborn)
        )

    changes = broker_restarted(image, broker.node_id, settings_for, was_clean=was_clean, spared=leads_on)
    doubtful = () if was_clean else image.topics_by_id.items()
    changes += [
        PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=broker.node_id)
        for topic_id, topic in doubtful
        if settings_for(topic.name).sparklog_ack_flush == "never"
        for index, partition in enumerate(topic.partitions)
        if leads_on(partition)
    ]
    return changes


def has_leaderships(image: MetadataImage, node_id: NodeId) -> bool:
    """Whether the broker leads any partition."""
    return any(
        partition.leader == node_id for topic in image.topics_by_id.values() for partition in topic.partitions
    )


def _changes_without(
    image: MetadataImage,
    node_id: NodeId,
    settings_for: SettingsFor,
    is_affected: Callable[[PartitionImage], bool],
    *,
    is_lost: bool = False,
) -> list[Message]:
    """The changes that take a broker out of the ISR and the leadership of the affected partitions, and out of
    the ELR if its records may be lost.
    """
    changes: list[Message] = []
    for topic_id, index, partition, rules in partitions_where(image, settings_for, is_affected):
        change = PartitionChangeBuilder(
            partition, topic_id, index, rules, acceptable(image, partition, leaving=node_id)
        ).build(
            isr=tuple([node for node in partition.isr if node != node_id]), lost=node_id if is_lost else None
        )
        if change is not None:
            changes.append(change)
    return changes


def partitions_where(
    image: MetadataImage, settings_for: SettingsFor, is_wanted: Callable[[PartitionImage], bool]
) -> Iterator[tuple[Uuid, int, PartitionImage, ElectionRules]]:
    """(topic id, index, partition, rules) for the wanted partitions, in creation order of the topics."""
    for topic_id, topic in image.topics_by_id.items():
        rules: ElectionRules | None = None  # looked up once per topic that has a wanted partition
        for index, partition in enumerate(topic.partitions):
            if is_wanted(partition):
                rules = rules or rules_for(image, topic, settings_for(topic.name))
                yield topic_id, index, partition, rules


def forgotten(image: MetadataImage, node: NodeId) -> Iterable[Message]:
    """The records that remove the state asked of a broker: it is unregistered, or another machine has its
    id.
    """
    if node in image.broker_states:
        yield ConfigRecord(
            resource_type=BROKER_RESOURCE, resource_name=str(node), name=BROKER_STATE, value=None
        )
