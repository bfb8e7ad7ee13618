"""Opens the partitions of this node with the broker's settings: their directories, retention and
compaction.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sparklog.model import Instant, NodeId, Uuid
from sparklog_server.agenda import Agenda
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig, cleaning_limits, move_rate_max
from sparklog_server.config.checks import is_cordoned
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import Disk
from sparklog_server.log.directory.log_dir import LogDir
from sparklog_server.metadata.entries import Assignments
from sparklog_server.metadata.image import MetadataDelta
from sparklog_server.replica.directory import ReplicaDirectory, Trace
from sparklog_server.replica.isr import InSyncRules
from sparklog_server.replica.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from sparklog_server.broker.opening.log_recovery import LogRecovery


def open_partitions(
    live: DynamicBrokerConfig,
    disk: Disk,
    log_dirs: Sequence[LogDir],
    continuations: Continuations,
    agenda: Agenda,
    *,
    failed: list[Uuid],
    entropy: Callable[[int], bytes],
    trace: Trace,
) -> ReplicaManager:
    """Open the partitions of these data directories; no metadata is applied yet. `failed` receives the ids of
    directories that fail.
    """
    settings = live.settings
    assignments: Assignments = {}
    directories = [
        ReplicaDirectory(
            log_dir,
            agenda,
            checkpoint_interval_ms=settings.replica_high_watermark_checkpoint_interval_ms,
            log_start_interval_ms=settings.log_flush_start_offset_checkpoint_interval_ms,
            recovery_points_interval_ms=settings.log_flush_offset_checkpoint_interval_ms,
            unsynced_bytes_max=settings.sparklog_log_dir_unsynced_max_bytes,
            reserve_bytes=settings.sparklog_disk_reserve_bytes,
            # Not that of the metadata log: the controller would have to record its failure in that log.
            failed=failed if log_dir.path != settings.metadata_log_dir else [],
            assignments=assignments,
            trace=trace,
        )
        for log_dir in log_dirs
    ]
    partitions = ReplicaManager(
        NodeId(settings.node_id),
        directories,
        disk,
        continuations,
        agenda,
        rules=InSyncRules(settings.replica.lag_time_ms_max * 1000),
        settings_for=live.log,
        in_sync_min_for=lambda topic: live.topic(topic).min_insync_replicas,
        flush_for=lambda topic: live.topic(topic).sparklog_ack_flush,
        parked_max=settings.sparklog_partition_parked_max,
        first_check_ms=settings.log_initial_task_delay_ms,
        check_interval_ms=settings.log_retention_check_interval_ms,
        cleaning_limits=cleaning_limits(settings),
        assignments=assignments,
        move_bytes_per_second_max=move_rate_max(live.layers),
        is_missing_directories=len(log_dirs) < len(settings.log_dirs),
        entropy=entropy,
        trace=trace,
    )
    _cordon(live, partitions)
    return partitions


def _cordon(live: DynamicBrokerConfig, partitions: ReplicaManager) -> None:
    """Set which directories accept new partitions."""
    for directory in partitions.directories:
        directory.is_cordoned = is_cordoned(live.settings, directory.log_dir.path)


def follow(
    live: DynamicBrokerConfig,
    partitions: ReplicaManager,
    recovery: "LogRecovery | None",
    delta: MetadataDelta,
    now: Instant,
) -> None:
    """Apply new metadata: first the settings, then the partitions if their logs are recovered, and last the
    partitions whose defaults have changed.
    """
    is_changed = live.follow(delta)
    partitions.rules.brokers = delta.after.brokers
    if recovery is None or not recovery.defers(delta, now):
        partitions.apply(delta, now)
    if is_changed:
        _apply(live, partitions, now)


def reload(
    live: DynamicBrokerConfig, partitions: ReplicaManager, static: BrokerSettings, now: Instant
) -> None:
    """Apply new static settings; a turn of the broker must follow."""
    live.reload(static)
    _apply(live, partitions, now)


def _apply(live: DynamicBrokerConfig, partitions: ReplicaManager, now: Instant) -> None:
    _cordon(live, partitions)
    partitions.cleaning.limits = cleaning_limits(live.settings)
    partitions.moving.bytes_per_second_max = move_rate_max(live.layers)
    partitions.reconfigure(now)
