"""The partitions of this node as a broker's settings have them: their directories, their retention and their compaction."""

from collections.abc import Callable, Sequence

from sparklog.model import NodeId, Ticket, Uuid
from sparklog_server.broker.log_settings import cleaning_limits, log_settings
from sparklog_server.config.settings import BrokerSettings, TopicSettings
from sparklog_server.disk.door import Disk
from sparklog_server.log.log_dir import LogDir
from sparklog_server.replica.cleaning import Cleaning
from sparklog_server.replica.directory import Directory, Trace
from sparklog_server.replica.partitions import Partitions
from sparklog_server.replica.retention import Retention


def open_partitions(
    settings: BrokerSettings,
    disk: Disk,
    log_dirs: Sequence[LogDir],
    *,
    failed: list[Uuid],
    topic_settings: Callable[[str], TopicSettings],
    tickets: Callable[[], Ticket],
    entropy: Callable[[int], bytes],
    trace: Trace,
) -> Partitions:
    """The partitions over these data directories, none followed yet; `failed` will tell which directories fail."""

    def waits_for_sync(topic: str, replica_count: int) -> bool:
        flush = topic_settings(topic).sparklog_ack_flush
        return flush == "always" or (flush == "auto" and replica_count == 1)

    directories = [
        Directory(
            log_dir,
            checkpoint_interval_ms=settings.replica_high_watermark_checkpoint_interval_ms,
            log_start_interval_ms=settings.log_flush_start_offset_checkpoint_interval_ms,
            unsynced_bytes_max=settings.sparklog_log_dir_unsynced_max_bytes,
            # Not that of the metadata log: the controller would have to write down there that it failed.
            failed=failed if log_dir.path != settings.metadata_log_dir else [],
            trace=trace,
        )
        for log_dir in log_dirs
    ]
    retention = Retention(
        first_check_ms=settings.log_initial_task_delay_ms,
        check_interval_ms=settings.log_retention_check_interval_ms,
        tickets=tickets,
        trace=trace,
    )
    partitions = Partitions(
        NodeId(settings.node_id),
        directories,
        tickets=tickets,
        settings_for=lambda topic: log_settings(topic_settings(topic), settings),
        in_sync_min_for=lambda topic: topic_settings(topic).min_insync_replicas,
        waits_for_sync=waits_for_sync,
        parked_max=settings.sparklog_partition_parked_max,
        retention=retention,
        is_missing_directories=len(log_dirs) < len(settings.log_dirs),
        trace=trace,
    )
    partitions.cleaning = Cleaning(cleaning_limits(settings), disk, partitions.directories, tickets=tickets, entropy=entropy, trace=trace)
    return partitions
