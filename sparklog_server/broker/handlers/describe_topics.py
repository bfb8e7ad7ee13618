"""DescribeTopicPartitions: topics in name order, page by page behind a cursor (KIP-966)."""

from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID, Instant
from sparklog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.broker.handlers.authorized_operations import operations_on_topic
from sparklog_server.broker.session import AnsweredInSteps, Call
from sparklog_server.controller.elections import has_replica_online
from sparklog_server.controller.topic_names import check_name
from sparklog_server.coordinator.placement import INTERNAL_TOPICS
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.outcome import Refused

if TYPE_CHECKING:
    from sparklog_server.broker.ports import MetadataPort


def describe_topic_partitions(
    context: "MetadataPort", call: Call, request: DescribeTopicPartitionsRequest, now: Instant
) -> AnsweredInSteps:
    """The partitions from the cursor on, up to the limit; `next_cursor` is the start of the next page."""
    image, cursor = context.image, request.cursor
    is_all = not request.topics
    names = image.topics_by_name if is_all else dict.fromkeys(topic.name for topic in request.topics)
    first = "" if cursor is None else cursor.topic_name
    if cursor is not None and (cursor.partition_index < 0 or (not is_all and first not in names)):
        return _refused(request)
    response = DescribeTopicPartitionsResponse()
    hidden: list[DescribeTopicPartitionsResponseTopic] = []
    room = max(min(context.settings.max_request_partition_size_limit, request.response_partition_limit), 1)
    for name in sorted(name for name in names if name >= first):
        yield
        may_see = context.may if is_all else context.allow
        if not may_see(call, Operation.DESCRIBE, Resource.TOPIC, name):
            if not is_all:
                hidden.append(
                    DescribeTopicPartitionsResponseTopic(
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name
                    )
                )
            continue
        if response.next_cursor is not None:
            continue  # only to report unauthorized topics, as Kafka does on every page
        if room == 0:
            response.next_cursor = Cursor(name, 0)
            continue
        start = cursor.partition_index if cursor is not None and name == first else 0
        told = _topic(context, call, name, start, room)
        response.topics.append(told)
        room -= len(told.partitions)
        known = image.topics_by_name.get(name)
        if known is not None and start + len(told.partitions) < len(known.partitions):
            response.next_cursor = Cursor(name, start + len(told.partitions))
    response.topics += hidden
    return response


def _refused(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """The cursor is invalid: the response has no field for that except in each topic."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    topics = [
        DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)
        for name in names
    ]
    return DescribeTopicPartitionsResponse(topics=topics)


def _topic(
    context: "MetadataPort", call: Call, name: str, start: int, room: int
) -> DescribeTopicPartitionsResponseTopic:
    """At most `room` partitions of a topic from `start` on, or the error of a topic that does not exist."""
    image = context.image
    told = DescribeTopicPartitionsResponseTopic(
        name=name, topic_id=ZERO_UUID, is_internal=name in INTERNAL_TOPICS
    )
    told.topic_authorized_operations = operations_on_topic(context, call, name)
    topic = image.topics_by_name.get(name)
    if topic is None:
        try:
            check_name(name)
            told.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except Refused as refusal:
            told.error_code = refusal.code
        return told
    told.topic_id = topic.topic_id
    listener = call.session.listener
    told.partitions = [
        _partition(image, index, topic.partitions[index], listener)
        for index in range(start, min(len(topic.partitions), start + room))
    ]
    node_id = context.settings.node_id
    for part in told.partitions if context.partitions.has_offline else ():
        if part.leader_id == node_id and context.partitions.is_offline(name, part.partition_index):
            part.leader_id = -1
            part.offline_replicas = [*(node for node in part.offline_replicas if node != node_id), node_id]
    return told


def _partition(
    image: MetadataImage, index: int, partition: PartitionImage, listener: str
) -> DescribeTopicPartitionsResponsePartition:
    brokers = image.brokers
    leader = brokers.get(partition.leader)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=partition.leader if leader is not None and leader.endpoint(listener) is not None else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(image, partition, listener),
    )


def offline_replicas(image: MetadataImage, partition: PartitionImage, listener: str) -> list[int]:
    """The replicas that no client of this listener can reach: their broker is gone, fenced or without the
    listener, or their directory is offline.
    """
    return [
        node
        for node in partition.replicas
        if (broker := image.brokers.get(node)) is None
        or broker.is_fenced
        or broker.endpoint(listener) is None
        or not has_replica_online(partition, broker)
    ]
