"""What the nodes of the metadata quorum ask of each other, on listeners of controllers, and who is in it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from sparklog.errors import ErrorCode
from sparklog.model import Instant, NodeId, Uuid
from sparklog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from sparklog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from sparklog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from sparklog.wire.messages.fetch import FetchRequest, FetchResponse
from sparklog.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from sparklog.wire.messages.vote import VoteRequest, VoteResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.session import Call, Parked
from sparklog_server.controller.topics import METADATA_TOPIC, UNKNOWN_TOPIC
from sparklog_server.disk.door import StorageError
from sparklog_server.raft.leading import Leading, Replica
from sparklog_server.raft.node import RaftNode

if TYPE_CHECKING:
    from sparklog_server.broker.ports import QuorumPort


_ASKED_MAX = 1_000
_NOT_LEADER = "For requests intended only for the leader, this error indicates that the broker is not the current leader."  # noqa: E501
_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)


class _Asked(Generic[_Response]):
    """A request that the raft node may answer in a later turn, and then as the last thing of that turn."""

    def __init__(self, context: "QuorumPort", call: Call) -> None:
        self.call = call
        self.response: _Response | None = None
        self.is_parked = False
        self._context = context

    def answered(self, response: _Response) -> None:
        self.response = response
        if self.is_parked:
            self._context.woken[self] = None

    def woken(self, now: Instant) -> Message | Parked | None:
        """The answer is there."""
        return self.response

    def expired(self, now: Instant) -> Message | None:
        """Never called: the raft node answers in time."""
        return None

    def abandoned(self) -> None:
        """The answer is dropped when it comes."""


def ask_raft(
    context: "QuorumPort",
    call: Call,
    handle: Callable[[_Request, Callable[[_Response], None], Instant], None],
    request: _Request,
    response_type: Callable[..., _Response],
    now: Instant,
    operation: Operation = Operation.CLUSTER_ACTION,
) -> Message | Parked:
    """Hand a request to the raft node; it needs an operation on the cluster."""
    if not context.allow(call, operation, Resource.CLUSTER, CLUSTER_NAME):
        return response_type(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = _Asked[_Response](context, call)
    try:
        handle(request, asked.answered, now)
    except StorageError as error:
        if not error.is_full:  # else the process has no descriptor left
            context.quorum.raft.halt(error)
        return response_type(error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    finally:
        context.quorum.turned(now)
    if asked.response is not None:
        return asked.response
    asked.is_parked = True
    call.waiting = asked
    return Parked.FLOWING


def vote(context: "QuorumPort", call: Call, request: VoteRequest, now: Instant) -> Message | Parked:
    """A candidate asks for a vote, which is given once it is durable (KIP-595)."""
    return ask_raft(context, call, context.quorum.raft.handle_vote, request, VoteResponse, now)


def begin_quorum_epoch(
    context: "QuorumPort", call: Call, request: BeginQuorumEpochRequest, now: Instant
) -> Message | Parked:
    """A leader tells of its epoch (KIP-595)."""
    handle = context.quorum.raft.handle_begin_quorum_epoch
    return ask_raft(context, call, handle, request, BeginQuorumEpochResponse, now)


def end_quorum_epoch(
    context: "QuorumPort", call: Call, request: EndQuorumEpochRequest, now: Instant
) -> Message | Parked:
    """A leader tells that it has resigned (KIP-595)."""
    handle = context.quorum.raft.handle_end_quorum_epoch
    return ask_raft(context, call, handle, request, EndQuorumEpochResponse, now)


def fetch_metadata(
    context: "QuorumPort", call: Call, request: FetchRequest, now: Instant
) -> Message | Parked:
    """A replica fetches the metadata log; a Fetch of any other partition is refused here."""
    return ask_raft(context, call, context.quorum.raft.handle_fetch, request, FetchResponse, now)


def fetch_snapshot(
    context: "QuorumPort", call: Call, request: FetchSnapshotRequest, now: Instant
) -> Message | Parked:
    """A replica reads a snapshot of the metadata log by position (KIP-630)."""
    return ask_raft(
        context, call, context.quorum.raft.handle_fetch_snapshot, request, FetchSnapshotResponse, now
    )


def describe_quorum(
    context: "QuorumPort", call: Call, request: DescribeQuorumRequest, now: Instant
) -> Message | Parked:
    """Leader, voters and observers of the metadata quorum, as the leader sees them (KIP-595)."""
    if not context.allow(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=code, error_message="Cluster authorization failed.")
    if sum(max(1, len(topic.partitions)) for topic in request.topics) > _ASKED_MAX:
        message = f"The quorum has one partition, and the request names more than {_ASKED_MAX}."
        return DescribeQuorumResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)
    asked = [
        (topic.topic_name, [part.partition_index for part in topic.partitions]) for topic in request.topics
    ]
    if asked != [(METADATA_TOPIC, [0])]:
        return _refused(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC)
    leading = context.quorum.raft.state.leading
    if leading is not None:
        return _described(context, leading, now)
    if call.forwarding is not None:  # the broker that forwards looks for the leader
        return DescribeQuorumResponse(error_code=ErrorCode.NOT_CONTROLLER)
    if context.controllers is not None and not call.session.is_controller:
        return context.propose_for(call, request, DescribeQuorumResponse, lambda reply: reply, now)
    return _refused(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER, _NOT_LEADER)


def _described(context: "QuorumPort", leading: Leading, now: Instant) -> DescribeQuorumResponse:
    raft, own = context.quorum.raft, NodeId(context.settings.node_id)
    part = DescribeQuorumResponsePartitionData(
        error_message=None,
        leader_id=own,
        leader_epoch=raft.epoch,
        high_watermark=raft.high_watermark,
        current_voters=[
            _own_state(raft, directory, now)
            if node == own
            else _state(node, directory, leading.followers[node])
            for node, directory in sorted(leading.voters.directories.items())
        ],
        observers=[_state(*key, replica) for key, replica in sorted(leading.observers(now).items())],
    )
    return DescribeQuorumResponse(
        error_message=None,
        topics=[DescribeQuorumResponseTopicData(METADATA_TOPIC, [part])],
        nodes=[Node(node, _listeners(context, leading, node)) for node in sorted(leading.voters.directories)],
    )


def _own_state(raft: RaftNode, directory: Uuid, now: Instant) -> ReplicaState:
    return ReplicaState(
        replica_id=raft.state.me.node_id,
        replica_directory_id=directory,
        log_end_offset=raft.log_end_offset,
        last_fetch_timestamp=now.wall_ms,
        last_caught_up_timestamp=now.wall_ms,
    )


def _state(node: NodeId, directory: Uuid, replica: Replica) -> ReplicaState:
    return ReplicaState(
        replica_id=node,
        replica_directory_id=directory,
        log_end_offset=replica.end_offset if replica.fetched_ms >= 0 else -1,
        last_fetch_timestamp=replica.fetched_ms,
        last_caught_up_timestamp=replica.caught_up_ms,
    )


def _listeners(context: "QuorumPort", leading: Leading, node: NodeId) -> list[Listener]:
    known = leading.voters.endpoints.get(node)
    if known:
        return [Listener(one.name, one.host, one.port) for one in known]
    # A cluster of one needs no listener for controllers: the quorum is reached on the broker's listener.
    settings = context.settings
    controllers = [one for one in settings.listeners if one.name in settings.controller_listener_names]
    return [Listener(one.name, one.host, one.port) for one in controllers or settings.advertised_listeners]


def _refused(asked: list[tuple[str, list[int]]], code: ErrorCode, message: str) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_message=None,
        topics=[
            DescribeQuorumResponseTopicData(
                name,
                [
                    DescribeQuorumResponsePartitionData(
                        partition_index=one, error_code=code, error_message=message
                    )
                    for one in indexes
                ],
            )
            for name, indexes in asked
        ],
    )
