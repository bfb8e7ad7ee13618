"""The log directory of a replica: that of its log, the one that the controller assigned, or one with free
space.

A crash during a move between directories may leave two logs of a replica, or a log and a copy with more
records. The one with more records is used, and if both have the same, the one in the directory that the
controller assigned; see `log/directory/future_log`. The other is removed.

Where the assigned directory is gone, an empty log takes the place of one that may have been the last with all
records. It begins only where that can cost no record (`can_begin_empty`), and the directory may come back:

    unreadable, in log.dirs         offline, unless an operator moves the replica to another directory
    replaced by an empty one, or    begins empty, in another directory if need be; offline while another
    not in log.dirs any more        replica has records and none leads (KAFKA-16234)
"""

from collections.abc import Callable, Mapping, Set, Sized
from enum import Enum

from sparklog.model import ZERO_UUID, Instant, NodeId, TopicPartition, Uuid
from sparklog_server.disk.door import StorageError
from sparklog_server.log.log_config import LogConfig
from sparklog_server.metadata.entries import DIRECTORY_LOST, NO_NODE, BrokerImage, PartitionImage, is_reserved
from sparklog_server.replica.directory import ReplicaDirectory, Trace


class Usable(Enum):
    """Whether a directory can take a partition: now, once a full disk has room, or never."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"


def is_led_elsewhere(placement: PartitionImage, node_id: NodeId) -> bool:
    """Whether another replica leads, and that of this node is not in sync: the leader has all that is
    committed without it.
    """
    return placement.leader not in (NO_NODE, node_id) and node_id not in placement.isr


def can_begin_empty(
    placement: PartitionImage, node_id: NodeId, brokers: Mapping[NodeId, BrokerImage]
) -> bool:
    """Whether a log of this node that is gone may begin empty: another replica leads, or none is left that
    has records.

    Else an empty log could be elected as that of the last leader, and the others would truncate theirs.
    """
    return is_led_elsewhere(placement, node_id) or not any(
        node != node_id and node in brokers and brokers[node].has_online(directory)
        for node, directory in zip(placement.replicas, placement.directories, strict=True)
    )


class Homes:
    """The log directories of this node as places for replicas. `is_missing`: at least one could not be
    opened.
    """

    def __init__(
        self,
        node_id: NodeId,
        directories: list[ReplicaDirectory],
        *,
        is_missing: bool,
        settings_for: Callable[[str], LogConfig],
        remove: Callable[[ReplicaDirectory, list[TopicPartition]], None],
        trace: Trace,
    ) -> None:
        self._node_id = node_id
        self._directories = directories
        self._is_missing = is_missing
        self._settings_for = settings_for
        self._remove = remove
        self._trace = trace

    @property
    def is_complete(self) -> bool:
        """Whether every directory in log.dirs is online."""
        return not self._is_missing and all(directory.error is None for directory in self._directories)

    def is_gone(self, assigned: Uuid | None) -> bool:
        """Whether the directory that the controller assigned to a replica is none of those online."""
        return (
            assigned is not None
            and (assigned == DIRECTORY_LOST or not is_reserved(assigned))
            and not any(
                directory.error is None and directory.log_dir.directory_id == assigned
                for directory in self._directories
            )
        )

    def find(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        placement: PartitionImage,
        brokers: Mapping[NodeId, BrokerImage],
        *,
        wish: ReplicaDirectory | None,
        loads: Callable[[ReplicaDirectory], int],
        missing: Mapping[ReplicaDirectory, Sized],
    ) -> ReplicaDirectory | None:
        """The directory that has the log already, else the one requested by an operator, else the one
        assigned by the controller, else the least loaded.

        None if the log may be in a directory that is offline: a new log elsewhere would be taken for it, and
        so would an old one that was left when the log moved there. There is none either if the directory is
        gone and the log may not begin empty. The log is not waited for at an operator's request, where
        another replica leads. `missing` has the logs to create in this turn.
        """
        assigned = placement.directory_of(self._node_id)
        online = [directory for directory in self._directories if directory.error is None]
        chosen = next((directory for directory in online if directory.log_dir.directory_id == assigned), None)
        is_gone = self.is_gone(assigned)
        if is_gone and not self.is_complete and not (wish and is_led_elsewhere(placement, self._node_id)):
            return None
        holders = [
            one
            for one in online
            if topic_partition in one.log_dir.logs or topic_partition in one.log_dir.damaged
        ]
        if holders:
            return min(holders, key=lambda one: _rank(one, topic_partition, topic_id))
        if is_gone and not can_begin_empty(placement, self._node_id, brokers):
            return None
        if wish is not None and wish.error is None:
            return wish
        # If all directories are full or cordoned, a partition that already has an assigned directory still
        # uses it.
        open_ones = [directory for directory in online if not directory.is_cordoned] or online
        open_ones = [directory for directory in open_ones if not directory.room.is_full] or open_ones
        return chosen or min(
            open_ones, key=lambda directory: loads(directory) + len(missing.get(directory, ())), default=None
        )

    def settle(
        self, topic_partition: TopicPartition, topic_id: Uuid, assigned: Uuid | None, now: Instant
    ) -> bool:
        """Leave one log of a partition before it is opened, if a move was interrupted; False if a full disk
        has no space for the renames.

        Blocks if there is a copy that may have more records.
        """
        online = [directory for directory in self._directories if directory.error is None]
        for directory in online:
            if topic_partition in directory.log_dir.futures:
                try:
                    self._promote(directory, topic_partition, topic_id, assigned, now)
                except StorageError as error:
                    if error.is_full:
                        directory.room.ran_out(error, now)
                        return False
                    directory.storage_failed(error)
        rivals = [one for one in online if one.error is None and _has(one, topic_partition, topic_id)]
        if len(rivals) > 1:
            logs = {one: one.log_dir.logs[topic_partition] for one in rivals}
            best = max(
                rivals, key=lambda one: (logs[one].log_end_offset, one.log_dir.directory_id == assigned)
            )
            for one in rivals:
                if one is not best:
                    logs[best].move_log_start(min(logs[one].log_start_offset, logs[best].log_end_offset))
                    self._trace(
                        "interrupted-move-resolved",
                        partition=str(topic_partition),
                        kept=best.log_dir.path,
                        removed=one.log_dir.path,
                    )
                    self._remove(one, [topic_partition])
        return True

    def set_strays_aside(
        self,
        unopened: Set[TopicPartition],
        has_moved: Callable[[TopicPartition, Uuid], bool],
        now: Instant,
    ) -> None:
        """Set aside the logs that belong to no topic, once the first image is known: a crash came between a
        deletion and the renaming, or metadata was lost. Remove those whose partition `has_moved` to other
        brokers while this one was stopped, which it would have removed then.

        The `unopened` ones belong to a topic, but are not open.
        """
        for directory in self._directories:
            log_dir = directory.log_dir
            claimed = frozenset(partition.topic_partition for partition in directory.partitions) | unopened
            log_dir.forget_missing(claimed)
            for topic_partition in sorted((log_dir.logs.keys() | log_dir.damaged.keys()) - claimed):
                if directory.error is None:
                    found = log_dir.logs.get(topic_partition) or log_dir.damaged[topic_partition]
                    if has_moved(topic_partition, found.topic_id):
                        path = f"{log_dir.path}/{topic_partition}"
                        self._trace("moved-log-removed", partition=str(topic_partition), path=path)
                        self._remove(directory, [topic_partition])
                        continue
                    try:
                        path = log_dir.set_aside(topic_partition)
                    except StorageError as error:
                        if error.is_full:
                            # It is set aside at the next start, or when a topic gets its name.
                            directory.room.ran_out(error, now)
                        else:
                            directory.storage_failed(error)
                    else:
                        self._trace("stray-log-set-aside", partition=str(topic_partition), path=path)

    def take_unclaimed_copies(self, claimed: Set[TopicPartition]) -> list[str]:
        """The paths of the copies left by unfinished moves, except those of `claimed` partitions, which are
        not open yet. For use after the first image; each path is returned once.
        """
        return [
            path
            for directory in self._directories
            if directory.error is None
            for topic_partition in sorted(directory.log_dir.futures.keys() - claimed)
            for path in directory.log_dir.take_futures(topic_partition)
        ]

    def _promote(
        self,
        at: ReplicaDirectory,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        assigned: Uuid | None,
        now: Instant,
    ) -> None:
        """Make a copy the log if it may have more records than the log, or if there is no log and the
        controller assigned this directory.
        """
        log_dir = at.log_dir
        if topic_partition in log_dir.logs or topic_partition in log_dir.damaged:
            return
        online = [directory for directory in self._directories if directory.error is None]
        holders = [one for one in online if topic_partition in one.log_dir.logs]
        is_damaged = any(topic_partition in one.log_dir.damaged for one in online)
        for future in list(log_dir.futures[topic_partition]):
            if future.topic_id != topic_id or is_damaged:
                continue
            if holders:
                is_wanted = all(
                    log_dir.may_be_further(future, one.log_dir.logs[topic_partition]) for one in holders
                )
            else:
                is_wanted = (
                    log_dir.directory_id == assigned
                    and not self._is_missing
                    and len(online) == len(self._directories)
                )
            if is_wanted:
                log_dir.promote(topic_partition, future, self._settings_for(topic_partition.topic), now)
                if (damaged := log_dir.damaged.get(topic_partition)) is not None:
                    self._trace("partition-offline", partition=str(topic_partition), **damaged.error.fields)
                return

    def use(
        self, home: ReplicaDirectory, topic_partition: TopicPartition, topic_id: Uuid, now: Instant
    ) -> Usable:
        """Whether the directory has no log of this name, or one that can be opened; the log of another topic
        is set aside.
        """
        log_dir = home.log_dir
        found = log_dir.damaged.get(topic_partition) or log_dir.logs.get(topic_partition)
        if found is None:
            return Usable.NOW
        try:
            if found.topic_id not in (topic_id, ZERO_UUID):
                self._trace(
                    "stray-log-set-aside",
                    partition=str(topic_partition),
                    path=log_dir.set_aside(topic_partition),
                )
            elif topic_partition in log_dir.damaged:
                home.lost(topic_id, topic_partition.partition)
                return Usable.NEVER
            elif found.topic_id == ZERO_UUID:
                # A crash came before the first sync of partition.metadata: the directory was created for the
                # topic of this name.
                log_dir.identify(topic_partition, topic_id)
        except StorageError as error:
            if error.is_full:
                home.room.ran_out(error, now)
                return Usable.LATER
            home.storage_failed(error)
            return Usable.NEVER
        return Usable.NOW


def _rank(directory: ReplicaDirectory, topic_partition: TopicPartition, topic_id: Uuid) -> int:
    """The rank of a directory among several with the partition, the lowest first: a damaged log may be the
    one with more records.

    A partition that is missing here, and exists in another log directory, was moved there while the broker
    was stopped.
    """
    damaged = directory.log_dir.damaged.get(topic_partition)
    if damaged is None:
        return 1 if _has(directory, topic_partition, topic_id) else 2
    return 2 if damaged.is_missing or damaged.topic_id not in (topic_id, ZERO_UUID) else 0


def _has(directory: ReplicaDirectory, topic_partition: TopicPartition, topic_id: Uuid) -> bool:
    log = directory.log_dir.logs.get(topic_partition)
    return log is not None and log.topic_id in (topic_id, ZERO_UUID)
