"""`sparklog quotas`: the quotas of users, client ids and addresses."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from sparklog.client.admin.quotas import QuotaEntity, QuotaFilter
from sparklog_server.cli.admin import admin
from sparklog_server.cli.option_values import pairs
from sparklog_server.cli.options import keep, reaches_cluster
from sparklog_server.cli.printing import as_json, listed, print_json, print_table, report
from sparklog_server.cli.watching import can_watch

Command = TypeVar("Command", bound=Callable[..., Any])

_KINDS = ("user", "client-id", "ip")


@click.group()
def quotas() -> None:
    """Show, set and delete quotas of users, client ids and addresses.

    Keys: producer_byte_rate, consumer_byte_rate (bytes/s), request_percentage, controller_mutation_rate,
    connection_creation_rate.
    """


def _of_entity(command: Command) -> Command:
    for kind in reversed(_KINDS):
        by_default = click.option(
            f"--{kind}-default",
            is_flag=True,
            help=f"Select the default of every {kind} without its own.",
            expose_value=False,
            callback=keep(f"{kind}-default"),
        )
        by_name = click.option(
            f"--{kind}", metavar="NAME", help=f"Select this {kind}.", expose_value=False, callback=keep(kind)
        )
        command = by_name(by_default(command))
    return command


@quotas.command()
@_of_entity
@click.option(
    "--strict",
    is_flag=True,
    help="Show only quotas of exactly these types: --user a omits those of user a and a client id.",
)
@reaches_cluster
@as_json
@can_watch
def describe(strict: bool, is_json: bool) -> None:
    """Show quotas: all of them if no entity is given."""
    parts = _parts()
    # The types are the literals of _parts.
    filters = [
        QuotaFilter(kind, "default" if name is None else "exact", name)  # type: ignore[arg-type]
        for kind, name in parts.items()
    ]
    with admin() as cluster:
        described = cluster.describe_client_quotas(filters, is_strict=strict)
    if is_json:
        print_json([{"entity": dict(entity.parts), "quotas": values} for entity, values in described.items()])
        return
    rows = [
        [str(entity), key, int(value) if value.is_integer() else value]
        for entity, values in described.items()
        for key, value in values.items()
    ]
    print_table(
        ["entity", "quota", "value"],
        rows,
        empty="there are no such quotas",
    )


@quotas.command(name="set")
@_of_entity
@click.argument("assignments", nargs=-1, required=True, metavar="KEY=NUMBER...")
@click.option("--validate-only", is_flag=True, help="Validate without applying.")
@reaches_cluster
def set_quotas(assignments: tuple[str, ...], validate_only: bool) -> None:
    """Set quotas: `sparklog quotas set --user alice producer_byte_rate=1048576`."""
    entity = _entity(_parts())
    changes: dict[str, float | None] = {
        key: _number(key, value) for key, value in pairs(assignments, "KEY=NUMBER").items()
    }
    with admin() as cluster:
        cluster.alter_client_quotas({entity: changes}, validate_only=validate_only)
    report(f"set {listed(changes)} of {entity}", is_trial=validate_only)


@quotas.command()
@_of_entity
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.option("--validate-only", is_flag=True, help="Validate without applying.")
@reaches_cluster
def delete(keys: tuple[str, ...], validate_only: bool) -> None:
    """Delete quotas: the defaults apply again, if there are any."""
    entity = _entity(_parts())
    with admin() as cluster:
        cluster.alter_client_quotas({entity: dict.fromkeys(keys)}, validate_only=validate_only)
    report(f"deleted {listed(keys)} of {entity}", is_trial=validate_only)


def _parts() -> dict[str, str | None]:
    """Names by type, None for its default."""
    given, parts = click.get_current_context().meta, {}
    for kind in _KINDS:
        name, is_default = given[kind], given[f"{kind}-default"]
        if name is not None and is_default:
            raise click.UsageError(f"--{kind} and --{kind}-default exclude each other")
        if name is not None or is_default:
            parts[kind] = name
    return parts


def _entity(parts: dict[str, str | None]) -> QuotaEntity:
    if not parts:
        raise click.UsageError("select an entity with --user, --client-id or --ip, or their -default")
    if "ip" in parts and len(parts) > 1:
        raise click.UsageError("--ip excludes --user and --client-id")
    return QuotaEntity(tuple(sorted(parts.items())))


def _number(key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise click.BadParameter(
            f"{key}={text}: a quota is a number above 0; `sparklog quotas delete` removes one",
            param_hint="KEY=NUMBER",
        )
    return number
