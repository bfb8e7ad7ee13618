"""Every partition this node holds, kept in step with the metadata image, over all its log directories."""

from collections.abc import Callable, Iterator

from sparklog.effects import Effect, Run, Sync
from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID, Instant, Micros, NodeId, Offset, Ticket, TopicPartition, Uuid
from sparklog_server.disk.door import StorageError
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.settings import LogSettings
from sparklog_server.metadata.image import TOPIC_RESOURCE, MetadataDelta, PartitionImage
from sparklog_server.replica.cleaning import Cleaning
from sparklog_server.replica.directory import Directory, Trace
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.retention import Retention

RESERVED_DIRECTORIES = 100
"""Directory ids below this are no directories: unassigned, lost, migrating (KIP-858)."""


class Partitions:
    """The partitions of this node by topic and index.

    `released` collects the tokens whose wait is over, `jobs` what follows from finished ones; the broker drains both each turn.
    Invariant: a topic's entry exists exactly while the image places at least one of its partitions here.
    """

    def __init__(
        self,
        node_id: NodeId,
        directories: list[Directory],
        *,
        tickets: Callable[[], Ticket],
        settings_for: Callable[[str], LogSettings],
        in_sync_min_for: Callable[[str], int],
        waits_for_sync: Callable[[str, int], bool],
        parked_max: int,
        retention: Retention,
        is_missing_directories: bool,
        trace: Trace,
    ) -> None:
        """`is_missing_directories` says that one at least could not be opened: logs may lie in it."""
        self.released: list[object] = []
        self.jobs: list[Run] = []
        self._node_id = node_id
        self.directories = directories
        self._tickets = tickets
        self._settings_for = settings_for
        self._in_sync_min_for = in_sync_min_for
        self._waits_for_sync = waits_for_sync
        self._parked_max = parked_max
        self._is_missing_directories = is_missing_directories
        self._offline: dict[TopicPartition, None] = {}  # the image places them here, in a directory that cannot be used
        self._trace = trace
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._syncs: dict[Ticket, Directory] = {}
        self._checkpoints: dict[Ticket, Directory] = {}
        self._removals: set[Ticket] = set()
        self.retention = retention
        self._postponed: dict[TopicPartition, tuple[Uuid, PartitionImage]] = {}  # until the files of an earlier log have their names
        self.cleaning: Cleaning | None = None

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition, or None if it is not on this node."""
        partitions = self._by_topic.get(topic)
        return None if partitions is None else partitions.get(index)

    def absence(self, topic: str, index: int) -> ErrorCode:
        """Why `find` gives nothing."""
        is_offline = TopicPartition(topic, index) in self._offline
        return ErrorCode.KAFKA_STORAGE_ERROR if is_offline else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_topic.values():
            yield from partitions.values()

    # -- metadata

    def apply(self, delta: MetadataDelta, now: Instant) -> list[Effect]:
        """Follow the image: close what it no longer has, open and lead what it places here."""
        effects: list[Effect] = []
        for topic in delta.topics_deleted:
            effects.extend(self._remove(topic.name))
        for changed in delta.partitions_changed:
            if self._node_id in changed.after.replicas:
                self._follow(changed.topic_partition, changed.topic_id, changed.after, now)
        for resource_type, name in delta.configs_changed:
            if resource_type == TOPIC_RESOURCE:
                self._reconfigure(name)
        if delta.before.offset < 0:
            self._set_strays_aside()
        return effects

    def _set_strays_aside(self) -> None:
        """After the first image: the logs that no topic claims, left by a crash between a deletion and its renaming (or metadata lost)."""
        for directory in self.directories:
            claimed = frozenset(partition.topic_partition for partition in directory.partitions)
            for topic_partition in sorted(directory.log_dir.logs.keys() - claimed):
                if directory.error is None:
                    try:
                        path = directory.log_dir.set_aside(topic_partition)
                    except StorageError as error:
                        directory.storage_failed(error)
                    else:
                        self._trace("stray-log-set-aside", partition=str(topic_partition), path=path)

    def _follow(self, topic_partition: TopicPartition, topic_id: Uuid, placement: PartitionImage, now: Instant) -> None:
        partition = self.find(topic_partition.topic, topic_partition.partition)
        if partition is None and topic_partition in self.retention.renaming:
            self._postponed[topic_partition] = topic_id, placement
            return
        if partition is None:
            partition = self._open(topic_partition, topic_id, placement, now)
        if partition is None:
            return
        leader = partition.leader
        if placement.leader == self._node_id and (leader is None or leader.leader_epoch != placement.leader_epoch):
            self._lead(partition, placement, now)

    def _reconfigure(self, topic: str) -> None:
        for partition in self._by_topic.get(topic, {}).values():
            partition.settings = self._settings_for(topic)
            if self.cleaning is not None:
                self.cleaning.watch(partition)
            partition.in_sync_min = self._in_sync_min_for(topic)

    def _open(self, topic_partition: TopicPartition, topic_id: Uuid, placement: PartitionImage, now: Instant) -> Partition | None:
        directory = self._home_of(topic_partition, placement.directory_of(self._node_id))
        if directory is None:
            self._trace("partition-has-no-directory", partition=str(topic_partition))
            self._offline[topic_partition] = None
            return None
        settings = self._settings_for(topic_partition.topic)
        log_dir = directory.log_dir
        log: PartitionLog | None = log_dir.logs.get(topic_partition)
        try:
            if log is not None and log.topic_id == ZERO_UUID:
                # A crash came before the first sync of partition.metadata: the directory was made for the topic of this name.
                log_dir.identify(topic_partition, topic_id)
            elif log is not None and log.topic_id != topic_id:
                self._trace("stray-log-set-aside", partition=str(topic_partition), path=log_dir.set_aside(topic_partition))
                log = None
            if log is None:
                log = log_dir.create(topic_partition, topic_id, settings, now)
                directory.created(now)
        except StorageError as error:
            directory.storage_failed(error)
            self._offline[topic_partition] = None
            return None
        log.settings = settings
        partition = Partition(log, directory, parked_max=self._parked_max, released=self.released)
        partition.in_sync_min = self._in_sync_min_for(topic_partition.topic)
        directory.partitions[partition] = None
        if self.cleaning is not None:
            self.cleaning.watch(partition)
        self._by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = partition
        return partition

    def _home_of(self, topic_partition: TopicPartition, directory_id: Uuid | None) -> Directory | None:
        """Where the log lies already; else the directory the controller chose; else the one with the fewest partitions.

        None if the log may lie in a directory that is offline: another begun elsewhere would pass for it.
        """
        online = [directory for directory in self.directories if directory.error is None]
        for directory in online:
            if topic_partition in directory.log_dir.logs:
                return directory
        for directory in online:
            if directory.log_dir.directory_id == directory_id:
                return directory
        is_chosen = directory_id is not None and int.from_bytes(directory_id, "big") >= RESERVED_DIRECTORIES
        if is_chosen and (self._is_missing_directories or len(online) < len(self.directories)):
            return None
        return min(online, key=lambda directory: len(directory.partitions), default=None)

    def _lead(self, partition: Partition, placement: PartitionImage, now: Instant) -> None:
        home = next(directory for directory in self.directories if partition in directory.partitions)
        partition.lead(
            placement.leader_epoch,
            followers=tuple(replica for replica in placement.replicas if replica != self._node_id),
            isr=placement.isr,
            high_watermark=home.log_dir.high_watermarks.get(partition.topic_partition, Offset(0)),
            waits_for_sync=self._waits_for_sync(partition.topic_partition.topic, len(placement.replicas)),
            now=now,
        )

    def _remove(self, topic: str) -> list[Effect]:
        effects: list[Effect] = []
        self._postponed = {one: wanted for one, wanted in self._postponed.items() if one.topic != topic}
        self._offline = {one: None for one in self._offline if one.topic != topic}
        for partition in self._by_topic.pop(topic, {}).values():
            partition.close()
            for directory in self.directories:
                if directory.partitions.pop(partition, partition) is None and directory.error is None:
                    if self.cleaning is not None:
                        self.cleaning.removed(partition, directory)
                    try:
                        removal = directory.log_dir.delete(partition.topic_partition)
                    except StorageError as error:
                        directory.storage_failed(error)
                        continue
                    ticket = self._tickets()
                    self._removals.add(ticket)
                    effects.append(Run(removal, ticket))
        return effects

    # -- syncs

    def due_syncs(self, now: Instant) -> list[Sync]:
        """The syncs that should begin now: at most one per directory is in flight."""
        syncs = []
        for directory in self.directories:
            if directory.is_sync_due(now):
                ticket = self._tickets()
                sync = directory.begin_sync(ticket)
                if sync is not None:
                    self._syncs[ticket] = directory
                    syncs.append(sync)
        return syncs

    def due_checkpoints(self, now: Instant) -> list[Run]:
        """The jobs that write down how far each directory is durable, where that is due."""
        runs = []
        for directory in self.directories:
            if directory.is_checkpoint_due(now):
                ticket = self._tickets()
                self._checkpoints[ticket] = directory
                runs.append(Run(directory.begin_checkpoint(), ticket))
        return runs

    def due_cleaning(self, now: Instant) -> list[Run]:
        """The jobs of compaction that should begin now."""
        return [] if self.cleaning is None else self.cleaning.due_jobs(now)

    def due_retention(self, now: Instant) -> list[Run]:
        """The jobs of retention that should begin now."""
        return self.retention.due_jobs(self, now)

    def deadline(self) -> Micros | None:
        """When the next sync, checkpoint, compaction or check of retention is due."""
        deadlines = [self.retention.deadline(), *(directory.deadline() for directory in self.directories)]
        if self.cleaning is not None:
            deadlines.append(self.cleaning.deadline())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def hurry(self) -> None:
        """Have everything appended become durable as soon as can be."""
        for directory in self.directories:
            directory.hurry()

    def finished(self, ticket: Ticket, result: object, now: Instant) -> bool:
        """The result of a sync or job of ours; False if the ticket is somebody else's."""
        directory = self._syncs.pop(ticket, None)
        if directory is not None:
            if isinstance(result, StorageError):
                directory.storage_failed(result)
            elif directory.error is None:
                directory.synced(now)
            return True
        directory = self._checkpoints.pop(ticket, None)
        if directory is not None:
            directory.checkpoint_finished(result if isinstance(result, StorageError) else None)
            return True
        renamed = self.retention.finished(ticket, result, now)
        if renamed:
            if isinstance(renamed, TopicPartition) and renamed in self._postponed:
                self._follow(renamed, *self._postponed.pop(renamed), now)
            return True
        if self.cleaning is not None:
            runs = self.cleaning.finished(ticket, result, now)
            if runs is not None:
                self.jobs.extend(runs)
                return True
        if ticket in self._removals:
            self._removals.discard(ticket)
            if isinstance(result, Exception):
                self._trace("removal-failed", reason=str(result))
            return True
        return False

    @property
    def is_congested(self) -> bool:
        """Whether some directory is so far behind that producers should pause."""
        return any(directory.is_congested for directory in self.directories)

    @property
    def is_quiet(self) -> bool:
        """Whether everything appended is durable, as far as it ever will be, and no checkpoint is being written."""
        is_clean = self.cleaning is None or self.cleaning.is_quiet
        return is_clean and self.retention.is_quiet and not self._checkpoints and all(directory.is_quiet for directory in self.directories)

    # -- endings

    def close(self, now: Instant) -> None:
        """Close every log cleanly, with its checkpoints; offline directories are left as they are."""
        for directory in self.directories:
            if directory.error is not None:
                continue
            try:
                directory.log_dir.close(directory.high_watermarks(), now)
            except StorageError as error:
                directory.storage_failed(error)
