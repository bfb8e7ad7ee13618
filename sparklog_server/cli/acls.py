"""`sparklog acls`: access rules, and why an operation is allowed or denied."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from msgspec.structs import asdict

from sparklog.client.admin.acls import AclFilter, AclRule, Operation, PatternFilter, ResourceType
from sparklog.client.admin.admin import Admin
from sparklog.errors import BrokerError, ErrorCode
from sparklog_server.cli.admin import admin
from sparklog_server.cli.option_values import parsed
from sparklog_server.cli.options import keep, reaches_cluster
from sparklog_server.cli.printing import as_json, print_json, print_line, print_table, report
from sparklog_server.cli.watching import can_watch
from sparklog_server.operations.access_rules import operations_in, principal_in, resource_in

Command = TypeVar("Command", bound=Callable[..., Any])

_COLUMNS = ("permission", "operation", "resource", "pattern", "principal", "host")
_FILTER = "acls.filter."


@click.group()
def acls() -> None:
    """Add, list, remove and explain access rules.

    PRINCIPAL is User:NAME, or NAME alone; 'User:*' is every user. RESOURCE is topic:NAME, group:NAME,
    transactional-id:NAME, delegation-token:NAME, user:NAME or cluster; the NAME '*' is every resource of
    that type. Operations: all, read, write, create, delete, alter, describe, cluster-action,
    describe-configs, alter-configs, idempotent-write, create-tokens, describe-tokens, two-phase-commit.
    """


@acls.command()
@click.argument("principal")
@click.argument("operations", metavar="OPERATION,...")
@click.argument("resource")
@click.option("--prefixed", is_flag=True, help="Cover every resource whose name begins with NAME.")
@click.option("--deny", is_flag=True, help="Deny the operations. Deny rules override allow rules.")
@click.option(
    "--host",
    metavar="ADDRESS",
    default="*",
    help="Restrict the rule to clients of this address, or of a network such as 10.0.0.0/8.",
)
@reaches_cluster
def add(principal: str, operations: str, resource: str, prefixed: bool, deny: bool, host: str) -> None:
    """Add rules that allow PRINCIPAL these operations on RESOURCE.

    `sparklog acls add alice read,describe topic:flights`. A consumer needs read on its topic and on its
    group, a producer write on its topic.
    """
    resource_type, name = _resource(resource)
    rules = [
        AclRule(
            resource_type,
            name,
            principal_in(principal),
            operation,
            "deny" if deny else "allow",
            host,
            "prefixed" if prefixed else "literal",
        )
        for operation in _operations(operations)
    ]
    with _authorized() as cluster:
        cluster.create_acls(rules)
    report(f"added {len(rules)} rule{'s' * (len(rules) != 1)}")


def _selects_rules(command: Command) -> Command:
    for name, metavar, text in (
        ("host", "ADDRESS", "Select rules with exactly this host; '*' is any."),
        ("operation", "OPERATION", "Select rules with exactly this operation."),
        ("resource", "RESOURCE", "Select rules of this resource, see --pattern."),
        ("principal", "PRINCIPAL", "Select rules with exactly this principal."),
    ):
        option = click.option(
            f"--{name}", metavar=metavar, help=text, expose_value=False, callback=keep(_FILTER + name)
        )
        command = option(command)
    return click.option(
        "--permission",
        type=click.Choice(("allow", "deny")),
        help="Select rules that allow, or rules that deny.",
        expose_value=False,
        callback=keep(_FILTER + "permission"),
    )(command)


def _selects_pattern(default: PatternFilter) -> Callable[[Command], Command]:
    return click.option(
        "--pattern",
        type=click.Choice(("literal", "prefixed", "match", "any")),
        default=default,
        show_default=True,
        help="Select by pattern: literal and prefixed select rules of this kind that name --resource, match "
        "selects every rule that covers it.",
    )


@acls.command(name="list")
@_selects_rules
@_selects_pattern("match")
@reaches_cluster
@as_json
@can_watch
def list_rules(pattern: PatternFilter, is_json: bool) -> None:
    """List access rules: all of them if no option selects some."""
    wanted = _filter(pattern)
    with _authorized() as cluster:
        found = cluster.describe_acls(wanted)
    _print_rules(found, is_json=is_json)
    if not found and not is_json:
        report("there are no such rules")


@acls.command()
@_selects_rules
@_selects_pattern("literal")
@click.option("--all", "is_all", is_flag=True, help="Remove every rule of the cluster.")
@click.option("--validate-only", is_flag=True, help="Print the rules without removing them.")
@reaches_cluster
@as_json
def remove(pattern: PatternFilter, is_all: bool, validate_only: bool, is_json: bool) -> None:
    """Remove the access rules that the options select, and print them.

    `sparklog acls remove --principal alice --resource topic:flights`
    """
    wanted = _filter(pattern)
    if (wanted == AclFilter()) != is_all:
        raise click.UsageError(
            "select rules with --principal, --resource, --operation, --host or --permission, or every rule "
            "with --all alone"
        )
    with _authorized() as cluster:
        if validate_only:
            removed = cluster.describe_acls(wanted)
        else:
            removed = cluster.delete_acls([wanted])[wanted]
    _print_rules(removed, is_json=is_json)
    if not is_json:
        what = "selected" if validate_only else "removed"
        report(f"{what} {len(removed)} rule{'s' * (len(removed) != 1)}" if removed else "no rule is selected")


@acls.command()
@click.argument("principal")
@click.argument("operation")
@click.argument("resource")
@click.option(
    "--host",
    metavar="ADDRESS",
    default="*",
    help="Decide for a client of this address; without it, rules for single hosts do not match.",
)
@click.option(
    "--group", "groups", metavar="NAME", multiple=True, help="Decide for a member of this group. Repeatable."
)
@reaches_cluster
@as_json
def explain(
    principal: str, operation: str, resource: str, host: str, groups: tuple[str, ...], is_json: bool
) -> None:
    """Explain whether an operation is allowed.

    Prints the decision, the rule that decides, and the commands that would allow a denied operation.
    `super.users` and `allow.everyone.if.no.acl.found` are those of the broker that answers.
    """
    from sparklog_server.operations.access_explained import explained, explanation_lines, json_explanation

    (asked,) = _operations(operation) if "," not in operation else (None,)
    if asked is None or asked == "all":
        raise click.BadParameter(f"{operation!r}: name one operation", param_hint="OPERATION")
    resource_type, name = _resource(resource)
    with _authorized() as cluster:
        answer = explained(
            cluster,
            principal_in(principal),
            host,
            asked,
            resource_type,
            name,
            groups=tuple(group if ":" in group else f"Group:{group}" for group in groups),
        )
    if answer.note:
        report(f"sparklog: {answer.note}")
    if is_json:
        print_json(json_explanation(answer.explanation))
        return
    for line in explanation_lines(answer.explanation):
        print_line(line)


@contextmanager
def _authorized() -> Iterator[Admin]:
    """An administration client; the error for a cluster without rules names the settings."""
    with admin() as cluster:
        try:
            yield cluster
        except BrokerError as error:
            if error.code is not ErrorCode.SECURITY_DISABLED:
                raise
            raise click.ClickException(
                "the cluster has no access rules, every client may do everything; set authorizer.class.name="
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer and super.users on every node"
            ) from None


# -- arguments -----------------------------------------------------------------------------------------------


def _operations(text: str) -> list[Operation]:
    return parsed(lambda: operations_in(text), "OPERATION")


def _resource(text: str) -> tuple[ResourceType, str]:
    return parsed(lambda: resource_in(text), "RESOURCE")


def _filter(pattern: PatternFilter) -> AclFilter:
    meta = click.get_current_context().meta
    given = {
        name: meta[_FILTER + name] for name in ("principal", "resource", "operation", "host", "permission")
    }
    resource_type, name = (None, None) if given["resource"] is None else _resource(given["resource"])
    operation = None
    if given["operation"] is not None:
        (operation,) = _operations(given["operation"])[:1]
    return AclFilter(
        resource_type,
        name,
        "any" if name is None else pattern,
        None if given["principal"] is None else principal_in(given["principal"]),
        given["host"],
        operation,
        given["permission"],
    )


# -- printing ------------------------------------------------------------------------------------------------


def _print_rules(rules: Iterable[AclRule], *, is_json: bool) -> None:
    if is_json:
        print_json([asdict(rule) for rule in rules])
        return
    print_table(
        _COLUMNS,
        [
            [
                rule.permission,
                rule.operation,
                f"{rule.resource_type}:{rule.resource_name}",
                rule.pattern_type,
                rule.principal,
                rule.host,
            ]
            for rule in rules
        ],
    )
