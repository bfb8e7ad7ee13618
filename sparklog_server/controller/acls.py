"""CreateAcls and DeleteAcls (KIP-140): the rules become records."""

from collections.abc import Callable, Iterable, Set
from ipaddress import ip_network

from sparklog.errors import ErrorCode
from sparklog.model import Uuid
from sparklog.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from sparklog.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.metadata.acls import (
    CLUSTER_NAME,
    AclFilter,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    record_of,
)
from sparklog_server.metadata.image import MetadataDelta, MetadataImage
from sparklog_server.metadata.records import RemoveAccessControlEntryRecord
from sparklog_server.outcome import RECORDS_PER_REQUEST_MAX, TOO_MANY_RECORDS, Outcome, Refused

_Entropy = Callable[[int], bytes]


class KnownRules:
    """The rules of the pending image as a set, which the first CreateAcls makes."""

    def __init__(self) -> None:
        self._rules: set[AclRule] | None = None

    def of(self, image: MetadataImage) -> Set[AclRule]:
        """The rules of the pending image, whose changes `follow` takes over."""
        if self._rules is None:
            self._rules = set(image.acls.values())
        return self._rules

    def follow(self, delta: MetadataDelta) -> None:
        """Take over the changes of the pending image."""
        if self._rules is None:
            return
        for acl_id in delta.acls_changed:
            if (gone := delta.before.acls.get(acl_id)) is not None:
                self._rules.discard(gone)
        for acl_id in delta.acls_changed:
            if (there := delta.after.acls.get(acl_id)) is not None:
                self._rules.add(there)


def create_acls(
    image: MetadataImage, request: CreateAclsRequest, known: KnownRules, entropy: _Entropy
) -> Outcome[Message, CreateAclsResponse]:
    """Add rules, each with its own result; one that exists is not added again."""
    there = known.of(image)
    made: dict[AclRule, None] = {}
    results: list[AclCreationResult] = []
    for creation in request.creations:
        try:
            rule = _checked(creation)
        except Refused as refusal:
            results.append(AclCreationResult(refusal.code, refusal.message))
            continue
        if rule not in there:
            made[rule] = None
        results.append(AclCreationResult(error_message=None))
    if len(made) > RECORDS_PER_REQUEST_MAX:
        refused = [AclCreationResult(ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS) for _ in request.creations]
        return Outcome((), CreateAclsResponse(results=refused))
    records = tuple(record_of(Uuid(entropy(16)), rule) for rule in made)
    return Outcome(records, CreateAclsResponse(results=results))


def _checked(creation: AclCreation) -> AclRule:
    """The rule of a creation; raises Refused with Kafka's words."""
    name, kind = creation.resource_name, creation.resource_type
    if kind == ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise _invalid("Invalid empty resource name")
    if not ResourceType.TOPIC <= kind <= ResourceType.USER:
        raise _invalid(f"Invalid resourceType {_word(kind)}")
    pattern = creation.resource_pattern_type
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {'MATCH' if pattern == PatternType.MATCH else _word(pattern)}")
    if not Operation.ALL <= creation.operation <= Operation.TWO_PHASE_COMMIT:
        raise _invalid(f"Invalid operation {_word(creation.operation)}")
    if creation.permission_type not in (Permission.DENY, Permission.ALLOW):
        raise _invalid(f"Invalid permissionType {_word(creation.permission_type)}")
    if ":" not in creation.principal:
        raise _invalid(
            f"Could not parse principal from `{creation.principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )
    if "/" in creation.host and not _is_network(creation.host):
        raise _invalid(f"The host `{creation.host}` is no network in CIDR notation, such as 10.0.0.0/8")
    return AclRule(
        kind,
        name,
        pattern,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _word(number: int) -> str:
    return "ANY" if number == ResourceType.ANY else "UNKNOWN"


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)


def delete_acls(image: MetadataImage, request: DeleteAclsRequest) -> Outcome[Message, DeleteAclsResponse]:
    """Remove the rules that each filter selects; a rule that two filters select is a result of both."""
    removed: dict[Uuid, None] = {}
    results: list[DeleteAclsFilterResult] = []
    for one in request.filters:
        unknown = _unknown_part(one)
        if unknown is not None:
            results.append(DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, unknown))
            continue
        wanted = filter_of(one)
        selected = [(acl_id, rule) for acl_id, rule in image.acls.items() if wanted.selects(rule)]
        removed |= dict.fromkeys(acl_id for acl_id, _ in selected)
        results.append(
            DeleteAclsFilterResult(
                error_message=None, matching_acls=list(_matching_acls(rule for _, rule in selected))
            )
        )
        if len(removed) > RECORDS_PER_REQUEST_MAX:
            # The response is as long as the records: a part of it could be missed, so nothing is removed.
            message = f"Cannot remove more than {RECORDS_PER_REQUEST_MAX} acls in a single delete operation."
            refused = [DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, message) for _ in request.filters]
            return Outcome((), DeleteAclsResponse(filter_results=refused))
    records = tuple(RemoveAccessControlEntryRecord(acl_id) for acl_id in removed)
    return Outcome(records, DeleteAclsResponse(filter_results=results))


def filter_of(one: DeleteAclsFilter) -> AclFilter:
    """The filter of a request."""
    return AclFilter(
        one.resource_type_filter,
        one.resource_name_filter,
        one.pattern_type_filter,
        one.principal_filter,
        one.host_filter,
        one.operation,
        one.permission_type,
    )


def _unknown_part(one: DeleteAclsFilter) -> str | None:
    if one.resource_type_filter not in _KINDS or one.pattern_type_filter not in _PATTERNS:
        return "Unknown patternFilter."
    if one.operation not in _OPERATIONS or one.permission_type not in _PERMISSIONS:
        return "Unknown entryFilter."
    return None


_KINDS, _PATTERNS, _OPERATIONS, _PERMISSIONS = (
    frozenset(map(int, kind)) for kind in (ResourceType, PatternType, Operation, Permission)
)


def _matching_acls(rules: Iterable[AclRule]) -> Iterable[DeleteAclsMatchingAcl]:
    for rule in rules:
        yield DeleteAclsMatchingAcl(
            error_message=None,
            resource_type=rule.resource_type,
            resource_name=rule.resource_name,
            pattern_type=rule.pattern_type,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission_type,
        )
