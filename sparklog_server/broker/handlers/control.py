"""The commands that a node sends to the active controller in its own name: registration, heartbeats, blocks
of producer ids, directories of replicas, changes of ISRs.
"""

from typing import TYPE_CHECKING

from sparklog.model import Instant, NodeId
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.handlers.administration import propose_if_allowed
from sparklog_server.broker.session import Call, Parked

if TYPE_CHECKING:
    from sparklog_server.broker.ports import QuorumPort


def command_of_node(context: "QuorumPort", call: Call, request: Message, now: Instant) -> Message | Parked:
    """Decide the command, which needs CLUSTER_ACTION; NOT_CONTROLLER if this node does not lead."""
    if isinstance(request, BrokerHeartbeatRequest) and context.may(
        call, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME
    ):
        call.session.beats_for = NodeId(request.broker_id)
    return propose_if_allowed(context, call, request, Operation.CLUSTER_ACTION, now)
