"""Commit, fetch, deletion and expiration of offsets, as the group of the offsets allows."""

from collections import deque
from typing import Final

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros
from sparklog.wire.messages.offset_commit import OffsetCommitRequest
from sparklog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from sparklog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from sparklog.wire.schema import ZERO_UUID
from sparklog_server.coordinator.command import Command, Token
from sparklog_server.coordinator.shard import NOTHING, Answer, Decision, InTransaction
from sparklog_server.metadata.image import MetadataImage

from .classic import ClassicGroup, State
from .classic_requests import ClassicGroups
from .group import Group
from .group_config import GroupConfig
from .offsets import IsStale, Offsets, refused_commit, refused_txn_commit

GROUP_ID_NOT_FOUND_SINCE = 9
"""The version of OffsetCommit from which an unknown group has its own error; earlier versions get
ILLEGAL_GENERATION.
"""
_NONE: Final = ErrorCode.NONE  # Reading an enum member through its class costs as much as two calls.
_COMMITTING: Final = (State.STABLE, State.PREPARING_REBALANCE)
_GROUPS_AT_ONCE = 100
"""The number of groups examined for expired offsets in one turn: some tenths of a millisecond."""


class GroupOffsets:
    """The requests for offsets of a shard's groups, and the removal of expired offsets."""

    def __init__(
        self, groups: dict[str, Group], classic: ClassicGroups, offsets: Offsets, settings: GroupConfig
    ) -> None:
        self._groups = groups
        self._classic = classic
        self._offsets = offsets
        self._settings = settings
        self.image = MetadataImage()
        self._unchecked: deque[str] = deque()
        self._next_sweep: Micros | None = None

    # -- requests

    def commit(self, command: Command, token: Token, now: Instant) -> Decision:
        """OffsetCommit: by a member in its generation or epoch, or by any client if the group has no
        members.
        """
        request = command.request
        assert isinstance(request, OffsetCommitRequest)
        group = self._groups.get(request.group_id)
        error = _commit_error(group, request, command.version)
        if error is not _NONE:
            return Decision((), (Answer(token, refused_commit(request, error)),))
        refusal: IsStale | None = None
        if isinstance(group, ClassicGroup):
            if group.state in _COMMITTING:
                self._classic.committed(group, request.member_id, now)
        elif group is not None:
            refusal = _refusal_of(group, request)
        records, reply = self._offsets.commit(request, refusal, now)
        return Decision(records, (Answer(token, reply),), may_be_refused=True)

    def commit_in_transaction(self, command: Command, token: Token, now: Instant) -> Decision:
        """TxnOffsetCommit: like a commit, but undecided until the marker of the producer's transaction;
        either every partition is accepted or none.
        """
        request = command.request
        assert isinstance(request, TxnOffsetCommitRequest)
        error = self._txn_commit_error(request, command.version)
        if error is not _NONE:
            return Decision((), (Answer(token, refused_txn_commit(request, error)),))
        records, reply = self._offsets.commit_in_transaction(request, now)
        transaction = InTransaction(request.producer_id, request.producer_epoch, command.proof)
        return Decision(records, (Answer(token, reply),), transaction)

    def _txn_commit_error(self, request: TxnOffsetCommitRequest, version: int) -> ErrorCode:
        group = self._groups.get(request.group_id)
        if group is None:
            return _NONE if request.generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
        member_id, generation = request.member_id, request.generation_id
        error = group.validate_commit(
            member_id, request.group_instance_id, generation, is_transactional=True, version=version
        )
        if error is _NONE and not isinstance(group, ClassicGroup):
            for topic in request.topics:
                for partition in topic.partitions:
                    error = error or group.validate_commit_of(
                        member_id, generation, self._topic_id(topic.name), partition.partition_index
                    )
        return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error

    def _topic_id(self, topic: str) -> bytes:
        known = self.image.topics_by_name.get(topic)
        return ZERO_UUID if known is None else known.topic_id

    def fetch(self, command: Command, token: Token, now: Instant) -> Decision:
        """OffsetFetch for groups of this shard."""
        request = command.request
        assert isinstance(request, OffsetFetchRequest)
        groups = [self._fetch(asked, is_stable=request.require_stable) for asked in request.groups]
        return Decision((), (Answer(token, OffsetFetchResponse(groups=groups)),))

    def _fetch(self, asked: OffsetFetchRequestGroup, *, is_stable: bool) -> OffsetFetchResponseGroup:
        group = self._groups.get(asked.group_id)
        error = ErrorCode.NONE if group is None else group.validate_fetch(asked.member_id, asked.member_epoch)
        if error is not ErrorCode.NONE:
            return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error)
        return self._offsets.fetch(
            asked, is_stable=is_stable
        )  # a group that does not exist has no committed offsets, which is not an error

    def delete(self, command: Command, token: Token, now: Instant) -> Decision:
        """OffsetDelete: for topics to which no member subscribes."""
        request = command.request
        assert isinstance(request, OffsetDeleteRequest)
        group = self._groups.get(request.group_id)
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        else:
            error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.validate_offset_delete()
        if error is not ErrorCode.NONE or group is None:
            return Decision((), (Answer(token, OffsetDeleteResponse(error_code=error)),))
        records, reply = self._offsets.delete(request, group.is_subscribed_to)
        return Decision(records, (Answer(token, reply),), may_be_refused=True)

    # -- time

    def loaded(self, now: Instant) -> None:
        """Schedule the first removal of expired offsets, one interval from now."""
        self._next_sweep = Micros(now.mono_us + self._settings.offsets_retention_check_interval_ms * 1000)

    def tick(self, now: Instant) -> list[Decision]:
        """Remove expired offsets of some groups; an empty group is deleted with its last offset."""
        if self._next_sweep is None or now.mono_us < self._next_sweep:
            return []
        if not self._unchecked:
            self._unchecked.extend(self._groups)
        decisions = []
        for _ in range(min(_GROUPS_AT_ONCE, len(self._unchecked))):
            decisions.append(self._expire(self._unchecked.popleft(), now))
        interval_us = 0 if self._unchecked else self._settings.offsets_retention_check_interval_ms * 1000
        self._next_sweep = Micros(now.mono_us + interval_us)
        return [decision for decision in decisions if decision is not NOTHING]

    def deadline(self) -> Micros | None:
        return self._next_sweep

    def _expire(self, group_id: str, now: Instant) -> Decision:
        group = self._groups.get(group_id)
        if group is None:
            return NOTHING
        retention_ms = self._settings.offsets_retention_ms
        records, is_all = self._offsets.expired(
            group_id, group.offset_unused_since, group.is_subscribed_to, retention_ms, now
        )
        if is_all and group.is_empty():
            records = (*records, *group.tombstones())
        return Decision(records, may_be_refused=True) if records else NOTHING


def _commit_error(group: Group | None, request: OffsetCommitRequest, version: int) -> ErrorCode:
    generation = request.generation_id_or_member_epoch
    if group is not None:
        return group.validate_commit(
            request.member_id, request.group_instance_id, generation, is_transactional=False, version=version
        )
    if generation < 0:
        return ErrorCode.NONE
    return (
        ErrorCode.GROUP_ID_NOT_FOUND if version >= GROUP_ID_NOT_FOUND_SINCE else ErrorCode.ILLEGAL_GENERATION
    )


def _refusal_of(group: Group, request: OffsetCommitRequest) -> IsStale:
    def refusal(topic: str, topic_id: bytes, partition: int) -> ErrorCode:
        return group.validate_commit_of(
            request.member_id, request.generation_id_or_member_epoch, topic_id, partition
        )

    return refusal
