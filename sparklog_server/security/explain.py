"""Why a request is allowed or denied, as a pure function of the rules: which rule decides, and what would
have to be added.
"""

from collections.abc import Iterable
from enum import Enum

import msgspec

from sparklog_server.metadata.acls import (
    WILDCARD,
    AclRule,
    PatternType,
    Permission,
    covers,
)
from sparklog_server.security.authorizer import WILDCARD_PRINCIPAL, operations_of
from sparklog_server.security.hosts import canonical, lies_in


class Reason(Enum):
    """What a decision rests on."""

    SUPER_USER = "super user"
    DENIED_BY_RULE = "a rule denies it"
    ALLOWED_BY_RULE = "a rule allows it"
    NO_RULE_FOR_RESOURCE = "no rule concerns the resource"
    NO_RULE_MATCHES = "no rule that concerns the resource matches"


class Explanation(msgspec.Struct, frozen=True):
    """A decision. `rule` decides, if one does; `missing` would allow the operation, once the rules in
    `in_the_way` are removed.
    """

    is_allowed: bool
    reason: Reason
    rule: AclRule | None = None
    missing: AclRule | None = None
    in_the_way: tuple[AclRule, ...] = ()


def explain(
    rules: Iterable[AclRule],
    principal: str,
    host: str,
    operation: int,
    resource_type: int,
    name: str,
    *,
    groups: tuple[str, ...] = (),
    super_users: frozenset[str] = frozenset(),
    allows_without_rules: bool = False,
) -> Explanation:
    """Explain the decision of an authorizer with these rules and settings.

    One function, because a decision has these inputs: the rules, the parts of the request, the settings.
    """
    principals = frozenset((principal, WILDCARD_PRINCIPAL, *groups))
    if not super_users.isdisjoint((principal, *groups)):
        return Explanation(True, Reason.SUPER_USER)
    concerning = [
        rule
        for rule in rules
        if rule.resource_type == resource_type and covers(rule.pattern_type, rule.resource_name, name)
    ]
    matching = [
        rule
        for rule in concerning
        if rule.principal in principals
        and _is_host(rule.host, canonical(host))
        and operations_of(rule) & 1 << operation
    ]
    denying = tuple(rule for rule in matching if rule.permission_type == Permission.DENY)
    allowing = [rule for rule in matching if rule.permission_type == Permission.ALLOW]
    if allowing and not denying:
        return Explanation(True, Reason.ALLOWED_BY_RULE, allowing[0])
    missing = None
    if not allowing:
        missing = AclRule(
            resource_type, name, PatternType.LITERAL, principal, WILDCARD, operation, Permission.ALLOW
        )
    if denying:
        return Explanation(False, Reason.DENIED_BY_RULE, denying[0], missing, denying)
    if not concerning:
        reason = Reason.NO_RULE_FOR_RESOURCE
        return Explanation(allows_without_rules, reason, missing=None if allows_without_rules else missing)
    return Explanation(False, Reason.NO_RULE_MATCHES, missing=missing)


def _is_host(pattern: str, host: str) -> bool:
    if pattern == WILDCARD or canonical(pattern) == host:
        return True
    return "/" in pattern and lies_in(host, pattern)
