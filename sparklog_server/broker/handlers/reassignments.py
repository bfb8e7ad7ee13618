"""AlterPartitionReassignments and ListPartitionReassignments: changes of partitions' replicas (KIP-455)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from sparklog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.handlers.administration import names_too_many, propose_if_allowed
from sparklog_server.broker.session import Call, Parked
from sparklog_server.metadata.entries import TopicImage

if TYPE_CHECKING:
    from sparklog_server.broker.ports import AdministrationPort


def alter_partition_reassignments(
    context: "AdministrationPort", call: Call, request: AlterPartitionReassignmentsRequest, now: Instant
) -> Message | Parked:
    """Reassign partitions, or cancel a reassignment."""
    if names_too_many(context, call, (topic.partitions for topic in request.topics)):
        return Parked.SILENT
    return propose_if_allowed(context, call, request, Operation.ALTER, now)


def list_partition_reassignments(
    context: "AdministrationPort", call: Call, request: ListPartitionReassignmentsRequest, now: Instant
) -> ListPartitionReassignmentsResponse | Parked:
    """The partitions with a reassignment in progress; of all topics if none is named."""
    if not context.allow(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ListPartitionReassignmentsResponse(
            error_code=code, error_message="Cluster authorization failed."
        )
    if names_too_many(context, call, (topic.partition_indexes for topic in request.topics or ())):
        return Parked.SILENT
    image = context.image
    found: list[OngoingTopicReassignment] = []
    if request.topics is None:
        found = [_ongoing(topic, range(len(topic.partitions))) for topic in image.topics_by_name.values()]
    else:
        for asked in request.topics:
            topic = image.topics_by_name.get(asked.name)
            if topic is not None:
                found.append(_ongoing(topic, asked.partition_indexes))
    return ListPartitionReassignmentsResponse(
        error_message=None, topics=[topic for topic in found if topic.partitions]
    )


def _ongoing(topic: TopicImage, indexes: Iterable[int]) -> OngoingTopicReassignment:
    partitions = [
        OngoingPartitionReassignment(
            partition_index=index,
            replicas=list(partition.replicas),
            adding_replicas=list(partition.adding_replicas),
            removing_replicas=list(partition.removing_replicas),
        )
        for index in indexes
        if 0 <= index < len(topic.partitions)
        and ((partition := topic.partitions[index]).adding_replicas or partition.removing_replicas)
    ]
    return OngoingTopicReassignment(name=topic.name, partitions=partitions)
