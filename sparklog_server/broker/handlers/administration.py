"""Shared by the handlers of administration: commands for the controller that need an operation on the
cluster.
"""

from collections.abc import Iterable, Sized
from typing import TYPE_CHECKING, TypeAlias

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from sparklog.wire.messages.create_partitions import CreatePartitionsRequest
from sparklog.wire.messages.create_topics import CreateTopicsRequest
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.session import Call, Parked
from sparklog_server.controller.refusals import refusal_of

if TYPE_CHECKING:
    from sparklog_server.broker.ports import Commanding, Disconnecting


def propose_if_allowed(
    context: "Commanding", call: Call, command: Message, operation: Operation, now: Instant
) -> Message | Parked:
    """Have the controller decide `command`, which requires this operation on the cluster; its reply is the
    response.
    """
    if not context.allow(call, operation, Resource.CLUSTER, CLUSTER_NAME):
        return refusal_of(command, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    late = refusal_of_late(command)
    if late is not None:
        return late
    return context.propose_for(call, command, Message, lambda reply: reply, now)


_Timed: TypeAlias = (
    CreateTopicsRequest
    | DeleteTopicsRequest
    | CreatePartitionsRequest
    | ElectLeadersRequest
    | AlterPartitionReassignmentsRequest
)


def refusal_of_late(command: Message) -> Message | None:
    """REQUEST_TIMED_OUT for a command with a timeout of zero or less: it changes nothing, as in Kafka. None
    for any other.
    """
    if isinstance(command, _Timed) and command.timeout_ms <= 0:
        return refusal_of(command, ErrorCode.REQUEST_TIMED_OUT, None)
    return None


def names_too_many(context: "Disconnecting", call: Call, partitions: Iterable[Sized]) -> bool:
    """Whether a request names more partitions than a cluster can have, given those of each topic; a topic
    without partitions counts as one. The session is closed then, because the response would be as long.
    """
    partition_count = sum(max(1, len(one)) for one in partitions)
    partitions_max = context.settings.sparklog_partitions_max
    if partition_count <= partitions_max:
        return False
    named = f"a request of API {call.api_key} that names {partition_count} partitions"
    context.disconnect(call.session, f"{named}, where sparklog.partitions.max is {partitions_max}")
    return True
