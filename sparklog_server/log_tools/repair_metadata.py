"""The repair of the metadata log: unlike a partition's, its records depend on each other, so it ends at the
first batch that cannot be read.

    snapshot of offset S   below S an unreadable stretch costs nothing: an empty batch takes its place
    above it               the log is cut at the stretch; the rest is copied aside, and its readable records
                           are named
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

from sparklog.model import Offset, TopicPartition
from sparklog_server.disk.checkpoint import render_offsets
from sparklog_server.log.directory.first_start import METADATA_DIRECTORY
from sparklog_server.log.directory.identity import PARTITION_METADATA_FILE
from sparklog_server.log.directory.log_dir import METADATA_LOG
from sparklog_server.log.segment.leader_epoch_cache import EPOCH_FILE
from sparklog_server.log.segment.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    offset_of,
)

from .examine_directory import (
    CHECKPOINT_SUFFIX,
    CLEAN_STOP_FILE,
    METADATA_POINT_FILE,
    promises_of,
    snapshot_findings,
    verify_partition,
)
from .examine_segment import log_path
from .finding import Finding
from .known_metadata import name_of, records_in_file
from .repair import Plan, Repairing, Step, epochs_in
from .repair_segment import SegmentRepair, Taken, copy_aside, plan_segment, rewrite

_QUORUM_STATE = "quorum-state"
_TOPIC_ID_FILE = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
_NAMED_MAX = 20

RenderVote = Callable[[int], bytes]
"""The content of a `quorum-state` in which this epoch is the latest."""


def plan_metadata(repairing: Repairing, path: str, render_vote: RenderVote) -> Plan:
    """Plan the repair of the metadata log in a log directory. Raises StorageError."""
    disk = repairing.disk
    directory = f"{path}/{METADATA_DIRECTORY}"
    report = verify_partition(
        disk,
        directory,
        METADATA_DIRECTORY,
        promises_of(disk, path, METADATA_DIRECTORY, {}, repairing.looking),
        repairing.looking,
    )
    plan = Plan(METADATA_DIRECTORY, start_offset=report.start_offset, end_offset=report.end_offset)
    names = disk.list(directory)
    bases = sorted(offset for entry in names if (offset := offset_of(entry, LOG_SUFFIX)) is not None)
    snapshot_end = _plan_snapshots(repairing, plan, directory, names, bases)
    concerns = [finding for finding in report.findings if finding.is_damage or finding.is_mended]
    if any(finding.path.endswith(LOG_SUFFIX) for finding in concerns):
        _plan_log(repairing, plan, directory, bases, snapshot_end)
    for finding in concerns:
        _plan_file(repairing, plan, directory, bases, finding, render_vote)
    if PARTITION_METADATA_FILE not in names and bases:
        what = "the file is missing"
        plan.add(
            Step(f"{directory}/{PARTITION_METADATA_FILE}", None, what, "it is written anew"),
            partial(_write_topic_id, repairing, directory),
        )
    return plan


def _write_topic_id(repairing: Repairing, directory: str) -> None:
    repairing.disk.write(f"{directory}/{PARTITION_METADATA_FILE}", _TOPIC_ID_FILE)


def _plan_snapshots(
    repairing: Repairing, plan: Plan, directory: str, names: list[str], bases: list[Offset]
) -> int:
    """Plan to set damaged snapshots aside if the log does not need them. Returns the offset of the newest
    valid one, 0 if there is none.
    """
    disk = repairing.disk
    sound_end = 0
    damaged: list[Finding] = []
    for name in names:
        if not name.endswith(CHECKPOINT_SUFFIX) or not name[:20].isdecimal():
            continue
        found = [
            one
            for one in snapshot_findings(
                disk.open(f"{directory}/{name}"), f"{directory}/{name}", repairing.looking
            )
            if one.is_damage
        ]
        if found:
            damaged.append(found[0])
        else:
            sound_end = max(sound_end, int(name[:20]))
    log_start = int(bases[0]) if bases else None
    for finding in damaged:
        if log_start is not None and log_start <= sound_end:
            action = (
                "the file is renamed to end in .damaged: the log, with the snapshot before it if there is "
                "one, has all records"
            )
            rename = partial(disk.rename, finding.path, f"{finding.path}.damaged")
            plan.add(Step(finding.path, finding.position, finding.what, action), rename)
        else:
            action = (
                f"the log begins at offset {log_start}, so that a snapshot is needed: restore the file from "
                "a copy"
            )
            plan.add(Step(finding.path, finding.position, finding.what, action, is_possible=False))
    return sound_end


def _plan_log(
    repairing: Repairing, plan: Plan, directory: str, bases: list[Offset], snapshot_end: int
) -> None:
    """Plan to fill unreadable stretches below the snapshot, and to truncate the log at the first one above
    it.
    """
    due, epoch = int(bases[0]) if bases else 0, -1
    for number, base in enumerate(bases):
        is_last = number + 1 == len(bases)
        limit = None if is_last else int(bases[number + 1])
        file = repairing.disk.open(log_path(directory, base))
        repair = SegmentRepair(file, base, due, epoch)
        if due < base <= snapshot_end:
            repair.end_offset = base
        elif due < base:
            _plan_cut(
                repairing,
                plan,
                directory,
                bases[number:],
                repair,
                Taken(0, file.size, due, due, f"offsets [{due}, {base}) are missing"),
            )
            return
        plan_segment(repair, None, limit=limit, is_last=is_last, promised=snapshot_end)
        lost = next((taken for taken in repair.taken if taken.next_offset > snapshot_end), None)
        lost = lost or next((taken for taken in repair.taken if taken.next_offset == taken.base_offset), None)
        if lost is not None:
            _plan_cut(repairing, plan, directory, bases[number:], repair, lost)
            return
        if repair.is_changed:
            what = ", ".join(taken.what for taken in repair.taken) or "the log ends before its snapshot"
            action = (
                f"an empty batch takes the place of what is below offset {snapshot_end}, which the snapshot "
                "holds"
            )
            plan.add(
                Step(file.path, repair.taken[0].start if repair.taken else None, what, action),
                partial(_rewrite, repairing, directory, repair),
            )
        due, epoch = repair.end_offset, repair.epoch
    plan.end_offset = due
    _plan_points(repairing, plan, directory, due)


def _rewrite(repairing: Repairing, directory: str, repair: SegmentRepair) -> None:
    for taken in repair.taken:
        copy_aside(repairing.disk, repair.file, taken.start, taken.limit, repairing.wall_ms)
    rewrite(repairing.disk, repair)
    _drop_indexes(repairing, directory, repair.base_offset)


def _drop_indexes(repairing: Repairing, directory: str, base: int) -> None:
    repairing.disk.remove(
        *(f"{directory}/{file_name(base, suffix)}" for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX))
    )


def _plan_cut(
    repairing: Repairing, plan: Plan, directory: str, bases: list[Offset], repair: SegmentRepair, lost: Taken
) -> None:
    """Plan to truncate the log at `lost`, in the first of these segments, and to remove the later ones."""
    disk = repairing.disk
    files = [repair.file, *(disk.open(log_path(directory, base)) for base in bases[1:])]
    names: Counter[str] = Counter()
    for number, file in enumerate(files):
        names.update(map(name_of, records_in_file(file, lost.start if number == 0 else 0)))
    told = ", ".join(
        f"{name}{f' ×{count}' if count > 1 else ''}" for name, count in names.most_common(_NAMED_MAX)
    )
    size = sum(file.size for file in files) - lost.start
    action = (
        f"the log is cut at offset {lost.base_offset}: {size} bytes from byte {lost.start} of this file on "
        "are copied aside"
    )
    records = f"every record from offset {lost.base_offset} on; those that can be read: {told or 'none'}"

    def execute() -> None:
        for number, file in enumerate(files):
            start = lost.start if number == 0 else 0
            copy_aside(disk, file, start, file.size, repairing.wall_ms)
            _drop_indexes(repairing, directory, bases[number])
        for base in reversed(bases[1:]):
            disk.remove(log_path(directory, base))
        files[0].truncate(lost.start)
        disk.sync([files[0]])
        for name in disk.list(directory):
            offset = offset_of(name, SNAPSHOT_SUFFIX)
            if offset is not None and offset > lost.base_offset:
                disk.remove(f"{directory}/{name}")
        disk.write(f"{directory}/{EPOCH_FILE}", epochs_in(disk, directory, [bases[0]]).render())

    plan.add(Step(repair.file.path, lost.start, lost.what, action, records), execute)
    plan.end_offset = lost.base_offset
    _plan_points(repairing, plan, directory, lost.base_offset)


def _plan_points(repairing: Repairing, plan: Plan, directory: str, end_offset: int) -> None:
    """Plan the checkpoints of the metadata log for its new end."""
    disk = repairing.disk

    def execute() -> None:
        if disk.read(f"{directory}/{METADATA_POINT_FILE}") is not None:
            disk.write(
                f"{directory}/{METADATA_POINT_FILE}",
                render_offsets({TopicPartition(*METADATA_LOG): Offset(end_offset)}),
            )
        disk.remove(f"{directory}/{CLEAN_STOP_FILE}")

    if plan.steps:
        plan.actions.append(execute)


def _plan_file(
    repairing: Repairing,
    plan: Plan,
    directory: str,
    bases: list[Offset],
    finding: Finding,
    render_vote: RenderVote,
) -> None:
    """Plan the repair of a small file of the metadata log."""
    disk, path = repairing.disk, finding.path
    name = path.rpartition("/")[2]
    if name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX)):
        plan.add(
            Step(
                path,
                finding.position,
                finding.what,
                "the file is removed, and made from the log at the next start",
            ),
            partial(disk.remove, path),
        )
    elif name in (CLEAN_STOP_FILE, METADATA_POINT_FILE):
        plan.add(
            Step(
                path,
                finding.position,
                finding.what,
                "the file is removed: the log is checked whole at the next start",
            ),
            partial(disk.remove, path),
        )
    elif name == EPOCH_FILE:

        def epochs() -> None:
            disk.write(path, epochs_in(disk, directory, bases).render())

        plan.add(Step(path, finding.position, finding.what, "the file is made from the log"), epochs)
    elif name == PARTITION_METADATA_FILE:
        plan.add(
            Step(path, finding.position, finding.what, "it is written anew"),
            partial(_write_topic_id, repairing, directory),
        )
    elif name == _QUORUM_STATE:

        def vote() -> None:
            disk.rename(path, f"{path}.damaged")
            disk.write(path, render_vote(max(int(epochs_in(disk, directory, bases).latest), 0)))

        action = "the file is renamed to end in .damaged and written anew with the latest epoch of the log"
        plan.add(
            Step(
                path,
                finding.position,
                finding.what,
                action,
                "the vote of this node in a later epoch: right for a quorum of one voter",
            ),
            vote,
        )
