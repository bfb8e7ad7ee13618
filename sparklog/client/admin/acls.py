"""Access rules (ACLs): which principal may perform which operation on which resources (KIP-11, KIP-290)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeVar

from msgspec import Struct

from sparklog.client.admin.calls import Caller, raise_for, refusal, settle
from sparklog.errors import BrokerError
from sparklog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from sparklog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from sparklog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

K = TypeVar("K")
V = TypeVar("V")
Name = TypeVar("Name", bound=str)

ResourceType = Literal["topic", "group", "cluster", "transactional-id", "delegation-token", "user", "unknown"]
PatternType = Literal["literal", "prefixed", "unknown"]
PatternFilter = Literal["literal", "prefixed", "any", "match"]
Operation = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster-action",
    "describe-configs",
    "alter-configs",
    "idempotent-write",
    "create-tokens",
    "describe-tokens",
    "two-phase-commit",
    "unknown",
]
Permission = Literal["allow", "deny", "unknown"]

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type `cluster`."""

_ANY: Final = 1
_TYPES: Final[Mapping[ResourceType, int]] = {
    "topic": 2,
    "group": 3,
    "cluster": 4,
    "transactional-id": 5,
    "delegation-token": 6,
    "user": 7,
}
_PATTERNS: Final[Mapping[PatternType, int]] = {"literal": 3, "prefixed": 4}
_PATTERN_FILTERS: Final[Mapping[PatternFilter, int]] = {"any": 1, "match": 2, "literal": 3, "prefixed": 4}
_OPERATIONS: Final[Mapping[Operation, int]] = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster-action": 9,
    "describe-configs": 10,
    "alter-configs": 11,
    "idempotent-write": 12,
    "create-tokens": 13,
    "describe-tokens": 14,
    "two-phase-commit": 15,
}
_PERMISSIONS: Final[Mapping[Permission, int]] = {"deny": 2, "allow": 3}

RESOURCE_TYPES: Final = tuple(_TYPES)
OPERATIONS: Final = tuple(_OPERATIONS)


class AclRule(Struct, frozen=True, order=True):
    """A rule allows or denies an operation on the resources of a pattern, to a principal such as `User:alice`
    (`User:*` is any) from a host (`*` is any).

    `pattern_type="prefixed"` covers every name that begins with `resource_name`; the literal name `*` covers
    every name. A broker may have rules with a part that this client does not know: that part is "unknown".
    """

    resource_type: ResourceType
    resource_name: str
    principal: str
    operation: Operation
    permission: Permission = "allow"
    host: str = "*"
    pattern_type: PatternType = "literal"

    def __str__(self) -> str:
        return (
            f"{self.permission} {self.operation} on {self.resource_type}:{self.pattern_type}:"
            f"{self.resource_name} for {self.principal} from host {self.host}"
        )


class AclFilter(Struct, frozen=True):
    """Selects the rules that have every given part; None matches any value.

    `pattern_type="match"` selects the rules whose pattern covers the resource of that name, `"literal"` and
    `"prefixed"` those with exactly this pattern.
    """

    resource_type: ResourceType | None = None
    resource_name: str | None = None
    pattern_type: PatternFilter = "any"
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None


def create_acls(caller: Caller, rules: Sequence[AclRule]) -> None:
    """See Admin.create_acls."""
    request = CreateAclsRequest(
        [
            AclCreation(
                _number(_TYPES, rule.resource_type),
                rule.resource_name,
                _number(_PATTERNS, rule.pattern_type),
                rule.principal,
                rule.host,
                _number(_OPERATIONS, rule.operation),
                _number(_PERMISSIONS, rule.permission),
            )
            for rule in rules
        ]
    )
    reply = caller.call(request, CreateAclsResponse, caller.deadline())
    _settle_each(
        rules, [refusal(one.error_code, "access rules", one.error_message) for one in reply.results], rules
    )


def describe_acls(caller: Caller, wanted: AclFilter | None) -> list[AclRule]:
    """See Admin.describe_acls."""
    request = DescribeAclsRequest(*_fields_of(wanted or AclFilter()))
    reply = caller.ask(request, DescribeAclsResponse, caller.deadline(), lambda _: ())
    raise_for(reply.error_code, "access rules", reply.error_message)
    return sorted(
        _rule(
            (resource.resource_type, resource.resource_name, resource.pattern_type),
            (one.principal, one.host, one.operation, one.permission_type),
        )
        for resource in reply.resources
        for one in resource.acls
    )


def delete_acls(caller: Caller, filters: Sequence[AclFilter]) -> dict[AclFilter, list[AclRule]]:
    """See Admin.delete_acls."""
    request = DeleteAclsRequest([DeleteAclsFilter(*_fields_of(one)) for one in filters])
    reply = caller.call(request, DeleteAclsResponse, caller.deadline())
    errors: list[BrokerError | None] = []
    removed: list[list[AclRule]] = []
    for result in reply.filter_results:
        error = refusal(result.error_code, "access rules", result.error_message)
        rules = []
        for one in result.matching_acls:
            error = error or refusal(one.error_code, "access rules", one.error_message)
            if not one.error_code:
                rules.append(
                    _rule(
                        (one.resource_type, one.resource_name, one.pattern_type),
                        (one.principal, one.host, one.operation, one.permission_type),
                    )
                )
        errors.append(error)
        removed.append(sorted(rules))
    return _settle_each(filters, errors, removed)


def _fields_of(wanted: AclFilter) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    """The fields of a filter in the requests that have one, in their order."""
    return (
        _any_or(_TYPES, wanted.resource_type),
        wanted.resource_name,
        _number(_PATTERN_FILTERS, wanted.pattern_type),
        wanted.principal,
        wanted.host,
        _any_or(_OPERATIONS, wanted.operation),
        _any_or(_PERMISSIONS, wanted.permission),
    )


def _settle_each(
    items: Sequence[K], errors: Iterable[BrokerError | None], results: Sequence[V]
) -> dict[K, V]:
    """The results by item; raises ItemsFailed. The broker answers in the order of the request."""
    outcomes = list(zip(items, errors, results, strict=True))
    return settle(
        {item: result for item, error, result in outcomes if error is None},
        {item: error for item, error, _ in outcomes if error is not None},
    )


def _number(numbers: Mapping[Name, int], name: Name) -> int:
    try:
        return numbers[name]
    except KeyError:
        raise ValueError(f"{name!r} is none of {', '.join(numbers)}") from None


def _any_or(numbers: Mapping[Name, int], name: Name | None) -> int:
    return _ANY if name is None else _number(numbers, name)


def _rule(resource: tuple[int, str, int], entry: tuple[str, str, int, int]) -> AclRule:
    resource_type, name, pattern_type = resource
    principal, host, operation, permission = entry
    return AclRule(
        _TYPE_NAMES.get(resource_type, "unknown"),
        name,
        principal,
        _OPERATION_NAMES.get(operation, "unknown"),
        _PERMISSION_NAMES.get(permission, "unknown"),
        host,
        _PATTERN_NAMES.get(pattern_type, "unknown"),
    )


_TYPE_NAMES: Final[Mapping[int, ResourceType]] = {number: name for name, number in _TYPES.items()}
_PATTERN_NAMES: Final[Mapping[int, PatternType]] = {number: name for name, number in _PATTERNS.items()}
_OPERATION_NAMES: Final[Mapping[int, Operation]] = {number: name for name, number in _OPERATIONS.items()}
_PERMISSION_NAMES: Final[Mapping[int, Permission]] = {number: name for name, number in _PERMISSIONS.items()}
