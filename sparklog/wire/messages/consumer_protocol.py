"""Subscription and assignment of a member: consumers exchange them through a classic group of protocol
type `consumer`.

    version   int16   0 to 3
    fields            never flexible

Not an API: these bytes are the metadata in JoinGroup and the assignment in SyncGroup, which the coordinator
passes on without decoding. A version above the newest is read as the newest, and bytes after its fields are
ignored: newer versions may only append fields.
"""

from typing import Annotated, ClassVar, TypeVar, cast

from sparklog.errors import DecodeError
from sparklog.kernels import codec
from sparklog.wire.codec import encode, undecodable
from sparklog.wire.schema import Int32, Message, NullableBytes, NullableStr, Str, Versions, program, since

PROTOCOL_TYPE = "consumer"


class TopicPartitions(Message):
    topic: Str = ""
    partitions: list[Int32] = []


class ConsumerProtocolSubscription(Message):
    """A member's topics; v1 adds its owned partitions (KIP-429), v2 their generation (KIP-792), v3 the
    member's rack (KIP-881).
    """

    versions: ClassVar = Versions(0, 3)

    topics: list[Str] = []
    user_data: NullableBytes = None
    owned_partitions: Annotated[list[TopicPartitions], since(1)] = []
    generation_id: Annotated[Int32, since(2)] = -1
    rack_id: Annotated[NullableStr, since(3)] = None


class ConsumerProtocolAssignment(Message):
    versions: ClassVar = Versions(0, 3)

    assigned_partitions: list[TopicPartitions] = []
    user_data: NullableBytes = None


M = TypeVar("M", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def encode_prefixed(
    message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int
) -> bytes:
    """The bytes of a subscription or an assignment, after their version."""
    return version.to_bytes(2, "big") + b"".join(
        cast(list[bytes], encode(message, version))
    )  # neither class has `Records`


def decode_prefixed(cls: type[M], value: bytes | memoryview) -> M:
    """The subscription or assignment in `value`; raises DecodeError for invalid bytes."""
    version = version_of(value)
    version = min(version, cls.versions.until)
    try:
        message: M = codec.decode_prefix(program(cls, version), memoryview(value)[2:])[0]
    except ValueError as error:
        raise undecodable(cls, version, error) from None
    return message


def version_of(value: bytes | memoryview) -> int:
    """The encoded version; raises DecodeError if it is negative or missing."""
    if len(value) < 2:
        raise DecodeError(f"a consumer protocol's version takes 2 bytes, {len(value)} are there", 0)
    version = int.from_bytes(value[:2], "big", signed=True)
    if version < 0:
        raise DecodeError(f"negative consumer protocol version {version}", 0)
    return version


class StickyUserData(Message):
    """User data of Java's sticky assignor in a subscription: the member's partitions, and from v1 on their
    generation (KIP-54).
    """

    versions: ClassVar = Versions(0, 1)

    previous_assignment: list[TopicPartitions] = []
    generation: Annotated[Int32, since(1)] = -1


class CooperativeUserData(Message):
    """User data of Java's cooperative-sticky assignor in a subscription, for leaders that do not support
    v2.
    """

    versions: ClassVar = Versions(0, 0)

    generation: Int32 = -1


U = TypeVar("U", StickyUserData, CooperativeUserData)


def encode_user_data(message: StickyUserData | CooperativeUserData) -> bytes:
    """User data of an assignor, in its newest version; the version is not encoded."""
    return b"".join(cast(list[bytes], encode(message, message.versions.until)))


def decode_user_data(cls: type[U], value: bytes | memoryview) -> U | None:
    """User data of an assignor, in the newest version that fits; None for invalid bytes."""
    for version in range(cls.versions.until, cls.versions.since - 1, -1):
        try:
            message: U = codec.decode_prefix(program(cls, version), memoryview(value))[0]
        except ValueError:
            continue
        return message
    return None
