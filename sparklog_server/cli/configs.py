"""`sparklog configs`: settings of topics, brokers, loggers, groups and client metrics."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from sparklog.client.admin.configs import ConfigChange, ConfigEntry, ConfigResource, Operation
from sparklog_server.cli.admin import admin, group_names, topic_names
from sparklog_server.cli.options import keep, reaches_cluster
from sparklog_server.cli.printing import as_json, print_json, print_table, report
from sparklog_server.cli.setting_names import resource_keys
from sparklog_server.cli.watching import can_watch
from sparklog_server.config.units import in_unit_of
from sparklog_server.operations.similar_names import absent

Command = TypeVar("Command", bound=Callable[..., Any])

ALL_BROKERS = "default"
DEFAULT_SOURCES = ("DEFAULT_CONFIG", "UNKNOWN")


@click.group()
def configs() -> None:
    """Show, set and delete settings of topics, brokers, loggers, groups and client metrics."""


def _of_resources(command: Command) -> Command:
    for kind, metavar, what, complete in (
        ("client-metrics", "NAME", "Select a subscription to client metrics.", None),
        ("group", "GROUP", "Select a group.", group_names),
        ("broker-logger", "ID", "Select the loggers of a broker, whose settings are their levels.", None),
        ("broker", "ID", "Select a broker; `default` is the cluster-wide default.", None),
        ("topic", "TOPIC", "Select a topic.", topic_names),
    ):
        command = click.option(
            f"--{kind}",
            metavar=metavar,
            multiple=True,
            help=f"{what} Repeatable.",
            shell_complete=complete,
            expose_value=False,
            callback=keep(kind),
        )(command)
    return command


@configs.command()
@click.argument("keys", nargs=-1, metavar="[KEY]...", shell_complete=resource_keys)
@_of_resources
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="Include settings at their default. With KEYs, show only those, from any source.",
)
@click.option("--doc", is_flag=True, help="Describe each setting.")
@reaches_cluster
@as_json
@can_watch
def describe(keys: tuple[str, ...], is_all: bool, doc: bool, is_json: bool) -> None:
    """Show the settings, their sources and their defaults."""
    wanted = _resources()
    with admin() as cluster:
        described = cluster.describe_resources(wanted)
    shown = [
        (resource, entry)
        for resource in wanted
        for entry in sorted(described[resource].values(), key=lambda entry: entry.name)
        if (entry.name in keys if keys else is_all or entry.source not in DEFAULT_SOURCES)
    ]
    unknown = [key for key in keys if not any(key in entries for entries in described.values())]
    if unknown:
        known = {key for entries in described.values() for key in entries}
        raise click.ClickException(absent("setting", unknown[0], known))
    if is_json:
        print_json([_as_json(resource, entry) for resource, entry in shown])
        return
    columns = ["of", "name", "setting", "value", "source", "default", *(["what it does"] if doc else [])]
    rows = [
        [resource.type, resource.name or ALL_BROKERS, entry.name, _value(entry), entry.source, entry.default]
        + ([entry.documentation or ""] if doc else [])
        for resource, entry in shown
    ]
    if shown:
        print_table(columns, rows)
    else:
        report("nothing is set; `--all` shows the defaults")


@configs.command(name="list")
@click.option(
    "--type",
    "types",
    type=click.Choice(["topic", "broker", "broker-logger", "group", "client-metrics"]),
    multiple=True,
    help="List only these types. Repeatable.",
)
@reaches_cluster
@as_json
@can_watch
def list_resources(types: tuple[str, ...], is_json: bool) -> None:
    """List the resources that can have settings."""
    with admin() as cluster:
        # click checked the types.
        found = cluster.list_config_resources(types)  # type: ignore[arg-type]
    if is_json:
        print_json([{"type": resource.type, "name": resource.name} for resource in found])
        return
    print_table(
        ["type", "name"],
        [[resource.type, resource.name] for resource in found],
        empty="there are no resources of this type",
    )


@configs.command(name="set")
@click.argument("assignments", nargs=-1, required=True, metavar="KEY=VALUE...", shell_complete=resource_keys)
@_of_resources
@click.option("--validate-only", is_flag=True, help="Validate without applying.")
@reaches_cluster
def set_configs(assignments: tuple[str, ...], validate_only: bool) -> None:
    """Set KEY=VALUE; KEY+=VALUE adds to a list, KEY-=VALUE takes from it. Other settings do not change."""
    changes = [_change(assignment) for assignment in assignments]
    _alter(_resources(), changes, is_trial=validate_only)


@configs.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...", shell_complete=resource_keys)
@_of_resources
@click.option("--validate-only", is_flag=True, help="Validate without applying.")
@reaches_cluster
def delete(keys: tuple[str, ...], validate_only: bool) -> None:
    """Delete settings: the default, or the value in the broker's file, applies again."""
    _alter(_resources(), [ConfigChange(key, None, "delete") for key in keys], is_trial=validate_only)


def _alter(resources: list[ConfigResource], changes: list[ConfigChange], *, is_trial: bool) -> None:
    with admin() as cluster:
        cluster.alter_configs(dict.fromkeys(resources, changes), validate_only=is_trial)
    shown = (f"{one.type} {one.name or ALL_BROKERS}" for one in resources)
    report(f"changed {', '.join(shown)}", is_trial=is_trial)


def _change(assignment: str) -> ConfigChange:
    key, equals, value = assignment.partition("=")
    operation: Operation = "append" if key.endswith("+") else "subtract" if key.endswith("-") else "set"
    name = key.strip() if operation == "set" else key[:-1].strip()
    if not equals or not name:
        raise click.BadParameter(f"{assignment!r} is not KEY=VALUE", param_hint="KEY=VALUE")
    return ConfigChange(name, in_unit_of(name, value.strip()), operation)


def _resources() -> list[ConfigResource]:
    given = click.get_current_context().meta
    for broker in given["broker"]:
        if broker != ALL_BROKERS and not broker.isdecimal():
            raise click.BadParameter(
                f"{broker!r} is neither a node id nor `{ALL_BROKERS}`", param_hint="--broker"
            )
    found = [ConfigResource("topic", name) for name in given["topic"]]
    found += [
        ConfigResource("broker", "" if broker == ALL_BROKERS else str(int(broker)))
        for broker in given["broker"]
    ]
    for broker in given["broker-logger"]:
        if not broker.isdecimal():
            raise click.BadParameter(f"{broker!r} is not a node id", param_hint="--broker-logger")
        found.append(ConfigResource("broker-logger", str(int(broker))))
    found += [ConfigResource("group", name) for name in given["group"]]
    found += [ConfigResource("client-metrics", name) for name in given["client-metrics"]]
    if not found:
        raise click.UsageError(
            "select resources with --topic, --broker, --broker-logger, --group or --client-metrics"
        )
    return list(dict.fromkeys(found))


def _value(entry: ConfigEntry) -> str | None:
    return "(hidden)" if entry.is_sensitive else entry.value


def _as_json(resource: ConfigResource, entry: ConfigEntry) -> dict[str, object]:
    return {
        "type": resource.type,
        "resource": resource.name,
        "name": entry.name,
        "value": entry.value,
        "source": entry.source,
        "default": entry.default,
        "value_type": entry.type,
        "is_read_only": entry.is_read_only,
        "is_sensitive": entry.is_sensitive,
        "documentation": entry.documentation,
        "synonyms": [{"name": one.name, "value": one.value, "source": one.source} for one in entry.synonyms],
    }
