"""The program `sparklog`: its commands, and what becomes of an error.

Exit codes: 0 done, 1 it failed, 2 asked for in a way that cannot be (usage, settings), 130 interrupted.
"""

import os
import sys

try:
    import click
except ImportError:
    sys.exit("sparklog: the command line needs the server extra: pip install 'sparklog[server]'")

from sparklog import __version__
from sparklog_server.cli.consume import consume
from sparklog_server.cli.inspect import inspect
from sparklog_server.cli.log_verify import log
from sparklog_server.cli.produce import produce
from sparklog_server.cli.start import start
from sparklog_server.cli.topics import topics

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class Program(click.Group):
    """The commands, as one that ends well when whoever read its output has enough: `sparklog consume | head` is no failure."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command line; click would turn a broken pipe into exit code 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Python would complain at its end without this.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="sparklog", message="%(prog)s %(version)s")
def sparklog() -> None:
    """The streaming log for Python and Spark."""


for command in (start, topics, produce, consume, inspect, log):
    sparklog.add_command(command)


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; errors are told in one line on stderr."""
    try:
        # With standalone_mode off, click returns what the command returned: its exit code, or None.
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
        print(f"sparklog: {error}", file=sys.stderr)
        return code


def _exit_code(error: Exception) -> int | None:
    """The exit code for an error that a user can do something about; None for a bug."""
    from sparklog.errors import SettingsError, SparklogError

    if isinstance(error, SettingsError):
        return EXIT_USAGE
    return EXIT_FAILURE if isinstance(error, SparklogError | OSError) else None


if __name__ == "__main__":
    sys.exit(main())
