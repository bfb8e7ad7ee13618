"""The records of `__transaction_state`, byte by byte as Kafka writes them."""

import pytest

from sparklog.errors import DecodeError
from sparklog.model import ProducerEpoch, ProducerId, TopicPartition
from sparklog_server.coordinator.txn.records import decode_record, encode_record
from sparklog_server.coordinator.txn.states import State, Transaction

OPEN = Transaction(
    producer_id=ProducerId(7),
    producer_epoch=ProducerEpoch(3),
    timeout_ms=60_000,
    update_ms=2,
    state=State.ONGOING,
    partitions=frozenset((TopicPartition("u", 0), TopicPartition("t", 2), TopicPartition("t", 1))),
    start_ms=1,
)
KEY = bytes.fromhex("0000 0002 6964")
OPEN_0 = bytes.fromhex(
    "0000"  # version
    "0000000000000007 0003 0000ea60 01"  # producer id and epoch, timeout, state
    "00000002 0001 74 00000002 00000001 00000002 0001 75 00000001 00000000"  # t-1, t-2, u-0
    "0000000000000002 0000000000000001"  # last update, start
)
ROTATING_1 = bytes.fromhex(
    "0001"
    "0000000000000007 7fff 0000ea60 02"
    "03 02 74 03 00000001 00000002 00 02 75 02 00000000 00"
    "0000000000000002 0000000000000001"
    # tags: previous and next producer id, client version
    "03 00 08 0000000000000007 01 08 0000000000000008 02 02 0002"
)
EMPTY_1 = bytes.fromhex("0001 0000000000000007 0000 0000ea60 00 00 0000000000000002 ffffffffffffffff 00")


def test_version_0_is_written_where_the_cluster_has_transaction_version_0() -> None:
    record = encode_record("id", OPEN, 0)
    assert (record.key, record.value) == (KEY, OPEN_0)
    assert decode_record(KEY, OPEN_0) == ("id", OPEN)


def test_version_1_tells_what_the_epoch_bump_needs_as_tags() -> None:
    rotating = Transaction(
        ProducerId(7),
        ProducerEpoch(32767),
        60_000,
        2,
        State.PREPARE_COMMIT,
        OPEN.partitions,
        1,
        ProducerId(7),
        ProducerId(8),
        2,
    )
    record = encode_record("id", rotating, 2)
    assert (record.key, record.value) == (KEY, ROTATING_1)
    assert decode_record(KEY, ROTATING_1) == ("id", rotating)


def test_an_empty_transaction_has_no_list_of_partitions() -> None:
    empty = Transaction(ProducerId(7), ProducerEpoch(0), 60_000, 2)
    assert encode_record("id", empty, 2).value == EMPTY_1
    assert decode_record(KEY, EMPTY_1) == ("id", empty)


def test_what_lives_is_what_a_version_0_record_can_tell() -> None:
    moved = Transaction(ProducerId(7), ProducerEpoch(0), 60_000, 2, previous_producer_id=ProducerId(7))
    record = encode_record("id", moved, 0)
    assert record.message == decode_record(record.key, record.value)


def test_a_tombstone_forgets_the_id() -> None:
    record = encode_record("id", None, 2)
    assert (record.key, record.value) == (KEY, None)
    assert decode_record(KEY, None) == ("id", None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0\1\0\2id", None),
        (KEY[:4], None),
        (KEY, b""),
        (KEY, b"\0\2" + OPEN_0[2:]),
        (KEY, OPEN_0[:-1]),
        (KEY, OPEN_0[:16] + b"\6" + OPEN_0[17:]),
        (KEY, OPEN_0[:16] + b"\7" + OPEN_0[17:]),
        (KEY, OPEN_0[:16] + b"\x7f" + OPEN_0[17:]),
    ],
)
def test_bytes_that_kafka_would_not_write_are_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        decode_record(key, value)
