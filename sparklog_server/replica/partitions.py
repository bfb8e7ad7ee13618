"""Every partition this node holds, kept in step with the metadata image, over all its log directories."""

from collections.abc import Callable, Iterable, Iterator

from sparklog.effects import Effect, Run, Sync
from sparklog.errors import ErrorCode
from sparklog.model import (
    NO_EPOCH,
    ZERO_UUID,
    Instant,
    LeaderEpoch,
    Micros,
    NodeId,
    Offset,
    Ticket,
    TopicPartition,
    Uuid,
    earlier,
)
from sparklog_server.disk.door import StorageError
from sparklog_server.log.beginning import Wanted
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.metadata.image import TOPIC_RESOURCE, MetadataDelta, MetadataImage, PartitionImage
from sparklog_server.replica.directory import ReplicaDirectory, Trace
from sparklog_server.replica.disks import look_for_room
from sparklog_server.replica.homes import Homes
from sparklog_server.replica.log_cleaner import LogCleaner
from sparklog_server.replica.openings import IN_TURN_MAX, Begun, Openings
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.producer_snapshots import ProducerSnapshots
from sparklog_server.replica.removals import Removals
from sparklog_server.replica.replica_moves import ReplicaMoves
from sparklog_server.replica.retention import Retention


class Partitions:
    """The partitions of this node by topic and index.

    `jobs` collects the jobs that follow from finished ones, `led` the partitions whose leadership begins; the
    broker drains both each turn. Invariants: a topic's entry
    exists only while the image places at least one of its partitions here; whoever it places here is open,
    in `_wanted` or in `_offline`. A wanted one waits while a job or a checkpoint may still touch or name
    an earlier log of its name.
    """

    def __init__(
        self,
        node_id: NodeId,
        directories: list[ReplicaDirectory],
        *,
        tickets: Callable[[], Ticket],
        settings_for: Callable[[str], LogConfig],
        in_sync_min_for: Callable[[str], int],
        waits_for_sync: Callable[[str, int], bool],
        parked_max: int,
        retention: Retention,
        removals: Removals,
        is_missing_directories: bool,
        trace: Trace,
    ) -> None:
        """`is_missing_directories` says that one at least could not be opened: logs may lie in it."""
        self.jobs: list[Run] = []
        self._node_id = node_id
        self.directories = directories
        self._tickets = tickets
        self._settings_for = settings_for
        self._in_sync_min_for = in_sync_min_for
        self._waits_for_sync = waits_for_sync
        self._parked_max = parked_max
        self._offline: dict[
            TopicPartition, None
        ] = {}  # the image places them here, in a directory that cannot be used
        self._trace = trace
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._syncs: dict[Ticket, ReplicaDirectory] = {}
        self._checkpoints: dict[Ticket, ReplicaDirectory] = {}
        self.led: list[Partition] = []
        self._openings = Openings(removals, tickets=tickets)
        self.retention = retention
        self._removals = removals
        self._producer_snapshots = ProducerSnapshots(tickets)
        self._wanted: dict[TopicPartition, tuple[Uuid, PartitionImage]] = {}
        self._waiting: dict[TopicPartition, None] = {}  # of the wanted, those whose names are held
        self._awaits_room: dict[
            TopicPartition, None
        ] = {}  # of the wanted, those that a full disk did not let begin
        self.cleaning: LogCleaner | None = None
        self.moving: ReplicaMoves | None = None
        self._homes = Homes(
            directories,
            is_missing=is_missing_directories,
            settings_for=settings_for,
            remove=self._openings.remove,
            trace=trace,
        )

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition, or None if it is not on this node."""
        partitions = self._by_topic.get(topic)
        return None if partitions is None else partitions.get(index)

    def absence(self, topic: str, index: int) -> ErrorCode:
        """Why `find` gives nothing."""
        topic_partition = TopicPartition(topic, index)
        if topic_partition in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        # A client asks again for either code; this one does not have it doubt the topic.
        is_wanted = topic_partition in self._wanted
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_wanted else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def has_offline(self) -> bool:
        """Whether `is_offline` may be true of any partition."""
        return bool(self._offline) or any(directory.has_offline for directory in self.directories)

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether this node holds a partition that its disk keeps it from serving."""
        partition = self.find(topic, index)
        if partition is None:
            return TopicPartition(topic, index) in self._offline
        return partition.error is ErrorCode.KAFKA_STORAGE_ERROR

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
        effects.extend(self._open([changed.topic_partition for changed in delta.partitions_changed], now))
        for resource_type, name in delta.configs_changed:
            if resource_type == TOPIC_RESOURCE:
                self._reconfigure(name, delta.after, now)
        if delta.before.offset < 0:
            self._homes.set_strays_aside(self._offline.keys() | self._wanted.keys(), now)
            effects.extend(self._discard_copies())
            for directory in self.directories:
                if directory.error is None:
                    directory.remove_left_overs(now)
        effects.extend(self.jobs)
        self.jobs.clear()
        return effects

    def _discard_copies(self) -> list[Run]:
        """After the first image: the copies of logs that no topic claims, or that are of another topic of
        the name.
        """
        if self.moving is None:
            return []
        online = [directory for directory in self.directories if directory.error is None]
        paths = [
            path
            for directory in online
            for topic_partition in sorted(
                directory.log_dir.futures.keys() - self._offline.keys() - self._wanted.keys()
            )
            for path in directory.log_dir.take_futures(topic_partition)
        ]
        return self.moving.discard(paths)

    def _follow(
        self, topic_partition: TopicPartition, topic_id: Uuid, placement: PartitionImage, now: Instant
    ) -> None:
        partition = self.find(topic_partition.topic, topic_partition.partition)
        if partition is None:
            self._offline.pop(topic_partition, None)
            self._wanted[topic_partition] = topic_id, placement
            return
        self._place(partition, placement, now)

    def reconfigure(self, image: MetadataImage, now: Instant) -> None:
        """What topics take their defaults from changed."""
        for topic in self._by_topic:
            self._reconfigure(topic, image, now)

    def _reconfigure(self, topic: str, image: MetadataImage, now: Instant) -> None:
        partitions = self._by_topic.get(topic, {})
        if not partitions:
            return
        settings, in_sync_min = self._settings_for(topic), self._in_sync_min_for(topic)
        for partition in partitions.values():
            partition.settings = settings
            if self.cleaning is not None:
                self.cleaning.watch(partition)
            partition.in_sync_min = in_sync_min
            placement = image.partition(partition.topic_partition)
            if placement is not None:
                partition.wait_for_sync(self._waits_for_sync(topic, len(placement.replicas)), now)

    # -- begin and open

    def _open(self, names: Iterable[TopicPartition], now: Instant) -> list[Run]:
        """Open those of these that are wanted and whose names are free; logs that are yet to be made are
        made by jobs if they are many.
        """
        settings: dict[str, LogConfig] = {}
        missing: dict[ReplicaDirectory, list[Wanted]] = {}
        for topic_partition in names:
            if topic_partition not in self._wanted:
                continue
            topic_id, placement = self._wanted[topic_partition]
            assigned = placement.directory_of(self._node_id)
            settled = self._homes.settle(topic_partition, topic_id, assigned, now)
            if settled is None:
                self._awaits_room[topic_partition] = None
                continue
            self.jobs.extend(settled)
            home = self._homes.find(
                topic_partition,
                topic_id,
                assigned,
                wish=None if self.moving is None else self.moving.wishes.get(topic_partition),
                loads=lambda directory: len(directory.partitions) + self._openings.awaited(directory),
                missing=missing,
            )
            if home is None:
                self._trace("partition-has-no-directory", partition=str(topic_partition))
            if home is None or not self._is_usable(topic_partition, topic_id, home, now):
                if topic_partition not in self._awaits_room:
                    self._give_up(topic_partition)
                continue
            log = home.log_dir.logs.get(topic_partition)
            if log is not None:
                self._serve(log, home, placement, now)
            elif self._is_name_held(topic_partition, home, now):
                self._waiting[topic_partition] = None
            else:
                topic = topic_partition.topic
                if topic not in settings:
                    settings[topic] = self._settings_for(topic)
                missing.setdefault(home, []).append(
                    Wanted(topic_partition, topic_id, settings[topic], self._led_epoch(placement))
                )
        if sum(map(len, missing.values())) > IN_TURN_MAX:
            return [
                run for home, wanted in missing.items() for run in self._openings.begin(home, wanted, now)
            ]
        for home, wanted in missing.items():
            for one in wanted:
                self._begin(one, home, now)
        return []

    def _led_epoch(self, placement: PartitionImage) -> LeaderEpoch:
        """The epoch in which this node leads; -1 if another does."""
        return placement.leader_epoch if placement.leader == self._node_id else NO_EPOCH

    def _is_usable(
        self, topic_partition: TopicPartition, topic_id: Uuid, home: ReplicaDirectory, now: Instant
    ) -> bool:
        """Whether what lies in a directory under this name can be opened, or nothing does; the log of
        another topic is set aside.
        """
        log_dir = home.log_dir
        found = log_dir.damaged.get(topic_partition) or log_dir.logs.get(topic_partition)
        if found is None:
            return True
        try:
            if found.topic_id not in (topic_id, ZERO_UUID):
                self._trace(
                    "stray-log-set-aside",
                    partition=str(topic_partition),
                    path=log_dir.set_aside(topic_partition),
                )
            elif topic_partition in log_dir.damaged:
                return False
            elif found.topic_id == ZERO_UUID:
                # A crash came before the first sync of partition.metadata: the directory was made for the
                # topic of this name.
                log_dir.identify(topic_partition, topic_id)
        except StorageError as error:
            if error.is_full:
                home.room.ran_out(error, now)
                self._awaits_room[topic_partition] = None
            else:
                home.storage_failed(error)
            return False
        return True

    def _is_name_held(self, topic_partition: TopicPartition, home: ReplicaDirectory, now: Instant) -> bool:
        if home.log_dir.is_vouched(topic_partition):
            home.checkpoint_now(now)
            return True
        if topic_partition in self.retention.renaming or self._openings.holds(topic_partition):
            return True
        if self.moving is not None and self.moving.holds(topic_partition, home):
            return True
        return self.cleaning is not None and self.cleaning.holds(topic_partition, home)

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

    def _begun(self, begun: Begun, now: Instant) -> list[Run]:
        """A job has begun logs: serve those that are wanted still."""
        directory = begun.directory
        if begun.is_put_off:
            for name in begun.names:
                if name in self._wanted and name not in self._waiting:
                    self._awaits_room[name] = None
            return []
        if directory.error is not None:
            for name in begun.names:
                if (
                    name not in self._waiting
                ):  # else it is asked for anew: another topic may have the name by now
                    self._give_up(name)
            return []
        doomed = []
        for log in begun.logs:
            directory.log_dir.adopt(log)
            topic_id, placement = self._wanted.get(log.topic_partition, (None, None))
            if placement is not None and topic_id == log.topic_id:
                self._serve(log, directory, placement, now)
            else:
                doomed.append(log.topic_partition)
        return self._openings.remove(directory, doomed)

    def _serve(
        self, log: PartitionLog, home: ReplicaDirectory, placement: PartitionImage, now: Instant
    ) -> None:
        """Open a partition on its log."""
        topic_partition = log.topic_partition
        topic = topic_partition.topic
        del self._wanted[topic_partition]
        siblings = self._by_topic.setdefault(topic, {})
        sibling = next(iter(siblings.values()), None)
        log.settings = self._settings_for(topic) if sibling is None else sibling.settings
        partition = Partition(
            log,
            home,
            node_id=self._node_id,
            high_watermark=home.log_dir.high_watermarks.get(topic_partition, Offset(0)),
            waits_for_sync=self._waits_for_sync(topic, len(placement.replicas)),
            parked_max=self._parked_max,
        )
        partition.in_sync_min = self._in_sync_min_for(topic) if sibling is None else sibling.in_sync_min
        home.partitions[partition] = None
        if log.leftovers:
            home.mark_dirty(
                partition, 0, now
            )  # with its epochs, for where it begins is not told by these files for long
        if self.cleaning is not None:
            self.cleaning.watch(partition)
        siblings[topic_partition.partition] = partition
        if self.moving is not None:
            self.jobs.extend(
                self.moving.serve(partition, home, self.directories, placement.directory_of(self._node_id))
            )
        self._place(partition, placement, now)

    def _give_up(self, topic_partition: TopicPartition) -> None:
        if self._wanted.pop(topic_partition, None) is not None:
            self._offline[topic_partition] = None

    def _place(self, partition: Partition, placement: PartitionImage, now: Instant) -> None:
        topic = partition.topic_partition.topic
        partition.wait_for_sync(self._waits_for_sync(topic, len(placement.replicas)), now)
        if partition.placed(placement, now):
            self.led.append(partition)

    def _remove(self, topic: str) -> list[Effect]:
        effects: list[Effect] = []
        self._wanted = {one: wanted for one, wanted in self._wanted.items() if one.topic != topic}
        self._waiting = {one: None for one in self._waiting if one.topic != topic}
        self._awaits_room = {one: None for one in self._awaits_room if one.topic != topic}
        self._offline = {one: None for one in self._offline if one.topic != topic}
        self._openings.forget(topic)
        partitions = self._by_topic.pop(topic, {})
        for partition in partitions.values():
            partition.close()
            if self.moving is not None:
                effects.extend(self.moving.removed(partition))
        for directory in self.directories:
            removed = [
                partition
                for partition in partitions.values()
                if directory.partitions.pop(partition, partition) is None
            ]
            if directory.error is None:
                doomed = [one for one in directory.log_dir.damaged if one.topic == topic]
                for partition in removed:
                    doomed.append(partition.topic_partition)
                    if self.cleaning is not None:
                        self.cleaning.removed(partition, directory)
                effects.extend(self._openings.remove(directory, doomed))
        return effects

    # -- syncs

    def due_syncs(self, now: Instant) -> list[Sync]:
        """The syncs that should begin now: at most one per directory is in flight."""
        syncs = []
        for directory in self.directories:
            if directory.sync_at_us is not None and directory.is_sync_due(now):
                ticket = self._tickets()
                sync = directory.begin_sync(ticket, now)
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
            elif directory.are_recovery_points_due(now):
                ticket = self._tickets()
                self._checkpoints[ticket] = directory
                runs.append(Run(directory.begin_recovery_points(), ticket, in_steps=True))
        return runs

    def due_openings(self, now: Instant) -> list[Run]:
        """The jobs that begin the logs for which there was no room, tried while a disk is full and once it
        is not.
        """
        if not look_for_room(self.directories, self.retention, self._removals, now):
            return []
        awaiting, self._awaits_room = self._awaits_room, {}
        runs = [*self._openings.go_on_renaming(), *self._open(awaiting, now), *self.jobs]
        self.jobs.clear()
        return runs

    def due_cleaning(self, now: Instant) -> list[Run]:
        """The jobs of compaction, and of moves between directories, that should begin now."""
        runs = [] if self.cleaning is None else self.cleaning.due_jobs(now)
        return runs if self.moving is None else runs + self.moving.due_jobs(now)

    def due_retention(self, now: Instant) -> list[Run]:
        """The jobs of retention, and of removals, that should begin now."""
        return self.retention.due_jobs(self, now) + self._removals.due_jobs(now)

    def deadline(self) -> Micros | None:
        """When the next sync, checkpoint, compaction or check of retention is due."""
        earliest = earlier(self.retention.deadline(), self._removals.deadline())
        for directory in self.directories:
            earliest = earlier(earliest, directory.deadline())
        if self.moving is not None and self.moving.moves:
            earliest = earlier(earliest, self.moving.deadline())
        return earliest if self.cleaning is None else earlier(earliest, self.cleaning.deadline())

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
                synced = directory.synced(now)
                self.jobs.extend(self._producer_snapshots.begin(directory, synced))
            if self.moving is not None:
                self.jobs.extend(self.moving.advance(now))
            return True
        directory = self._checkpoints.pop(ticket, None)
        if directory is not None:
            directory.checkpoint_finished(result if isinstance(result, StorageError) else None, now)
            for removal in directory.take_forgotten():
                self._removals.add(removal)
            self.retention.log_starts_written()
        elif not self._job_finished(ticket, result, now):
            return False
        if self.moving is not None:
            self.jobs.extend(self.moving.advance(now))
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            self.jobs.extend(self._open(waiting, now))
        return True

    def _job_finished(self, ticket: Ticket, result: object, now: Instant) -> bool:
        opened = self._openings.finished(ticket, result, now)
        if opened is not None:
            begun, runs = opened
            self.jobs.extend(runs)
            if begun is not None:
                self.jobs.extend(self._begun(begun, now))
            return True
        for owner in (self._removals, self.retention, self._producer_snapshots, self.cleaning, self.moving):
            followed = None if owner is None else owner.finished(ticket, result, now)
            if followed is not None:
                self.jobs.extend(followed)
                return True
        return False

    @property
    def is_congested(self) -> bool:
        """Whether some directory is so far behind that producers should pause."""
        return any(directory.is_congested for directory in self.directories)

    @property
    def is_quiet(self) -> bool:
        """Whether everything appended is durable, as far as it ever will be, and no checkpoint is being
        written.
        """
        is_clean = self.cleaning is None or self.cleaning.is_quiet
        is_moved = self.moving is None or self.moving.is_quiet
        is_settled = (
            is_clean
            and is_moved
            and self.retention.is_quiet
            and self._openings.is_quiet
            and not self._checkpoints
        )
        return (
            is_settled
            and self._removals.is_quiet
            and all(directory.is_quiet for directory in self.directories)
        )

    # -- endings

    def stop(self) -> None:
        """Begin no job any more that is not needed for a clean stop."""
        self.retention.stop()
        self._removals.stop()
        self._openings.stop()
        self._waiting.clear()
        self._awaits_room.clear()
        if self.cleaning is not None:
            self.cleaning.stop()
        if self.moving is not None:
            self.moving.stop()

    def close(self, now: Instant) -> None:
        """Close every log cleanly, with its checkpoints; offline directories are left as they are."""
        if self.moving is not None:
            self.moving.close()
        for directory in self.directories:
            if directory.error is not None:
                continue
            try:
                directory.log_dir.close(directory.high_watermarks(), now)
            except StorageError as error:
                if error.is_full:
                    # All that was promised is durable: the next start scans the logs, as after a crash.
                    self._trace(
                        "log-directory-not-closed-cleanly", path=directory.log_dir.path, reason=str(error)
                    )
                else:
                    directory.storage_failed(error)
