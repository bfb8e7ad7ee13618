"""The shard of groups: one partition of `__consumer_offsets`, replayed. `decide` passes a request to the code
for its kind of group.

                       ┌─► classic_requests.ClassicGroups ─┐
    command ─► decide ─┼─► the groups of KIP-848           ├─► the groups by id, of either kind
                       ├─► shard_offsets.GroupOffsets ─────┘
                       └─► shard_listing
"""

from collections.abc import Callable
from typing import Protocol

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, Offset
from sparklog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from sparklog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from sparklog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from sparklog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from sparklog.wire.messages.heartbeat import HeartbeatRequest
from sparklog.wire.messages.join_group import JoinGroupRequest
from sparklog.wire.messages.leave_group import LeaveGroupRequest
from sparklog.wire.messages.list_groups import ListGroupsResponse
from sparklog.wire.messages.offset_commit import OffsetCommitRequest
from sparklog.wire.messages.offset_delete import OffsetDeleteRequest
from sparklog.wire.messages.offset_fetch import OffsetFetchRequest
from sparklog.wire.messages.sync_group import SyncGroupRequest
from sparklog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from sparklog.wire.schema import Message
from sparklog_server.coordinator.command import Command, Token
from sparklog_server.coordinator.shard import Answer, CoordinatorRecord, Decision
from sparklog_server.metadata.image import MetadataDelta, MetadataImage

from .classic_requests import ClassicGroups
from .group import Group, GroupKind
from .group_config import GroupConfig
from .joining_clients import JoiningClients
from .offsets import Offsets
from .records import (
    CommittedOffset,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
)
from .shard_listing import GroupIds, ListedGroups, described, listed
from .shard_offsets import GroupOffsets

RECORD_BYTES_MAX = 1_000_000
"""The largest record of a group, with its key: it fits a batch of the default `max.message.bytes`
(1 048 588).
"""

Decide = Callable[[Command, Token, Instant], Decision]


class ModernKind(Protocol):
    """The interface of the shard to its KIP-848 groups. They share the dictionary of groups with the classic
    groups, and do not change classic ones.
    """

    def replay(self, key: Message, value: Message | None) -> None:
        """Replay a record of a KIP-848 group."""

    def loaded(self, image: MetadataImage, now: Instant) -> list[Decision]: ...

    def decide(self, command: Command, token: Token, now: Instant) -> Decision:
        """Decide on ConsumerGroupHeartbeat and ConsumerGroupDescribe, and on JoinGroup, SyncGroup, Heartbeat
        and LeaveGroup for a KIP-848 group. JoinGroup turns a group without members into a classic group."""

    def image_changed(self, delta: MetadataDelta, now: Instant) -> list[Decision]: ...

    def tick(self, now: Instant) -> list[Decision]: ...

    def deadline(self) -> Micros | None: ...

    def abandoned(self, token: Token) -> None: ...

    def waiting(self) -> list[Token]: ...


class GroupShard:
    """Implements `coordinator.shard.Shard` for groups and their offsets. `make_modern` constructs the KIP-848
    groups with the dictionary of groups.
    """

    def __init__(
        self,
        settings: GroupConfig,
        *,
        entropy: Callable[[int], bytes],
        trace: Callable[..., None],
        record_bytes_max: Callable[[], int] = lambda: RECORD_BYTES_MAX,
        make_modern: Callable[[dict[str, Group], ClassicGroups], ModernKind] | None = None,
        crowds: JoiningClients | None = None,
        initial_delay_ms: Callable[[], int] | None = None,
    ) -> None:
        """`initial_delay_ms` is called when the first member of a classic group joins; its default is the
        setting.
        """
        self._groups: dict[str, Group] = {}
        self._trace = trace
        self._classic = ClassicGroups(
            self._groups,
            settings,
            entropy,
            record_bytes_max=record_bytes_max,
            crowds=crowds or JoiningClients(),
            initial_delay_ms=initial_delay_ms or (lambda: settings.initial_rebalance_delay_ms),
        )
        self._modern: ModernKind = (
            make_modern(self._groups, self._classic) if make_modern else NoModernGroups()
        )
        self._offsets = Offsets(settings.offset_metadata_bytes_max)
        self._group_offsets = GroupOffsets(self._groups, self._classic, self._offsets, settings)
        self._decides: dict[type[Message], Decide] = {
            HeartbeatRequest: self._to_kind(self._classic.heartbeat),
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._to_kind(self._classic.sync),
            LeaveGroupRequest: self._to_kind(self._classic.leave),
            ConsumerGroupHeartbeatRequest: self._modern.decide,
            ConsumerGroupDescribeRequest: self._modern.decide,
            OffsetCommitRequest: self._group_offsets.commit,
            TxnOffsetCommitRequest: self._group_offsets.commit_in_transaction,
            OffsetFetchRequest: self._group_offsets.fetch,
            OffsetDeleteRequest: self._group_offsets.delete,
            GroupIds: self._group_ids,
            ListedGroups: self._list,
            DescribeGroupsRequest: self._describe,
            DeleteGroupsRequest: self._delete,
        }

    # -- the log

    def replay(self, key: bytes, value: bytes | None, offset: Offset) -> None:
        record = decode_record(key, value)
        if record is None:
            return
        self._replay(*record)

    def replay_undecided(self, producer_id: int, key: bytes, value: bytes | None, offset: Offset) -> None:
        record = decode_record(key, value)
        if record is None:
            return
        decoded_key, decoded = record
        if not isinstance(decoded_key, OffsetCommitKey):
            self._replay(decoded_key, decoded)  # as in Kafka, only offsets can be undecided
            return
        assert decoded is None or isinstance(decoded, OffsetCommitValue)
        if decoded is not None:
            self._classic.replayed_offset(decoded_key.group)
        self._offsets.replay_undecided(producer_id, decoded_key, decoded, offset)

    def replay_marker(self, producer_id: int, is_commit: bool, offset: Offset) -> None:
        self._offsets.replay_marker(producer_id, is_commit=is_commit)

    def replay_own(self, message: object, offset: Offset) -> None:
        assert isinstance(message, CommittedOffset)
        self._replay_offset(message.key, message.value)

    def _replay(self, decoded_key: Message, decoded: Message | None) -> None:
        if isinstance(decoded_key, OffsetCommitKey):
            assert decoded is None or isinstance(decoded, OffsetCommitValue)
            self._replay_offset(decoded_key, decoded)
        elif isinstance(decoded_key, LegacyOffsetCommitKey):
            assert decoded is None or isinstance(decoded, LegacyOffsetCommitValue)
            self._replay_offset(*_of_legacy(decoded_key, decoded))
        elif isinstance(decoded_key, GroupMetadataKey):
            assert decoded is None or isinstance(decoded, GroupMetadataValue)
            self._classic.replay(decoded_key, decoded)
        else:
            self._modern.replay(decoded_key, decoded)

    def _replay_offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is not None:
            self._classic.replayed_offset(key.group)
        self._offsets.replay(key, value)

    def loaded(self, image: MetadataImage, now: Instant) -> list[Decision]:
        self._group_offsets.image = image
        self._group_offsets.loaded(now)
        return [*self._classic.loaded(now), *self._modern.loaded(image, now)]

    # -- what it shows

    def group_ids(self) -> list[str]:
        """The groups of this shard."""
        return list(self._groups)

    def counted(self, group_id: str) -> tuple[str, int] | None:
        """The state of a group and the number of its members; None if it does not exist."""
        group = self._groups.get(group_id)
        return None if group is None else (group.state_name(), len(group.members))

    def committed_offsets(self, group_id: str) -> list[tuple[str, int, int]]:
        """The committed offsets of a group: topic, partition and offset, topic by topic."""
        return self._offsets.committed(group_id)

    # -- requests

    def decide(self, command: Command, token: Token, now: Instant) -> Decision:
        return self._decides[type(command.request)](command, token, now)

    def _to_kind(self, classic: Decide) -> Decide:
        """Pass a request for a KIP-848 group to that kind, every other request to `classic`."""
        groups = self._groups

        def decide(command: Command, token: Token, now: Instant) -> Decision:
            group = groups.get(command.request.group_id)  # type: ignore[attr-defined]
            if group is None or group.kind is GroupKind.CLASSIC:
                return classic(command, token, now)
            return self._modern.decide(command, token, now)

        return decide

    def _join(self, command: Command, token: Token, now: Instant) -> Decision:
        assert isinstance(command.request, JoinGroupRequest)
        group = self._groups.get(command.request.group_id)
        if group is None or group.kind is GroupKind.CLASSIC or group.is_empty():
            return self._classic.join(command, token, now)
        return self._modern.decide(command, token, now)

    def _group_ids(self, command: Command, token: Token, now: Instant) -> Decision:
        return _answered(token, GroupIds(list(self._groups)))

    def _list(self, command: Command, token: Token, now: Instant) -> Decision:
        assert isinstance(command.request, ListedGroups)
        return _answered(token, ListGroupsResponse(groups=listed(self._groups, command.request)))

    def _describe(self, command: Command, token: Token, now: Instant) -> Decision:
        assert isinstance(command.request, DescribeGroupsRequest)
        answers = [
            described(group_id, self._groups.get(group_id), command.version)
            for group_id in command.request.groups
        ]
        return _answered(token, DescribeGroupsResponse(groups=answers))

    def _delete(self, command: Command, token: Token, now: Instant) -> Decision:
        """DeleteGroups: remove groups without members, and their offsets."""
        assert isinstance(command.request, DeleteGroupsRequest)
        records: list[CoordinatorRecord] = []
        results = []
        for group_id in dict.fromkeys(command.request.groups_names):
            group = self._groups.get(group_id)
            error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.validate_delete()
            results.append(DeletableGroupResult(group_id, error))
            if group is not None and error is ErrorCode.NONE:
                records += (*self._offsets.delete_all(group_id), *group.tombstones())
                self._trace("group-deleted", group=group_id)
        return Decision(tuple(records), (Answer(token, DeleteGroupsResponse(results=results)),))

    # -- the image, time, and parked requests

    def image_changed(self, delta: MetadataDelta, now: Instant) -> list[Decision]:
        self._group_offsets.image = delta.after
        decisions = self._modern.image_changed(delta, now)
        if delta.topics_deleted:
            deleted = frozenset(topic.name for topic in delta.topics_deleted)
            records = self._offsets.of_deleted_topics(deleted)
            if records:
                decisions.append(Decision(records))
        return decisions

    def tick(self, now: Instant) -> list[Decision]:
        return [*self._classic.tick(now), *self._modern.tick(now), *self._group_offsets.tick(now)]

    def deadline(self) -> Micros | None:
        # Called after every decision, heartbeats included: written without a loop it takes a quarter of the
        # time.
        earliest = self._group_offsets.deadline()
        deadline = self._classic.deadline()
        if deadline is not None and (earliest is None or deadline < earliest):
            earliest = deadline
        deadline = self._modern.deadline()
        if deadline is not None and (earliest is None or deadline < earliest):
            earliest = deadline
        return earliest

    def abandoned(self, token: Token) -> None:
        self._classic.abandoned(token)
        self._modern.abandoned(token)

    def waiting(self) -> list[Token]:
        return [*self._classic.waiting(), *self._modern.waiting()]

    def dropped(self) -> None:
        """A group asks nothing of the broker."""


class NoModernGroups:
    """A shard without KIP-848 groups: their requests get the answer of a Kafka broker without the feature."""

    def replay(self, key: Message, value: Message | None) -> None:
        """Skip the record of a KIP-848 group."""

    def loaded(self, image: MetadataImage, now: Instant) -> list[Decision]:
        return []

    def decide(self, command: Command, token: Token, now: Instant) -> Decision:
        if isinstance(command.request, ConsumerGroupDescribeRequest):
            groups = [
                DescribedGroup(group_id=one, error_code=ErrorCode.UNSUPPORTED_VERSION)
                for one in command.request.group_ids
            ]
            return _answered(token, ConsumerGroupDescribeResponse(groups=groups))
        return _answered(token, ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))

    def image_changed(self, delta: MetadataDelta, now: Instant) -> list[Decision]:
        return []

    def tick(self, now: Instant) -> list[Decision]:
        return []

    def deadline(self) -> Micros | None:
        return None

    def abandoned(self, token: Token) -> None:
        """No request waits."""

    def waiting(self) -> list[Token]:
        return []


def _answered(token: Token, reply: Message) -> Decision:
    return Decision((), (Answer(token, reply),))


def _of_legacy(
    key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None
) -> tuple[OffsetCommitKey, OffsetCommitValue | None]:
    """The commit of an old broker in the current format."""
    committed = None
    if value is not None:
        committed = OffsetCommitValue(
            offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
        )
    return OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition), committed
