"""Changes of the voters of the metadata quorum (KIP-853): the raft node of the leader makes them.

a client ──► a broker ── Envelope ──► the leader's listener for controllers ──► its raft node
a client, or a node that joins ─────────────────┘
"""

from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from sparklog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from sparklog.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.session import Call, Parked

from .raft import ask_raft

if TYPE_CHECKING:
    from sparklog_server.broker.ports import QuorumPort


def add_raft_voter(
    context: "QuorumPort", call: Call, request: AddRaftVoterRequest, now: Instant
) -> Message | Parked:
    """Add a voter to the quorum; needs ALTER on the cluster."""
    if _is_allowed_elsewhere(context, call):
        if call.forwarding is not None:  # the broker that forwards looks for the leader
            return AddRaftVoterResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return context.propose_for(call, request, AddRaftVoterResponse, lambda reply: reply, now)
    handle = context.quorum.raft.handle_add_raft_voter
    return ask_raft(context, call, handle, request, AddRaftVoterResponse, now, Operation.ALTER)


def remove_raft_voter(
    context: "QuorumPort", call: Call, request: RemoveRaftVoterRequest, now: Instant
) -> Message | Parked:
    """Remove a voter from the quorum; needs ALTER on the cluster."""
    if _is_allowed_elsewhere(context, call):
        if call.forwarding is not None:
            return RemoveRaftVoterResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return context.propose_for(call, request, RemoveRaftVoterResponse, lambda reply: reply, now)
    handle = context.quorum.raft.handle_remove_raft_voter
    return ask_raft(context, call, handle, request, RemoveRaftVoterResponse, now, Operation.ALTER)


def update_raft_voter(
    context: "QuorumPort", call: Call, request: UpdateRaftVoterRequest, now: Instant
) -> Message | Parked:
    """A voter has other endpoints."""
    handle = context.quorum.raft.handle_update_raft_voter
    return ask_raft(context, call, handle, request, UpdateRaftVoterResponse, now)


def _is_allowed_elsewhere(context: "QuorumPort", call: Call) -> bool:
    """Whether another node leads, which the broker asks for the caller, who may change voters. A client of a
    listener of controllers looks for the leader itself.
    """
    if context.quorum.is_leader or not context.may(call, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return False
    return call.forwarding is not None or (context.controllers is not None and not call.session.is_controller)
