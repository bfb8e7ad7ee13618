"""CreateTopics, DeleteTopics and CreatePartitions: the controller decides, and the answer waits until the decision is committed."""

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopicResult
from sparklog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from sparklog_server.broker.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.context import Context, Proposed
from sparklog_server.broker.session import Call, Parked

_BY_ID_SINCE = 6


def create_topics(context: Context, call: Call, request: CreateTopicsRequest, now: Instant) -> CreateTopicsResponse | Parked:
    """Create every topic or say why not, each by itself (KIP-4)."""
    if not context.allow(call, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME):
        refused = [topic for topic in request.topics if not context.allow(call, Operation.CREATE, Resource.TOPIC, topic.name)]
        if refused:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return CreateTopicsResponse(topics=[CreatableTopicResult(name=topic.name, error_code=code) for topic in refused])
    context.propose(request, Proposed(call), call.session.principal, now)
    return Parked.MUTING


def delete_topics(context: Context, call: Call, request: DeleteTopicsRequest, now: Instant) -> DeleteTopicsResponse | Parked:
    """Delete by name, or by id since version 6."""
    if call.version >= _BY_ID_SINCE:
        names = [topic.name or (known.name if (known := context.topic_of_id(topic.topic_id)) else "") for topic in request.topics]
    else:
        names = list(request.topic_names)
    refused = [name for name in names if name and not context.allow(call, Operation.DELETE, Resource.TOPIC, name)]
    if refused:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name=name, error_code=code) for name in refused])
    if not context.settings.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name=name, error_code=code) for name in names])
    context.propose(request, Proposed(call), call.session.principal, now)
    return Parked.MUTING


def create_partitions(context: Context, call: Call, request: CreatePartitionsRequest, now: Instant) -> CreatePartitionsResponse | Parked:
    """Add partitions to topics; the count only grows."""
    refused = [topic for topic in request.topics if not context.allow(call, Operation.ALTER, Resource.TOPIC, topic.name)]
    if refused:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name=topic.name, error_code=code) for topic in refused])
    context.propose(request, Proposed(call), call.session.principal, now)
    return Parked.MUTING
