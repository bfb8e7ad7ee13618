"""The group coordinator of this broker: its shards over the partitions of `__consumer_offsets` that this node leads.

A request goes to the shard of its group as a command with a token; what comes back goes to the token, which knows whose answer it is.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from sparklog.effects import FileSlice, Run
from sparklog.errors import ErrorCode
from sparklog.model import Instant, LeaderEpoch, Micros, Offset, Ticket
from sparklog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from sparklog_server.broker.authorization import Allow, Operation, Resource
from sparklog_server.broker.internal_topics import OFFSETS_TOPIC
from sparklog_server.broker.live_settings import LiveSettings
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.coordinator.command import Command
from sparklog_server.coordinator.group.modern_kind import ModernGroupKind
from sparklog_server.coordinator.group.settings import GroupSettings
from sparklog_server.coordinator.group.shard import RECORD_BYTES_MAX, GroupShard
from sparklog_server.coordinator.placement import partition_for
from sparklog_server.coordinator.runtime import Runtime, ShardWaits
from sparklog_server.coordinator.shard import Answer
from sparklog_server.log.answers import OffsetOutOfRange
from sparklog_server.log.validate import RecordsRefused
from sparklog_server.metadata.image import MetadataDelta, PartitionImage
from sparklog_server.outcome import Refused
from sparklog_server.replica.directory import Trace
from sparklog_server.replica.partition import Partition, PartitionUnavailable


class LedPartition:
    """A partition of this node as a shard's home: `ShardPartition` over `Partition`."""

    __slots__ = ("_partition",)

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    @property
    def leader_epoch(self) -> LeaderEpoch | None:
        leader = self._partition.leader
        return None if leader is None else leader.leader_epoch

    @property
    def log_start_offset(self) -> Offset:
        return self._partition.log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return self._partition.log.log_end_offset

    @property
    def high_watermark(self) -> Offset:
        return self._partition.high_watermark

    @property
    def batch_bytes_max(self) -> int:
        return self._partition.log.settings.max_message_bytes

    def append(self, batch: bytearray, now: Instant) -> Offset:
        try:
            return self._partition.append(memoryview(batch), now).base_offset
        except PartitionUnavailable as unavailable:
            raise Refused(unavailable.code) from unavailable
        except RecordsRefused as refused:
            raise Refused(refused.code, refused.message) from refused

    def park(self, until: Offset, token: object) -> None:
        # One token at a time: clients that wait for this partition in great numbers shall not keep its groups from their answers.
        self._partition.park(until, token, is_ours=True)

    def read(self, start: Offset, limit: Offset, bytes_max: int) -> FileSlice | None:
        try:
            return self._partition.read(start, limit, bytes_max, at_least_one=True)
        except PartitionUnavailable as unavailable:
            raise Refused(ErrorCode.NOT_COORDINATOR, unavailable.code.name) from unavailable
        except OffsetOutOfRange as refused:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(refused)) from refused


class Groups:
    """The coordinator of groups. `is_asked` tells that the topic of the offsets is on its way."""

    def __init__(
        self,
        live: LiveSettings,
        allow: Allow,
        *,
        tickets: Callable[[], Ticket],
        entropy: Callable[[int], bytes],
        trace: Trace,
    ) -> None:
        self._settings = live.settings
        group_settings = group_settings_of(live.settings)

        def describable(command: Command, topics: Sequence[str]) -> list[str]:
            return [topic for topic in topics if allow(command.principal, Operation.DESCRIBE, Resource.TOPIC, topic)]

        make_modern = partial(
            ModernGroupKind,
            settings=lambda: group_settings_of(live.settings),
            entropy=entropy,
            describable=describable,
            record_bytes_max=RECORD_BYTES_MAX,
        )
        self.runtime = Runtime(
            OFFSETS_TOPIC,
            lambda: GroupShard(group_settings, entropy=entropy, trace=trace, make_modern=make_modern),
            tickets=tickets,
            entropy=entropy,
            trace=trace,
        )
        self.partition_count = 0  # of those that keep groups; 0 before their topic exists
        self.is_asked = False
        self._partitions: tuple[PartitionImage, ...] = ()

    # -- where groups are

    @property
    def is_settled(self) -> bool:
        """Whether every group there may be can be asked, or is in a partition that does not serve and will not soon."""
        count = self.partition_count
        return count > 0 and not self._is_coming(range(count))

    def is_coming(self, group_ids: Sequence[str]) -> bool:
        """Whether one of these groups cannot be asked yet, and may be soon."""
        count = self.partition_count
        if not count:
            return True
        # All are up to date, nearly always.
        return self.runtime.loaded_count < count and self._is_coming([partition_for(group_id, count) for group_id in group_ids])

    def _is_coming(self, indexes: Iterable[int]) -> bool:
        node_id = self._settings.node_id
        return any(self._partitions[index].leader == node_id and self.runtime.is_coming(index) for index in indexes)

    def shard_of(self, group_id: str) -> int | None:
        """The partition that keeps a group; None before the topic exists."""
        count = self.partition_count
        return partition_for(group_id, count) if count else None

    def topic_wanted(self) -> CreateTopicsRequest:
        """The command that creates the topic of the offsets."""
        settings = self._settings
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.offsets_topic_segment_bytes),
        }
        return CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=OFFSETS_TOPIC,
                    num_partitions=settings.offsets_topic_num_partitions,
                    replication_factor=settings.offsets_topic_replication_factor,
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
                )
            ],
            timeout_ms=30_000,
        )

    def shards(self) -> list[int]:
        """The partitions whose groups this node keeps, in order."""
        return self.runtime.shards()

    # -- what happens to the partitions

    def led(self, partition: Partition, now: Instant) -> None:
        """This node has become the leader of a partition."""
        if partition.topic_partition.topic == OFFSETS_TOPIC:
            self.runtime.elected(partition.topic_partition.partition, LedPartition(partition), now)

    def published(self, delta: MetadataDelta, now: Instant) -> None:
        """The metadata changed."""
        topic = delta.after.topics_by_name.get(OFFSETS_TOPIC)
        self._partitions = () if topic is None else topic.partitions
        self.partition_count = len(self._partitions)
        self.runtime.check()
        self.runtime.image_changed(delta, now)

    def check(self) -> None:
        """Drop the shards whose partitions are no longer led here."""
        self.runtime.check()

    # -- commands

    def send(self, group_id: str, command: Command, token: object, now: Instant) -> ErrorCode:
        """Have the shard of a group decide; NONE if it took the command up and `token` will be answered."""
        count = self.partition_count
        if not count:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.runtime.decide(partition_for(group_id, count), command, token, now)

    def send_to_shard(self, index: int | None, command: Command, token: object, now: Instant) -> ErrorCode:
        """Have one shard decide, of those that `shard_of` and `shards` give."""
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if index is None else self.runtime.decide(index, command, token, now)

    def abandoned(self, group_id: str, token: object) -> None:
        """The connection of whoever waits by `token` is gone."""
        index = self.shard_of(group_id)
        if index is not None:
            self.runtime.abandoned(index, token)

    # -- turns

    @property
    def has_news(self) -> bool:
        """Whether something is to be appended, answered or begun."""
        return self.runtime.has_news

    def take(self, now: Instant) -> tuple[list[Answer], list[tuple[object, ErrorCode]], list[Run]]:
        """Append what was gathered; the answers, refusals and jobs that are due."""
        runtime = self.runtime
        runtime.flush(now)
        answers, runtime.answers = runtime.answers, []
        refused, runtime.refused = runtime.refused, []
        jobs, runtime.jobs = runtime.jobs, []
        return answers, refused, jobs

    def woken(self, waits: ShardWaits, now: Instant) -> None:
        """The high watermark of a shard's partition has moved, or it is led no more."""
        self.runtime.woken(waits, now)

    def finished(self, ticket: Ticket, result: object, now: Instant) -> bool:
        """The result of a job of ours; False if the ticket is somebody else's."""
        return self.runtime.finished(ticket, result, now)

    def tick(self, now: Instant) -> None:
        """Time has passed."""
        self.runtime.tick(now)

    def deadline(self) -> Micros | None:
        """When `tick` is wanted next."""
        return self.runtime.deadline()


def group_settings_of(settings: BrokerSettings) -> GroupSettings:
    """What groups are bound by, from the keys of the broker."""
    keys = settings.groups
    return GroupSettings(
        session_timeout_min_ms=keys.min_session_timeout_ms,
        session_timeout_max_ms=keys.max_session_timeout_ms,
        initial_rebalance_delay_ms=keys.initial_rebalance_delay_ms,
        size_max=keys.max_size,
        consumer_session_timeout_ms=keys.consumer_session_timeout_ms,
        consumer_session_timeout_min_ms=keys.consumer_min_session_timeout_ms,
        consumer_session_timeout_max_ms=keys.consumer_max_session_timeout_ms,
        consumer_heartbeat_interval_ms=keys.consumer_heartbeat_interval_ms,
        consumer_heartbeat_interval_min_ms=keys.consumer_min_heartbeat_interval_ms,
        consumer_heartbeat_interval_max_ms=keys.consumer_max_heartbeat_interval_ms,
        consumer_size_max=keys.consumer_max_size,
        consumer_assignors=keys.consumer_assignors,
        consumer_migration_policy=keys.consumer_migration_policy.lower(),
        consumer_regex_refresh_interval_ms=keys.consumer_regex_refresh_interval_ms,
        consumer_assignment_interval_ms=keys.consumer_assignment_interval_ms,
        offset_metadata_bytes_max=settings.offset_metadata_max_bytes,
        offsets_retention_ms=keys.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=keys.offsets_retention_check_interval_ms,
    )
