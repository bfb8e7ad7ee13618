"""Metadata: who the brokers are, as seen from the listener that was asked, and who leads what."""

from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID, Instant
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from sparklog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sparklog_server.broker.administration import operations_on_cluster, operations_on_topic
from sparklog_server.broker.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.context import AutoCreation, Context
from sparklog_server.broker.internal_topics import INTERNAL_TOPICS
from sparklog_server.broker.session import Call
from sparklog_server.controller.topics import check_name
from sparklog_server.metadata.image import TopicImage
from sparklog_server.outcome import Refused

_AUTO_CREATED_MAX = 100
"""How many topics one request creates by naming them; a client that still misses some asks again."""
_EMPTY_MEANS_ALL_BEFORE = 1
_TOPIC_IDS_SINCE = 12  # versions 10 and 11 have the field, and Kafka never served it there


def metadata(context: Context, call: Call, request: MetadataRequest, now: Instant) -> MetadataResponse:
    """Brokers and topics; a missing topic is created if both sides wish, and answered as unknown until it is there."""
    response = _answer(context, call, request, now)
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.name is not None and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = operations_on_topic(context, call, topic.name)
    if request.include_cluster_authorized_operations:
        may_see = context.allow(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
        response.cluster_authorized_operations = operations_on_cluster(context, call) if may_see else 0
    return response


def _answer(context: Context, call: Call, request: MetadataRequest, now: Instant) -> MetadataResponse:
    image = context.image
    listener = call.session.listener
    response = MetadataResponse(cluster_id=context.cluster_id, controller_id=context.settings.node_id)
    response.brokers = [
        MetadataResponseBroker(node_id=broker.node_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker in image.brokers.values()
        if not broker.is_fenced and (endpoint := broker.endpoint(listener)) is not None
    ]
    wanted = request.topics
    if wanted is None or (not wanted and call.version < _EMPTY_MEANS_ALL_BEFORE):
        response.topics = [_topic(topic) for topic in image.topics_by_name.values() if _may_see(context, call, topic.name)]
        return response
    if call.version < _TOPIC_IDS_SINCE and any(asked.name is None or asked.topic_id != ZERO_UUID for asked in wanted):
        response.topics = [
            MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id) for asked in wanted
        ]
        return response
    missing = []
    for asked in wanted:
        known = context.topic_of_id(asked.topic_id) if asked.topic_id != ZERO_UUID else image.topics_by_name.get(asked.name or "")
        if known is not None and _may_see(context, call, known.name):
            response.topics.append(_topic(known))
        elif asked.topic_id != ZERO_UUID:
            response.topics.append(MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id))
        elif not _may_see(context, call, asked.name or ""):
            response.topics.append(MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=asked.name or ""))
        else:
            name = asked.name or ""
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if _is_topic_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
            response.topics.append(MetadataResponseTopic(error_code=code, name=name))
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                missing.append(name)
    if missing and request.allow_auto_topic_creation and context.settings.auto_create_topics_enable:
        _create(context, call, missing, now)
    return response


def _may_see(context: Context, call: Call, topic: str) -> bool:
    return context.allow(call, Operation.DESCRIBE, Resource.TOPIC, topic)


def _is_topic_name(name: str) -> bool:
    try:
        check_name(name)
    except Refused:
        return False
    return True


def _topic(topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
            )
            for index, partition in enumerate(topic.partitions)
        ],
    )


def _create(context: Context, call: Call, names: list[str], now: Instant) -> None:
    wanted = [
        name
        for name in dict.fromkeys(names)
        if name not in context.auto_creations and context.allow(call, Operation.CREATE, Resource.TOPIC, name)
    ][:_AUTO_CREATED_MAX]
    if not wanted:
        return
    context.auto_creations.update(wanted)
    topics = [CreatableTopic(name=name, num_partitions=-1, replication_factor=-1) for name in wanted]
    context.propose(CreateTopicsRequest(topics=topics, timeout_ms=30_000), AutoCreation(tuple(wanted)), call.session.principal, now)
