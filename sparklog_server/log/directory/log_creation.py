"""The creation of many logs at once: a directory, an empty first segment and the topic id of each, made
durable with one sync.
"""

from collections.abc import Sequence

import msgspec

from sparklog.model import NO_EPOCH, Instant, LeaderEpoch, Offset, TopicPartition, Uuid
from sparklog_server.disk.door import Disk, DiskFile, replace_all
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.producers.producer_state import ProducerState
from sparklog_server.log.recovery.log_loader import Recovered
from sparklog_server.log.segment.leader_epoch_cache import EPOCH_FILE, LeaderEpochCache
from sparklog_server.log.segment.segment import LOG_SUFFIX, Segment, file_name

from .identity import write_topic_id


class Wanted(msgspec.Struct, frozen=True):
    """A log to create, and the epoch in which this node leads it from the first record on; -1 if it
    does not.
    """

    topic_partition: TopicPartition
    topic_id: Uuid
    settings: LogConfig
    leader_epoch: LeaderEpoch = NO_EPOCH


def begin_logs(disk: Disk, path: str, wanted: Sequence[Wanted], now: Instant) -> list[PartitionLog]:
    """The job that creates these logs in the log directory `path`. Raises StorageError."""
    # The handles are closed when this returns: a job may not keep descriptors, and each log opens its own
    # when needed.
    files: list[DiskFile] = []
    directories = [f"{path}/{one.topic_partition}" for one in wanted]
    disk.make_directory(*directories)
    strange = frozenset(directory for directory in directories if disk.list(directory))
    for one, directory in zip(wanted, directories, strict=True):
        disk.open(
            f"{directory}/{file_name(0, LOG_SUFFIX)}", create=True
        )  # the file is empty: only its name could be lost
        files.append(write_topic_id(disk, directory, one.topic_id))
    epoch_files = []
    for one, directory in zip(wanted, directories, strict=True):
        if one.leader_epoch >= 0:
            # Synced now and not with the first record: a thousand first records would have a thousand more
            # files to sync.
            epochs = LeaderEpochCache()
            epochs.assign(one.leader_epoch, Offset(0))
            epoch_files.append((f"{directory}/{EPOCH_FILE}", epochs.render()))
    files += replace_all(disk, epoch_files)
    disk.sync(files)
    files.clear()
    logs: list[PartitionLog] = []
    for one, directory in zip(wanted, directories, strict=True):
        if directory not in strange:
            found = _empty(disk, directory, one.leader_epoch)
            logs.append(
                PartitionLog(disk, directory, one.topic_partition, one.topic_id, one.settings, found, now)
            )
            continue
        log = PartitionLog.open(disk, directory, one.topic_partition, one.topic_id, one.settings, now=now)
        # Opening drops an epoch without records, but the file has it.
        log.epochs.assign(one.leader_epoch, Offset(0))
        log.epochs.is_saved = True
        logs.append(log)
    return logs


def _empty(disk: Disk, directory: str, leader_epoch: LeaderEpoch) -> Recovered:
    """The state of a log without records, whose files exist: an empty first segment and, unless it is -1,
    `leader_epoch` in its file.
    """
    epochs = LeaderEpochCache()
    epochs.assign(leader_epoch, Offset(0))
    epochs.is_saved = True
    segment = Segment.open(disk, directory, Offset(0))
    assert segment.file.size == 0, segment.file.path
    return Recovered([segment], epochs, ProducerState(), Offset(0), Offset(0), Offset(0), Offset(0), [])
