"""ElectLeaders: leader election on request (KIP-460)."""

from sparklog.model import Instant
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Operation
from sparklog_server.broker.context import Context
from sparklog_server.broker.handlers.administration import names_too_many, propose_if_allowed
from sparklog_server.broker.session import Call, Parked


def elect_leaders(
    context: Context, call: Call, request: ElectLeadersRequest, now: Instant
) -> Message | Parked:
    """Elect the preferred replicas, or any replica where there is no leader; for all partitions if none is
    named.
    """
    if names_too_many(context, call, (topic.partitions for topic in request.topic_partitions or ())):
        return Parked.SILENT
    return propose_if_allowed(context, call, request, Operation.ALTER, now)
