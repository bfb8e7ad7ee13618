"""The options shared by commands that connect to a broker: its address and client settings.

The options for the cluster's address are stored in the context and are not parameters of the command:
`client_settings()` reads them.
"""

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

import click

from sparklog.client.settings import ClientSettings, address_of
from sparklog_server.cli.option_values import duration_text, pairs
from sparklog_server.cli.printing import print_line
from sparklog_server.cli.setting_names import client_keys, profile_names

# A person waits for the answer, so an unreachable broker must be reported soon.
API_TIMEOUT_MS = 10_000
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


def client_settings(*, wait_ms: int | None = None, **more: str) -> ClientSettings:
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


def unchecked_settings(**more: str) -> ClientSettings:
    """As `client_settings`, for a command that has work without a cluster too."""
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


# -- reaching a broker ---------------------------------------------------------------------------------------

CONNECT_S_MAX: Final = 3.0
RETRY_S: Final = 0.5
REPORTED_EVERY_S: Final = 10.0


def refused_by(servers: Sequence[str]) -> dict[str, str]:
    """Why each of the servers refuses a connection; empty if one of them accepts it."""
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
    ends_s = time.monotonic() + timeout_ms / 1000
    reported_s: float | None = None
    while reasons := refused_by(servers):
        now_s = time.monotonic()
        if now_s >= ends_s:
            raise no_broker(reasons, f" within {duration_text(timeout_ms)}")
        if reported_s is None or now_s >= reported_s + REPORTED_EVERY_S:
            reported_s = now_s
            retrying(",".join(reasons), next(iter(reasons.values())))
        time.sleep(min(RETRY_S, ends_s - now_s))


def retrying(servers: str, reason: str) -> None:
    """The line for a broker that does not answer."""
    print_line(f"sparklog: broker unreachable, retrying: {servers} ({reason.lower()})", is_error=True)
