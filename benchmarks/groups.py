"""The cost of the coordinator of classic groups: a heartbeat, a whole rebalance by the number of members, a
member's memory, a reload.

The shard alone, in one process, with a virtual clock: no sockets, no log.

    python -m benchmarks.groups
"""

import gc
import time
import tracemalloc
from collections.abc import Callable

from benchmarks import harness
from sparklog.model import Instant, Micros, Millis, Offset
from sparklog.wire.messages.consumer_protocol import ConsumerProtocolSubscription, encode_prefixed
from sparklog.wire.messages.heartbeat import HeartbeatRequest
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from sparklog.wire.schema import Message
from sparklog_server.coordinator.command import Command
from sparklog_server.coordinator.group.group_config import GroupConfig
from sparklog_server.coordinator.group.shard import GroupShard
from sparklog_server.coordinator.shard import CoordinatorRecord, Decision
from sparklog_server.metadata.image import MetadataImage

METADATA = encode_prefixed(ConsumerProtocolSubscription(["events"]), 3)
HEARTBEATS = 100_000


class Coordinator:
    """One shard, its clock and its log."""

    def __init__(self) -> None:
        self._calls = 0
        self.now = Instant(Micros(0), Millis(1_700_000_000_000))
        self.log: list[CoordinatorRecord] = []
        self.shard = self.loaded_shard()

    def _entropy(self, size: int) -> bytes:
        self._calls += 1
        return self._calls.to_bytes(size, "big")

    def loaded_shard(self) -> GroupShard:
        settings = GroupConfig(initial_rebalance_delay_ms=0)
        shard = GroupShard(
            settings, entropy=self._entropy, trace=lambda *_, **__: None, record_bytes_max=lambda: 1 << 30
        )
        for offset, record in enumerate(self.log):
            shard.replay(record.key, record.value, Offset(offset))
        shard.loaded(MetadataImage(), self.now)
        return shard

    def decide(self, request: Message, version: int) -> Decision:
        decision = self.shard.decide(Command(request, version, "client", "/127.0.0.1"), object(), self.now)
        self._replay(decision)
        return decision

    def tick(self) -> list[Decision]:
        decisions = self.shard.tick(self.now)
        for decision in decisions:
            self._replay(decision)
        return decisions

    def _replay(self, decision: Decision) -> None:
        for record in decision.records:
            self.shard.replay(record.key, record.value, Offset(len(self.log)))
            self.log.append(record)

    def join(self, group_id: str, members: int) -> list[str]:
        """A new group of so many members, all joined, balanced and stable; their ids."""
        for _ in range(members):
            self.decide(_join(group_id), 3)
        replies = [answer.reply for decision in self.tick() for answer in decision.answers]
        leader, member_ids = "", []
        for reply in replies:
            assert isinstance(reply, JoinGroupResponse)
            leader = reply.leader
            member_ids.append(reply.member_id)
        assignments = [SyncGroupRequestAssignment(member_id, b"assigned") for member_id in member_ids]
        for member_id in member_ids:
            self.decide(
                SyncGroupRequest(
                    group_id, 1, member_id, assignments=assignments if member_id == leader else []
                ),
                3,
            )
        return member_ids


def _join(group_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id, 45_000, 300_000, "", None, "consumer", [JoinGroupRequestProtocol("range", METADATA)]
    )


def _heartbeats(coordinator: Coordinator, members: list[tuple[str, str]]) -> Callable[[], None]:
    """So many heartbeats, round and round over members of groups; the requests are there before."""
    commands = [
        Command(HeartbeatRequest(group_id, 1, member_id), 4, "client", "/127.0.0.1")
        for group_id, member_id in members
    ]
    rounds = HEARTBEATS // len(commands)
    decide, now = coordinator.shard.decide, coordinator.now

    def run() -> None:
        for _ in range(rounds):
            for command in commands:
                decide(command, None, now)

    return run


def _seconds(run: Callable[[], object]) -> float:
    """Processor time: the machine may have other things to do."""
    gc.collect()
    started = time.process_time()
    run()
    return time.process_time() - started


def main() -> None:
    """Measure, and print the table."""
    options = harness.options(__doc__)
    figures = harness.Figures("groups")
    for _ in range(options.repeats):
        for members in (100, 1_000, 3_000, 10_000):
            coordinator = Coordinator()
            elapsed = _seconds(
                lambda coordinator=coordinator, members=members: coordinator.join("g", members)
            )  # type: ignore[misc]
            figures.add(f"{members} members join and sync, each", "µs", "sparklog", elapsed / members * 1e6)
        coordinator = Coordinator()
        one = [("g", member_id) for member_id in coordinator.join("g", 3_000)]
        figures.add(
            "heartbeat, one group of 3 000",
            "µs",
            "sparklog",
            _seconds(_heartbeats(coordinator, one)) / HEARTBEATS * 1e6,
            bound="<= 3",
        )
        coordinator = Coordinator()
        many = [
            (f"g{number}", member_id)
            for number in range(1_000)
            for member_id in coordinator.join(f"g{number}", 3)
        ]
        figures.add(
            "heartbeat, 1 000 groups of 3",
            "µs",
            "sparklog",
            _seconds(_heartbeats(coordinator, many)) / HEARTBEATS * 1e6,
            bound="<= 3",
        )
        figures.add(
            "replay of a record of 3 members",
            "µs",
            "sparklog",
            _seconds(coordinator.loaded_shard) / len(coordinator.log) * 1e6,
        )
        figures.add("a member's memory", "bytes", "sparklog", _bytes_per_member())
    figures.report(options)


def _bytes_per_member() -> float:
    coordinator = Coordinator()
    gc.collect()
    tracemalloc.start()
    coordinator.join("g", 3_000)
    coordinator.log.clear()
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / 3_000


if __name__ == "__main__":
    main()
