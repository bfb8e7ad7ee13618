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

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType

import msgspec

from sparklog.model import NodeId, Uuid
from sparklog_server.config.topic_settings import TopicSettings
from sparklog_server.metadata.entries import BrokerImage, PartitionImage, TopicImage
from sparklog_server.metadata.features import ELR_VERSION
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import NO_LEADER, PartitionChangeRecord

SettingsFor = Callable[[str], TopicSettings]
IsAcceptable = Callable[[NodeId], bool]

NO_DIRECTORIES: Mapping[NodeId, Uuid] = MappingProxyType({})
_RECOVERING = 1


class Election(Enum):
    """The replicas that an election considers: those in sync or eligible, the preferred one first if it is
    PREFERRED; and for UNCLEAN, if none of them can lead, all.
    """

    ONLINE = auto()
    PREFERRED = auto()
    UNCLEAN = auto()


class ElectionRules(msgspec.Struct, frozen=True):
    """The rules for the partitions of one topic; `min_isr` is at most the number of replicas, and `avoided`
    brokers lead only what no other can.
    """

    min_isr: int
    is_unclean_allowed: bool
    has_elr: bool
    avoided: frozenset[NodeId] = frozenset()

    @property
    def election(self) -> Election:
        """The kind of an election that is not requested by an administrator."""
        return Election.UNCLEAN if self.is_unclean_allowed else Election.ONLINE


class Reassignment(msgspec.Struct, frozen=True):
    """The replicas of a partition, and which of them a reassignment adds and removes (KIP-455): `replicas`
    are the target in order of preference, and after it those to be removed. `directories` are those of the
    replicas that the partition has not had before.
    """

    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()
    directories: Mapping[NodeId, Uuid] = NO_DIRECTORIES

    @classmethod
    def of(cls, partition: PartitionImage) -> "Reassignment":
        """That of a partition at present."""
        return cls(partition.replicas, partition.adding_replicas, partition.removing_replicas)

    def to(
        self, target: Sequence[NodeId], isr: Sequence[NodeId], directory_for: Callable[[NodeId], Uuid]
    ) -> "Reassignment":
        """The one that leads from here to `target`: a replica that an earlier one was about to add still
        counts as added if it is in the target, and is dropped if it is not and was never in sync.
        """
        dropped = set(self.adding).difference(target, isr)
        removing = tuple(sorted(set(self.replicas) - set(target) - dropped))
        adding = [node for node in target if node not in self.replicas or node in self.adding]
        directories = {node: directory_for(node) for node in adding if node not in self.replicas}
        return Reassignment((*target, *removing), tuple(sorted(adding)), removing, directories)

    @property
    def is_in_progress(self) -> bool:
        """Whether it is not completed."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[NodeId, ...]:
        """The replicas at its end."""
        return tuple([node for node in self.replicas if node not in self.removing])

    @property
    def originals(self) -> tuple[NodeId, ...]:
        """The replicas that a cancel leaves."""
        return tuple([node for node in self.replicas if node not in self.adding])

    def completed(
        self, isr: tuple[NodeId, ...], min_isr: int, is_acceptable: IsAcceptable
    ) -> tuple["Reassignment", tuple[NodeId, ...]]:
        """(reassignment, ISR) as they are with this ISR: completed once every added replica is in sync, and
        one that stays, and as many as `min_isr` wants of those that are alive. One that lowers the
        replication factor waits for its whole target, lest fewer replicas be in sync than before; another is
        not held up by a dead replica that does not move (KAFKA-19975).
        """
        if not self.is_in_progress:
            return self, isr
        target = self.target
        staying = tuple([node for node in isr if node not in self.removing])
        awaited = target if len(self.adding) < len(self.removing) else self.adding
        if not staying or not set(awaited) <= set(staying):
            return self, isr
        if len(staying) < min(min_isr, len(isr)) and len(staying) < sum(map(is_acceptable, target)):
            return self, isr
        return Reassignment(target), staying


def has_elr(image: MetadataImage) -> bool:
    """Whether eligible leader replicas are enabled in the cluster (KIP-966)."""
    return image.features.get(ELR_VERSION, 0) > 0


def rules_for(image: MetadataImage, topic: TopicImage, settings: TopicSettings) -> ElectionRules:
    """The rules for a topic with these effective settings."""
    return ElectionRules(
        min_isr=min(settings.min_insync_replicas, len(topic.partitions[0].replicas)),
        is_unclean_allowed=settings.unclean_leader_election_enable,
        has_elr=has_elr(image),
        avoided=image.drained,
    )


class PartitionChangeBuilder(msgspec.Struct, frozen=True):
    """Builds the record that changes one partition, as Kafka's class of this name does. `is_acceptable` says
    which replicas can lead.
    """

    partition: PartitionImage
    topic_id: Uuid
    index: int
    rules: ElectionRules
    is_acceptable: IsAcceptable

    def build(
        self,
        *,
        election: Election | None = None,
        isr: tuple[NodeId, ...] | None = None,
        reassignment: Reassignment | None = None,
        lost: NodeId | None = None,
    ) -> PartitionChangeRecord | None:
        """The record that gives the partition this ISR, these replicas and an eligible leader, and completes
        its reassignment if the ISR allows that; None if nothing changes. ISR and reassignment are the present
        ones unless they are given.

        The replica `lost` may have lost records, as after an unclean stop: it does not become eligible.
        """
        partition, rules, is_acceptable = self.partition, self.rules, self.is_acceptable
        isr = partition.isr if isr is None else isr
        reassignment = Reassignment.of(partition) if reassignment is None else reassignment
        reassignment, isr = reassignment.completed(isr, rules.min_isr, is_acceptable)
        replicas = reassignment.replicas
        eligible = _eligible_after(partition, replicas, isr, rules, lost)
        leader, is_unclean = elect(
            partition, reassignment, isr, eligible, rules, election or rules.election, is_acceptable
        )
        unchanged = PartitionChangeRecord(partition_id=self.index, topic_id=self.topic_id)
        record = PartitionChangeRecord(partition_id=self.index, topic_id=self.topic_id)
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
            known = {
                **reassignment.directories,
                **dict(zip(partition.replicas, partition.directories, strict=True)),
            }
            record.replicas = list(replicas)
            record.directories = [known[node] for node in replicas]
        if reassignment.adding != partition.adding_replicas:
            record.adding_replicas = list(reassignment.adding)
        if reassignment.removing != partition.removing_replicas:
            record.removing_replicas = list(reassignment.removing)
        return None if record == unchanged else record


def elect(
    partition: PartitionImage,
    reassignment: Reassignment,
    isr: tuple[NodeId, ...],
    eligible: tuple[NodeId, ...],
    rules: ElectionRules,
    election: Election,
    is_acceptable: IsAcceptable,
) -> tuple[NodeId, bool]:
    """(leader or -1, whether the election is unclean): the present leader stays if it is valid. An unclean
    election takes a replica that is being added, whose log is the shortest, after all others.
    """
    replicas = reassignment.replicas
    valid = isr or eligible
    first = replicas[:1] if election is Election.PREFERRED else ()
    able = [node for node in (*first, partition.leader, *replicas) if node in valid and is_acceptable(node)]
    if able:
        return next((node for node in able if node not in rules.avoided), able[0]), False
    if rules.has_elr and not valid and len(partition.last_known_elr) == 1:
        (last,) = partition.last_known_elr
        if last in replicas and is_acceptable(last):
            return last, True
    if election is Election.UNCLEAN:
        for node in (*reassignment.originals, *reassignment.adding):
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
    """Whether the broker has a replica of the partition, and its directory is online."""
    directory = partition.directory_of(broker.node_id)
    return directory is not None and broker.has_online(directory)


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
