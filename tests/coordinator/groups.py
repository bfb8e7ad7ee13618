"""A group shard with commands given as text: its records are replayed at once, and replies are returned at
once.

    shard [delay=3 max=2 ...]            a new shard, with an empty log
    join NAME [anew] [as=ID v=9 instance=I session=10 rebalance=60 type=consumer
               protocols=range:meta,other:meta group=g]
    sync NAME [generation= NAME=assignment ...]
    heartbeat NAME     leave NAME... [v=5]     abandon NAME
    commit NAME generation=     describe [v=]     list     delete     advance SECONDS     reload

A NAME is a client; it uses the member id from its last join, unless it joins `anew`.
"""

from typing import cast

from sparklog.errors import ErrorCode, code_of
from sparklog.model import Instant, Offset
from sparklog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from sparklog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from sparklog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from sparklog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from sparklog.wire.schema import Message
from sparklog_server.coordinator.command import Command
from sparklog_server.coordinator.group.group_config import GroupConfig
from sparklog_server.coordinator.group.joining_clients import JoiningClients
from sparklog_server.coordinator.group.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
)
from sparklog_server.coordinator.group.shard import GroupShard
from sparklog_server.coordinator.group.shard_listing import Filters, GroupIds, ListedGroups
from sparklog_server.coordinator.shard import CoordinatorRecord, Decision
from sparklog_server.metadata.image import MetadataImage
from tests.coordinator.clock import BEGINNING, ticks
from tests.entropy import CountingEntropy
from tests.story import arguments

NEWEST = {
    "join": 9,
    "sync": 5,
    "heartbeat": 4,
    "leave": 5,
    "describe": 6,
    "list": 5,
    "delete": 2,
    "commit": 9,
    "fetch": 9,
    "delete-offset": 0,
}


def silent(event: str, **fields: object) -> None:
    """Discard an event."""


def short(member_id: str | None) -> str:
    """A member id whose UUID is the number of the entropy call that made it."""
    prefix, _, node = (member_id or "").rpartition("-")
    if not prefix:
        return member_id or "-"
    return f"{prefix[: -len('-00000000-0000-4000-8000')]}-{int(node, 16)}"


class GroupWorld:
    """One shard, its clock and its log, and the member ids of the clients."""

    def __init__(self, settings: GroupConfig | None = None, *, record_bytes_max: int = 1_000_000) -> None:
        self.settings = settings or GroupConfig()
        self.record_bytes_max = record_bytes_max
        self.now = BEGINNING
        self.log: list[CoordinatorRecord] = []
        self.member_ids: dict[str, str] = {}
        self.waiting: dict[str, str] = {}
        self.crowds = JoiningClients()
        self._entropy = CountingEntropy()
        self._commands = 0
        self.shard = self.make_shard()

    def make_shard(self) -> GroupShard:
        """A shard that has replayed the log."""
        shard = GroupShard(
            self.settings,
            entropy=self._entropy,
            trace=silent,
            record_bytes_max=lambda: self.record_bytes_max,
            crowds=self.crowds,
        )
        for offset, record in enumerate(self.log):
            shard.replay(record.key, record.value, Offset(offset))
        self.took = [(decision, self.now) for decision in shard.loaded(MetadataImage(), self.now)]
        return shard

    # -- commands as values

    def decide(self, request: Message, version: int, *, client: str = "c", token: object = None) -> Decision:
        """Decide, and replay the decision."""
        decision = self.shard.decide(Command(request, version, client, f"/{client}"), token, self.now)
        self.replay(decision)
        return decision

    def replay(self, decision: Decision) -> None:
        for record in decision.records:
            self.shard.replay(record.key, record.value, Offset(len(self.log)))
            self.log.append(record)

    def advance(self, seconds: float) -> list[tuple[Instant, Decision]]:
        """Let time pass, tick by tick as the shard requests it; returns the decisions with their times."""
        decided = []
        for decision in ticks(self, round(seconds * 1_000_000)):
            self.replay(decision)
            decided.append((self.now, decision))
        return decided

    def reload(self) -> None:
        self.waiting.clear()
        self.shard = self.make_shard()

    # -- commands as text

    def run(self, line: str) -> list[str]:
        words, named = arguments(line)
        return list(getattr(self, "_" + words[0].replace("-", "_"))(words[1:], named))

    def _shard(self, words: list[str], named: dict[str, str]) -> list[str]:
        self.__init__(  # type: ignore[misc]
            GroupConfig(
                initial_rebalance_delay_ms=round(float(named.get("delay", "3")) * 1000),
                size_max=int(named.get("max", 2**31 - 1)),
                offsets_retention_ms=int(named.get("retention", 604_800)) * 1000,
            ),
            record_bytes_max=int(named.get("record-bytes", "1000000")),
        )
        return []

    def _seek(self, words: list[str], named: dict[str, str]) -> list[str]:
        """seek TIMES [group=]: this many FindCoordinator requests for the group."""
        for _ in range(int(words[0])):
            self.crowds.sought(named.get("group", "g"), self.now)
        return []

    def _settle(self, words: list[str], named: dict[str, str]) -> list[str]:
        """settle max=: the same log with another setting."""
        self.settings = GroupConfig(size_max=int(named["max"]))
        return []

    def _ask(self, api: str, client: str, request: Message, named: dict[str, str]) -> list[str]:
        self._commands += 1
        token = f"{client}:{api}:{self._commands}"
        self.waiting[f"{client}:{api}"] = token
        return self._told(self.decide(request, int(named.get("v", NEWEST[api])), client=client, token=token))

    def _join(self, words: list[str], named: dict[str, str]) -> list[str]:
        name = words[0]
        member_id = "" if "anew" in words else named.get("as", self.member_ids.get(name, ""))
        protocols = [one.partition(":") for one in named.get("protocols", "range").split(",") if one]
        request = JoinGroupRequest(
            group_id=named.get("group", "g"),
            session_timeout_ms=round(float(named.get("session", "10")) * 1000),
            rebalance_timeout_ms=round(float(named.get("rebalance", "60")) * 1000),
            member_id=member_id,
            group_instance_id=named.get("instance"),
            protocol_type=named.get("type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(protocol, metadata.encode()) for protocol, _, metadata in protocols
            ],
        )
        return self._ask("join", name, request, named)

    def _sync(self, words: list[str], named: dict[str, str]) -> list[str]:
        name = words[0]
        request = SyncGroupRequest(
            group_id=named.get("group", "g"),
            generation_id=int(named.get("generation", "1")),
            member_id=named.get("as", self.member_ids.get(name, "")),
            group_instance_id=named.get("instance"),
            protocol_type=named.get("type", "consumer") or None,
            protocol_name=named.get("protocol", "range") or None,
            assignments=[
                SyncGroupRequestAssignment(self.member_ids[other], named[other].encode())
                for other in named
                if other in self.member_ids
            ],
        )
        return self._ask("sync", name, request, named)

    def _heartbeat(self, words: list[str], named: dict[str, str]) -> list[str]:
        request = HeartbeatRequest(
            group_id=named.get("group", "g"),
            generation_id=int(named.get("generation", "1")),
            member_id=named.get("as", self.member_ids.get(words[0], "")),
            group_instance_id=named.get("instance"),
        )
        return self._ask("heartbeat", words[0], request, named)

    def _leave(self, words: list[str], named: dict[str, str]) -> list[str]:
        """leave NAME... [instance=I,J for members without a known member id] [v=]"""
        members = [MemberIdentity(self.member_ids.get(name, name), named.get("of")) for name in words]
        members += [
            MemberIdentity("", instance) for instance in named.get("instance", "").split(",") if instance
        ]
        if int(named.get("v", NEWEST["leave"])) < 3:
            request = LeaveGroupRequest(group_id=named.get("group", "g"), member_id=members[0].member_id)
        else:
            request = LeaveGroupRequest(group_id=named.get("group", "g"), members=members)
        return self._ask("leave", words[0] if words else "admin", request, named)

    def _commit(self, words: list[str], named: dict[str, str]) -> list[str]:
        request = OffsetCommitRequest(
            group_id=named.get("group", "g"),
            generation_id_or_member_epoch=int(named.get("generation", "-1")),
            member_id=named.get("as", self.member_ids.get(words[0], "")),
            group_instance_id=named.get("instance"),
            retention_time_ms=int(named.get("retention", "-1")),
            topics=[
                OffsetCommitRequestTopic(
                    name=named.get("topic", "t"),
                    partitions=[OffsetCommitRequestPartition(0, int(named.get("offset", "5")))],
                )
            ],
        )
        return self._ask("commit", words[0], request, named)

    def _fetch(self, words: list[str], named: dict[str, str]) -> list[str]:
        asked = (
            [OffsetFetchRequestTopics(name=named["topic"], partition_indexes=[0])]
            if "topic" in named
            else None
        )
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(named.get("group", "g"), topics=asked)])
        return self._ask("fetch", "admin", request, named)

    def _delete_offset(self, words: list[str], named: dict[str, str]) -> list[str]:
        topic = OffsetDeleteRequestTopic(words[0], [OffsetDeleteRequestPartition(0)])
        return self._ask(
            "delete-offset", "admin", OffsetDeleteRequest(named.get("group", "g"), [topic]), named
        )

    def _describe(self, words: list[str], named: dict[str, str]) -> list[str]:
        return self._ask("describe", "admin", DescribeGroupsRequest(groups=words or ["g"]), named)

    def _list(self, words: list[str], named: dict[str, str]) -> list[str]:
        request = ListGroupsRequest(
            states_filter=[word for word in named.get("states", "").split(",") if word],
            types_filter=[word for word in named.get("types", "").split(",") if word],
        )
        (ids,) = self.shard.decide(Command(GroupIds(), 5, "admin", "/127.0.0.1"), None, self.now).answers
        assert isinstance(ids.reply, GroupIds)
        return self._ask("list", "admin", ListedGroups(ids.reply.group_ids, Filters.of(request)), named)

    def _delete(self, words: list[str], named: dict[str, str]) -> list[str]:
        return self._ask("delete", "admin", DeleteGroupsRequest(groups_names=words or ["g"]), named)

    def _abandon(self, words: list[str], named: dict[str, str]) -> list[str]:
        self.shard.abandoned(self.waiting.pop(f"{words[0]}:{words[1]}"))
        return []

    def _advance(self, words: list[str], named: dict[str, str]) -> list[str]:
        started_us = self.now.mono_us
        lines = []
        for at, decision in self.advance(float(words[0])):
            elapsed = (at.mono_us - started_us) / 1_000_000
            lines += [f"+{elapsed:g}s {line}" for line in self._told(decision)]
        return lines

    def _reload(self, words: list[str], named: dict[str, str]) -> list[str]:
        waiting = self.shard.waiting()
        self.reload()
        lines = [f"refused {cast(str, token).rpartition(':')[0]}" for token in waiting]
        return lines + [line for decision, _ in self.took for line in self._told(decision)]

    # -- results

    def _told(self, decision: Decision) -> list[str]:
        lines = [told_record(record) for record in decision.records]
        for answer in decision.answers:
            client, api, _ = cast(str, answer.token).rsplit(":", 2)
            if self.waiting.get(f"{client}:{api}") == answer.token:
                del self.waiting[f"{client}:{api}"]
            if isinstance(answer.reply, JoinGroupResponse) and answer.reply.error_code in (
                0,
                ErrorCode.MEMBER_ID_REQUIRED,
            ):
                self.member_ids[client] = answer.reply.member_id
            lines += [f"-> {client} {api} {line}" for line in told_reply(answer.reply)]
        return lines


def told_record(record: CoordinatorRecord) -> str:
    """A record in one line."""
    decoded = decode_record(record.key, record.value)
    assert decoded is not None
    key, value = decoded
    if isinstance(key, OffsetCommitKey):
        if value is None:
            return f"offset-tombstone {key.group} {key.topic}-{key.partition}"
        assert isinstance(value, OffsetCommitValue)
        return f"offset {key.group} {key.topic}-{key.partition} {value.offset}"
    assert isinstance(key, GroupMetadataKey)
    if value is None:
        return f"tombstone {key.group}"
    assert isinstance(value, GroupMetadataValue)
    members = " ".join(f"{short(one.member_id)}={one.assignment.decode()!r}" for one in value.members)
    kind = f"{value.protocol_type or '-'}/{value.protocol or '-'}"
    return f"record {key.group} generation={value.generation} {kind} leader={short(value.leader)} [{members}]"


def told_reply(reply: Message) -> list[str]:
    """A reply in a line or a few."""
    if isinstance(reply, JoinGroupResponse):
        if reply.error_code:
            return [f"{code_of(reply.error_code).name} {short(reply.member_id)}"]
        members = " ".join(
            f"{short(one.member_id)}={one.metadata.decode()!r}"
            + (f"({one.group_instance_id})" if one.group_instance_id else "")
            for one in reply.members
        )
        skip = " skip-assignment" if reply.skip_assignment else ""
        return [
            f"NONE {short(reply.member_id)} generation={reply.generation_id} "
            f"{reply.protocol_type}/{reply.protocol_name}"
            f" leader={short(reply.leader)} [{members}]{skip}"
        ]
    if isinstance(reply, SyncGroupResponse):
        if reply.error_code:
            return [code_of(reply.error_code).name]
        return [f"NONE {reply.assignment.decode()!r} {reply.protocol_type}/{reply.protocol_name}"]
    if isinstance(reply, HeartbeatResponse):
        return [code_of(reply.error_code).name]
    if isinstance(reply, LeaveGroupResponse):
        lines = [
            f"{short(one.member_id)}({one.group_instance_id or '-'})={code_of(one.error_code).name}"
            for one in reply.members
        ]
        return [" ".join([code_of(reply.error_code).name, *lines])]
    if isinstance(reply, DescribeGroupsResponse):
        return [line for group in reply.groups for line in _told_group(group)]
    if isinstance(reply, ListGroupsResponse):
        return [
            f"{one.group_id} {one.protocol_type or '-'} {one.group_state} {one.group_type}"
            for one in reply.groups
        ] or ["nothing"]
    if isinstance(reply, DeleteGroupsResponse):
        return [f"{one.group_id} {code_of(one.error_code).name}" for one in reply.results]
    if isinstance(reply, OffsetCommitResponse):
        return [f"{topic.name} {code_of(topic.partitions[0].error_code).name}" for topic in reply.topics]
    if isinstance(reply, OffsetFetchResponse):
        group = reply.groups[0]
        told = " ".join(f"{topic.name}={topic.partitions[0].committed_offset}" for topic in group.topics)
        return [f"{code_of(group.error_code).name} {told}".rstrip()]
    assert isinstance(reply, OffsetDeleteResponse), reply
    return [
        " ".join(
            [
                code_of(reply.error_code).name,
                *(code_of(topic.partitions[0].error_code).name for topic in reply.topics),
            ]
        )
    ]


def _told_group(group: DescribedGroup) -> list[str]:
    error = "" if not group.error_code else f" {code_of(group.error_code).name}: {group.error_message}"
    head = f"{group.group_id} {group.group_state} {group.protocol_type or '-'}/{group.protocol_data or '-'}{error}"  # noqa: E501
    return [
        head,
        *(
            f"  {short(one.member_id)}({one.group_instance_id or '-'}) {one.client_id}@{one.client_host}"
            f" {one.member_metadata.decode()!r} {one.member_assignment.decode()!r}"
            for one in group.members
        ),
    ]
