"""DescribeAcls, CreateAcls and DeleteAcls: no authorizer is configured, so the response is SECURITY_DISABLED,
as in Kafka.
"""

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from sparklog.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from sparklog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from sparklog_server.broker.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.context import Context
from sparklog_server.broker.session import Call, Parked

_UNKNOWN = 0
"""A resource type, pattern type, operation or permission that the client itself does not know: Kafka treats
the request as undecodable.
"""


def describe_acls(
    context: Context, call: Call, request: DescribeAclsRequest, now: Instant
) -> DescribeAclsResponse | Parked:
    """List the ACLs that match a filter."""
    if _UNKNOWN in (
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    ):
        return _undecodable(context, call)
    code, message = _refusal(context, call, Operation.DESCRIBE, "No Authorizer is configured on the broker")
    return DescribeAclsResponse(error_code=code, error_message=message)


def create_acls(
    context: Context, call: Call, request: CreateAclsRequest, now: Instant
) -> CreateAclsResponse | Parked:
    """Add ACLs."""
    for one in request.creations:
        if _UNKNOWN in (one.resource_type, one.resource_pattern_type, one.operation, one.permission_type):
            return _undecodable(context, call)
    code, message = _refusal(context, call, Operation.ALTER, "No Authorizer is configured.")
    return CreateAclsResponse(results=[AclCreationResult(code, message) for _ in request.creations])


def delete_acls(
    context: Context, call: Call, request: DeleteAclsRequest, now: Instant
) -> DeleteAclsResponse | Parked:
    """Remove the ACLs that match filters."""
    for one in request.filters:
        if _UNKNOWN in (
            one.resource_type_filter,
            one.pattern_type_filter,
            one.operation,
            one.permission_type,
        ):
            return _undecodable(context, call)
    code, message = _refusal(context, call, Operation.ALTER, "No Authorizer is configured.")
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(code, message) for _ in request.filters])


def _refusal(context: Context, call: Call, operation: Operation, message: str) -> tuple[ErrorCode, str]:
    if not context.allow(call, operation, Resource.CLUSTER, CLUSTER_NAME):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    return ErrorCode.SECURITY_DISABLED, message


def _undecodable(context: Context, call: Call) -> Parked:
    context.disconnect(call.session, f"a request of API {call.api_key} with an unknown element")
    return Parked.SILENT
