"""`sparklog debug bundle`: what is needed to find the cause of a problem on another machine, in one file."""

import time
from pathlib import Path
from typing import Final

import click

from sparklog_server.cli.debug_bundle import Bundle
from sparklog_server.cli.node_pages import addresses
from sparklog_server.cli.options import client_map, reaches_cluster, unchecked_settings
from sparklog_server.cli.printing import as_json, print_json, print_line

EXIT_FAILURE: Final = 1


@click.group()
def debug() -> None:
    """Gather what is needed to find the cause of a problem."""


@debug.command()
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write to this new file. [default: sparklog-debug-TIME.zip]",
)
@click.option(
    "--data-dir",
    "directories",
    metavar="DIR",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="Add the files of this log directory by name and size, and headers of its batches. Repeatable.",
)
@click.option(
    "--log-file",
    "log_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Add the last lines of this log of a node. Repeatable.",
)
@click.option(
    "--http",
    "http",
    metavar="URL",
    multiple=True,
    help="Add metrics, readiness and stacks of a node, from its sparklog.http.listener. Repeatable, or "
    "separated by commas.",
)
@reaches_cluster
@as_json
def bundle(
    output: str | None,
    directories: tuple[str, ...],
    log_files: tuple[str, ...],
    http: tuple[str, ...],
    is_json: bool,
) -> int:
    """Write versions, settings, metadata, health, metrics, stacks, logs and heads of logs to one .zip.

    The bundle has no passwords, keys or tokens and no key, value or header of a record. It has the names of
    topics, groups, hosts and files. What cannot be read is listed in it: a cluster that does not answer is
    not a failure.
    """
    try:
        nodes = addresses(http)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--http") from None
    settings = unchecked_settings()
    path = Path(output or time.strftime("sparklog-debug-%Y%m%dT%H%M%SZ.zip", time.gmtime()))
    try:
        with Bundle(path, client_map()) as gathered:
            gathered.machine()
            gathered.cluster(settings)
            gathered.nodes(settings, nodes)
            gathered.directories(directories)
            gathered.logs(log_files)
    except FileExistsError:
        raise click.ClickException(f"{path} exists: name a new file with --output") from None
    if is_json:
        print_json({"file": str(path), "bytes": path.stat().st_size, "missing": gathered.missing})
        return 0
    print_line("wrote", path, path.stat().st_size)
    for part, reason in gathered.missing.items():
        print_line("missing", part, reason)
    return 0
