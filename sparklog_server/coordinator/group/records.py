"""The durable records of `__consumer_offsets`: Kafka's types, versions and fields (level 4.3).

    key     int16 record type, fields (never flexible)
    value   int16 version, fields; no value at all forgets the key

Types 0 and 1 are both offset commits. Those of share and streams groups, which this release does not keep,
are recognised: `decode_record` returns None for them, and they stay in the log unchanged.
"""

from functools import lru_cache
from typing import Annotated, ClassVar, NamedTuple

import msgspec

from sparklog.errors import DecodeError
from sparklog.wire.codec import decode, encode
from sparklog.wire.schema import (
    ZERO_UUID,
    Bytes,
    Int8,
    Int32,
    Int64,
    Message,
    NullableStr,
    Str,
    Uuid,
    Versions,
    nullable,
    since,
    tagged,
    until,
)
from sparklog_server.coordinator.shard import CoordinatorRecord

# -- offsets


class LegacyOffsetCommitKey(Message):
    """The key of type 0, written by old brokers; its fields are those of type 1."""

    versions: ClassVar = Versions(0, 0)

    group: Str = ""
    topic: Str = ""
    partition: Int32 = 0


class LegacyOffsetCommitValue(Message):
    versions: ClassVar = Versions(0, 0)

    offset: Int64 = 0
    metadata: Str = ""
    commit_timestamp: Int64 = 0


class OffsetCommitKey(Message):
    versions: ClassVar = Versions(0, 0)

    group: Str = ""
    topic: Str = ""
    partition: Int32 = 0


class OffsetCommitValue(Message):
    """A committed offset. Version 1 is written for commits with a retention time of their own; only it has an
    expiry time.
    """

    versions: ClassVar = Versions(0, 4, flexible=4)

    offset: Int64 = 0
    leader_epoch: Annotated[Int32, since(3)] = -1
    metadata: Str = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Annotated[Int64, since(1), until(1)] = -1
    topic_id: Annotated[Uuid, since(4), tagged(0)] = ZERO_UUID


# -- classic groups


class GroupMetadataKey(Message):
    versions: ClassVar = Versions(0, 0)

    group: Str = ""


class GroupMetadataMember(Message):
    member_id: Str = ""
    group_instance_id: Annotated[NullableStr, since(3), nullable(3)] = None
    client_id: Str = ""
    client_host: Str = ""
    rebalance_timeout: Annotated[Int32, since(1)] = -1
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadataValue(Message):
    """A classic group in one generation, with the assignment of each member."""

    versions: ClassVar = Versions(0, 4, flexible=4)

    protocol_type: Str = ""
    generation: Int32 = 0
    protocol: NullableStr = None
    leader: NullableStr = None
    current_state_timestamp: Annotated[Int64, since(2)] = -1
    members: list[GroupMetadataMember] = []


# -- KIP-848 groups


class ConsumerGroupMetadataKey(Message):
    versions: ClassVar = Versions(0, 0)

    group_id: Str = ""


class ConsumerGroupMetadataValue(Message):
    """The group epoch, and the hash of the subscribed topics (KIP-1101)."""

    versions: ClassVar = Versions(0, 0, flexible=0)

    epoch: Int32 = 0
    metadata_hash: Annotated[Int64, tagged(0)] = 0


class ConsumerGroupPartitionMetadataKey(Message):
    """The key of the topic metadata that brokers before 4.1 wrote in place of the hash; 4.3 writes only
    tombstones for it.
    """

    versions: ClassVar = Versions(0, 0)

    group_id: Str = ""


class PartitionRacks(Message):
    partition: Int32 = 0
    racks: list[Str] = []


class SubscribedTopic(Message):
    topic_id: Uuid = ZERO_UUID
    topic_name: Str = ""
    num_partitions: Int32 = 0
    partition_metadata: list[PartitionRacks] = []


class ConsumerGroupPartitionMetadataValue(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    topics: list[SubscribedTopic] = []


class ConsumerGroupMemberMetadataKey(Message):
    versions: ClassVar = Versions(0, 0)

    group_id: Str = ""
    member_id: Str = ""


class ClassicProtocol(Message):
    name: Str = ""
    metadata: Bytes = b""


class ClassicMemberMetadata(Message):
    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = []


class ConsumerGroupMemberMetadataValue(Message):
    """The subscription of a member; with `classic_member_metadata` it speaks the classic protocol in a
    consumer group.

    As in Kafka, a null `classic_member_metadata` is written, and a record without the field has the empty
    one: the default of a struct, nullable or not, is the empty struct.
    """

    versions: ClassVar = Versions(0, 0, flexible=0)

    instance_id: NullableStr = None
    rack_id: NullableStr = None
    client_id: Str = ""
    client_host: Str = ""
    subscribed_topic_names: list[Str] = []
    subscribed_topic_regex: NullableStr = None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: NullableStr = None
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, nullable(0), tagged(0)] = msgspec.field(
        default_factory=ClassicMemberMetadata
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message):
    versions: ClassVar = Versions(0, 0)

    group_id: Str = ""


class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """The epoch of the target assignment, written after the target of every member, and the time of its
    computation (KIP-1263).
    """

    versions: ClassVar = Versions(0, 0, flexible=0)

    assignment_epoch: Int32 = 0
    assignment_timestamp: Annotated[Int64, tagged(0)] = 0


class ConsumerGroupTargetAssignmentMemberKey(Message):
    versions: ClassVar = Versions(0, 0)

    group_id: Str = ""
    member_id: Str = ""


class TargetTopicPartitions(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


class ConsumerGroupTargetAssignmentMemberValue(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    topic_partitions: list[TargetTopicPartitions] = []


class ConsumerGroupCurrentMemberAssignmentKey(Message):
    versions: ClassVar = Versions(0, 0)

    group_id: Str = ""
    member_id: Str = ""


class CurrentTopicPartitions(Message):
    """`assignment_epochs`, if present, has the epoch since which the member owns each of `partitions`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []
    assignment_epochs: Annotated[list[Int32] | None, nullable(0), tagged(0)] = None


class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """The partitions that a member owns, and those it must revoke first; `state` is 0 stable, 1 unrevoked, 2
    unreleased partitions.
    """

    versions: ClassVar = Versions(0, 0, flexible=0)

    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[CurrentTopicPartitions] = []
    partitions_pending_revocation: list[CurrentTopicPartitions] = []


class ConsumerGroupRegularExpressionKey(Message):
    versions: ClassVar = Versions(0, 0)

    group_id: Str = ""
    regular_expression: Str = ""


class ConsumerGroupRegularExpressionValue(Message):
    """The topics that a pattern matched, the version of the metadata, and the time of the resolution (epoch
    milliseconds).
    """

    versions: ClassVar = Versions(0, 0, flexible=0)

    topics: list[Str] = []
    version: Int64 = 0
    timestamp: Int64 = 0


# -- the table


class RecordType(NamedTuple):
    """A record's number, its key and its value, and the version of the value that Kafka 4.3 writes."""

    number: int
    key: type[Message]
    value: type[Message]
    version: int


TYPES = (
    RecordType(0, LegacyOffsetCommitKey, LegacyOffsetCommitValue, 0),
    RecordType(1, OffsetCommitKey, OffsetCommitValue, 4),
    RecordType(2, GroupMetadataKey, GroupMetadataValue, 3),
    RecordType(3, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, 0),
    RecordType(4, ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, 0),
    RecordType(5, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, 0),
    RecordType(6, ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, 0),
    RecordType(7, ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, 0),
    RecordType(8, ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, 0),
    RecordType(16, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, 0),
)
NOT_KEPT = frozenset({10, 11, 12, 13, 14, 15, 17, 19, 20, 21, 22, 23})
"""The record types of share groups (10 to 15) and of streams groups (17 to 23)."""

_BY_NUMBER = {kind.number: kind for kind in TYPES}
_BY_KEY = {kind.key: kind for kind in TYPES}
_PREFIX = 2
_PREFIXES = tuple(number.to_bytes(_PREFIX, "big") for number in range(1 + max(_BY_NUMBER)))
_COMMIT_VERSION = _BY_KEY[OffsetCommitKey].version


def encode_record(key: Message, value: Message | None, version: int | None = None) -> CoordinatorRecord:
    """The record of a key and its value; the value None is a tombstone.

    `version` is the version of the value, by default the one that Kafka 4.3 writes: an OffsetCommitValue with
    an expiry time needs 1.
    """
    kind = _BY_KEY[type(key)]
    encoded_key = _prefixed(kind.number, key, 0)
    if value is None:
        return CoordinatorRecord(encoded_key, None)
    assert type(value) is kind.value, f"{type(key).__name__} has no value of type {type(value).__name__}"
    written = kind.version if version is None else version
    return CoordinatorRecord(encoded_key, _prefixed(written, value, written))


def decode_record(
    key: bytes | memoryview, value: bytes | memoryview | None
) -> tuple[Message, Message | None] | None:
    """The key and value of a record; None for one of a share or streams group.

    Raises DecodeError for bytes that do not follow the schema, and for a type or version that Kafka 4.3
    does not know.
    """
    number = _leading_int16(key, "key")
    kind = _BY_NUMBER.get(number)
    if kind is None:
        if number in NOT_KEPT:
            return None
        raise DecodeError(f"unknown coordinator record type {number}", 0)
    decoded_key = decode(kind.key, 0, memoryview(key)[_PREFIX:])
    if value is None:
        return decoded_key, None
    version = _leading_int16(value, "value")
    if not kind.value.versions.since <= version <= kind.value.versions.until:
        raise DecodeError(f"unknown version {version} of coordinator record type {number}", 0)
    return decoded_key, decode(kind.value, version, memoryview(value)[_PREFIX:])


def encode_commit_key(group: str, topic: str, partition: int) -> tuple[OffsetCommitKey, bytes]:
    """The key of a commit and its bytes, cached: a group commits the same partitions repeatedly."""
    # Longer names are not cached: 16 384 names of 32 KB would take a gigabyte.
    return (
        _kept_commit_key(group, topic, partition)
        if len(group) <= 256
        else _commit_key(group, topic, partition)
    )


def _commit_key(group: str, topic: str, partition: int) -> tuple[OffsetCommitKey, bytes]:
    key = OffsetCommitKey(group, topic, partition)
    return key, _prefixed(_BY_KEY[OffsetCommitKey].number, key, 0)


_kept_commit_key = lru_cache(maxsize=16_384)(_commit_key)


class CommittedOffset(NamedTuple):
    """The decoded record of a commit."""

    key: OffsetCommitKey
    value: OffsetCommitValue


def encode_commit(group: str, topic: str, partition: int, value: OffsetCommitValue) -> CoordinatorRecord:
    """The record of a commit without an expiry time, with its decoded message."""
    key, encoded_key = encode_commit_key(group, topic, partition)
    encoded = _prefixed(_COMMIT_VERSION, value, _COMMIT_VERSION)
    return CoordinatorRecord(encoded_key, encoded, CommittedOffset(key, value))


def _prefixed(prefix: int, message: Message, version: int) -> bytes:
    # No record has a `Records` field, so no chunk is a file slice.
    chunks: list[bytes] = encode(message, version)  # type: ignore[assignment]
    return _PREFIXES[prefix] + (chunks[0] if len(chunks) == 1 else b"".join(chunks))


def _leading_int16(buffer: bytes | memoryview, what: str) -> int:
    if len(buffer) < _PREFIX:
        raise DecodeError(
            f"a coordinator record's {what} has {len(buffer)} bytes, fewer than its leading int16", 0
        )
    return int.from_bytes(buffer[:_PREFIX], "big", signed=True)
