"""Leader election: the changes of partitions when a broker is fenced, returns or is removed (KIP-631, without
eligible leader replicas).
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from sparklog.model import NodeId, Uuid
from sparklog.wire.schema import Message
from sparklog_server.config.topic_settings import TopicSettings
from sparklog_server.metadata.entries import BrokerImage, PartitionImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import NO_LEADER, PartitionChangeRecord

SettingsFor = Callable[[str], TopicSettings]
IsAcceptable = Callable[[NodeId], bool]


def elect(
    partition: PartitionImage,
    isr: tuple[NodeId, ...],
    is_acceptable: IsAcceptable,
    *,
    is_unclean_allowed: bool,
) -> tuple[NodeId, bool]:
    """(leader, whether the election was unclean): the present leader if it is eligible, else the first
    eligible replica of the ISR.
    """
    candidates = (partition.leader, *partition.replicas)
    for node in candidates:
        if node in isr and is_acceptable(node):
            return node, False
    if is_unclean_allowed:
        for node in partition.replicas:
            if is_acceptable(node):
                return node, True
    return NodeId(NO_LEADER), False


def change_of(
    partition: PartitionImage,
    topic_id: Uuid,
    index: int,
    *,
    isr: tuple[NodeId, ...],
    is_acceptable: IsAcceptable,
    is_unclean_allowed: bool,
) -> PartitionChangeRecord | None:
    """The record that gives a partition this ISR and an eligible leader; None if nothing changes.

    The ISR never becomes empty: the last member stays in it even when it cannot lead, so that its return
    needs no unclean election.
    """
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    leader, is_unclean = elect(partition, isr, is_acceptable, is_unclean_allowed=is_unclean_allowed)
    is_changed = False
    if leader != partition.leader:
        record.leader = leader
        is_changed = True
        if is_unclean:
            record.isr = [leader]
            record.leader_recovery_state = -1 if partition.is_recovering else 1
    if record.isr is None and isr and isr != partition.isr:
        record.isr = list(isr)
        is_changed = True
    return record if is_changed else None


_DIRECTORY_LOST = Uuid(bytes(15) + b"\x02")
_RESERVED_DIRECTORIES = 100


def has_replica_online(partition: PartitionImage, broker: BrokerImage) -> bool:
    """Whether the directory of the broker's replica is online; an unassigned one counts as online
    (KIP-858).
    """
    directory = partition.directory_of(broker.node_id)
    assert directory is not None
    is_reserved = int.from_bytes(directory, "big") < _RESERVED_DIRECTORIES
    return directory != _DIRECTORY_LOST if is_reserved else directory in broker.directories


def broker_left(
    image: MetadataImage,
    node_id: NodeId,
    settings_for: SettingsFor,
    *,
    directory: Uuid | None = None,
    spared: Callable[[PartitionImage], bool] | None = None,
) -> list[Message]:
    """The changes when a broker (or one of its directories) can no longer lead or be in sync, except for the
    partitions in `spared`.
    """
    changes: list[Message] = []
    for topic_id, topic in image.topics_by_id.items():
        is_unclean_allowed: bool | None = None  # looked up once per topic that has a change
        for index, partition in enumerate(topic.partitions):
            if node_id not in partition.isr or (
                directory is not None and partition.directory_of(node_id) != directory
            ):
                continue
            if spared is not None and spared(partition):
                continue
            if is_unclean_allowed is None:
                is_unclean_allowed = settings_for(topic.name).unclean_leader_election_enable
            change = change_of(
                partition,
                topic_id,
                index,
                isr=tuple([node for node in partition.isr if node != node_id]),
                is_acceptable=acceptable(image, partition, leaving=node_id),
                is_unclean_allowed=is_unclean_allowed,
            )
            if change is not None:
                changes.append(change)
    return changes


def broker_returned(image: MetadataImage, node_id: NodeId | None, settings_for: SettingsFor) -> list[Message]:
    """The changes when a broker can lead again: it takes the partitions without a leader that it is eligible
    for. Without a broker: the elections that an earlier leadership began and did not finish.
    """
    changes: list[Message] = []
    for topic_id, index, name, partition in _partitions(image):
        if partition.leader != NO_LEADER:
            continue
        change = change_of(
            partition,
            topic_id,
            index,
            isr=partition.isr,
            is_acceptable=acceptable(image, partition, returning=node_id),
            is_unclean_allowed=settings_for(name).unclean_leader_election_enable,
        )
        if change is not None:
            changes.append(change)
    return changes


def broker_restarted(
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

    changes = broker_left(image, broker.node_id, settings_for, spared=leads_on)
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
    return any(partition.leader == node_id for _, _, _, partition in _partitions(image))


def acceptable(
    image: MetadataImage,
    partition: PartitionImage,
    *,
    leaving: NodeId | None = None,
    returning: NodeId | None = None,
) -> IsAcceptable:
    """The replicas that can lead: active, with their directory online. The image does not yet contain the
    brokers that leave or return in this decision.
    """

    def is_acceptable(node: NodeId) -> bool:
        broker = image.brokers.get(node)
        if broker is None or node == leaving or not has_replica_online(partition, broker):
            return False
        return broker.is_active or node == returning

    return is_acceptable


def _partitions(image: MetadataImage) -> Iterator[tuple[Uuid, int, str, PartitionImage]]:
    """(topic id, index, topic name, partition) for every partition, in creation order of the topics."""
    for topic_id, topic in image.topics_by_id.items():
        for index, partition in enumerate(topic.partitions):
            yield topic_id, index, topic.name, partition
