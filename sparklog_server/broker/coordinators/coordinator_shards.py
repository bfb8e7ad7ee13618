"""The coordinator shards of one internal topic on this node: commands go to the shard of their key, answers
come back by token.

Groups and transactions use it alike, each with its own topic; `group_coordinator` and
`transaction_coordinator` have the differences.
"""

from collections.abc import Callable, Iterable

from sparklog.effects import FileSlice
from sparklog.errors import ErrorCode
from sparklog.model import Instant, LeaderEpoch, NodeId, Offset
from sparklog.record.control import Marker
from sparklog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from sparklog.wire.schema import Message
from sparklog_server.agenda import Agenda
from sparklog_server.broker.session import Call, Wakeable
from sparklog_server.continuations import Continuations
from sparklog_server.coordinator.command import Command, Token
from sparklog_server.coordinator.placement import partition_for
from sparklog_server.coordinator.runtime import CoordinatorRuntime
from sparklog_server.coordinator.shard import Answer, Shard
from sparklog_server.log.partition_log import OffsetOutOfRange
from sparklog_server.log.producers.producer_state import Verification
from sparklog_server.log.producers.validate import RecordsRefused
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import MetadataDelta
from sparklog_server.outcome import Refused
from sparklog_server.replica.directory import Trace
from sparklog_server.replica.leader import PartitionUnavailable
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.transactional import append_in_transaction, append_marker


class LedPartition:
    """Implements `ShardPartition` for a shard with a `Partition` of this node."""

    __slots__ = ("_partition", "_woken")

    def __init__(self, partition: Partition, woken: dict[Wakeable, None]) -> None:
        self._partition = partition
        self._woken = woken

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
        except (PartitionUnavailable, RecordsRefused) as refusal:
            raise _refused(refusal) from refusal

    def append_in_transaction(self, batch: bytearray, proof: object, now: Instant) -> Offset:
        assert proof is None or isinstance(proof, Verification)
        try:
            return append_in_transaction(self._partition, batch, now, proof).base_offset
        except (PartitionUnavailable, RecordsRefused) as refusal:
            raise _refused(refusal) from refusal

    def append_marker(
        self, marker: Marker, producer: tuple[int, int], *, is_bumped: bool, now: Instant
    ) -> Offset:
        producer_id, producer_epoch = producer
        try:
            return append_marker(
                self._partition,
                marker,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                is_bumped=is_bumped,
                now=now,
            ).base_offset
        except (PartitionUnavailable, RecordsRefused) as refusal:
            raise _refused(refusal) from refusal

    def park(self, until: Offset, wake: Callable[[Instant], None]) -> None:
        # Not counted towards the limit of the purgatory: the clients of other requests must not starve the
        # groups. A shard has one waiter at a time.
        self._partition.park(until, _ShardWaiter(wake, self._woken), is_ours=True)

    def read(self, start: Offset, limit: Offset, bytes_max: int) -> FileSlice | None:
        try:
            return self._partition.disk.read(start, limit, bytes_max, at_least_one=True)
        except PartitionUnavailable as unavailable:
            raise Refused(ErrorCode.NOT_COORDINATOR, unavailable.code.name) from unavailable
        except OffsetOutOfRange as refused:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(refused)) from refused


class _ShardWaiter:
    """Wakes a shard when the high watermark of its partition moves, or the role of the partition ends."""

    __slots__ = ("_wake", "_woken")

    call = None

    def __init__(self, wake: Callable[[Instant], None], woken: dict[Wakeable, None]) -> None:
        self._wake = wake
        self._woken = woken

    def released(self) -> None:
        self._woken[self] = None

    def woken(self, now: Instant) -> None:
        self._wake(now)


def _refused(refusal: PartitionUnavailable | RecordsRefused) -> Refused:
    return Refused(refusal.code, refusal.message)


class CoordinatorShards:
    """The shards of one coordinator and the lookups that wait for them. `is_asked`: the creation of the topic
    was requested; `awaited` has the FindCoordinator requests that wait until their shard serves.
    """

    def __init__(
        self,
        topic: CreatableTopic,
        make_shard: Callable[[], Shard],
        continuations: Continuations,
        agenda: Agenda,
        *,
        node_id: int,
        entropy: Callable[[int], bytes],
        trace: Trace,
        sought: Callable[[str, Instant], None] = lambda _key, _now: None,
    ) -> None:
        self.sought = sought
        """Called with every key for which a client looks up the coordinator."""
        self.runtime = CoordinatorRuntime(
            topic.name, make_shard, continuations, agenda, entropy=entropy, trace=trace
        )
        self.topic = topic.name
        self.topic_wanted = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        self.partition_count = 0  # the number of partitions of the topic; 0 before it exists
        self.is_asked = False
        self.replies: list[tuple[Call, Message]] = []  # by token, until `settle` takes them
        self.awaited: dict[Wakeable, None] = {}
        self._agenda = agenda
        self._node_id = node_id
        self._partitions: tuple[PartitionImage, ...] = ()

    # -- the shard of a key

    @property
    def is_settled(self) -> bool:
        """Whether the topic exists and no shard of it is being loaded, or about to be."""
        count = self.partition_count
        return count > 0 and not self._is_coming(range(count))

    def is_coming(self, key: str) -> bool:
        """Whether the shard of this key does not serve yet, and may do so soon."""
        count = self.partition_count
        if not count:
            return True
        # Nearly always every shard is up to date.
        return self.runtime.loaded_count < count and self._is_coming((partition_for(key, count),))

    def _is_coming(self, indexes: Iterable[int]) -> bool:
        node_id = self._node_id
        return any(
            self._partitions[index].leader == node_id and self.runtime.is_coming(index) for index in indexes
        )

    def shard_of(self, key: str) -> int | None:
        """The partition that keeps a key; None before the topic exists."""
        count = self.partition_count
        return partition_for(key, count) if count else None

    def shard_wanted(self, key: str) -> int:
        """The partition that will keep a key, if the topic is made as it is asked for."""
        return partition_for(key, self.topic_wanted.topics[0].num_partitions)

    def has_failed(self, key: str) -> bool:
        """Whether this broker leads the partition of a key, and its shard cannot be loaded."""
        index = self.shard_of(key)
        return index is not None and self.runtime.has_failed(index)

    def leader_epoch(self, key: str) -> LeaderEpoch:
        """The epoch in which the partition of a key is led."""
        return self._partitions[partition_for(key, self.partition_count)].leader_epoch

    def leader_of(self, key: str) -> NodeId | None:
        """The broker that leads the partition of a key, or -1 if none does; None before the topic exists."""
        index = self.shard_of(key)
        return None if index is None else self._partitions[index].leader

    def shards(self) -> list[int]:
        """The partitions whose shards this node runs or has to run, in order."""
        return self.runtime.shards()

    # -- changes of the partitions

    def led(self, partition: Partition, woken: dict[Wakeable, None], now: Instant) -> None:
        """Start the shard of a partition of which this node has become the leader; the shard is woken through
        `woken`.
        """
        if partition.topic_partition.topic == self.topic:
            self.runtime.elected(partition.topic_partition.partition, LedPartition(partition, woken), now)

    def published(self, delta: MetadataDelta, now: Instant) -> None:
        """Take over new metadata."""
        topic = delta.after.topics_by_name.get(self.topic)
        self._partitions = () if topic is None else topic.partitions
        self.partition_count = len(self._partitions)
        self.runtime.check()
        self.runtime.image_changed(delta, now)
        if self.awaited:
            self._agenda.has_coordination = True  # other brokers may lead the shards that are looked up

    def take_awaited(self) -> list[Wakeable]:
        """The lookups that wait for a shard; they are removed."""
        waiting, self.awaited = self.awaited, {}
        return list(waiting)

    def check(self) -> None:
        """Drop the shards whose partitions this node no longer leads."""
        self.runtime.check()

    # -- commands

    def send(self, key: str, command: Command, token: Token, now: Instant) -> ErrorCode:
        """Send a command to the shard of a key; NONE if the shard accepts it, and `token` will be
        answered.
        """
        count = self.partition_count
        if not count:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.runtime.decide(partition_for(key, count), command, token, now)

    def send_to_shard(self, index: int | None, command: Command, token: Token, now: Instant) -> ErrorCode:
        """Send a command to a shard that `shard_of` or `shards` has returned."""
        return (
            ErrorCode.COORDINATOR_NOT_AVAILABLE
            if index is None
            else self.runtime.decide(index, command, token, now)
        )

    def abandoned(self, key: str, token: Token) -> None:
        """Drop the command of `token`: its connection is closed."""
        index = self.shard_of(key)
        if index is not None:
            self.runtime.abandoned(index, token)

    # -- turns

    def take(self, now: Instant) -> tuple[list[Answer], list[tuple[Token, ErrorCode]]]:
        """Append the gathered records; returns the answers and refusals that are due."""
        runtime = self.runtime
        runtime.flush(now)
        answers, runtime.answers = runtime.answers, []
        refused, runtime.refused = runtime.refused, []
        return answers, refused

    def tick(self, now: Instant) -> None:
        """Process the time."""
        self.runtime.tick(now)


def compacted_topic(
    name: str, *, partition_count: int, replication_factor: int, configs: dict[str, str]
) -> CreatableTopic:
    """The description of an internal topic that keeps the last record of each key."""
    configs = {"cleanup.policy": "compact", "compression.type": "producer", **configs}
    return CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
