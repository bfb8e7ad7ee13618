"""The findings of the tools in a damaged directory: the exact byte, if a checksum, a neighbour or another
file determines it.
"""

from collections.abc import Iterator
from functools import cache
from random import Random

import pytest

from sparklog.kernels import scan
from sparklog.model import LeaderEpoch, Offset
from sparklog.record.batch import HEADER_SIZE, build_batch
from sparklog.record.control import ControlType, Marker, build_marker
from sparklog_server.log.segment.sound_batches import WINDOW_BYTES, Unsound, altered_byte, sound_batches
from sparklog_server.log_tools.examine_directory import Looking, Report, verify
from sparklog_server.log_tools.examine_files import reader_of
from sparklog_server.log_tools.finding import Finding
from sparklog_server.simulation.disk import SimulatedDisk, SimulatedFile
from tests.log.history import SETTINGS, reopened
from tests.log.logs import NOW, START_MS, T0, TOPIC_ID, batch
from tests.log.test_damage import Stopped, flips, paths_of, stopped, with_file

RECORD_BYTES = 400


def looked_at(disk: SimulatedDisk, *, is_deep: bool = False) -> dict[str, Report]:
    return {report.name: report for report in verify(disk, "data", Looking(is_deep=is_deep))}


def findings(disk: SimulatedDisk) -> list[Finding]:
    return [finding for report in looked_at(disk).values() for finding in report.findings]


def log_of(content: bytes) -> SimulatedFile:
    disk = SimulatedDisk()
    disk.make_directory("d")
    file = disk.open("d/log", create=True)
    file.append(content)
    return file


def batches(count: int, *, size: int = RECORD_BYTES) -> list[bytes]:
    random = Random(2)
    return [
        bytes(
            build_batch(
                [(b"k", random.randbytes(size), (), START_MS)] * 2, base_offset=2 * at, leader_epoch=1
            )
        )
        for at in range(count)
    ]


def unsound_in(content: bytes) -> list[Unsound]:
    return [found for found in sound_batches(log_of(content)) if isinstance(found, Unsound)]


# -- a log alone


@pytest.mark.parametrize("size", [0, 1, 100, 4000])
def test_any_one_altered_byte_is_found_from_the_checksum(size: int) -> None:
    random = Random(size)
    content = random.randbytes(size)
    stored = scan.crc(content)
    for at in random.sample(range(size), min(size, 60)):
        damaged = bytearray(content)
        damaged[at] ^= random.randrange(1, 256)
        assert altered_byte(damaged, stored) == at
    for at in range(4):
        assert altered_byte(content, stored ^ 0x21 << 8 * (3 - at)) == at - 4


def test_two_altered_bytes_far_apart_are_not_taken_for_one() -> None:
    content = bytearray(Random(1).randbytes(3000))
    stored = scan.crc(content)
    content[10] ^= 1
    content[2000] ^= 8
    assert altered_byte(content, stored) is None


def test_each_flipped_bit_of_a_batch_is_told_by_its_byte_and_costs_no_other_batch() -> None:
    sent = batches(3, size=60)
    content = b"".join(sent)
    begin, end = len(sent[0]), len(sent[0]) + len(sent[1])
    for byte, damaged in flips(content, begin=begin + 8, end=end):
        if byte - begin in range(12, 16):
            continue  # the leader epoch is under no checksum
        (unsound,) = unsound_in(damaged)
        assert (unsound.start, unsound.limit, unsound.position) == (begin, end, byte), unsound.what


def test_a_log_cut_at_each_byte_ends_with_the_batch_that_is_not_whole() -> None:
    sent = batches(2, size=60)
    content = b"".join(sent)
    for size in range(len(sent[0]) + 1, len(content)):
        (unsound,) = unsound_in(content[:size])
        assert (unsound.start, unsound.limit) == (len(sent[0]), size)


def test_a_hole_of_zeros_is_passed_over_to_the_next_sound_batch() -> None:
    sent = batches(40)
    content = bytearray(b"".join(sent))
    begin, limit = 7 * len(sent[0]) + 100, 20 * len(sent[0]) + 20
    content[begin:limit] = bytes(limit - begin)
    first, last = 7 * len(sent[0]), 21 * len(sent[0])
    stretches = unsound_in(bytes(content))
    assert (stretches[0].start, stretches[-1].limit) == (first, last)
    seen = [
        at
        for found in sound_batches(log_of(bytes(content)))
        if not isinstance(found, Unsound)
        for at, _ in found
    ]
    assert seen == [at * len(sent[0]) for at in range(40) if not 7 <= at < 21]


def test_batches_larger_than_a_window_and_windows_that_end_in_a_batch_are_seen_whole() -> None:
    sent = [*batches(2), *batches(2, size=WINDOW_BYTES), *batches(4, size=WINDOW_BYTES // 5)]
    content = b"".join(sent)
    done: list[int] = []
    seen = [
        one
        for found in sound_batches(log_of(content), done.append)
        if not isinstance(found, Unsound)
        for one in found
    ]
    assert [header.size for _, header in seen] == [len(one) for one in sent]
    assert sum(done) == len(content)
    damaged = bytearray(content)
    damaged[len(sent[0]) * 2 + 1_000_000] ^= 4
    (unsound,) = unsound_in(bytes(damaged))
    assert (unsound.start, unsound.limit) == (len(sent[0]) * 2, len(sent[0]) * 2 + len(sent[2]))


def test_an_empty_log_has_nothing_in_it() -> None:
    assert list(sound_batches(log_of(b""))) == []


# -- a whole directory


def places_in(world: Stopped, path: str) -> Iterator[tuple[int, int]]:
    """(begin, end) of each batch of a log."""
    position = 0
    for found in sound_batches(log_of(world.files[path])):
        assert not isinstance(found, Unsound)
        for at, header in found:
            position = at + header.size
            yield at, position


def test_a_clean_directory_is_sound_and_a_killed_one_is_what_the_next_start_mends() -> None:
    world = stopped(cleanly=True)
    reports = looked_at(with_file(world, "", b""), is_deep=True)
    assert {name: (report.state, report.findings) for name, report in reports.items()} == {
        ".": ("sound", []),
        "t-0": ("sound", []),
    }
    report = reports["t-0"]
    assert (report.batches, report.records) == (len(world.places), 2 * len(world.places))
    assert (report.start_offset, report.end_offset) == (0, world.places[-1].next_offset)
    killed = stopped(cleanly=False)
    assert [finding for finding in findings(with_file(killed, "", b"")) if finding.is_damage] == []


def flip_every_log(every: int) -> None:
    world = stopped(cleanly=True)
    for path in paths_of(world, ".log"):
        places = list(places_in(world, path))
        is_last = path == paths_of(world, ".log")[-1]
        for byte, damaged in flips(world.files[path], every=every):
            begin = max(begin for begin, _ in places if begin <= byte)
            found = [
                finding
                for finding in findings(with_file(world, path, damaged))
                if finding.is_damage and finding.path == path
            ]
            if is_last and begin == places[-1][0] and byte - begin < 8:
                continue  # no later batch contradicts the shifted last batch: see the next test
            assert byte in [finding.position for finding in found], (path, byte, byte - begin, found)


def test_a_flipped_bit_in_a_log_is_told_by_its_byte_base_offset_and_epoch_included() -> None:
    flip_every_log(every=37)


@pytest.mark.long
def test_each_flipped_bit_in_a_log_is_told_by_its_byte_base_offset_and_epoch_included() -> None:
    flip_every_log(every=1)


def test_a_batch_that_lies_about_its_offset_does_not_put_its_indexes_in_the_wrong() -> None:
    world = stopped(cleanly=True)
    path = paths_of(world, ".log")[0]
    for begin, _ in list(places_in(world, path))[:-1]:
        damaged = bytearray(world.files[path])
        damaged[begin + 2] = 0xFF
        found = findings(with_file(world, path, bytes(damaged)))
        assert [(finding.path, finding.position) for finding in found] == [(path, begin + 2)]


def test_a_last_base_offset_that_is_too_high_shows_as_a_gap() -> None:
    world = stopped(cleanly=True)
    path = paths_of(world, ".log")[-1]
    begin, _ = list(places_in(world, path))[-1]
    damaged = bytearray(world.files[path])
    damaged[begin + 6] ^= 4
    report = looked_at(with_file(world, path, bytes(damaged)))["t-0"]
    assert any("1024 offsets" in finding.what for finding in report.findings)


def flip_indexes(suffix: str, every: int) -> None:
    world = stopped(cleanly=True)
    paths = [path for path in paths_of(world, suffix) if world.files[path]]
    assert len(paths) >= 2
    for path in paths:
        for byte, damaged in flips(world.files[path], every=every):
            found = [finding for finding in findings(with_file(world, path, damaged)) if finding.path == path]
            assert found, (path, byte)
            assert all(
                "rebuilt" in finding.remedy if finding.is_damage else "lookups begin" in finding.remedy
                for finding in found
            )
            assert byte in [finding.position for finding in found], (path, byte, found)


def test_a_flipped_bit_in_an_offset_index_is_told_by_its_byte() -> None:
    flip_indexes(".index", every=5)


def test_a_flipped_bit_in_a_time_index_is_told_by_its_byte() -> None:
    flip_indexes(".timeindex", every=5)


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_each_flipped_bit_in_an_index_is_told_by_its_byte(suffix: str) -> None:
    flip_indexes(suffix, every=1)


def test_an_index_that_was_cut_or_is_gone_does_not_pass_for_whole() -> None:
    world = stopped(cleanly=True)
    path = next(path for path in paths_of(world, ".timeindex") if world.files[path])
    content = world.files[path]
    for size in range(len(content)):
        found = [
            finding for finding in findings(with_file(world, path, content[:size])) if finding.path == path
        ]
        assert found, size
        assert found[0].position == size - size % 12


def test_each_flipped_bit_in_a_producers_snapshot_is_told_by_its_byte() -> None:
    world = stopped(cleanly=True)
    for path in paths_of(world, ".snapshot"):
        for byte, damaged in flips(world.files[path]):
            (found,) = [
                finding for finding in findings(with_file(world, path, damaged)) if finding.path == path
            ]
            assert found.is_damage
            assert found.position == byte or byte in range(6, 10), (
                byte,
                found,
            )  # a flip in a count is found at another byte


@pytest.mark.parametrize(
    ("name", "content", "position"),
    [
        ("data/recovery-point-offset-checkpoint", b"0\n2\nt 0 12\nt 1\n", 11),
        ("data/replication-offset-checkpoint", b"0\n2\nt 0 12\n", 2),
        ("data/log-start-offset-checkpoint", b"1\n0\n", 0),
        ("data/t-0/leader-epoch-checkpoint", b"0\n3\n1 0\n2 5\n1 9\n", 12),
        ("data/t-0/leader-epoch-checkpoint", b"0\n1\n1 x\n", 4),
        ("data/meta.properties", b"version=1\nnode.id=1\ncluster.id=abc\ndirectory.id=short\n", 35),
        ("data/t-0/partition.metadata", b"version: 0\ntopic_id: zzz", 11),
        ("data/.kafka_cleanshutdown", b'{"version":0,', 13),
    ],
)
def test_the_line_of_a_checkpoint_that_cannot_be_is_told_by_its_first_byte(
    name: str, content: bytes, position: int
) -> None:
    found = [
        finding
        for finding in findings(with_file(stopped(cleanly=True), name, content))
        if finding.path == name and finding.is_damage
    ]
    assert [finding.position for finding in found] == [position]


def test_a_log_that_ends_before_the_recovery_point_is_damaged_however_well_its_batches_look() -> None:
    world = stopped(cleanly=True)
    path = paths_of(world, ".log")[-1]
    report = looked_at(with_file(world, path, b""))["t-0"]
    assert report.is_damaged
    assert any("was durable" in finding.what for finding in report.findings)


def test_a_torn_tail_beyond_the_recovery_point_is_no_damage_and_before_it_is() -> None:
    world = stopped(cleanly=False)
    path = paths_of(world, ".log")[-1]
    report = looked_at(with_file(world, path, world.files[path][:-5]))["t-0"]
    assert report.state == "recoverable"
    assert any("cuts the log" in finding.remedy for finding in report.findings)
    first = paths_of(world, ".log")[0]
    damaged = bytearray(world.files[first])
    damaged[HEADER_SIZE + 3] ^= 1
    assert looked_at(with_file(world, first, bytes(damaged)))["t-0"].is_damaged


def test_a_last_promised_epoch_is_held_against_the_checkpoint_of_epochs() -> None:
    world = stopped(cleanly=True)
    path = next(path for path in world.files if path.endswith("leader-epoch-checkpoint"))
    lines = world.files[path].decode().splitlines()
    epoch, start = map(int, lines[-1].split())
    lines[-1] = f"{epoch} {start + 2}"
    found = [
        finding
        for finding in findings(with_file(world, path, ("\n".join(lines) + "\n").encode()))
        if finding.is_damage
    ]
    assert found
    assert all("leader-epoch-checkpoint says" in finding.what for finding in found)


@cache
def transactional() -> Stopped:
    """A partition with aborted transactions of two producers."""
    disk = SimulatedDisk()
    log_dir = reopened(disk)
    log = log_dir.create(T0, TOPIC_ID, SETTINGS, NOW)
    epoch = LeaderEpoch(log.latest_epoch + 1)
    for at in range(4):
        producer = 4 + at % 2
        log.append_own(
            bytearray(batch(2, producer_id=producer, sequence=2 * (at // 2), is_transactional=True)),
            epoch,
            NOW,
        )
        marker = build_marker(
            Marker(ControlType.ABORT, 1), producer_id=producer, producer_epoch=0, timestamp_ms=START_MS
        )
        log.append_own(marker, epoch, NOW)
    log_dir.close({T0: log.log_end_offset}, NOW)
    paths = [
        *(f"data/{name}" for name in disk.list("data")),
        *(f"data/t-0/{name}" for name in disk.list("data/t-0")),
    ]
    return Stopped(
        {path: content for path in paths if path != "data/t-0" and (content := disk.read(path)) is not None},
        [],
    )


def test_a_wrong_entry_of_a_transaction_index_is_told_by_its_field() -> None:
    world = transactional()
    paths = paths_of(world, ".txnindex")
    assert [finding for finding in findings(with_file(world, "", b"")) if finding.is_damage] == []
    for byte, damaged in flips(world.files[paths[0]], every=3):
        found = [
            finding for finding in findings(with_file(world, paths[0], damaged)) if finding.path == paths[0]
        ]
        if byte % 34 in range(2, 10) or byte % 34 in range(18, 26):
            assert found, (byte, byte % 34)
            assert found[0].position is not None
            assert found[0].position // 34 == byte // 34 or byte % 34 >= 18


@pytest.mark.parametrize("kept", [None, 0, 1, 3])
def test_aborted_transactions_that_no_entry_tells_of_are_told(kept: int | None) -> None:
    """With the file itself gone, emptied, or cut between two entries."""
    world = transactional()
    (path,) = paths_of(world, ".txnindex")
    content = world.files[path]
    assert len(content) == 4 * 34
    disk = with_file(world, path, content[: (kept or 0) * 34])
    if kept is None:
        disk.remove(path)
    (told,) = [finding for finding in findings(disk) if finding.path == path]
    assert told.is_damage
    first = 3 * (kept or 0) + 2
    assert f"tells of {4 - (kept or 0)} aborted transactions" in told.what
    assert told.what.endswith(f"offset {first}")
    if kept == 0:
        return
    with_them = reopened(with_file(world, path, b"")).logs[T0]  # as the remedy says
    assert [one.last_offset for one in with_them.aborted_transactions(Offset(0), Offset(12))] == [2, 5, 8, 11]


def test_the_markers_of_transactions_without_records_need_no_entry() -> None:
    disk = SimulatedDisk()
    log_dir = reopened(disk)
    log = log_dir.create(T0, TOPIC_ID, SETTINGS, NOW)
    epoch = LeaderEpoch(log.latest_epoch + 1)
    for kind in (ControlType.ABORT, ControlType.COMMIT, ControlType.ABORT):
        log.append_own(
            build_marker(Marker(kind, 1), producer_id=4, producer_epoch=0, timestamp_ms=START_MS), epoch, NOW
        )
        if kind is ControlType.ABORT:
            log.append_own(bytearray(batch(2, producer_id=4, sequence=0, is_transactional=True)), epoch, NOW)
    log_dir.close({T0: log.log_end_offset}, NOW)
    assert [finding for finding in findings(disk) if finding.is_damage] == []


def test_names_that_a_crash_or_an_operator_left_are_noted_and_no_damage() -> None:
    disk = with_file(stopped(cleanly=True), "", b"")
    left = [
        "data/t-0/00000000000000000002.log.deleted",
        "data/t-0/leader-epoch-checkpoint.1.tmp",
        "data/t-0/99999999999999999999.index",
    ]
    for path in [*left, "data/t-0/notes.txt", "data/notes.txt"]:
        disk.open(path, create=True).append(b"x")
    found = {finding.path: finding for finding in findings(disk)}
    assert sorted(found) == sorted([*left, "data/t-0/notes.txt", "data/notes.txt"])
    assert not any(finding.is_damage for finding in found.values())
    reports = looked_at(disk)
    assert (reports["."].state, reports["t-0"].state) == ("sound", "recoverable")


def test_every_kind_of_small_file_has_a_reader() -> None:
    names = [
        "meta.properties",
        "partition.metadata",
        "cleaner-offset-checkpoint",
        f"{7:020d}.snapshot",
        f"{0:020d}.txnindex",
    ]
    assert all(reader_of(name, {}) is not None for name in names)
    assert reader_of("notes.txt", {}) is None
    assert reader_of("7.snapshot", {}) is None


def test_random_bytes_in_any_file_are_told_and_never_kill_the_tool() -> None:
    world = stopped(cleanly=True)
    random = Random(5)
    for path, content in sorted(world.files.items()):
        for _ in range(6):
            noise = random.randbytes(random.randrange(1, max(len(content), 2)))
            found = findings(with_file(world, path, noise))
            is_any_content_sound = path.endswith((".lock", ".sparklog-ballast", ".index"))
            assert is_any_content_sound or any(finding.path == path for finding in found), (path, noise)


def test_above_the_recovery_point_the_remedy_names_what_the_next_start_cuts_and_what_follows() -> None:
    world = stopped(cleanly=False)
    path = next(path for path in paths_of(world, ".log") if int(path[-24:-4]) >= 42)
    begins = [begin for begin, _ in places_in(world, path)]
    damaged = bytearray(world.files[path])
    damaged[begins[1] + HEADER_SIZE + 3] ^= 1
    disk = with_file(world, path, bytes(damaged))
    behind = sum(disk.size(other) for other in paths_of(world, ".log") if other > path)
    reports = {
        report.name: report
        for report in verify(disk, "data", Looking(written_at=lambda _: "2026-11-22T18:00:00Z"))
    }
    (found,) = [one for one in reports["t-0"].findings if "above the last recovery point" in one.what]
    assert reports["t-0"].state == "recoverable"
    assert (found.path, found.position) == (path, begins[1] + HEADER_SIZE + 3)
    assert "the last recovery point 42, written at 2026-11-22T18:00:00Z" in found.what
    assert f"bytes [{begins[1]}, {len(damaged)}) of this file" in found.remedy
    assert f"({behind} bytes)" in found.remedy
    assert "sound batches up to offset 71 follow and go too" in found.remedy
    torn = looked_at(
        with_file(world, paths_of(world, ".log")[-1], world.files[paths_of(world, ".log")[-1]][:-5])
    )["t-0"]
    assert any("no sound batch follows" in one.remedy for one in torn.findings)


def test_nothing_below_the_recovery_point_may_be_missing() -> None:
    world = stopped(cleanly=False)
    first, second, *_ = paths_of(world, ".log")
    disk = with_file(world, "", b"")
    disk.remove(second, second.replace(".log", ".index"), second.replace(".log", ".timeindex"))
    (hole,) = [
        one
        for one in findings(disk)
        if one.is_damage and "are missing below the last recovery point 42" in one.what
    ]
    assert hole.what.startswith(f"begins with offset {int(paths_of(world, '.log')[2][-24:-4])}")
    disk = with_file(world, "", b"")
    disk.remove(first)
    told = [one for one in findings(disk) if one.is_damage]
    assert any("the log of this segment is missing" in one.what for one in told)
    assert any("but the log begins at 0" in one.what for one in told)
    disk = with_file(world, "", b"")
    disk.remove("data/t-0")
    assert any("there is no directory of it" in one.what for one in findings(disk) if one.is_damage)
