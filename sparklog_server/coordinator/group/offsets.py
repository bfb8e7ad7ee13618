"""The offsets that groups have committed, by group, topic and partition.

This state is durable: only replay changes it. The shard lets the group validate a commit first. A commit with
its own retention time (OffsetCommit 2 to 4) expires after that time; any other expires
`offsets.retention.minutes` after the group was last in use, or after the commit if there is no group.
"""

from collections.abc import Callable, Iterator
from typing import Final

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Millis, Offset
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from sparklog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from sparklog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from sparklog.wire.schema import ZERO_UUID
from sparklog_server.coordinator.shard import CoordinatorRecord

from .pending import PendingOffsets
from .records import OffsetCommitKey, OffsetCommitValue, encode_commit, encode_record

_NO_RETENTION = -1
_NEVER = 2**63 - 1
"""The latest time that a record can have."""
_NONE: Final = ErrorCode.NONE  # Reading an enum member through its class costs as much as two calls.
_EXPIRING_VERSION = 1
"""The version of the value that has an expiry time."""

IsStale = Callable[[str, bytes, int], ErrorCode]
"""Topic, topic id and partition → the code that refuses a commit for it, or NONE."""
Topics = dict[str, dict[int, OffsetCommitValue]]


class Offsets:
    """The committed offsets of one shard. Invariant: no table of a group or topic is empty."""

    def __init__(self, metadata_chars_max: int) -> None:
        self._groups: dict[str, Topics] = {}
        self.pending = PendingOffsets()
        self._metadata_chars_max = metadata_chars_max

    def __contains__(self, group_id: str) -> bool:
        """Whether the group has committed offsets."""
        return group_id in self._groups

    def groups(self) -> Iterator[str]:
        """The groups with committed offsets."""
        return iter(self._groups)

    def count(self, group_id: str) -> int:
        """The number of partitions with committed offsets of the group."""
        return sum(len(partitions) for partitions in self._groups.get(group_id, {}).values())

    def committed(self, group_id: str) -> list[tuple[str, int, int]]:
        """The committed offsets of a group: topic, partition and offset, topic by topic."""
        return [
            (topic, partition, value.offset)
            for topic, partitions in self._groups.get(group_id, {}).items()
            for partition, value in partitions.items()
        ]

    # -- durable

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Replay a commit; None is its tombstone."""
        if self.pending:
            if value is None:
                self.pending.forget(key)
            else:
                self.pending.overtaken(key)
        self._put(key, value)

    def replay_undecided(
        self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None, offset: Offset
    ) -> None:
        """Replay a commit in a transaction, or a tombstone, which takes effect at once."""
        if value is None:
            self.replay(key, None)
        else:
            self.pending.add(producer_id, key, value, offset)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """Replay the marker that ends the transaction of a producer."""
        for key, value in self.pending.ended(producer_id, is_commit=is_commit):
            self._put(key, value)

    def _put(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is not None:
            topics = self._groups.get(key.group)
            if topics is None:
                topics = self._groups[key.group] = {}
            partitions = topics.get(key.topic)
            if partitions is None:
                partitions = topics[key.topic] = {}
            partitions[key.partition] = value
            return
        topics = self._groups.get(key.group)
        partitions = None if topics is None else topics.get(key.topic)
        if topics is None or partitions is None:
            return
        partitions.pop(key.partition, None)
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self._groups[key.group]

    # -- decisions

    def commit(
        self, request: OffsetCommitRequest, refusal: IsStale | None, now: Instant
    ) -> tuple[tuple[CoordinatorRecord, ...], OffsetCommitResponse]:
        """The records and the answer of a commit that the group accepts; `refusal` checks each partition."""
        expire_timestamp = (
            min(now.wall_ms + request.retention_time_ms, _NEVER)
            if request.retention_time_ms != _NO_RETENTION
            else -1
        )
        expires = request.retention_time_ms != _NO_RETENTION
        records: list[CoordinatorRecord] = []
        response = OffsetCommitResponse(topics=[])
        for topic in request.topics:
            answered = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[])
            response.topics.append(answered)
            for partition in topic.partitions:
                code = _NONE
                metadata = partition.committed_metadata or ""
                if len(metadata) > self._metadata_chars_max:
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                elif refusal is not None:
                    code = refusal(topic.name, topic.topic_id, partition.partition_index)
                answered.partitions.append(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                )
                if code is _NONE:
                    value = OffsetCommitValue(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=now.wall_ms,
                        expire_timestamp=expire_timestamp,
                        topic_id=topic.topic_id,
                    )
                    if expires:
                        key = OffsetCommitKey(
                            group=request.group_id, topic=topic.name, partition=partition.partition_index
                        )
                        records.append(encode_record(key, value, _EXPIRING_VERSION))
                    else:
                        records.append(
                            encode_commit(request.group_id, topic.name, partition.partition_index, value)
                        )
        return tuple(records), response

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, now: Instant
    ) -> tuple[tuple[CoordinatorRecord, ...], TxnOffsetCommitResponse]:
        """The records and the answer of a commit in a transaction that the group accepts."""
        records: list[CoordinatorRecord] = []
        response = TxnOffsetCommitResponse(topics=[])
        for topic in request.topics:
            answered = TxnOffsetCommitResponseTopic(name=topic.name, partitions=[])
            response.topics.append(answered)
            for partition in topic.partitions:
                metadata = partition.committed_metadata or ""
                code = (
                    ErrorCode.OFFSET_METADATA_TOO_LARGE if len(metadata) > self._metadata_chars_max else _NONE
                )
                answered.partitions.append(
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
                if code is _NONE:
                    value = OffsetCommitValue(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=now.wall_ms,
                    )
                    records.append(
                        encode_commit(request.group_id, topic.name, partition.partition_index, value)
                    )
        return tuple(records), response

    def fetch(self, request: OffsetFetchRequestGroup, *, is_stable: bool) -> OffsetFetchResponseGroup:
        """The committed offsets of the requested partitions, or of all; -1 if a partition has none.

        With `is_stable`, a partition with undecided offsets gets UNSTABLE_OFFSET_COMMIT (KIP-447).
        """
        fetched = self._fetched(request)
        if is_stable and request.group_id in self.pending:
            for topic in fetched.topics:
                topic.partitions = [
                    _unstable(part.partition_index)
                    if self.pending.is_undecided(request.group_id, topic.name, part.partition_index)
                    else part
                    for part in topic.partitions
                ]
        return fetched

    def _fetched(self, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        topics = self._groups.get(request.group_id, {})
        if request.topics is None:
            everything = [
                OffsetFetchResponseTopics(
                    name=name, partitions=[_fetched(index, value) for index, value in partitions.items()]
                )
                for name, partitions in topics.items()
            ]
            return OffsetFetchResponseGroup(group_id=request.group_id, topics=everything)
        answered = []
        for topic in request.topics:
            partitions = topics.get(topic.name, {})
            parts = [
                _fetched(index, _of_topic(partitions.get(index), topic.topic_id))
                for index in topic.partition_indexes
            ]
            answered.append(
                OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=parts)
            )
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=answered)

    def delete(
        self, request: OffsetDeleteRequest, is_subscribed: Callable[[str], bool]
    ) -> tuple[tuple[CoordinatorRecord, ...], OffsetDeleteResponse]:
        """The tombstones and the answer of OffsetDelete, for topics to which the group does not subscribe
        (KIP-496).
        """
        records: list[CoordinatorRecord] = []
        response = OffsetDeleteResponse(topics=[])
        known = self._groups.get(request.group_id, {})
        for topic in request.topics:
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed(topic.name) else ErrorCode.NONE
            answered = OffsetDeleteResponseTopic(name=topic.name, partitions=[])
            response.topics.append(answered)
            committed = known.get(topic.name, {})
            for partition in topic.partitions:
                index = partition.partition_index
                answered.partitions.append(
                    OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                )
                is_known = index in committed or self.pending.is_undecided(
                    request.group_id, topic.name, index
                )
                if code is ErrorCode.NONE and is_known:
                    records.append(_tombstone(request.group_id, topic.name, index))
        return tuple(records), response

    def delete_all(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """The tombstones of all offsets of a group."""
        topics = self._groups.get(group_id, {})
        known = {(name, index): None for name, partitions in topics.items() for index in partitions}
        known |= dict.fromkeys(self.pending.partitions(group_id))
        return tuple(_tombstone(group_id, name, index) for name, index in known)

    def of_deleted_topics(self, deleted: frozenset[str]) -> tuple[CoordinatorRecord, ...]:
        """The tombstones of the offsets of deleted topics, in every group: one pass for all of them."""
        known = {
            (group_id, topic, index): None
            for group_id, topics in self._groups.items()
            for topic, partitions in topics.items()
            if topic in deleted
            for index in partitions
        }
        for group_id in self.pending.groups():
            known |= {
                (group_id, topic, index): None
                for topic, index in self.pending.partitions(group_id)
                if topic in deleted
            }
        return tuple(_tombstone(*one) for one in known)

    def expired(
        self,
        group_id: str,
        unused_since: Callable[[Millis], Millis | None],
        is_subscribed: Callable[[str], bool],
        retention_ms: int,
        now: Instant,
    ) -> tuple[tuple[CoordinatorRecord, ...], bool]:
        """The tombstones of expired offsets, and whether the group has no offset left after them.

        `unused_since` returns the start of the retention of an offset by its commit timestamp; None while the
        group may need it.
        """
        topics = self._groups.get(group_id)
        if topics is None:
            return (), group_id not in self.pending
        records: list[CoordinatorRecord] = []
        is_all = group_id not in self.pending
        for name, partitions in topics.items():
            is_kept = is_subscribed(name)
            for index, value in partitions.items():
                is_due = not is_kept and _is_expired(value, unused_since, retention_ms, now)
                if is_due and not self.pending.is_undecided(group_id, name, index):
                    records.append(_tombstone(group_id, name, index))
                else:
                    is_all = False
        return tuple(records), is_all


def _is_expired(
    value: OffsetCommitValue, unused_since: Callable[[Millis], Millis | None], retention_ms: int, now: Instant
) -> bool:
    since = unused_since(Millis(value.commit_timestamp))
    if since is None:
        return False
    return now.wall_ms >= (value.expire_timestamp if value.expire_timestamp >= 0 else since + retention_ms)


def refused_commit(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """The answer to a commit with one code for every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refused_txn_commit(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """The answer to a commit within a transaction with one code for every partition."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition.partition_index, code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=-1,
        committed_leader_epoch=-1,
        metadata="",
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )


def _of_topic(value: OffsetCommitValue | None, topic_id: bytes) -> OffsetCommitValue | None:
    """The committed offset, unless it belongs to a deleted topic of the same name."""
    if value is None or ZERO_UUID in (value.topic_id, topic_id) or value.topic_id == topic_id:
        return value
    return None


def _fetched(index: int, value: OffsetCommitValue | None) -> OffsetFetchResponsePartitions:
    if value is None:
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata=""
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _tombstone(group_id: str, topic: str, index: int) -> CoordinatorRecord:
    return encode_record(OffsetCommitKey(group=group_id, topic=topic, partition=index), None)
