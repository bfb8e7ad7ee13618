"""The cluster: its brokers, its metadata quorum, its features."""

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from sparklog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from sparklog.wire.messages.unregister_broker import UnregisterBrokerRequest
from sparklog.wire.messages.update_features import UpdateFeaturesRequest
from sparklog.wire.schema import Message
from sparklog_server.broker.administration import propose_if_allowed
from sparklog_server.broker.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.context import Context
from sparklog_server.broker.operations import operations_on_cluster
from sparklog_server.broker.session import Call, Parked
from sparklog_server.controller.topics import METADATA_TOPIC, UNKNOWN_TOPIC

_ENDPOINTS = {1: "BROKER", 2: "CONTROLLER"}
_BROKER_ENDPOINTS = 1
_NOT_LEADER = (
    "For requests intended only for the leader, this error indicates that the broker is not the current "
    "leader."
)


def describe_cluster(
    context: Context, call: Call, request: DescribeClusterRequest, now: Instant
) -> DescribeClusterResponse:
    """The brokers of the cluster with the listener of the request (KIP-700, KIP-919); no authorization is
    required, as in Kafka.
    """
    kind = request.endpoint_type
    if kind not in _ENDPOINTS:
        message = f"Unsupported endpoint type {kind}"
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=message)
    if kind != _BROKER_ENDPOINTS:
        message = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            f"{_ENDPOINTS[kind]}"
        )
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=message)
    brokers = [
        DescribeClusterBroker(
            broker_id=broker.node_id,
            host=endpoint.host,
            port=endpoint.port,
            rack=broker.rack,
            is_fenced=broker.is_fenced,
        )
        for broker in context.image.brokers.values()
        if (request.include_fenced_brokers or not broker.is_fenced)
        and (endpoint := broker.endpoint(call.session.listener)) is not None
    ]
    own = context.settings.node_id
    response = DescribeClusterResponse(cluster_id=context.cluster_id, brokers=brokers)
    response.controller_id = own if any(broker.broker_id == own for broker in brokers) else -1
    if request.include_cluster_authorized_operations:
        may_see = context.allow(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
        response.cluster_authorized_operations = operations_on_cluster(context, call) if may_see else 0
    return response


def describe_quorum(
    context: Context, call: Call, request: DescribeQuorumRequest, now: Instant
) -> DescribeQuorumResponse:
    """Leader, voters and progress of the metadata quorum (KIP-595); this node is its only voter."""
    if not context.allow(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=code, error_message="Cluster authorization failed.")
    asked = [
        (topic.topic_name, [part.partition_index for part in topic.partitions]) for topic in request.topics
    ]
    if asked != [(METADATA_TOPIC, [0])]:
        return _refused(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC)
    quorum, settings = context.quorum, context.settings
    if not quorum.is_leader:
        return _refused(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER, _NOT_LEADER)
    voter = ReplicaState(
        replica_id=settings.node_id,
        replica_directory_id=quorum.directory_id,
        log_end_offset=quorum.log_end_offset,
        last_fetch_timestamp=now.wall_ms,
        last_caught_up_timestamp=now.wall_ms,
    )
    part = DescribeQuorumResponsePartitionData(
        error_message=None,
        leader_id=settings.node_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[voter],
    )
    # A cluster of one needs no listener for controllers: the quorum is reached on the broker's listener.
    controllers = [
        listener for listener in settings.listeners if listener.name in settings.controller_listener_names
    ]
    endpoints = [
        Listener(one.name, one.host, one.port) for one in controllers or settings.advertised_listeners
    ]
    return DescribeQuorumResponse(
        error_message=None,
        topics=[DescribeQuorumResponseTopicData(METADATA_TOPIC, [part])],
        nodes=[Node(settings.node_id, endpoints)],
    )


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


def update_features(
    context: Context, call: Call, request: UpdateFeaturesRequest, now: Instant
) -> Message | Parked:
    """Set the finalized levels of features (KIP-584)."""
    return propose_if_allowed(context, call, request, Operation.ALTER, now)


def unregister_broker(
    context: Context, call: Call, request: UnregisterBrokerRequest, now: Instant
) -> Message | Parked:
    """Unregister a broker (KIP-631)."""
    return propose_if_allowed(context, call, request, Operation.ALTER, now)
