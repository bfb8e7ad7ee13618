"""The records of `__consumer_offsets`: exactly Kafka's bytes are accepted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DecodeError
from sparklog.model import Uuid
from sparklog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_prefixed,
    encode_prefixed,
    version_of,
)
from sparklog.wire.schema import Message
from sparklog_server.coordinator.group.records import (
    NOT_KEPT,
    TYPES,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    CurrentTopicPartitions,
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
    RecordType,
    decode_record,
    encode_commit,
    encode_record,
)

ID = bytes(range(16))
_int32 = st.integers(-(2**31), 2**31 - 1)
_int64 = st.integers(-(2**63), 2**63 - 1)

KAFKAS_BYTES: list[tuple[Message, Message, int | None, str, str]] = [
    (
        OffsetCommitKey("g", "t", 3),
        OffsetCommitValue(7, 2, "m", 1, topic_id=ID),
        None,
        "0001 000167 000174 00000003",
        f"0004 0000000000000007 00000002 02 6d 0000000000000001 01 00 10 {ID.hex()}",
    ),
    # one with its own expiry time: version 1, which has neither leader epoch nor topic id
    (
        OffsetCommitKey("g", "t", 3),
        OffsetCommitValue(7, -1, "m", 1, expire_timestamp=9),
        1,
        "0001 000167 000174 00000003",
        "0001 0000000000000007 00016d 0000000000000001 0000000000000009",
    ),
    (
        GroupMetadataKey("g"),
        GroupMetadataValue(
            "consumer", 4, "range", "c-1", 5, [GroupMetadataMember("c-1", "i", "c", "/h", 6, 8, b"s", b"as")]
        ),
        None,
        "0002 000167",
        "0003 0008636f6e73756d6572 00000004 000572616e6765 0003632d31 0000000000000005 00000001"
        " 0003632d31 000169 000163 00022f68 00000006 00000008 0000000173 000000026173",
    ),
    # a group without a generation: no protocol, no leader, no members
    (
        GroupMetadataKey("g"),
        GroupMetadataValue(current_state_timestamp=5),
        None,
        "0002 000167",
        "0003 0000 00000000 ffff ffff 0000000000000005 00000000",
    ),
    (ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(3), None, "0003 000167", "0000 00000003 00"),
    (
        ConsumerGroupMetadataKey("g"),
        ConsumerGroupMetadataValue(3, -2),
        None,
        "0003 000167",
        "0000 00000003 01 00 08 fffffffffffffffe",
    ),
    (
        ConsumerGroupMemberMetadataKey("g", "m"),
        ConsumerGroupMemberMetadataValue(
            None,
            "r",
            "c",
            "/h",
            ["t"],
            None,
            5,
            "uniform",
            ClassicMemberMetadata(6, [ClassicProtocol("range", b"x")]),
        ),
        None,
        "0005 000167 00016d",
        "0000 00 0272 0263 032f68 020274 00 00000005 08756e69666f726d 01 00 10 01 00000006 02 0672616e6765 "
        "0278 00 00",
    ),
    (
        ConsumerGroupMemberMetadataKey("g", "m"),
        ConsumerGroupMemberMetadataValue(client_id="c", client_host="/h", classic_member_metadata=None),
        None,
        "0005 000167 00016d",
        "0000 00 00 0263 032f68 01 00 ffffffff 00 01 00 01 00",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
        ConsumerGroupCurrentMemberAssignmentValue(2, 1, 1, [CurrentTopicPartitions(ID, [0], [2])], []),
        None,
        "0008 000167 00016d",
        f"0000 00000002 00000001 01 02 {ID.hex()} 02 00000000 01 00 05 02 00000002 01 00",
    ),
]


@pytest.mark.parametrize(("key", "value", "version", "key_bytes", "value_bytes"), KAFKAS_BYTES)
def test_a_record_has_kafkas_bytes(
    key: Message, value: Message, version: int | None, key_bytes: str, value_bytes: str
) -> None:
    record = encode_record(key, value, version)
    assert record.key.hex() == key_bytes.replace(" ", "")
    assert record.value is not None
    assert record.value.hex() == value_bytes.replace(" ", "")
    assert decode_record(record.key, record.value) == (key, value)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.key.__name__)
def test_every_record_reads_back_as_written_in_every_version(kind: RecordType) -> None:
    for version in range(kind.value.versions.since, kind.value.versions.until + 1):
        record = encode_record(kind.key(), kind.value(), version)
        assert decode_record(record.key, record.value) == (kind.key(), kind.value())
    assert kind.value.versions.since <= kind.version <= kind.value.versions.until


@given(
    st.text(max_size=8),
    st.text(max_size=8),
    _int32,
    _int64,
    _int32,
    st.text(max_size=8),
    _int64,
    st.binary(min_size=16, max_size=16),
)
def test_the_message_in_the_record_of_a_commit_is_what_its_bytes_say(
    group: str,
    topic: str,
    partition: int,
    offset: int,
    epoch: int,
    metadata: str,
    timestamp: int,
    topic_id: bytes,
) -> None:
    value = OffsetCommitValue(offset, epoch, metadata, timestamp, topic_id=Uuid(topic_id))
    record = encode_commit(group, topic, partition, value)
    assert record.message == decode_record(record.key, record.value)
    plain = encode_record(OffsetCommitKey(group, topic, partition), value)
    assert (record.key, record.value) == (plain.key, plain.value)


def test_a_tombstone_is_a_key_without_a_value() -> None:
    record = encode_record(GroupMetadataKey("g"), None)
    assert record.value is None
    assert decode_record(record.key, None) == (GroupMetadataKey("g"), None)


def test_an_old_brokers_commit_is_understood() -> None:
    key, value = LegacyOffsetCommitKey("g", "t", 1), LegacyOffsetCommitValue(5, "", 6)
    record = encode_record(key, value)
    assert record.key[:2] == b"\0\0"
    assert decode_record(record.key, record.value) == (key, value)


@pytest.mark.parametrize("number", sorted(NOT_KEPT))
def test_records_of_share_and_streams_groups_are_passed_over(number: int) -> None:
    assert decode_record(number.to_bytes(2, "big") + b"\0\1g", b"whatever") is None


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"", None, "0 bytes"),
        (b"\0", None, "1 bytes"),
        (b"\0\x09\0\1g", None, "unknown coordinator record type 9"),
        (b"\xff\xff\0\1g", None, "type -1"),
        (b"\0\2\0\5g", None, "GroupMetadataKey v0"),
        (b"\0\2\0\1g!", None, "GroupMetadataKey v0"),
        (b"\0\2\0\1g", b"", "value has 0 bytes"),
        (b"\0\2\0\1g", b"\0\5", "unknown version 5 of coordinator record type 2"),
        (b"\0\2\0\1g", b"\xff\xff", "unknown version -1"),
        (b"\0\2\0\1g", b"\0\3\0\0", "GroupMetadataValue v3"),
        (
            b"\0\2\0\1g",
            b"\0\3\0\0\0\0\0\0\xff\xff\xff\xff" + bytes(8) + b"\x7f\xff\xff\xff",
            "GroupMetadataValue v3",
        ),
    ],
)
def test_what_is_no_record_is_refused_with_a_reason(key: bytes, value: bytes | None, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode_record(key, value)


# -- messages between consumers

SUBSCRIPTION = ConsumerProtocolSubscription(["t"], b"u", [TopicPartitions("t", [0, 1])], 4, "r")


def test_a_subscription_has_kafkas_bytes() -> None:
    written = encode_prefixed(SUBSCRIPTION, 3).hex()
    assert (
        written
        == "0003"
        + "00000001000174"
        + "0000000175"
        + "00000001000174000000020000000000000001"
        + "00000004"
        + "000172"
    )
    assert decode_prefixed(ConsumerProtocolSubscription, bytes.fromhex(written)) == SUBSCRIPTION


@pytest.mark.parametrize(
    ("version", "kept"),
    [
        (0, ConsumerProtocolSubscription(["t"], b"u")),
        (1, ConsumerProtocolSubscription(["t"], b"u", [TopicPartitions("t", [0, 1])])),
        (2, ConsumerProtocolSubscription(["t"], b"u", [TopicPartitions("t", [0, 1])], 4)),
    ],
)
def test_an_older_subscription_says_less(version: int, kept: ConsumerProtocolSubscription) -> None:
    assert decode_prefixed(ConsumerProtocolSubscription, encode_prefixed(SUBSCRIPTION, version)) == kept


def test_a_version_of_the_future_is_read_as_far_as_it_is_known() -> None:
    future = b"\0\x63" + encode_prefixed(SUBSCRIPTION, 3)[2:] + b"and more"
    assert version_of(future) == 99
    assert decode_prefixed(ConsumerProtocolSubscription, future) == SUBSCRIPTION


def test_an_assignment_has_kafkas_bytes() -> None:
    assignment = ConsumerProtocolAssignment([TopicPartitions("t", [2])])
    written = encode_prefixed(assignment, 1).hex()
    assert written == "0001" + "000000010001740000000100000002" + "ffffffff"
    assert decode_prefixed(ConsumerProtocolAssignment, bytes.fromhex(written)) == assignment


@pytest.mark.parametrize(
    "value",
    [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0", b"\0\0\x7f\xff\xff\xff", b"\0\1\0\0\0\0\xff\xff\xff\xff"],
)
def test_what_is_no_subscription_is_refused(value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_prefixed(ConsumerProtocolSubscription, value)
