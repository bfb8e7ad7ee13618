"""OffsetCommit, OffsetFetch and OffsetDelete: this file checks topics; the shard of the group decides."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from sparklog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.broker.coordinators.coordinator_requests import Refusal, ToShard, ask, gather
from sparklog_server.broker.handlers.committed_topics import CommittedTopics
from sparklog_server.broker.session import AnsweredInSteps, Call, InSteps, Parked
from sparklog_server.broker.sliced_requests import SLICE
from sparklog_server.coordinator.group.offsets import refused_commit

if TYPE_CHECKING:
    from sparklog_server.broker.ports import GroupPort


# Access to an enum member takes as long as two calls, and commits are frequent.
_NONE: Final = ErrorCode.NONE
_DELETED_BYTES: Final = 64
"""The bytes of one deleted offset in the response."""
_READ: Final = Operation.READ
_GROUP: Final = Resource.GROUP
_TOPIC: Final = Resource.TOPIC
_TOPIC_IDS_SINCE = 10
_MANY_GROUPS_SINCE = 8
_GROUP_ERROR_SINCE = 2
_DELETED_TOGETHER = 4
"""The number of offsets in one part of a slice of OffsetDelete."""


def offset_commit(
    context: "GroupPort", call: Call, request: OffsetCommitRequest, now: Instant
) -> AnsweredInSteps:
    """Store the committed offsets of a group; unknown and unauthorized topics are refused each by itself."""
    check = _name_topic if call.version >= _TOPIC_IDS_SINCE else _identify_topic
    if not context.allow(call, _READ, _GROUP, request.group_id):
        check = _refuse_group
    topics: CommittedTopics[OffsetCommitRequestTopic, OffsetCommitResponseTopic] = CommittedTopics()
    now = yield from topics.sort_out(
        now,
        context.image,
        request.topics,
        check=partial(check, context, call),
        keep=lambda topic, kept: OffsetCommitRequestTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=kept
        ),
        refuse=_refused_topic,
    )
    if not topics.refused:
        return ask(context, call, request.group_id, request, partial(refused_commit, request), now)
    if not topics.accepted:
        return OffsetCommitResponse(topics=topics.answer([]))

    def finish(reply: Message) -> Message:
        return OffsetCommitResponse(topics=topics.answer(cast(OffsetCommitResponse, reply).topics))

    part = OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        topics=list(topics.accepted.values()),
    )
    return ask(context, call, request.group_id, part, partial(refused_commit, part), now, finish)


def _refused_topic(
    topic: OffsetCommitRequestTopic, gone: list[tuple[int, ErrorCode]]
) -> OffsetCommitResponseTopic:
    parts = [OffsetCommitResponsePartition(index, code) for index, code in gone]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=parts)


def _refuse_group(context: "GroupPort", call: Call, topic: OffsetCommitRequestTopic) -> ErrorCode:
    return ErrorCode.GROUP_AUTHORIZATION_FAILED


def _name_topic(context: "GroupPort", call: Call, topic: OffsetCommitRequestTopic) -> ErrorCode:
    known = context.topic_of_id(topic.topic_id)
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    topic.name = known.name
    return _check_topic(context, call, known.name)


def _identify_topic(context: "GroupPort", call: Call, topic: OffsetCommitRequestTopic) -> ErrorCode:
    """Add the topic id to each topic: offsets of a deleted topic do not apply to a new one of the same name
    (KIP-848's topic ids).
    """
    code = _check_topic(context, call, topic.name)
    if code is _NONE:
        topic.topic_id = context.image.topics_by_name[topic.name].topic_id
    return code


def _check_topic(context: "GroupPort", call: Call, name: str) -> ErrorCode:
    if not context.allow(call, _READ, _TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _NONE if name in context.quorum.image.topics_by_name else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def offset_fetch(
    context: "GroupPort", call: Call, request: OffsetFetchRequest, now: Instant
) -> AnsweredInSteps:
    """The committed offsets of groups, each from its shard; versions before 8 request one group in a
    different form.
    """
    groups = request.groups
    if call.version < _MANY_GROUPS_SINCE:
        topics = request.topics
        groups = [
            OffsetFetchRequestGroup(
                group_id=request.group_id,
                topics=None
                if topics is None
                else [
                    OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
                    for topic in topics
                ],
            )
        ]
    asked: list[tuple[int | None, Message, Refusal]] = []
    whole: dict[str, None] = {}
    early: dict[int, OffsetFetchResponseGroup] = {}
    left_out: dict[int, list[tuple[int, OffsetFetchResponseTopics]]] = {}
    for position, group in enumerate(groups):
        now = yield
        if not context.allow(call, Operation.DESCRIBE, Resource.GROUP, group.group_id):
            early[position] = _refused_group(group, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            continue
        if group.topics is None:
            if (
                group.group_id in whole
            ):  # small requests for all offsets of a large group, repeated, would exhaust the memory
                early[position] = _refused_group(group, ErrorCode.INVALID_REQUEST)
                continue
            whole[group.group_id] = None
        left_out[position] = yield from _leave_out(context, call, group)
        asked.append((context.groups.shard_of(group.group_id), _fetch_of(group, request), _refusal_of(group)))

    def combine(parts: list[Message]) -> InSteps[Message]:
        rest = iter(parts)
        answered = []
        for position in range(len(groups)):
            yield
            one = early.get(position)
            if one is None:
                one = cast(OffsetFetchResponse, next(rest)).groups[0]
                if groups[position].topics is None:
                    seen = []
                    for topic in one.topics:
                        if context.may(call, Operation.DESCRIBE, Resource.TOPIC, topic.name):
                            seen.append(topic)
                        yield
                    one.topics = seen
                yield from _complete(context, call, one, left_out[position])
            answered.append(one)
        return (
            OffsetFetchResponse(groups=answered)
            if call.version >= _MANY_GROUPS_SINCE
            else _single(answered[0], request, call.version)
        )

    return gather(context, call, asked, combine, now)


def _fetch_of(group: OffsetFetchRequestGroup, request: OffsetFetchRequest) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[group], require_stable=request.require_stable)


def _refusal_of(group: OffsetFetchRequestGroup) -> Refusal:
    return lambda code: OffsetFetchResponse(groups=[_refused_group(group, code)])


def _refused_group(group: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)


def _leave_out(
    context: "GroupPort", call: Call, group: OffsetFetchRequestGroup
) -> InSteps[list[tuple[int, OffsetFetchResponseTopics]]]:
    """Remove unauthorized topics from a group's request, name the others; returns (position, response) of the
    removed ones.
    """
    if group.topics is None:
        return []
    out: list[tuple[int, OffsetFetchResponseTopics]] = []
    kept = []
    for position, topic in enumerate(group.topics):
        yield
        code = ErrorCode.NONE
        if call.version >= _TOPIC_IDS_SINCE:
            known = context.topic_of_id(topic.topic_id)
            if known is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                topic.name = known.name
        elif (named := context.image.topics_by_name.get(topic.name)) is not None:
            topic.topic_id = named.topic_id
        if code is ErrorCode.NONE and not context.allow(call, Operation.DESCRIBE, Resource.TOPIC, topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if code is ErrorCode.NONE:
            kept.append(topic)
        else:
            partitions = [
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=-1, committed_leader_epoch=-1, error_code=code
                )
                for index in topic.partition_indexes
            ]
            out.append(
                (
                    position,
                    OffsetFetchResponseTopics(
                        name=topic.name, topic_id=topic.topic_id, partitions=partitions
                    ),
                )
            )
    group.topics = kept
    return out


def _complete(
    context: "GroupPort",
    call: Call,
    group: OffsetFetchResponseGroup,
    left_out: list[tuple[int, OffsetFetchResponseTopics]],
) -> InSteps[None]:
    """Use topic ids where the version has no names; insert the removed topics at their places."""
    if group.error_code:
        return
    named = group.topics
    if call.version >= _TOPIC_IDS_SINCE:
        named = []
        for topic in group.topics:
            yield
            known = context.image.topics_by_name.get(topic.name)
            if topic.topic_id.count(0) == len(topic.topic_id):
                if known is None:
                    continue  # deleted since the commit: it has no id
                topic.topic_id = known.topic_id
            named.append(topic)
    merged: list[OffsetFetchResponseTopics] = []
    rest = iter(named)
    for position, topic in left_out:
        merged += islice(rest, max(position - len(merged), 0))
        merged.append(topic)
    merged += rest
    group.topics = []
    for topic in merged:
        yield
        if topic.partitions or context.may(call, Operation.DESCRIBE, Resource.TOPIC, topic.name):
            group.topics.append(topic)


def _single(
    group: OffsetFetchResponseGroup, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    """The form for a single group; version 1 has an error of the group in each partition, since it has no
    other field for it.
    """
    if group.error_code and version < _GROUP_ERROR_SINCE:
        refused = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        index, committed_offset=-1, metadata="", error_code=group.error_code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
        return OffsetFetchResponse(topics=refused)
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=part.partition_index,
                    committed_offset=part.committed_offset,
                    committed_leader_epoch=part.committed_leader_epoch,
                    metadata=part.metadata,
                    error_code=part.error_code,
                )
                for part in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def offset_delete(
    context: "GroupPort", call: Call, request: OffsetDeleteRequest, now: Instant
) -> AnsweredInSteps:
    """Delete a group's committed offsets of topics to which it is not subscribed (KIP-496)."""

    def refusal(code: ErrorCode) -> Message:
        return OffsetDeleteResponse(error_code=code)

    if not context.allow(call, Operation.DELETE, Resource.GROUP, request.group_id):
        return refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: dict[int, OffsetDeleteResponseTopic] = {}
    accepted: dict[int, OffsetDeleteRequestTopic] = {}
    for position, topic in enumerate(request.topics):
        now = yield
        code = _check_topic(context, call, topic.name)
        count = len(context.image.topics_by_name[topic.name].partitions) if code is _NONE else 0
        kept = [part for part in topic.partitions if 0 <= part.partition_index < count]
        if kept:
            accepted[position] = OffsetDeleteRequestTopic(name=topic.name, partitions=kept)
        if len(kept) < len(topic.partitions) or not kept:
            parts = [
                OffsetDeleteResponsePartition(
                    part.partition_index, code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                for part in topic.partitions
                if not 0 <= part.partition_index < count
            ]
            refused[position] = OffsetDeleteResponseTopic(name=topic.name, partitions=parts)

    def finish(reply: Message) -> Message:
        response = cast(OffsetDeleteResponse, reply)
        if not response.error_code:
            for position, answered in zip(accepted, response.topics, strict=True):
                if position in refused:
                    refused[position].partitions += answered.partitions
                else:
                    refused[position] = answered
            response.topics = [refused[position] for position in range(len(request.topics))]
        return response

    topics = list(accepted.values())
    if (count := sum(len(topic.partitions) for topic in topics)) > SLICE:
        return _delete_sliced(context, call, request.group_id, topics, count, finish)
    return ask(
        context, call, request.group_id, OffsetDeleteRequest(request.group_id, topics), refusal, now, finish
    )


def _delete_sliced(
    context: "GroupPort",
    call: Call,
    group_id: str,
    topics: list[OffsetDeleteRequestTopic],
    count: int,
    finish: Callable[[Message], Message],
) -> Parked:
    """Delete a few offsets of each topic at a time; an error of the whole group is reported once."""
    whole = OffsetDeleteResponse(topics=[OffsetDeleteResponseTopic(name=topic.name) for topic in topics])
    positions = [
        position
        for position, topic in enumerate(topics)
        for _ in range(0, len(topic.partitions), _DELETED_TOGETHER)
    ]
    places = iter(positions)
    shard = context.groups.shard_of(group_id)

    def asks() -> Iterator[ToShard]:
        for topic in topics:
            for begin in range(0, len(topic.partitions), _DELETED_TOGETHER):
                few = OffsetDeleteRequestTopic(
                    topic.name, topic.partitions[begin : begin + _DELETED_TOGETHER]
                )
                yield ToShard(
                    context.groups,
                    shard,
                    OffsetDeleteRequest(group_id, [few]),
                    lambda code: OffsetDeleteResponse(code),
                )

    def fold(parts: list[Message]) -> None:
        for part in parts:
            told, place = cast(OffsetDeleteResponse, part), next(places)
            whole.error_code = whole.error_code or told.error_code
            for topic in told.topics:
                whole.topics[place].partitions += topic.partitions

    def answer() -> Message:
        return OffsetDeleteResponse(whole.error_code) if whole.error_code else finish(whole)

    return context.slices.add(
        call,
        count,
        asks(),
        fold,
        answer,
        lambda: _DELETED_BYTES * sum(len(topic.partitions) for topic in whole.topics),
    )
