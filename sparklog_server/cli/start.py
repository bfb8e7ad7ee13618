"""`sparklog start`: a broker in the foreground."""

import gc
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from sparklog_server.config.reload import SettingsFile
    from sparklog_server.config.settings import BrokerSettings


def _broker_keys(context: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    from sparklog_server.cli.setting_names import broker_keys  # a start needs none of it

    return broker_keys(context, option, incomplete)


@click.command()
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Read settings from a Kafka properties file.",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Store all data in this directory (log.dirs). [default: ./sparklog-data]",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Listen on this address; port 0 selects a free port. [default: 127.0.0.1:9092]",
)
@click.option("--node-id", metavar="N", type=int, help="Set the id of this node (node.id). [default: 1]")
@click.option(
    "--join",
    "servers",
    metavar="HOST:PORT,...",
    help="Join the cluster of these brokers as a broker; without --node-id, a free id is chosen.",
)
@click.option(
    "--command-config",
    "client_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="With --join, read the client settings by which the cluster is asked, as other commands do.",
)
@click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a setting by Kafka's name; overrides the file. Repeatable.",
    shell_complete=_broker_keys,
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow a listener that other machines can reach without authentication.",
)
@click.option(
    "--console", "has_console", is_flag=True, help="Start the console too, as a process of its own."
)
@click.option(
    "--console-port",
    metavar="PORT",
    default=9080,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="With --console, its port.",
)
@click.option(
    "--owner-pid", type=int, hidden=True, help="Stop when this parent process is gone or standard input ends."
)
@click.option("--owned-directory", hidden=True, help="Remove this directory at the end.")
# By these the supervisor of an earlier release starts a node of this one.
@click.option("--log-prefix", default="", hidden=True, help="Begin each line of the log with this.")
@click.option("--remedy", hidden=True, help="What the log tells where the node lost its disk.")
def start(
    config: str | None,
    data_dir: str | None,
    listen: str | None,
    node_id: int | None,
    servers: str | None,
    client_file: str | None,
    assignments: tuple[str, ...],
    insecure: bool,
    has_console: bool,
    console_port: int,
    owner_pid: int | None,
    owned_directory: str | None,
    log_prefix: str,
    remedy: str | None,
) -> int:
    """Run a broker until SIGTERM or Ctrl-C; SIGHUP reloads the file of --config, without one it stops.

    By default it is a cluster of one node, formatted on first start. Prints one line when it
    accepts connections: `ready node=<id> listen=<host:port> pid=<pid>`.
    """
    if not __debug__:
        raise click.UsageError(
            "sparklog does not run under python -O: it needs its assertions to protect the data"
        )
    if client_file is not None and servers is None:
        raise click.UsageError("--command-config needs --join")
    given = list(assignments)
    if listen is not None:
        given.append(f"listeners=PLAINTEXT://{listen}")
    if data_dir is not None:
        given.append(f"log.dirs={data_dir}")
    if node_id is not None:
        given.append(f"node.id={node_id}")

    # Nothing created during the start is garbage, so a collection would be wasted. The server enables it
    # again when it is ready.
    gc.disable()
    from sparklog_server.config.load import load
    from sparklog_server.daemon.logs import TraceLog
    from sparklog_server.daemon.node import REFUSALS, refusal_text, run_node

    # The collection before the ready line walks only objects created from here on.
    gc.freeze()
    if servers is None:
        loaded = load(config, given, is_insecure_allowed=insecure)
    else:
        from sparklog_server.cli.joining import join

        TraceLog(sys.stderr).trace("joining", servers=servers)
        try:
            client: dict[str, str] = {}
            if client_file is not None:
                from sparklog_server.cli.client_files import read_client_file

                client = read_client_file(client_file)
            loaded = join(servers, client, config, given, is_insecure_allowed=insecure)
        except REFUSALS as error:
            raise click.ClickException(refusal_text(error)) from error
    console = _start_console(loaded.settings, console_port) if has_console else None
    try:
        return run_node(
            loaded.settings,
            loaded.warnings,
            TraceLog(sys.stderr, log_prefix),
            remedy=remedy or _remedy(config),
            parent_pid=owner_pid,
            owned_directory=owned_directory,
            settings_file=_settings_file(
                config, given, loaded.settings, is_joining=servers is not None, is_insecure_allowed=insecure
            ),
        )
    except REFUSALS as error:
        if log_prefix:
            from sparklog_server.daemon.parent import print_refusal

            print_refusal(refusal_text(error))
            return 1
        raise click.ClickException(refusal_text(error)) from error
    finally:
        if console is not None:
            console.terminate()


def _remedy(config: str | None) -> str:
    """How the directories of this node are formatted; its assignments may be secret."""
    file = ""
    if config is not None:
        from shlex import quote

        file = f" --config {quote(config)}"
    command = f"sparklog format{file} --cluster-id ID --no-initial-controllers"
    return (
        f"run `{command}` with the --set, --data-dir and --node-id of this start (a controller of a new "
        "cluster has --standalone or --initial-controllers in place of --no-initial-controllers), or start "
        "the node with --join"
    )


def _settings_file(
    config: str | None,
    given: "Sequence[str]",
    settings: "BrokerSettings",
    *,
    is_joining: bool,
    is_insecure_allowed: bool,
) -> "SettingsFile | None":
    """The file that SIGHUP reads again, with the assignments of this start and those of --join."""
    if config is None:
        return None
    from sparklog_server.config.reload import SettingsFile

    joined: list[str] = []
    if is_joining:
        from sparklog_server.cli.joining import JOINED_KEYS

        joined = [f"{key}={settings.given[key]}" for key in JOINED_KEYS]
    return SettingsFile(config, [*given, *joined], is_insecure_allowed=is_insecure_allowed)


def _start_console(settings: "BrokerSettings", port: int) -> "subprocess.Popen[bytes]":
    """Start the console for the first listener of clients; it waits for the broker by itself."""
    from sparklog_server.cli.console import start_beside

    controllers = settings.controller_listener_names
    listener = next((one for one in settings.listeners if one.name not in controllers), None)
    if listener is None or listener.is_encrypted or listener.is_sasl or listener.port == 0:
        raise click.UsageError(
            "--console needs a PLAINTEXT listener of a fixed port first; for another one run "
            "`sparklog console --command-config FILE` beside the broker"
        )
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "[::1]"}.get(listener.host, listener.host)  # noqa: S104
    return start_beside(f"{host}:{listener.port}", port)
