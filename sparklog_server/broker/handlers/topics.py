"""CreateTopics, DeleteTopics and CreatePartitions: the controller decides, and the response waits until the
decision is committed.

Each topic of a request has its own result: the command to the controller has the authorized topics, and the
handler adds the results of the others.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID, Instant
from sparklog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from sparklog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.handlers.administration import refusal_of_late
from sparklog_server.broker.session import AnsweredInSteps, Call, InSteps
from sparklog_server.controller.topics import (
    PARTITIONS_PER_REQUEST_MAX,
    TOO_MANY_PARTITIONS,
    partitions_asked,
)
from sparklog_server.metadata.entries import TopicImage
from sparklog_server.outcome import RECORDS_PER_REQUEST_MAX, TOO_MANY_RECORDS
from sparklog_server.replica.replica_manager import has_room

if TYPE_CHECKING:
    from sparklog_server.broker.ports import AdministrationPort


_NO_ROOM = ErrorCode.KAFKA_STORAGE_ERROR
_NO_ROOM_MESSAGE = (
    "The disks of the data directories are full up to their reserve (sparklog.disk.reserve.bytes)."
)
_REPEATED_MESSAGE = "Duplicate topic name."
_DECIDED_TOGETHER = 64
_STRICT_CREATE_SINCE = 6
_STRICT_DELETE_SINCE = 5
_STRICT_GROW_SINCE = 3
"""The versions whose clients know THROTTLING_QUOTA_EXCEEDED: earlier clients are served, and throttled
afterwards (KIP-599).
"""


class _Charges:
    """The charges of one request's topics to the client's mutation quota, topic by topic."""

    __slots__ = ("_call", "_context", "_is_strict", "_now", "_taken")

    def __init__(self, context: "AdministrationPort", call: Call, now: Instant, *, strict_since: int) -> None:
        self._context = context
        self._call = call
        self._now = now
        self._is_strict = call.version >= strict_since
        self._taken: dict[str | None, int] = {}

    def admits(self, name: str | None, partitions: int) -> bool:
        """Whether the topic may be created or changed; it is then charged as `partitions`."""
        quotas = self._context.quotas
        # More than one request may create: the controller refuses it, and the charge is returned.
        count = min(max(partitions, 0), PARTITIONS_PER_REQUEST_MAX)
        if not quotas.admits(self._call, count, is_strict=self._is_strict, now=self._now):
            return False
        self._taken[name] = self._taken.get(name, 0) + count
        return True

    def settle(
        self, results: Iterable[CreatableTopicResult | DeletableTopicResult | CreatePartitionsTopicResult]
    ) -> None:
        """Return the charges of topics for which the controller made nothing."""
        for result in results:
            if result.error_code and result.name in self._taken:
                self._context.quotas.give_back(self._call, self._taken.pop(result.name))


def create_topics(
    context: "AdministrationPort", call: Call, request: CreateTopicsRequest, now: Instant
) -> AnsweredInSteps:
    """Create topics, each with its own result (KIP-4)."""
    repeated = _repeated(topic.name for topic in request.topics)
    refused: list[CreatableTopicResult] = []

    def refuse(name: str, code: ErrorCode, message: str | None) -> None:
        refused.append(CreatableTopicResult(name=name, error_code=code, error_message=message))

    for name in repeated:
        refuse(name, ErrorCode.INVALID_REQUEST, _REPEATED_MESSAGE)
    may_create_all = context.may(call, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
    is_roomy = has_room(context.partitions.directories, now)
    default_count = context.settings.num_partitions
    allowed: list[CreatableTopic] = []
    partitions = 0
    for topic in request.topics:
        now = yield
        if topic.name in repeated:
            continue
        if not may_create_all and not context.allow(call, Operation.CREATE, Resource.TOPIC, topic.name):
            refuse(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        elif not is_roomy:
            refuse(topic.name, _NO_ROOM, _NO_ROOM_MESSAGE)
        else:
            allowed.append(topic)
            partitions += partitions_asked(topic, default_count)
    is_too_large = max(len(allowed), partitions) > PARTITIONS_PER_REQUEST_MAX
    charges = _Charges(context, call, now, strict_since=_STRICT_CREATE_SINCE)
    request.topics = []
    for topic in allowed:
        if is_too_large:
            now = yield
            refuse(topic.name, ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
        elif not context.quotas.is_set or charges.admits(topic.name, partitions_asked(topic, default_count)):
            request.topics.append(topic)
        else:
            refuse(topic.name, ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)

    def completed(reply: CreateTopicsResponse) -> InSteps[CreateTopicsResponse]:
        charges.settle(reply.topics)
        for topic in reply.topics:
            yield
            if not topic.error_code and not context.may(
                call, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, topic.name
            ):
                _hide_configs(topic)
        reply.topics += refused
        return reply

    if refused and not request.topics:
        return CreateTopicsResponse(topics=refused)
    late = refusal_of_late(request)
    if late is not None:
        return (yield from completed(cast("CreateTopicsResponse", late)))

    def whole(replies: list[CreateTopicsResponse]) -> InSteps[CreateTopicsResponse]:
        replies[0].topics = [topic for reply in replies for topic in reply.topics]
        return completed(replies[0])

    return context.propose_each_for(call, _parts(request), CreateTopicsResponse, whole, now)


def _parts(request: CreateTopicsRequest) -> Iterator[CreateTopicsRequest]:
    """The topics of a request, a few at a time: the controller decides on each part in one turn."""
    for begin in range(0, max(len(request.topics), 1), _DECIDED_TOGETHER):
        yield CreateTopicsRequest(
            topics=request.topics[begin : begin + _DECIDED_TOGETHER],
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
        )


def _repeated(names: Iterable[str]) -> dict[str, None]:
    """The names that occur more than once. They are refused here, whether or not the caller may use them, and
    never reach the controller: nothing that was not authorized does.
    """
    return {name: None for name, count in Counter(names).items() if count > 1}


def _hide_configs(topic: CreatableTopicResult) -> None:
    topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic.num_partitions = topic.replication_factor = -1
    topic.configs = []


def delete_topics(
    context: "AdministrationPort", call: Call, request: DeleteTopicsRequest, now: Instant
) -> AnsweredInSteps:
    """Delete topics by name, or by id since version 6."""
    refused: list[DeletableTopicResult] = []
    is_enabled = context.settings.delete_topic_enable
    may_delete_all = context.may(call, Operation.DELETE, Resource.CLUSTER, CLUSTER_NAME)
    by_name = (one.name for one in request.topics if one.name is not None and one.topic_id == ZERO_UUID)
    repeated = _repeated([*request.topic_names, *by_name])
    charges = _Charges(context, call, now, strict_since=_STRICT_DELETE_SINCE)
    told: set[str | None] = set()  # of the repeated names

    def may_delete(name: str | None, topic_id: bytes) -> bool:
        by_id = None if topic_id == ZERO_UUID else context.topic_of_id(topic_id)
        topic = by_id or context.image.topics_by_name.get(name or "")
        code, shown, message = ErrorCode.NONE, name, None
        if not is_enabled:
            code = ErrorCode.TOPIC_DELETION_DISABLED
        elif name is not None and topic_id != ZERO_UUID:
            code, message = ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        elif name in repeated:
            if name not in told:
                told.add(name)
                refused.append(
                    DeletableTopicResult(
                        name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=_REPEATED_MESSAGE
                    )
                )
            return False
        elif not may_delete_all and not _may_delete(context, call, name, topic):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            # A caller that knows only the id does not learn the name.
            if by_id is not None and context.may(call, Operation.DESCRIBE, Resource.TOPIC, by_id.name):
                shown = by_id.name
        elif (
            context.quotas.is_set
            and topic is not None
            and not charges.admits(topic.name, len(topic.partitions))
        ):
            code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if code is not ErrorCode.NONE:
            refused.append(
                DeletableTopicResult(name=shown, topic_id=topic_id, error_code=code, error_message=message)
            )
        return code is ErrorCode.NONE

    names: list[str] = []
    for name in request.topic_names:
        now = yield
        if may_delete(name, ZERO_UUID):
            names.append(name)
    states: list[DeleteTopicState] = []
    for state in request.topics:
        now = yield
        if may_delete(state.name, state.topic_id):
            states.append(state)
    request.topic_names, request.topics = names, states

    def completed(reply: DeleteTopicsResponse) -> DeleteTopicsResponse:
        charges.settle(reply.responses)
        reply.responses += refused
        return reply

    if refused and not request.topics and not request.topic_names:
        return DeleteTopicsResponse(responses=refused)
    late = refusal_of_late(request)
    if late is not None:
        return completed(cast("DeleteTopicsResponse", late))
    return context.propose_for(call, request, DeleteTopicsResponse, completed, now)


def _may_delete(
    context: "AdministrationPort", call: Call, name: str | None, topic: TopicImage | None
) -> bool:
    """Whether the caller may delete the topic, which it names by `name`, or else by id. A name that it may
    not describe is refused, whether or not the topic exists.
    """
    if name is not None and not context.allow(call, Operation.DESCRIBE, Resource.TOPIC, name):
        return False
    return topic is None or context.allow(call, Operation.DELETE, Resource.TOPIC, topic.name)


def create_partitions(
    context: "AdministrationPort", call: Call, request: CreatePartitionsRequest, now: Instant
) -> AnsweredInSteps:
    """Add partitions to topics; the count only grows."""
    repeated = _repeated(topic.name for topic in request.topics)
    refused = [
        CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=_REPEATED_MESSAGE
        )
        for name in repeated
    ]
    allowed: list[CreatePartitionsTopic] = []
    charges = _Charges(context, call, now, strict_since=_STRICT_GROW_SINCE)
    is_roomy = has_room(context.partitions.directories, now)
    for topic in request.topics:
        now = yield
        if topic.name in repeated:
            continue
        known = context.image.topics_by_name.get(topic.name) if context.quotas.is_set else None
        if not context.allow(call, Operation.ALTER, Resource.TOPIC, topic.name):
            refused.append(
                CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            )
        elif not is_roomy:
            refused.append(
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=_NO_ROOM, error_message=_NO_ROOM_MESSAGE
                )
            )
        elif known is not None and not charges.admits(topic.name, topic.count - len(known.partitions)):
            refused.append(
                CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            )
        elif len(allowed) >= RECORDS_PER_REQUEST_MAX:  # each makes a record at least
            refused.append(
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=ErrorCode.POLICY_VIOLATION, error_message=TOO_MANY_RECORDS
                )
            )
        else:
            allowed.append(topic)
    request.topics = allowed

    def completed(reply: CreatePartitionsResponse) -> CreatePartitionsResponse:
        charges.settle(reply.results)
        reply.results += refused
        return reply

    if refused and not request.topics:
        return CreatePartitionsResponse(results=refused)
    late = refusal_of_late(request)
    if late is not None:
        return completed(cast("CreatePartitionsResponse", late))
    return context.propose_for(call, request, CreatePartitionsResponse, completed, now)
