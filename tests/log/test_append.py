"""Appends of clients: the offsets they get, and the refusals with Kafka's error codes."""

from struct import pack_into

import pytest

from sparklog.errors import ErrorCode
from sparklog.kernels import scan
from sparklog.model import LeaderEpoch, Millis
from sparklog.record.batch import CRC_POSITION, CRC_START, build_batch, codec_of, decode_records, read_header
from sparklog.record.compression import Codec
from sparklog_server.disk.door import StorageError
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog, RecordsRefused
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import (
    DIRECTORY,
    EPOCH,
    NOW,
    SMALL,
    START_MS,
    batch,
    max_timestamp,
    new_log,
    open_log,
    read_all,
    records_of,
    sync,
)


def refused(log: PartitionLog, records: memoryview) -> RecordsRefused:
    end_offset = log.log_end_offset
    with pytest.raises(RecordsRefused) as caught:
        log.append(records, EPOCH, NOW)
    assert log.log_end_offset == end_offset
    return caught.value


def test_offsets_follow_one_another_and_are_stamped_with_the_leader_epoch() -> None:
    log = new_log()
    results = [log.append(batch(count), EPOCH, NOW) for count in (1, 3, 2)]
    assert [(result.base_offset, result.last_offset) for result in results] == [(0, 0), (1, 3), (4, 5)]
    assert log.log_end_offset == 6
    headers = [read_header(place.content) for place in read_all(log)]
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, 3), (1, 3), (4, 3)]


def test_a_stored_batch_differs_from_the_one_sent_only_in_offset_and_epoch() -> None:
    log = new_log()
    log.append(batch(), EPOCH, NOW)
    sent = batch(3, value=b"as it was sent")
    before = bytes(sent)
    log.append(sent, EPOCH, NOW)
    stored = read_all(log)[1].content
    assert stored[8:12] + stored[16:] == before[8:12] + before[16:]


def test_a_segment_rolls_before_it_would_pass_its_size() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for _ in range(200):
        log.append(batch(), EPOCH, NOW)
    sizes = [
        len(disk.read(f"{DIRECTORY}/{name}") or b"") for name in disk.list(DIRECTORY) if name.endswith(".log")
    ]
    assert len(sizes) > 3
    assert all(SMALL.segment_bytes - 200 < size <= SMALL.segment_bytes for size in sizes[:-1])


def test_a_segment_rolls_when_its_index_is_full() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, LogConfig(segment_index_bytes=96, index_interval_bytes=1))
    for at in range(40):
        log.append(batch(timestamp=START_MS + at), EPOCH, NOW)
    # Eight time entries of 12 bytes fit, one is kept in reserve, and the first batch of a segment has no
    # entry.
    assert [name[:20] for name in disk.list(DIRECTORY) if name.endswith(".log")] == [
        f"{base:020d}" for base in (0, 8, 16, 24, 32)
    ]


def test_a_segment_rolls_when_offsets_would_not_fit_in_31_bits() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    far = memoryview(build_batch([(None, b"x", (), START_MS)], base_offset=(1 << 31) - 1, leader_epoch=1))
    too_far = memoryview(build_batch([(None, b"x", (), START_MS)], base_offset=(1 << 31) + 5, leader_epoch=1))
    log.append(batch(), EPOCH, NOW)
    log.append_as_follower(far, NOW)
    log.append_as_follower(too_far, NOW)
    assert [name for name in disk.list(DIRECTORY) if name.endswith(".log")] == [
        f"{0:020d}.log",
        f"{(1 << 31) + 5:020d}.log",
    ]
    assert [place.base_offset for place in read_all(log)] == [0, (1 << 31) - 1, (1 << 31) + 5]


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    assert refused(new_log(), batch(value=b"x" * 5000)).code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_batch_over_max_message_bytes_is_refused() -> None:
    assert (
        refused(new_log(LogConfig(max_message_bytes=100)), batch(value=b"x" * 50)).code
        is ErrorCode.MESSAGE_TOO_LARGE
    )


def test_a_flipped_bit_is_refused_as_corrupt() -> None:
    sent = batch()
    sent[70] ^= 1
    assert refused(new_log(), sent).code is ErrorCode.CORRUPT_MESSAGE


def test_two_batches_in_one_produce_are_refused() -> None:
    assert refused(new_log(), memoryview(bytearray(bytes(batch()) * 2))).code is ErrorCode.INVALID_RECORD


def test_an_old_message_format_is_refused() -> None:
    sent = batch()
    sent[16] = 1
    assert refused(new_log(), sent).code is ErrorCode.INVALID_RECORD


def test_a_base_offset_other_than_zero_is_refused() -> None:
    sent = memoryview(build_batch([(None, b"v", (), START_MS)], base_offset=7))
    assert refused(new_log(), sent).code is ErrorCode.INVALID_RECORD


def test_control_batches_of_clients_are_refused() -> None:
    sent = memoryview(build_batch([(b"\0\0\0\1", b"", (), START_MS)], is_control=True))
    assert refused(new_log(), sent).code is ErrorCode.INVALID_RECORD


def test_a_record_without_a_key_is_named_on_a_compacted_topic() -> None:
    log = new_log(LogConfig(is_compacted=True))
    sent = memoryview(build_batch([(b"k", b"1", (), START_MS), (None, b"2", (), START_MS)]))
    error = refused(log, sent)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_every_record_without_a_key_is_named_on_a_compacted_topic_and_every_one_with_a_bad_timestamp(
    codec: Codec,
) -> None:
    log = new_log(LogConfig(is_compacted=True))
    keys = [None, b"k", None, None, b"k"]
    error = refused(log, memoryview(build_batch([(key, b"v", (), START_MS) for key in keys], codec=codec)))
    keyless = "A compacted topic cannot accept a record without a key."
    assert (error.code, error.record_errors) == (
        ErrorCode.INVALID_RECORD,
        [(0, keyless), (2, keyless), (3, keyless)],
    )
    assert (
        error.message
        == f"One or more records have been rejected due to 3 record errors in total; the first: {keyless}"
    )
    times = [START_MS, START_MS + 10_000_000, START_MS + 10_000_000, START_MS, START_MS]
    both = [(key, b"v", (), timestamp) for key, timestamp in zip(keys, times, strict=True)]
    error = refused(log, memoryview(build_batch(both, codec=codec)))
    assert (error.code, [index for index, _ in error.record_errors]) == (
        ErrorCode.INVALID_TIMESTAMP,
        [0, 1, 2, 3],
    )
    assert [index for index, message in error.record_errors if message == keyless] == [0, 2, 3]


def test_a_batch_that_is_damaged_behind_a_record_without_a_key_is_refused_for_the_damage() -> None:
    sent = build_batch([(None, b"v", (), START_MS), (b"k", b"v", (), START_MS)])
    sent[-3] = 0x7E  # the length of the last value
    pack_into(">I", sent, CRC_POSITION, scan.crc(memoryview(sent)[CRC_START:]))
    error = refused(new_log(LogConfig(is_compacted=True)), memoryview(sent))
    assert (error.code, error.record_errors) == (ErrorCode.INVALID_RECORD, [])


def test_records_too_far_ahead_of_the_clock_are_named() -> None:
    hour_ms = 3_600_000
    sent = memoryview(
        build_batch(
            [
                (None, b"", (), START_MS),
                (None, b"", (), START_MS + hour_ms),
                (None, b"", (), START_MS + hour_ms + 1),
            ]
        )
    )
    error = refused(new_log(), sent)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [2]


def test_records_too_old_are_named_but_those_without_a_timestamp_pass() -> None:
    log = new_log(LogConfig(timestamp_before_max_ms=1000))
    assert refused(log, batch(timestamp=START_MS - 1001)).code is ErrorCode.INVALID_TIMESTAMP
    log.append(memoryview(build_batch([(None, b"v", (), -1)])), EPOCH, NOW)
    log.append(batch(timestamp=START_MS - 1000), EPOCH, NOW)
    assert log.log_end_offset == 2


def test_a_producer_may_not_claim_log_append_time() -> None:
    error = refused(new_log(), batch(2, timestamp_type=1))
    assert (error.code, [index for index, _ in error.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [0, 1])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_log_append_time_is_stamped_with_a_new_crc(codec: Codec) -> None:
    log = new_log(LogConfig(timestamp_type="LogAppendTime"))
    result = log.append(batch(2, timestamp=5, codec=codec), EPOCH, NOW)
    assert result.log_append_time_ms == START_MS
    assert [record.timestamp for record in records_of(log)] == [
        START_MS,
        START_MS,
    ]  # decoding verifies the CRC


def test_a_lying_max_timestamp_is_put_right() -> None:
    log = new_log()
    honest = build_batch([(None, b"v", (), START_MS)])
    scan.stamp_timestamps(honest, 0, START_MS + 99)
    log.append(memoryview(honest), EPOCH, NOW)
    assert max_timestamp(log) == (START_MS, 0)
    assert read_header(read_all(log)[0].content).max_timestamp == START_MS


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compressed_batches_are_walked_too(codec: Codec) -> None:
    log = new_log()
    log.append(batch(5, codec=codec), EPOCH, NOW)
    assert [record.offset for record in records_of(log)] == [0, 1, 2, 3, 4]
    future = memoryview(
        build_batch([(None, b"", (), START_MS), (None, b"", (), START_MS + 10_000_000)], codec=codec)
    )
    error = refused(log, future)
    assert (error.code, [index for index, _ in error.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [1])


def broken_inside(codec: Codec) -> memoryview:
    """A batch with a correct CRC over a payload that does not decompress."""
    sent = bytearray(batch(5, codec=codec))
    sent[61:71] = b"\xff" * 10
    pack_into(">I", sent, CRC_POSITION, scan.crc(memoryview(sent)[CRC_START:]))
    return memoryview(sent)


def test_a_payload_that_does_not_decompress_is_refused_unless_the_topic_spares_the_check() -> None:
    assert refused(new_log(), broken_inside(Codec.ZSTD)).code is ErrorCode.INVALID_RECORD
    lenient = new_log(LogConfig(validates_compressed=False))
    lenient.append(broken_inside(Codec.ZSTD), EPOCH, NOW)
    assert lenient.log_end_offset == 5
    assert refused(
        new_log(LogConfig(validates_compressed=False, is_compacted=True)), broken_inside(Codec.ZSTD)
    )


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_decompression_bomb_is_refused_so_that_an_honest_producer_splits_it_and_the_limit_is_named(
    codec: Codec,
) -> None:
    bomb = batch(value=bytes(4 << 20), codec=codec)
    error = refused(new_log(LogConfig(decompressed_bytes_max=1 << 20)), bomb)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "sparklog.decompress.max.bytes = 1048576" in error.message


def test_a_batch_that_grows_more_often_than_allowed_is_refused_and_one_that_grows_less_is_not() -> None:
    grows = batch(value=bytes(6 << 20), codec=Codec.LZ4)
    new_log(LogConfig(decompressed_ratio_max=300)).append(grows, EPOCH, NOW)
    error = refused(
        new_log(LogConfig(decompressed_ratio_max=100)), batch(value=bytes(6 << 20), codec=Codec.LZ4)
    )
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "sparklog.decompress.ratio.max = 100" in error.message


def test_a_zstd_frame_that_does_not_tell_its_size_is_held_to_the_limits_too() -> None:
    import zstandard

    stream = zstandard.ZstdCompressor().compressobj()
    payload = stream.compress(bytes(4 << 20)) + stream.flush()
    sent = bytearray(batch(codec=Codec.ZSTD)[:61]) + payload
    pack_into(">i", sent, 8, len(sent) - 12)
    pack_into(">I", sent, CRC_POSITION, scan.crc(memoryview(sent)[CRC_START:]))
    assert (
        refused(new_log(LogConfig(decompressed_bytes_max=1 << 20)), memoryview(sent)).code
        is ErrorCode.MESSAGE_TOO_LARGE
    )


def test_the_records_at_fault_that_are_named_are_bounded() -> None:
    late = memoryview(build_batch([(None, b"", (), START_MS + 10_000_000)] * 2000))
    assert [index for index, _ in refused(new_log(), late).record_errors] == list(range(1000))
    keyless = memoryview(build_batch([(None, b"", (), START_MS)] * 2000))
    error = refused(new_log(LogConfig(is_compacted=True)), keyless)
    assert [index for index, _ in error.record_errors] == list(range(1000))
    assert "1000 record errors or more" in error.message
    unread = bytearray(batch(3, codec=Codec.ZSTD, timestamp_type=1))
    pack_into(">i", unread, 23, 2**31 - 2)
    pack_into(">i", unread, 57, 2**31 - 1)
    pack_into(">I", unread, CRC_POSITION, scan.crc(memoryview(unread)[CRC_START:]))
    assert (
        len(refused(new_log(LogConfig(validates_compressed=False)), memoryview(unread)).record_errors) == 1000
    )


def test_a_refused_batch_is_left_as_it_came() -> None:
    late = memoryview(build_batch([(None, b"", (), START_MS + 10_000_000)]))
    before = bytes(late)
    refused(new_log(), late)
    assert bytes(late) == before


@pytest.mark.parametrize(
    ("compression_type", "codec"), [("gzip", Codec.GZIP), ("uncompressed", Codec.NONE), ("zstd", Codec.ZSTD)]
)
def test_a_topic_may_ask_for_its_own_codec(compression_type: str, codec: Codec) -> None:
    log = new_log(LogConfig(compression_type=compression_type))
    for sent in (Codec.NONE, Codec.ZSTD, Codec.LZ4):
        log.append(batch(20, codec=sent), EPOCH, NOW)
    headers = [read_header(place.content) for place in read_all(log)]
    assert [codec_of(header) for header in headers] == [codec] * 3
    assert [record.offset for record in records_of(log)] == list(range(60))


def test_a_full_disk_refuses_the_append_and_takes_it_when_there_is_room_again() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append(batch(), EPOCH, NOW)
    disk.capacity_bytes = disk.used_bytes + 10
    sent = batch(producer_id=9)
    with pytest.raises(StorageError) as caught:
        log.append(sent, EPOCH, NOW)
    assert caught.value.is_full
    assert (log.log_end_offset, [place.base_offset for place in read_all(log)]) == (1, [0])
    disk.capacity_bytes = None
    result = log.append(batch(producer_id=9), EPOCH, NOW)
    assert (result.base_offset, result.is_duplicate) == (1, False)
    assert len(read_all(log)) == 2


@pytest.mark.parametrize("step", ["append", "replace", "open"])
def test_a_roll_that_fails_leaves_the_log_as_it_was(step: str) -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    while len(disk.read(f"{DIRECTORY}/{0:020d}.log") or b"") + len(batch()) <= SMALL.segment_bytes:
        log.append(batch(), EPOCH, NOW)
    end_offset = log.log_end_offset
    disk.fault = lambda call, _: "Input/output error" if call == step else None
    with pytest.raises(StorageError):
        log.append(batch(), EPOCH, NOW)
    disk.fault = None
    assert log.log_end_offset == end_offset
    for _ in range(100):
        log.append(batch(), EPOCH, NOW)
    sync(disk, log)
    assert [place.base_offset for place in read_all(log)] == list(range(end_offset + 100))


def test_batches_of_our_own_are_stamped_and_appended_together() -> None:
    log = new_log()
    log.append(batch(2), EPOCH, NOW)
    own = bytearray(bytes(batch(3)) + bytes(batch(1)))
    result = log.append_own(own, LeaderEpoch(4), NOW)
    assert (result.base_offset, result.last_offset) == (2, 5)
    headers = [read_header(place.content) for place in read_all(log)]
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, 3), (2, 4), (5, 4)]
    assert log.latest_epoch == 4


def test_batches_of_our_own_that_do_not_fit_on_the_disk_leave_nothing() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    disk.capacity_bytes = disk.used_bytes + len(batch(3)) + 10
    with pytest.raises(StorageError):
        log.append_own(bytearray(bytes(batch(3)) + bytes(batch(1))), EPOCH, NOW)
    assert (log.log_end_offset, read_all(log)) == (0, [])


def test_a_follower_keeps_the_offsets_of_its_leader() -> None:
    leader, follower = new_log(), new_log()
    for count in (2, 5, 1) * 30:
        leader.append(batch(count), EPOCH, NOW)
    fetched = b"".join(place.content for place in read_all(leader))
    follower.append_as_follower(fetched[:-10], NOW)  # the last batch is truncated
    assert follower.log_end_offset == leader.log_end_offset - 1
    follower.append_as_follower(read_all(leader)[-1].content, NOW)
    assert read_all(follower) == read_all(leader)
    assert follower.epochs.entries == leader.epochs.entries


def test_a_follower_refuses_offsets_it_has_and_batches_that_are_torn() -> None:
    leader, follower = new_log(), new_log()
    leader.append(batch(2), EPOCH, NOW)
    fetched = bytearray(read_all(leader)[0].content)
    follower.append_as_follower(fetched, NOW)
    with pytest.raises(RecordsRefused):
        follower.append_as_follower(fetched, NOW)
    fetched[70] ^= 1
    with pytest.raises(RecordsRefused):
        new_log().append_as_follower(fetched, NOW)


def test_settings_may_change_while_the_log_is_open() -> None:
    log = new_log()
    log.append(batch(), EPOCH, NOW)
    log.settings = LogConfig(max_message_bytes=10)
    assert refused(log, batch()).code is ErrorCode.MESSAGE_TOO_LARGE
    assert decode_records(read_all(log)[0].content)[0].timestamp == Millis(START_MS)


def test_a_follower_leaves_out_batches_of_a_newer_epoch_than_it_fetched_in() -> None:
    leader, follower = new_log(), new_log()
    for epoch in (3, 4, 5, 4):
        leader.append(batch(2), LeaderEpoch(epoch), NOW)
    fetched = b"".join(place.content for place in read_all(leader))
    follower.append_as_follower(fetched, NOW, epoch_max=LeaderEpoch(4))
    assert (follower.log_end_offset, follower.latest_epoch) == (4, 4)
    assert follower.append_as_follower(fetched[len(fetched) // 2 :], NOW, epoch_max=LeaderEpoch(4)) is None
