"""DescribeAcls, CreateAcls and DeleteAcls (KIP-140, KIP-290). Without an authorizer the response is
SECURITY_DISABLED, as in Kafka.
"""

from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from sparklog.effects import Steps
from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.header import encode_reply
from sparklog.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from sparklog.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from sparklog.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.session import Call, Encoded, Parked
from sparklog_server.controller.refusals import refusal_of
from sparklog_server.disk.door import StorageError
from sparklog_server.metadata.acls import AclFilter, AclRule
from sparklog_server.outcome import RECORDS_PER_REQUEST_MAX, TOO_MANY_RECORDS

if TYPE_CHECKING:
    from sparklog_server.broker.ports import AdministrationPort


_STEP = 256
"""The number of rules that are filtered at a time; a table of more is filtered in a job."""
_UNKNOWN = 0

_Response = TypeVar("_Response", bound=Message)


def describe_acls(
    context: "AdministrationPort", call: Call, request: DescribeAclsRequest, now: Instant
) -> DescribeAclsResponse | Parked:
    """List the rules that a filter selects, by resource."""
    if _has_unknown(
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    ):
        return _undecodable(context, call)
    if not context.allow(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeAclsResponse(error_code=code, error_message="Cluster authorization failed.")
    if context.authorization.authorizer is None:
        message = "No Authorizer is configured on the broker"
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=message)
    wanted = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    rules = context.image.acls
    response = DescribeAclsResponse(error_message=None)
    if len(rules) <= _STEP:
        resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
        response.resources = list(_add(resources, rules.values(), wanted).values())
        return response

    def described(result: Encoded | StorageError, _: Instant) -> Encoded:
        assert not isinstance(result, StorageError), "the job reads no disk"
        return result

    context.jobs.run_in_steps(call, partial(_describe, response, rules.values(), wanted, call), described)
    return Parked.MUTING


def _describe(
    response: DescribeAclsResponse, rules: Iterable[AclRule], wanted: AclFilter, call: Call
) -> Steps[Encoded]:
    """The job: the encoded response with the rules that the filter selects."""
    rest = iter(rules)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    while some := list(islice(rest, _STEP)):
        _add(resources, some, wanted)
        yield
    response.resources = list(resources.values())
    return Encoded(response, encode_reply(response, call.api_key, call.version, call.correlation_id))


def _add(
    resources: dict[tuple[int, str, int], DescribeAclsResource],
    rules: Iterable[AclRule],
    wanted: AclFilter,
) -> dict[tuple[int, str, int], DescribeAclsResource]:
    for rule in rules:
        if wanted.selects(rule):
            key = rule.resource_type, rule.resource_name, rule.pattern_type
            if key not in resources:
                resources[key] = DescribeAclsResource(*key, acls=[])
            resources[key].acls.append(
                AclDescription(rule.principal, rule.host, rule.operation, rule.permission_type)
            )
    return resources


def create_acls(
    context: "AdministrationPort", call: Call, request: CreateAclsRequest, now: Instant
) -> CreateAclsResponse | Parked:
    """Add rules."""
    for one in request.creations:
        if _has_unknown(one.resource_type, one.resource_pattern_type, one.operation, one.permission_type):
            return _undecodable(context, call)
    return _change(context, call, request, CreateAclsResponse, now, len(request.creations))


def delete_acls(
    context: "AdministrationPort", call: Call, request: DeleteAclsRequest, now: Instant
) -> DeleteAclsResponse | Parked:
    """Remove the rules that filters select."""
    for one in request.filters:
        if _has_unknown(
            one.resource_type_filter,
            one.pattern_type_filter,
            one.operation,
            one.permission_type,
        ):
            return _undecodable(context, call)
    return _change(context, call, request, DeleteAclsResponse, now, len(request.filters))


def _change(
    context: "AdministrationPort",
    call: Call,
    request: Message,
    response_type: type[_Response],
    now: Instant,
    element_count: int,
) -> _Response | Parked:
    code, message = ErrorCode.NONE, ""
    if not context.allow(call, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        code, message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    elif context.authorization.authorizer is None:
        code, message = ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."
    elif element_count > RECORDS_PER_REQUEST_MAX:  # before the controller looks at each
        code, message = ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS
    if code is not ErrorCode.NONE:
        refusal = refusal_of(request, code, message)
        assert isinstance(refusal, response_type)
        return refusal
    return context.propose_for(call, request, response_type, lambda reply: reply, now)


def _has_unknown(*numbers: int) -> bool:
    """Whether a number is the one for elements that the client does not know: Kafka treats such a request as
    undecodable.
    """
    return _UNKNOWN in numbers


def _undecodable(context: "AdministrationPort", call: Call) -> Parked:
    context.disconnect(call.session, f"a request of API {call.api_key} with an unknown element")
    return Parked.SILENT
