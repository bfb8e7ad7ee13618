"""The program `sparklog`: its commands, and the report of an error.

Exit codes: 0 success, 1 failure, 2 error of usage or settings, 130 interrupted.
"""

import io
import os
import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from types import FrameType, MappingProxyType
from typing import Final, NamedTuple

try:
    import click
except ImportError:
    sys.exit("sparklog: the command line needs the server extra: pip install 'sparklog[server]'")

from sparklog import __version__

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
ERRORS_SHOWN_MAX = 20
INSIST_S = 1.0


class Place(NamedTuple):
    """The module of a command, its name in it, and its line in the help: the first sentence of its own."""

    module: str
    name: str
    help: str


class OnDemand(click.Group):
    """A group that imports the modules of its `places` when their commands are asked for: a command pays for
    its own imports only.
    """

    places: Mapping[str, Place] = MappingProxyType({})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in order."""
        return sorted({*self.places, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        if cmd_name not in self.places:
            return super().get_command(ctx, cmd_name)
        place = self.places[cmd_name]
        command: click.Command = getattr(import_module(f"sparklog_server.cli.{place.module}"), place.name)
        return command


# Imported on demand; the help of the program shows the table and imports none.
COMMANDS: Final = {
    "start": Place(
        "start",
        "start",
        "Run a broker until SIGTERM or Ctrl-C; SIGHUP reloads the file of --config, without one it stops.",
    ),
    "format": Place(
        "format",
        "format_directories",
        "Format the directories of a node, as `kafka-storage format` does.",
    ),
    "init": Place(
        "init",
        "init",
        "Prepare a secure cluster, and print the commands that come next.",
    ),
    "certificates": Place(
        "certificates",
        "certificates",
        "Show, renew and add the certificates of a secure cluster.",
    ),
    "topics": Place(
        "topics",
        "topics",
        "Create, list, describe, alter and delete topics, and delete their records.",
    ),
    "quorum": Place(
        "quorum",
        "quorum",
        "Show the voters of the metadata quorum, add and remove them.",
    ),
    "partitions": Place(
        "partitions",
        "partitions",
        "Spread, move and show replicas, and elect the leaders of partitions.",
    ),
    "offsets": Place(
        "offsets",
        "offsets",
        "Show the offsets of partitions.",
    ),
    "configs": Place(
        "configs",
        "configs",
        "Show, set and delete settings of topics, brokers, loggers, groups and client metrics.",
    ),
    "groups": Place(
        "groups",
        "groups",
        "List and describe groups, and move or delete their committed offsets.",
    ),
    "transactions": Place(
        "transactions",
        "transactions",
        "List and describe transactions, and end hanging ones.",
    ),
    "produce": Place(
        "produce",
        "produce",
        "Write each line of FILEs, or of standard input, to TOPIC as one record.",
    ),
    "consume": Place(
        "consume",
        "consume",
        "Print the records of TOPICs, one line each, until Ctrl-C.",
    ),
    "sql": Place(
        "sql",
        "sql",
        "Run a QUERY in DuckDB's SQL over topics.",
    ),
    "cluster": Place(
        "cluster",
        "cluster",
        "Start a cluster on this machine; show its state; grow it, drain and decommission nodes.",
    ),
    "log-dirs": Place(
        "storage",
        "log_dirs",
        "Show the log directories of brokers, and move replicas between them.",
    ),
    "producers": Place(
        "storage",
        "producers",
        "Show the producers of partitions; a hanging transaction has an old time and a first offset.",
    ),
    "quotas": Place(
        "quotas",
        "quotas",
        "Show, set and delete quotas of users, client ids and addresses.",
    ),
    "users": Place(
        "users",
        "users",
        "Add, list and remove users, and change their passwords.",
    ),
    "acls": Place(
        "acls",
        "acls",
        "Add, list, remove and explain access rules.",
    ),
    "profile": Place(
        "profile",
        "profile",
        "Create, select and show profiles: named client settings.",
    ),
    "console": Place(
        "console",
        "console",
        "Serve the console: pages for topics, records, groups and settings of any cluster that "
        "speaks Kafka's protocol.",
    ),
    "status": Place(
        "status",
        "status",
        "Show the cluster on one screen: brokers, release, uptime, topics, lag, disks and last events.",
    ),
    "top": Place(
        "top",
        "top",
        "Show rates by topic, the slowest requests, the lag of groups, and disks, until Ctrl-C.",
    ),
    "health": Place(
        "health",
        "health",
        "Check the cluster: partitions, controllers, brokers, disks, settings, certificates, "
        "clocks and groups.",
    ),
    "selftest": Place(
        "selftest",
        "selftest",
        "Measure disk, loopback network and processor, and a producer with a temporary broker.",
    ),
    "tune": Place(
        "tune",
        "tune",
        "Compare settings of this machine with what a broker needs: value, advice and reason.",
    ),
    "debug": Place(
        "debug",
        "debug",
        "Gather what is needed to find the cause of a problem.",
    ),
    "bench": Place(
        "bench",
        "bench",
        "Measure a Kafka-compatible cluster from this machine.",
    ),
    "inspect": Place(
        "inspect",
        "inspect",
        "Show and check files of a broker: segments, indexes, snapshots, checkpoints, metadata.",
    ),
    "log": Place(
        "log_verify",
        "log",
        "Verify and repair the files of a stopped broker.",
    ),
    "demo": Place(
        "demo",
        "demo",
        "Show a broker, a Python reader and Spark with a year of flights, which survive kill -9.",
    ),
    "tutorial": Place(
        "tutorial",
        "tutorial",
        "Learn topics, records, keys and groups in five minutes, with a temporary broker.",
    ),
    "completion": Place(
        "completion",
        "completion",
        "Complete commands, options, topics, groups and keys of settings in bash, zsh or fish.",
    ),
    "simulate": Place(
        "simulate",
        "simulate",
        "Run a simulated broker under power cuts, kills and pauses, and check the history of its "
        "transactions.",
    ),
}


class Program(OnDemand):
    """The commands; a closed output pipe is no failure: `sparklog consume | head` exits with 0."""

    places = COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The order of the commands in the help."""
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Refuse a name that is no command with similar ones, which click does not know before the import."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from sparklog_server.operations.similar_names import absent

            ctx.fail(absent("command", args[0], COMMANDS))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The lines of the commands in the help."""
        width = formatter.width - 6 - max(map(len, COMMANDS))
        lines = [
            (name, click.Command(name, help=place.help).get_short_help_str(width))
            for name, place in COMMANDS.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(lines)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command line; click would turn a broken pipe into exit code 1."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Otherwise Python reports an error at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return code


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="sparklog", message="%(prog)s %(version)s")
def sparklog() -> None:
    """The streaming log for Python and Spark.

    \b
    SPARKLOG_BOOTSTRAP_SERVER  the broker that commands ask (-b)
    SPARKLOG_PROFILE           the profile that they use (--profile)
    SPARKLOG_SCHEMA_REGISTRY   the schema registry of consume --value-format, with
                               SPARKLOG_SCHEMA_REGISTRY_USERNAME and _PASSWORD
    """


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; errors are printed on stderr, a line each."""
    before = {number: signal.signal(number, _interrupted) for number in (signal.SIGINT, signal.SIGALRM)}
    try:
        # With standalone_mode off, click returns the command's return value: its exit code, or None.
        return sparklog.main(arguments, prog_name="sparklog", standalone_mode=False) or 0
    except click.ClickException as error:
        from sparklog.escapes import lines  # the help needs neither this nor a command

        shown = io.StringIO()
        error.show(shown)
        sys.stderr.write(lines(shown.getvalue()))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise
        _tell(error)
        return code
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, and again by a timer: an exception raised while an object is freed is lost."""
    signal.setitimer(signal.ITIMER_REAL, INSIST_S)
    raise KeyboardInterrupt


def _tell(error: Exception) -> None:
    """Print a line for the error, or for each item that failed."""
    if isinstance(error, UnicodeEncodeError):
        print(
            f"sparklog: {error.object!a} is not UTF-8; only keys, values and headers may be other bytes",
            file=sys.stderr,
        )
        return
    from sparklog.escapes import terminal

    items: dict[object, Exception] = getattr(error, "errors", None) or {None: error}
    for one in list(items.values())[:ERRORS_SHOWN_MAX]:
        print(f"sparklog: {terminal(str(one))}", file=sys.stderr)
    if len(items) > ERRORS_SHOWN_MAX:
        print(f"sparklog: and {len(items) - ERRORS_SHOWN_MAX} more", file=sys.stderr)


def _exit_code(error: Exception) -> int | None:
    """The exit code for an error that a user can resolve; None for a bug."""
    from sparklog.errors import SettingsError, SparklogError

    if isinstance(error, SettingsError | UnicodeEncodeError):
        return EXIT_USAGE
    return EXIT_FAILURE if isinstance(error, SparklogError | OSError) else None


if __name__ == "__main__":
    sys.exit(main())
