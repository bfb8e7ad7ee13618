"""The program `sparklog`: its commands, and the report of an error.

Exit codes: 0 done, 1 it failed, 2 asked for in a way that cannot be (usage, settings), 130 interrupted.
"""

import os
import signal
import sys
from importlib import import_module
from types import FrameType

try:
    import click
except ImportError:
    sys.exit("sparklog: the command line needs the server extra: pip install 'sparklog[server]'")

from sparklog import __version__
from sparklog_server.cli.commands import COMMANDS

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
ERRORS_SHOWN_MAX = 20
INSIST_S = 1.0


class Program(click.Group):
    """The commands; a closed output pipe is no failure: `sparklog consume | head` exits with 0."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The order of the commands in the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        place = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"sparklog_server.cli.{place.module}"), place.name)
        return command

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
    """


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; errors are printed on stderr, a line each."""
    before = {number: signal.signal(number, _interrupted) for number in (signal.SIGINT, signal.SIGALRM)}
    try:
        # With standalone_mode off, click returns the command's return value: its exit code, or None.
        return sparklog.main(arguments, prog_name="sparklog", standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
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
    items: dict[object, Exception] = getattr(error, "errors", None) or {None: error}
    for one in list(items.values())[:ERRORS_SHOWN_MAX]:
        print(f"sparklog: {one}", file=sys.stderr)
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
