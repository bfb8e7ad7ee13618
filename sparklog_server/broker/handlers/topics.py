"""CreateTopics, DeleteTopics and CreatePartitions: the controller decides, and the answer waits until the decision is committed.

Each topic of a request is answered by itself: the controller is asked about those that the caller may touch, and the others are added to
its answer.
"""

from typing import cast

from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID, Instant
from sparklog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopicResult
from sparklog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from sparklog.wire.schema import Message
from sparklog_server.broker.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.context import Context, Proposed
from sparklog_server.broker.session import Call, Parked


def create_topics(context: Context, call: Call, request: CreateTopicsRequest, now: Instant) -> CreateTopicsResponse | Parked:
    """Create every topic or say why not, each by itself (KIP-4)."""
    refused: list[CreatableTopicResult] = []
    if not context.allow(call, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME):
        allowed = []
        for topic in request.topics:
            if context.allow(call, Operation.CREATE, Resource.TOPIC, topic.name):
                allowed.append(topic)
            else:
                refused.append(CreatableTopicResult(name=topic.name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        request.topics = allowed

    def completed(reply: Message) -> Message:
        cast("CreateTopicsResponse", reply).topics += refused
        return reply

    if refused and not request.topics:
        return CreateTopicsResponse(topics=refused)
    context.propose(request, Proposed(call, completed), call.session.principal, now)
    return Parked.MUTING


def delete_topics(context: Context, call: Call, request: DeleteTopicsRequest, now: Instant) -> DeleteTopicsResponse | Parked:
    """Delete by name, or by id since version 6."""
    refused: list[DeletableTopicResult] = []
    is_enabled = context.settings.delete_topic_enable

    def may_delete(name: str | None, topic_id: bytes) -> bool:
        known = None if topic_id == ZERO_UUID else context.topic_of_id(topic_id)
        called = name or (known.name if known is not None else None)
        code = ErrorCode.NONE
        if called is not None and not context.allow(call, Operation.DELETE, Resource.TOPIC, called):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not is_enabled:
            code = ErrorCode.TOPIC_DELETION_DISABLED
        if code is not ErrorCode.NONE:
            # The name as it was asked for: who knows the id alone is not told it.
            refused.append(DeletableTopicResult(name=name, topic_id=topic_id, error_code=code))
        return code is ErrorCode.NONE

    request.topic_names = [name for name in request.topic_names if may_delete(name, ZERO_UUID)]
    states: list[DeleteTopicState] = request.topics
    request.topics = [state for state in states if may_delete(state.name, state.topic_id)]

    def completed(reply: Message) -> Message:
        cast("DeleteTopicsResponse", reply).responses += refused
        return reply

    if refused and not request.topics and not request.topic_names:
        return DeleteTopicsResponse(responses=refused)
    context.propose(request, Proposed(call, completed), call.session.principal, now)
    return Parked.MUTING


def create_partitions(context: Context, call: Call, request: CreatePartitionsRequest, now: Instant) -> CreatePartitionsResponse | Parked:
    """Add partitions to topics; the count only grows."""
    refused: list[CreatePartitionsTopicResult] = []
    allowed = []
    for topic in request.topics:
        if context.allow(call, Operation.ALTER, Resource.TOPIC, topic.name):
            allowed.append(topic)
        else:
            refused.append(CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    request.topics = allowed

    def completed(reply: Message) -> Message:
        cast("CreatePartitionsResponse", reply).results += refused
        return reply

    if refused and not request.topics:
        return CreatePartitionsResponse(results=refused)
    context.propose(request, Proposed(call, completed), call.session.principal, now)
    return Parked.MUTING
