"""What a node that follows asks of its leader about the voters, every fetch timeout until its log has it.

    voter whose endpoints are others than those in the log ──► UpdateRaftVoter (KIP-853)
    observer that joins, its id is a voter's with another directory ──► RemoveRaftVoter of that one
    observer that joins ──► AddRaftVoter, answered at the append (KIP-1186)

An observer joins if `controller.quorum.auto.join.enable` is set and it is a controller.
"""

from sparklog.errors import ErrorCode
from sparklog.model import LeaderEpoch
from sparklog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from sparklog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from sparklog.wire.messages.update_raft_voter import (
    KRaftVersionFeature,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from sparklog.wire.messages.update_raft_voter import Listener as UpdatedListener
from sparklog.wire.schema import Message
from sparklog_server.metadata.features import KRAFT_LEVEL

from .quorum_config import QuorumConfig
from .requests import Myself
from .voters import VoterSet

_EXPECTED = (
    ErrorCode.NONE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.DUPLICATE_VOTER,
    ErrorCode.VOTER_NOT_FOUND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)
"""The answers after which the node asks again, if it still has to."""


def change_of(me: Myself, epoch: LeaderEpoch, voters: VoterSet, config: QuorumConfig) -> Message:
    """The request of a node whose log has these voters."""
    if voters.has(me.node_id, me.directory_id):
        return UpdateRaftVoterRequest(
            cluster_id=me.cluster_id,
            current_leader_epoch=epoch,
            voter_id=me.node_id,
            voter_directory_id=me.directory_id,
            listeners=[UpdatedListener(one.name, one.host, one.port) for one in me.endpoints],
            kraft_version_feature=KRaftVersionFeature(0, KRAFT_LEVEL),
        )
    if me.node_id in voters:
        return RemoveRaftVoterRequest(
            cluster_id=me.cluster_id,
            voter_id=me.node_id,
            voter_directory_id=voters.directories[me.node_id],
        )
    return AddRaftVoterRequest(
        cluster_id=me.cluster_id,
        timeout_ms=config.request_timeout_us // 1000,
        voter_id=me.node_id,
        voter_directory_id=me.directory_id,
        listeners=[Listener(one.name, one.host, one.port) for one in me.endpoints],
        ack_when_committed=False,
    )


def refusal_in(response: Message) -> int | None:
    """The error of a response that the node did not expect; None for any other response."""
    if isinstance(response, (AddRaftVoterResponse, RemoveRaftVoterResponse, UpdateRaftVoterResponse)):
        return response.error_code if response.error_code not in _EXPECTED else None
    return None


def is_passing(response: Message) -> bool:
    """Whether the node may ask again at once: the voter with its former directory is gone, or the leader was
    busy with another change, or waited for this node to catch up.
    """
    if isinstance(response, (AddRaftVoterResponse, RemoveRaftVoterResponse, UpdateRaftVoterResponse)):
        return response.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
    return False
