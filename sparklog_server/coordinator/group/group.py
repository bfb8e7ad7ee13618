"""The common interface of classic and KIP-848 groups: listing, deletion, and validation of offset
requests.
"""

from collections.abc import Sized
from enum import StrEnum
from typing import Protocol

from sparklog.errors import ErrorCode
from sparklog.model import Millis
from sparklog_server.coordinator.shard import CoordinatorRecord


class GroupKind(StrEnum):
    """Kafka's group types, as in ListGroups; filters ignore the case."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Group(Protocol):
    """A group of either kind. No method changes the group."""

    @property
    def group_id(self) -> str: ...

    @property
    def members(self) -> Sized: ...

    @property
    def kind(self) -> GroupKind: ...

    def state_name(self) -> str:
        """The state in ListGroups and DescribeGroups: Stable, Empty, …"""

    def listed_protocol_type(self) -> str:
        """The protocol type in ListGroups: `consumer`, `connect`, or empty for a group that only commits."""

    def is_empty(self) -> bool:
        """Whether the group has no member: it may become a group of the other kind, or expire."""

    def validate_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        *,
        is_transactional: bool,
        version: int,
    ) -> ErrorCode:
        """Whether this member may commit offsets; `version` is that of its request."""

    def validate_commit_of(
        self, member_id: str, generation_or_epoch: int, topic_id: bytes, partition: int
    ) -> ErrorCode:
        """Whether this member, which passed `validate_commit`, may commit for this partition."""

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether this member may read committed offsets; a request without member id and epoch is not from a
        member.
        """

    def validate_offset_delete(self) -> ErrorCode:
        """Whether an administrator may delete offsets of topics to which no member subscribes."""

    def validate_delete(self) -> ErrorCode:
        """Whether the group may be deleted."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to this topic; True for consumers whose subscriptions cannot be
        decoded.
        """

    def offset_unused_since(self, commit_timestamp_ms: Millis) -> Millis | None:
        """The start of the retention of an offset that was committed at `commit_timestamp_ms`; None while the
        group may need the offset.
        """

    def tombstones(self) -> list[CoordinatorRecord]:
        """The tombstones of the group; those of its offsets are not among them."""
