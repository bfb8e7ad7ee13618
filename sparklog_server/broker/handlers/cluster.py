"""The cluster: its brokers and its features."""

from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from sparklog.wire.messages.unregister_broker import UnregisterBrokerRequest
from sparklog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.handlers.administration import propose_if_allowed
from sparklog_server.broker.handlers.authorized_operations import operations_on_cluster
from sparklog_server.broker.session import Call, Parked

if TYPE_CHECKING:
    from sparklog_server.broker.ports import AdministrationPort, MetadataPort


_FEATURES_MAX = 1_000
_ENDPOINTS = {1: "BROKER", 2: "CONTROLLER"}
_BROKERS, _CONTROLLERS = _ENDPOINTS


def describe_cluster(
    context: "MetadataPort", call: Call, request: DescribeClusterRequest, now: Instant
) -> DescribeClusterResponse:
    """The brokers of the cluster with the listener of the request (KIP-700); no authorization is required,
    as in Kafka. On a listener of controllers, the controllers (KIP-919), which requires ALTER on the cluster.
    """
    kind, session = request.endpoint_type, call.session
    own = _CONTROLLERS if session.is_controller else _BROKERS
    if kind not in _ENDPOINTS:
        message = f"Unsupported endpoint type {kind}"
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=message)
    if kind != own:
        message = (
            f"The request was sent to an endpoint of type {_ENDPOINTS[own]}, but we wanted an endpoint of "
            f"type {_ENDPOINTS[kind]}"
        )
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=message)
    if session.is_controller:
        if not context.allow(call, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
            return DescribeClusterResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        nodes, contact = _controllers(context, session.listener), int(context.quorum.raft.leader_id)
    else:
        nodes, contact = _brokers(context, request, session.listener), context.settings.node_id
    response = DescribeClusterResponse(cluster_id=context.cluster_id, brokers=nodes, endpoint_type=kind)
    response.controller_id = contact if any(node.broker_id == contact for node in nodes) else -1
    if request.include_cluster_authorized_operations:
        may_see = context.allow(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
        response.cluster_authorized_operations = operations_on_cluster(context, call) if may_see else 0
    return response


def _brokers(
    context: "MetadataPort", request: DescribeClusterRequest, listener: str
) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(
            broker_id=broker.node_id,
            host=endpoint.host,
            port=endpoint.port,
            rack=broker.rack,
            is_fenced=broker.is_fenced,
        )
        for broker in context.image.brokers.values()
        if (request.include_fenced_brokers or not broker.is_fenced)
        and (endpoint := broker.endpoint(listener)) is not None
    ]


def _controllers(context: "MetadataPort", listener: str) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(broker_id=controller.node_id, host=endpoint.host, port=endpoint.port)
        for controller in context.image.controllers.values()
        for endpoint in controller.endpoints
        if endpoint.name == listener
    ]


def update_features(
    context: "AdministrationPort", call: Call, request: UpdateFeaturesRequest, now: Instant
) -> Message | Parked:
    """Set the finalized levels of features (KIP-584)."""
    if (count := len(request.feature_updates)) > _FEATURES_MAX:
        message = f"{count} updates, and no cluster has more than {_FEATURES_MAX} features."
        return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)
    return propose_if_allowed(context, call, request, Operation.ALTER, now)


def unregister_broker(
    context: "AdministrationPort", call: Call, request: UnregisterBrokerRequest, now: Instant
) -> Message | Parked:
    """Unregister a broker (KIP-631)."""
    return propose_if_allowed(context, call, request, Operation.ALTER, now)
