"""The options shared by commands that connect to a broker: its address, client settings and output.

The options for the cluster's address are stored in the context and are not parameters of the command:
`admin()` and `client_settings()` read them.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from sparklog import escapes
from sparklog_server.cli.setting_names import client_keys, profile_names

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.client.admin.topics import Topic
    from sparklog.client.settings import ClientSettings
    from sparklog.errors import BrokerError
    from sparklog.model import TopicPartition

# A person waits for the answer, so an unreachable broker must be reported soon.
API_TIMEOUT_MS = 10_000
NAMES_LIKE_MAX = 3
PARTITION_NUMBER_MAX = (1 << 31) - 1
_NOTHING: Mapping[str, str] = MappingProxyType({})

_SERVER_DEFAULT = "127.0.0.1:9092"
_SERVER, _SETTINGS, _FILE = "sparklog.bootstrap-server", "sparklog.settings", "sparklog.command-config"
_SERVER_OUTSIDE, _PROFILE = "sparklog.bootstrap-server-outside", "sparklog.profile"

Command = TypeVar("Command", bound=Callable[..., Any])


def reaches_cluster(command: Command) -> Command:
    """Add the options for the cluster's address and the client's settings."""
    for option in (
        click.option(
            "-X",
            "--set",
            "client_assignments",
            metavar="KEY=VALUE",
            multiple=True,
            expose_value=False,
            callback=keep(_SETTINGS),
            help="Set a client setting by Kafka's name. Repeatable.",
            shell_complete=client_keys,
        ),
        click.option(
            "--profile",
            metavar="NAME",
            envvar="SPARKLOG_PROFILE",
            show_envvar=True,
            expose_value=False,
            callback=keep(_PROFILE),
            help="Take client settings from this profile. [default: the current one, unless a broker or a "
            "file is given]",
            shell_complete=profile_names,
        ),
        click.option(
            "--command-config",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False),
            expose_value=False,
            callback=keep(_FILE),
            help="Read client settings from a file: .conf has librdkafka's names, .toml those of Python, any "
            "other is a Kafka properties file.",
        ),
        click.option(
            "-b",
            "--bootstrap-server",
            metavar="HOST:PORT",
            envvar="SPARKLOG_BOOTSTRAP_SERVER",
            show_envvar=True,
            expose_value=False,
            callback=_keep_server,
            help="Connect to a broker of the cluster, or to one of several separated by commas. [default: "
            f"bootstrap.servers of the file or the profile, or {_SERVER_DEFAULT}]",
        ),
    ):
        command = option(command)
    return command


def as_json(command: Command) -> Command:
    """Add the option that selects JSON."""
    return click.option("--json", "is_json", is_flag=True, help="Print JSON.")(command)


def takes_base_port(use: str) -> Callable[[Command], Command]:
    """Add `--base-port`; `use` says what the ports from it on are for."""
    return click.option(
        "--base-port",
        metavar="PORT",
        type=int,
        default=9092,
        show_default=True,
        help=f"{use}; 0 selects free ports.",
    )


def keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """The callback of an option shared by many commands: its value is stored in the context's `meta`."""

    # Any: click passes the value that the option's type has parsed.
    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        context.meta[name] = value

    return keep


def _keep_server(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Keep the address, and apart one of the environment, before which that of a file comes."""
    is_of_environment = (
        option.name is not None
        and context.get_parameter_source(option.name) is click.core.ParameterSource.ENVIRONMENT
    )
    context.meta[_SERVER] = None if is_of_environment else value
    context.meta[_SERVER_OUTSIDE] = value


def pairs(assignments: Sequence[str], option: str) -> dict[str, str]:
    """`key=value` texts as a mapping; a value with a unit, such as `7d`, is converted to that of its key."""
    from sparklog_server.config.units import in_unit_of  # for commands that take settings

    given = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{key[:60]!r} is not KEY=VALUE", param_hint=option)
        given[key.strip()] = in_unit_of(key.strip(), value.strip())
    return given


def client_settings(*, wait_ms: int | None = None, **more: str) -> "ClientSettings":
    """The settings of a client of this command: those of the profile and the file, over them `more`, the
    command's options by names with `_` for `.`, over them --set. Fails if no broker is reachable: at once,
    or after `wait_ms`.
    """
    settings = unchecked_settings(**more)
    if wait_ms is not None:
        wait_for_broker(settings.bootstrap_servers, wait_ms)
    # A client would retry until its timeout, because a broker may return.
    elif reasons := refused_by(settings.bootstrap_servers):
        raise no_broker(reasons)
    return settings


def unchecked_settings(**more: str) -> "ClientSettings":
    """As `client_settings`, for a command that has work without a cluster too."""
    from sparklog.client.settings import ClientSettings

    patience = {
        "default.api.timeout.ms": str(API_TIMEOUT_MS),
        "max.block.ms": str(API_TIMEOUT_MS),
        "client.id": "sparklog-cli",
    }
    given = {name.replace("_", "."): value for name, value in more.items()}
    return ClientSettings.from_kafka(client_map(patience, given))


def client_map(less: Mapping[str, str] = _NOTHING, more: Mapping[str, str] = _NOTHING) -> dict[str, str]:
    """The settings of this command's options by Kafka's names: `less` are below those of files, `more` above
    them.
    """
    meta = click.get_current_context().meta
    assigned = pairs(meta[_SETTINGS], "--set")
    given = {**less, "bootstrap.servers": meta[_SERVER_OUTSIDE] or _SERVER_DEFAULT}
    # The credentials of the current profile go to no cluster that was named otherwise.
    is_named = meta[_SERVER_OUTSIDE] or meta[_FILE] is not None or "bootstrap.servers" in assigned
    if meta[_PROFILE] is not None or not is_named:
        from sparklog_server.cli.profiles import read_profiles

        profiles = read_profiles()
        name = meta[_PROFILE] or profiles.current
        if name is not None:
            given |= profiles.settings_of(name)
    if meta[_FILE] is not None:
        from sparklog_server.cli.client_files import read_client_file

        given |= read_client_file(meta[_FILE])
    given |= {**more, **assigned}
    if meta[_SERVER] is not None:
        given["bootstrap.servers"] = meta[_SERVER]
    return given


def without_options(context: click.Context) -> None:
    """Give the options of `reaches_cluster` their absent values, where click has not parsed them: in shell
    completion.
    """
    absent = {_SERVER: None, _SERVER_OUTSIDE: None, _PROFILE: None, _SETTINGS: (), _FILE: None}
    for name, value in absent.items():
        context.meta.setdefault(name, value)


@contextmanager
def admin(*, awaits_silent: bool = True) -> "Iterator[Admin]":
    """An administration client for this command; one for a survey goes on without silent brokers. An error
    for a name that the cluster does not have suggests similar ones.
    """
    from sparklog.client.admin.admin import Admin, ItemsFailed

    with Admin.from_settings(client_settings(), awaits_silent=awaits_silent) as cluster:
        try:
            yield cluster
        except ItemsFailed as failed:
            errors = {item: _with_similar(cluster, item, error) for item, error in failed.errors.items()}
            raise ItemsFailed(errors, failed.results) from None


# -- names ---------------------------------------------------------------------------------------------------


def partitions_in(text: str) -> tuple[str, tuple[int, ...] | None]:
    """The topic and partitions of `topic` or `topic:0,1,2`, as in Kafka's tools; None for all partitions."""
    topic, colon, numbers = text.rpartition(":")
    if not colon:
        return text, None
    listed = numbers.split(",")
    if not topic or not all(number.isdecimal() and int(number) <= PARTITION_NUMBER_MAX for number in listed):
        raise click.BadParameter(f"{text!r} is neither TOPIC nor TOPIC:0,1,2", param_hint="--topic")
    return topic, tuple(dict.fromkeys(map(int, listed)))


def partitions_named(admin: "Admin", texts: Iterable[str]) -> "list[TopicPartition]":
    """The partitions of texts such as `topic` and `topic:0,1`; each must exist."""
    from sparklog.model import TopicPartition

    named = [partitions_in(text) for text in texts]
    topics = topics_named(admin, dict.fromkeys(topic for topic, _ in named))
    found: dict[TopicPartition, None] = {}
    for topic, numbers in named:
        existing = [partition.partition for partition in topics[topic].partitions]
        for number in existing if numbers is None else numbers:
            if number not in existing:
                raise click.ClickException(
                    f"topic {topic} has no partition {number}; it has {len(existing)}, from 0 on"
                )
            found[TopicPartition(topic, number)] = None
    return list(found)


def topics_named(admin: "Admin", names: Iterable[str]) -> "dict[str, Topic]":
    """Topics by their names; the error for an unknown name suggests similar ones."""
    from sparklog.client.failures import UnknownTopic

    asked = list(names)
    try:
        return admin.describe_topics(asked)
    except UnknownTopic:
        existing = admin.list_topics()
        for name in asked:
            if name not in existing:
                raise click.ClickException(absent("topic", name, existing)) from None
        raise


def absent(kind: str, name: str, existing: Iterable[str], remedy: str = "") -> str:
    """`there is no topic 'x'; did you mean 'y'?` with similar names if there are any, and the remedy if
    there is one.
    """
    from difflib import get_close_matches  # imported only for an unknown name

    near = get_close_matches(name, list(existing), n=NAMES_LIKE_MAX, cutoff=0.7)
    question = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"there is no {kind} {name!r}{question}" + (remedy and f"{' ' if near else '; '}{remedy}")


def _with_similar(cluster: "Admin", item: object, error: "BrokerError") -> "BrokerError":
    """The error of an item; one of a name that the cluster does not have suggests similar names."""
    from sparklog.errors import BrokerError, ErrorCode, SparklogError

    # A setting's resource has a name, a partition a topic; groups and transactional ids are texts.
    name = getattr(item, "name", None) or getattr(item, "topic", None) or item
    if not isinstance(name, str):
        return error
    try:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            existing: Iterable[str] = cluster.list_topics(include_internal=True)
            text = absent("topic", name, existing)
            if name in existing:
                return error  # what it lacks is the partition
        elif error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            text = absent("group", name, [group.group_id for group in cluster.list_groups()])
        elif error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            ids = [one.transactional_id for one in cluster.list_transactions()]
            text = absent("transactional id", name, ids)
        else:
            return error
    except SparklogError:
        return error  # names are optional: the user may be allowed less than to list them
    return BrokerError(error.code, text)


# -- printing ------------------------------------------------------------------------------------------------


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    from sparklog_server.operations.json_records import json_text  # most commands print tables

    sys.stdout.write(json_text(value))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    emphasis: Mapping[int, str] | None = None,
    empty: str = "",
) -> None:
    """A table on a terminal; elsewhere lines with tabs and no heading, for other programs. None is empty,
    and `-` on a terminal.

    `emphasis` are styles by the number of a row. Without rows, `empty` is told on stderr.
    """
    if not rows and empty:
        report(empty)
        return
    if not sys.stdout.isatty():
        sys.stdout.write("".join("\t".join(map(escapes.cell, row)) + "\n" for row in rows))
        return
    from shutil import get_terminal_size

    from rich.console import Console
    from rich.text import Text

    from sparklog_server.cli.tables import Column, table_of

    told = [["-" if value is None else escapes.cell(value) for value in row] for row in rows]
    table = table_of(
        [
            Column(
                name,
                [row[index] for row in told],
                is_number=any(isinstance(row[index], int | float) for row in rows),
            )
            for index, name in enumerate(columns)
        ],
        get_terminal_size().columns,
    )
    console, styles = Console(), emphasis or {}
    # Plain text, because names may contain brackets, which are markup otherwise.
    for line, style in zip(table.heading, ("bold", "dim"), strict=True):
        console.print(Text(line, style), soft_wrap=True)
    for number, lines in enumerate(table.rows):
        for line in lines:
            console.print(Text(line, styles.get(number, "")), soft_wrap=True)


def print_line(*cells: object, is_error: bool = False) -> None:
    """A line with tabs between its cells. Commands print texts of the cluster by this, `print_table` and
    `print_json` only: they escape what would act on a terminal, or begin another cell or line.
    """
    click.echo("\t".join(map(escapes.cell, cells)), err=is_error)


def report(text: str, *, is_trial: bool = False) -> None:
    """A line on stderr: what was done, or that there is nothing to print. A trial did nothing."""
    print_line("valid; nothing was changed" if is_trial else text, is_error=True)


def tell_missing(errors: "Mapping[Any, BrokerError]") -> int:
    """Name on stderr what is missing; the exit code: 1 if anything is."""
    for error in errors.values():
        print_line(f"sparklog: incomplete: {error}", is_error=True)
    return 1 if errors else 0


def say(text: str) -> None:
    """A remark on stderr, only if the output goes to a terminal."""
    if sys.stdout.isatty():
        print_line(text, is_error=True)


def bytes_text(size_bytes: int | None) -> object:
    """A size with a unit on a terminal, as a number elsewhere."""
    if size_bytes is None or not sys.stdout.isatty():
        return size_bytes
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def listed(values: Iterable[object]) -> str:
    """The items separated by commas."""
    return ",".join(map(str, values))


# -- reaching a broker ---------------------------------------------------------------------------------------

CONNECT_S_MAX: Final = 3.0
RETRY_S: Final = 0.5
TOLD_EVERY_S: Final = 10.0


def refused_by(servers: Sequence[str]) -> dict[str, str]:
    """Why each of the servers refuses a connection; empty if one of them accepts it."""
    import socket

    from sparklog.client.settings import address_of

    reasons = {}
    for server in servers:
        try:
            host, port = address_of(server)
            # In bytes: a name as text costs the import of a codec for names that are not ASCII.
            name = host.encode() if host.isascii() else host
            socket.create_connection((name, port), timeout=CONNECT_S_MAX).close()  # type: ignore[arg-type]
        except OSError as error:
            reasons[server] = (error.strerror or str(error)).lower()
        else:
            return {}
    return reasons


def no_broker(reasons: Mapping[str, str], within: str = "") -> click.ClickException:
    """The error of servers that refuse connections."""
    listed = ", ".join(f"{server} ({reason})" for server, reason in reasons.items())
    return click.ClickException(
        f"no broker at {listed}{within}; start one with `sparklog start`, or name one with --bootstrap-server"
    )


def wait_for_broker(servers: tuple[str, ...], timeout_ms: int) -> None:
    """Return once a broker accepts a connection; ClickException after `timeout_ms`."""
    import time

    from sparklog_server.cli.positions import duration_text

    ends_s = time.monotonic() + timeout_ms / 1000
    told_s: float | None = None
    while reasons := refused_by(servers):
        now_s = time.monotonic()
        if now_s >= ends_s:
            raise no_broker(reasons, f" within {duration_text(timeout_ms)}")
        if told_s is None or now_s >= told_s + TOLD_EVERY_S:
            told_s = now_s
            retrying(",".join(reasons), next(iter(reasons.values())))
        time.sleep(min(RETRY_S, ends_s - now_s))


def retrying(servers: str, reason: str) -> None:
    """The line for a broker that does not answer."""
    click.echo(
        escapes.terminal(f"sparklog: broker unreachable, retrying: {servers} ({reason.lower()})"), err=True
    )
