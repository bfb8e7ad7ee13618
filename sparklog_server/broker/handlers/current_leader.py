"""Where the leader of a partition is, for a client that asked another broker (KIP-951): it need not refresh
its metadata first.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sparklog.errors import ErrorCode
from sparklog.model import LeaderEpoch, NodeId, TopicPartition
from sparklog_server.broker.session import Call
from sparklog_server.metadata.entries import NO_NODE, Endpoint

if TYPE_CHECKING:
    from sparklog_server.broker.ports import Informed


WITH_LEADER: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""The errors with which a response names the leader."""


def leader_elsewhere(context: "Informed", topic: str, index: int) -> tuple[NodeId, LeaderEpoch] | None:
    """The leader of a partition and its epoch, by the metadata; None if no other broker leads it."""
    placement = context.image.partition(TopicPartition(topic, index))
    if placement is None or placement.leader in (NO_NODE, context.settings.node_id):
        return None
    return placement.leader, placement.leader_epoch


def endpoints_of(
    context: "Informed", call: Call, nodes: set[NodeId]
) -> Iterator[tuple[NodeId, Endpoint, str | None]]:
    """The id, the address and the rack of each node, at the listener of the caller."""
    for node in sorted(nodes):
        broker = context.image.brokers.get(node)
        endpoint = None if broker is None else broker.endpoint(call.session.listener)
        if broker is not None and endpoint is not None:
            yield node, endpoint, broker.rack
