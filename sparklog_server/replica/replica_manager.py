"""Every partition of this node, over all its log directories, updated from the metadata image.

Kafka's ReplicaManager without its requests: appendRecords is `broker/handlers/produce.py`, fetchMessages
`broker/handlers/fetch.py`, and both go to `Partition`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from sparklog.effects import Sliceable
from sparklog.errors import ErrorCode
from sparklog.model import (
    NO_EPOCH,
    Instant,
    LeaderEpoch,
    Micros,
    NodeId,
    Offset,
    TopicPartition,
    Uuid,
    earlier,
)
from sparklog_server.agenda import Agenda
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.log.directory.log_creation import Wanted
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.metadata.entries import Assignments, PartitionImage
from sparklog_server.metadata.image import TOPIC_RESOURCE, MetadataDelta, MetadataImage
from sparklog_server.metadata.records import NO_LEADER
from sparklog_server.replica.directory import ReplicaDirectory, Trace
from sparklog_server.replica.homes import Homes, Usable, is_led_elsewhere
from sparklog_server.replica.isr import InSyncRules
from sparklog_server.replica.log_cleaner import CleaningLimits, LogCleaner
from sparklog_server.replica.openings import IN_TURN_MAX, Begun, Openings
from sparklog_server.replica.partition import Noted, Partition
from sparklog_server.replica.producer_snapshots import ProducerSnapshots
from sparklog_server.replica.removals import Removals
from sparklog_server.replica.replica_moves import ReplicaMoves
from sparklog_server.replica.retention import Retention
from sparklog_server.replica.traffic import NodeTraffic
from sparklog_server.replica.truncations import Truncations


class ReplicaManager:
    """The partitions of this node by topic and index.

    `led` collects the partitions whose leadership begins; the broker drains it each turn. Invariants: a
    topic's entry exists only while the image places at least one of its partitions here; each partition that
    the image places here is open, in `_wanted` or in `offline`. A wanted one waits while a job or a
    checkpoint may still touch or name an earlier log of its name.
    """

    def __init__(
        self,
        node_id: NodeId,
        directories: list[ReplicaDirectory],
        disk: Disk,
        continuations: Continuations,
        agenda: Agenda,
        *,
        settings_for: Callable[[str], LogConfig],
        rules: InSyncRules,
        in_sync_min_for: Callable[[str], int],
        flush_for: Callable[[str], str],
        parked_max: int,
        first_check_ms: int,
        check_interval_ms: int,
        cleaning_limits: CleaningLimits,
        assignments: Assignments,
        move_bytes_per_second_max: float,
        is_missing_directories: bool,
        entropy: Callable[[int], bytes],
        trace: Trace,
    ) -> None:
        """`is_missing_directories`: at least one directory could not be opened, and may contain logs."""
        self._node_id = node_id
        self.directories = directories
        self._continuations = continuations
        self._settings_for = settings_for
        self.rules = rules
        self.noted = Noted()
        self._in_sync_min_for = in_sync_min_for
        self._flush_for = flush_for
        self._parked_max = parked_max
        # The image places these here, in a directory that is offline.
        self.offline: dict[TopicPartition, None] = {}
        # Those of them whose directory is gone, and which begin empty once another replica leads.
        self._awaits_leader: dict[TopicPartition, None] = {}
        self._trace = trace
        self._image = MetadataImage()
        self.by_topic: dict[str, dict[int, Partition]] = {}
        self.traffic = NodeTraffic()
        self.led: list[Partition] = []
        self._jobs = continuations.followed_by(self._job_finished)
        self._checkpoints_running = 0
        self._removals = Removals(self._jobs, trace=trace)
        self._openings = Openings(self._removals, self._jobs, begun=self._begun)
        self.retention = Retention(
            self._removals,
            self._jobs,
            first_check_ms=first_check_ms,
            check_interval_ms=check_interval_ms,
            trace=trace,
        )
        self._producer_snapshots = ProducerSnapshots(self._jobs)
        self._wanted: dict[TopicPartition, tuple[Uuid, PartitionImage]] = {}
        # The wanted partitions whose names are held, and those for whose logs a full disk had no space.
        self._waiting: dict[TopicPartition, None] = {}
        self._awaits_room: dict[TopicPartition, None] = {}
        self.truncations = Truncations(directories, self._jobs, done=self._truncated)
        self.cleaning = LogCleaner(
            cleaning_limits, disk, directories, self._jobs, entropy=entropy, trace=trace
        )
        self.moving = ReplicaMoves(
            disk,
            self._jobs,
            agenda,
            cleaning=self.cleaning,
            retention=self.retention,
            assignments=assignments,
            bytes_per_second_max=move_bytes_per_second_max,
            trace=trace,
        )
        self._homes = Homes(
            node_id,
            directories,
            is_missing=is_missing_directories,
            settings_for=settings_for,
            remove=self._openings.remove,
            trace=trace,
        )

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition, or None if it is not on this node."""
        partitions = self.by_topic.get(topic)
        return None if partitions is None else partitions.get(index)

    def absence(self, topic: str, index: int) -> ErrorCode:
        """The error for a partition that `find` does not return."""
        topic_partition = TopicPartition(topic, index)
        if topic_partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if topic_partition in self._wanted or self._image.partition(topic_partition) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # retriable like the other code, and the topic exists
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def has_offline(self) -> bool:
        """Whether any partition is offline."""
        return bool(self.offline) or any(directory.has_offline for directory in self.directories)

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether a disk failure keeps this node from serving a partition."""
        partition = self.find(topic, index)
        if partition is None:
            return TopicPartition(topic, index) in self.offline
        return partition.error is ErrorCode.KAFKA_STORAGE_ERROR

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_topic.values():
            yield from partitions.values()

    # -- metadata

    def apply(self, delta: MetadataDelta, now: Instant) -> None:
        """Apply the image: close the partitions that left it, open and lead those that it places here."""
        self._image = delta.after
        for topic in delta.topics_deleted:
            self._remove(topic.name)
        for one in delta.partitions_changed:
            if self._node_id in one.after.replicas:
                self._follow(one.topic_partition, one.topic_id, one.after, now)
            else:
                self._leave(one.topic_partition)
        changed = [one.topic_partition for one in delta.partitions_changed]
        self._open(changed + (self._await_again() if delta.brokers_changed else []), now)
        for resource_type, name in delta.configs_changed:
            if resource_type == TOPIC_RESOURCE:
                self._reconfigure(name, now)
        if delta.before.offset < 0:
            claimed = self.offline.keys() | self._wanted.keys()
            self._homes.set_strays_aside(claimed, self._has_moved, now)
            self.moving.discard(self._homes.take_unclaimed_copies(claimed))
            for directory in self.directories:
                if directory.error is None:
                    directory.remove_left_overs(now)

    def _has_moved(self, name: TopicPartition, topic_id: Uuid) -> bool:
        """Whether another broker leads a partition of which this node has no replica by the image."""
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None or topic.name != name.topic or name.partition >= len(topic.partitions):
            return False
        partition = topic.partitions[name.partition]
        return self._node_id not in partition.replicas and partition.leader != NO_LEADER

    def _follow(
        self, topic_partition: TopicPartition, topic_id: Uuid, placement: PartitionImage, now: Instant
    ) -> None:
        partition = self.find(topic_partition.topic, topic_partition.partition)
        if partition is None:
            self.offline.pop(topic_partition, None)
            self._awaits_leader.pop(topic_partition, None)
            self._wanted[topic_partition] = topic_id, placement
            return
        self._place(partition, placement, now)

    def reconfigure(self, now: Instant) -> None:
        """Apply new defaults of topics."""
        for topic in self.by_topic:
            self._reconfigure(topic, now)

    def _reconfigure(self, topic: str, now: Instant) -> None:
        partitions = self.by_topic.get(topic, {})
        if not partitions:
            return
        settings, in_sync_min = self._settings_for(topic), self._in_sync_min_for(topic)
        flush = self._flush_for(topic)
        for partition in partitions.values():
            partition.settings = settings
            self.cleaning.watch(partition)
            partition.configure(in_sync_min=in_sync_min, flush=flush, now=now)

    # -- create and open

    def _open(self, names: Iterable[TopicPartition], now: Instant) -> None:
        """Open those of these partitions that are wanted and whose names are free; many missing logs are
        created by jobs.
        """
        settings: dict[str, LogConfig] = {}
        missing: dict[ReplicaDirectory, list[Wanted]] = {}
        for topic_partition in names:
            if topic_partition not in self._wanted:
                continue
            topic_id, placement = self._wanted[topic_partition]
            assigned = placement.directory_of(self._node_id)
            if not self._homes.settle(topic_partition, topic_id, assigned, now):
                self._awaits_room[topic_partition] = None
                continue
            home = self._homes.find(
                topic_partition,
                topic_id,
                placement,
                self._image.brokers,
                wish=self.moving.wishes.get(topic_partition),
                loads=lambda directory: len(directory.partitions) + self._openings.awaited(directory),
                missing=missing,
            )
            if home is None:
                self._without_directory(topic_partition)
            usable = None if home is None else self._homes.use(home, topic_partition, topic_id, now)
            if usable is Usable.LATER:
                self._awaits_room[topic_partition] = None
                continue
            if home is None or usable is Usable.NEVER:
                self._give_up(topic_partition)
                continue
            if (log := home.log_dir.logs.get(topic_partition)) is not None:
                self._serve(log, home, placement, now)
            elif self._is_name_in_use(topic_partition, home, now):
                self._waiting[topic_partition] = None
            else:
                if self._homes.is_gone(assigned):
                    self._trace(
                        "replica-begins-empty",
                        partition=str(topic_partition),
                        path=home.log_dir.path,
                        reason="its log directory is gone",
                        leader=placement.leader,
                    )
                topic = topic_partition.topic
                if topic not in settings:
                    settings[topic] = self._settings_for(topic)
                missing.setdefault(home, []).append(
                    Wanted(topic_partition, topic_id, settings[topic], self._led_epoch(placement))
                )
        if sum(map(len, missing.values())) > IN_TURN_MAX:
            for home, wanted in missing.items():
                self._openings.begin(home, wanted, now)
            return
        for home, wanted in missing.items():
            for one in wanted:
                self._begin(one, home, now)

    def _without_directory(self, topic_partition: TopicPartition) -> None:
        """The partition goes offline: its directory is, or it is gone and no replica leads."""
        reason = "its log directory is offline"
        if self._homes.is_complete:
            self._awaits_leader[topic_partition] = None
            reason = "its log directory is gone, and no other replica leads"
        self._trace("partition-has-no-directory", partition=str(topic_partition), reason=reason)

    def _await_again(self) -> list[TopicPartition]:
        """The partitions that wait for another leader are wanted again: a broker has changed."""
        awaiting = [*self._awaits_leader]
        for one in awaiting:
            topic = self._image.topics_by_name[one.topic]
            self._wanted[one] = topic.topic_id, topic.partitions[one.partition]
            del self.offline[one]
        self._awaits_leader.clear()
        return awaiting

    def begin_elsewhere(self, name: TopicPartition, target: ReplicaDirectory, now: Instant) -> bool:
        """Begin a replica whose directory is offline empty in another one, as an operator asks; False unless
        another replica leads without it. The log that is left there is removed when its directory is back.
        """
        topic = self._image.topics_by_name.get(name.topic)
        placement = self._image.partition(name)
        if topic is None or placement is None or not is_led_elsewhere(placement, self._node_id):
            return False
        if not self._homes.is_gone(placement.directory_of(self._node_id)):
            return False
        self._leave(name)
        self._wanted[name] = topic.topic_id, placement
        self.moving.wish(name, target)
        self._open([name], now)
        return name not in self.offline

    def _led_epoch(self, placement: PartitionImage) -> LeaderEpoch:
        """The epoch in which this node leads; -1 if it does not."""
        return placement.leader_epoch if placement.leader == self._node_id else NO_EPOCH

    def _is_name_in_use(self, topic_partition: TopicPartition, home: ReplicaDirectory, now: Instant) -> bool:
        if home.log_dir.checkpoints.is_vouched(topic_partition):
            home.checkpoint_now(now)
            return True
        in_use = topic_partition in self.retention.renaming or self._openings.holds(topic_partition)
        in_use = in_use or self.truncations.holds(topic_partition)
        return (
            in_use or self.moving.holds(topic_partition, home) or self.cleaning.holds(topic_partition, home)
        )

    def _begin(self, wanted: Wanted, home: ReplicaDirectory, now: Instant) -> None:
        try:
            log = home.log_dir.create(wanted.topic_partition, wanted.topic_id, wanted.settings, now)
        except StorageError as error:
            if error.is_full:
                home.room.ran_out(error, now)
                self._awaits_room[wanted.topic_partition] = None
            else:
                home.storage_failed(error)
                self._give_up(wanted.topic_partition)
            return
        self._serve(log, home, self._wanted[wanted.topic_partition][1], now)

    def _begun(self, begun: Begun, now: Instant) -> None:
        """Open the partitions of logs that a job has created, if they are still wanted."""
        directory = begun.directory
        if begun.is_put_off:
            for name in begun.names:
                if name in self._wanted and name not in self._waiting:
                    self._awaits_room[name] = None
            return
        if directory.error is not None:
            for name in begun.names:
                if name not in self._waiting:  # a waiting partition is opened anew, perhaps for another topic
                    self._give_up(name)
            return
        doomed = []
        for log in begun.logs:
            directory.log_dir.adopt(log)
            topic_id, placement = self._wanted.get(log.topic_partition, (None, None))
            if placement is not None and topic_id == log.topic_id:
                self._serve(log, directory, placement, now)
            else:
                doomed.append(log.topic_partition)
        self._openings.remove(directory, doomed)

    def _serve(
        self, log: PartitionLog, home: ReplicaDirectory, placement: PartitionImage, now: Instant
    ) -> None:
        """Open a partition with its log."""
        topic_partition = log.topic_partition
        topic = topic_partition.topic
        del self._wanted[topic_partition]
        siblings = self.by_topic.setdefault(topic, {})
        sibling = next(iter(siblings.values()), None)
        log.settings = self._settings_for(topic) if sibling is None else sibling.settings
        partition = Partition(
            log,
            home,
            node_id=self._node_id,
            high_watermark=home.log_dir.high_watermarks.get(topic_partition, Offset(0)),
            flush=self._flush_for(topic),
            replica_count=len(placement.replicas),
            parked_max=self._parked_max,
            rules=self.rules,
            noted=self.noted,
            traffic=self.traffic.of(topic),
        )
        partition.in_sync_min = self._in_sync_min_for(topic) if sibling is None else sibling.in_sync_min
        home.partitions[partition] = None
        if log.leftovers:
            # The next sync writes the epochs too: these files, soon removed, also record where it starts.
            home.mark_dirty(partition, 0, now)
        self.cleaning.watch(partition)
        siblings[topic_partition.partition] = partition
        self.moving.serve(partition, home, self.directories, placement.directory_of(self._node_id))
        self._place(partition, placement, now)

    def _give_up(self, topic_partition: TopicPartition) -> None:
        if self._wanted.pop(topic_partition, None) is not None:
            self.offline[topic_partition] = None

    def _place(self, partition: Partition, placement: PartitionImage, now: Instant) -> None:
        if partition.placed(placement, now):
            self.led.append(partition)

    def _truncated(self, partition: Partition, now: Instant) -> None:
        """A log takes appends again: its partition may lead now."""
        placement = self._image.partition(partition.topic_partition)
        if placement is not None and self._node_id in placement.replicas:
            self._place(partition, placement, now)

    def _leave(self, name: TopicPartition) -> None:
        """Remove the replica of a partition that other brokers have, if there was one."""
        self._wanted.pop(name, None)
        for names in (self._waiting, self._awaits_room, self._awaits_leader, self.offline):
            names.pop(name, None)
        partition = self.by_topic.get(name.topic, {}).pop(name.partition, None)
        if partition is None:
            return
        if not self.by_topic[name.topic]:
            del self.by_topic[name.topic]
            self.traffic.left(name.topic)
        partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.moving.removed(partition)
        for directory in self.directories:
            if directory.partitions.pop(partition, partition) is None and directory.error is None:
                self.cleaning.removed(partition, directory)
                self._openings.remove(directory, [name])

    def _remove(self, topic: str) -> None:
        self._wanted = {one: wanted for one, wanted in self._wanted.items() if one.topic != topic}
        self._waiting = {one: None for one in self._waiting if one.topic != topic}
        self._awaits_room = {one: None for one in self._awaits_room if one.topic != topic}
        self._awaits_leader = {one: None for one in self._awaits_leader if one.topic != topic}
        self.offline = {one: None for one in self.offline if one.topic != topic}
        self._openings.forget(topic)
        partitions = self.by_topic.pop(topic, {})
        self.traffic.left(topic)
        for partition in partitions.values():
            partition.close()
            self.moving.removed(partition)
        for directory in self.directories:
            removed = [one for one in partitions.values() if directory.partitions.pop(one, one) is None]
            if directory.error is None:
                doomed = [one for one in directory.log_dir.damaged if one.topic == topic]
                for partition in removed:
                    doomed.append(partition.topic_partition)
                    self.cleaning.removed(partition, directory)
                self._openings.remove(directory, doomed)

    # -- syncs

    def begin_due_syncs(self, now: Instant) -> None:
        """Begin the syncs that are due: at most one per directory is in flight."""
        for directory in self.directories:
            is_due = directory.sync_at_us is not None and directory.is_sync_due(now)
            if is_due and (files := directory.begin_sync(now)) is not None:
                self._continuations.sync(files, directory.log_dir.path, partial(self._synced, directory))

    def tick(self, now: Instant) -> None:
        """Begin the jobs that are due, and open the logs for which a disk has room again."""
        for directory in self.directories:
            if directory.is_checkpoint_due(now):
                self._checkpoints_running += 1
                self._jobs.run(directory.begin_checkpoint(), partial(self._checkpointed, directory))
            elif directory.are_recovery_points_due(now):
                self._checkpoints_running += 1
                self._jobs.run_in_steps(
                    directory.begin_recovery_points(), partial(self._checkpointed, directory)
                )
        if look_for_room(self.directories, self.retention, self._removals, now):
            awaiting, self._awaits_room = self._awaits_room, {}
            self._openings.go_on_renaming()
            self.truncations.go_on()
            self._open(awaiting, now)
        self.retention.begin_due(self, now)
        self._removals.begin_due(now)
        self.cleaning.begin_due(now)
        self.moving.begin_due(now)

    def deadline(self) -> Micros | None:
        """The next time at which a sync, checkpoint, compaction or check of retention is due."""
        earliest = earlier(self.retention.deadline(), self._removals.deadline())
        for directory in self.directories:
            earliest = earlier(earliest, directory.deadline())
        if self.moving.moves:
            earliest = earlier(earliest, self.moving.deadline())
        return earlier(earliest, self.cleaning.deadline())

    def hurry(self) -> None:
        """Make everything appended durable as soon as possible."""
        for directory in self.directories:
            directory.hurry()

    def _synced(self, directory: ReplicaDirectory, result: StorageError | None, now: Instant) -> None:
        if result is not None:
            directory.storage_failed(result)
        elif directory.error is None:
            self._producer_snapshots.begin(directory, directory.synced(now))
        self.moving.advance(now)

    def _checkpointed(self, directory: ReplicaDirectory, result: StorageError | None, now: Instant) -> None:
        self._checkpoints_running -= 1
        directory.checkpoint_finished(result, now)
        for removal in directory.take_forgotten():
            self._removals.add(removal)
        self.retention.log_starts_written()

    def _job_finished(self, now: Instant) -> None:
        """Process the end of a job, which may have released a file or a name."""
        self.truncations.begin(now)
        self.moving.advance(now)
        waiting, self._waiting = self._waiting, {}
        self._open(waiting, now)

    @property
    def is_congested(self) -> bool:
        """Whether some directory has so many unsynced bytes that producers should pause."""
        return any(directory.is_congested for directory in self.directories)

    @property
    def is_quiet(self) -> bool:
        """Whether everything appended is durable, or can never be, and no checkpoint is being written."""
        return (
            self.cleaning.is_quiet
            and self.moving.is_quiet
            and self.retention.is_quiet
            and self._openings.is_quiet
            and self.truncations.is_quiet
            and self._checkpoints_running == 0
            and self._removals.is_quiet
            and all(directory.is_quiet for directory in self.directories)
        )

    def stop(self) -> None:
        """Begin no more jobs except those that a clean stop needs."""
        self.retention.stop()
        self._removals.stop()
        self._openings.stop()
        self._waiting.clear()
        self._awaits_room.clear()
        self.cleaning.stop()
        self.moving.stop()

    def close(self, now: Instant) -> None:
        """Close every log cleanly, with its checkpoints; offline directories are left as they are."""
        self.moving.close()
        for directory in [one for one in self.directories if one.error is None]:
            try:
                self.truncations.check_close(directory)
                directory.log_dir.close(directory.high_watermarks(), now)
            except StorageError as error:
                if error.is_full:
                    # All acknowledged records are durable; the next start scans the logs, as after a crash.
                    self._trace(
                        "log-directory-not-closed-cleanly", path=directory.log_dir.path, **error.fields
                    )
                else:
                    directory.storage_failed(error)


def has_room(directories: Sequence[ReplicaDirectory], now: Instant) -> bool:
    """Whether one of the directories has space for a new partition: its reserve is free."""
    return any(directory.error is None and directory.room.has_room(now) for directory in directories)


def look_for_room(
    directories: Sequence[ReplicaDirectory], retention: Retention, removals: Removals, now: Instant
) -> bool:
    """Whether work that was postponed for lack of space is due; while a disk is full, retention runs
    at once.
    """
    is_due = False
    for directory in directories:
        if directory.error is None and directory.room.is_look_due(now):
            is_due = True
            if directory.room.is_full:
                retention.hurry(now)
                removals.hurry(now)
            else:
                directory.log_dir.keep_ballast()
    return is_due


def unreadable(directories: Sequence[ReplicaDirectory], file: Sliceable, error: StorageError) -> None:
    """Take the partition offline whose file could not be read while it was sent, unless the partition has
    closed the file since.

    The path does not identify it: a cleaned segment, or a new topic, may have the name of a file that readers
    still hold open.
    """
    for directory in directories:
        for partition in list(directory.partitions):
            if not partition.log.is_closed and any(
                segment.file is file for segment in partition.log.segments.all
            ):
                directory.partition_failed(partition, error)
