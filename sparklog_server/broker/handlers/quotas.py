"""DescribeClientQuotas and AlterClientQuotas: the quotas of clients (KIP-546)."""

from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from sparklog.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.handlers.administration import propose_if_allowed
from sparklog_server.broker.session import Call, Parked
from sparklog_server.controller.refusals import refusal_of
from sparklog_server.metadata.client_quotas import CLIENT_ID, IP, USER, QuotaEntity
from sparklog_server.outcome import TOO_MANY_RECORDS, Refused

if TYPE_CHECKING:
    from sparklog_server.broker.ports import AdministrationPort


_PARTS_MAX = 10_000
"""The maximum number of entries and components of entities in one request."""
_EXACT = 0
_DEFAULT = 1
_SPECIFIED = 2


def alter_client_quotas(
    context: "AdministrationPort", call: Call, request: AlterClientQuotasRequest, now: Instant
) -> Message | Parked:
    """Set and remove quotas of entities, each by itself."""
    if sum(1 + len(entry.entity) for entry in request.entries) > _PARTS_MAX:
        return refusal_of(request, ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS)
    return propose_if_allowed(context, call, request, Operation.ALTER_CONFIGS, now)


def describe_client_quotas(
    context: "AdministrationPort", call: Call, request: DescribeClientQuotasRequest, now: Instant
) -> DescribeClientQuotasResponse:
    """The quotas of the entities that match all components; with `strict`, of those without other types."""
    if not context.allow(call, Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeClientQuotasResponse(
            error_code=code, error_message="Cluster authorization failed.", entries=None
        )
    try:
        exact, specified = _filter(request)
    except Refused as refusal:
        return DescribeClientQuotasResponse(
            error_code=refusal.code, error_message=refusal.message, entries=None
        )
    entries = [
        EntryData(
            entity=[EntityData(kind, name) for kind, name in entity],
            values=[ValueData(key, value) for key, value in numbers.items()],
        )
        for entity, numbers in context.image.quotas.items()
        if _matches(entity, exact, specified, is_strict=request.strict)
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _filter(request: DescribeClientQuotasRequest) -> tuple[dict[str, str | None], dict[str, None]]:
    """(names by type, types that match any name); raises Refused."""
    exact: dict[str, str | None] = {}
    specified: dict[str, None] = {}
    for one in request.components:
        kind = one.entity_type
        reason = None
        if not kind:
            reason = "Invalid empty entity type."
        elif kind in exact or kind in specified:
            reason = f"Entity type {kind} cannot appear more than once in the filter."
        elif kind not in (USER, CLIENT_ID, IP):
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        elif one.match_type == _EXACT:
            if one.match is None:
                reason = "Request specified MATCH_TYPE_EXACT, but set match string to null."
            exact[kind] = one.match
        elif one.match_type == _DEFAULT:
            if one.match is not None:
                reason = "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."
            exact[kind] = None
        elif one.match_type == _SPECIFIED:
            if one.match is not None:
                reason = "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."
            specified[kind] = None
        else:
            reason = f"Unknown match type {one.match_type}"
        if reason is not None:
            raise Refused(ErrorCode.INVALID_REQUEST, reason)
    types = {**exact, **specified}
    if IP in types and len(types) > 1:
        reason = (
            "Invalid entity filter component combination. IP filter component should not be used with user "
            "or clientId filter component."
        )
        raise Refused(ErrorCode.INVALID_REQUEST, reason)
    return exact, specified


def _matches(
    entity: QuotaEntity, exact: dict[str, str | None], specified: dict[str, None], *, is_strict: bool
) -> bool:
    names = dict(entity)
    if is_strict and len(names) != len(exact) + len(specified):
        return False
    return all(kind in names and names[kind] == name for kind, name in exact.items()) and all(
        kind in names for kind in specified
    )
