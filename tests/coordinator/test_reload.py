"""A shard that died is rebuilt with the same state from its whole log, from the records that a load keeps,
and from the compacted log.
"""

from random import Random

import msgspec
import pytest

from sparklog.effects import FileSlice
from sparklog.model import Offset
from sparklog.record.batch import Record, build_batch
from sparklog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from sparklog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from sparklog.wire.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.messages.describe_groups import DescribeGroupsRequest
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from sparklog.wire.messages.list_groups import ListGroupsRequest
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparklog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from sparklog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from sparklog.wire.schema import Message
from sparklog_server.coordinator.group.shard import GroupShard
from sparklog_server.coordinator.group.shard_listing import Filters, GroupIds, ListedGroups
from sparklog_server.coordinator.loader import Window, read_window
from sparklog_server.coordinator.shard import CoordinatorRecord
from tests.coordinator.modern_world import ModernWorld

CLASSIC, MODERN, SIMPLE = ["c0", "c1"], ["m0", "m1"], ["s0", "s1"]
GROUPS = CLASSIC + MODERN + SIMPLE


class History(ModernWorld):
    """Random requests to groups of every type, some of which change their type."""

    def __init__(self, seed: int) -> None:
        super().__init__(initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=0)
        self.random = Random(seed)
        self.create("a", 3)
        self.create("b", 2)
        self.epochs: dict[tuple[str, str], int] = {}
        self.classic: dict[str, tuple[str, int]] = {}
        self.committed = 0

    def step(self) -> None:
        random = self.random
        act = random.choice(
            [
                self.commit,
                self.commit,
                self.beat,
                self.beat,
                self.join_alone,
                self.leave,
                self.forget,
                self.wait,
            ]
        )
        act()

    def commit(self) -> None:
        self.committed += 1
        group = self.random.choice(SIMPLE + CLASSIC)
        member_id, generation = self.classic.get(group, ("", -1))
        part = OffsetCommitRequestPartition(self.random.randrange(3), self.committed)
        topics = [OffsetCommitRequestTopic(name=self.random.choice("ab"), partitions=[part])]
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=topics
        )
        self.send(request, 8)

    def beat(self) -> None:
        group, member = self.random.choice(MODERN + CLASSIC[:1]), self.random.choice(["x", "y", "z"])
        epoch = self.epochs.get((group, member), 0)
        names = self.random.choice([["a"], ["a", "b"]]) if epoch == 0 else None
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
            subscribed_topic_names=names,
            topic_partitions=[] if epoch == 0 else None,
        )
        reply = self.ask(request)
        self.epochs[group, member] = reply.member_epoch if reply.error_code == 0 else 0

    def join_alone(self) -> None:
        """A classic member joins a group, alone or after the previous member was forgotten."""
        group = self.random.choice(CLASSIC)
        if group in self.classic:
            return
        protocols = [JoinGroupRequestProtocol("range", b"subscribed")]
        token = self.send(JoinGroupRequest(group, 10_000, 10_000, "", None, "consumer", protocols), 3)
        self.advance(1)
        reply = self.answer(token)
        if isinstance(reply, JoinGroupResponse) and reply.error_code == 0:
            shares = [SyncGroupRequestAssignment(reply.member_id, b"share")]
            self.send(SyncGroupRequest(group, reply.generation_id, reply.member_id, assignments=shares), 3)
            self.classic[group] = reply.member_id, reply.generation_id

    def leave(self) -> None:
        if self.classic and self.random.random() < 0.5:
            group = self.random.choice(sorted(self.classic))
            member_id, _ = self.classic.pop(group)
            self.send(LeaveGroupRequest(group, members=[MemberIdentity(member_id)]), 5)
        elif self.epochs:
            group, member = self.random.choice(sorted(self.epochs))
            del self.epochs[group, member]
            self.send(ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=-1))

    def forget(self) -> None:
        group = self.random.choice(GROUPS)
        if self.random.random() < 0.5:
            self.send(DeleteGroupsRequest(groups_names=[group]), 2)
        else:
            topics = [OffsetDeleteRequestTopic("a", [OffsetDeleteRequestPartition(0)])]
            self.send(OffsetDeleteRequest(group, topics), 0)

    def wait(self) -> None:
        self.advance(self.random.choice([1, 100, 20_000, 120_000]))
        self.classic = {
            group: known for group, known in self.classic.items() if self._is_member(group, known[0])
        }

    def _is_member(self, group: str, member_id: str) -> bool:
        described = self.ask(DescribeGroupsRequest(groups=[group]), 5).groups[0]
        return described.group_state == "Stable" and member_id in {
            member.member_id for member in described.members
        }

    # -- the state of a shard

    def rebuilt(self, records: list[tuple[int, CoordinatorRecord]]) -> GroupShard:
        """A new shard that has replayed these records; the world's own shard is restored afterwards."""
        shard, groups, log = self.shard, self.groups, self.log
        self.log = []
        new = self._loaded_shard_of(records)
        self.shard, self.groups, self.log = shard, groups, log
        return new

    def _loaded_shard_of(self, records: list[tuple[int, CoordinatorRecord]]) -> GroupShard:
        shard = GroupShard(
            self.settings, entropy=self.entropy, trace=lambda *_, **__: None, make_modern=self._modern
        )
        for offset, record in records:
            shard.replay(record.key, record.value, Offset(offset))
        shard.loaded(self.cluster.image, self.now)
        return shard

    def told_by(self, shard: GroupShard) -> list[object]:
        """The observable state of a shard that must survive it."""
        questions: list[tuple[Message, int]] = [
            (
                OffsetFetchRequest(
                    groups=[
                        OffsetFetchRequestGroup(group, topics=None) for group in GROUPS[index : index + 1]
                    ]
                ),
                8,
            )
            for index in range(len(GROUPS))
        ]
        questions += [(ConsumerGroupDescribeRequest(group_ids=MODERN + CLASSIC), 1)]
        questions += [(DescribeGroupsRequest(groups=GROUPS), 5)]
        told: list[object] = []
        current, self.shard = self.shard, shard
        group_ids = sorted(self.ask(GroupIds(), 5).group_ids)
        told.append(self.ask(ListedGroups(group_ids, Filters.of(ListGroupsRequest())), 5))
        for request, version in questions:
            told.append(self.ask(request, version))
        self.shard = current
        return [_in_order(_without_husks(msgspec.to_builtins(reply))) for reply in told]


def _without_husks(told: object) -> object:
    """Without groups that never had a member and whose offsets were all deleted: a compacted log does not
    contain them.
    """
    if isinstance(told, dict) and "groups" in told:
        return told | {"groups": [one for one in told["groups"] if one.get("protocol_type") != ""]}
    return told


def _in_order(told: object) -> object:
    """Without the order of listings, which is that of arrival."""
    if isinstance(told, dict):
        return {name: _in_order(value) for name, value in told.items()}
    return sorted(map(_in_order, told), key=repr) if isinstance(told, list) else told


def compacted(log: list[CoordinatorRecord], *, keeps_tombstones: bool) -> list[tuple[int, CoordinatorRecord]]:
    """The last record of each key, in the order of the log."""
    last = {record.key: offset for offset, record in enumerate(log)}
    kept = [(offset, log[offset]) for offset in sorted(last.values())]
    return [(offset, record) for offset, record in kept if keeps_tombstones or record.value is not None]


def thinned(log: list[CoordinatorRecord], seed: int) -> list[tuple[int, CoordinatorRecord]]:
    """The records that a load job keeps, in batches of a few records."""
    content = bytearray()
    for base in range(0, len(log), 5):
        records = [(record.key, record.value, (), 7) for record in log[base : base + 5]]
        content += build_batch(records, base_offset=base)
    window = read_window(FileSlice(_Memory(bytes(content)), 0, len(content)), seed.to_bytes(16, "big"))
    assert isinstance(window, Window)
    return [
        (record.offset, CoordinatorRecord(bytes(record.key or b""), record.value))
        for record in window.steps()
        if isinstance(record, Record)
    ]


class _Memory:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def pread(self, position: int, length: int) -> bytes:
        return self._content[position : position + length]

    def retain(self) -> None:
        """Memory has no descriptor."""

    def release(self) -> None:
        """Memory has no descriptor."""


def run(seed: int, steps: int) -> None:
    history = History(seed)
    for _ in range(steps):
        history.step()
        history.advance(0)
    whole = history.rebuilt(list(enumerate(history.log)))
    expected = history.told_by(whole)
    # KIP-848 groups and offsets have no observable soft state: they equal those of the shard that died.
    assert history.told_by(history.shard)[: len(GROUPS)] == expected[: len(GROUPS)]
    history.check_replay()
    for records in (
        thinned(history.log, seed),
        compacted(history.log, keeps_tombstones=True),
        compacted(history.log, keeps_tombstones=False),
    ):
        assert history.told_by(history.rebuilt(records)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_shard_is_rebuilt_alike_from_its_log_whole_thinned_and_compacted(seed: int) -> None:
    run(seed, steps=60)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 400))
def test_hundreds_of_shards_are_rebuilt_alike_from_logs_whole_thinned_and_compacted(seed: int) -> None:
    run(seed, steps=150)
