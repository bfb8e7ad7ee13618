"""The APIs of a listener of controllers: requests of other nodes, and administration that a client sends
to a controller directly.
"""

from typing import TYPE_CHECKING, Final

from sparklog.model import Instant
from sparklog.wire.api_keys import API_BY_KEY, API_VERSIONS, ENVELOPE, ON_CONTROLLERS
from sparklog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from sparklog.wire.messages.alter_partition import AlterPartitionRequest
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from sparklog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest
from sparklog.wire.messages.controller_registration import ControllerRegistrationRequest
from sparklog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from sparklog.wire.messages.envelope import EnvelopeRequest
from sparklog.wire.messages.fetch import FetchRequest
from sparklog.wire.messages.fetch_snapshot import FetchSnapshotRequest
from sparklog.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from sparklog.wire.messages.vote import VoteRequest
from sparklog_server.broker.context import Handlers
from sparklog_server.broker.dispatch import SERVED
from sparklog_server.broker.handlers.api_versions import versions_of
from sparklog_server.broker.handlers.control import command_of_node
from sparklog_server.broker.handlers.envelope import opening
from sparklog_server.broker.handlers.raft import (
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch_metadata,
    fetch_snapshot,
    vote,
)
from sparklog_server.broker.handlers.voters import update_raft_voter
from sparklog_server.broker.session import Call, Parked

if TYPE_CHECKING:
    from sparklog_server.broker.ports import ConnectionPort


def _api_versions(
    context: "ConnectionPort", call: Call, request: ApiVersionsRequest, now: Instant
) -> ApiVersionsResponse | Parked:
    return versions_of(NEWEST_OF_CONTROLLER, context, call, request, now)


CONTROLLER: Final[Handlers] = {
    API_VERSIONS: (_api_versions, ApiVersionsRequest),
    1: (fetch_metadata, FetchRequest),
    52: (vote, VoteRequest),
    53: (begin_quorum_epoch, BeginQuorumEpochRequest),
    54: (end_quorum_epoch, EndQuorumEpochRequest),
    56: (command_of_node, AlterPartitionRequest),
    59: (fetch_snapshot, FetchSnapshotRequest),
    62: (command_of_node, BrokerRegistrationRequest),
    63: (command_of_node, BrokerHeartbeatRequest),
    67: (command_of_node, AllocateProducerIdsRequest),
    70: (command_of_node, ControllerRegistrationRequest),
    73: (command_of_node, AssignReplicasToDirsRequest),
    82: (update_raft_voter, UpdateRaftVoterRequest),
}
"""The handlers that differ from those of a listener of clients; `dispatch` imports the others."""
NEWEST_OF_CONTROLLER: Final = {
    key: API_BY_KEY[key].until
    for key in sorted({*CONTROLLER, ENVELOPE} | ON_CONTROLLERS.intersection(SERVED))
}
CONTROLLER[ENVELOPE] = (opening(CONTROLLER, NEWEST_OF_CONTROLLER), EnvelopeRequest)
