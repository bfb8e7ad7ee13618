"""The entries of a metadata image: brokers, controllers, partitions and topics, and how the records of a
partition make and change its entry. Entries never change.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias, cast

import msgspec

from sparklog.model import LeaderEpoch, NodeId, Offset, Uuid

from .records import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    BrokerEndpoint,
    BrokerFeature,
    PartitionChangeRecord,
    PartitionRecord,
)

NO_NODE = NodeId(NO_LEADER)
DIRECTORY_MIGRATING = Uuid(bytes(16))
"""The directory of a replica is unknown: the record is older than KIP-858."""
DIRECTORY_LOST = Uuid(bytes(15) + b"\x02")
"""The directory of a replica that its broker cannot serve: it is offline, and no directory is named."""
_RESERVED_DIRECTORIES = 100


def is_reserved(directory: Uuid) -> bool:
    """Whether an id has a meaning of its own and can be that of no directory (KIP-858)."""
    return int.from_bytes(directory, "big") < _RESERVED_DIRECTORIES


class BrokerState(Enum):
    """The work that the cluster leaves to a broker, as its dynamic key `sparklog.broker.state` asks: all; all
    but new replicas; no leaderships either, where another replica is in sync; none, and it is unregistered.
    """

    ACTIVE = "active"
    CORDONED = "cordoned"
    DRAINED = "drained"
    DECOMMISSIONED = "decommissioned"


class Assignment(NamedTuple):
    """The directory that a replica is in, or is about to be in, as its broker reports it (KIP-858)."""

    topic_id: Uuid
    partition: int
    directory_id: Uuid


Assignments: TypeAlias = dict[tuple[Uuid, int], Assignment]
"""By topic id and partition: what a broker has yet to report."""


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """The address of one listener of a broker; the protocol is Kafka's number (0 is PLAINTEXT)."""

    name: str
    host: str
    port: int
    protocol: int


class BrokerImage(msgspec.Struct, frozen=True):
    """One registered broker; `epoch` is the offset of the record that registered this incarnation."""

    node_id: NodeId
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    is_fenced: bool
    is_in_controlled_shutdown: bool
    directories: tuple[Uuid, ...]
    cordoned_directories: tuple[Uuid, ...]
    features: Mapping[str, tuple[int, int]]
    registered_at: Offset

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead and be in sync."""
        return not self.is_fenced and not self.is_in_controlled_shutdown

    def has_online(self, directory: Uuid) -> bool:
        """Whether a directory that is assigned to a replica is online; an unassigned one counts as online
        (KIP-858).
        """
        return directory != DIRECTORY_LOST if is_reserved(directory) else directory in self.directories

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """The client address of that listener; None if the broker has no such listener."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener_name), None)


class ControllerImage(msgspec.Struct, frozen=True):
    """One registered controller (KIP-919): the listeners and the features of a voter."""

    node_id: NodeId
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]]


class PartitionImage(msgspec.Struct, frozen=True, gc=False):
    """One partition: replicas in order of preference, each with the directory at its index; leader -1 means
    no leader.
    """

    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    directories: tuple[Uuid, ...]
    removing_replicas: tuple[NodeId, ...] = ()
    adding_replicas: tuple[NodeId, ...] = ()
    is_recovering: bool = False
    eligible_leader_replicas: tuple[NodeId, ...] = ()
    last_known_elr: tuple[NodeId, ...] = ()

    def directory_of(self, node_id: NodeId) -> Uuid | None:
        """The assigned directory of a replica; None if the node has no replica of the partition."""
        return self.directories[self.replicas.index(node_id)] if node_id in self.replicas else None


class TopicImage(msgspec.Struct, frozen=True):
    """A topic; partition n is at index n."""

    name: str
    topic_id: Uuid
    partitions: tuple[PartitionImage, ...]


def endpoints_of(endpoints: Iterable[BrokerEndpoint]) -> tuple[Endpoint, ...]:
    """The listeners that a registration names."""
    return tuple(Endpoint(one.name, one.host, one.port, one.security_protocol) for one in endpoints)


def feature_ranges(features: Iterable[BrokerFeature]) -> dict[str, tuple[int, int]]:
    """The (lowest, highest) level of each feature that a registration names."""
    return {one.name: (one.min_supported_version, one.max_supported_version) for one in features}


def partition_of(record: PartitionRecord) -> PartitionImage:
    """The partition as its first record, or one that replaces it, describes it."""
    return PartitionImage(
        replicas=_nodes(record.replicas),
        isr=_nodes(record.isr),
        leader=NodeId(record.leader),
        leader_epoch=LeaderEpoch(record.leader_epoch),
        partition_epoch=record.partition_epoch,
        directories=_directories(record.directories, len(record.replicas)),
        removing_replicas=_nodes(record.removing_replicas),
        adding_replicas=_nodes(record.adding_replicas),
        is_recovering=record.leader_recovery_state == 1,
        eligible_leader_replicas=_nodes(record.eligible_leader_replicas or ()),
        last_known_elr=_nodes(record.last_known_elr or ()),
    )


def merged(partition: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """The partition after a change: each change raises its partition epoch, and naming a leader (or none)
    raises its leader epoch.
    """
    is_led_anew = record.leader != NO_LEADER_CHANGE
    replicas = partition.replicas if record.replicas is None else _nodes(record.replicas)
    return PartitionImage(
        replicas=replicas,
        isr=partition.isr if record.isr is None else _nodes(record.isr),
        leader=NodeId(record.leader) if is_led_anew else partition.leader,
        leader_epoch=LeaderEpoch(partition.leader_epoch + is_led_anew),
        partition_epoch=partition.partition_epoch + 1,
        directories=partition.directories
        if record.directories is None
        else _directories(record.directories, len(replicas)),
        removing_replicas=partition.removing_replicas
        if record.removing_replicas is None
        else _nodes(record.removing_replicas),
        adding_replicas=partition.adding_replicas
        if record.adding_replicas is None
        else _nodes(record.adding_replicas),
        is_recovering=partition.is_recovering
        if record.leader_recovery_state == -1
        else record.leader_recovery_state == 1,
        eligible_leader_replicas=partition.eligible_leader_replicas
        if record.eligible_leader_replicas is None
        else _nodes(record.eligible_leader_replicas),
        last_known_elr=partition.last_known_elr
        if record.last_known_elr is None
        else _nodes(record.last_known_elr),
    )


def _nodes(numbers: Iterable[int]) -> tuple[NodeId, ...]:
    # A call of NewType per number would take a third of the replay time.
    return cast(tuple[NodeId, ...], tuple(numbers))


def _directories(directories: Iterable[bytes], count: int) -> tuple[Uuid, ...]:
    return cast(tuple[Uuid, ...], tuple(directories)) or (DIRECTORY_MIGRATING,) * count
