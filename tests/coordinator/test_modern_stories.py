"""KIP-848 groups, told as stories in virtual time.

    shard [key=value ...]        a new shard; keys are those of GroupConfig; assignment interval 0 by default
    topic NAME N / topics PREFIX COUNT / grow NAME N / drop NAME / hide NAME / show NAME
    config GROUP KEY VALUE
    hb MEMBER EPOCH [topics=a,b regex= owns=a:0,1;b:2 instance= rack= assignor= timeout=MS v= group= client=]
    join MEMBER [the same]       epoch 0, timeout 60 s, owning no partition
    cjoin MEMBER [topics= owns= v=9 instance= session=10000 timeout=60000 protocols=range]
                                 a classic member, by the member id that it got
    csync MEMBER GENERATION [MEMBER=a:0,1;b:2 ...] / chb MEMBER GENERATION [instance=]
    cleave MEMBER [instance= v=] / describe / delete / groups / advance SECONDS / failover
    commit MEMBER EPOCH TOPIC-PARTITION [v= txn=yes] / fetch MEMBER EPOCH

After every line the log is replayed into another shard, which must have the same state.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from sparklog.errors import code_of
from sparklog.wire.messages.consumer_group_describe import Assignment, ConsumerGroupDescribeRequest
from sparklog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from sparklog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_prefixed,
    encode_prefixed,
)
from sparklog.wire.messages.consumer_protocol import TopicPartitions as OwnedPartitions
from sparklog.wire.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.messages.heartbeat import HeartbeatRequest
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from sparklog.wire.messages.list_groups import ListGroupsRequest
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from sparklog.wire.schema import Message
from sparklog_server.coordinator.group.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    GroupMetadataKey,
    GroupMetadataValue,
    TargetTopicPartitions,
)
from sparklog_server.coordinator.group.shard_listing import Filters, GroupIds, ListedGroups
from tests.coordinator.modern_world import ModernWorld
from tests.story import arguments, check_story

STORIES = sorted((Path(__file__).parent / "stories" / "modern").glob("*.txt"))
STATES = {0: "stable", 1: "unrevoked", 2: "unreleased", 127: "unknown"}


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_consumer_group_behaves_as_the_story_tells(story: Path) -> None:
    check_story(story, Teller().run)


class Teller:
    """Runs the lines of a story."""

    def __init__(self) -> None:
        self.world = ModernWorld(consumer_assignment_interval_ms=0)
        self._waiting: dict[object, str] = {}
        self._ids: dict[str, str] = {}

    def run(self, line: str) -> list[str]:
        words, named = arguments(line)
        told = list(getattr(self, "_" + words[0])(words[1:], named))
        told += [
            self._answered(label, self.world.answer(token))
            for token, label in self._waiting.items()
            if self.world.answer(token) is not None
        ]
        self._waiting = {
            token: label for token, label in self._waiting.items() if self.world.answer(token) is None
        }
        self.world.check_replay()
        for name, member_id in self._ids.items():
            told = [line.replace(member_id, name) for line in told]
        return told

    def _shard(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        given = {
            key.replace("-", "_"): int(value) if value.isdigit() else value for key, value in named.items()
        }
        self.world = ModernWorld(**{"consumer_assignment_interval_ms": 0, **given})
        self._waiting.clear()
        self._ids.clear()
        return []

    def _topic(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        self.world.create(words[0], int(words[1]))
        return []

    def _grow(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        self.world.change(self.world.cluster.grow(words[0], int(words[1])))
        return []

    def _drop(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        self.world.change(self.world.cluster.delete(words[0]))
        return []

    def _hide(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        self.world.cluster.hidden.add(words[0])
        return []

    def _show(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        self.world.cluster.hidden.discard(words[0])
        return []

    def _topics(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        names = [f"{words[0]}-{index}" for index in range(int(words[1]))]
        self.world.change([record for name in names for record in self.world.cluster.create(name, 1)])
        return []

    def _config(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        self.world.change(self.world.cluster.configure(*words))
        return []

    def _join(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        return self._hb([words[0], "0"], {"timeout": "60000", "owns": "", **named})

    def _hb(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        request = ConsumerGroupHeartbeatRequest(
            group_id=named.get("group", "g"),
            member_id="" if words[0] == "-" else words[0],
            member_epoch=int(words[1]),
            instance_id=named.get("instance"),
            rack_id=named.get("rack"),
            rebalance_timeout_ms=int(named.get("timeout", "-1")),
            subscribed_topic_names=[name for name in named["topics"].split(",") if name]
            if "topics" in named
            else None,
            subscribed_topic_regex=named.get("regex"),
            server_assignor=named.get("assignor"),
            topic_partitions=self.world.owned(_partitions(named["owns"])) if "owns" in named else None,
        )
        token, records = self.world.decide(request, int(named.get("v", "1")), named.get("client", "c"))
        yield from (self._record(key, value) for key, value in records)
        reply = self.world.answer(token)
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        if reply.error_code:
            yield f"-> {code_of(reply.error_code).name}: {reply.error_message}"
            return
        assigned = "" if reply.assignment is None else f" has={_told(self.world.told(reply) or {})}"
        yield f"-> {reply.member_id} epoch={reply.member_epoch} in={reply.heartbeat_interval_ms}ms{assigned}"

    # -- the classic protocol

    def _cjoin(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        owned = [
            OwnedPartitions(topic, indexes) for topic, indexes in _partitions(named.get("owns", "")).items()
        ]
        subscription = ConsumerProtocolSubscription(
            topics=[name for name in named.get("topics", "a").split(",") if name], owned_partitions=owned
        )
        metadata = bytes.fromhex(named["bytes"]) if "bytes" in named else encode_prefixed(subscription, 3)
        request = JoinGroupRequest(
            group_id="g",
            member_id="" if "anew" in words else self._ids.get(words[0], ""),
            group_instance_id=named.get("instance"),
            session_timeout_ms=int(named.get("session", "10000")),
            rebalance_timeout_ms=int(named.get("timeout", "60000")),
            protocol_type=named.get("type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(name, metadata)
                for name in named.get("protocols", "range").split(",")
            ],
        )
        return self._classic(f"{words[0]} join", request, int(named.get("v", "9")))

    def _id(self, name: str) -> str:
        return self._ids.get(name, "" if name == "-" else name)

    def _csync(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        assignments = []
        for member_id, text in named.items():
            told = [OwnedPartitions(topic, indexes) for topic, indexes in _partitions(text).items()]
            assignment = encode_prefixed(ConsumerProtocolAssignment(assigned_partitions=told), 3)
            assignments.append(SyncGroupRequestAssignment(self._id(member_id), assignment))
        request = SyncGroupRequest(
            group_id="g",
            member_id=self._id(words[0]),
            generation_id=int(words[1]),
            protocol_type="consumer",
            protocol_name=words[2] if len(words) > 2 else "range",
            assignments=assignments,
        )
        return self._classic(f"{words[0]} sync", request, 5)

    def _chb(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        request = HeartbeatRequest(
            group_id="g",
            member_id=self._id(words[0]),
            generation_id=int(words[1]),
            group_instance_id=named.get("instance"),
        )
        return self._classic(f"{words[0]} heartbeat", request, 4)

    def _cleave(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        member_id = self._id(words[0])
        version = int(named.get("v", "5"))
        members = [MemberIdentity(member_id, named.get("instance"))]
        return self._classic(
            f"{words[0]} leave",
            LeaveGroupRequest(group_id="g", member_id=member_id, members=members),
            version,
        )

    def _classic(self, label: str, request: Message, version: int) -> Iterable[str]:
        token, records = self.world.decide(request, version)
        self._waiting[token] = label
        return [self._record(key, value) for key, value in records]

    def _answered(self, label: str, reply: Message) -> str:
        match reply:
            case JoinGroupResponse():
                if reply.member_id:
                    self._ids[label.split()[0]] = reply.member_id
                told = f" {reply.member_id} generation={reply.generation_id} {reply.protocol_name} leader={reply.leader or '-'}"  # noqa: E501
            case SyncGroupResponse():
                told = ""
                if reply.assignment:
                    assigned = decode_prefixed(
                        ConsumerProtocolAssignment, reply.assignment
                    ).assigned_partitions
                    told = f" has={_told({topic.topic: topic.partitions for topic in assigned})}"
            case LeaveGroupResponse():
                told = "".join(f" {one.member_id}:{code_of(one.error_code).name}" for one in reply.members)
            case _:
                told = ""
        return f"-> {label} {code_of(getattr(reply, 'error_code', 0)).name}{told}"

    # -- state

    def _describe(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        reply = self.world.ask(ConsumerGroupDescribeRequest(group_ids=[words[0] if words else "g"]))
        for group in reply.groups:
            if group.error_code:
                yield f"-> {code_of(group.error_code).name}: {group.error_message}"
                continue
            yield f"{group.group_id} {group.group_state} epoch={group.group_epoch} assigned={group.assignment_epoch} {group.assignor_name}"  # noqa: E501
            for one in group.members:
                what = f"epoch={one.member_epoch} topics={','.join(one.subscribed_topic_names)} regex={one.subscribed_topic_regex}"  # noqa: E501
                yield f"  {one.member_id} {what} has={_placed(one.assignment)} wants={_placed(one.target_assignment)}"  # noqa: E501

    def _groups(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        group_ids = self.world.ask(GroupIds(), 5).group_ids
        reply = self.world.ask(ListedGroups(group_ids, Filters.of(ListGroupsRequest())), 5)
        return [
            f"{group.group_id} {group.group_state} {group.group_type} {group.protocol_type}"
            for group in reply.groups
        ]

    def _delete(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        token, records = self.world.decide(DeleteGroupsRequest(groups_names=["g"]), 2)
        yield from (self._record(key, value) for key, value in records)
        yield from (f"-> {code_of(result.error_code).name}" for result in self.world.answer(token).results)

    def _advance(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        return [self._record(key, value) for key, value in self.world.advance(float(words[0]) * 1000)]

    def _failover(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        self.world.reload()
        return []

    def _commit(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        member_id, epoch, place = words[0], int(words[1]), words[2]
        topic, partition = place.split("-")
        topic_id = self.world.cluster.image.topics_by_name[topic].topic_id
        group = self.world.group()
        member_id = "" if member_id == "-" else member_id
        code = group.validate_commit(
            member_id, None, epoch, is_transactional="txn" in named, version=int(named.get("v", "9"))
        )
        return [f"-> {(code or group.validate_commit_of(member_id, epoch, topic_id, int(partition))).name}"]

    def _fetch(self, words: list[str], named: dict[str, str]) -> Iterable[str]:
        member_id = None if words[0] == "-" else words[0]
        return [f"-> {self.world.group().validate_fetch(member_id, int(words[1])).name}"]

    def _record(self, key: Message, value: Message | None) -> str:
        name = self.world.cluster.name_of
        match key, value:
            case GroupMetadataKey(), GroupMetadataValue():
                return f"classic {key.group} generation={value.generation} {' '.join(member.member_id for member in value.members)}".rstrip()  # noqa: E501
            case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue():
                return f"group {key.group_id} epoch={value.epoch} {'no topics' if value.metadata_hash == 0 else 'topics'}"  # noqa: E501
            case ConsumerGroupMemberMetadataKey(), ConsumerGroupMemberMetadataValue():
                said = [
                    f"topics={','.join(value.subscribed_topic_names)}",
                    f"timeout={value.rebalance_timeout_ms}",
                ]
                said += [f"regex={value.subscribed_topic_regex}"] if value.subscribed_topic_regex else []
                said += [f"instance={value.instance_id}"] if value.instance_id else []
                said += [f"assignor={value.server_assignor}"] if value.server_assignor else []
                said += ["classic"] if value.classic_member_metadata else []
                return f"member {key.member_id} {' '.join(said)}"
            case ConsumerGroupTargetAssignmentMetadataKey(), ConsumerGroupTargetAssignmentMetadataValue():
                return f"target epoch={value.assignment_epoch}"
            case ConsumerGroupTargetAssignmentMemberKey(), ConsumerGroupTargetAssignmentMemberValue():
                return f"target {key.member_id} {_told({name(one.topic_id): one.partitions for one in value.topic_partitions})}"  # noqa: E501
            case ConsumerGroupCurrentMemberAssignmentKey(), ConsumerGroupCurrentMemberAssignmentValue():
                epochs = f"epoch={value.member_epoch} previous={value.previous_member_epoch}"
                has, revokes = (
                    self._since(value.assigned_partitions),
                    self._since(value.partitions_pending_revocation),
                )
                return f"current {key.member_id} {STATES[value.state]} {epochs} has={has}" + (
                    f" revokes={revokes}" if revokes else ""
                )
            case ConsumerGroupRegularExpressionKey(), ConsumerGroupRegularExpressionValue():
                return f"regex {key.regular_expression} matches {','.join(value.topics)}"
            case _, None:
                where = getattr(key, "member_id", getattr(key, "regular_expression", ""))
                return f"forget {type(key).__name__.removeprefix('ConsumerGroup').removesuffix('Key')} {where}".rstrip()  # noqa: E501
        raise AssertionError(key)

    def _since(self, partitions: list[CurrentTopicPartitions] | list[TargetTopicPartitions]) -> str:
        """Partitions, each with the epoch since which it is the member's."""
        named = {}
        for topic in partitions:
            epochs = getattr(topic, "assignment_epochs", None) or []
            named[self.world.cluster.name_of(topic.topic_id)] = [
                f"{p}@{e}" for p, e in zip(topic.partitions, epochs, strict=True)
            ]
        return _told(named)


def _partitions(text: str) -> dict[str, list[int]]:
    topics = [part.split(":") for part in text.split(";") if part]
    return {topic: [int(index) for index in indexes.split(",")] for topic, indexes in topics}


def _told(partitions: Mapping[str, Sequence[int | str]]) -> str:
    return ";".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in sorted(partitions.items()))


def _placed(assignment: Assignment) -> str:
    return _told({topic.topic_name: topic.partitions for topic in assignment.topic_partitions})
