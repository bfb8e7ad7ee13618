"""Leader election of one partition: the record that gives it an ISR and a leader.

The leader is chosen from, in this order:

    1  the ISR
    2  if the ISR is empty, the eligible leader replicas (ELR, KIP-966): they left the ISR while it was below
       min.insync.replicas, so they hold every record below the high watermark
    3  if both are empty, the last known leader, the single entry of `last_known_elr`
    4  where unclean.leader.election.enable allows it, any replica

Elections 3 and 4 are unclean: they may lose records, and the leader begins in the state "recovering". Without
the feature eligible.leader.replicas.version there is no ELR, and the ISR never becomes empty: the last member
stays in it even when it cannot lead.
"""

from collections.abc import Callable
from enum import Enum, auto

import msgspec

from sparklog.model import NodeId, Uuid
from sparklog_server.config.topic_settings import TopicSettings
from sparklog_server.metadata.entries import BrokerImage, PartitionImage, TopicImage
from sparklog_server.metadata.features import ELR_VERSION
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import NO_LEADER, PartitionChangeRecord

SettingsFor = Callable[[str], TopicSettings]
IsAcceptable = Callable[[NodeId], bool]

_RECOVERING = 1


class Election(Enum):
    """The replicas that an election considers: those in sync or eligible, the preferred one first if it is
    PREFERRED; and for UNCLEAN, if none of them can lead, all.
    """

    ONLINE = auto()
    PREFERRED = auto()
    UNCLEAN = auto()


class ElectionRules(msgspec.Struct, frozen=True):
    """The rules for the partitions of one topic; `min_isr` is at most the number of replicas."""

    min_isr: int
    is_unclean_allowed: bool
    has_elr: bool

    @property
    def election(self) -> Election:
        """The kind of an election that is not requested by an administrator."""
        return Election.UNCLEAN if self.is_unclean_allowed else Election.ONLINE


def has_elr(image: MetadataImage) -> bool:
    """Whether eligible leader replicas are enabled in the cluster (KIP-966)."""
    return image.features.get(ELR_VERSION, 0) > 0


def rules_for(image: MetadataImage, topic: TopicImage, settings: TopicSettings) -> ElectionRules:
    """The rules for a topic with these effective settings."""
    return ElectionRules(
        min_isr=min(settings.min_insync_replicas, len(topic.partitions[0].replicas)),
        is_unclean_allowed=settings.unclean_leader_election_enable,
        has_elr=has_elr(image),
    )


def change_of(
    partition: PartitionImage,
    topic_id: Uuid,
    index: int,
    *,
    rules: ElectionRules,
    is_acceptable: IsAcceptable,
    election: Election | None = None,
    isr: tuple[NodeId, ...] | None = None,
    replicas: tuple[NodeId, ...] | None = None,
    lost: NodeId | None = None,
) -> PartitionChangeRecord | None:
    """The record that gives a partition this ISR, these replicas and an eligible leader; None if nothing
    changes. `isr` and `replicas` are the present ones unless they are given.

    The replica `lost` may have lost records, as after an unclean stop: it does not become eligible. New
    replicas need their directories from the caller.
    """
    isr = partition.isr if isr is None else isr
    replicas = partition.replicas if replicas is None else replicas
    eligible = _eligible_after(partition, replicas, isr, rules, lost)
    leader, is_unclean = elect(
        partition, replicas, isr, eligible, rules, election or rules.election, is_acceptable
    )
    unchanged = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    if leader != partition.leader:
        record.leader = leader
        if is_unclean or leader in eligible:
            isr = (leader,)
        if is_unclean and not partition.is_recovering:
            record.leader_recovery_state = _RECOVERING
    elif not set(partition.replicas) <= set(replicas):
        record.leader = leader  # a replica that is dropped is fenced by a new leader epoch
    eligible = tuple(node for node in eligible if node not in isr)
    if is_unclean or not rules.has_elr:
        eligible = ()
    if set(eligible) != set(partition.eligible_leader_replicas):
        record.eligible_leader_replicas = list(eligible)
    if isr != partition.isr and (isr or rules.has_elr):
        record.isr = list(isr)
    if rules.has_elr:
        _record_last_leader(partition, record)
    if replicas != partition.replicas:
        record.replicas = list(replicas)
        record.directories = [partition.directories[partition.replicas.index(node)] for node in replicas]
    return None if record == unchanged else record


def elect(
    partition: PartitionImage,
    replicas: tuple[NodeId, ...],
    isr: tuple[NodeId, ...],
    eligible: tuple[NodeId, ...],
    rules: ElectionRules,
    election: Election,
    is_acceptable: IsAcceptable,
) -> tuple[NodeId, bool]:
    """(leader or -1, whether the election is unclean): the present leader stays if it is valid."""
    valid = isr or eligible
    first = replicas[:1] if election is Election.PREFERRED else ()
    for node in (*first, partition.leader, *replicas):
        if node in valid and is_acceptable(node):
            return node, False
    if rules.has_elr and not valid and len(partition.last_known_elr) == 1:
        (last,) = partition.last_known_elr
        if last in replicas and is_acceptable(last):
            return last, True
    if election is Election.UNCLEAN:
        for node in replicas:
            if is_acceptable(node):
                return node, True
    return NodeId(NO_LEADER), False


def _eligible_after(
    partition: PartitionImage,
    replicas: tuple[NodeId, ...],
    isr: tuple[NodeId, ...],
    rules: ElectionRules,
    lost: NodeId | None,
) -> tuple[NodeId, ...]:
    """The ELR beside this ISR: those that left it while it is below the minimum, in order of preference."""
    known = partition.eligible_leader_replicas
    if rules.has_elr:
        known = () if len(isr) >= rules.min_isr else (*known, *partition.isr)
    return tuple(node for node in replicas if node in known and node not in isr and node != lost)


def _record_last_leader(partition: PartitionImage, record: PartitionChangeRecord) -> None:
    """Remember the last leader of a partition that loses it, until it has a leader again."""
    if record.leader == NO_LEADER and not partition.last_known_elr:
        record.last_known_elr = [partition.leader]
    elif record.leader >= 0 and partition.last_known_elr:
        record.last_known_elr = []


def has_replica_online(partition: PartitionImage, broker: BrokerImage) -> bool:
    """Whether the directory of the broker's replica is online."""
    directory = partition.directory_of(broker.node_id)
    assert directory is not None
    return broker.has_online(directory)


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
