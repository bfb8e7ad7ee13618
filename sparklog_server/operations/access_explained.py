"""Why an operation is allowed or denied: the access rules of the cluster, judged as a broker judges them."""

import shlex
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import asdict

from sparklog.client.admin.acls import AclRule, Operation, ResourceType
from sparklog.errors import BrokerError, ErrorCode
from sparklog_server.metadata import acls
from sparklog_server.security.explain import Explanation, Reason, explain

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin

_SUPER_USERS, _EVERYONE = "super.users", "allow.everyone.if.no.acl.found"
_REASONS = {
    Reason.SUPER_USER: "super.users has it",
    Reason.DENIED_BY_RULE: "a rule denies it",
    Reason.ALLOWED_BY_RULE: "a rule allows it",
    Reason.NO_RULE_FOR_RESOURCE: "no rule covers the resource",
    Reason.NO_RULE_MATCHES: "rules cover the resource, and none of them allows it",
}


class Answer(NamedTuple):
    """A decision; `note` is not empty if settings that it rests on are unknown."""

    explanation: Explanation
    note: str


def explained(
    cluster: "Admin",
    principal: str,
    host: str,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    groups: tuple[str, ...],
) -> Answer:
    """The decision of the cluster, from its rules and the settings of a broker."""
    rules = [known for rule in cluster.describe_acls() if (known := _server_rule(rule)) is not None]
    super_users, allows_without_rules, note = _settings(cluster)
    explanation = explain(
        rules,
        principal,
        host,
        acls.Operation[_constant(operation)],
        acls.ResourceType[_constant(resource_type)],
        name,
        groups=groups,
        super_users=super_users,
        allows_without_rules=allows_without_rules,
    )
    return Answer(explanation, note)


def json_explanation(told: Explanation) -> dict[str, object]:
    """The decision as JSON has it; rules have the names of Admin."""

    def rule(one: acls.AclRule | None) -> dict[str, object] | None:
        return None if one is None else asdict(_client_rule(one))

    return {
        "allowed": told.is_allowed,
        "reason": told.reason.name,
        "rule": rule(told.rule),
        "missing": rule(told.missing),
        "in_the_way": [rule(one) for one in told.in_the_way],
    }


def explanation_lines(told: Explanation) -> list[str]:
    """The decision, its rule, and the commands that would allow a denied operation, a line each."""
    lines = [f"{'allowed' if told.is_allowed else 'denied'}: {_REASONS[told.reason]}"]
    if told.reason is Reason.NO_RULE_FOR_RESOURCE:
        lines[0] += f", and {_EVERYONE} is {str(told.is_allowed).lower()}"
    if told.rule is not None:
        lines.append(f"rule: {_client_rule(told.rule)}")
    lines += [f"to remove: {_removal(_client_rule(one))}" for one in told.in_the_way]
    if told.missing is not None:
        lines.append(f"to add: {_addition(_client_rule(told.missing))}")
    return lines


def _settings(cluster: "Admin") -> tuple[frozenset[str], bool, str]:
    """`super.users`, whether everything is allowed where no rule covers the resource, and a note if the user
    may not read them.
    """
    broker = cluster.describe_cluster().nodes[0].node_id
    try:
        (entries,) = cluster.describe_configs(brokers=[broker]).values()
    except BrokerError as error:
        if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        note = f"without describe-configs on cluster, {_SUPER_USERS} and {_EVERYONE} are unknown and left out"
        return frozenset(), False, note
    users = (entries[_SUPER_USERS].value if _SUPER_USERS in entries else None) or ""
    default = entries[_EVERYONE].value if _EVERYONE in entries else None
    return frozenset(one for text in users.split(";") if (one := text.strip())), default == "true", ""


def _constant(name: str) -> str:
    return name.upper().replace("-", "_")


def _server_rule(rule: AclRule) -> acls.AclRule | None:
    """The rule in the form of a broker; None for one that decides nothing, because a part is unknown."""
    if "unknown" in (rule.resource_type, rule.pattern_type, rule.operation, rule.permission):
        return None
    return acls.AclRule(
        acls.ResourceType[_constant(rule.resource_type)],
        rule.resource_name,
        acls.PatternType[_constant(rule.pattern_type)],
        rule.principal,
        rule.host,
        acls.Operation[_constant(rule.operation)],
        acls.Permission[_constant(rule.permission)],
    )


def _client_rule(rule: acls.AclRule) -> AclRule:
    """The rule in the form of Admin; the names of the numbers are the same."""
    resource_type, operation, permission, pattern_type = (
        kind(number).name.lower().replace("_", "-")
        for kind, number in (
            (acls.ResourceType, rule.resource_type),
            (acls.Operation, rule.operation),
            (acls.Permission, rule.permission_type),
            (acls.PatternType, rule.pattern_type),
        )
    )
    return AclRule(
        resource_type,  # type: ignore[arg-type]
        rule.resource_name,
        rule.principal,
        operation,  # type: ignore[arg-type]
        permission,  # type: ignore[arg-type]
        rule.host,
        pattern_type,  # type: ignore[arg-type]
    )


def _addition(rule: AclRule) -> str:
    return _command("add", rule.principal, rule.operation, f"{rule.resource_type}:{rule.resource_name}")


def _removal(rule: AclRule) -> str:
    return _command(
        "remove",
        *("--permission", rule.permission, "--principal", rule.principal, "--operation", rule.operation),
        *("--resource", f"{rule.resource_type}:{rule.resource_name}"),
        *("--pattern", rule.pattern_type, "--host", rule.host),
    )


def _command(*words: str) -> str:
    return shlex.join(("sparklog", "acls", *words))
