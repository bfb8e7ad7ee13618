"""Logs for tests: on a disk in memory, with batches of any shape, and a full scan to compare answers with."""

from typing import NamedTuple

from sparklog.model import Instant, LeaderEpoch, Micros, Millis, Offset, TopicPartition, Uuid
from sparklog.record.batch import NO_TIMESTAMP, Record, build_batch, decode_records, iterate_headers
from sparklog.record.compression import Codec
from sparklog_server.disk.door import Disk
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.recovery.log_loader import Checkpointed
from sparklog_server.simulation.disk import SimulatedDisk

START_MS = 1_700_000_000_000
NOW = Instant(Micros(0), Millis(START_MS))
T0 = TopicPartition("t", 0)
TOPIC_ID = Uuid(bytes(range(16)))
EPOCH = LeaderEpoch(3)
DIRECTORY = "data/t-0"
SMALL = LogConfig(segment_bytes=4096, index_interval_bytes=256)


def batch(
    count: int = 1,
    *,
    value: bytes = b"v" * 40,
    timestamp: int = START_MS,
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = 0,
    codec: Codec = Codec.NONE,
    key: bytes | None = b"k",
    is_transactional: bool = False,
    timestamp_type: int = 0,
) -> memoryview:
    """A batch as a client sends it, in a writable buffer; timestamps grow by one from record to record."""
    has_producer = producer_id >= 0
    return memoryview(
        build_batch(
            [(key, value, (), timestamp + index) for index in range(count)],
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch if has_producer else -1,
            base_sequence=sequence if has_producer else -1,
            is_transactional=is_transactional,
            timestamp_type=timestamp_type,
        )
    )


def truncate(log: PartitionLog, offset: int) -> None:
    """Truncate the log as its owner does: begin, run the job, adopt its result."""
    truncation = log.begin_truncation(Offset(offset))
    if truncation is not None:
        truncation.run()
        log.truncated(truncation)


def open_log(
    disk: Disk,
    settings: LogConfig = SMALL,
    *,
    now: Instant = NOW,
    recovery_point: int = 0,
    was_clean: bool = False,
    log_start_offset: int = 0,
    high_watermark: int | None = None,
) -> PartitionLog:
    """The log in `data/t-0`; its directory is created if necessary."""
    disk.make_directory(DIRECTORY)
    return PartitionLog.open(
        disk,
        DIRECTORY,
        T0,
        TOPIC_ID,
        settings,
        Checkpointed(
            Offset(recovery_point),
            Offset(log_start_offset),
            was_clean,
            None if high_watermark is None else Offset(high_watermark),
        ),
        now=now,
    )


def new_log(settings: LogConfig = SMALL) -> PartitionLog:
    """An empty log on a disk of its own."""
    return open_log(SimulatedDisk(), settings)


def sync(disk: Disk, log: PartitionLog) -> None:
    """One whole sync, as the sync thread does it."""
    files, end_offset = log.begin_sync()
    disk.sync(files)
    log.synced(end_offset)


class Place(NamedTuple):
    """A batch as a reader finds it."""

    base_offset: int
    next_offset: int
    content: bytes


def read_all(log: PartitionLog, *, max_bytes: int = 1 << 20) -> list[Place]:
    """Every batch from the log start to its end, read slice by slice."""
    places: list[Place] = []
    start = log.log_start_offset
    while True:
        found = log.read(start, log.log_end_offset, max_bytes, at_least_one=True)
        if found is None:
            assert start == log.log_end_offset
            return places
        content = found.read()
        assert len(content) == found.length
        end = 0
        for position, header in iterate_headers(content):
            places.append(
                Place(header.base_offset, header.next_offset, content[position : position + header.size])
            )
            end = position + header.size
        assert end == len(content), "half a batch"
        start = Offset(places[-1].next_offset)


def records_of(log: PartitionLog) -> list[Record]:
    """Every record of the log."""
    return [record for place in read_all(log) for record in decode_records(place.content)]


def offset_for_timestamp(
    log: PartitionLog, timestamp: Millis, limit: Offset
) -> tuple[Millis, Offset, LeaderEpoch] | None:
    """The timestamp, offset and leader epoch of the first record below `limit` at or after `timestamp`; None
    if there is none.

    Reads data. Raises RecordsRefused (CORRUPT_MESSAGE) if a batch cannot be decoded.
    """
    search = log.time_search(timestamp, limit)
    found = search.run()
    search.learn()
    return None if found is None else (Millis(found[0]), Offset(found[1]), LeaderEpoch(found[2]))


def max_timestamp(log: PartitionLog) -> tuple[Millis, Offset]:
    """The greatest timestamp, and the offset of the first record in its batch that has it; (-1, -1) if no
    record has one. Reads data.
    """
    found = log.time_search(None, log.log_end_offset).run()
    return (Millis(found[0]), Offset(found[1])) if found is not None else (Millis(NO_TIMESTAMP), Offset(-1))
