"""The log directories at the start of a broker, and the registration that reports them to the controller.

Files beside the logs that a start finds missing or damaged are each logged once, and the logs serve without
them:

    names before the logs are opened ──► missing files        after ──► damaged files, which are rebuilt
    checkpoints of the directory     ──► unreadable ones, and the values used in their place

No log is read for this: there is one listing of each partition directory. `sparklog log verify` compares
every file with every other.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

import msgspec

from sparklog.effects import Steps, take_all
from sparklog.model import ZERO_UUID, Instant, NodeId, Offset, TopicPartition, Uuid
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from sparklog_server.broker.dynamic_config import log_settings
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_offsets
from sparklog_server.disk.door import DirectoryInUse, Disk, StorageError
from sparklog_server.log.directory.checkpoints import HIGH_WATERMARK_FILE, LOG_START_FILE
from sparklog_server.log.directory.first_start import (
    CHECKPOINTS,
    CLEANER_CHECKPOINT,
    METADATA_DIRECTORY,
    has_metadata_log,
    refuse_what_was_lost,
    refuse_without_metadata,
)
from sparklog_server.log.directory.log_dir import (
    CLEAN_SHUTDOWN_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    LogDir,
    decode_uuid,
)
from sparklog_server.log.directory.names import partition_of
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.segment.leader_epoch_cache import EPOCH_FILE, LeaderEpochCache
from sparklog_server.log.segment.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    offset_of,
)
from sparklog_server.metadata.features import SUPPORTED
from sparklog_server.replica.directory import Trace


def open_log_dirs(
    settings: BrokerSettings,
    disk: Disk,
    entropy: Callable[[int], bytes],
    trace: Trace,
    now: Instant,
    *,
    is_alone: bool,
) -> list[LogDir]:
    """The directory of the metadata log, then those of the data, with their logs if the node `is_alone`; an
    unreadable data directory is skipped, and the others serve.

    Raises DirectoryRefused, DirectoryInUse, and StorageError for the metadata log's directory or if no data
    directory is readable.
    """
    # A static voter that has forgotten its votes must not vote again.
    is_joining = not is_alone and all(one.node_id != settings.node_id for one in settings.quorum.voters)
    refuse_without_metadata(
        disk, settings.metadata_log_dir, _listed(disk, settings.log_dirs), is_joining=is_joining
    )
    if not has_metadata_log(disk, settings.metadata_log_dir):
        trace("metadata-log-begins", path=settings.metadata_log_dir, reason="the log directories are new")
    opened: list[LogDir] = []
    cluster_id: str | None = None
    failed: StorageError | None = None
    for path in dict.fromkeys((settings.metadata_log_dir, *settings.log_dirs)):
        try:
            refuse_what_was_lost(disk, path)
            log_dir = LogDir.claim(
                disk, path, node_id=NodeId(settings.node_id), cluster_id=cluster_id, entropy=entropy
            )
            if is_alone or path not in settings.log_dirs:
                take_all(recover_logs(settings, disk, log_dir, trace, now))
        except StorageError as error:
            if path == settings.metadata_log_dir or isinstance(error, DirectoryInUse):
                raise
            trace("log-directory-offline", path=path, **error.fields)
            failed = error
            continue
        cluster_id = log_dir.cluster_id
        opened.append(log_dir)
    if failed is not None and not any(log_dir.path in settings.log_dirs for log_dir in opened):
        raise failed
    return opened


def recover_logs(
    settings: BrokerSettings, disk: Disk, log_dir: LogDir, trace: Trace, now: Instant
) -> Steps[None]:
    """Open the logs of a directory, and log what was missing, cut or damaged in it. A damaged log takes only
    its partition offline. Blocks. Raises StorageError.
    """
    found = FoundFiles(disk, log_dir.path, trace)
    defaults = log_settings(settings.topics, settings)
    yield from log_dir.recover(lambda _: defaults, now)
    for cut in log_dir.cuts:
        trace("log-cut", partition=cut.path.split("/")[-2], **cut.fields)
    for topic_partition, log in log_dir.logs.items():
        for start, end in log.holes:
            trace(
                "log-hole",
                partition=str(topic_partition),
                start=start,
                end=end,
                reason="left by compaction or by a missing file",
            )
    for topic_partition, damaged in log_dir.damaged.items():
        trace("partition-offline", partition=str(topic_partition), **damaged.error.fields)
    found.opened(log_dir)


def _listed(disk: Disk, paths: Sequence[str]) -> list[str]:
    """The data directories that can be read."""
    found: list[str] = []
    for path in paths:
        with suppress(StorageError):
            disk.list(path)
            found.append(path)
    return found


def close_without_logs(log_dir: LogDir, trace: Trace, now: Instant) -> None:
    """Close the directory of the metadata log if it is not a data directory; a disk failure only costs its
    mark of a clean stop.
    """
    try:
        log_dir.close({}, now)
    except StorageError as error:
        trace("log-directory-offline", path=log_dir.path, **error.fields)


def registration(
    settings: BrokerSettings, log_dirs: list[LogDir], cluster_id: str, *, incarnation_id: Uuid
) -> BrokerRegistrationRequest:
    """The registration of this broker; its previous epoch only if every data directory has all that the
    previous process wrote. The incarnation of that process is continued if it was killed before it knew its
    epoch: it did nothing else.
    """
    previous_epoch, unanswered = log_dirs[0].previous_broker_epoch, log_dirs[0].unanswered_incarnation
    if len(log_dirs) < len(settings.log_dirs) or any(
        log_dir.previous_broker_epoch != previous_epoch for log_dir in log_dirs
    ):
        previous_epoch = -1
    is_answered = bool(unanswered) and all(one.unanswered_incarnation == unanswered for one in log_dirs)
    if is_answered and previous_epoch >= 0:
        incarnation_id = decode_uuid(unanswered)
    return BrokerRegistrationRequest(
        broker_id=settings.node_id,
        cluster_id=cluster_id,
        incarnation_id=incarnation_id,
        listeners=[
            Listener(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.protocol_number,
            )
            for listener in settings.advertised_listeners
            if listener.name not in settings.controller_listener_names
        ],
        rack=settings.broker_rack,
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED.items()
        ],
        log_dirs=[log_dir.directory_id for log_dir in log_dirs],
        previous_broker_epoch=previous_epoch,
    )


_HOLDS_INSTEAD = {
    RECOVERY_POINT_FILE: (
        "no log has a recovery point: recovery checks each log whole and ends it at the first unreadable "
        "batch"
    ),
    HIGH_WATERMARK_FILE: "high watermarks start at the log start offsets",
    LOG_START_FILE: "each log starts with its first segment",
    CLEANER_CHECKPOINT: "compaction treats every log as dirty",
}


class FoundFiles:
    """The small files of one log directory at a start. Raises StorageError where it lists or reads."""

    def __init__(self, disk: Disk, path: str, trace: Trace) -> None:
        self._disk = disk
        self._path = path
        self._trace = trace
        names = disk.list(path)
        self._was_clean = CLEAN_SHUTDOWN_FILE in names
        self._offsets = {file: self._checkpoint(file) for file in CHECKPOINTS if file in names}
        self._newest_snapshots: dict[TopicPartition, str] = {}
        self._identified: dict[TopicPartition, None] = {}
        if self._was_clean:
            self._check_mark()
        for name in names:
            at = partition_of(name)
            if at is not None and name != METADATA_DIRECTORY:
                self._check_names(at, disk.list(f"{path}/{name}"))

    def opened(self, log_dir: LogDir) -> None:
        """The logs are open: log the files whose content was not used."""
        for at, log in log_dir.logs.items():
            directory = f"{self._path}/{at}"
            if log.topic_id == ZERO_UUID and at in self._identified:
                self._tell(
                    "file-damaged",
                    at,
                    f"{directory}/{PARTITION_METADATA_FILE}",
                    "it is rewritten with the topic id from the metadata",
                )
            if not log.epochs.is_saved and log.epochs.entries and not self._holds_epochs(at, log):
                effect = "missing or damaged: epochs are rebuilt from the batches"
                self._tell("file-rebuilt", at, f"{directory}/{EPOCH_FILE}", effect)
            snapshot = self._newest_snapshots.get(at)
            if self._was_clean and log.log_start_offset < log.log_end_offset:
                due = file_name(log.log_end_offset, SNAPSHOT_SUFFIX)
                if snapshot is None or snapshot < due:
                    self._tell(
                        "file-missing",
                        at,
                        f"{directory}/{due}",
                        "producer state is rebuilt from an older snapshot and the batches after it",
                    )
            if snapshot is not None and self._disk.size(f"{directory}/{snapshot}") == 0:
                effect = (
                    "damaged, or beyond the log end: producer state is rebuilt from an older snapshot and "
                    "the batches after it"
                )
                self._tell("file-removed", at, f"{directory}/{snapshot}", effect)
            self._check_offsets(at, log)

    def _tell(self, event: str, at: TopicPartition, path: str, effect: str) -> None:
        self._trace(event, partition=str(at), file=path, effect=effect)

    def _checkpoint(self, file: str) -> Mapping[TopicPartition, Offset]:
        content = self._disk.read(f"{self._path}/{file}")
        try:
            return parse_offsets(content) if content else {}
        except CheckpointCorrupt as error:
            effect = (
                f"{_HOLDS_INSTEAD[file]}; `sparklog log repair {self._path}` before a start keeps the lines "
                "that can be read"
            )
            self._trace("checkpoint-damaged", file=f"{self._path}/{file}", reason=str(error), effect=effect)
            return {}

    def _check_mark(self) -> None:
        path = f"{self._path}/{CLEAN_SHUTDOWN_FILE}"
        try:
            msgspec.json.decode(self._disk.read(path) or b"")
        except ValueError as error:
            self._trace(
                "file-damaged",
                file=path,
                reason=str(error),
                effect="the stop counts as clean; the previous broker epoch is unknown",
            )

    def _check_names(self, at: TopicPartition, names: Sequence[str]) -> None:
        """The missing files of a partition's directory below its recovery point, and log files that belong to
        no segment.
        """
        directory = f"{self._path}/{at}"
        bases: list[Offset] = []
        snapshots: list[Offset] = []
        for name in names:
            if name.endswith(LOG_SUFFIX):
                base = offset_of(name, LOG_SUFFIX)
                if base is None:
                    self._tell(
                        "file-unknown",
                        at,
                        f"{directory}/{name}",
                        "the name belongs to no segment: the file is not read",
                    )
                else:
                    bases.append(base)
            elif (snapshot := offset_of(name, SNAPSHOT_SUFFIX)) is not None:
                snapshots.append(snapshot)
        if snapshots:
            self._newest_snapshots[at] = file_name(max(snapshots), SNAPSHOT_SUFFIX)
        if PARTITION_METADATA_FILE in names:
            self._identified[at] = None
        recovery_point = self._offsets.get(RECOVERY_POINT_FILE, {}).get(at, 0)
        if not bases or not recovery_point:
            return
        missing = [name for name in (PARTITION_METADATA_FILE, EPOCH_FILE) if name not in names]
        durable = [
            base for base, following in pairwise(bases) if self._was_clean or following < recovery_point
        ]
        known = frozenset(names)
        missing += [
            name
            for base in durable
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
            if (name := file_name(base, suffix)) not in known
        ]
        if max(snapshots, default=-1) < bases[-1] < recovery_point and bases[-1] > 0 and not self._was_clean:
            missing.append(file_name(bases[-1], SNAPSHOT_SUFFIX))
        for name in missing:
            self._tell(
                "file-missing", at, f"{directory}/{name}", "it is rebuilt from the log, or from the metadata"
            )

    def _holds_epochs(self, at: TopicPartition, log: PartitionLog) -> bool:
        """Whether the file has the epochs of the log that it must have: those with records below the recovery
        point, after a clean stop all with records. Later ones are saved with the next sync.
        """
        content = self._disk.read(f"{self._path}/{at}/{EPOCH_FILE}")
        try:
            stored = LeaderEpochCache() if content is None else LeaderEpochCache.parse(content)
        except CheckpointCorrupt:
            return False
        recovery_point = self._offsets.get(RECOVERY_POINT_FILE, {}).get(at, 0)
        due = log.log_end_offset if self._was_clean else min(recovery_point, log.log_end_offset)
        stored.truncate_start(log.log_start_offset)
        return [entry for entry in stored.entries if entry[1] < due] == [
            entry for entry in log.epochs.entries if entry[1] < due
        ]

    def _check_offsets(self, at: TopicPartition, log: PartitionLog) -> None:
        """The entries of a checkpoint for records that the log does not have."""
        for file in (HIGH_WATERMARK_FILE, LOG_START_FILE, CLEANER_CHECKPOINT):
            says = self._offsets.get(file, {}).get(at, 0)
            if says > log.log_end_offset or (
                file == LOG_START_FILE and says == log.log_end_offset > log.log_start_offset
            ):
                self._trace(
                    "checkpoint-beyond-log",
                    partition=str(at),
                    file=f"{self._path}/{file}",
                    says=says,
                    log_start=log.log_start_offset,
                    log_end=log.log_end_offset,
                )
