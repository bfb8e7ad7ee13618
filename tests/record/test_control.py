"""Control batches: what brokers tell each other in a log is written in Kafka's bytes and read back."""

import pytest

from sparklog.errors import DecodeError
from sparklog.record.batch import Record, decode_records, read_header
from sparklog.record.control import (
    ControlMessage,
    ControlType,
    KRaftVersion,
    KRaftVersionFeature,
    KRaftVoters,
    LeaderChange,
    Marker,
    QuorumVoter,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    VoterEndpoint,
    build_control,
    build_marker,
    control_type,
    parse_control,
)

DIRECTORY = bytes(range(16))


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_marker_ends_the_transaction_of_its_producer(kind: ControlType) -> None:
    batch = build_marker(Marker(kind, 12), producer_id=5, producer_epoch=2, timestamp_ms=99, base_offset=40)
    header = read_header(batch)
    assert (header.is_control, header.is_transactional, header.producer_id, header.base_sequence) == (
        True,
        True,
        5,
        -1,
    )
    (record,) = decode_records(batch, include_control=True)
    assert (record.key, record.value) == (bytes([0, 0, 0, kind]), b"\0\0\0\0\0\x0c")
    assert parse_control(record) == Marker(kind, 12)


@pytest.mark.parametrize(
    "message",
    [
        LeaderChange(
            version=1,
            leader_id=3,
            voters=[Voter(1, DIRECTORY), Voter(3)],
            granting_voters=[Voter(3, DIRECTORY)],
        ),
        SnapshotHeader(last_contained_log_timestamp=123456789),
        SnapshotFooter(),
        KRaftVersion(k_raft_version=1),
        KRaftVoters(
            voters=[QuorumVoter(1, DIRECTORY, [VoterEndpoint("C", "host", 9093)], KRaftVersionFeature(0, 1))]
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_of_the_metadata_log_comes_back(message: ControlMessage) -> None:
    batch = build_control(message, timestamp_ms=7, base_offset=3, leader_epoch=2)
    assert read_header(batch).is_control
    (record,) = decode_records(batch, include_control=True)
    assert parse_control(record) == message


def test_a_leader_change_of_version_0_has_no_directories() -> None:
    (record,) = decode_records(
        build_control(LeaderChange(leader_id=1, voters=[Voter(1)]), timestamp_ms=1), include_control=True
    )
    assert record.value == b"\0\0" + b"\0\0\0\x01" + b"\x02" + b"\0\0\0\x01\0" + b"\x01" + b"\0"


def test_a_type_newer_than_this_table_is_nobodys_business() -> None:
    assert control_type(b"\0\0\0\x63") is None
    assert parse_control(Record(0, 0, b"\0\0\0\x63", b"")) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"", b""), (None, None), (b"\0\0\0\1", b"\0\0"), (b"\0\0\0\2", b""), (b"\0\0\0\2", b"\0\1\0")],
)
def test_control_records_cut_short_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        parse_control(Record(0, 0, key, value))
