"""What the commands that talk to a broker have in common: how to reach it, which settings to take, how to print."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from sparklog.client.settings import ClientSettings

# A person waits for the answer: a broker that is not there should be said so soon.
API_TIMEOUT_MS = 10_000
CONNECT_S_MAX = 3.0

Command = TypeVar("Command", bound=Callable[..., Any])


def bootstrap_server(command: Command) -> Command:
    """The option that says where the cluster is."""
    return click.option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        default="127.0.0.1:9092",
        envvar="SPARKLOG_BOOTSTRAP_SERVER",
        show_default=True,
        help="A broker of the cluster, or several with commas between them.",
    )(command)


def client_setting(command: Command) -> Command:
    """The option that passes settings to the client."""
    return click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help="A client setting by Kafka's name. Repeatable.")(
        command
    )


def as_json(command: Command) -> Command:
    """The option that chooses JSON."""
    return click.option("--json", "is_json", is_flag=True, help="Print JSON.")(command)


def pairs(assignments: Sequence[str], option: str) -> dict[str, str]:
    """`key=value` texts as a mapping."""
    given = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{assignment!r} is not KEY=VALUE", param_hint=option)
        given[key.strip()] = value.strip()
    return given


def client_settings(bootstrap_servers: str, assignments: Sequence[str] = ()) -> "ClientSettings":
    """The settings of a client of the command line."""
    from sparklog.client.settings import ClientSettings

    patience = {"default.api.timeout.ms": str(API_TIMEOUT_MS), "max.block.ms": str(API_TIMEOUT_MS), "client.id": "sparklog-cli"}
    given = patience | pairs(assignments, "--set")
    settings = ClientSettings.from_kafka(given | {"bootstrap.servers": bootstrap_servers})
    _check_reachable(settings.bootstrap_servers)
    return settings


def _check_reachable(servers: Sequence[str]) -> None:
    """Say at once that nobody is there: a client would go on trying, since for a program a broker may come back."""
    import socket

    failures = []
    for server in servers:
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S_MAX).close()
            return
        except OSError as error:
            failures.append(f"{server} ({(error.strerror or str(error)).lower()})")
    raise click.ClickException(f"no broker at {', '.join(failures)}; start one with `sparklog start`, or name one with --bootstrap-server")


def print_json(value: object) -> None:
    """One line of JSON; bytes that are not UTF-8 appear as backslash escapes."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=_text_of) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table on a terminal; elsewhere lines with tabs and no heading, for other programs."""
    if not sys.stdout.isatty():
        sys.stdout.write("".join("\t".join(map(str, row)) + "\n" for row in rows))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns)
    for row in rows:
        # Text, for brackets in a name are no markup.
        table.add_row(*(Text(str(value)) for value in row))
    Console().print(table)


def _text_of(value: object) -> str:
    assert isinstance(value, bytes), value
    return value.decode(errors="backslashreplace")
