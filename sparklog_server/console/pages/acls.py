"""Access rules: list, add, remove, and explain a decision."""

from typing import Final

from starlette.responses import Response

from sparklog.client.admin.acls import OPERATIONS, RESOURCE_TYPES, AclFilter, AclRule
from sparklog.errors import BrokerError, ErrorCode
from sparklog_server.console.ask import Ask, Refused, get, post
from sparklog_server.operations.access_explained import explained, explanation_lines
from sparklog_server.operations.access_rules import operations_in, principal_in, resource_in
from sparklog_server.operations.refused import OperationRefused

SHOWN_MAX: Final = 1000


async def acls(ask: Ask) -> Response:
    """The rules that contain the search text."""
    search, rules, disabled = ask.query("q"), [], False
    try:
        rules = await ask.admin(lambda admin: admin.describe_acls())
    except BrokerError as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:
            raise
        disabled = True
    found = [rule for rule in rules if search.lower() in str(rule).lower()]
    return ask.page(
        "acls.html",
        rules=found[:SHOWN_MAX],
        count=len(found),
        search=search,
        is_disabled=disabled,
        operations=OPERATIONS,
        resource_types=RESOURCE_TYPES,
    )


async def explain(ask: Ask) -> Response:
    """Why an operation is allowed or denied, as `sparklog acls explain`."""
    principal, operation, resource = ask.query("principal"), ask.query("operation"), ask.query("resource")
    host = ask.query("host") or "*"
    lines: list[str] = []
    try:
        if principal:
            lines = await _explained(ask, principal, host, operation, resource)
    except OperationRefused as error:
        ask.wrong(error)
    return ask.page(
        "acls_explain.html",
        lines=lines,
        principal=principal,
        operation=operation,
        resource=resource,
        host=ask.query("host"),
        operations=OPERATIONS[1:],
    )


async def _explained(ask: Ask, principal: str, host: str, operation: str, resource: str) -> list[str]:
    (asked,) = operations_in(operation)[:1]
    if asked == "all":
        raise Refused("name one operation", "operation")
    resource_type, name = resource_in(resource)
    answer = await ask.admin(
        lambda admin: explained(admin, principal_in(principal), host, asked, resource_type, name, groups=())
    )
    lines = explanation_lines(answer.explanation)
    return [*lines, answer.note] if answer.note else lines


async def add(ask: Ask) -> Response:
    """Add a rule."""
    rule = _rule(ask)
    await ask.cluster.change(lambda admin: admin.create_acls([rule]))
    return ask.moved("/acls", f"Added: {rule}")


async def remove(ask: Ask) -> Response:
    """Remove a rule: exactly the one that the form has."""
    rule = _rule(ask)
    exactly = AclFilter(
        rule.resource_type,
        rule.resource_name,
        "prefixed" if rule.pattern_type == "prefixed" else "literal",
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission,
    )
    removed = (await ask.cluster.change(lambda admin: admin.delete_acls([exactly])))[exactly]
    return ask.moved("/acls", f"Removed {len(removed)} rule{'' if len(removed) == 1 else 's'}.")


def _rule(ask: Ask) -> AclRule:
    kind, name = ask.required("type", "the type of the resource"), ask.either("name")
    resource_type, resource_name = resource_in("cluster" if kind == "cluster" else f"{kind}:{name}")
    (operation,) = operations_in(ask.required("operation", "the operation"))[:1]
    return AclRule(
        resource_type,
        resource_name,
        principal_in(ask.required("principal", "the principal")),
        operation,
        "deny" if ask.field("permission") == "deny" else "allow",
        ask.either("host") or "*",
        "prefixed" if ask.field("pattern") == "prefixed" else "literal",
    )


ROUTES = [
    get("/acls", acls),
    get("/acls/explain", explain),
    post("/acls", add, form=acls),
    post("/acls/remove", remove, form=acls),
]
