"""The repair of a stopped broker's log directory: for every kind of damage that `verify` knows, the action
and its loss.

    plans(…) ──► one Plan for each partition, then one for the directory's own files
                    └─► `steps` are shown, `execute` performs them

A plan is made without a change to the disk. `execute` of the partitions' plans comes before that of the
directory's, whose checkpoints are written for the logs as they are then. Bytes taken out of a `.log` are
copied aside first.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from sparklog.model import LeaderEpoch, Offset, TopicPartition, Uuid
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.log.directory.identity import PARTITION_METADATA_FILE, encode_uuid, write_topic_id
from sparklog_server.log.directory.names import partition_of
from sparklog_server.log.lookup.aborted import recover_aborted
from sparklog_server.log.segment.leader_epoch_cache import EPOCH_FILE, LeaderEpochCache
from sparklog_server.log.segment.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
    offset_of,
)
from sparklog_server.log.segment.sound_batches import Unsound, sound_batches
from sparklog_server.log.segment.txn_index import TXN_INDEX_SUFFIX

from .examine_directory import UNREADABLE, Looking, Report, promises_of, saved_epochs, verify_partition
from .examine_files import reader_of
from .examine_promises import Promises
from .examine_segment import log_path, read_bounded
from .repair_segment import SegmentRepair, Taken, copy_aside, plan_segment, rewrite

_INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
Action = Callable[[], None]


class Step(NamedTuple):
    """One repair: the file, the fault, the action, and the loss ("" for none)."""

    path: str
    position: int | None
    what: str
    action: str
    lost: str = ""
    is_possible: bool = True


@dataclass(slots=True)
class Plan:
    """The repair of one partition, or of the directory's own files (`.`). Offsets are those of the log after
    the repair; -1 without a log.
    """

    name: str
    steps: list[Step] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    start_offset: int = -1
    end_offset: int = -1
    was_clean: bool = True

    def add(self, step: Step, action: Action | None = None) -> None:
        """Add a step."""
        self.steps.append(step)
        if action is not None:
            self.actions.append(action)

    def execute(self) -> None:
        """Execute the plan. Raises StorageError."""
        for action in self.actions:
            action()


class Repairing(NamedTuple):
    """The input of a repair: the disk, the time (it names the copies), the options of the check, and the
    topic ids by name from the metadata log.
    """

    disk: Disk
    wall_ms: int
    looking: Looking
    topic_ids: Mapping[str, Uuid]


def plan_partition(
    repairing: Repairing,
    directory: str,
    name: str,
    promises: Promises,
    topic_partition: TopicPartition | None,
) -> tuple[Plan, Report]:
    """Plan the repair of one data partition. Raises StorageError."""
    disk = repairing.disk
    report = verify_partition(disk, directory, name, promises, repairing.looking)
    plan = Plan(
        name, start_offset=report.start_offset, end_offset=report.end_offset, was_clean=promises.was_clean
    )
    names = disk.list(directory)
    bases = sorted(offset for entry in names if (offset := offset_of(entry, LOG_SUFFIX)) is not None)
    promised = max(promises.recovery_point or 0, promises.high_watermark or 0)
    epochs = saved_epochs(disk, directory, names)
    changed: list[SegmentRepair] = []
    if not bases and promised:
        _begin_anew(repairing, plan, directory, promised)
    elif bases:
        changed = _plan_logs(repairing, plan, directory, bases, promises, report, epochs)
    _plan_indexes(repairing, plan, directory, bases, names, report, changed)
    _plan_epochs(repairing, plan, directory, bases, report, changed, epochs)
    _plan_small_files(repairing, plan, directory, names, report, topic_partition)
    return plan, report


# -- logs


def _begin_anew(repairing: Repairing, plan: Plan, directory: str, promised: int) -> None:
    """Plan an empty log if every segment is missing; it begins where the checkpoints say that the lost one
    ended.
    """
    path = log_path(directory, promised)

    def begin() -> None:
        repairing.disk.sync([repairing.disk.open(path, create=True)])

    lost = f"offsets [0, {promised})"
    plan.add(
        Step(
            path,
            None,
            f"the log is missing below {promised}",
            "an empty segment is begun there, so that no offset is used twice",
            lost,
        ),
        begin,
    )
    plan.start_offset = plan.end_offset = promised


def _plan_logs(
    repairing: Repairing,
    plan: Plan,
    directory: str,
    bases: list[Offset],
    promises: Promises,
    report: Report,
    epochs: LeaderEpochCache | None,
) -> list[SegmentRepair]:
    """Plan the repair of the `.log` files; returns those that change."""
    is_touched = any(
        finding.path.endswith(LOG_SUFFIX) and (finding.is_damage or finding.is_mended)
        for finding in report.findings
    )
    if not is_touched:
        return []
    trusted = (
        epochs
        if epochs is not None and not _are_epochs_of_batches(repairing.disk, directory, bases, epochs)
        else None
    )
    promised = max(promises.recovery_point or 0, promises.high_watermark or 0)
    changed: list[SegmentRepair] = []
    due, epoch = int(bases[0]), -1
    for number, base in enumerate(bases):
        is_last = number + 1 == len(bases)
        limit = None if is_last else int(bases[number + 1])
        repair = SegmentRepair(repairing.disk.open(log_path(directory, base)), base, due, epoch)
        plan_segment(
            repair,
            trusted,
            limit=limit,
            is_last=is_last,
            promised=promised,
            is_deep=repairing.looking.is_deep,
        )
        is_cleaned = limit is not None and promises.cleaned is not None and limit <= promises.cleaned
        if (
            limit is not None
            and repair.end_offset < limit
            and repair.end_offset < (promises.recovery_point or 0)
            and not is_cleaned
        ):
            repair.fill(limit)
        if repair.is_changed:
            changed.append(repair)
            _plan_rewrite(repairing, plan, repair)
        due, epoch = repair.end_offset, repair.epoch
    plan.end_offset = due
    return changed


def _plan_rewrite(repairing: Repairing, plan: Plan, repair: SegmentRepair) -> None:
    disk, path = repairing.disk, repair.file.path
    for taken in repair.taken:
        plan.add(_step_of(plan, path, taken, repairing.wall_ms))
    for position, what in repair.corrected:
        plan.add(Step(path, position, "the batch contradicts its neighbours", what))
    held = {(taken.base_offset, taken.next_offset) for taken in repair.taken}
    for filled in repair.filled:
        if (filled.base_offset, filled.next_offset) not in held:
            plan.add(
                Step(
                    path,
                    None,
                    f"offsets [{filled.base_offset}, {filled.next_offset}) are in no file",
                    "an empty batch takes their place, so that none is used twice",
                    _lost(plan, filled.base_offset, filled.next_offset),
                )
            )

    def execute() -> None:
        for taken in repair.taken:
            copy_aside(disk, repair.file, taken.start, taken.limit, repairing.wall_ms)
        rewrite(disk, repair)

    plan.actions.append(execute)


def _lost(plan: Plan, base_offset: int, next_offset: int) -> str:
    """The loss of these offsets: in an internal topic, the state that the records carried."""
    is_internal = plan.name.startswith("__")
    effect = "; for each group, transactional id or other key in them the record before applies"
    return f"offsets [{base_offset}, {next_offset}){effect if is_internal else ''}"


def _step_of(plan: Plan, path: str, taken: Taken, wall_ms: int) -> Step:
    offsets = taken.next_offset - taken.base_offset
    held = _lost(plan, taken.base_offset, taken.next_offset) if offsets else ""
    empty = "; an empty batch takes its place" if offsets else ""
    action = (
        f"bytes [{taken.start}, {taken.limit}) are copied to "
        f"{path.rpartition('/')[2]}.cut-{wall_ms}-{taken.start} and taken out{empty}"
    )
    return Step(
        path,
        taken.start,
        taken.what,
        action,
        held or f"{taken.limit - taken.start} bytes above every checkpoint",
    )


# -- files rebuilt from the logs


def _plan_indexes(
    repairing: Repairing,
    plan: Plan,
    directory: str,
    bases: list[Offset],
    names: list[str],
    report: Report,
    changed: list[SegmentRepair],
) -> None:
    """Plan to rebuild the indexes of segments whose log changes, and those that are damaged or missing."""
    disk = repairing.disk
    altered = sorted(repair.base_offset for repair in changed)
    doomed: dict[int, None] = dict.fromkeys(altered)
    transactional: dict[int, None] = {}
    for finding in report.findings:
        name = finding.path.rpartition("/")[2]
        suffix = name[name.rfind(".") :]
        offset = offset_of(name, suffix) if suffix in _INDEXES else None
        if offset is None or not (finding.is_damage or finding.is_mended):
            continue
        if offset not in bases:
            plan.add(
                Step(finding.path, None, finding.what, "the file is removed"),
                partial(disk.remove, finding.path),
            )
        elif suffix == TXN_INDEX_SUFFIX:
            transactional[offset] = None
            plan.add(Step(finding.path, finding.position, finding.what, "the file is made from the log"))
        else:
            doomed[offset] = None
            plan.add(Step(finding.path, finding.position, finding.what, "the file is made from the log"))
    transactional |= {base: None for base in altered if file_name(base, TXN_INDEX_SUFFIX) in names}

    def execute() -> None:
        for base in doomed:
            _make_indexes(disk, directory, Offset(base))
        for base in sorted(transactional):
            segments = [Segment.open(disk, directory, one) for one in bases if one <= base]
            segments[-1].has_aborted = segments[-1].has_markers = True
            disk.sync(recover_aborted(disk, segments, len(segments) - 1))

    if doomed or transactional:
        plan.actions.append(execute)


def _make_indexes(disk: Disk, directory: str, base: Offset) -> None:
    segment = Segment.open(disk, directory, base)
    disk.remove(segment.path(INDEX_SUFFIX), segment.path(TIME_INDEX_SUFFIX))
    segment.rebuild_index()
    disk.sync(segment.save_indexes())


def _plan_epochs(
    repairing: Repairing,
    plan: Plan,
    directory: str,
    bases: list[Offset],
    report: Report,
    changed: list[SegmentRepair],
    epochs: LeaderEpochCache | None,
) -> None:
    """Plan to rebuild `leader-epoch-checkpoint` from the batches if it is missing or damaged, or if they
    contradict it.
    """
    path = f"{directory}/{EPOCH_FILE}"
    disk = repairing.disk
    found = next((finding for finding in report.findings if finding.path == path and finding.is_damage), None)
    contradicts = any(
        "leader-epoch-checkpoint says" in finding.what and finding.is_damage for finding in report.findings
    )
    has_batches = report.batches > 0

    def execute() -> None:
        disk.write(path, epochs_in(disk, directory, bases).render())

    if found is not None:
        plan.add(Step(path, found.position, found.what, "the file is made from the log"), execute)
    elif epochs is None and has_batches:
        plan.add(Step(path, None, "the file is missing", "it is made from the log"), execute)
    elif contradicts and not changed:
        plan.add(
            Step(path, None, "the batches of the log say otherwise", "the file is made from the log"), execute
        )


def epochs_in(disk: Disk, directory: str, bases: list[Offset]) -> LeaderEpochCache:
    """The leader epochs that the sound batches of a log carry. Raises StorageError."""
    cache = LeaderEpochCache()
    for base in bases:
        for found in sound_batches(disk.open(log_path(directory, base))):
            for _, header in () if isinstance(found, Unsound) else found:
                if header.leader_epoch > cache.latest:
                    cache.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
    return cache


def _are_epochs_of_batches(disk: Disk, directory: str, bases: list[Offset], epochs: LeaderEpochCache) -> bool:
    """Whether the epochs of the batches are right and the checkpoint wrong: they never decrease, and several
    contradict it.
    """
    latest, wrong = -1, 0
    for base in bases:
        for found in sound_batches(disk.open(log_path(directory, base))):
            for _, header in () if isinstance(found, Unsound) else found:
                if header.leader_epoch < latest:
                    return False
                latest = header.leader_epoch
                wrong += header.leader_epoch != epochs.epoch_at(Offset(header.base_offset))
    return wrong > 1


# -- small files of a partition


def _plan_small_files(
    repairing: Repairing,
    plan: Plan,
    directory: str,
    names: list[str],
    report: Report,
    topic_partition: TopicPartition | None,
) -> None:
    disk = repairing.disk
    for finding in report.findings:
        name = finding.path.rpartition("/")[2]
        if name.endswith(SNAPSHOT_SUFFIX) and name in names and (finding.is_damage or finding.is_mended):
            action = "the file is removed: producers come from an older snapshot and the batches behind it"
            plan.add(
                Step(finding.path, finding.position, finding.what, action), partial(disk.remove, finding.path)
            )
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    damage = next(
        (finding for finding in report.findings if finding.path == path and finding.is_damage), None
    )
    if topic_partition is None or (damage is None and PARTITION_METADATA_FILE in names):
        return
    topic_id = repairing.topic_ids.get(topic_partition.topic)
    what = "the file is missing" if damage is None else damage.what
    if topic_id is None:
        action = "the metadata log does not know this topic: name the directory that holds it with --beside"
        plan.add(Step(path, None, what, action, is_possible=False))
        return

    def execute() -> None:
        disk.sync([write_topic_id(disk, directory, topic_id)])

    plan.add(
        Step(path, None, what, f"it is written with topic id {encode_uuid(topic_id)}, from the metadata log"),
        execute,
    )


def readable(repairing: Repairing, path: str) -> bool:
    """Whether a small file parses. Raises StorageError."""
    reader = reader_of(path.rpartition("/")[2], repairing.looking.also)
    return reader is None or not any(
        finding.is_damage for finding in reader(read_bounded(repairing.disk, path), path).findings
    )


def plans(
    repairing: Repairing,
    path: str,
    partitions: list[str],
    checkpoints: Mapping[str, Mapping[TopicPartition, Offset]],
) -> Iterator[Plan]:
    """The plans of the data partitions of a log directory. Raises StorageError."""
    for name in partitions:
        promises = promises_of(repairing.disk, path, name, checkpoints, repairing.looking)
        try:
            plan, _ = plan_partition(repairing, f"{path}/{name}", name, promises, partition_of(name))
        except StorageError as error:
            plan = Plan(name)
            plan.add(
                Step(
                    error.path,
                    None,
                    f"{error.call}: {error.reason}",
                    error.remedy or UNREADABLE,
                    is_possible=False,
                )
            )
        yield plan
