"""One flipped bit, or a truncation, in every file of a data directory: the log recovers, or it is refused
with the name of the file.

The tests also list damage that the format cannot detect: base offset, leader epoch and the plain-text
checkpoints have no checksum, so a flip that leaves them plausible shows only in that field; every record
around it is served unchanged.
"""

import re
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import NamedTuple

import pytest

from sparklog.model import Offset
from sparklog.record.batch import HEADER_SIZE, read_header
from sparklog.record.compression import Codec
from sparklog_server.disk.door import StorageError
from sparklog_server.log.directory.log_dir import DirectoryRefused
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.recovery.cuts import Cut, CutName, parse_cut_name
from sparklog_server.log.segment.damage import LogDamaged
from sparklog_server.log.segment.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.history import SETTINGS, reopened
from tests.log.logs import NOW, START_MS, T0, TOPIC_ID, Place, batch, max_timestamp, read_all
from tests.log.test_crashes import agrees_with_a_full_scan

CRC_FIELD = 17
LEADER_EPOCH_FIELD = range(12, 16)


class Stopped(NamedTuple):
    """The files of a directory with one partition of several segments, and the batches in it."""

    files: dict[str, bytes]
    places: list[Place]


@cache
def stopped(*, cleanly: bool) -> Stopped:
    """A directory after a clean stop, or killed with its last segment not synced."""
    disk = SimulatedDisk()
    log_dir = reopened(disk)
    log = log_dir.create(T0, TOPIC_ID, SETTINGS, NOW)
    random = Random(3)
    for at in range(36):
        codec = random.choice((Codec.NONE, Codec.NONE, Codec.ZSTD))
        sent = batch(
            2,
            value=random.randbytes(60),
            timestamp=START_MS + 10 * at,
            producer_id=7,
            sequence=2 * at,
            codec=codec,
        )
        log.append(sent, log.latest_epoch if at % 12 else log.latest_epoch + 1, NOW)
        if at == 20:
            files, end_offset = log.begin_sync()
            disk.sync(files)
            log.synced(end_offset)
            log_dir.checkpoints.write({T0: log.recovery_point})
    places = read_all(log)
    if cleanly:
        log_dir.close({T0: log.log_end_offset}, NOW)
    paths = [
        *(f"data/{name}" for name in disk.list("data")),
        *(f"data/t-0/{name}" for name in disk.list("data/t-0")),
    ]
    return Stopped(
        {path: content for path in paths if path != "data/t-0" and (content := disk.read(path)) is not None},
        places,
    )


def with_file(world: Stopped, path: str, content: bytes) -> SimulatedDisk:
    """The directory with one file replaced."""
    disk = SimulatedDisk()
    disk.make_directory("data/t-0")
    for name, intact in world.files.items():
        disk.open(name, create=True).append(content if name == path else intact)
    return disk


def opened(disk: SimulatedDisk) -> PartitionLog:
    """The log, or the reason of its refusal. Raises StorageError."""
    log_dir = reopened(disk)
    if T0 in log_dir.damaged:
        raise log_dir.damaged[T0].error
    return log_dir.logs[T0]


def flips(
    content: bytes, *, begin: int = 0, end: int | None = None, every: int = 1
) -> Iterator[tuple[int, bytes]]:
    """(byte, content with one of its bits flipped)."""
    for bit in range(begin * 8, (len(content) if end is None else end) * 8, every):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bit // 8, bytes(damaged)


def paths_of(world: Stopped, suffix: str) -> list[str]:
    return sorted(path for path in world.files if path.endswith(suffix))


# -- the end of the log


def refused(disk: SimulatedDisk, path: str) -> LogDamaged:
    """The reason why a log is refused; no file of it has changed."""
    before = {
        name: disk.read(f"data/t-0/{name}") for name in disk.list("data/t-0") if not name.endswith(".tmp")
    }
    with pytest.raises(LogDamaged) as raised:
        opened(disk)
    damage = raised.value
    assert damage.path == path
    assert damage.start < damage.end
    assert damage.with_remedy.endswith("or stop the broker and run: sparklog log repair data")
    assert {name: disk.read(f"data/t-0/{name}") for name in before} == before
    return damage


def test_the_last_batch_cut_at_each_byte_costs_that_batch_alone_and_is_kept_aside() -> None:
    world = stopped(cleanly=False)
    path = paths_of(world, ".log")[-1]
    content = world.files[path]
    last = world.places[-1]
    begin = len(content) - len(last.content)
    for size in range(begin, len(content)):
        disk = with_file(world, path, content[:size])
        log_dir = reopened(disk)
        log = log_dir.logs[T0]
        assert read_all(log) == world.places[:-1]
        assert log.log_end_offset == last.base_offset
        copies = [name for name in disk.list("data/t-0") if ".cut-" in name]
        if size > begin:
            (cut,) = log_dir.cuts
            assert cut == Cut(
                path,
                begin,
                last.base_offset,
                size - begin,
                False,
                f"data/t-0/{copies[0]}",
                f"no whole batch begins at byte {begin}",
            )
            assert parse_cut_name(copies[0]) == CutName(int(path[-24:-4]), NOW.wall_ms, begin)
            assert disk.read(f"data/t-0/{copies[0]}") == content[begin:size]
        assert len(copies) == (size > begin)
        again = batch(2, producer_id=7, sequence=read_header(last.content).base_sequence)
        assert log.append(again, log.latest_epoch, NOW).base_offset == last.base_offset


def test_after_a_clean_stop_a_log_that_is_cut_at_any_byte_is_refused() -> None:
    world = stopped(cleanly=True)
    for path in paths_of(world, ".log"):
        content = world.files[path]
        for size in range(0, len(content), 13):
            damage = refused(with_file(world, path, content[:size]), path)
            assert damage.recovery_point == 72


def flip_the_last_segment(every: int) -> None:
    """Above the recovery point every batch is checked against its CRC."""
    world = stopped(cleanly=False)
    path = paths_of(world, ".log")[-1]
    base_offset = int(path[-24:-4])
    begins: dict[int, int] = {}
    position = 0
    for at, place in enumerate(world.places):
        if place.base_offset >= base_offset:
            begins[position] = at
            position += len(place.content)
    for byte, damaged in flips(world.files[path], every=every):
        begin = max(begin for begin in begins if begin <= byte)
        at, field = begins[begin], byte - begin
        found = read_all(log := opened(with_file(world, path, damaged)))
        if field < 8 or field in LEADER_EPOCH_FIELD:
            # No checksum covers these: the batch may have another offset or epoch, and then so may the
            # batches after it.
            assert found[:at] == world.places[:at]
            assert [place.content[CRC_FIELD:] for place in found] == [
                place.content[CRC_FIELD:] for place in world.places[: len(found)]
            ]
        else:
            assert found == world.places[:at]
            agrees_with_a_full_scan(log, found)


def test_a_bit_flipped_beyond_the_recovery_point_costs_the_batch_and_what_follows() -> None:
    flip_the_last_segment(every=11)


@pytest.mark.long
def test_each_bit_flipped_beyond_the_recovery_point_costs_the_batch_and_what_follows() -> None:
    flip_the_last_segment(every=1)


def test_after_a_clean_stop_a_damaged_header_at_the_end_is_refused_or_served_as_it_lies_there() -> None:
    world = stopped(cleanly=True)
    path = paths_of(world, ".log")[-1]
    begin = len(world.files[path]) - len(world.places[-1].content)
    for byte, damaged in flips(world.files[path], begin=begin + 8, end=begin + HEADER_SIZE):
        disk = with_file(world, path, damaged)
        try:
            found = read_all(opened(disk))
        except LogDamaged as damage:
            assert damage.path == path  # noqa: PT017
            assert disk.read(path) == damaged
        else:
            assert found[: len(world.places) - 1] == world.places[:-1]
            assert len(found) == len(world.places)
            assert (
                found[-1].content in damaged
            )  # refused by the reader's CRC check; never served under a corrected CRC
        assert byte >= begin


def flip_below_the_recovery_point(every: int) -> None:
    """Below the recovery point nothing is truncated: the reader's CRC check finds a damaged payload; a
    damaged frame takes the log out of service.
    """
    world = stopped(cleanly=False)
    paths = paths_of(world, ".log")
    refused = 0
    for path in paths[2:3]:  # the segments before it are not read
        for byte, damaged in flips(world.files[path], every=every):
            disk = with_file(world, path, damaged)
            try:
                log = opened(disk)
            except StorageError as error:
                refused += 1
                told = error.with_remedy
                assert re.search(rf"recover {path}: .*offset .* run: sparklog log repair data", told)
                assert disk.read(path) == damaged
            else:
                assert log.log_end_offset >= 42, (path, byte)
                found = read_all(log)
                whole = [place for place in world.places if place.next_offset <= 40]
                assert len(found) >= len(whole)
                assert sum(ours != place for ours, place in zip(found, whole, strict=False)) <= 1
    assert refused


def test_a_bit_flipped_below_the_recovery_point_costs_no_other_promised_batch() -> None:
    flip_below_the_recovery_point(every=7)


@pytest.mark.long
def test_each_bit_flipped_below_the_recovery_point_costs_no_other_promised_batch() -> None:
    flip_below_the_recovery_point(every=1)


def test_what_was_refused_is_cut_once_the_recovery_point_is_taken_away() -> None:
    world = stopped(cleanly=False)
    path = paths_of(world, ".log")[2]
    damaged = bytearray(world.files[path])
    damaged[16] ^= 1  # the magic of its first batch
    assert refused(with_file(world, path, bytes(damaged)), path).position == 0
    disk = with_file(world, path, bytes(damaged))
    disk.remove("data/recovery-point-offset-checkpoint")
    begin = int(path[-24:-4])
    log_dir = reopened(disk)
    assert read_all(log_dir.logs[T0]) == [place for place in world.places if place.base_offset < begin]
    assert [cut.is_followed for cut in log_dir.cuts] == [True] * (len(paths_of(world, ".log")) - 2)


# -- indexes


def flip_side_files(suffix: str, every: int) -> None:
    for cleanly in (True, False):
        world = stopped(cleanly=cleanly)
        for path in paths_of(world, suffix):
            content = world.files[path]
            contents = [damaged for _, damaged in flips(content, every=every)]
            contents += [content[:size] for size in range(0, len(content), max(every // 2, 1))]
            for damaged in contents:
                log = opened(with_file(world, path, damaged))
                assert read_all(log, max_bytes=500) == world.places
                if (
                    suffix == ".timeindex"
                    and len(damaged) != len(content)
                    and len(damaged) % TIME_ENTRY_SIZE == 0
                ):
                    continue  # shorter by whole entries, it is a valid index
                if suffix != "leader-epoch-checkpoint":
                    agrees_with_a_full_scan(log, world.places)
                    assert max_timestamp(log) == (START_MS + 351, 71)
                last = world.places[-1]
                again = batch(2, producer_id=7, sequence=read_header(last.content).base_sequence)
                assert log.append(again, log.latest_epoch, NOW).is_duplicate


SIDE_FILES = (".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint")


@pytest.mark.parametrize("suffix", SIDE_FILES)
def test_a_bit_flipped_in_an_index_a_snapshot_or_the_epochs_changes_no_answer(suffix: str) -> None:
    flip_side_files(suffix, every=29)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("suffix", SIDE_FILES)
def test_each_bit_flipped_in_an_index_a_snapshot_or_the_epochs_changes_no_answer(suffix: str) -> None:
    flip_side_files(suffix, every=1)


# -- files of the directory


@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        ".kafka_cleanshutdown",
    ],
)
def test_each_bit_flipped_in_a_checkpoint_costs_no_record(name: str, cleanly: bool) -> None:
    world = stopped(cleanly=cleanly)
    path = f"data/{name}"
    if path not in world.files:
        return
    for _, damaged in flips(world.files[path]):
        disk = with_file(world, path, damaged)
        try:
            assert read_all(opened(disk)) == world.places
        except LogDamaged as damage:
            # It covers records that never existed, which no file contradicts: the log is left to the repair.
            assert name == "recovery-point-offset-checkpoint"
            assert damage.recovery_point > 42  # noqa: PT017
            assert all(disk.read(log) == world.files[log] for log in paths_of(world, ".log"))


def test_a_log_start_that_no_log_can_have_is_not_believed_after_a_clean_stop() -> None:
    """Truncating the log because of it would let one damaged digit remove every record."""
    world = stopped(cleanly=True)
    path = "data/log-start-offset-checkpoint"
    for start in range(73, 9000, 97):
        disk = with_file(world, path, b"0\n1\nt 0 %d\n" % start)
        assert read_all(opened(disk)) == world.places
    for damaged in (
        b"0\n1\nt 0 -4\n",
        b"0\n1\nt 0 99999999999999999999999\n",
        b"\xff\xfe",
        b"0\n9\nt 0 4\n",
        b"",
    ):
        assert read_all(opened(with_file(world, path, damaged))) == world.places


def test_each_bit_flipped_in_meta_properties_is_refused_with_the_file_named_or_changes_the_directory_id_alone() -> (  # noqa: E501
    None
):
    world = stopped(cleanly=True)
    path = "data/meta.properties"
    text = world.files[path]
    directory_id = reopened(with_file(world, "", b"")).directory_id
    id_begin = text.index(b"directory.id=") + len(b"directory.id=")
    for byte, damaged in flips(text):
        try:
            log_dir = reopened(with_file(world, path, damaged))
        except DirectoryRefused as refused:
            assert path in str(refused)  # noqa: PT017
        else:
            assert read_all(log_dir.logs[T0]) == world.places
            assert byte >= id_begin or log_dir.directory_id == directory_id


def test_each_bit_flipped_in_partition_metadata_changes_the_topic_id_alone() -> None:
    world = stopped(cleanly=True)
    path = "data/t-0/partition.metadata"
    for _, damaged in flips(world.files[path]):
        assert read_all(opened(with_file(world, path, damaged))) == world.places


def test_noise_in_all_files_but_the_log_costs_no_record() -> None:
    world = stopped(cleanly=True)
    for seed in range(60):
        random = Random(seed)
        files = {
            path: random.randbytes(len(content))
            if random.random() < 0.5 and not path.endswith((".log", "meta.properties"))
            else content
            for path, content in world.files.items()
        }
        disk = with_file(Stopped(files, []), "", b"")
        log = opened(disk)
        assert read_all(log) == world.places
        assert log.append(batch(), log.latest_epoch, NOW).base_offset == log.log_end_offset - 1


def test_a_disk_that_fails_while_opening_says_which_file_and_call() -> None:
    world = stopped(cleanly=False)
    for path in world.files:
        disk = with_file(world, "", b"")
        disk.fault = lambda call, at, path=path: (
            "Input/output error" if at == path and call == "read" else None
        )
        try:
            log = opened(disk)
            assert log.read(Offset(0), log.log_end_offset, 1000, at_least_one=True) is not None
        except StorageError as error:
            assert path in str(error)  # noqa: PT017
