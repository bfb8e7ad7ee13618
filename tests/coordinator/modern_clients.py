"""Clients of KIP-848 that follow the protocol, for a shard in virtual time."""

from collections.abc import Iterable

from sparklog.errors import ErrorCode
from sparklog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.coordinator.modern_world import ModernWorld

REJOIN = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
Place = tuple[bytes, int]


class ModernClient:
    """One member. `owned` are the partitions that it may consume: assigned to it, and not yet revoked."""

    def __init__(
        self,
        world: ModernWorld,
        member_id: str,
        topics: Iterable[str],
        instance_id: str | None = None,
        regex: str = "",
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = sorted(topics)
        self.regex = regex
        self.epoch = 0
        self.owned: set[Place] = set()
        self.assigned: set[Place] = set()
        self.heartbeats = 0
        self.next_us = 0
        self._told: set[Place] | None = None
        self._tells_all = True

    @property
    def is_settled(self) -> bool:
        """It has revoked all partitions that it was asked to revoke."""
        return self.owned == self.assigned

    def subscribe(self, topics: Iterable[str], regex: str = "") -> None:
        self.topics = sorted(topics)
        self.regex = regex
        self._tells_all = True

    def revoke(self) -> None:
        """Revoke the partitions that are no longer assigned."""
        self.owned = set(self.assigned)

    def heartbeat(self, *, is_lost: bool = False) -> None:
        """One heartbeat; if the response is lost, the next one sends all fields again, as clients do."""
        self.heartbeats += 1
        reply = self._send()
        if is_lost:
            self._tells_all = True
            return
        code = ErrorCode(reply.error_code)
        if code in REJOIN:
            self._rejoin()
            return
        if code is ErrorCode.UNRELEASED_INSTANCE_ID:
            return
        assert code is ErrorCode.NONE, f"{code.name} {reply.error_message}"
        self._tells_all = False
        self.epoch = reply.member_epoch
        self.next_us = self.world.now.mono_us + reply.heartbeat_interval_ms * 1000
        if reply.assignment is not None:
            self.assigned = {
                (topic.topic_id, partition)
                for topic in reply.assignment.topic_partitions
                for partition in topic.partitions
            }
            self.owned |= self.assigned
            if not self.is_settled:
                self._told = None  # its next heartbeat must report the revocation

    def leave(self, epoch: int = -1) -> None:
        self.owned = set()
        self.assigned = set()
        self.world.heartbeat(self.member_id, epoch, instance_id=self.instance_id)
        self._rejoin()

    def _rejoin(self) -> None:
        self.epoch = 0
        self.owned = set()
        self.assigned = set()
        self._tells_all = True

    def _send(self) -> ConsumerGroupHeartbeatResponse:
        is_full = self._tells_all or self.epoch == 0
        tells_owned = is_full or self._told != self.owned
        self._told = set(self.owned)
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=30_000 if is_full else -1,
            subscribed_topic_names=self.topics if is_full else None,
            subscribed_topic_regex=self.regex if is_full else None,
            topic_partitions=_listed(self.owned) if tells_owned else None,
        )
        reply = self.world.ask(request)
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        return reply


def _listed(places: set[Place]) -> list[TopicPartitions]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(places):
        topics.setdefault(topic_id, []).append(partition)
    return [TopicPartitions(topic_id, partitions) for topic_id, partitions in topics.items()]
