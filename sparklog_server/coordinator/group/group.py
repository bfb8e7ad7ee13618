"""A group as everybody outside its own kind sees it: listed, deleted, and asked whether offsets may be
committed under its name.
"""

from enum import StrEnum
from typing import Protocol

from sparklog.errors import ErrorCode
from sparklog.model import Millis
from sparklog_server.coordinator.shard import CoordinatorRecord


class GroupKind(StrEnum):
    """Kafka's group types, as ListGroups names them; filters disregard the case."""

    CLASSIC = "Classic"
    CONSUMER = "Consumer"


class Group(Protocol):
    """What classic groups and those of KIP-848 have in common. None of these methods changes anything."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> GroupKind: ...

    def state_name(self) -> str:
        """As ListGroups and the describing requests name it: Stable, Empty, …"""

    def listed_protocol_type(self) -> str:
        """As ListGroups tells it: `consumer`, `connect`, or nothing for a group that only commits."""

    def is_empty(self) -> bool:
        """No member is in it, so it may become a group of the other kind, or vanish with its last offset."""

    def validate_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        *,
        is_transactional: bool,
        version: int,
    ) -> ErrorCode:
        """May this member commit offsets? `version` is that of the API that it uses."""

    def validate_commit_of(
        self, member_id: str, generation_or_epoch: int, topic_id: bytes, partition: int
    ) -> ErrorCode:
        """May this member, whom `validate_commit` let pass, commit an offset of this partition?"""

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """May this member, or a stranger (no id, epoch below 0), read the committed offsets?"""

    def validate_offset_delete(self) -> ErrorCode:
        """May offsets of topics that nobody here subscribes to be deleted by an administrator?"""

    def validate_delete(self) -> ErrorCode:
        """May the group be deleted?"""

    def is_subscribed_to(self, topic: str) -> bool:
        """Does any member want this topic, as far as the coordinator can tell?"""

    def offset_unused_since(self, commit_timestamp_ms: Millis) -> Millis | None:
        """From when on the retention of an offset committed at that time is counted; None while the group
        may need it.
        """

    def tombstones(self) -> list[CoordinatorRecord]:
        """What makes the group itself forgotten; its offsets have tombstones of their own."""
