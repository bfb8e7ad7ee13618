"""Control batches: records that brokers write into a log for brokers and readers, not for applications.

A control batch has one record, whose key is (version int16, type int16). COMMIT and ABORT end a transaction
of one producer; the other types occur in the metadata log and its snapshots and use the schema language of
`sparklog.wire` (KIP-595, KIP-630, KIP-853).
"""

from enum import IntEnum
from struct import Struct, error
from typing import Annotated, ClassVar

import msgspec

from sparklog.effects import FileSlice
from sparklog.errors import DecodeError
from sparklog.record.batch import Buffer, Record, build_batch
from sparklog.wire.codec import decode, encode
from sparklog.wire.schema import Int16, Int32, Int64, Message, Str, Uint16, Uuid, Versions, since

_KEY = Struct(">hh")
_MARKER = Struct(">hi")
_VERSION = Struct(">h")


class ControlType(IntEnum):
    """The type in the key of a control record."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class Marker(msgspec.Struct, frozen=True):
    """The end of a transaction, with the epoch of the coordinator that wrote it."""

    type: ControlType
    coordinator_epoch: int


class Voter(Message):
    """A member of the quorum; `voter_directory_id` from version 1 on."""

    voter_id: Int32 = 0
    voter_directory_id: Annotated[Uuid, since(1)] = bytes(16)


class LeaderChange(Message):
    """The first record of each leader epoch of the metadata log. Kafka 4.3 writes version 0 and reads no
    other.
    """

    versions: ClassVar[Versions] = Versions(0, 1, flexible=0)
    version: Int16 = 0
    leader_id: Int32 = 0
    voters: list[Voter] = msgspec.field(default_factory=list)
    granting_voters: list[Voter] = msgspec.field(default_factory=list)


class SnapshotHeader(Message):
    """The first record of a snapshot; the timestamp is the append time, in ms, of the last record in the
    snapshot.
    """

    versions: ClassVar[Versions] = Versions(0, 0, flexible=0)
    version: Int16 = 0
    last_contained_log_timestamp: Int64 = 0


class SnapshotFooter(Message):
    """The last record of a snapshot: without it the snapshot is incomplete."""

    versions: ClassVar[Versions] = Versions(0, 0, flexible=0)
    version: Int16 = 0


class KRaftVersion(Message):
    """The version of the quorum's protocol from this offset on; 1 allows voters to be added and removed
    (KIP-853).
    """

    versions: ClassVar[Versions] = Versions(0, 0, flexible=0)
    version: Int16 = 0
    k_raft_version: Int16 = 0


class VoterEndpoint(Message):
    name: Str = ""
    host: Str = ""
    port: Uint16 = 0


class KRaftVersionFeature(Message):
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class QuorumVoter(Message):
    voter_id: Int32 = 0
    voter_directory_id: Uuid = bytes(16)
    endpoints: list[VoterEndpoint] = msgspec.field(default_factory=list)
    k_raft_version_feature: KRaftVersionFeature = msgspec.field(default_factory=KRaftVersionFeature)


class KRaftVoters(Message):
    """The complete set of voters from this offset on."""

    versions: ClassVar[Versions] = Versions(0, 0, flexible=0)
    version: Int16 = 0
    voters: list[QuorumVoter] = msgspec.field(default_factory=list)


ControlMessage = LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters

_CLASSES: dict[
    ControlType, type[LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters]
] = {
    ControlType.LEADER_CHANGE: LeaderChange,
    ControlType.SNAPSHOT_HEADER: SnapshotHeader,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooter,
    ControlType.KRAFT_VERSION: KRaftVersion,
    ControlType.KRAFT_VOTERS: KRaftVoters,
}
_TYPES = {cls: control_type for control_type, cls in _CLASSES.items()}


def build_marker(
    marker: Marker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The batch that commits or aborts the open transaction of a producer on one partition."""
    assert marker.type in (ControlType.COMMIT, ControlType.ABORT)
    return build_batch(
        [(_KEY.pack(0, marker.type), _MARKER.pack(0, marker.coordinator_epoch), (), timestamp_ms)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        is_transactional=True,
        is_control=True,
    )


def build_control(
    *messages: ControlMessage, timestamp_ms: int, base_offset: int = 0, leader_epoch: int = -1
) -> bytearray:
    """A control batch; each message is encoded in its own version."""
    records = [(_KEY.pack(0, _TYPES[type(one)]), _value(one), (), timestamp_ms) for one in messages]
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, is_control=True)


def _value(message: ControlMessage) -> bytes:
    chunks = encode(message, message.version)
    return b"".join(bytes(chunk) for chunk in chunks if not isinstance(chunk, FileSlice))


def control_type(key: Buffer | None) -> ControlType | None:
    """The type in the key of a control record; None for an unknown type. DecodeError for a key that is too
    short.
    """
    try:
        _, number = _KEY.unpack_from(key or b"")
    except error:
        raise DecodeError("the key of a control record is too short") from None
    try:
        return ControlType(number)
    except ValueError:
        return None


def parse_control(record: Record) -> Marker | ControlMessage | None:
    """Decode a record of a control batch; None for an unknown type."""
    kind = control_type(record.key)
    if kind is None:
        return None
    value = record.value or b""
    try:
        version, *rest = (
            _MARKER if kind in (ControlType.COMMIT, ControlType.ABORT) else _VERSION
        ).unpack_from(value)
    except error:
        raise DecodeError(f"the value of a {kind.name} record is too short") from None
    if rest:
        return Marker(kind, rest[0])
    cls = _CLASSES[kind]
    return decode(cls, min(version, cls.versions.until), value)
