"""Checks a whole log directory of a stopped broker: every file of every partition is read and compared with
the others.

`verify` ──► one Report for the directory's own files, then one for each partition
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from sparklog.errors import DecodeError
from sparklog.model import Offset, TopicPartition
from sparklog_server.disk.ballast import FILE_NAME as BALLAST_FILE
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_offsets
from sparklog_server.disk.door import Disk, DiskFile, StorageError
from sparklog_server.log.cleaning.swap import CLEANED_SUFFIX, SWAP_SUFFIX
from sparklog_server.log.directory.checkpoints import HIGH_WATERMARK_FILE, LOG_START_FILE
from sparklog_server.log.directory.identity import BOOT_FILE
from sparklog_server.log.directory.log_dir import (
    CLEAN_SHUTDOWN_FILE,
    DELETE_SUFFIX,
    META_FILE,
    METADATA_LOG,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    STRAY_SUFFIX,
    partition_of,
)
from sparklog_server.log.segment.leader_epoch_cache import EPOCH_FILE, LeaderEpochCache
from sparklog_server.log.segment.segment import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name, offset_of
from sparklog_server.log.segment.sound_batches import Unsound, sound_batches
from sparklog_server.metadata.records import records_of

from .examine_files import CLEANER_FILE, OFFSET_FILES, Reader, reader_of
from .examine_promises import Promises, WrittenAt, check_promises, hole_finding, tail_finding
from .examine_segment import RESTORE, SegmentCheck, check_segment, log_path, read_bounded, with_indexes
from .finding import Finding

CHECKPOINT_SUFFIX = ".checkpoint"
FUTURE_SUFFIX = "-future"
LOCK_FILE = ".lock"
CUT_COPY = ".log.cut-"
CLEAN_STOP_FILE = "clean-stop-checkpoint"
METADATA_POINT_FILE = "recovery-point-checkpoint"
_LEFT_OVER = (".tmp", ".deleted", CLEANED_SUFFIX, SWAP_SUFFIX)
_INDEXES = (".index", ".timeindex", ".txnindex")
MENDED = "the broker repairs this at its next start"
UNREADABLE = "check the disk and the permissions of the file"
LOOK = "check whether it belongs there"


@dataclass(slots=True)
class Report:
    """The findings in a partition, or in the directory's own files (`name` is `.`). Offsets are -1 where
    there is no log.
    """

    name: str
    segments: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    start_offset: int = -1
    end_offset: int = -1
    findings: list[Finding] = field(default_factory=list)
    more: int = 0  # findings beyond those reported

    @property
    def is_damaged(self) -> bool:
        return any(finding.is_damage for finding in self.findings)

    @property
    def state(self) -> str:
        """`sound`, `recoverable` (a crash left it so, and the broker repairs it at its next start) or
        `damaged`.
        """
        return (
            "damaged"
            if self.is_damaged
            else "recoverable"
            if any(finding.is_mended for finding in self.findings)
            else "sound"
        )


@dataclass(frozen=True, slots=True)
class Looking:
    """Options of a check: `also` has readers for files that are not part of a log, `progressed` is called
    with the number of bytes read, `written_at` returns the modification time of a file.
    """

    also: Mapping[str, Reader] = field(default_factory=dict)
    is_deep: bool = False
    progressed: Callable[[int], None] | None = None
    written_at: WrittenAt = lambda _path: None


def is_log_directory(names: list[str]) -> bool:
    """Whether a directory with these entries is a log directory, and not the directory of a partition."""
    return "meta.properties" in names or (
        not any(name.endswith(LOG_SUFFIX) for name in names) and any(map(partition_of, names))
    )


def partition_directories(names: list[str]) -> list[str]:
    """The names that belong to partition directories, set aside or not."""
    return [name for name in names if partition_of(name) or name.endswith((STRAY_SUFFIX, FUTURE_SUFFIX))]


def bytes_of(disk: Disk, path: str) -> int:
    """The number of bytes that `verify` will read. Raises StorageError."""
    names = disk.list(path)
    directories = (
        [f"{path}/{name}" for name in partition_directories(names)] if is_log_directory(names) else [path]
    )
    return sum(
        disk.size(f"{at}/{name}") for at in directories for name in disk.list(at) if name.endswith(LOG_SUFFIX)
    )


def verify(disk: Disk, path: str, looking: Looking) -> Iterator[Report]:
    """Check every file of a log directory, or of one partition, without changes. Raises StorageError."""
    names = disk.list(path)
    if not is_log_directory(names):
        yield verify_partition(disk, path, path.rstrip("/").rpartition("/")[2], Promises(), looking)
        return
    own = Report(".")
    checkpoints = {name: _offsets_of(disk, path, name) for name in OFFSET_FILES}
    was_clean = CLEAN_SHUTDOWN_FILE in names
    partitions = partition_directories(names)
    for name in names:
        if name.endswith((DELETE_SUFFIX, ".tmp")):
            own.findings.append(
                Finding(
                    f"{path}/{name}",
                    None,
                    "left behind by work that was interrupted",
                    MENDED,
                    is_damage=False,
                    is_mended=True,
                )
            )
        elif name not in partitions and name not in (LOCK_FILE, BALLAST_FILE, BOOT_FILE):
            own.findings += _of_file(disk, f"{path}/{name}", name, looking)
    for checkpoint, offsets in checkpoints.items():
        own.findings += [
            _of_absent(f"{path}/{checkpoint}", one, offset, names)
            for one, offset in offsets.items()
            if str(one) not in names
        ]
    if META_FILE not in names:
        own.findings.append(
            Finding(
                f"{path}/{META_FILE}",
                None,
                "the file is missing",
                "restore it from a copy, or run `sparklog log repair`, which writes it anew",
            )
        )
    yield own
    for name in partitions:
        at = partition_of(name)
        promises = promises_of(disk, path, name, checkpoints, looking)
        try:
            report = verify_partition(disk, f"{path}/{name}", name, promises, looking)
        except StorageError as error:
            report = Report(
                name,
                findings=[
                    Finding(error.path, None, f"{error.call}: {error.reason}", error.remedy or UNREADABLE)
                ],
            )
        dirty = None if at is None else checkpoints[CLEANER_FILE].get(at)
        if dirty is not None and dirty > report.end_offset:
            what = f"says {dirty} for {name}, which ends at {report.end_offset}"
            own_file = f"{path}/{CLEANER_FILE}"
            report.findings.append(
                Finding(
                    own_file,
                    None,
                    what,
                    "remove the file: every log counts as dirty then",
                    is_damage=was_clean,
                )
            )
        yield report


def promises_of(
    disk: Disk,
    path: str,
    name: str,
    checkpoints: Mapping[str, Mapping[TopicPartition, Offset]],
    looking: Looking,
) -> Promises:
    """The checkpointed offsets of the partition in one of its directories. Raises StorageError."""
    at = partition_of(name)
    if at == METADATA_LOG:
        return _promises_of_metadata(disk, f"{path}/{name}", looking)
    was_clean = CLEAN_SHUTDOWN_FILE in disk.list(path)
    if at is None:
        return Promises(was_clean)
    return Promises(
        was_clean,
        recovery_point=checkpoints[RECOVERY_POINT_FILE].get(at),
        high_watermark=checkpoints[HIGH_WATERMARK_FILE].get(at),
        log_start=checkpoints[LOG_START_FILE].get(at),
        cleaned=checkpoints[CLEANER_FILE].get(at),
        written=looking.written_at(f"{path}/{RECOVERY_POINT_FILE}"),
    )


def _promises_of_metadata(disk: Disk, directory: str, looking: Looking) -> Promises:
    """The promises of the metadata log: it has its own checkpoints, and its newest snapshot covers the
    records below its offset.
    """
    clean = _offsets_of(disk, directory, CLEAN_STOP_FILE).get(METADATA_LOG)
    point = _offsets_of(disk, directory, METADATA_POINT_FILE).get(METADATA_LOG)
    written = looking.written_at(f"{directory}/{METADATA_POINT_FILE if clean is None else CLEAN_STOP_FILE}")
    ends = [
        int(name[:20])
        for name in disk.list(directory)
        if name.endswith(CHECKPOINT_SUFFIX) and name[:20].isdecimal()
    ]
    reached = max((offset for offset in (clean, point, *ends) if offset is not None), default=None)
    return Promises(clean is not None, reached, log_start=min(ends, default=None), written=written)


def _of_absent(path: str, topic_partition: TopicPartition, offset: Offset, names: list[str]) -> Finding:
    """The finding for a partition that a checkpoint names and that has no directory here."""
    is_moved = any(name.startswith(f"{topic_partition}.") for name in names)
    if path.endswith(RECOVERY_POINT_FILE) and offset > 0 and not is_moved:
        what = (
            f"says that the log of {topic_partition} was durable below {offset}, but there is no directory "
            "of it"
        )
        return Finding(
            path,
            None,
            what,
            "restore the directory, or run `sparklog log repair`, which gives up its records",
        )
    return Finding(path, None, f"names {topic_partition}, which is not here", LOOK, is_damage=False)


def _offsets_of(disk: Disk, path: str, name: str) -> Mapping[TopicPartition, Offset]:
    try:
        content = disk.read(f"{path}/{name}")
        return {} if content is None else parse_offsets(content)
    except CheckpointCorrupt:
        return {}


def _of_file(disk: Disk, path: str, name: str, looking: Looking) -> list[Finding]:
    """The findings in a small file."""
    reader = reader_of(name, looking.also)
    if CUT_COPY in name:
        what = "bytes that a start or a repair took out of the log, as they were"
        return [
            Finding(
                path, None, what, "remove the file when it is not needed: no broker reads it", is_damage=False
            )
        ]
    if name.endswith((".checkpoint.damaged", "quorum-state.damaged")):
        return [
            Finding(
                path,
                None,
                "a damaged file that was set aside",
                "remove the file when it is not needed",
                is_damage=False,
            )
        ]
    if name.endswith(CHECKPOINT_SUFFIX):
        return snapshot_findings(disk.open(path), path, looking)
    if reader is None:
        return [Finding(path, None, "no file of a log directory has this name", LOOK, is_damage=False)]
    return reader(read_bounded(disk, path), path).findings


# -- one partition


def verify_partition(disk: Disk, directory: str, name: str, promises: Promises, looking: Looking) -> Report:
    """Check every file of a partition. Raises StorageError for a file that cannot be read."""
    report = Report(name)
    names = disk.list(directory)
    bases = sorted(offset for entry in names if (offset := offset_of(entry, LOG_SUFFIX)) is not None)
    is_metadata = partition_of(name) == METADATA_LOG
    promised = None if promises.was_clean else promises.recovery_point or 0
    epochs = saved_epochs(disk, directory, names)
    begun: dict[int, None] = {}
    checks: list[SegmentCheck] = []
    for number, base in enumerate(bases):
        is_last = number + 1 == len(bases)
        log = disk.open(log_path(directory, base))
        # The broker uses an index file only if its segment was sealed below the recovery point, and rebuilds
        # the others.
        is_index_kept = promised is None or (not is_last and bases[number + 1] < promised)
        check = SegmentCheck(log.path, base, epochs=epochs, promised=promised)
        with_indexes(check, disk, directory, frozenset(names), begun)
        limit = None if is_last else int(bases[number + 1])
        check_segment(
            check,
            log,
            limit=limit,
            is_sealed=is_index_kept,
            is_deep=looking.is_deep,
            progressed=looking.progressed,
        )
        if is_metadata:
            _check_metadata(log, check)
        checks.append(check)
        _count(report, check, log.size, promises, is_index_kept=is_index_kept)
    cut = next((number for number, check in enumerate(checks) if check.tail is not None), None)
    if cut is not None and (tail := checks[cut].tail) is not None:
        report.findings.append(tail_finding(tail, checks[cut:], promises))
    report.start_offset = max(int(bases[0]), promises.log_start or 0) if bases else -1
    report.findings += check_promises(
        name, report.end_offset, directory, promises, bases, None if is_metadata else epochs
    )
    report.findings += [
        _mended(f"{directory}/{one}", "the file is missing")
        for one in _missing(names, bases, promises, report, is_metadata=is_metadata)
    ]
    for entry in names:
        report.findings += _of_entry(
            disk, directory, entry, report, frozenset(bases), promises.recovery_point, looking
        )
    return report


def _missing(
    names: list[str], bases: list[Offset], promises: Promises, report: Report, *, is_metadata: bool
) -> list[str]:
    """The files that a broker writes beside these segments and would create again."""
    missing = (
        [name for name in (PARTITION_METADATA_FILE, EPOCH_FILE) if name not in names]
        if report.batches
        else []
    )
    for base, following in pairwise(bases):
        if promises.was_clean or following < (promises.recovery_point or 0):
            missing += [
                name for suffix in (".index", ".timeindex") if (name := file_name(base, suffix)) not in names
            ]
    newest = max(
        (offset for name in names if (offset := offset_of(name, SNAPSHOT_SUFFIX)) is not None), default=-1
    )
    if bases and not is_metadata:
        # A roll writes a snapshot, and so does a clean stop.
        due = (
            report.end_offset
            if promises.was_clean and report.batches
            else bases[-1]
            if bases[-1] < (promises.recovery_point or 0)
            else 0
        )
        missing += [file_name(due, SNAPSHOT_SUFFIX)] if newest < due and due > 0 else []
    return missing


def saved_epochs(disk: Disk, directory: str, names: list[str]) -> LeaderEpochCache | None:
    """The leader epochs in the checkpoint of a partition; None if it is missing or damaged. Raises
    StorageError.
    """
    if EPOCH_FILE not in names:
        return None
    try:
        return LeaderEpochCache.parse(read_bounded(disk, f"{directory}/{EPOCH_FILE}"))
    except CheckpointCorrupt:
        return None


def _count(
    report: Report, check: SegmentCheck, size: int, promises: Promises, *, is_index_kept: bool
) -> None:
    """Add the results of a segment to the partition's report."""
    report.segments += 1
    report.bytes += size
    report.batches += check.batches
    report.records += check.records
    for finding in check.all_findings:
        if finding.path == check.path or is_index_kept:
            report.findings.append(finding)
        else:
            report.findings.append(finding._replace(is_damage=False, remedy=MENDED))
    report.more += check.more
    if report.end_offset >= 0 and check.base_offset > report.end_offset:
        report.findings.append(hole_finding(check.path, report.end_offset, check.base_offset, promises))
    if check.absent:
        what = f"{check.absent} offsets below {check.end_offset} are in no batch, as compaction leaves it"
        report.findings.append(Finding(check.path, None, what, LOOK, is_damage=False))
    report.end_offset = check.end_offset


def _mended(path: str, what: str) -> Finding:
    return Finding(path, None, what, MENDED, is_damage=False, is_mended=True)


def _of_entry(
    disk: Disk,
    directory: str,
    name: str,
    report: Report,
    bases: frozenset[Offset],
    promised: int | None,
    looking: Looking,
) -> list[Finding]:
    """The finding for one directory entry of a partition, except for segments and their indexes."""
    path = f"{directory}/{name}"
    if name.endswith(_LEFT_OVER):
        return [_mended(path, "left behind by work that was interrupted")]
    suffix = name[name.rfind(".") :] if "." in name else ""
    offset = offset_of(name, suffix)
    if offset is not None and suffix == LOG_SUFFIX:
        return []
    if offset is not None and suffix in _INDEXES:
        if offset in bases:
            return []
        if promised is not None and offset < promised:
            what = f"the log of this segment is missing, and it lay below the recovery point {promised}"
            return [Finding(path, None, what, RESTORE)]
        return [_mended(path, "there is no log of this segment")]
    findings = _of_file(disk, path, name, looking)
    if offset is not None and suffix == SNAPSHOT_SUFFIX and offset > max(report.end_offset, 0):
        findings.append(_mended(path, f"is of offset {offset}, but the log ends at {report.end_offset}"))
    return findings


# -- the metadata log


def _check_metadata(log: DiskFile, check: SegmentCheck) -> None:
    for found in sound_batches(log):
        for position, header in [] if isinstance(found, Unsound) else found:
            try:
                for _ in records_of(log.pread(position, header.size)):
                    pass
            except DecodeError as error:
                check.found(
                    position, f"the batch at {position} has a metadata record that cannot be read: {error}"
                )


def snapshot_findings(file: DiskFile, path: str, looking: Looking) -> list[Finding]:
    """The findings in a metadata snapshot: its batches must begin at offset 0, be complete to the end, and
    contain known records. Raises StorageError.
    """
    check = SegmentCheck(path, 0)
    check_segment(check, file, is_deep=looking.is_deep)
    _check_metadata(file, check)
    return check.findings
