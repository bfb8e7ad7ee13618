"""The durable records of `__cluster_metadata`: Kafka's keys, versions and fields (level 4.3, metadata.version
30).

The value of a metadata record is a frame around the fields; its key is null:

    frame version   uvarint   1
    api key         uvarint   which record class
    version         uvarint   of that class
    fields                    flexible form, tags included

Every class writes the version in `WRITTEN`, as metadata.version 30 prescribes, and reads every version it
knows.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, cast

import msgspec

from sparklog.errors import DecodeError
from sparklog.model import NO_EPOCH, LeaderEpoch, Millis, Offset
from sparklog.record.batch import build_batch, decode_records
from sparklog.wire.codec import decode, encode
from sparklog.wire.schema import (
    ZERO_UUID,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableStr,
    Str,
    Uint16,
    Uuid,
    Versions,
    nullable,
    since,
    tagged,
)

_FRAME_VERSION = 1
NO_LEADER = -1
NO_LEADER_CHANGE = -2
"""In a PartitionChange: neither the leader nor the leader epoch changes."""


class BrokerEndpoint(Message):
    name: Str = ""
    host: Str = ""
    port: Uint16 = 0
    security_protocol: Int16 = 0


class BrokerFeature(Message):
    name: Str = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class RegisterBrokerRecord(Message):
    """A broker registered a new incarnation; it stays fenced until a later record unfences it."""

    versions: ClassVar = Versions(0, 4, flexible=0)

    broker_id: Int32 = 0
    is_migrating_zk_broker: Annotated[Bool, since(2)] = False
    incarnation_id: Uuid = ZERO_UUID
    broker_epoch: Int64 = 0
    end_points: list[BrokerEndpoint] = []
    features: list[BrokerFeature] = []
    rack: NullableStr = None
    fenced: Bool = True
    in_controlled_shutdown: Annotated[Bool, since(1)] = False
    log_dirs: Annotated[list[Uuid], since(3), tagged(0)] = []
    cordoned_log_dirs: Annotated[list[Uuid] | None, since(4), nullable(4), tagged(1)] = None


class UnregisterBrokerRecord(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    broker_id: Int32 = 0
    broker_epoch: Int64 = 0


class TopicRecord(Message):
    """A topic exists; its partitions follow in separate records."""

    versions: ClassVar = Versions(0, 0, flexible=0)

    name: Str = ""
    topic_id: Uuid = ZERO_UUID


class PartitionRecord(Message):
    """The whole state of a partition, when it is created or in a snapshot."""

    versions: ClassVar = Versions(0, 2, flexible=0)

    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    replicas: list[Int32] = []
    isr: list[Int32] = []
    removing_replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    leader: Int32 = NO_LEADER
    leader_recovery_state: Annotated[Int8, tagged(0)] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[list[Uuid], since(1)] = []
    eligible_leader_replicas: Annotated[list[Int32] | None, since(2), nullable(2), tagged(1)] = None
    last_known_elr: Annotated[list[Int32] | None, since(2), nullable(2), tagged(2)] = None


class ConfigRecord(Message):
    """One setting of one resource (2 topic, 4 broker; a broker's empty name is the cluster-wide default); a
    null value removes it.
    """

    versions: ClassVar = Versions(0, 0, flexible=0)

    resource_type: Int8 = 0
    resource_name: Str = ""
    name: Str = ""
    value: NullableStr = None


class PartitionChangeRecord(Message):
    """The changes of a partition; every field has a value that means "unchanged". A named leader, even the
    same, raises the leader epoch.
    """

    versions: ClassVar = Versions(0, 2, flexible=0)

    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    isr: Annotated[list[Int32] | None, nullable(0), tagged(0)] = None
    leader: Annotated[Int32, tagged(1)] = NO_LEADER_CHANGE
    replicas: Annotated[list[Int32] | None, nullable(0), tagged(2)] = None
    removing_replicas: Annotated[list[Int32] | None, nullable(0), tagged(3)] = None
    adding_replicas: Annotated[list[Int32] | None, nullable(0), tagged(4)] = None
    leader_recovery_state: Annotated[Int8, tagged(5)] = -1
    directories: Annotated[list[Uuid] | None, since(1), nullable(1), tagged(8)] = None
    eligible_leader_replicas: Annotated[list[Int32] | None, since(2), nullable(2), tagged(6)] = None
    last_known_elr: Annotated[list[Int32] | None, since(2), nullable(2), tagged(7)] = None


class FenceBrokerRecord(Message):
    """Written by the first KRaft releases; newer ones use BrokerRegistrationChange."""

    versions: ClassVar = Versions(0, 0, flexible=0)

    id: Int32 = 0
    epoch: Int64 = 0


class UnfenceBrokerRecord(Message):
    """See FenceBrokerRecord."""

    versions: ClassVar = Versions(0, 0, flexible=0)

    id: Int32 = 0
    epoch: Int64 = 0


class RemoveTopicRecord(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    topic_id: Uuid = ZERO_UUID


class DelegationTokenRecord(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    owner: Str = ""
    requester: Str = ""
    renewers: list[Str] = []
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: Str = ""


class UserScramCredentialRecord(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    name: Str = ""
    mechanism: Int8 = 0
    salt: Bytes = b""
    stored_key: Bytes = b""
    server_key: Bytes = b""
    iterations: Int32 = 0


class FeatureLevelRecord(Message):
    """The finalized level of a feature; 0 disables it."""

    versions: ClassVar = Versions(0, 0, flexible=0)

    name: Str = ""
    feature_level: Int16 = 0


class ClientQuotaEntity(Message):
    entity_type: Str = ""
    entity_name: NullableStr = None


class ClientQuotaRecord(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    entity: list[ClientQuotaEntity] = []
    key: Str = ""
    value: Float64 = 0.0
    remove: Bool = False


class ProducerIdsRecord(Message):
    """The first producer id of the next block to assign."""

    versions: ClassVar = Versions(0, 0, flexible=0)

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


class BrokerRegistrationChangeRecord(Message):
    """The changes of a broker: `fenced` 1 fences and -1 unfences; null or empty lists mean unchanged."""

    versions: ClassVar = Versions(0, 3, flexible=0)

    broker_id: Int32 = 0
    broker_epoch: Int64 = 0
    fenced: Annotated[Int8, tagged(0)] = 0
    in_controlled_shutdown: Annotated[Int8, since(1), tagged(1)] = 0
    log_dirs: Annotated[list[Uuid], since(2), tagged(2)] = []
    cordoned_log_dirs: Annotated[list[Uuid] | None, since(3), nullable(3), tagged(3)] = None


class AccessControlEntryRecord(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    id: Uuid = ZERO_UUID
    resource_type: Int8 = 0
    resource_name: Str = ""
    pattern_type: Int8 = 0
    principal: Str = ""
    host: Str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class RemoveAccessControlEntryRecord(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    id: Uuid = ZERO_UUID


class NoOpRecord(Message):
    """Advances the log while the quorum is idle; has no content."""

    versions: ClassVar = Versions(0, 0, flexible=0)


class RemoveUserScramCredentialRecord(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    name: Str = ""
    mechanism: Int8 = 0


class BeginTransactionRecord(Message):
    """Begins a metadata transaction: the records up to its end are atomic (KIP-868)."""

    versions: ClassVar = Versions(0, 0, flexible=0)

    name: Annotated[NullableStr, tagged(0)] = None


class EndTransactionRecord(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)


class AbortTransactionRecord(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    reason: Annotated[NullableStr, tagged(0)] = None


class RemoveDelegationTokenRecord(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    token_id: Str = ""


class RegisterControllerRecord(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: Bool = False
    end_points: list[BrokerEndpoint] = []
    features: list[BrokerFeature] = []


class ClearElrRecord(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    topic_name: Str = ""


class Written(msgspec.Struct, frozen=True):
    """How a record class is written: its api key, and the version that metadata.version 30 prescribes."""

    key: int
    version: int


WRITTEN: dict[type[Message], Written] = {
    RegisterBrokerRecord: Written(0, 4),
    UnregisterBrokerRecord: Written(1, 0),
    TopicRecord: Written(2, 0),
    PartitionRecord: Written(3, 2),
    ConfigRecord: Written(4, 0),
    PartitionChangeRecord: Written(5, 2),
    FenceBrokerRecord: Written(7, 0),
    UnfenceBrokerRecord: Written(8, 0),
    RemoveTopicRecord: Written(9, 0),
    DelegationTokenRecord: Written(10, 0),
    UserScramCredentialRecord: Written(11, 0),
    FeatureLevelRecord: Written(12, 0),
    ClientQuotaRecord: Written(14, 0),
    ProducerIdsRecord: Written(15, 0),
    BrokerRegistrationChangeRecord: Written(17, 3),
    AccessControlEntryRecord: Written(18, 0),
    RemoveAccessControlEntryRecord: Written(19, 0),
    NoOpRecord: Written(20, 0),
    RemoveUserScramCredentialRecord: Written(22, 0),
    BeginTransactionRecord: Written(23, 0),
    EndTransactionRecord: Written(24, 0),
    AbortTransactionRecord: Written(25, 0),
    RemoveDelegationTokenRecord: Written(26, 0),
    RegisterControllerRecord: Written(27, 0),
    ClearElrRecord: Written(28, 0),
}
_CLASSES = {written.key: cls for cls, written in WRITTEN.items()}


def encode_value(record: Message) -> bytes:
    """The framed value of a metadata record."""
    written = WRITTEN[type(record)]
    chunks = cast(
        list[bytes], encode(record, written.version)
    )  # no metadata record has a `Records` field, so no chunk is a file slice
    return b"".join([bytes((_FRAME_VERSION, written.key, written.version)), *chunks])


def decode_value(value: bytes | memoryview | None) -> Message:
    """The record of a framed value; raises DecodeError for a frame, key or version that this release does
    not know.
    """
    if value is None:
        raise DecodeError("a metadata record has no value")
    if len(value) > 3 and value[0] == _FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80:
        key, version, position = value[1], value[2], 3
    else:
        frame_version, position = _uvarint(value, 0)
        if frame_version != _FRAME_VERSION:
            raise DecodeError(f"unknown metadata frame version {frame_version}", 0)
        key, position = _uvarint(value, position)
        version, position = _uvarint(value, position)
    cls = _CLASSES.get(key)
    if cls is None or not cls.versions.since <= version <= cls.versions.until:
        message = f"unknown metadata record: key {key} version {version} (of a later release: upgrade)"
        raise DecodeError(message, position)
    return decode(cls, version, memoryview(value)[position:])


def _uvarint(value: bytes | memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes and the position after it."""
    number = 0
    for shift in range(0, 35, 7):
        if position >= len(value):
            break
        byte = value[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise DecodeError("a metadata record's frame is cut short or malformed", position)


def batch_of(
    records: Sequence[Message], wall_ms: Millis, *, leader_epoch: LeaderEpoch = NO_EPOCH
) -> bytearray:
    """One record batch that holds these records, its offsets still relative to 0. It survives a crash whole
    or not at all, so its records are atomic.
    """
    return build_batch(
        [(None, encode_value(record), (), wall_ms) for record in records], leader_epoch=leader_epoch
    )


def records_of(batches: bytes | bytearray | memoryview) -> Iterator[tuple[Offset, Message]]:
    """(offset, record) for each metadata record of whole batches; raft's control batches are skipped.

    Raises DecodeError for a record that this release does not know.
    """
    for record in decode_records(batches):
        yield Offset(record.offset), decode_value(record.value)
