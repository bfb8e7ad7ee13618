"""A member of a KIP-848 group: its subscription, and its progress towards its target.

    STABLE ──── a newer target takes something away ───► UNREVOKED_PARTITIONS
      ▲  │                                                   │ it no longer reports them
      │  └─ the target has partitions of others ─┐           ▼
      └──── they are free ◄──── UNRELEASED_PARTITIONS ◄──────┘

Members are immutable: a decision creates a new one, and the replay of its records creates an equal one.
"""

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from sparklog.model import Uuid
from sparklog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from sparklog_server.coordinator.command import Command

from .records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2

Assigned = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic id, each with the epoch since which the member owns it."""

NOTHING: Assigned = {}


class MemberState(IntEnum):
    """The states of a member, with the numbers of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """Written by a newer release: the member must join again."""


class ModernMember(msgspec.Struct, frozen=True):
    """One member. It may consume `assigned`; it was told to revoke `revoking`, and has not confirmed that
    yet.

    A member with `classic` speaks the classic protocol in a KIP-848 group; `epoch` is its generation.
    """

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assignor: str | None = None
    assigned: Assigned = NOTHING
    revoking: Assigned = NOTHING
    classic: ClassicMemberMetadata | None = None

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has reached the target of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def epoch_of(self, topic_id: Uuid, partition: int) -> int | None:
        """The epoch since which the member owns the partition; None if the partition is neither assigned nor
        being revoked.
        """
        for partitions in (self.assigned.get(topic_id), self.revoking.get(topic_id)):
            if partitions is not None and partition in partitions:
                return partitions[partition]
        return None

    def owned(self) -> Assigned:
        """The assigned partitions and those still to be revoked."""
        if not self.revoking:
            return self.assigned
        topic_ids = sorted({*self.assigned, *self.revoking})
        return {
            topic_id: {**self.assigned.get(topic_id, {}), **self.revoking.get(topic_id, {})}
            for topic_id in topic_ids
        }

    @property
    def protocols(self) -> tuple[str, ...]:
        """The classic protocols that the member supports, each once; none if it is not a classic member."""
        return (
            ()
            if self.classic is None
            else tuple({protocol.name: None for protocol in self.classic.supported_protocols})
        )

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        """The subscription of the member as a record."""
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topics),
            subscribed_topic_regex=self.pattern,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=self.classic,
        )

    def assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """The progress of the member as a record."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_recorded(self.assigned),
            partitions_pending_revocation=_recorded(self.revoking),
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> "ModernMember":
        """The member after a record of its subscription.

        Empty metadata count as null: earlier versions of sparklog omitted the field of members that do not
        speak the classic protocol, and no member that does has a session timeout of 0.
        """
        said = value.classic_member_metadata
        return msgspec.structs.replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=names_of(value.subscribed_topic_names),
            pattern=value.subscribed_topic_regex or "",
            assignor=value.server_assignor,
            classic=said if said is not None and said.session_timeout_ms else None,
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "ModernMember":
        """The member after a record of its progress."""
        return msgspec.structs.replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if value.state in _STATES else MemberState.UNKNOWN,
            assigned=_read(value.assigned_partitions, value.member_epoch),
            revoking=_read(value.partitions_pending_revocation, value.member_epoch),
        )


_STATES = frozenset(MemberState)


def names_of(names: list[str]) -> tuple[str, ...]:
    """Topic names as members and records hold them: sorted, without duplicates."""
    return tuple(sorted(set(names)))


def _recorded(assigned: Assigned) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id, sorted(partitions), [partitions[partition] for partition in sorted(partitions)]
        )
        for topic_id, partitions in sorted(assigned.items())
    ]


def _read(recorded: list[CurrentTopicPartitions], epoch: int) -> Assigned:
    """The assigned partitions with their epochs. Records of brokers before 4.3 have no epoch per partition:
    the member's epoch applies.
    """
    assigned = {}
    for topic in recorded:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [epoch] * len(topic.partitions)
        assigned[Uuid(topic.topic_id)] = dict(zip(topic.partitions, epochs, strict=True))
    return assigned


def response_assignment(assigned: Assigned) -> Assignment:
    """The partitions that a member may consume, as the heartbeat response lists them."""
    return Assignment(
        [TopicPartitions(topic_id, sorted(assigned[topic_id])) for topic_id in sorted(assigned)]
    )


def updated(known: ModernMember, request: ConsumerGroupHeartbeatRequest, command: Command) -> ModernMember:
    """The member after a heartbeat; fields that the request leaves out keep their values."""
    return msgspec.structs.replace(
        known,
        instance_id=known.instance_id if request.instance_id is None else request.instance_id,
        rack_id=known.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=known.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        assignor=known.assignor if request.server_assignor is None else request.server_assignor,
        topics=known.topics
        if request.subscribed_topic_names is None
        else names_of(request.subscribed_topic_names),
        pattern=known.pattern if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
        client_id=command.client_id,
        client_host=command.client_host,
        classic=None,
    )
