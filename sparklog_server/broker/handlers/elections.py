"""ElectLeaders: leader election on request (KIP-460)."""

from typing import TYPE_CHECKING

from sparklog.model import Instant
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Operation
from sparklog_server.broker.handlers.administration import names_too_many, propose_if_allowed
from sparklog_server.broker.session import Call, Parked

if TYPE_CHECKING:
    from sparklog_server.broker.ports import AdministrationPort


def elect_leaders(
    context: "AdministrationPort", call: Call, request: ElectLeadersRequest, now: Instant
) -> Message | Parked:
    """Elect the preferred replicas, or any replica where there is no leader; for all partitions if none is
    named.
    """
    if names_too_many(context, call, (topic.partitions for topic in request.topic_partitions or ())):
        return Parked.SILENT
    return propose_if_allowed(context, call, request, Operation.ALTER, now)
