"""The check of a batch in steps gives the same result as the check at once, within the memory that it
announces.
"""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.effects import take_all
from sparklog.errors import ErrorCode
from sparklog.record.batch import HEADER_SIZE, build_batch, decode_records
from sparklog.record.compression import Codec, compress
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.producers.validate import Checked, RecordsRefused, check_client_batch
from sparklog_server.log.producers.validate_steps import ValidationMemory, check_in_steps
from tests.kernels.hostile import Fields, damaged, damages, record_lists, reseal
from tests.properties import examples

NOW_MS = 1 << 40
MIB = 1 << 20
topic_settings = st.builds(
    LogConfig,
    compression_type=st.sampled_from(["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
    is_compacted=st.booleans(),
    timestamp_type=st.sampled_from(["CreateTime", "LogAppendTime"]),
    timestamp_before_max_ms=st.sampled_from([1 << 39, (1 << 63) - 1]),
    validates_compressed=st.booleans(),
    max_message_bytes=st.sampled_from([200, 1 << 20]),
)


def judged(result: Checked | RecordsRefused) -> object:
    if isinstance(result, RecordsRefused):
        return result.code, result.record_errors
    content = (
        result.batch
        if result.header.attributes & 7 and result.settings.compression_type == "producer"
        else None
    )
    records = (
        [(one.timestamp, one.key, one.value, one.headers) for one in decode_records(bytes(result.batch), 0)]
        if content is None
        else None
    )
    return result.header, result.greatest_timestamp, bytes(content or b""), records


def in_steps(batch: bytearray, topic: LogConfig) -> Checked | RecordsRefused:
    try:
        return take_all(check_in_steps(batch, topic, ValidationMemory([(batch, topic)]), NOW_MS))
    except RecordsRefused as refused:
        return refused


def at_once(batch: bytearray, topic: LogConfig) -> Checked | RecordsRefused:
    try:
        return check_client_batch(batch, topic, NOW_MS)
    except RecordsRefused as refused:
        return refused


@examples(80)
@given(record_lists, st.sampled_from(list(Codec)), damages, st.booleans(), topic_settings)
def test_a_check_in_steps_judges_as_one_at_once(
    fields: list[Fields], codec: Codec, damage: list[tuple[float, int]], is_resealed: bool, topic: LogConfig
) -> None:
    batch = damaged(build_batch(fields, codec=codec), damage, 0, first=57)
    if is_resealed:
        reseal(batch, 0)
    expected, found = at_once(bytearray(batch), topic), in_steps(bytearray(batch), topic)
    if (
        isinstance(expected, RecordsRefused)
        or isinstance(found, RecordsRefused)
        or topic.validates_compressed
    ):
        assert judged(found) == judged(expected)


def test_a_batch_with_a_damaged_record_behind_one_without_a_key_is_refused_for_the_damage() -> None:
    plain = build_batch([(None, b"v", (), 1), (b"k", b"v", (("h", b"x"),), 1)])
    at = plain.rindex(b"h") - 1
    plain[at] = 1  # the length of the header's key, which may not be -1
    batch = bytearray(plain[:HEADER_SIZE]) + compress(Codec.GZIP, plain[HEADER_SIZE:])
    batch[8:12], batch[22] = (len(batch) - 12).to_bytes(4, "big"), Codec.GZIP
    reseal(plain, 0)
    reseal(batch, 0)
    topic = LogConfig(is_compacted=True, timestamp_before_max_ms=1000)
    for refused in (at_once(plain, topic), at_once(bytearray(batch), topic), in_steps(batch, topic)):
        assert judged(refused) == (ErrorCode.INVALID_RECORD, [])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_of_many_pieces_is_checked_in_the_memory_that_was_told(codec: Codec) -> None:
    batch = build_batch([(b"k", bytes(1000), (), NOW_MS)] * 40_000, codec=codec)
    topic = LogConfig(max_message_bytes=1 << 30)
    room = ValidationMemory([(batch, topic)])
    tracemalloc.start()
    checked = take_all(check_in_steps(batch, topic, room, NOW_MS))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert checked.decompressed_bytes > 40_000_000
    assert peak < room.total_bytes + 100_000 < 16 * MIB


def test_all_records_out_of_time_are_named_up_to_a_number_wherever_pieces_end() -> None:
    records = [(b"k", bytes(700), (), NOW_MS if number % 3 else 1) for number in range(6_000)]
    found = in_steps(
        build_batch(records, codec=Codec.ZSTD),
        LogConfig(timestamp_before_max_ms=1000, max_message_bytes=1 << 30),
    )
    assert isinstance(found, RecordsRefused)
    assert found.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in found.record_errors] == list(range(0, 3_000, 3))


def test_a_batch_that_needs_more_memory_than_one_request_may_take_is_refused() -> None:
    import cramjam

    batch = build_batch([(b"k", bytes(20 * MIB), (), NOW_MS)])
    body = bytes(cramjam.snappy.compress_raw(bytes(batch[61:])))
    raw = bytearray(batch[:61]) + body  # one snappy block, which must be decompressed whole
    raw[8:12], raw[22] = (len(raw) - 12).to_bytes(4, "big"), Codec.SNAPPY
    reseal(raw, 0)
    found = in_steps(raw, LogConfig(max_message_bytes=1 << 30, checking_bytes_max=8 * MIB))
    assert isinstance(found, RecordsRefused)
    assert found.code is ErrorCode.MESSAGE_TOO_LARGE
    assert isinstance(
        in_steps(raw, LogConfig(max_message_bytes=1 << 30, checking_bytes_max=24 * MIB)), Checked
    )
