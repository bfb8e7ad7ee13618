"""The log directories at the start of a broker, and the registration that reports them to the controller."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from sparklog.effects import Steps, take_all
from sparklog.model import Instant, NodeId, Uuid
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from sparklog_server.broker.found_files import FoundFiles
from sparklog_server.broker.log_settings import log_settings
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.disk.door import DirectoryInUse, Disk, StorageError
from sparklog_server.log.first_start import has_metadata_log, refuse_what_was_lost, refuse_without_metadata
from sparklog_server.log.log_dir import LogDir, decode_uuid
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
    refuse_without_metadata(disk, settings.metadata_log_dir, _listed(disk, settings.log_dirs))
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
    is_told = bool(unanswered) and all(one.unanswered_incarnation == unanswered for one in log_dirs)
    if is_told and previous_epoch >= 0:
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
