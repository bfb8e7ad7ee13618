"""The repair of a log directory's own files: its identity, its checkpoints, and the mark of a clean stop."""

from collections.abc import Mapping, Sequence
from functools import partial

from sparklog.model import Offset, TopicPartition, Uuid
from sparklog_server.disk.checkpoint import (
    CheckpointCorrupt,
    parse_offsets,
    parse_properties,
    render_offsets,
    render_properties,
)
from sparklog_server.disk.door import Disk
from sparklog_server.log.directory.checkpoints import HIGH_WATERMARK_FILE, LOG_START_FILE
from sparklog_server.log.directory.first_start import METADATA_DIRECTORY
from sparklog_server.log.directory.identity import (
    META_FILE,
    META_VERSION,
    decode_uuid,
    encode_uuid,
    readable_topic_id,
)
from sparklog_server.log.directory.log_dir import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE
from sparklog_server.log.directory.names import partition_of

from .examine_directory import partition_directories
from .examine_files import CLEANER_FILE, OFFSET_FILES
from .examine_segment import read_bounded
from .known_metadata import KnownMetadata
from .repair import Plan, Repairing, Step, readable

Offsets = dict[TopicPartition, Offset]
REBUILT = {
    RECOVERY_POINT_FILE: "recovery points are set to the ends of the logs, which were checked whole",
    HIGH_WATERMARK_FILE: (
        "a high watermark that is not known begins at the log start and rises to the log end at the next "
        "start"
    ),
    LOG_START_FILE: "a log whose start is not known begins with its first segment",
    CLEANER_FILE: "a log that is not named counts as dirty",
}
_LOST = {LOG_START_FILE: "where DeleteRecords moved a log start within a segment: its records are seen again"}


def offsets_in(disk: Disk, path: str) -> tuple[Offsets, bool]:
    """The lines of a checkpoint that parse, and whether all lines do; no lines for a missing file. Raises
    StorageError.
    """
    content = disk.read(path)
    if not content:
        return {}, True
    try:
        return parse_offsets(content), True
    except CheckpointCorrupt:
        found: Offsets = {}
        for line in content.decode(errors="replace").splitlines()[2:]:
            words = line.split(" ")
            if len(words) == 3 and all(
                word.isascii() and word.isdecimal() and len(word) <= 18 for word in words[1:]
            ):
                found[TopicPartition(words[0], int(words[1]))] = Offset(int(words[2]))
        return found, False


def plan_directory(repairing: Repairing, path: str, partitions: Sequence[Plan]) -> Plan:
    """Plan the checkpoints for the repaired logs of these partitions, and the mark of a clean stop. Raises
    StorageError.
    """
    disk = repairing.disk
    plan = Plan(".")
    here = {
        at: one for one in partitions if (at := partition_of(one.name)) is not None and one.end_offset >= 0
    }
    names = disk.list(path)
    for file in OFFSET_FILES:
        _plan_checkpoint(repairing, plan, path, file, here, names)
    mark = f"{path}/{CLEAN_SHUTDOWN_FILE}"
    if CLEAN_SHUTDOWN_FILE in names and not readable(repairing, mark):
        plan.add(
            Step(mark, 0, "the file is not JSON", "it is removed: the logs are recovered at the next start"),
            partial(disk.remove, mark),
        )
    return plan


def _plan_checkpoint(
    repairing: Repairing,
    plan: Plan,
    path: str,
    file: str,
    here: Mapping[TopicPartition, Plan],
    names: list[str],
) -> None:
    before, is_sound = offsets_in(repairing.disk, f"{path}/{file}")
    after = dict(before)
    if not is_sound:
        plan.add(
            Step(f"{path}/{file}", None, "not every line can be read", REBUILT[file], _LOST.get(file, ""))
        )
        if file == RECOVERY_POINT_FILE:
            after |= {at: Offset(one.end_offset) for at, one in here.items() if at not in before}
    for at, offset in before.items():
        one = here.get(at)
        if one is None:
            if (
                file == RECOVERY_POINT_FILE
                and offset > 0
                and not any(name == str(at) or name.startswith(f"{at}.") for name in names)
            ):
                what = f"{at} was durable below {offset}, but there is no directory of it"
                plan.add(Step(f"{path}/{file}", None, what, "the line is taken out", f"every record of {at}"))
            if not any(name == str(at) or name.startswith(f"{at}.") for name in names):
                del after[at]
        elif offset > one.end_offset:
            is_kept = file in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE)
            action = f"the line says {one.end_offset} now" if is_kept else "the line is taken out"
            what = f"says {offset} for {at}, whose log ends at {one.end_offset}"
            plan.add(Step(f"{path}/{file}", None, what, action))
            if is_kept:
                after[at] = Offset(one.end_offset)
            else:
                del after[at]
    if file in (LOG_START_FILE, HIGH_WATERMARK_FILE):
        _raise_to_starts(plan, f"{path}/{file}", after, here)
    if after != before or not is_sound:
        plan.actions.append(partial(_write, repairing.disk, path, file, after, [str(at) for at in here]))


def _raise_to_starts(plan: Plan, path: str, after: Offsets, here: Mapping[TopicPartition, Plan]) -> None:
    """Raise the log start offset and the high watermark of a log whose first segments are missing to the
    first that exists.
    """
    is_start = path.endswith(LOG_START_FILE)
    for at, one in here.items():
        was = after.get(at, Offset(0) if is_start else None)
        if one.steps and was is not None and was < one.start_offset:
            lost = f"offsets [{was}, {one.start_offset}) of {at}" if is_start else ""
            plan.add(
                Step(
                    path,
                    None,
                    f"the first segment of {at} begins with offset {one.start_offset}",
                    "the line says so now",
                    lost,
                )
            )
            after[at] = Offset(one.start_offset)


def _write(disk: Disk, path: str, file: str, offsets: Offsets, partitions: list[str]) -> None:
    """Sync the records below the recovery points, then write the checkpoint."""
    if file == RECOVERY_POINT_FILE:
        logs = [
            f"{path}/{name}/{entry}"
            for name in partitions
            for entry in disk.list(f"{path}/{name}")
            if entry.endswith(".log")
        ]
        for log in logs:
            disk.sync([disk.open(log)])
    disk.write(f"{path}/{file}", render_offsets(offsets))


# -- meta.properties


def plan_identity(
    repairing: Repairing,
    path: str,
    known: KnownMetadata,
    beside: Sequence[str],
    *,
    cluster_id: str | None,
    node_id: int | None,
) -> Plan:
    """Plan `meta.properties`, where it is missing or damaged, from other directories and the metadata log.
    Raises StorageError.
    """
    disk, file = repairing.disk, f"{path}/{META_FILE}"
    plan = Plan(".")
    is_there = META_FILE in disk.list(path)
    meta = _readable_properties(disk, file) if is_there else {}
    is_other = cluster_id is not None and meta.get("cluster.id") != cluster_id
    if is_there and readable(repairing, file) and not is_other:
        return plan
    what = (
        "the file is missing"
        if not is_there
        else f"cluster.id is {meta.get('cluster.id')}"
        if is_other
        else "the file is damaged"
    )
    others = [_readable_properties(disk, f"{other}/{META_FILE}") for other in beside]
    cluster = (
        cluster_id
        or next((other["cluster.id"] for other in others if other.get("cluster.id")), None)
        or meta.get("cluster.id")
    )
    nodes = [int(one["node.id"]) for one in (*others, meta) if one.get("node.id", "").isdecimal()] or sorted(
        known.log_dirs
    )
    node = node_id if node_id is not None else nodes[0] if len(set(nodes)) == 1 else None
    taken = {other.get("directory.id") for other in others}
    directory = _directory_id(disk, path, known, node, taken) or _own_id(meta)
    missing = [name for name, value in (("--cluster-id", cluster), ("--node-id", node)) if value is None]
    if missing:
        action = (
            f"give {' and '.join(missing)}, or another directory of the broker with --beside: neither is "
            "known from elsewhere"
        )
        plan.add(Step(file, None, what, action, is_possible=False))
        return plan
    assert cluster is not None
    properties = {"version": META_VERSION, "cluster.id": cluster, "node.id": str(node)}
    if directory is not None:
        properties["directory.id"] = encode_uuid(directory)
    text = ", ".join(f"{key}={value}" for key, value in properties.items())
    told = "" if directory is not None else "; the broker gives the directory an id at its next start"
    plan.add(
        Step(file, None, what, f"it is written with {text}{told}"),
        partial(disk.write, file, render_properties(properties)),
    )
    return plan


def _own_id(meta: Mapping[str, str]) -> Uuid | None:
    """The directory's id, if the damaged file still has it."""
    try:
        return decode_uuid(meta["directory.id"])
    except (KeyError, ValueError):
        return None


def _readable_properties(disk: Disk, path: str) -> dict[str, str]:
    try:
        return parse_properties(read_bounded(disk, path)) if disk.read(path) is not None else {}
    except CheckpointCorrupt:
        return {}


def _directory_id(
    disk: Disk, path: str, known: KnownMetadata, node: int | None, taken: set[str | None]
) -> Uuid | None:
    """The id under which the metadata log has this directory: that of its partitions, else the only id that
    no other directory has.
    """
    registered = [
        one
        for one in known.log_dirs.get(node if node is not None else -1, [])
        if encode_uuid(one) not in taken
    ]
    votes: dict[Uuid, int] = {}
    for name in partition_directories(disk.list(path)):
        at = partition_of(name)
        if at is None or name == METADATA_DIRECTORY:
            continue
        topic_id = known.topic_ids.get(at.topic) or readable_topic_id(disk, f"{path}/{name}")
        for one in known.placed.get((topic_id, at.partition), []):
            if one in registered:
                votes[one] = votes.get(one, 0) + 1
    if votes:
        return max(votes, key=lambda one: votes[one])
    return registered[0] if len(registered) == 1 else None
