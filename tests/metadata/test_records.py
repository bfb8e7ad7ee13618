"""Metadata records on disk: exactly Kafka's bytes are accepted."""

import pytest

from sparklog.errors import DecodeError
from sparklog.model import Millis
from sparklog.wire.schema import Message
from sparklog_server.metadata.records import (
    WRITTEN,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    batch_of,
    decode_value,
    encode_value,
    records_of,
)

ID = bytes(range(16))

KAFKAS_BYTES = [
    # frame 1, key 12, version 0, compact "metadata.version", level 30, no tags
    (
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        "01 0c 00 11 6d657461646174612e76657273696f6e 001e 00",
    ),
    (TopicRecord(name="t", topic_id=ID), "01 02 00 02 74 000102030405060708090a0b0c0d0e0f 00"),
    (NoOpRecord(), "01 14 00 00"),
    # version 2: replicas, isr, removing, adding, leader, epochs, directories; the tagged rest is at its
    # defaults
    (
        PartitionRecord(
            partition_id=0,
            topic_id=ID,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[ID],
        ),
        f"01 03 02 00000000 {ID.hex()} 02 00000001 02 00000001 01 01 00000001 00000000 00000000 02 "
        f"{ID.hex()} 00",
    ),
    # only the changed field, as a tag: 1 is the leader
    (
        PartitionChangeRecord(partition_id=3, topic_id=ID, leader=-1),
        f"01 05 02 00000003 {ID.hex()} 01 01 04 ffffffff",
    ),
    (
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1),
        "01 11 03 00000001 0000000000000007 01 00 01 ff",
    ),
]


@pytest.mark.parametrize(("record", "value"), KAFKAS_BYTES, ids=lambda one: type(one).__name__)
def test_a_record_has_kafkas_bytes(record: Message, value: str) -> None:
    assert encode_value(record).hex() == value.replace(" ", "")
    assert decode_value(bytes.fromhex(value)) == record


@pytest.mark.parametrize("cls", WRITTEN, ids=lambda cls: cls.__name__)
def test_every_record_reads_back_as_written(cls: type[Message]) -> None:
    assert decode_value(encode_value(cls())) == cls()


def test_a_change_that_empties_the_isr_differs_from_one_that_leaves_it() -> None:
    emptied = decode_value(encode_value(PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[])))
    assert isinstance(emptied, PartitionChangeRecord)
    assert emptied.isr == []
    assert emptied.replicas is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"", "cut short"),
        (bytes([2, 2, 0]), "frame version 2"),
        (bytes([1, 99, 0]), "key 99 version 0"),
        (bytes([1, 2, 1]), "key 2 version 1"),
        (bytes([1, 2, 0, 200]), "TopicRecord"),
        (b"\xff\xff\xff\xff\xff\xff", "malformed"),
    ],
)
def test_what_is_not_understood_is_refused(value: bytes | None, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode_value(value)


def test_records_travel_in_one_batch_with_their_offsets() -> None:
    batch = batch_of([TopicRecord(name="a", topic_id=ID), NoOpRecord()], Millis(5))
    assert list(records_of(batch)) == [(0, TopicRecord(name="a", topic_id=ID)), (1, NoOpRecord())]
