"""`sparklog tutorial`: topics, records, keys and groups in five minutes, against a broker of its own."""

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Final, NamedTuple

import click

import sparklog

_PROGRAM: Final = "from sparklog_server.cli.program import run; run()"


class Step(NamedTuple):
    """What is explained, and the command line that shows it."""

    title: str
    text: str
    line: str


STEPS: Final = (
    Step(
        "A topic has partitions",
        "Records are kept in topics. A topic is divided into partitions: each is a log, to which records are "
        "appended in order.",
        "sparklog topics create flights --partitions 2",
    ),
    Step(
        "Records have keys and values",
        "Each line becomes a record, here with the carrier as its key and the delay as its value. Records "
        "with the same key go to the same partition, so their order is kept.",
        r"printf 'UA:12\nB6:-3\nUA:40\nDL:7\n' | sparklog produce flights --key-separator :",
    ),
    Step(
        "Reading takes nothing away",
        "A consumer reads from any position, as often as it wants. The format is that of kcat: partition, "
        "offset, key and value.",
        r"sparklog consume flights --from beginning --exit-eof -f 'partition %p offset %o: %k %s\n'",
    ),
    Step(
        "A group remembers what it has read",
        "Consumers with the same group share the partitions, and commit how far they have come. This one "
        "stops after two records.",
        "sparklog consume flights --group delays --from beginning --max 2",
    ),
    Step(
        "The lag is what is left to read",
        "For each partition: the committed offset, the end of the log, and the difference.",
        "sparklog groups describe delays",
    ),
    Step(
        "A group goes on where it stopped",
        "The next member of the group reads the other two records, and only these.",
        "sparklog consume flights --group delays --max 2",
    ),
    Step(
        "A group can begin again",
        "Its offsets are moved back, also to a time or by a number. Without --execute, the command only "
        "shows what it would do.",
        "sparklog groups reset-offsets delays --topic flights --to-earliest --execute",
    ),
    Step(
        "Records are JSON for other programs",
        "Every field of a record survives, bytes included. Here they are copied to another topic, which "
        "--create creates.",
        "sparklog consume flights --from beginning --exit-eof --json | "
        "sparklog produce copy --from-json --create",
    ),
    Step(
        "Topics have settings",
        "With this one, records older than a week are deleted.",
        "sparklog topics alter flights --config retention.ms=7d",
    ),
    Step(
        "Where everything is",
        "Leaders, replicas, sizes and offsets of each partition, and the settings of the topic.",
        "sparklog topics describe flights",
    ),
    Step(
        "The cluster on one screen",
        "Brokers, topics, lag and disks; with an HTTP listener also release, uptime and the last events.",
        "sparklog status",
    ),
)
END: Final = """\
That was all. To go on:
  sparklog start               a broker that keeps its data in ./sparklog-data
  sparklog COMMAND --help      every option of a command
  sparklog completion install  completion in your shell\
"""


@click.command()
@click.option("-y", "--yes", is_flag=True, help="Run every step without asking.")
def tutorial(yes: bool) -> int:
    """Learn topics, records, keys and groups in five minutes, with a temporary broker.

    Shows each command and runs it on Enter. The broker and its data are removed at the end; nothing else is
    changed.
    """
    is_asking = not yes and sys.stdin.isatty()
    click.echo("Starting a temporary broker …", err=True)
    with (
        tempfile.TemporaryDirectory(prefix="sparklog-tutorial-") as directory,
        sparklog.embedded() as broker,
    ):
        click.echo(f"A broker listens on {broker.bootstrap_servers}.")
        environment = _environment(Path(directory), broker.bootstrap_servers)
        for number, step in enumerate(STEPS, start=1):
            click.echo()
            click.secho(f"{number}/{len(STEPS)}  {step.title}", bold=True)
            click.echo(textwrap.fill(step.text, min(100, shutil.get_terminal_size().columns)))
            click.secho(f"$ {step.line}", fg="cyan")
            if is_asking and not _is_wanted():
                return 0
            sys.stdout.flush()
            done = subprocess.run(["/bin/sh", "-c", step.line], cwd=directory, env=environment, check=False)
            if done.returncode:
                raise click.ClickException(f"step {number} ended with {done.returncode}: {step.line}")
        click.echo()
        click.echo(END)
    return 0


def _is_wanted() -> bool:
    answer: str = click.prompt("Enter runs it, q ends", default="", show_default=False, prompt_suffix=": ")
    return answer.strip().lower() not in ("q", "quit")


def _environment(directory: Path, server: str) -> dict[str, str]:
    """That of the commands: `sparklog` is this program, and finds the broker."""
    program = directory / "sparklog"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{_PROGRAM}" "$@"\n')
    program.chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if name != "SPARKLOG_PROFILE"}
    return inherited | {
        "PATH": f"{directory}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "SPARKLOG_BOOTSTRAP_SERVER": server,
    }
