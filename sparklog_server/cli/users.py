"""`sparklog users`: the SCRAM passwords of users."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.credentials import ScramDeletion, ScramMechanism, ScramUpsertion
from sparklog_server.cli.admin import admin
from sparklog_server.cli.options import reaches_cluster
from sparklog_server.cli.printing import as_json, listed, print_json, print_table, report
from sparklog_server.cli.watching import can_watch
from sparklog_server.operations.similar_names import absent

Command = TypeVar("Command", bound=Callable[..., Any])

_MECHANISMS: tuple[ScramMechanism, ...] = ("SCRAM-SHA-512", "SCRAM-SHA-256")
_PASSWORD_BYTES_MAX = 4096


@click.group()
def users() -> None:
    """Add, list and remove users, and change their passwords.

    The passwords are those of SASL/SCRAM. The cluster keeps keys, from which a password cannot be computed.
    """


def _takes_mechanisms(text: str) -> Callable[[Command], Command]:
    return click.option(
        "--mechanism",
        "mechanisms",
        type=click.Choice(_MECHANISMS, case_sensitive=False),
        multiple=True,
        help=f"{text} Repeatable.",
    )


def _takes_password(command: Command) -> Command:
    for option in (
        click.option(
            "--iterations",
            metavar="N",
            type=click.IntRange(4096, 16384),
            default=8192,
            show_default=True,
            help="Set the number of hash iterations, from 4096 to 16384.",
        ),
        click.option(
            "--password-file",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False, allow_dash=True),
            help="Read the password from this file, or from standard input with '-'. Without this option, "
            "it is asked for on a terminal, and read from standard input elsewhere.",
        ),
    ):
        command = option(command)
    return command


@users.command()
@click.argument("user")
@_takes_mechanisms("Add the password for this mechanism. [default: SCRAM-SHA-512]")
@_takes_password
@reaches_cluster
def add(
    user: str, mechanisms: tuple[ScramMechanism, ...], password_file: str | None, iterations: int
) -> None:
    """Add a user with a password."""
    wanted = mechanisms or _MECHANISMS[:1]
    with admin() as cluster:
        present = set(cluster.describe_user_scram_credentials().get(user, {})).intersection(wanted)
        if present:
            raise click.ClickException(
                f"user {user!r} has a password for {', '.join(sorted(present))}; "
                f"`sparklog users password` changes it"
            )
        _set(cluster, user, wanted, password_file, iterations)
    report(f"added {user} ({listed(wanted)})")


@users.command()
@click.argument("user")
@_takes_mechanisms("Change the password of this mechanism only. [default: all that the user has]")
@_takes_password
@reaches_cluster
def password(
    user: str, mechanisms: tuple[ScramMechanism, ...], password_file: str | None, iterations: int
) -> None:
    """Change the password of a user.

    Authenticated sessions continue; connections.max.reauth.ms limits for how long.
    """
    with admin() as cluster:
        present = _require(cluster, user, mechanisms)
        _set(cluster, user, present, password_file, iterations)
    report(f"changed the password of {user} ({listed(present)})")


@users.command(name="list")
@reaches_cluster
@as_json
@can_watch
def list_users(is_json: bool) -> None:
    """List the users with their mechanisms and hash iterations."""
    with admin() as cluster:
        found = cluster.describe_user_scram_credentials()
    if is_json:
        print_json([{"user": user, "mechanisms": mechanisms} for user, mechanisms in found.items()])
        return
    print_table(
        ("user", "mechanism", "iterations"),
        [[user, *mechanism] for user, mechanisms in found.items() for mechanism in mechanisms.items()],
        empty="there are no users",
    )


@users.command()
@click.argument("names", nargs=-1, required=True, metavar="USER...")
@_takes_mechanisms("Remove the password of this mechanism only. [default: all]")
@reaches_cluster
def remove(names: tuple[str, ...], mechanisms: tuple[ScramMechanism, ...]) -> None:
    """Remove users: they cannot authenticate any more. Their access rules stay."""
    with admin() as cluster:
        changes = [
            ScramDeletion(user, mechanism)
            for user in dict.fromkeys(names)
            for mechanism in _require(cluster, user, mechanisms)
        ]
        cluster.alter_user_scram_credentials(changes)
    report(f"removed {listed(f'{one.user} ({one.mechanism})' for one in changes)}")


def _require(cluster: Admin, user: str, mechanisms: tuple[ScramMechanism, ...]) -> list[ScramMechanism]:
    """The named mechanisms, or all that the user has; each must have a password."""
    credentials = cluster.describe_user_scram_credentials()
    present = list(credentials.get(user, {}))
    if not present:
        remedy = "`sparklog users list` shows all, `sparklog users add` adds one"
        raise click.ClickException(absent("user", user, credentials, remedy))
    for mechanism in mechanisms:
        if mechanism not in present:
            raise click.ClickException(
                f"user {user!r} has no password for {mechanism}, only for {', '.join(present)}"
            )
    return list(mechanisms) or present


def _set(
    cluster: Admin,
    user: str,
    mechanisms: Sequence[ScramMechanism],
    password_file: str | None,
    iterations: int,
) -> None:
    text = _password(user, password_file)
    cluster.alter_user_scram_credentials(
        [ScramUpsertion(user, text, mechanism=one, iterations=iterations) for one in mechanisms]
    )


def _password(user: str, file: str | None) -> str:
    """The password: the one line of a file or of standard input, or asked for twice on a terminal."""
    if file is None and sys.stdin.isatty():
        asked: str = click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
        return asked
    place = "standard input" if file in (None, "-") else str(file)
    with click.open_file("-" if file is None else file, "rb") as opened:
        content: bytes = opened.read(_PASSWORD_BYTES_MAX + 1)
    try:
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise click.ClickException(f"the password in {place} is not UTF-8") from None
    if len(content) > _PASSWORD_BYTES_MAX or "\n" in text or "\0" in text:
        raise click.ClickException(
            f"{place} does not have a password: one line of at most {_PASSWORD_BYTES_MAX} bytes is expected"
        )
    if not text:
        raise click.ClickException(f"{place} has no password; its first line must not be empty")
    return text
