"""A group shard in virtual time, with clients simulated by the test: its records are replayed at once, and
kept for another replay.
"""

from typing import Any

from sparklog.errors import ErrorCode
from sparklog.model import NodeId, Offset, Uuid
from sparklog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from sparklog.wire.schema import Message
from sparklog_server.coordinator.command import Command
from sparklog_server.coordinator.group.classic_requests import ClassicGroups
from sparklog_server.coordinator.group.group import Group
from sparklog_server.coordinator.group.group_config import GroupConfig
from sparklog_server.coordinator.group.modern import ModernGroup
from sparklog_server.coordinator.group.modern_kind import ModernGroupKind
from sparklog_server.coordinator.group.records import decode_record
from sparklog_server.coordinator.group.shard import GroupShard
from sparklog_server.coordinator.shard import CoordinatorRecord, Decision
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from tests.coordinator.clock import BEGINNING, ticks
from tests.entropy import CountingEntropy

GROUP_CONFIG = 32


class Cluster:
    """Topics, and the settings of groups."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.hidden: set[str] = set()
        self._created = 0

    def create(self, name: str, partitions: int) -> list[Message]:
        self._created += 1
        topic_id = Uuid(self._created.to_bytes(16, "big"))
        return [TopicRecord(name=name, topic_id=topic_id), *self._partitions(topic_id, 0, partitions)]

    def grow(self, name: str, partitions: int) -> list[Message]:
        topic = self.image.topics_by_name[name]
        return self._partitions(topic.topic_id, len(topic.partitions), partitions)

    def delete(self, name: str) -> list[Message]:
        return [RemoveTopicRecord(topic_id=self.image.topics_by_name[name].topic_id)]

    def configure(self, group_id: str, key: str, value: str) -> list[Message]:
        return [ConfigRecord(resource_type=GROUP_CONFIG, resource_name=group_id, name=key, value=value)]

    def name_of(self, topic_id: bytes) -> str:
        topic = self.image.topics_by_id.get(Uuid(topic_id))
        return topic.name if topic else "gone" + str(int.from_bytes(topic_id, "big"))

    def describable(self, command: Command, names: Any) -> list[str]:
        return [name for name in names if name not in self.hidden]

    @staticmethod
    def _partitions(topic_id: Uuid, start: int, limit: int) -> list[Message]:
        node = NodeId(1)
        return [
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[node],
                isr=[node],
                leader=node,
                leader_epoch=0,
                directories=[bytes(16)],
            )
            for index in range(start, limit)
        ]


class ModernWorld:
    """One shard, its clock, its log and its cluster."""

    def __init__(self, **settings: Any) -> None:
        self.settings = GroupConfig(**settings)
        self.cluster = Cluster()
        self.now = BEGINNING
        self.log: list[CoordinatorRecord] = []
        self._answers: dict[object, Message] = {}
        self.entropy = CountingEntropy()
        self._metadata_offset = 0
        self._tokens = 0
        self.shard = self._loaded_shard()

    # -- the shard

    def _loaded_shard(self) -> GroupShard:
        shard = GroupShard(
            self.settings,
            entropy=self.entropy,
            trace=_untraced,
            make_modern=self._modern,
        )
        for offset, record in enumerate(self.log):
            shard.replay(record.key, record.value, Offset(offset))
        for decision in shard.loaded(self.cluster.image, self.now):
            self._take(shard, decision)
        return shard

    def _modern(self, groups: dict[str, Group], classic: ClassicGroups) -> ModernGroupKind:
        self.groups = groups
        return ModernGroupKind(
            groups,
            classic,
            settings=lambda: self.settings,
            entropy=self.entropy,
            describable=self.cluster.describable,
            record_bytes_max=lambda: 1_000_000,
        )

    def _take(self, shard: GroupShard, decision: Decision) -> list[tuple[Message, Message | None]]:
        decoded = []
        for record in decision.records:
            pair = decode_record(record.key, record.value)
            assert pair is not None
            decoded.append(pair)
            shard.replay(record.key, record.value, Offset(len(self.log)))
            self.log.append(record)
        self._answers.update((answer.token, answer.reply) for answer in decision.answers)
        return decoded

    def reload(self) -> None:
        """The shard dies; another one replays its log, and has the same state."""
        before = self.durable()
        self.shard = self._loaded_shard()
        assert self.durable() == before

    def check_replay(self) -> None:
        """Another shard that replays the log has the same state; this one continues."""
        shard, groups, before = self.shard, self.groups, self.durable()
        self._loaded_shard()
        assert self.durable() == before
        self.shard, self.groups = shard, groups

    def durable(self) -> dict[str, object]:
        """The state of KIP-848 groups that must survive a failover."""
        return {
            group_id: _durable(group)
            for group_id, group in sorted(self.groups.items())
            if isinstance(group, ModernGroup)
        }

    def group(self, group_id: str = "g") -> ModernGroup:
        group = self.groups[group_id]
        assert isinstance(group, ModernGroup)
        return group

    # -- time and topics

    def advance(self, millis: float) -> list[tuple[Message, Message | None]]:
        """Let time pass; returns the records of the timers that expired."""
        return [
            pair for decision in ticks(self, int(millis * 1000)) for pair in self._take(self.shard, decision)
        ]

    def change(self, records: list[Message]) -> None:
        """Apply committed metadata."""
        start, self._metadata_offset = self._metadata_offset, self._metadata_offset + len(records)
        pairs = [(Offset(start + index), record) for index, record in enumerate(records)]
        self.cluster.image, delta = self.cluster.image.apply(pairs)
        for decision in self.shard.image_changed(delta, self.now):
            self._take(self.shard, decision)

    def create(self, name: str, partitions: int) -> None:
        self.change(self.cluster.create(name, partitions))

    # -- requests

    def send(
        self, request: Message, version: int = 1, client_id: str = "c", host: str = "/127.0.0.1"
    ) -> object:
        """Send a request; returns its token."""
        return self.decide(request, version, client_id, host)[0]

    def decide(
        self, request: Message, version: int, client_id: str = "c", host: str = "/127.0.0.1"
    ) -> tuple[object, list[tuple[Message, Message | None]]]:
        self._tokens += 1
        token = self._tokens
        decision = self.shard.decide(Command(request, version, client_id, host), token, self.now)
        return token, self._take(self.shard, decision)

    def ask(self, request: Message, version: int = 1, client_id: str = "c") -> Any:
        """Send a request that is answered at once; returns the reply."""
        token = self.send(request, version, client_id)
        return self.answer(token)

    def answer(self, token: object) -> Any:
        """The reply to a request, None if there is none yet."""
        return self._answers.get(token)

    def heartbeat(
        self, member_id: str, epoch: int, group_id: str = "g", version: int = 1, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat with these fields; `topic_partitions` by topic name, if given."""
        owned = fields.pop("owned", None)
        if owned is not None:
            fields["topic_partitions"] = self.owned(owned)
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, **fields
        )
        reply = self.ask(request, version)
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        return reply

    def join(self, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """The first heartbeat of a member that subscribes to these topics."""
        names: dict[str, Any] = (
            {"subscribed_topic_names": list(topics)}
            if topics or "subscribed_topic_regex" not in fields
            else {}
        )
        return self.heartbeat(member_id, 0, rebalance_timeout_ms=60_000, owned={}, **names, **fields)

    def owned(self, partitions: dict[str, list[int]]) -> list[TopicPartitions]:
        by_name = self.cluster.image.topics_by_name
        return [
            TopicPartitions(by_name[name].topic_id, list(indexes)) for name, indexes in partitions.items()
        ]

    def told(self, reply: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
        """The assignment in a reply, by topic name; None if there is none."""
        assert reply.error_code == ErrorCode.NONE, (
            f"{ErrorCode(reply.error_code).name}: {reply.error_message}"
        )
        if reply.assignment is None:
            return None
        return {
            self.cluster.name_of(topic.topic_id): list(topic.partitions)
            for topic in reply.assignment.topic_partitions
        }


def _durable(group: ModernGroup) -> object:
    return (
        group.group_epoch,
        group.metadata_hash,
        group.assignment_epoch,
        group.assignment_timestamp_ms,
        dict(sorted(group.members.items())),
        dict(sorted(group.targets.items())),
        dict(sorted(group.resolved.items())),
        dict(sorted(group.static_members.items())),
        group.classic_count,
        group.has_partition_metadata,
        sorted(group.patterns()),
        sorted(group.names_after()),
    )


def _untraced(_event: str, **_fields: object) -> None:
    """Discard an event."""
